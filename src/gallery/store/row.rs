//! A prototype as the database holds it: its embedding as bytes, its checksum, and the check of both when it is read.

use std::fmt;
use std::rc::Rc;

use rusqlite::Row;

use super::schema;
use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};

/// The columns that [`read`] wants, in its order.
pub(super) const COLUMNS: &str =
    "p.key, p.identity, p.prototype_id, p.source, p.origin, p.created_ms, p.checksum, p.embedding";

/// Little-endian `f32`.
pub(super) fn encode(embedding: &Embedding, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend(embedding.as_slice().iter().flat_map(|value| value.to_le_bytes()));
}

fn decode(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

/// CRC-32 over what a prototype is: names behind their lengths, so that none can pass for part of another, then the embedding.
pub(super) fn checksum(identity: &str, id: &str, source: &str, embedding: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for name in [identity, id, source] {
        hasher.update(&(name.len() as u32).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    hasher.update(embedding);
    hasher.finalize()
}

/// A prototype that is not as it was written.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) index: u64,
    pub(super) identity: String,
    pub(super) problem: String,
}

/// Why a row gave no prototype.
pub(super) enum RowError {
    Sqlite(rusqlite::Error),
    Damage(Damage),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Reads one row of [`COLUMNS`] and checks it: the identity exists in the gallery, length, checksum, components, norm, origin.
///
/// `identity` gives the name of an identity's number.
pub(super) fn read(
    row: &Row<'_>,
    dim: usize,
    identity: impl Fn(i64) -> Option<Rc<str>>,
) -> Result<(u64, Prototype), RowError> {
    let index = schema::index_of(row.get(0)?);
    let number: i64 = row.get(1)?;
    let damage = |identity: &str, problem: String| {
        RowError::Damage(Damage { index, identity: identity.to_owned(), problem })
    };
    let name = identity(number)
        .ok_or_else(|| damage("", format!("expected an identity of this gallery, got number {number}")))?;
    let wrong = |what: &str, problem: &dyn fmt::Display| damage(&name, format!("{what}: {problem}"));
    let text = |column: usize, what: &str| -> Result<&str, RowError> {
        row.get_ref(column)?.as_str().map_err(|problem| wrong(what, &problem))
    };
    let (id, source) = (text(2, "id")?, text(3, "source")?);
    let blob = row.get_ref(7)?.as_blob().map_err(|problem| wrong("embedding", &problem))?;
    if blob.len() != dim * size_of::<f32>() {
        let (expected, got) = (dim * size_of::<f32>(), blob.len());
        return Err(damage(&name, format!("embedding: expected {expected} bytes, got {got}")));
    }
    let (expected, got): (i64, u32) = (row.get(6)?, checksum(&name, id, source, blob));
    if expected != i64::from(got) {
        return Err(damage(&name, format!("expected checksum {expected:#x}, got {got:#x}")));
    }
    let embedding = Embedding::parse(decode(blob), dim, NormPolicy::RequireUnit)
        .map_err(|problem| wrong("embedding", &problem))?;
    let origin: Origin = text(4, "origin")?.parse().map_err(|problem| wrong("origin", &problem))?;
    let (id, source) = (id.to_owned(), source.to_owned());
    let key = PrototypeKey { identity: name.as_ref().to_owned(), id };
    Ok((index, Prototype { key, source, origin, created_ms: row.get(5)?, embedding }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_passes_for_part_of_another() {
        let all = [checksum("ab", "c", "", &[]), checksum("a", "bc", "", &[]), checksum("a", "b", "c", &[])];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:x?}");
    }

    #[test]
    fn an_embedding_keeps_its_bits() {
        let embedding = Embedding::parse(vec![0.6, -0.8], 2, NormPolicy::RequireUnit).unwrap();
        let mut bytes = vec![1, 2, 3];
        encode(&embedding, &mut bytes);
        assert_eq!(bytes, [0x9a, 0x99, 0x19, 0x3f, 0xcd, 0xcc, 0x4c, 0xbf]);
        assert_eq!(decode(&bytes), embedding.as_slice());
    }
}

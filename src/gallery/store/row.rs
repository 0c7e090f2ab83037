//! A prototype as the database holds it: its embedding as bytes, its checksum, and the check of both when it is read.

use std::fmt;

use rusqlite::Row;

use super::names::IdentityNames;
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

fn decode(bytes: &[u8], values: &mut Vec<f32>) {
    values.clear();
    values.extend(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)));
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

/// A prototype that is as it was written; its texts are still the database's.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub(super) index: u64,
    pub(super) identity: &'a str,
    pub(super) id: &'a str,
    pub(super) source: &'a str,
    pub(super) origin: Origin,
    pub(super) created_ms: i64,
    pub(super) embedding: Embedding,
}

impl Checked<'_> {
    /// A prototype of its own.
    pub(super) fn to_prototype(&self) -> Prototype {
        Prototype {
            key: PrototypeKey { identity: self.identity.to_owned(), id: self.id.to_owned() },
            source: self.source.to_owned(),
            origin: self.origin,
            created_ms: self.created_ms,
            embedding: self.embedding.clone(),
        }
    }
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
/// The embedding takes the memory of `values`; see [`Embedding::into_values`].
pub(super) fn read<'a>(
    row: &'a Row<'_>,
    dim: usize,
    names: &'a IdentityNames,
    values: &mut Vec<f32>,
) -> Result<Checked<'a>, RowError> {
    let index = schema::index_of(row.get(0)?);
    let number: i64 = row.get(1)?;
    let damage = |identity: &str, problem: String| {
        RowError::Damage(Damage { index, identity: identity.to_owned(), problem })
    };
    let identity = names
        .get(number)
        .ok_or_else(|| damage("", format!("expected an identity of this gallery, got number {number}")))?;
    let wrong = |what: &str, problem: &dyn fmt::Display| damage(identity, format!("{what}: {problem}"));
    let text = |column: usize, what: &str| -> Result<&'a str, RowError> {
        row.get_ref(column)?.as_str().map_err(|problem| wrong(what, &problem))
    };
    let (id, source) = (text(2, "id")?, text(3, "source")?);
    let blob = row.get_ref(7)?.as_blob().map_err(|problem| wrong("embedding", &problem))?;
    if blob.len() != dim * size_of::<f32>() {
        let (expected, got) = (dim * size_of::<f32>(), blob.len());
        return Err(damage(identity, format!("embedding: expected {expected} bytes, got {got}")));
    }
    let (expected, got): (i64, u32) = (row.get(6)?, checksum(identity, id, source, blob));
    if expected != i64::from(got) {
        return Err(damage(identity, format!("expected checksum {expected:#x}, got {got:#x}")));
    }
    decode(blob, values);
    let embedding = Embedding::parse(std::mem::take(values), dim, NormPolicy::RequireUnit)
        .map_err(|problem| wrong("embedding", &problem))?;
    let origin: Origin = text(4, "origin")?.parse().map_err(|problem| wrong("origin", &problem))?;
    Ok(Checked { index, identity, id, source, origin, created_ms: row.get(5)?, embedding })
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
        let mut values = vec![7.0];
        decode(&bytes, &mut values);
        assert_eq!(values, embedding.as_slice());
    }
}

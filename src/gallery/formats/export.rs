//! Prototypes written as files that [`read_prototypes`](super::read_prototypes) reads back.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::output::Complete;
use super::{FormatError, Problem, npy};
use crate::domain::Prototype;
use crate::gallery::Place;

/// Where an export went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFiles {
    /// The embeddings, `.npy`.
    pub vectors: PathBuf,
    /// The labels beside them, `.csv`.
    pub labels: PathBuf,
}

/// Writes the embeddings, each of `dim` components, to `path`, and `identity,prototype_id,source` a row beside it: the same name
/// with the ending `.csv`, and a header line. Neither takes its place before both are complete, so that no failure to write leaves new labels
/// beside old vectors.
pub fn write_prototypes(
    path: &Path,
    dim: usize,
    prototypes: &[(u64, Prototype)],
) -> Result<ExportFiles, FormatError> {
    let files = ExportFiles { vectors: path.to_owned(), labels: path.with_extension("csv") };
    if files.labels == files.vectors {
        return Err(refused(path, "expected another ending than .csv, which is where the labels go"));
    }
    let labels = Complete::write(&files.labels, |out| {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["identity", "prototype_id", "source"])?;
        for (_, prototype) in prototypes {
            csv.write_record([&prototype.key.identity, &prototype.key.id, &prototype.source])?;
        }
        csv.flush()
    })?;
    let embeddings = prototypes.iter().map(|(_, prototype)| prototype.embedding.as_slice());
    let vectors = npy::complete_f32(path, dim, embeddings)?;
    if labels.target() == vectors.target() {
        return Err(refused(path, "expected another file than the labels', got a link to it"));
    }
    labels.put_in_place()?;
    vectors.put_in_place()?;
    Ok(files)
}

/// One line of a file of prototypes that carries their labels and how they were chosen.
#[derive(Clone, Debug, Serialize)]
pub struct ExportLine<'a> {
    /// The prototype's id.
    pub id: String,
    /// The person.
    pub identity: String,
    /// Where it came from; may be empty.
    pub source: String,
    /// How it was chosen, as [`Origin::as_str`](crate::domain::Origin::as_str) has it.
    pub origin: &'a str,
    /// The vector.
    pub embedding: &'a [f32],
}

/// Writes prototypes as JSON Lines.
pub fn write_jsonl<'a>(path: &Path, lines: impl Iterator<Item = ExportLine<'a>>) -> Result<(), FormatError> {
    let file = Complete::write(path, |out| {
        for line in lines {
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })?;
    file.put_in_place()
}

/// Writes a file of any kind, whole or not at all, and over nothing but a regular file.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), FormatError> {
    Complete::write(path, |out| out.write_all(content))?.put_in_place()
}

fn refused(path: &Path, reason: &str) -> FormatError {
    Problem::Field { field: "export", reason: reason.to_owned() }.at(Place::file(path))
}

//! Embeddings in files: NumPy arrays (`.npy`) with labels beside them, and JSON Lines.
//!
//! A file's format is told by its content; its name only helps the error message. Nothing is ever loaded by running
//! code from it (pickles are refused). Every error names the file and the line or row, what was expected and what came.
//! A file is read whole or not at all, and only a regular one, since it is opened twice: a pipe would lose what was read first.
//!
//! Limits: [`MAX_ROWS`], [`MAX_LINE_BYTES`], [`MAX_LABEL_BYTES`], [`MAX_DIM`].

mod error;
mod export;
mod input;
pub mod jsonl;
pub mod labels;
mod lines;
pub mod npy;
mod output;

use std::io::Read;
use std::path::Path;

pub use error::{FormatError, Problem};
pub use export::{ExportFiles, ExportLine, write_jsonl, write_prototypes, write_whole};

use super::{OnProgress, Place, ProbeRecord, PrototypeRecord};
use crate::domain::{MAX_DIM, Origin, check_name};

/// Most rows, or lines, of one file.
pub const MAX_ROWS: u64 = 100_000_000;

/// Most bytes of one line of a text file.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Most bytes of a labels file.
pub const MAX_LABEL_BYTES: u64 = 1 << 34;

/// Vectors as they stand in a file: `f32[rows, dim]`, row after row, neither checked nor normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    dim: usize,
    values: Vec<f32>,
}

impl Vectors {
    /// Vectors of `dim` components each.
    ///
    /// # Panics
    /// If `dim` is 0 or does not divide the number of values.
    pub fn new(dim: usize, values: Vec<f32>) -> Self {
        assert!(dim > 0 && values.len().is_multiple_of(dim), "whole rows of at least one component");
        Self { dim, values }
    }

    /// Components a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The rows, `dim` components each.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.dim)
    }

    /// All components, row after row.
    pub fn as_slice(&self) -> &[f32] {
        &self.values
    }
}

/// Reads prototypes: from `.npy` with a `labels` file of one line a row, or from JSON Lines, which carry their own labels.
///
/// At least one is returned, and all have vectors of one length.
pub fn read_prototypes(
    path: &Path,
    labels: Option<&Path>,
    on_progress: OnProgress<'_>,
) -> Result<Vec<PrototypeRecord>, FormatError> {
    let place = Place::file(path);
    match (detect(path)?, labels) {
        (Format::Jsonl, None) => jsonl::read_prototypes(path, on_progress),
        (Format::Jsonl, Some(_)) => Err(Problem::LabelsNotWanted.at(place)),
        (Format::Npy, None) => Err(Problem::LabelsWanted.at(place)),
        (Format::Npy, Some(labels)) => {
            // Labels first: they are small, and a mistake in them shows before much is read.
            let labels = labels::Labels::read(labels)?;
            let vectors = npy::read(path, on_progress)?;
            labels.check_count(vectors.len(), path)?;
            let rows = vectors.rows().zip(labels.into_labels()).enumerate();
            Ok(rows
                .map(|(row, (vector, label))| PrototypeRecord {
                    identity: label.identity,
                    id: label.prototype_id,
                    source: label.source,
                    origin: Origin::Import,
                    embedding: vector.to_vec(),
                    place: place.row(row as u64),
                })
                .collect())
        }
    }
}

/// Reads probes: the rows of a `.npy` file (their ids are row numbers from 0), or JSON Lines.
///
/// At least one is returned, and all have vectors of one length.
pub fn read_probes(path: &Path) -> Result<Vec<ProbeRecord>, FormatError> {
    let silent: OnProgress<'_> = &mut |_| ();
    match detect(path)? {
        Format::Jsonl => jsonl::read_probes(path, silent),
        Format::Npy => {
            let place = Place::file(path);
            let vectors = npy::read(path, silent)?;
            Ok(vectors
                .rows()
                .enumerate()
                .map(|(row, vector)| ProbeRecord {
                    id: row.to_string(),
                    group: String::new(),
                    source: String::new(),
                    identity: None,
                    exclude_identities: Vec::new(),
                    exclude_prototypes: Vec::new(),
                    exclude_sources: Vec::new(),
                    embedding: vector.to_vec(),
                    place: place.row(row as u64),
                })
                .collect())
        }
    }
}

/// Reads vectors alone, whatever stands beside them: the rows of a `.npy` file, or JSON Lines. At least one.
pub fn read_vectors(path: &Path, on_progress: OnProgress<'_>) -> Result<Vectors, FormatError> {
    match detect(path)? {
        Format::Npy => npy::read(path, on_progress),
        Format::Jsonl => {
            let probes = jsonl::read_probes(path, on_progress)?;
            let dim = probes[0].embedding.len();
            Ok(Vectors::new(dim, probes.into_iter().flat_map(|probe| probe.embedding).collect()))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Npy,
    Jsonl,
}

/// Tells a file's format by its first bytes.
fn detect(path: &Path) -> Result<Format, FormatError> {
    let place = Place::file(path);
    let (head, length) = read_head(path).map_err(|problem| problem.at(place.clone()))?;
    let text = head.strip_prefix(lines::BOM).unwrap_or(&head).trim_ascii_start();
    let seems = match () {
        () if head.starts_with(npy::MAGIC) => return Ok(Format::Npy),
        // Before JSON and pickles, as which lengths of 123 and 640 would pass; neither has zeros there.
        () if is_fvecs(&head, length) => "what seems an .fvecs or .ivecs file (save the array as .npy)",
        () if text.starts_with(b"{") => return Ok(Format::Jsonl),
        () if head.is_empty() => "an empty file",
        () if matches!(head.as_slice(), [0x80, 2..=5, ..]) => {
            "a pickle (pickles run code when loaded, so they are refused)"
        }
        () if head.starts_with(b"PK") => "a zip archive such as .npz or .pt (save the one array as .npy)",
        () if head.starts_with(b"\x89HDF") => "an HDF5 file",
        () if head.starts_with(b"PAR1") => "a Parquet file",
        () if text.starts_with(b"[") => "a JSON array (write one object a line)",
        () => "something else",
    };
    Err(Problem::UnknownFormat { got: seems }.at(place))
}

/// The first bytes of a file, and how many it has.
fn read_head(path: &Path) -> Result<(Vec<u8>, u64), Problem> {
    let (file, length) = input::open(path)?;
    let mut head = Vec::with_capacity(512);
    file.take(512).read_to_end(&mut head)?;
    Ok((head, length))
}

/// Whether a file is rows of 4-byte numbers, each row behind its length (u32, little-endian).
fn is_fvecs(head: &[u8], length: u64) -> bool {
    let Some(dim) = head.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else { return false };
    (1..=MAX_DIM as u32).contains(&dim) && length.is_multiple_of(4 + 4 * u64::from(dim))
}

/// Checks a name in the file.
fn checked_name(field: &'static str, name: String) -> Result<String, Problem> {
    check_name(&name).map_err(|problem| Problem::Name { field, problem })?;
    Ok(name)
}

/// As [`checked_name`], but nothing at all is allowed too.
fn checked_optional(field: &'static str, name: String) -> Result<String, Problem> {
    if name.is_empty() { Ok(name) } else { checked_name(field, name) }
}

/// Checks a number of components.
fn checked_dim(dim: u64) -> Result<usize, Problem> {
    match usize::try_from(dim) {
        Ok(dim) if (1..=MAX_DIM).contains(&dim) => Ok(dim),
        Ok(_) | Err(_) => Err(Problem::Dim { got: dim }),
    }
}

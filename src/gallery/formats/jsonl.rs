//! JSON Lines: one object a line.
//!
//! Keys of a prototype: `id`, `identity` (or `person_id`, `label`), `source` (or `image`; may be missing), `origin` (how it was
//! chosen; may be missing: `import`), `embedding`. Keys of a probe: `embedding`, and as far as wanted `id`, `group`, `source`,
//! `identity`, `exclude_identities`, `exclude_prototypes`, `exclude_sources`; an `origin` is passed over, so that a file of prototypes
//! can be asked about. Any other key is refused, so that a mistyped one
//! does not pass for a missing one.

use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::lines::Lines;
use super::{FormatError, Problem, checked_dim, checked_name, checked_optional};
use crate::domain::Origin;
use crate::gallery::{OnProgress, Place, ProbeRecord, PrototypeRecord};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrototypeLine {
    id: String,
    #[serde(alias = "person_id", alias = "label")]
    identity: String,
    #[serde(default, alias = "image")]
    source: String,
    origin: Option<String>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeLine {
    id: Option<String>,
    #[serde(default)]
    group: String,
    #[serde(default, alias = "image")]
    source: String,
    #[serde(alias = "person_id", alias = "label")]
    identity: Option<String>,
    /// Prototypes may be asked about too; how they were chosen then does not matter.
    #[serde(rename = "origin")]
    _origin: Option<IgnoredAny>,
    #[serde(default)]
    exclude_identities: Vec<String>,
    #[serde(default)]
    exclude_prototypes: Vec<String>,
    #[serde(default)]
    exclude_sources: Vec<String>,
    embedding: Vec<f32>,
}

/// Reads prototypes; at least one, all with vectors of one length.
pub fn read_prototypes(
    path: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Vec<PrototypeRecord>, FormatError> {
    read(path, on_progress, |line: PrototypeLine, _, place| {
        Ok(PrototypeRecord {
            identity: checked_name("identity", line.identity)?,
            id: checked_name("id", line.id)?,
            source: checked_optional("source", line.source)?,
            origin: match line.origin {
                None => Origin::Import,
                Some(name) => name
                    .parse()
                    .map_err(|error| Problem::Field { field: "origin", reason: format!("{error}") })?,
            },
            embedding: line.embedding,
            place,
        })
    })
}

/// Reads probes; at least one, all with vectors of one length. One without an id gets its place among them, from 0.
pub fn read_probes(path: &Path, on_progress: OnProgress<'_>) -> Result<Vec<ProbeRecord>, FormatError> {
    read(path, on_progress, |line: ProbeLine, number, place| {
        Ok(ProbeRecord {
            id: match line.id {
                None => (number - 1).to_string(),
                Some(id) => checked_optional("id", id)?,
            },
            group: checked_optional("group", line.group)?,
            source: checked_optional("source", line.source)?,
            identity: line.identity.map(|name| checked_name("identity", name)).transpose()?,
            exclude_identities: line.exclude_identities,
            exclude_prototypes: line.exclude_prototypes,
            exclude_sources: line.exclude_sources,
            embedding: line.embedding,
            place,
        })
    })
}

/// A record that has a vector.
trait Vector {
    fn components(&self) -> usize;
}

impl Vector for PrototypeRecord {
    fn components(&self) -> usize {
        self.embedding.len()
    }
}

impl Vector for ProbeRecord {
    fn components(&self) -> usize {
        self.embedding.len()
    }
}

fn read<Line: DeserializeOwned, Record: Vector>(
    path: &Path,
    on_progress: OnProgress<'_>,
    convert: impl Fn(Line, u64, Place) -> Result<Record, Problem>,
) -> Result<Vec<Record>, FormatError> {
    let mut lines = Lines::open(path, on_progress)?;
    let file = lines.place().clone();
    let mut records: Vec<Record> = Vec::new();
    while let Some((line, number)) = lines.next()? {
        let place = file.line(number);
        let parsed = serde_json::from_str(line).map_err(|error| describe(line, &error));
        let record = parsed
            .and_then(|parsed| convert(parsed, number, place.clone()))
            .and_then(|record| check_components(record, records.first()))
            .map_err(|problem| problem.at(place))?;
        records.push(record);
    }
    if records.is_empty() { Err(Problem::NoRows.at(file)) } else { Ok(records) }
}

fn check_components<Record: Vector>(record: Record, first: Option<&Record>) -> Result<Record, Problem> {
    let got = record.components();
    checked_dim(got as u64)?;
    match first.map(Vector::components) {
        Some(expected) if expected != got => Err(Problem::DimDiffers { expected, first_line: 1, got }),
        Some(_) | None => Ok(record),
    }
}

/// What is wrong with a line: as the parser says it, except for the non-finite numbers that Python writes into JSON.
fn describe(line: &str, error: &serde_json::Error) -> Problem {
    let column = error.column();
    if error.is_syntax() {
        for start in column.saturating_sub(3)..=column {
            let Some(rest) = line.get(start..) else { continue };
            for token in ["-Infinity", "Infinity", "NaN"] {
                if rest.starts_with(token) {
                    let component = line[..start].bytes().rev().take_while(|b| *b != b'[');
                    let component = component.filter(|b| *b == b',').count();
                    return Problem::NotFinite { got: token, component };
                }
            }
        }
    }
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    Problem::Json(format!("{text} (column {column})"))
}

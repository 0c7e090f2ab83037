//! What is read from a file before it is checked against a gallery: prototypes and probes with raw vectors, and the
//! place each came from, so that whoever refuses one later can still say where it stands.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::domain::Origin;

/// Where in a file something stands. Shown as `faces.jsonl line 7` (lines count from 1) or `faces.npy row 3 (from 0)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: Arc<Path>,
    spot: Spot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Whole,
    Line(u64),
    Row(u64),
}

impl Place {
    /// The file as a whole.
    pub fn file(path: &Path) -> Self {
        Self { file: path.into(), spot: Spot::Whole }
    }

    /// A line of the same file; the first is 1.
    #[must_use]
    pub fn line(&self, number: u64) -> Self {
        Self { file: Arc::clone(&self.file), spot: Spot::Line(number) }
    }

    /// A row of the same file; the first is 0.
    #[must_use]
    pub fn row(&self, row: u64) -> Self {
        Self { file: Arc::clone(&self.file), spot: Spot::Row(row) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.spot {
            Spot::Whole => Ok(()),
            Spot::Line(number) => write!(f, " line {number}"),
            Spot::Row(row) => write!(f, " row {row} (from 0)"),
        }
    }
}

/// A prototype as a file gives it. Names are checked; the vector is raw and may still be refused.
#[derive(Clone, Debug, PartialEq)]
pub struct PrototypeRecord {
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub id: String,
    /// Where it came from, such as a photo's file name; may be empty.
    pub source: String,
    /// How it was chosen.
    pub origin: Origin,
    /// The vector as it stands in the file: not normalised, perhaps not finite.
    pub embedding: Vec<f32>,
    /// Where it stands.
    pub place: Place,
}

/// A probe as a file gives it. The vector is raw and may still be refused.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeRecord {
    /// The probe's name: its row number (from 0) where the file has none.
    pub id: String,
    /// The photo it was found in; may be empty.
    pub group: String,
    /// Where it came from; may be empty.
    pub source: String,
    /// Who it is known to be, where the file says so: for judging answers, never for finding them.
    pub identity: Option<String>,
    /// Identities to leave out.
    pub exclude_identities: Vec<String>,
    /// Prototypes to leave out.
    pub exclude_prototypes: Vec<String>,
    /// Sources to leave out.
    pub exclude_sources: Vec<String>,
    /// The vector as it stands in the file: not normalised, perhaps not finite.
    pub embedding: Vec<f32>,
    /// Where it stands.
    pub place: Place,
}

/// What long work is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading a file; counted in bytes.
    Reading,
    /// Writing to the store; counted in prototypes.
    Storing,
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which part of it.
    pub stage: Stage,
    /// How much is done.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// Is told now and then how far long work has come.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

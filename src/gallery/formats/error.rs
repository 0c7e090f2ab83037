//! Why a file could not be read: where, what was expected, what came.
//!
//! A message says all there is to say, what lies beneath included; so no error has a source, and whoever prints a chain says nothing twice.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{MAX_LABEL_BYTES, MAX_LINE_BYTES, MAX_ROWS};
use crate::domain::{MAX_DIM, NameError};
use crate::gallery::{Place, files};

/// A file that is not as it should be.
#[derive(Debug, Error)]
#[error("{place}: {problem}")]
pub struct FormatError {
    /// Where.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at a place.
#[derive(Debug, Error)]
pub enum Problem {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(io::Error),
    /// It cannot be written.
    #[error("cannot be written: {}", files::advice(.0))]
    Unwritten(io::Error),
    /// It is no file: its content could not be read twice, or not be replaced.
    #[error("expected a regular file, got {got}")]
    NotAFile {
        /// What it is.
        got: &'static str,
    },
    /// Neither of the formats that are read.
    #[error("expected a NumPy array (.npy) or JSON Lines, got {got}")]
    UnknownFormat {
        /// What it looks like.
        got: &'static str,
    },
    /// Vectors without labels.
    #[error(
        "expected labels beside it, got none: a .npy file holds vectors only, so --labels FILE is wanted (one line a row)"
    )]
    LabelsWanted,
    /// Labels for a file that has its own.
    #[error("expected no labels beside it: JSON Lines carry their own, so --labels is not wanted")]
    LabelsNotWanted,
    /// Not one label a row.
    #[error("expected {expected} labels, one a row of {}, got {got}", .vectors.display())]
    LabelCount {
        /// Rows of the vectors' file.
        expected: u64,
        /// Labels.
        got: u64,
        /// The vectors' file.
        vectors: PathBuf,
    },
    /// A header line that names what is no column.
    #[error(
        "header: expected the columns identity, prototype_id, source (each at most once, identity always), got {got:?}"
    )]
    Header {
        /// The line as read.
        got: String,
    },
    /// A line with too few or too many fields.
    #[error("expected {expected} fields, got {got}")]
    FieldCount {
        /// As in the first line.
        expected: String,
        /// In this line.
        got: u64,
    },
    /// Not CSV.
    #[error("expected CSV: {0}")]
    Csv(String),
    /// Not a name.
    #[error("{field}: {problem}")]
    Name {
        /// Which one.
        field: &'static str,
        /// Why not.
        problem: NameError,
    },
    /// Some other field is wrong.
    #[error("{field}: {reason}")]
    Field {
        /// Which one.
        field: &'static str,
        /// Expected and got.
        reason: String,
    },
    /// Not a JSON object of the right keys.
    #[error("expected a JSON object of the known keys: {0}")]
    Json(String),
    /// NaN or an infinity written into JSON.
    #[error("embedding: expected finite components, got {got} at component {component}")]
    NotFinite {
        /// As written.
        got: &'static str,
        /// From 0.
        component: usize,
    },
    /// Vectors of two lengths.
    #[error("embedding: expected {expected} components as on line {first_line}, got {got}")]
    DimDiffers {
        /// Of the first vector.
        expected: usize,
        /// Where that stands.
        first_line: u64,
        /// Of this one.
        got: usize,
    },
    /// No vector, or one too long.
    #[error("expected 1 to {MAX_DIM} components a row, got {got}")]
    Dim {
        /// Components.
        got: u64,
    },
    /// A header of a NumPy file that cannot be read.
    #[error("expected a NumPy header of version 1 to 3: {0}")]
    NpyHeader(String),
    /// An array of Python objects.
    #[error(
        "expected float32, float64 or float16 components, got Python objects: pickled objects run code when loaded, so they are refused"
    )]
    NpyPickle,
    /// An array of something else than floats.
    #[error("expected float32, float64 or float16 components, got {0}")]
    NpyType(String),
    /// Not a matrix.
    #[error("expected 2 dimensions (rows, components), got {dimensions} in shape {shape}")]
    NpyShape {
        /// How many.
        dimensions: usize,
        /// As Python writes it.
        shape: String,
    },
    /// Cut off, or longer than its header says.
    #[error("expected {expected} bytes for shape {shape} of {descr}, got {got}: {}", if got < expected { "the file is cut off" } else { "bytes follow the array" })]
    NpyLength {
        /// By the header.
        expected: u128,
        /// Of the file.
        got: u128,
        /// As Python writes it.
        shape: String,
        /// The type of the components.
        descr: String,
    },
    /// Nothing in it.
    #[error("expected at least one row, got none")]
    NoRows,
    /// Too much in it.
    #[error("expected at most {MAX_ROWS} rows, got {0}")]
    TooManyRows(u64),
    /// A line too long.
    #[error("expected a line of at most {MAX_LINE_BYTES} bytes, got a longer one")]
    LineTooLong,
    /// A labels file too long.
    #[error("expected at most {MAX_LABEL_BYTES} bytes of labels, got {0}")]
    LabelsTooLong(u64),
    /// Not UTF-8.
    #[error("expected UTF-8 text, got byte 0x{byte:02x} at byte {at} of the line")]
    NotUtf8 {
        /// The first offending byte.
        byte: u8,
        /// Its place, from 0.
        at: usize,
    },
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Problem {
    /// The error at a place.
    pub(super) fn at(self, place: Place) -> FormatError {
        FormatError { place, problem: self }
    }
}

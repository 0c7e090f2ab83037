//! Why the store could not do what was asked.
//!
//! A message says all there is to say, what lies beneath included; so no error has a source, and whoever prints a chain says nothing twice.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{BUSY_TIMEOUT, DATABASE, FORMAT, MAX_GALLERIES, MAX_PROTOTYPES};
use crate::domain::{EmbeddingError, MAX_DIM, NameError};
use crate::gallery::Place;

/// What went wrong.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The data folder is not there.
    #[error("no data folder at {}: lookalike gallery import --data makes one", .0.display())]
    NoFolder(PathBuf),
    /// The folder is there, the database is not.
    #[error("{} holds no {DATABASE}", .0.display())]
    NoDatabase(PathBuf),
    /// The folder or file cannot be made or read.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Not a database at all, or another program's.
    #[error("{}: expected a Lookalike database, got {got}", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What it is.
        got: String,
    },
    /// A format of an earlier program.
    #[error("{}: expected format {FORMAT}, got the older format {got}", .file.display())]
    Older {
        /// The file.
        file: PathBuf,
        /// Its format.
        got: i64,
    },
    /// A format of a later program.
    #[error("{}: expected format {FORMAT}, got the newer format {got}: a later version of lookalike wrote it", .file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        got: i64,
    },
    /// Another process writes.
    #[error("{DATABASE} is locked: another process has been writing for more than {} s", BUSY_TIMEOUT.as_secs())]
    Busy,
    /// The database failed otherwise.
    #[error("{DATABASE}: {0}")]
    Sqlite(rusqlite::Error),
    /// No gallery of that name.
    #[error("no gallery {0:?}")]
    UnknownGallery(String),
    /// Not a name for a gallery.
    #[error("gallery name {name:?}: {problem}")]
    GalleryName {
        /// As asked.
        name: String,
        /// Why not.
        problem: NameError,
    },
    /// A model's name that is none.
    #[error("model id {name:?}: {problem}")]
    ModelId {
        /// As asked.
        name: String,
        /// Why not.
        problem: NameError,
    },
    /// The gallery is there and was made with another setting.
    #[error("gallery {gallery:?} has {option} {expected}, got {got}")]
    OptionDiffers {
        /// Which gallery.
        gallery: String,
        /// Which setting.
        option: &'static str,
        /// The gallery's.
        expected: String,
        /// As asked.
        got: String,
    },
    /// The gallery is no longer what it was when the caller looked at it; nothing was changed.
    #[error(
        "gallery {gallery:?}: expected generation {expected}, got {got}: somebody else changed it meanwhile, so look again"
    )]
    Changed {
        /// Which gallery.
        gallery: String,
        /// As the caller saw it; 0 where it was not there.
        expected: u64,
        /// As it is; 0 where it is not there.
        got: u64,
    },
    /// An import of nothing.
    #[error("expected at least one prototype, got none")]
    NoRecords,
    /// One of the records cannot be taken; none was.
    #[error("{place}: {problem}")]
    Record {
        /// Where it stands.
        place: Place,
        /// Why not.
        problem: Box<RecordProblem>,
    },
    /// One gallery too many.
    #[error("expected at most {MAX_GALLERIES} galleries, got one more")]
    TooManyGalleries,
    /// More prototypes than a gallery may hold.
    #[error("expected at most {MAX_PROTOTYPES} prototypes in gallery {gallery:?}, got {got}")]
    TooManyPrototypes {
        /// Which gallery.
        gallery: String,
        /// How many it would hold.
        got: u64,
    },
    /// A gallery that has given out its indices.
    #[error(
        "expected at most {indices_left} prototypes, for which gallery {gallery:?} has indices left, got {got}"
    )]
    IndicesSpent {
        /// Which gallery.
        gallery: String,
        /// How many are left.
        indices_left: u64,
        /// Prototypes to be added.
        got: u64,
    },
    /// What was to be removed is not there; nothing was removed.
    #[error("gallery {gallery:?} has no {what} {name:?}")]
    NothingSelected {
        /// Which gallery.
        gallery: String,
        /// `identity`, `prototype` or `source`.
        what: &'static str,
        /// As asked.
        name: String,
    },
    /// A prototype named in a way that fits several; nothing was removed.
    #[error("expected one prototype, got {name:?}, which {count} prototypes of gallery {gallery:?} fit")]
    Ambiguous {
        /// Which gallery.
        gallery: String,
        /// As asked.
        name: String,
        /// How many.
        count: usize,
    },
    /// A prototype that is not as it was written.
    #[error("gallery {gallery:?}, prototype {index} of {identity:?}: corrupted: {problem}")]
    Corrupt {
        /// Which gallery.
        gallery: String,
        /// The prototype's index.
        index: u64,
        /// Its identity.
        identity: String,
        /// Expected and got.
        problem: String,
    },
    /// A gallery or identity that is not as it was written.
    #[error("gallery {gallery:?}: corrupted: {problem}")]
    CorruptGallery {
        /// Which one.
        gallery: String,
        /// Expected and got.
        problem: String,
    },
}

/// Why a record cannot be taken.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum RecordProblem {
    /// Not a name.
    #[error("{field}: {problem}")]
    Name {
        /// Which one.
        field: &'static str,
        /// Why not.
        problem: NameError,
    },
    /// A vector too short or too long for any gallery.
    #[error("embedding: expected 1 to {MAX_DIM} components, got {got}")]
    Dim {
        /// Components.
        got: usize,
    },
    /// Not an embedding for this gallery.
    #[error("embedding: {0}")]
    Embedding(EmbeddingError),
    /// The same identity and id twice in what is imported.
    #[error("prototype {id:?} of {identity:?}: expected each once, got it already at {first}")]
    TwiceInImport {
        /// The person.
        identity: String,
        /// The prototype.
        id: String,
        /// Where it stood first.
        first: Place,
    },
    /// The same identity and id in the gallery already.
    #[error(
        "prototype {id:?} of {identity:?}: expected a new one, got what the gallery holds at index {index}"
    )]
    InGallery {
        /// The person.
        identity: String,
        /// The prototype.
        id: String,
        /// The index of the one that is there.
        index: u64,
    },
}

impl RecordProblem {
    /// The error at a place.
    pub(super) fn at(self, place: Place) -> StoreError {
        StoreError::Record { place, problem: Box::new(self) }
    }
}

impl From<EmbeddingError> for RecordProblem {
    fn from(error: EmbeddingError) -> Self {
        Self::Embedding(error)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => Self::Busy,
            Some(_) | None => Self::Sqlite(error),
        }
    }
}

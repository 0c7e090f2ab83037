//! Galleries on disk: one SQLite database, `lookalike.db`, in a data folder.
//!
//! Invariants:
//! - A change is one transaction and raises the gallery's generation by one; nobody ever sees half of it. Once it is reported,
//!   it is on disk (WAL, synchronous FULL).
//! - A prototype's index is never used again within its gallery, even after the prototype is removed; a gallery that is removed and
//!   made again goes on counting indices and generations.
//! - Every identity has at least one prototype, and every prototype a checksum over its names and its embedding; a row that
//!   does not match is never served.
//! - What is removed is overwritten, not just forgotten: embeddings are biometric data.
//! - The database says whose it is and which format it has; another program's, an older or a newer one is refused, unchanged.
//!
//! Limits: [`MAX_GALLERIES`], [`MAX_PROTOTYPES`], names as [`check_name`](crate::domain::check_name) has them. Several processes
//! may use one folder: readers never wait, a writer waits up to [`BUSY_TIMEOUT`] for another. SQL is spoken in this folder alone.

mod error;
mod import;
mod limits;
mod list;
mod names;
mod open;
mod read;
mod remove;
mod removed;
mod row;
mod schema;
mod verify;
mod writer;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, named_params};

use crate::gallery::FileId;
use removed::Counters;

pub use error::{RecordProblem, StoreError};
pub use import::{Import, ImportOptions, ImportReport};
pub use list::{GallerySummary, IdentitySummary, PrototypeQuery, PrototypeSummary};
pub use remove::{Erasure, RemoveReport, Selection};
pub use schema::FORMAT;
pub use verify::{Fault, VerifyReport, verify};

/// The database's file name in a data folder.
pub const DATABASE: &str = "lookalike.db";

/// Most galleries in a data folder.
pub const MAX_GALLERIES: u64 = 1000;

/// Most prototypes in a gallery: rows are counted in 32 bits when scanned.
pub const MAX_PROTOTYPES: u64 = u32::MAX as u64;

/// How long a writer waits for another process's write to end.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A data folder, opened.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    file: PathBuf,
    id: Option<FileId>,
}

impl Store {
    /// Which file it is, where the system tells.
    pub fn file_id(&self) -> Option<FileId> {
        self.id
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

/// A gallery's number and what the number is needed for.
#[derive(Clone, Copy, Debug)]
struct GalleryKey {
    number: i64,
    next_index: u64,
    generation: u64,
}

/// Finds a gallery by name. One whose numbers cannot be is an error: keys made of them would name rows of others.
fn find_gallery(db: &Connection, name: &str) -> Result<Option<GalleryKey>, StoreError> {
    let mut statement =
        db.prepare_cached("SELECT id, next_index, generation FROM galleries WHERE name = :name")?;
    let found = statement
        .query_row(named_params! { ":name": name }, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let Some((number, next_index, generation)) = found.optional()? else { return Ok(None) };
    let corrupt = |problem| StoreError::CorruptGallery { gallery: name.to_owned(), problem };
    if !(1..schema::NUMBER_END).contains(&number) {
        let greatest = schema::NUMBER_END - 1;
        return Err(corrupt(format!("expected a number from 1 to {greatest}, got {number}")));
    }
    let Counters { generation, next_index } = schema::counters(generation, next_index).map_err(corrupt)?;
    Ok(Some(GalleryKey { number, next_index, generation }))
}

/// As [`find_gallery`], but one that is not there is an error.
fn require_gallery(db: &Connection, name: &str) -> Result<GalleryKey, StoreError> {
    find_gallery(db, name)?.ok_or_else(|| StoreError::UnknownGallery(name.to_owned()))
}

/// Milliseconds since 1970 (UTC).
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

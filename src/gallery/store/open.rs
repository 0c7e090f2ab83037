//! Opening and making a data folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::schema::{APPLICATION_ID, PAGE_BYTES, TABLES};
use super::{BUSY_TIMEOUT, DATABASE, FORMAT, Store, StoreError};
use crate::gallery::{FileId, files};

impl Store {
    /// Opens the data folder `folder` for reading and writing; makes it and an empty database where they are not.
    ///
    /// What is made can be read by its owner alone: embeddings are biometric data.
    pub fn create_or_open(folder: &Path) -> Result<Self, StoreError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io { path, error }
        };
        make_folder(folder).map_err(io(folder))?;
        let file = folder.join(DATABASE);
        match look_at(&file)? {
            Some(metadata) => check_regular(&file, &metadata)?,
            None => make_file(&file).map_err(io(&file))?,
        }
        let mut db = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        if is_blank(&db).map_err(|error| unreadable(&file, error))? {
            initialise(&mut db)?;
        }
        Self::checked(db, file)
    }

    /// Opens the database of the data folder `folder` for reading and writing; both must be there.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let file = find(folder)?;
        let db = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        Self::checked(db, file)
    }

    /// Opens the database of the data folder `folder` for reading; both must be there.
    ///
    /// Where the file system is read-only too, the database is read as it lies there, provided that nobody left a write unfinished.
    pub fn open_read_only(folder: &Path) -> Result<Self, StoreError> {
        let file = find(folder)?;
        let opened = connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        match opened.and_then(|db| Self::checked(db, file.clone())) {
            // Without a place for its shared memory file, SQLite reads a WAL database only if told that it does not change.
            Err(StoreError::Sqlite(error)) if cannot_open(&error) && !has_wal(&file) => {
                let uri = format!("file:{}?immutable=1", percent_encoded(&file));
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                Self::checked(connect(Path::new(&uri), flags)?, file)
            }
            other => other,
        }
    }

    /// Wraps a connection once the database has shown whose it is and which format it has; only then is anything set that is
    /// written to it.
    fn checked(db: Connection, file: PathBuf) -> Result<Self, StoreError> {
        check_format(&db, &file)?;
        if !db.is_readonly("main")? {
            use_wal(&db)?;
        }
        let id = file_id(&file);
        Ok(Self { db, file, id })
    }
}

#[cfg(unix)]
fn file_id(file: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    let told = fs::metadata(file).ok()?;
    Some(FileId { device: told.dev(), number: told.ino(), made: told.created().ok() })
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> Option<FileId> {
    None
}

fn find(folder: &Path) -> Result<PathBuf, StoreError> {
    match look_at(folder)? {
        None => return Err(StoreError::NoFolder(folder.to_owned())),
        Some(metadata) if metadata.is_dir() => (),
        Some(_) => {
            return Err(StoreError::Io {
                path: folder.to_owned(),
                error: io::ErrorKind::NotADirectory.into(),
            });
        }
    }
    let file = folder.join(DATABASE);
    match look_at(&file)? {
        None => Err(StoreError::NoDatabase(folder.to_owned())),
        Some(metadata) => check_regular(&file, &metadata).map(|()| file),
    }
}

/// What stands at `path`, if anything; that it cannot be told, such as for want of permission, is an error.
fn look_at(path: &Path) -> Result<Option<fs::Metadata>, StoreError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Io { path: path.to_owned(), error }),
    }
}

/// Refuses what is no regular file, before it is opened: opening a pipe waits for whoever writes into it.
fn check_regular(file: &Path, metadata: &fs::Metadata) -> Result<(), StoreError> {
    match files::irregular(metadata) {
        None => Ok(()),
        Some(got) => Err(StoreError::Foreign { file: file.to_owned(), got: got.to_owned() }),
    }
}

/// Opens a database. Nothing of what is set here is written to it.
fn connect(file: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let db = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    configure(&db).map_err(|error| unreadable(file, error))?;
    Ok(db)
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    db.pragma_update(None, "cell_size_check", true)?;
    // Nothing of an embedding may lie in a temporary file.
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")
}

fn use_wal(db: &Connection) -> Result<(), StoreError> {
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    debug_assert_eq!(mode, "wal");
    Ok(())
}

fn is_blank(db: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0 && application_id(db)? == 0)
}

fn application_id(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "application_id", |row| row.get(0))
}

fn initialise(db: &mut Connection) -> Result<(), StoreError> {
    db.pragma_update(None, "page_size", PAGE_BYTES)?;
    use_wal(db)?;
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been first.
    if is_blank(&transaction)? {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    Ok(transaction.commit()?)
}

fn check_format(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let file = file.to_owned();
    let id = match application_id(db) {
        Ok(id) => id,
        Err(error) => return Err(unreadable(&file, error)),
    };
    if id != APPLICATION_ID {
        let got = format!("application id {id:#x} where {APPLICATION_ID:#x} is ours");
        return Err(StoreError::Foreign { file, got });
    }
    let got: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match got.cmp(&FORMAT) {
        std::cmp::Ordering::Less => Err(StoreError::Older { file, got }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(StoreError::Newer { file, got }),
    }
}

/// What an error at the first look at a database means.
fn unreadable(file: &Path, error: rusqlite::Error) -> StoreError {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) {
        StoreError::Foreign { file: file.to_owned(), got: "a file that is no SQLite database".to_owned() }
    } else {
        error.into()
    }
}

fn cannot_open(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly))
}

/// Whether a write-ahead log with something in it lies beside the database.
fn has_wal(file: &Path) -> bool {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    match fs::metadata(name) {
        Ok(log) => log.len() > 0,
        // What cannot be looked at may be one.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// A path as a URI has it.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(byte);
    let encode = |byte: u8| {
        if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    path.as_os_str().as_encoded_bytes().iter().copied().map(encode).collect()
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes an empty file, which SQLite takes for an empty database; its other files get the same permissions.
fn make_file(file: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}

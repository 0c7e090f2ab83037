//! Opening what is read: regular files alone.

use std::fs::{self, File, Metadata};
use std::path::Path;

use super::Problem;
use crate::gallery::files;

/// Opens a regular file, whatever links lead to it; gives its length in bytes too.
pub(super) fn open(path: &Path) -> Result<(File, u64), Problem> {
    // Looked at before it is opened: opening a pipe waits for whoever writes into it.
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    // And once more, since something else may have come to stand there.
    let metadata = file.metadata()?;
    check(&metadata)?;
    Ok((file, metadata.len()))
}

/// Refuses what is no regular file.
pub(super) fn check(metadata: &Metadata) -> Result<(), Problem> {
    match files::irregular(metadata) {
        None => Ok(()),
        Some(got) => Err(Problem::NotAFile { got }),
    }
}

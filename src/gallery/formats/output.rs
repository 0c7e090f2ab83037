//! Files that are written whole or not at all: to a temporary file beside the target, which takes its name when complete and on disk.
//!
//! Links are followed, so that what they lead to is replaced, not they. Only its owner may read what is written.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{FormatError, Problem, input};
use crate::gallery::{Place, files};

/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A file that is complete and on disk, but does not have its name yet; dropped, it is gone.
#[derive(Debug)]
pub(super) struct Complete {
    place: Place,
    target: PathBuf,
    temporary: NamedTempFile,
}

impl Complete {
    /// Lets `fill` write what shall stand at `path`.
    pub(super) fn write(
        path: &Path,
        fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> Result<Self, FormatError> {
        let place = Place::file(path);
        let written = || {
            let target = target(path)?;
            let temporary = write_beside(&target, fill).map_err(Problem::Unwritten)?;
            Ok((target, temporary))
        };
        match written() {
            Ok((target, temporary)) => Ok(Self { place, target, temporary }),
            Err(problem) => Err(Problem::at(problem, place)),
        }
    }

    /// Where it will stand, behind all links.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its name, in place of what had it.
    pub(super) fn put_in_place(self) -> Result<(), FormatError> {
        let put = self.temporary.persist(&self.target);
        put.map(drop).map_err(|error| Problem::Unwritten(error.error).at(self.place))
    }
}

fn write_beside(
    target: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let temporary = files::temporary_in(folder.unwrap_or(Path::new(".")), "")?;
    let mut out = BufWriter::with_capacity(WRITE_BYTES, temporary.as_file());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

/// The file to replace, behind all links; `path` itself where nothing stands yet.
fn target(path: &Path) -> Result<PathBuf, Problem> {
    match fs::metadata(path) {
        Ok(metadata) => {
            input::check(&metadata)?;
            path.canonicalize().map_err(Problem::Unwritten)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Ok(_) => Err(Problem::NotAFile { got: "a link to what is not there" }),
            Err(_) => Ok(path.to_owned()),
        },
        Err(error) => Err(Problem::Unwritten(error)),
    }
}

//! What stands at a path, where a regular file is wanted: files are read twice (their format is told by their content) and
//! replaced by renaming, neither of which a pipe or a device bears. And the files that take another's place so.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// A file in `folder`, to be given its name once it is complete; dropped, it is gone. Its owner alone may read it.
///
/// Its errors are the system's alone: the passing name of such a file is nothing that anybody asked for. (Written to, `NamedTempFile` names
/// itself in errors; its [`File`](std::fs::File) does not.)
pub(crate) fn temporary_in(folder: &Path, ending: &str) -> io::Result<NamedTempFile> {
    let make = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    };
    tempfile::Builder::new().suffix(ending).make_in(folder, make)
}

/// What stands there, if it is no regular file; `metadata` is that of the end of all links.
pub(super) fn irregular(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        return Some("a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
    }
    Some("something else")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_names_a_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = temporary_in(&folder.path().join("nowhere"), ".part").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
        let file = temporary_in(folder.path(), ".part").unwrap();
        assert_eq!(file.path().extension().and_then(|ending| ending.to_str()), Some("part"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            assert_eq!(file.as_file().metadata().unwrap().mode() & 0o777, 0o600);
        }
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}

//! What stands at a path, where a regular file is wanted: files are read twice (their format is told by their content) and
//! replaced by renaming, neither of which a pipe or a device bears. And the files that take another's place so.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind};
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

/// Why something cannot be written, and what to do about it, where the system's own words tell neither.
pub(crate) fn advice(error: &io::Error) -> String {
    const ADVICE: [(ErrorKind, &str); 7] = [
        (ErrorKind::StorageFull, "the disk is full: make room, or name another place"),
        (
            ErrorKind::QuotaExceeded,
            "this user's share of the disk is used up: make room, or name another place",
        ),
        (ErrorKind::FileTooLarge, "files may not be as large there: raise the limit, or name another place"),
        (
            ErrorKind::ReadOnlyFilesystem,
            "the disk can only be read: mount it for writing, or name another place",
        ),
        (
            ErrorKind::PermissionDenied,
            "this user may not write there: change the permissions, or name another place",
        ),
        (ErrorKind::NotFound, "its folder is not there: make it first"),
        (ErrorKind::NotADirectory, "its path leads through a file: name another place"),
    ];
    let known = ADVICE.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or_else(|| error.to_string(), |(_, advice)| (*advice).to_owned())
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

    /// As the system numbers them: full, quota, too large, read-only, not permitted, nothing there, through a file.
    #[cfg(target_os = "linux")]
    #[test]
    fn who_cannot_write_learns_why_and_what_to_do() {
        for (number, told) in [
            (28, "the disk is full: "),
            (122, "this user's share of the disk is used up: "),
            (27, "files may not be as large there: "),
            (30, "the disk can only be read: "),
            (13, "this user may not write there: "),
            (2, "its folder is not there: "),
            (20, "its path leads through a file: "),
            (5, "Input/output error (os error 5)"),
        ] {
            let advice = advice(&io::Error::from_raw_os_error(number));
            assert!(advice.starts_with(told), "{advice}");
        }
    }

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

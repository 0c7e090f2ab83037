//! What stands at a path, where a regular file is wanted: files are read twice (their format is told by their content) and
//! replaced by renaming, neither of which a pipe or a device bears.

use std::fs::Metadata;

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

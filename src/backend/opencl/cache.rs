//! Compiled kernels kept on disk from one start to the next, so that only the first has to wait for the compiler.
//!
//! A file is named after what its program is (source, options, function, platform, device) and tells in its head which drivers made it,
//! so that a program of another driver version is known as stale and replaced rather than piled up. The head holds
//!
//! ```text
//! magic and version of this format   8 bytes
//! key                               32 bytes   SHA-256 of all that the binary depends on, driver versions included
//! checksum                          32 bytes   SHA-256 of the binary
//! binary                            to the end of the file
//! ```
//!
//! Invariants: nothing in here is an error to a caller. What cannot be read is built from source and replaced; what cannot be written is
//! counted, and logged once. A reader sees a whole file or none (written beside it, synced, renamed). Files are bounded in size and number.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::config::CacheDir;
use crate::gallery::files;
use crate::telemetry::{self, ProgramCacheResult};

use super::choose::DeviceRecord;
use super::driver::build::MAX_BINARY_BYTES;

/// The last byte is the format's version.
const MAGIC: [u8; 8] = *b"LKCLBIN\x01";

const HASH_BYTES: usize = 32;
const HEAD_BYTES: usize = MAGIC.len() + 2 * HASH_BYTES;

/// How a kept program's file name ends.
const ENDING: &str = ".clbin";

/// Most files kept: all kernels of a few dimensions and devices. The oldest go first.
const MAX_FILES: usize = 1024;

type Hash = [u8; HASH_BYTES];

/// What a program is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ingredients<'a> {
    /// The whole source.
    pub(super) source: &'a str,
    /// The compiler's options.
    pub(super) options: &'a str,
    /// The function that is taken from it.
    pub(super) function: &'a str,
}

/// Programs of one device, kept in a folder or not at all.
#[derive(Debug)]
pub(super) struct ProgramCache {
    folder: Option<PathBuf>,
    device: DeviceRecord,
    warned: Cell<bool>,
}

/// What is kept of a program.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    Binary(Vec<u8>),
    Missing,
    /// Sound, but made by other drivers or written in another format.
    Stale,
    /// Not what was written.
    Corrupt,
}

impl ProgramCache {
    /// Of this device.
    pub(super) fn new(choice: &CacheDir, device: &DeviceRecord) -> Self {
        Self { folder: folder(choice), device: device.clone(), warned: Cell::new(false) }
    }

    /// What `revive` makes of the kept binary, or `build` of the source; then the binary that `build` gives beside it is kept.
    pub(super) fn revive_or_build<T, E>(
        &self,
        of: Ingredients<'_>,
        revive: impl FnOnce(&[u8]) -> Result<T, String>,
        build: impl FnOnce() -> Result<(T, Result<Vec<u8>, String>), E>,
    ) -> Result<T, E> {
        let Some(folder) = &self.folder else { return build().map(|(built, _)| built) };
        let path = folder.join(self.file_name(of));
        let key = self.key(of);
        let found = match read(&path, &key) {
            Kept::Binary(binary) => match revive(&binary) {
                Ok(revived) => {
                    telemetry::program_cache(ProgramCacheResult::Hit);
                    return Ok(revived);
                }
                Err(reason) => {
                    tracing::debug!(file = %path.display(), reason, "the driver refused a kept program");
                    ProgramCacheResult::Stale
                }
            },
            Kept::Missing => ProgramCacheResult::Miss,
            Kept::Stale => ProgramCacheResult::Stale,
            Kept::Corrupt => ProgramCacheResult::Corrupt,
        };
        telemetry::program_cache(found);
        let (built, binary) = build()?;
        let written = binary.and_then(|binary| {
            write(&path, &key, &binary).map_err(|error| format!("{}: {error}", folder.display()))
        });
        if let Err(reason) = written {
            telemetry::program_cache(ProgramCacheResult::Unwritable);
            if !self.warned.replace(true) {
                tracing::warn!(
                    reason,
                    "compiled kernels cannot be kept (backend.opencl.cache_dir); each start compiles them anew"
                );
            }
        }
        Ok(built)
    }

    fn file_name(&self, of: Ingredients<'_>) -> String {
        let name = hash([of.source, of.options, of.function, &self.device.platform, &self.device.name]);
        let [number, ..] = name.as_chunks::<16>().0 else { return ENDING.to_owned() };
        format!("{:032x}{ENDING}", u128::from_be_bytes(*number))
    }

    fn key(&self, of: Ingredients<'_>) -> Hash {
        let DeviceRecord { platform, platform_version, name, driver, .. } = &self.device;
        hash([of.source, of.options, of.function, platform, platform_version, name, driver])
    }
}

/// The folder that a setting means; `None`: nothing is kept.
pub(super) fn folder(choice: &CacheDir) -> Option<PathBuf> {
    match choice {
        CacheDir::Off => None,
        CacheDir::Folder(folder) => Some(folder.clone()),
        CacheDir::Auto => {
            let absolute = |path: PathBuf| path.is_absolute().then_some(path);
            let variable = |name| std::env::var_os(name).map(PathBuf::from).and_then(absolute);
            let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
            Some(cache.join("lookalike").join("opencl"))
        }
    }
}

/// How many programs a folder holds; an error where it cannot be listed.
pub(super) fn count(folder: &Path) -> io::Result<usize> {
    Ok(files(folder)?.len())
}

/// Whether a folder takes files: made if it is not there.
pub(super) fn check_writable(folder: &Path) -> io::Result<()> {
    make(folder)?;
    files::temporary_in(folder, ENDING).map(drop)
}

/// Each text with its length before it, so that no two lists of texts look alike.
fn hash<const N: usize>(texts: [&str; N]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(MAGIC);
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().into()
}

fn read(path: &Path, key: &Hash) -> Kept {
    let mut bytes = Vec::new();
    let whole = fs::metadata(path).and_then(|told| {
        // Anything but a file might block.
        if !told.is_file() {
            return Err(io::Error::other("not a file"));
        }
        File::open(path)?.take((HEAD_BYTES + MAX_BINARY_BYTES + 1) as u64).read_to_end(&mut bytes)
    });
    match whole {
        Ok(_) => unwrap(bytes, key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::Missing,
        Err(error) => {
            tracing::debug!(file = %path.display(), %error, "a kept program cannot be read");
            Kept::Corrupt
        }
    }
}

/// The binary in a file's bytes.
fn unwrap(mut bytes: Vec<u8>, key: &Hash) -> Kept {
    let Some((head, binary)) = bytes.split_at_checked(HEAD_BYTES) else { return Kept::Corrupt };
    let (magic, hashes) = head.split_at(MAGIC.len());
    let (made_by, checksum) = hashes.split_at(HASH_BYTES);
    let (format, version) = magic.split_at(MAGIC.len() - 1);
    if format != &MAGIC[..format.len()] {
        Kept::Corrupt
    } else if version != &MAGIC[format.len()..] {
        Kept::Stale
    } else if binary.is_empty() || binary.len() > MAX_BINARY_BYTES || Sha256::digest(binary)[..] != *checksum
    {
        Kept::Corrupt
    } else if made_by != key {
        Kept::Stale
    } else {
        bytes.drain(..HEAD_BYTES);
        Kept::Binary(bytes)
    }
}

fn write(path: &Path, key: &Hash, binary: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("no folder"))?;
    make(folder)?;
    prune(folder)?;
    let temporary = files::temporary_in(folder, ENDING)?;
    let mut file = temporary.as_file();
    for part in [&MAGIC[..], key, &Sha256::digest(binary), binary] {
        file.write_all(part)?;
    }
    // Else a crash of the machine could leave the name without the content.
    file.sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Makes a folder that its owner alone may enter.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes room for one more file. Files that a crash left half written go with the others, by age.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files = files(folder)?;
    let surplus = (files.len() + 1).saturating_sub(MAX_FILES);
    files.sort();
    for (_, path) in files.into_iter().take(surplus) {
        match fs::remove_file(&path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            removed => removed?,
        }
    }
    Ok(())
}

/// Our files of a folder, with the times they were written.
fn files(folder: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(ENDING.as_bytes()) {
            let written = entry.metadata().and_then(|told| told.modified());
            files.push((written.unwrap_or(SystemTime::UNIX_EPOCH), entry.path()));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;

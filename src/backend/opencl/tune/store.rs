//! What was found fastest on a device, kept from one start to the next: a small file a device.
//!
//! The file is named by platform, device and driver, so a new driver is measured anew; what it holds is compared with them as well. It is written beside its place and moved there, so nobody reads half of one. What cannot be read, or is not what was
//! written, is as good as none, with a warning: the defaults serve.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::backend::opencl::cache;
use crate::backend::opencl::choose::DeviceRecord;
use crate::backend::opencl::lanes::{Tuning, Variant};
use crate::config::CacheDir;
use crate::gallery::files;

/// The file's format: a file of another is not read.
const FORMAT: u32 = 1;

/// Most bytes of a file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Most characters of a device's name, and the like, in a file's name.
const MAX_NAME_PART: usize = 60;

/// The variants that were found fastest; `None` where nobody measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::opencl) struct Tuned {
    /// For few probes.
    pub(in crate::backend::opencl) few: Option<Variant>,
    /// For more.
    pub(in crate::backend::opencl) many: Option<Variant>,
}

impl Tuned {
    /// What serves a device: these where there are some, else what suits its kind.
    pub(in crate::backend::opencl) fn over(self, usual: Tuning) -> Tuning {
        Tuning { few: self.few.unwrap_or(usual.few), many: self.many.unwrap_or(usual.many), ..usual }
    }
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    platform: String,
    device: String,
    driver: String,
    variants: Tuned,
}

/// What was found on the device that `record` describes; nothing where nobody measured.
pub(in crate::backend::opencl) fn load(cache_dir: &CacheDir, record: &DeviceRecord) -> Tuned {
    let Some(path) = cache::folder(cache_dir).map(|folder| folder.join(file_name(record))) else {
        return Tuned::default();
    };
    match read(&path, record) {
        Ok(tuned) => tuned,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Tuned::default(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what was tuned for the device cannot be used; the defaults serve");
            Tuned::default()
        }
    }
}

/// Keeps what was found, beside what is there for other numbers of probes; the file's path, or `None` where nothing is to be kept.
pub(in crate::backend::opencl) fn save(
    cache_dir: &CacheDir,
    record: &DeviceRecord,
    found: Tuned,
) -> io::Result<Option<PathBuf>> {
    let Some(folder) = cache::folder(cache_dir) else { return Ok(None) };
    let before = load(cache_dir, record);
    let variants = Tuned { few: found.few.or(before.few), many: found.many.or(before.many) };
    let stored = Stored {
        format: FORMAT,
        platform: record.platform.clone(),
        device: record.name.clone(),
        driver: record.driver.clone(),
        variants,
    };
    let path = folder.join(file_name(record));
    write(&folder, &path, &stored).map_err(|error| {
        // Whoever reads it asked for no file.
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })?;
    Ok(Some(path))
}

fn write(folder: &Path, path: &Path, stored: &Stored) -> io::Result<()> {
    cache::make(folder)?;
    let temporary = files::temporary_in(folder, "")?;
    let mut file = temporary.as_file();
    serde_json::to_writer_pretty(file, stored)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn read(path: &Path, record: &DeviceRecord) -> io::Result<Tuned> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("expected at most {MAX_FILE_BYTES} bytes")));
    }
    let Stored { format, platform, device, driver, variants } = serde_json::from_str(&text)?;
    if format != FORMAT {
        return Err(io::Error::other(format!("expected format {FORMAT}, got {format}")));
    }
    if [&platform, &device, &driver] != [&record.platform, &record.name, &record.driver] {
        return Err(io::Error::other(format!("it is of {device} ({platform}), driver {driver}")));
    }
    Ok(variants)
}

/// Platform, device and driver, as far as a file's name goes: two that differ in other characters alone share a name, and the later
/// measurement has the file.
fn file_name(record: &DeviceRecord) -> String {
    let plain = |text: &String| -> String {
        let one = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        text.chars().take(MAX_NAME_PART).map(one).collect()
    };
    format!("tuned_{}_{}_{}.json", plain(&record.platform), plain(&record.name), plain(&record.driver))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::backend::opencl::DeviceKind;

    fn record(driver: &str) -> DeviceRecord {
        DeviceRecord {
            platform_index: 0,
            device_index: 0,
            platform: "a platform".to_owned(),
            name: "a device".to_owned(),
            kind: DeviceKind::Gpu,
            driver: driver.to_owned(),
            platform_version: String::new(),
            extensions: Vec::new(),
            fault: None,
            global_memory_bytes: 1,
            max_allocation_bytes: 1,
            usable: true,
            reason: String::new(),
        }
    }

    const FEW: Tuned = Tuned { few: Some(Tuning::NARROW.few), many: None };
    const MANY: Tuned = Tuned { few: None, many: Some(Tuning::NARROW.many) };

    #[test]
    fn what_is_kept_is_found_again_for_its_driver_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::Folder(folder.path().join("made/when/needed"));
        assert_eq!(load(&cache, &record("1")), Tuned::default());
        let path = save(&cache, &record("1"), FEW).unwrap().unwrap();
        assert_eq!(path.file_name().unwrap(), "tuned_a-platform_a-device_1.json");
        assert_eq!(load(&cache, &record("1")), FEW);
        // A measurement with many probes leaves the one with few alone.
        assert_eq!(save(&cache, &record("1"), MANY).unwrap(), Some(path.clone()));
        let both = Tuned { few: FEW.few, many: MANY.many };
        assert_eq!(load(&cache, &record("1")), both);
        assert_eq!(
            (both.over(Tuning::WIDE).few, MANY.over(Tuning::WIDE).few),
            (Tuning::NARROW.few, Tuning::WIDE.few)
        );
        assert_eq!(load(&cache, &record("2")), Tuned::default());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(
            (save(&CacheDir::Off, &record("1"), FEW).unwrap(), load(&CacheDir::Off, &record("1"))),
            (None, Tuned::default())
        );
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::Folder(folder.path().to_owned());
        let path = save(&cache, &record("1"), MANY).unwrap().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lanes = "\"lanes\": 1,";
        let damages = [
            ("emptied", String::new()),
            ("cut", text[..text.len() / 2].to_owned()),
            ("noise", "\u{1}\u{2}".to_owned()),
            ("of a later format", text.replace("\"format\": 1", "\"format\": 2")),
            ("of another driver", text.replace("\"driver\": \"1\"", "\"driver\": \"3\"")),
            ("a variant that is not in the family", text.replace(lanes, "\"lanes\": 3,")),
            ("too long", format!("{text}{}", " ".repeat(MAX_FILE_BYTES as usize))),
        ];
        assert!(text.contains(lanes), "{text}");
        for (damage, damaged) in damages {
            assert_ne!(damaged, text, "{damage}");
            fs::write(&path, damaged).unwrap();
            assert_eq!(load(&cache, &record("1")), Tuned::default(), "{damage}");
        }
        fs::write(&path, text).unwrap();
        assert_eq!(load(&cache, &record("1")), MANY);
    }
}

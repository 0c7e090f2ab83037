//! What is kept, what is told apart, and that no fault of a file or folder reaches a caller.

use tempfile::TempDir;

use super::super::choose::DeviceKind;
use super::*;

const OF: Ingredients<'static> = Ingredients { source: "kernel", options: "-D A=1", function: "scan" };

fn device(driver: &str) -> DeviceRecord {
    DeviceRecord {
        platform_index: 0,
        device_index: 0,
        platform: "platform".to_owned(),
        platform_version: "OpenCL 3.0".to_owned(),
        name: "device".to_owned(),
        kind: DeviceKind::Gpu,
        driver: driver.to_owned(),
        global_memory_bytes: 1,
        max_allocation_bytes: 1,
        extensions: Vec::new(),
        fault: None,
        usable: true,
        reason: String::new(),
    }
}

fn cache(folder: &Path, driver: &str) -> ProgramCache {
    ProgramCache::new(&CacheDir::Folder(folder.to_owned()), &device(driver))
}

/// What came of asking: the program, and whether it had to be built.
fn ask(cache: &ProgramCache, of: Ingredients<'_>) -> (String, bool) {
    let mut built = false;
    let program = cache.revive_or_build(
        of,
        |binary| String::from_utf8(binary.to_vec()).map_err(|error| error.to_string()),
        || {
            built = true;
            Ok::<_, ()>(("program".to_owned(), Ok(b"program".to_vec())))
        },
    );
    (program.unwrap(), built)
}

fn only_file(folder: &TempDir) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].as_ref().unwrap().path()
}

fn kept(folder: &TempDir, driver: &str) -> Kept {
    read(&only_file(folder), &cache(folder.path(), driver).key(OF))
}

const BUILT: bool = true;
const REVIVED: bool = false;

#[test]
fn a_program_is_built_once_for_all_its_ingredients_alike() {
    let folder = TempDir::new().unwrap();
    // It makes its folder.
    let cache = cache(&folder.path().join("a/b"), "1");
    assert_eq!(ask(&cache, OF), ("program".to_owned(), BUILT));
    assert_eq!(ask(&cache, OF), ("program".to_owned(), REVIVED));
    for other in [
        Ingredients { source: "kernel ", ..OF },
        Ingredients { options: "-D A=2", ..OF },
        Ingredients { function: "merge", ..OF },
        // The same letters, parted elsewhere.
        Ingredients { source: "kernel-", options: "D A=1", ..OF },
    ] {
        assert_eq!(ask(&cache, other).1, BUILT, "{other:?}");
        assert_eq!(ask(&cache, other).1, REVIVED, "{other:?}");
    }
    assert_eq!(count(&folder.path().join("a/b")).unwrap(), 5);
}

#[test]
fn a_program_of_another_driver_is_stale_and_replaced() {
    let folder = TempDir::new().unwrap();
    assert_eq!(ask(&cache(folder.path(), "1"), OF).1, BUILT);
    assert_eq!(kept(&folder, "2"), Kept::Stale);
    assert_eq!(ask(&cache(folder.path(), "2"), OF).1, BUILT);
    assert_eq!(kept(&folder, "2"), Kept::Binary(b"program".to_vec()));
    let path = only_file(&folder);
    let mut bytes = fs::read(&path).unwrap();
    bytes[MAGIC.len() - 1] += 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(kept(&folder, "2"), Kept::Stale, "of another version of the format");
    assert_eq!(ask(&cache(folder.path(), "2"), OF), ("program".to_owned(), BUILT));
}

#[test]
fn a_damaged_file_is_told_apart_and_replaced() {
    let folder = TempDir::new().unwrap();
    let cache = cache(folder.path(), "1");
    ask(&cache, OF);
    let path = only_file(&folder);
    let sound = fs::read(&path).unwrap();
    let flipped = |place: usize| {
        let mut bytes = sound.clone();
        bytes[place] ^= 0x40;
        bytes
    };
    for (fault, bytes) in [
        ("emptied", Vec::new()),
        ("cut in its head", sound[..HEAD_BYTES - 1].to_vec()),
        ("cut after its head", sound[..HEAD_BYTES].to_vec()),
        ("cut by a byte", sound[..sound.len() - 1].to_vec()),
        ("longer", [&sound[..], b"x"].concat()),
        ("noise", (0..4096_u32).map(|i| (i * 131 % 251) as u8).collect()),
        ("another magic", flipped(0)),
        ("another checksum", flipped(MAGIC.len() + HASH_BYTES)),
        ("another binary", flipped(sound.len() - 1)),
    ] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(kept(&folder, "1"), Kept::Corrupt, "{fault}");
        assert_eq!(ask(&cache, OF), ("program".to_owned(), BUILT), "{fault}");
        assert_eq!(fs::read(&path).unwrap(), sound, "{fault}: replaced");
    }
    // A folder in its place can be neither read nor replaced.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(kept(&folder, "1"), Kept::Corrupt);
    assert_eq!(ask(&cache, OF), ("program".to_owned(), BUILT));
}

#[test]
fn a_binary_that_the_driver_refuses_is_built_anew() {
    let folder = TempDir::new().unwrap();
    let cache = cache(folder.path(), "1");
    ask(&cache, OF);
    let before = fs::metadata(only_file(&folder)).unwrap().modified().unwrap();
    let build = || Ok::<_, ()>((7, Ok(b"better".to_vec())));
    assert_eq!(cache.revive_or_build(OF, |_| Err("no".to_owned()), build), Ok(7));
    assert_eq!(kept(&folder, "1"), Kept::Binary(b"better".to_vec()));
    assert!(fs::metadata(only_file(&folder)).unwrap().modified().unwrap() >= before);
    // What does not compile is the caller's to know.
    let refused = cache.revive_or_build(OF, |_| Err::<(), _>("no".to_owned()), || Err("broken"));
    assert_eq!(refused, Err("broken"));
}

#[test]
fn where_nothing_can_be_written_programs_are_built_each_time() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    // No user may write there, root included.
    for nowhere in [file.as_path(), Path::new("/proc"), Path::new("/proc/lookalike")] {
        let cache = cache(nowhere, "1");
        for _ in 0..2 {
            assert_eq!(ask(&cache, OF), ("program".to_owned(), BUILT), "{nowhere:?}");
        }
        assert!(cache.warned.get() && check_writable(nowhere).is_err(), "{nowhere:?}");
    }
    let off = ProgramCache::new(&CacheDir::Off, &device("1"));
    assert_eq!(ask(&off, OF), ("program".to_owned(), BUILT));
    assert!(!off.warned.get());
}

#[test]
fn the_oldest_files_make_room() {
    let folder = TempDir::new().unwrap();
    for age in 0..MAX_FILES + 3 {
        let file = File::create(folder.path().join(format!("{age:04}{ENDING}"))).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64)).unwrap();
    }
    fs::write(folder.path().join("not ours"), b"").unwrap();
    ask(&cache(folder.path(), "1"), OF);
    assert_eq!(count(folder.path()).unwrap(), MAX_FILES);
    let left = |name: &str| folder.path().join(name).exists();
    assert!(left("not ours") && left("0004.clbin") && !left("0003.clbin"));
}

#[cfg(unix)]
#[test]
fn the_folder_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let made = folder.path().join("made");
    ask(&cache(&made, "1"), OF);
    assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
}

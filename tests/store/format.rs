//! The database file: whose it is, which format it has, and how a crash leaves it.

use std::fs;
use std::path::{Path, PathBuf};

use lookalike::domain::{Margin, NormPolicy, Threshold};
use lookalike::gallery::store::{DATABASE, FORMAT, Import, ImportOptions, Store, verify};
use lookalike::gallery::{Progress, PrototypeRecord};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{empty, import, import_as, record, text, three_persons, vector};

fn fixture(format: i64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}"))
}

/// A format that changes gets a fixture of its own; those of older ones never change.
#[test]
fn todays_format_has_a_fixture() {
    let folder = fixture(FORMAT);
    if !folder.join(DATABASE).exists() {
        write_fixture(&folder);
        panic!("format {FORMAT} had no fixture: one was written to {}, commit it", folder.display());
    }
}

fn write_fixture(folder: &Path) {
    let mut store = Store::create_or_open(folder).unwrap();
    let options = ImportOptions {
        model_id: Some("dlib_resnet_v1".to_owned()),
        norm: Some(NormPolicy::Normalise),
        threshold: Some(Threshold::parse(0.9375).unwrap()),
        min_margin: Some(Margin::parse(0.015_625).unwrap()),
        ..Default::default()
    };
    let mut unit = record("ann", "1", 0);
    unit.embedding = vec![0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    import_as(&mut store, "default", options, vec![unit, record("张伟", "a/b", 1)]).unwrap();
    three_persons(&mut store, "second");
    let bob = lookalike::gallery::store::Selection::Identities(vec!["bob".to_owned()]);
    store.remove("second", &bob).unwrap();
    three_persons(&mut store, "third");
    store.remove("third", &lookalike::gallery::store::Selection::Everything).unwrap();
}

#[test]
fn a_database_of_format_1_is_read() {
    let folder = TempDir::new().unwrap();
    fs::copy(fixture(1).join(DATABASE), folder.path().join(DATABASE)).unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let galleries = store.galleries().unwrap();
    let names: Vec<_> = galleries.iter().map(|g| (g.profile.name.as_str(), g.profile.generation)).collect();
    assert_eq!(names, [("default", 1), ("second", 2)]);
    let (profile, prototypes) = store.export("default").unwrap();
    assert_eq!((profile.dim, profile.model_id.as_str()), (8, "dlib_resnet_v1"));
    assert_eq!((profile.threshold.unwrap().get(), profile.min_margin.unwrap().get()), (0.9375, 0.015_625));
    assert_eq!(prototypes[0].1.embedding.as_slice(), [0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let second = &prototypes[1].1;
    assert_eq!((second.key.identity.as_str(), second.key.id.as_str()), ("张伟", "a/b"));
    let indices: Vec<u64> = store.export("second").unwrap().1.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [0, 2, 4, 5]);
    assert!(verify(folder.path()).unwrap().is_sound());
    assert_eq!(import(&mut store, "third", vec![record("eve", "1", 1)]).unwrap().generation, 2);
    assert_eq!(store.export("third").unwrap().1[0].0, 6);
}

#[test]
fn other_formats_and_other_programs_are_refused_unchanged() {
    let cases = [
        ("PRAGMA user_version = 2", "expected format 1, got the newer format 2"),
        ("PRAGMA user_version = 0", "expected format 1, got the older format 0"),
        ("PRAGMA application_id = 7", "expected a Lookalike database, got application id 0x7"),
    ];
    for (sql, expected) in cases {
        let (folder, store) = empty();
        drop(store);
        let file = folder.path().join(DATABASE);
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        refused(folder.path(), expected);
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(DATABASE);
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    refused(folder.path(), "expected a Lookalike database, got application id 0x0");
    fs::write(&file, "no database, but long enough to be taken for one if nobody looks".repeat(20)).unwrap();
    refused(folder.path(), "expected a Lookalike database, got a file that is no SQLite database");
}

fn refused(folder: &Path, expected: &str) {
    let file = folder.join(DATABASE);
    let before = fs::read(&file).unwrap();
    for result in [Store::open(folder), Store::open_read_only(folder), Store::create_or_open(folder)] {
        let error = text(result);
        assert!(error.starts_with(&file.display().to_string()) && error.contains(expected), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), before, "{expected}");
}

#[test]
fn an_empty_file_is_a_database_only_for_who_may_make_one() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(DATABASE), "").unwrap();
    assert!(text(Store::open(folder.path())).contains("got application id 0x0"));
    assert!(Store::create_or_open(folder.path()).unwrap().galleries().unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_what_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let mut store = Store::create_or_open(&data).unwrap();
    three_persons(&mut store, "g");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let files: Vec<PathBuf> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 1, "the write-ahead log is there too: {files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// Copies the database and its log as they lie on disk at this moment.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in [DATABASE.to_owned(), format!("{DATABASE}-wal")] {
        if from.join(&name).exists() {
            fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

#[test]
fn a_crash_in_the_middle_of_an_import_leaves_what_was_before() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    let crashed = TempDir::new().unwrap();
    let mut copies = Vec::new();
    // More than the page cache holds, so that pages reach the log before the change is whole.
    let long = |seed: u32| PrototypeRecord {
        embedding: vector(seed).repeat(8),
        ..record("eve", &seed.to_string(), seed)
    };
    let records = (0..20_000).map(long).collect();
    let import = Import { gallery: "h", options: ImportOptions::default(), records };
    store
        .import(import, &mut |progress: Progress| {
            let to = crashed.path().join(progress.done.to_string());
            copy(folder.path(), &to);
            copies.push(to);
        })
        .unwrap();
    let log = |folder: &Path| fs::metadata(folder.join(format!("{DATABASE}-wal"))).unwrap().len();
    let last = copies.last().unwrap();
    assert!(log(last) > log(&copies[0]) + 1_000_000, "much of the import has reached the log");
    for copy in &copies {
        let store = Store::open(copy).unwrap();
        let summary = store.gallery("g").unwrap();
        assert_eq!((summary.profile.generation, summary.prototypes), (1, 6));
        assert_eq!(store.galleries().unwrap().len(), 1);
        drop(store);
        assert!(verify(copy).unwrap().is_sound());
    }
}

#[test]
fn a_log_cut_off_anywhere_gives_the_state_before_or_after() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    drop(store);
    let mut store = Store::open(folder.path()).unwrap();
    import(&mut store, "g", (0..200).map(|seed| record("eve", &seed.to_string(), seed + 100)).collect())
        .unwrap();
    let whole = TempDir::new().unwrap();
    copy(folder.path(), whole.path());
    let log = fs::read(whole.path().join(format!("{DATABASE}-wal"))).unwrap();
    let mut generations = Vec::new();
    // Not a divisor of a frame's length, so that cuts fall into headers and pages alike.
    for length in (0..=log.len()).step_by(1777).chain([log.len()]) {
        let cut = TempDir::new().unwrap();
        fs::copy(whole.path().join(DATABASE), cut.path().join(DATABASE)).unwrap();
        fs::write(cut.path().join(format!("{DATABASE}-wal")), &log[..length]).unwrap();
        let store = Store::open(cut.path()).unwrap();
        let summary = store.gallery("g").unwrap();
        let state = (summary.profile.generation, summary.prototypes);
        assert!(state == (1, 6) || state == (2, 206), "cut at {length}: {state:?}");
        generations.push(state.0);
        drop(store);
        assert!(verify(cut.path()).unwrap().is_sound(), "cut at {length}");
    }
    assert!(generations.is_sorted() && generations.first() == Some(&1) && generations.last() == Some(&2));
}

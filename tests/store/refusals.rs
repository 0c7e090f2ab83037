//! What the store does not take, and what it says.

use lookalike::domain::{Margin, NormPolicy, Threshold};
use lookalike::gallery::PrototypeRecord;
use lookalike::gallery::store::{ImportOptions, Store, StoreError, verify};
use tempfile::TempDir;

use super::{empty, import, import_as, record, text, three_persons};

#[test]
fn folders_that_are_none_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("absent");
    assert_eq!(
        text(Store::open(&absent)),
        format!("no data folder at {}: lookalike gallery import --data makes one", absent.display())
    );
    let expected = format!("{} holds no lookalike.db", folder.path().display());
    assert_eq!(text(Store::open(folder.path())), expected);
    assert_eq!(text(Store::open_read_only(folder.path())), expected);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a look changes nothing");
}

/// As the command line prints an error: with all that it says lies beneath it.
fn chain<T>(result: Result<T, StoreError>) -> String {
    let Err(error) = result else { panic!("expected an error") };
    format!("{:#}", anyhow::Error::new(error))
}

#[cfg(unix)]
#[test]
fn what_cannot_be_looked_at_is_told_from_what_is_not_there() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    // A loop of links stands in for a folder without permission: it stops root too.
    let circle = folder.path().join("circle");
    symlink(&circle, &circle).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let database = data.join("lookalike.db");
    symlink(&database, &database).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("data");
    for (path, at, expected) in [
        (&circle, &circle, "Too many levels of symbolic links (os error 40)"),
        (&data, &database, "Too many levels of symbolic links (os error 40)"),
        (&below, &below, "Not a directory (os error 20)"),
        (&file, &file, "not a directory"),
    ] {
        for error in [chain(Store::open(path)), chain(Store::open_read_only(path)), chain(verify(path))] {
            assert_eq!(error, format!("{}: {expected}", at.display()));
        }
        let error = text(Store::create_or_open(path));
        assert!(error.starts_with(&format!("{}: ", at.display())), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_database_that_is_no_regular_file_is_refused_before_it_is_opened() {
    let (folder, socket) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    std::fs::create_dir(folder.path().join("lookalike.db")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(socket.path().join("lookalike.db")).unwrap();
    for (folder, what) in [(&folder, "a folder"), (&socket, "a socket")] {
        let file = folder.path().join("lookalike.db");
        let expected = format!("{}: expected a Lookalike database, got {what}", file.display());
        assert_eq!(text(Store::open(folder.path())), expected);
        assert_eq!(text(Store::open_read_only(folder.path())), expected);
        assert_eq!(text(Store::create_or_open(folder.path())), expected);
    }
}

#[test]
fn a_chain_of_errors_says_each_thing_once() {
    let (folder, mut store) = empty();
    let absent = folder.path().join("absent");
    assert_eq!(
        chain(Store::open(&absent)),
        format!("no data folder at {}: lookalike gallery import --data makes one", absent.display())
    );
    let mut zero = record("ann", "1", 3);
    zero.embedding.fill(0.0);
    assert_eq!(
        chain(import(&mut store, "g", vec![zero])),
        "faces.npy row 3 (from 0): embedding: expected a direction, got the zero vector"
    );
    three_persons(&mut store, "g");
    let mut reader = Store::open_read_only(folder.path()).unwrap();
    assert_eq!(
        chain(import(&mut reader, "g", vec![record("eve", "1", 1)])),
        "lookalike.db: attempt to write a readonly database"
    );
}

#[test]
fn one_bad_record_and_nothing_is_imported() {
    let (_folder, mut store) = empty();
    let broken = |change: fn(&mut PrototypeRecord)| {
        let mut record = record("bad", "1", 3);
        change(&mut record);
        record
    };
    let cases = [
        (
            broken(|r| r.embedding[3] = f32::NAN),
            "embedding: expected finite components, got NaN at component 3",
        ),
        (
            broken(|r| r.embedding[0] = f32::INFINITY),
            "embedding: expected finite components, got inf at component 0",
        ),
        (broken(|r| r.embedding.fill(0.0)), "embedding: expected a direction, got the zero vector"),
        (broken(|r| r.embedding.truncate(7)), "embedding: expected 8 components, got 7"),
        (broken(|r| r.identity.clear()), "identity: expected a name, got nothing"),
        (broken(|r| r.id.push('\n')), "id: expected no control characters, got '\\n'"),
        (
            broken(|r| r.identity.push('\u{202e}')),
            "identity: expected no invisible or direction-changing characters, got U+202E",
        ),
        (broken(|r| r.source = "x".repeat(257)), "source: expected at most 256 bytes, got 257"),
    ];
    for (bad, expected) in cases {
        let records = vec![record("ann", "1", 1), bad, record("ann", "2", 2)];
        assert_eq!(text(import(&mut store, "g", records)), format!("faces.npy row 3 (from 0): {expected}"));
        assert!(store.galleries().unwrap().is_empty(), "{expected}");
    }
    let empty_vector = broken(|r| r.embedding.clear());
    assert_eq!(
        text(import(&mut store, "g", vec![empty_vector])),
        "faces.npy row 3 (from 0): embedding: expected 1 to 4096 components, got 0"
    );
    assert_eq!(text(import(&mut store, "g", vec![])), "expected at least one prototype, got none");
}

#[test]
fn a_prototype_is_stored_once() {
    let (_folder, mut store) = empty();
    let twice = vec![record("ann", "1", 7), record("ann", "2", 8), record("ann", "1", 9)];
    assert_eq!(
        text(import(&mut store, "g", twice)),
        "faces.npy row 9 (from 0): prototype \"1\" of \"ann\": expected each once, got it already at faces.npy row 7 (from 0)"
    );
    three_persons(&mut store, "g");
    let again = vec![record("eve", "1", 7), record("bob", "2", 8)];
    assert_eq!(
        text(import(&mut store, "g", again)),
        "faces.npy row 8 (from 0): prototype \"2\" of \"bob\": expected a new one, got what the gallery holds at index 3"
    );
    let summary = store.gallery("g").unwrap();
    assert_eq!((summary.prototypes, summary.identities, summary.profile.generation), (6, 3, 1));
}

#[test]
fn a_gallery_keeps_its_dimension_and_settings() {
    let (_folder, mut store) = empty();
    three_persons(&mut store, "g");
    let mut short = record("eve", "1", 4);
    short.embedding = vec![1.0, 0.0];
    assert_eq!(
        text(import(&mut store, "g", vec![short])),
        "faces.npy row 4 (from 0): embedding: expected 8 components, got 2"
    );
    let cases = [
        (ImportOptions { model_id: Some("m".to_owned()), ..Default::default() }, "model id \"\", got \"m\""),
        (
            ImportOptions { norm: Some(NormPolicy::RequireUnit), ..Default::default() },
            "require_unit off, got on",
        ),
        (
            ImportOptions { threshold: Some(Threshold::parse(0.5).unwrap()), ..Default::default() },
            "threshold none, got 0.5",
        ),
        (
            ImportOptions { min_margin: Some(Margin::parse(0.25).unwrap()), ..Default::default() },
            "min_margin none, got 0.25",
        ),
    ];
    for (options, expected) in cases {
        let error = text(import_as(&mut store, "g", options, vec![record("eve", "1", 4)]));
        assert_eq!(error, format!("gallery \"g\" has {expected}"));
    }
    let same = ImportOptions {
        norm: Some(NormPolicy::Normalise),
        model_id: Some(String::new()),
        ..Default::default()
    };
    assert_eq!(import_as(&mut store, "g", same, vec![record("eve", "1", 4)]).unwrap().generation, 2);
}

#[test]
fn a_gallery_of_unit_vectors_refuses_others() {
    let (_folder, mut store) = empty();
    let options = ImportOptions { norm: Some(NormPolicy::RequireUnit), ..Default::default() };
    let error = text(import_as(&mut store, "g", options, vec![record("ann", "1", 4)]));
    assert!(error.starts_with("faces.npy row 4 (from 0): embedding: expected a unit vector"), "{error}");
}

#[test]
fn names_reach_no_sql_and_bad_ones_are_refused() {
    let (_folder, mut store) = empty();
    let name = "'; DROP TABLE galleries; --";
    import(&mut store, name, vec![record("O'Brien; DROP TABLE", "\"1\"", 1)]).unwrap();
    assert_eq!(store.identities(name).unwrap()[0].identity.name, "O'Brien; DROP TABLE");
    assert_eq!(store.galleries().unwrap().len(), 1);
    let error = text(import(&mut store, "a\tb", vec![record("ann", "1", 1)]));
    assert_eq!(error, "gallery name \"a\\tb\": expected no control characters, got '\\t'");
    let options = ImportOptions { model_id: Some("x".repeat(300)), ..Default::default() };
    let error = text(import_as(&mut store, "g", options, vec![record("ann", "1", 1)]));
    assert!(error.ends_with("expected at most 256 bytes, got 300"), "{error}");
}

//! A database that something else has written into: named, never answered from.

use std::fs;
use std::path::Path;

use lookalike::gallery::store::{DATABASE, Store, verify};
use rusqlite::Connection;

use super::{empty, text, three_persons};

/// Runs SQL behind the store's back.
fn tamper(folder: &Path, sql: &str) {
    let db = Connection::open(folder.join(DATABASE)).unwrap();
    db.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
}

fn faults(folder: &Path) -> Vec<String> {
    verify(folder).unwrap().faults.iter().map(ToString::to_string).collect()
}

#[test]
fn a_changed_row_is_named_and_not_served() {
    let cases = [
        (
            "UPDATE prototypes SET embedding = zeroblob(31) WHERE prototype_id = '3'",
            "gallery \"g\", prototype 4 of \"ann\": corrupted: embedding: expected 32 bytes, got 31",
        ),
        (
            "UPDATE prototypes SET embedding = zeroblob(32) WHERE prototype_id = '3'",
            "gallery \"g\", prototype 4 of \"ann\": corrupted: expected checksum ",
        ),
        (
            "UPDATE prototypes SET source = 'x' WHERE key & 0xff = 1",
            "gallery \"g\", prototype 1 of \"bob\": corrupted: expected checksum ",
        ),
        (
            "UPDATE prototypes SET origin = 'x' WHERE key & 0xff = 5",
            "gallery \"g\", prototype 5 of \"张伟\": corrupted: origin: expected cluster_medoid",
        ),
        (
            "UPDATE identities SET name = 'eve' WHERE name = 'bob'",
            "gallery \"g\", prototype 1 of \"eve\": corrupted: expected checksum ",
        ),
        (
            "UPDATE prototypes SET identity = 99 WHERE key & 0xff = 2",
            "gallery \"g\", prototype 2 of \"\": corrupted: expected an identity of this gallery, got number 99",
        ),
        (
            "UPDATE galleries SET threshold = 7",
            "gallery \"g\": corrupted: expected a number from -1 to 1, got 7",
        ),
    ];
    for (sql, expected) in cases {
        let (folder, mut store) = empty();
        three_persons(&mut store, "g");
        tamper(folder.path(), sql);
        let error = text(store.snapshot("g"));
        assert!(error.starts_with(expected), "{sql}: {error}");
        assert!(store.export("g").is_err() && store.snapshots().is_err(), "{sql}");
        assert!(!verify(folder.path()).unwrap().is_sound(), "{sql}");
    }
}

#[test]
fn every_fault_is_listed() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    three_persons(&mut store, "h");
    drop(store);
    let report = verify(folder.path()).unwrap();
    assert_eq!((report.galleries, report.prototypes, report.more_faults), (2, 12, 0));
    assert!(report.is_sound());
    tamper(
        folder.path(),
        "UPDATE prototypes SET source = 'x' WHERE key & 0xff IN (0, 5) AND key < (2 << 40);
         UPDATE galleries SET next_index = 3 WHERE name = 'h';
         INSERT INTO identities (gallery, name) VALUES (1, 'nobody');
         UPDATE prototypes SET key = key + (7 << 40) WHERE key = (2 << 40) + 4;",
    );
    let faults = faults(folder.path());
    let expected = [
        "gallery \"g\", prototype 0: of \"ann\": expected checksum",
        "gallery \"g\", prototype 5: of \"张伟\": expected checksum",
        "gallery \"g\": expected at least one prototype of identity \"nobody\", got none",
        "gallery \"h\": expected a next index above 5, got 3",
        "database: prototypes of gallery number 9, which is not there",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}");
    }
    tamper(folder.path(), "UPDATE prototypes SET identity = 1000 WHERE key = 1 << 40");
    let broken = verify(folder.path()).unwrap().faults[0].to_string();
    assert_eq!(broken, "database: row 1099511627776 of prototypes refers to no row of identities");
}

#[test]
fn a_broken_page_is_a_fault_and_not_a_panic() {
    let (folder, mut store) = empty();
    for gallery in ["a", "b", "c", "d"] {
        three_persons(&mut store, gallery);
    }
    drop(store);
    let file = folder.path().join(DATABASE);
    let sound = fs::read(&file).unwrap();
    // Every page but the first, which says what the file is.
    for page in 1..sound.len() / 8192 {
        let mut broken = sound.clone();
        broken[page * 8192..page * 8192 + 4096].fill(0x5a);
        fs::write(&file, &broken).unwrap();
        let report = verify(folder.path()).unwrap();
        assert!(!report.is_sound(), "page {page}");
        let store = Store::open_read_only(folder.path());
        // Whatever of it can still be read is what was written.
        if let Ok(snapshots) = store.and_then(|store| store.snapshots()) {
            assert!(snapshots.iter().all(|snapshot| snapshot.rows().len() <= 6), "page {page}");
        }
    }
}

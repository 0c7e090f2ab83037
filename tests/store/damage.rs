//! A database that something else has written into: named, never answered from.

use std::fs;
use std::path::Path;

use lookalike::gallery::store::{DATABASE, Store, verify};
use rusqlite::Connection;

use super::{empty, import, record, text, three_persons};

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
fn names_and_counters_that_cannot_be_are_faults() {
    let cases = [
        ("UPDATE galleries SET name = ''", r#"gallery "": name "": expected a name, got nothing"#),
        (
            "UPDATE galleries SET model_id = 'a' || char(10)",
            r#"gallery "g": model id "a\n": expected no control characters, got '\n'"#,
        ),
        (
            "INSERT INTO identities (id, gallery, name) VALUES (77, 1, '');
             UPDATE prototypes SET identity = 77 WHERE key & 0xff = 5",
            r#"gallery "g": identity "": expected a name, got nothing"#,
        ),
        (
            "UPDATE galleries SET next_index = (1 << 40) + 1",
            r#"gallery "g": expected a next index from 0 to 1099511627776, got 1099511627777"#,
        ),
        (
            "UPDATE galleries SET generation = 1 << 62",
            r#"gallery "g": expected a generation from 1 to 4611686018427387903, got 4611686018427387904"#,
        ),
        (
            "UPDATE galleries SET id = 1 << 23",
            r#"gallery "g": expected a number from 1 to 8388607, got 8388608"#,
        ),
        ("UPDATE galleries SET id = -1", r#"gallery "g": expected a number from 1 to 8388607, got -1"#),
        ("UPDATE galleries SET threshold = 7", r#"gallery "g": expected a number from -1 to 1, got 7"#),
        (
            "INSERT INTO removed_galleries (name, generation, next_index) VALUES ('a' || char(0x202e), 1, 1)",
            r#"database: removed gallery "a\u{202e}": expected no invisible or direction-changing characters, got U+202E"#,
        ),
        (
            "INSERT INTO removed_galleries (name, generation, next_index) VALUES ('g', 1, 1)",
            r#"database: removed gallery "g": expected none of that name, got one that is there"#,
        ),
        (
            "INSERT INTO removed_galleries (name, generation, next_index) VALUES ('h', 1 << 62, 1)",
            r#"database: removed gallery "h": expected a generation from 1 to 4611686018427387903, got 4611686018427387904"#,
        ),
        (
            "INSERT INTO removed_galleries (name, generation, next_index) VALUES ('', 1, 1 << 41)",
            r#"database: removed gallery "": expected a next index from 0 to 1099511627776, got 2199023255552"#,
        ),
        (
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001)
             INSERT INTO removed_galleries (name, generation, next_index) SELECT 'old ' || i, 1, 1 FROM n",
            "database: expected at most 1000 removed galleries, got 1001",
        ),
    ];
    for (sql, expected) in cases {
        let (folder, mut store) = empty();
        three_persons(&mut store, "g");
        drop(store);
        assert_eq!(faults(folder.path()), [""; 0]);
        tamper(folder.path(), sql);
        let faults = faults(folder.path());
        assert!(faults.iter().any(|fault| fault == expected), "{sql}: {faults:#?}");
    }
}

#[test]
fn names_of_prototypes_are_checked_too() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    drop(store);
    // With a checksum that fits, as a program with other rules would write it.
    let db = Connection::open(folder.path().join(DATABASE)).unwrap();
    let embedding: Vec<u8> =
        db.query_row("SELECT embedding FROM prototypes WHERE key & 0xff = 5", [], |row| row.get(0)).unwrap();
    let mut hasher = crc32fast::Hasher::new();
    for name in ["张伟", "\u{feff}1", "\u{200b}"] {
        hasher.update(&(name.len() as u32).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    hasher.update(&embedding);
    let sql = "UPDATE prototypes SET prototype_id = char(0xfeff) || '1', source = char(0x200b), checksum = ?1 WHERE key & 0xff = 5";
    db.execute(sql, [hasher.finalize()]).unwrap();
    drop(db);
    let refused = "expected no invisible or direction-changing characters, got";
    let expected = [
        format!(r#"gallery "g", prototype 5: id "\u{{feff}}1": {refused} U+FEFF"#),
        format!(r#"gallery "g", prototype 5: source "\u{{200b}}": {refused} U+200B"#),
    ];
    assert_eq!(faults(folder.path()), expected);
}

#[test]
fn a_gallery_whose_counters_cannot_be_is_not_served_and_the_others_are_checked() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    three_persons(&mut store, "h");
    tamper(
        folder.path(),
        "UPDATE galleries SET next_index = 1 << 41 WHERE name = 'g';
         UPDATE prototypes SET source = 'x' WHERE key = 2 << 40;",
    );
    let expected =
        "gallery \"g\": corrupted: expected a next index from 0 to 1099511627776, got 2199023255552";
    assert_eq!(text(store.snapshot("g")), expected);
    assert_eq!(text(import(&mut store, "g", vec![record("eve", "1", 1)])), expected);
    let report = verify(folder.path()).unwrap();
    assert_eq!((report.galleries, report.faults.len()), (2, 2), "{:#?}", report.faults);
    assert!(
        report.faults[1].to_string().starts_with("gallery \"h\", prototype 0: of \"ann\": expected checksum")
    );
}

#[test]
fn a_gallery_that_has_given_out_its_indices_takes_no_more() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    tamper(folder.path(), "UPDATE galleries SET next_index = (1 << 40) - 1");
    let two = vec![record("eve", "1", 1), record("eve", "2", 2)];
    assert_eq!(
        text(import(&mut store, "g", two)),
        "expected at most 1 prototypes, for which gallery \"g\" has indices left, got 2"
    );
    import(&mut store, "g", vec![record("eve", "1", 1)]).unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
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
            assert!(snapshots.iter().all(|snapshot| snapshot.row_count() <= 6), "page {page}");
        }
    }
}

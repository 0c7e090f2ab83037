//! Labels and JSON Lines.

use std::fs;

use lookalike::domain::Origin;
use lookalike::gallery::formats::{self, MAX_LINE_BYTES};

use super::common::shared;
use super::{bits, file, message, npy_file, prototypes, vectors};

#[test]
fn json_lines_hold_the_same_vectors_as_the_array() {
    let records = prototypes(&shared("formats/text/records.jsonl"), None).unwrap();
    let array = vectors(&shared("formats/numpy/f32_c.npy")).unwrap();
    assert_eq!(records.len(), 30);
    for (record, row) in records.iter().zip(array.rows()) {
        assert_eq!(bits(&record.embedding), bits(row), "{}", record.place);
    }
    let first = &records[0];
    assert_eq!((first.identity.as_str(), first.source.as_str()), ("person_001", "person_001/img_01"));
    assert_eq!(first.origin, Origin::Import);
}

#[test]
fn text_labels_are_parted_at_the_first_slash() {
    let (folder, path) = npy_file(5);
    let labels = folder.path().join("labels.txt");
    fs::write(
        &labels,
        "\u{feff}person_001/img_01\r\na/b/c\r\nO'Brien; DROP TABLE\r\n张伟, Jr./1\r\n=1+1\r\n\r\n",
    )
    .unwrap();
    let read = prototypes(&path, Some(&labels)).unwrap();
    let names: Vec<_> =
        read.iter().map(|r| (r.identity.as_str(), r.id.as_str(), r.source.as_str())).collect();
    assert_eq!(
        names,
        [
            ("person_001", "img_01", ""),
            ("a", "b/c", ""),
            ("O'Brien; DROP TABLE", "2", ""),
            ("张伟, Jr.", "1", ""),
            ("=1+1", "4", ""),
        ]
    );
}

#[test]
fn csv_labels_may_have_a_header_in_any_order() {
    let (folder, path) = npy_file(2);
    let expected = [("Ann, B.", "p/1", "a.jpg"), ("Žofie", "p2", "")];
    let cases = [
        ("plain.csv", "\"Ann, B.\",p/1,a.jpg\nŽofie,p2,\n"),
        ("header.csv", "identity,prototype_id,source\n\"Ann, B.\",p/1,a.jpg\nŽofie,p2,\n"),
        ("header.txt", "\u{feff}source,identity,prototype_id\r\na.jpg,\"Ann, B.\",p/1\r\n,Žofie,p2\r\n"),
    ];
    for (name, content) in cases {
        let labels = folder.path().join(name);
        fs::write(&labels, content).unwrap();
        let read = prototypes(&path, Some(&labels)).unwrap();
        let names: Vec<_> =
            read.iter().map(|r| (r.identity.as_str(), r.id.as_str(), r.source.as_str())).collect();
        assert_eq!(names, expected, "{name}");
    }
    let bare = folder.path().join("bare.csv");
    fs::write(&bare, "identity\nAnn\nBob\n").unwrap();
    let read = prototypes(&path, Some(&bare)).unwrap();
    assert_eq!((read[1].identity.as_str(), read[1].id.as_str()), ("Bob", "1"));
}

#[test]
fn bad_labels_name_their_line() {
    let (folder, path) = npy_file(2);
    let long = format!("a\n{}\n", "x".repeat(257));
    let cases: [(&str, &[u8], &str); 12] = [
        ("count.txt", b"a\nb\nc\n", "count.txt: expected 2 labels, one a row of FACES, got 3"),
        ("blank.txt", b"a\n\nb\n", "blank.txt line 2: identity: expected a name, got nothing"),
        ("blanks.txt", b"a\n \n", "blanks.txt line 2: identity: expected a name, got blanks"),
        ("noid.txt", b"a/\nb\n", "noid.txt line 1: prototype id: expected a name, got nothing"),
        ("long.txt", long.as_bytes(), "long.txt line 2: identity: expected at most 256 bytes, got 257"),
        ("tab.txt", b"a\nb\tc\n", "tab.txt line 2: identity: expected no control characters, got '\\t'"),
        (
            "turned.txt",
            "a\nb\u{2067}c\n".as_bytes(),
            "turned.txt line 2: identity: expected no invisible or direction-changing characters, got U+2067",
        ),
        (
            "latin.txt",
            b"a\nJos\xe9\n",
            "latin.txt line 2: expected UTF-8 text, got byte 0xe9 at byte 3 of the line",
        ),
        (
            "latin.csv",
            b"a,b\nJos\xe9,c\n",
            "latin.csv line 2: expected CSV: expected UTF-8 text, got another byte at byte 3 of field 0",
        ),
        ("fields.csv", b"a,b\nc\n", "fields.csv line 2: expected 2 fields, got 1"),
        ("many.csv", b"a,b,c,d\n", "many.csv line 1: expected 1 to 3 fields, got 4"),
        (
            "typo.csv",
            b"identity,prototype_id,sorce\na,b,c\nd,e,f\n",
            "typo.csv line 1: header: expected the columns identity, prototype_id, source (each at most once, identity always), got \"identity,prototype_id,sorce\"",
        ),
    ];
    for (name, content, expected) in cases {
        let labels = folder.path().join(name);
        fs::write(&labels, content).unwrap();
        let expected = expected.replace("FACES", &path.display().to_string());
        assert_eq!(message(prototypes(&path, Some(&labels))), expected);
    }
}

#[test]
fn labels_that_nobody_can_see_are_refused() {
    let (_folder, path) = npy_file(2);
    let unicode = shared("formats/edge_cases/unicode_labels.txt");
    let error = message(prototypes(&path, Some(&unicode)));
    assert_eq!(error, "unicode_labels.txt line 6: identity: expected a name, got blanks");
}

#[test]
fn labels_are_wanted_only_where_the_file_has_none() {
    let (folder, path) = npy_file(1);
    let error = message(prototypes(&path, None));
    assert!(error.starts_with("faces.npy: expected labels beside it, got none"), "{error}");
    let records = folder.path().join("records.jsonl");
    fs::write(&records, r#"{"id": "1", "identity": "a", "embedding": [1]}"#).unwrap();
    let error = message(prototypes(&records, Some(&path)));
    assert!(error.starts_with("records.jsonl: expected no labels beside it"), "{error}");
}

#[test]
fn bad_json_lines_name_their_line_and_field() {
    let good = r#"{"id": "1", "identity": "a", "embedding": [1, 0]}"#;
    let cases = [
        (r#"{"id": "2", "idenity": "a", "embedding": [1, 0]}"#, "unknown field `idenity`, expected one of"),
        (r#"{"id": "2", "embedding": [1, 0]}"#, "missing field `identity`"),
        (
            r#"{"id": "2", "identity": "a", "person_id": "b", "embedding": [1, 0]}"#,
            "duplicate field `identity`",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [1, "x"]}"#,
            "invalid type: string \"x\", expected f32",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [1, 0, 0]}"#,
            "embedding: expected 2 components as on line 1, got 3",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [1, NaN]}"#,
            "embedding: expected finite components, got NaN at component 1",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [-Infinity, 1]}"#,
            "embedding: expected finite components, got -Infinity at component 0",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [0.5, 0.5, 0.5,Infinity]}"#,
            "embedding: expected finite components, got Infinity at component 3",
        ),
        (r#"{"id": "2", "identity": "a", "embedding": []}"#, "expected 1 to 4096 components a row, got 0"),
        (
            r#"{"id": "2", "identity": "a\u0000", "embedding": [1, 0]}"#,
            "identity: expected no control characters, got '\\0'",
        ),
        (r#"{"id": "", "identity": "a", "embedding": [1, 0]}"#, "id: expected a name, got nothing"),
        (
            r#"{"id": "2", "identity": "a", "origin": "chosen", "embedding": [1, 0]}"#,
            "origin: expected cluster_medoid",
        ),
        (r#"{"id": "2", "identity": "a", "embedding": [1, 0]"#, "EOF while parsing an object"),
        ("not json", "expected a JSON object of the known keys"),
        ("\n", "expected a JSON object of the known keys"),
    ];
    for (bad, expected) in cases {
        let (_folder, path) = file("gallery.jsonl", format!("{good}\n{bad}\n{good}\n"));
        let error = message(prototypes(&path, None));
        assert!(error.starts_with("gallery.jsonl line 2: ") && error.contains(expected), "{bad}: {error}");
    }
    let error = message(prototypes(&shared("formats/edge_cases/ragged.jsonl"), None));
    assert!(
        error.starts_with("ragged.jsonl line 2: embedding: expected 128 components as on line 1, got 100"),
        "{error}"
    );
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_memory() {
    let mut content = br#"{"id": ""#.to_vec();
    content.resize(2 * MAX_LINE_BYTES, b'x');
    let (_folder, path) = file("long.jsonl", content);
    assert_eq!(
        message(prototypes(&path, None)),
        "long.jsonl line 1: expected a line of at most 1048576 bytes, got a longer one"
    );
}

#[test]
fn probes_may_say_more_or_less() {
    let (_folder, path) = file(
        "probes.jsonl",
        "{\"embedding\": [0.5, 1]}\n{\"id\": \"p\", \"group\": \"photo\", \"identity\": \"a\", \"source\": \"s\", \"origin\": \"manual\", \
         \"exclude_identities\": [\"b\"], \"exclude_prototypes\": [\"a/1\"], \"exclude_sources\": [\"t\"], \"embedding\": [2, 3]}\n",
    );
    let probes = formats::read_probes(&path).unwrap();
    assert_eq!((probes[0].id.as_str(), probes[0].identity.as_deref()), ("0", None));
    assert_eq!(bits(&probes[0].embedding), bits(&[0.5, 1.0]));
    let second = &probes[1];
    assert_eq!((second.id.as_str(), second.group.as_str(), second.source.as_str()), ("p", "photo", "s"));
    assert_eq!(second.identity.as_deref(), Some("a"));
    assert_eq!(second.exclude_identities, ["b"]);
    assert_eq!(second.exclude_prototypes, ["a/1"]);
    assert_eq!(second.exclude_sources, ["t"]);
    assert!(second.place.to_string().ends_with("probes.jsonl line 2"));
    let (_folder, path) = file("probes.jsonl", r#"{"embedding": [1], "grup": "x"}"#);
    assert!(message(formats::read_probes(&path)).contains("unknown field `grup`"));
}

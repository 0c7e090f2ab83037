//! Files as real tools write them, and files as they break.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::shared;
use lookalike::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
use lookalike::gallery::formats::{self, FormatError, MAX_LINE_BYTES, Vectors, npy};
use lookalike::gallery::{Progress, PrototypeRecord};
use tempfile::TempDir;

fn silent(_: Progress) {}

fn vectors(path: &Path) -> Result<Vectors, FormatError> {
    formats::read_vectors(path, &mut silent)
}

fn prototypes(path: &Path, labels: Option<&Path>) -> Result<Vec<PrototypeRecord>, FormatError> {
    formats::read_prototypes(path, labels, &mut silent)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A folder with one file in it.
fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    (folder, path)
}

/// What is wrong, without the folder's name, which differs from run to run.
fn message<T>(result: Result<T, FormatError>) -> String {
    let Err(error) = result else {
        panic!("expected an error")
    };
    let text = error.to_string();
    let folder_end = text
        .find(": ")
        .and_then(|colon| text[..colon].rfind('/'))
        .map_or(0, |slash| slash + 1);
    text[folder_end..].to_owned()
}

fn row(index: usize, dim: usize) -> Vec<f32> {
    (0..dim)
        .map(|component| (index * dim + component) as f32 + 0.5)
        .collect()
}

/// `count` rows of 4 components.
fn npy_file(count: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faces.npy");
    let rows: Vec<Vec<f32>> = (0..count).map(|index| row(index, 4)).collect();
    npy::write_f32(&path, 4, rows.iter().map(Vec::as_slice)).unwrap();
    (folder, path)
}

#[test]
fn every_layout_of_the_same_array_reads_to_the_same_bits() {
    let plain = vectors(&shared("formats/numpy/f32_c.npy")).unwrap();
    assert_eq!((plain.len(), plain.dim()), (30, 128));
    for name in ["f32_bigendian", "f32_c_v2header", "f32_fortran"] {
        let other = vectors(&shared(&format!("formats/numpy/{name}.npy"))).unwrap();
        assert_eq!(other, plain, "{name}");
    }
    let double = vectors(&shared("formats/numpy/f64_c.npy")).unwrap();
    assert_eq!((double.len(), double.dim()), (30, 128));
    assert!(
        double
            .as_slice()
            .iter()
            .zip(plain.as_slice())
            .all(|(a, b)| (a - b).abs() < 1e-6)
    );
    // The first numbers, as NumPy prints them.
    assert_eq!(
        bits(&plain.as_slice()[..2]),
        bits(&[-0.100_766_57, 0.039_847_784])
    );
    assert_eq!(vectors(&shared("formats/numpy/f32_512.npy")).unwrap().dim(), 512);
}

#[test]
fn a_npy_file_with_labels_gives_prototypes_in_its_order() {
    let records = prototypes(
        &shared("formats/numpy/f32_c.npy"),
        Some(&shared("formats/numpy/labels.txt")),
    )
    .unwrap();
    assert_eq!(records.len(), 30);
    assert_eq!(
        (records[7].identity.as_str(), records[7].id.as_str()),
        ("person_002", "7")
    );
    assert!(
        records[7].place.to_string().ends_with("f32_c.npy row 7 (from 0)"),
        "{}",
        records[7].place
    );
}

#[test]
fn json_lines_hold_the_same_vectors_as_the_array() {
    let records = prototypes(&shared("formats/text/records.jsonl"), None).unwrap();
    let array = vectors(&shared("formats/numpy/f32_c.npy")).unwrap();
    assert_eq!(records.len(), 30);
    for (record, row) in records.iter().zip(array.rows()) {
        assert_eq!(bits(&record.embedding), bits(row), "{}", record.place);
    }
    let first = &records[0];
    assert_eq!(
        (first.identity.as_str(), first.source.as_str()),
        ("person_001", "person_001/img_01")
    );
    assert_eq!(first.origin, Origin::Import);
}

#[test]
fn bad_arrays_are_refused_with_what_was_expected_and_what_came() {
    let cases = [
        (
            "formats/edge_cases/one_dim_vector.npy",
            "expected 2 dimensions (rows, components), got 1 in shape (128,)",
        ),
        (
            "formats/edge_cases/empty_0x128.npy",
            "expected at least one row, got none",
        ),
        (
            "formats/edge_cases/truncated.npy",
            "expected 15488 bytes for shape (30, 128) of '<f4', got 15388: the file is cut off",
        ),
        (
            "formats/numpy/object_array_pickled.npy",
            "got Python objects: pickled objects run code when loaded, so they are refused",
        ),
        (
            "formats/pickle/face_recognition_encodings.pickle",
            "expected a NumPy array (.npy) or JSON Lines, got a pickle",
        ),
        (
            "formats/numpy/embeddings_labels.npz",
            "got a zip archive such as .npz",
        ),
        ("formats/hdf5/annbench_layout.hdf5", "got an HDF5 file"),
        ("formats/arrow/wide.parquet", "got a Parquet file"),
        ("formats/text/wide.csv", "got something else"),
    ];
    for (path, expected) in cases {
        let error = vectors(&shared(path)).map(|_| ()).unwrap_err().to_string();
        let name = path.rsplit('/').next().unwrap();
        assert!(
            error.contains(expected) && error.contains(name),
            "{path}: {error}"
        );
    }
}

#[test]
fn values_that_are_no_embedding_are_read_and_left_to_the_gallery_to_refuse() {
    let read = vectors(&shared("formats/edge_cases/has_nan_row3.npy")).unwrap();
    let nan: Vec<usize> = read
        .rows()
        .enumerate()
        .filter(|(_, row)| row.iter().any(|v| v.is_nan()))
        .map(|(row, _)| row)
        .collect();
    assert_eq!(nan, [3]);
    let probes = formats::read_probes(&shared("formats/edge_cases/has_inf_row2.npy")).unwrap();
    assert!(probes[2].embedding.iter().any(|value| value.is_infinite()));
    assert_eq!(probes[2].id, "2");
}

#[test]
fn trailing_bytes_and_other_types_are_refused() {
    let (_folder, path) = npy_file(3);
    let mut bytes = fs::read(&path).unwrap();
    bytes.push(0);
    fs::write(&path, &bytes).unwrap();
    let error = message(vectors(&path));
    assert!(
        error.ends_with("of '<f4', got 177: bytes follow the array"),
        "{error}"
    );
    let integers = path.with_file_name("integers.npy");
    npy::write_i64(&integers, 2, [[1_i64, 2].as_slice()].into_iter()).unwrap();
    assert_eq!(
        message(vectors(&integers)),
        "integers.npy: expected float32, float64 or float16 components, got '<i8'"
    );
}

#[test]
fn a_shape_beyond_the_file_allocates_nothing() {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4096), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    let (_folder, path) = file("huge.npy", bytes);
    let error = message(vectors(&path));
    assert!(
        error.contains("expected 16384000000000084 bytes for shape (1000000000000, 4096)"),
        "{error}"
    );
}

#[test]
fn half_precision_is_read() {
    let text = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 3), }";
    let mut bytes = b"\x93NUMPY\x03\x00".to_vec();
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(&[0x00, 0x3c, 0x00, 0xc0, 0x55, 0x35]);
    let (_folder, path) = file("half.npy", bytes);
    assert_eq!(
        bits(vectors(&path).unwrap().as_slice()),
        bits(&[1.0, -2.0, 0.333_251_95])
    );
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
    let names: Vec<_> = read
        .iter()
        .map(|r| (r.identity.as_str(), r.id.as_str(), r.source.as_str()))
        .collect();
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
        (
            "header.csv",
            "identity,prototype_id,source\n\"Ann, B.\",p/1,a.jpg\nŽofie,p2,\n",
        ),
        (
            "header.txt",
            "\u{feff}source,identity,prototype_id\r\na.jpg,\"Ann, B.\",p/1\r\n,Žofie,p2\r\n",
        ),
    ];
    for (name, content) in cases {
        let labels = folder.path().join(name);
        fs::write(&labels, content).unwrap();
        let read = prototypes(&path, Some(&labels)).unwrap();
        let names: Vec<_> = read
            .iter()
            .map(|r| (r.identity.as_str(), r.id.as_str(), r.source.as_str()))
            .collect();
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
    let cases: [(&str, &[u8], &str); 11] = [
        (
            "count.txt",
            b"a\nb\nc\n",
            "count.txt: expected 2 labels, one a row of FACES, got 3",
        ),
        (
            "blank.txt",
            b"a\n\nb\n",
            "blank.txt line 2: identity: expected a name, got nothing",
        ),
        (
            "blanks.txt",
            b"a\n \n",
            "blanks.txt line 2: identity: expected a name, got blanks",
        ),
        (
            "noid.txt",
            b"a/\nb\n",
            "noid.txt line 1: prototype id: expected a name, got nothing",
        ),
        (
            "long.txt",
            long.as_bytes(),
            "long.txt line 2: identity: expected at most 256 bytes, got 257",
        ),
        (
            "tab.txt",
            b"a\nb\tc\n",
            "tab.txt line 2: identity: expected no control characters, got '\\t'",
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
        (
            "fields.csv",
            b"a,b\nc\n",
            "fields.csv line 2: expected 2 fields, got 1",
        ),
        (
            "many.csv",
            b"a,b,c,d\n",
            "many.csv line 1: expected 1 to 3 fields, got 4",
        ),
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
    let unicode = shared("formats/edge_cases/unicode_labels.txt");
    let error = message(prototypes(&path, Some(&unicode)));
    assert_eq!(
        error,
        "unicode_labels.txt line 6: identity: expected a name, got blanks"
    );
}

#[test]
fn labels_are_wanted_only_where_the_file_has_none() {
    let (folder, path) = npy_file(1);
    let error = message(prototypes(&path, None));
    assert!(
        error.starts_with("faces.npy: expected labels beside it, got none"),
        "{error}"
    );
    let records = folder.path().join("records.jsonl");
    fs::write(&records, r#"{"id": "1", "identity": "a", "embedding": [1]}"#).unwrap();
    let error = message(prototypes(&records, Some(&path)));
    assert!(
        error.starts_with("records.jsonl: expected no labels beside it"),
        "{error}"
    );
}

#[test]
fn bad_json_lines_name_their_line_and_field() {
    let good = r#"{"id": "1", "identity": "a", "embedding": [1, 0]}"#;
    let cases = [
        (
            r#"{"id": "2", "idenity": "a", "embedding": [1, 0]}"#,
            "unknown field `idenity`, expected one of",
        ),
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
        (
            r#"{"id": "2", "identity": "a", "embedding": []}"#,
            "expected 1 to 4096 components a row, got 0",
        ),
        (
            r#"{"id": "2", "identity": "a\u0000", "embedding": [1, 0]}"#,
            "identity: expected no control characters, got '\\0'",
        ),
        (
            r#"{"id": "", "identity": "a", "embedding": [1, 0]}"#,
            "id: expected a name, got nothing",
        ),
        (
            r#"{"id": "2", "identity": "a", "origin": "chosen", "embedding": [1, 0]}"#,
            "origin: expected cluster_medoid",
        ),
        (
            r#"{"id": "2", "identity": "a", "embedding": [1, 0]"#,
            "EOF while parsing an object",
        ),
        ("not json", "expected a JSON object of the known keys"),
        ("\n", "expected a JSON object of the known keys"),
    ];
    for (bad, expected) in cases {
        let (_folder, path) = file("gallery.jsonl", format!("{good}\n{bad}\n{good}\n"));
        let error = message(prototypes(&path, None));
        assert!(
            error.starts_with("gallery.jsonl line 2: ") && error.contains(expected),
            "{bad}: {error}"
        );
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
        "{\"embedding\": [0.5, 1]}\n{\"id\": \"p\", \"group\": \"photo\", \"identity\": \"a\", \"source\": \"s\", \
         \"exclude_identities\": [\"b\"], \"exclude_prototypes\": [\"a/1\"], \"exclude_sources\": [\"t\"], \"embedding\": [2, 3]}\n",
    );
    let probes = formats::read_probes(&path).unwrap();
    assert_eq!(
        (probes[0].id.as_str(), probes[0].identity.as_deref()),
        ("0", None)
    );
    assert_eq!(bits(&probes[0].embedding), bits(&[0.5, 1.0]));
    let second = &probes[1];
    assert_eq!(
        (second.id.as_str(), second.group.as_str(), second.source.as_str()),
        ("p", "photo", "s")
    );
    assert_eq!(second.identity.as_deref(), Some("a"));
    assert_eq!(second.exclude_identities, ["b"]);
    assert_eq!(second.exclude_prototypes, ["a/1"]);
    assert_eq!(second.exclude_sources, ["t"]);
    assert!(second.place.to_string().ends_with("probes.jsonl line 2"));
    let (_folder, path) = file("probes.jsonl", r#"{"embedding": [1], "grup": "x"}"#);
    assert!(message(formats::read_probes(&path)).contains("unknown field `grup`"));
}

#[test]
fn what_is_written_reads_back_and_nothing_else_is_left() {
    let (folder, path) = npy_file(3);
    let read = vectors(&path).unwrap();
    assert_eq!(bits(read.rows().nth(2).unwrap()), bits(&row(2, 4)));
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    assert_eq!(bytes.len() % 16, 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let absent = folder.path().join("absent/out.npy");
    let error = npy::write_f32(&absent, 1, [[1.0_f32].as_slice()].into_iter()).unwrap_err();
    assert!(
        error.to_string().starts_with(&absent.display().to_string()),
        "{error}"
    );
}

#[test]
fn an_export_imports_again() {
    let folder = TempDir::new().unwrap();
    let prototype = |identity: &str, id: &str, source: &str, values: [f32; 2]| Prototype {
        key: PrototypeKey {
            identity: identity.to_owned(),
            id: id.to_owned(),
        },
        source: source.to_owned(),
        origin: Origin::Manual,
        created_ms: 0,
        embedding: Embedding::parse(values.to_vec(), 2, NormPolicy::Normalise).unwrap(),
    };
    let stored = [
        (0, prototype("Ann, \"B.\"", "a/b", "x,y.jpg", [1.0, 0.0])),
        (5, prototype("identity", "1", "", [0.6, 0.8])),
    ];
    let out = folder.path().join("out.npy");
    let files = formats::write_prototypes(&out, 2, &stored).unwrap();
    assert_eq!(files.labels, folder.path().join("out.csv"));
    let read = prototypes(&files.vectors, Some(&files.labels)).unwrap();
    for (record, (_, prototype)) in read.iter().zip(&stored) {
        assert_eq!(
            (&record.identity, &record.id),
            (&prototype.key.identity, &prototype.key.id)
        );
        assert_eq!(record.source, prototype.source);
        assert_eq!(bits(&record.embedding), bits(prototype.embedding.as_slice()));
    }
    assert_eq!(read.len(), 2);
    let error = formats::write_prototypes(&folder.path().join("out.csv"), 2, &stored).unwrap_err();
    assert!(
        error.to_string().contains("expected another ending than .csv"),
        "{error}"
    );
}

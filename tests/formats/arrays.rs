//! NumPy arrays, read and written.

use std::fs;

use lookalike::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
use lookalike::gallery::formats::{self, npy};
use tempfile::TempDir;

use super::common::shared;
use super::{bits, file, message, npy_file, prototypes, row, vectors};

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
    assert!(double.as_slice().iter().zip(plain.as_slice()).all(|(a, b)| (a - b).abs() < 1e-6));
    // The first numbers, as NumPy prints them.
    assert_eq!(bits(&plain.as_slice()[..2]), bits(&[-0.100_766_57, 0.039_847_784]));
    assert_eq!(vectors(&shared("formats/numpy/f32_512.npy")).unwrap().dim(), 512);
}

#[test]
fn a_npy_file_with_labels_gives_prototypes_in_its_order() {
    let records =
        prototypes(&shared("formats/numpy/f32_c.npy"), Some(&shared("formats/numpy/labels.txt"))).unwrap();
    assert_eq!(records.len(), 30);
    assert_eq!((records[7].identity.as_str(), records[7].id.as_str()), ("person_002", "7"));
    assert!(records[7].place.to_string().ends_with("f32_c.npy row 7 (from 0)"), "{}", records[7].place);
}

#[test]
fn bad_arrays_are_refused_with_what_was_expected_and_what_came() {
    let cases = [
        (
            "formats/edge_cases/one_dim_vector.npy",
            "expected 2 dimensions (rows, components), got 1 in shape (128,)",
        ),
        ("formats/edge_cases/empty_0x128.npy", "expected at least one row, got none"),
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
        ("formats/numpy/embeddings_labels.npz", "got a zip archive such as .npz"),
        ("formats/hdf5/annbench_layout.hdf5", "got an HDF5 file"),
        ("formats/arrow/wide.parquet", "got a Parquet file"),
        ("formats/text/wide.csv", "got something else"),
    ];
    for (path, expected) in cases {
        let error = vectors(&shared(path)).map(|_| ()).unwrap_err().to_string();
        let name = path.rsplit('/').next().unwrap();
        assert!(error.contains(expected) && error.contains(name), "{path}: {error}");
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
    assert!(error.ends_with("of '<f4', got 177: bytes follow the array"), "{error}");
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
    assert!(error.contains("expected 16384000000000084 bytes for shape (1000000000000, 4096)"), "{error}");
}

#[test]
fn half_precision_is_read() {
    let text = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 3), }";
    let mut bytes = b"\x93NUMPY\x03\x00".to_vec();
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(&[0x00, 0x3c, 0x00, 0xc0, 0x55, 0x35]);
    let (_folder, path) = file("half.npy", bytes);
    assert_eq!(bits(vectors(&path).unwrap().as_slice()), bits(&[1.0, -2.0, 0.333_251_95]));
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
    assert!(error.to_string().starts_with(&absent.display().to_string()), "{error}");
}

#[test]
fn an_export_imports_again() {
    let folder = TempDir::new().unwrap();
    let prototype = |identity: &str, id: &str, source: &str, values: [f32; 2]| Prototype {
        key: PrototypeKey { identity: identity.to_owned(), id: id.to_owned() },
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
        assert_eq!((&record.identity, &record.id), (&prototype.key.identity, &prototype.key.id));
        assert_eq!(record.source, prototype.source);
        assert_eq!(bits(&record.embedding), bits(prototype.embedding.as_slice()));
    }
    assert_eq!(read.len(), 2);
    let error = formats::write_prototypes(&folder.path().join("out.csv"), 2, &stored).unwrap_err();
    assert!(error.to_string().contains("expected another ending than .csv"), "{error}");
}

//! Snapshots as backends and answers see them.

use super::*;
use crate::domain::{Embedding, NormPolicy, Prototype, PrototypeKey};
use crate::gallery::{DEFAULT_GALLERY, Identity};

/// `(index, identity, id, source)`; the embedding's first component says which index it is.
fn snapshot(prototypes: &[(u64, &str, &str, &str)]) -> Snapshot {
    let profile = GalleryProfile {
        name: DEFAULT_GALLERY.to_owned(),
        dim: 2,
        model_id: String::new(),
        norm: NormPolicy::Normalise,
        threshold: None,
        min_margin: None,
        generation: 3,
    };
    let ann = Identity {
        name: "ann".to_owned(),
        threshold: Some(Threshold::parse(0.5).unwrap()),
        min_margin: None,
    };
    let unused = Identity { name: "unused".to_owned(), threshold: None, min_margin: None };
    let prototypes = prototypes.iter().map(|(index, identity, id, source)| {
        let key = PrototypeKey { identity: (*identity).to_owned(), id: (*id).to_owned() };
        let embedding = Embedding::parse(component(*index).to_vec(), 2, NormPolicy::Normalise).unwrap();
        let source = (*source).to_owned();
        (*index, Prototype { key, source, origin: Origin::Import, created_ms: 0, embedding })
    });
    Snapshot::new(profile, vec![unused, ann], prototypes.collect())
}

fn component(index: u64) -> [f32; 2] {
    let angle = index as f32 / 100.0;
    [angle.cos(), angle.sin()]
}

/// Rows as the indices they hold, sorted.
fn indices(snapshot: &Snapshot, rows: impl IntoIterator<Item = usize>) -> Vec<u64> {
    let mut indices: Vec<u64> = rows.into_iter().map(|row| snapshot.index(row)).collect();
    indices.sort_unstable();
    indices
}

#[test]
fn rows_of_an_identity_stand_together_in_whatever_order_they_came() {
    let stored = [
        (70, "bob", "1", ""),
        (3, "ann", "1", ""),
        (12, "eve", "1", ""),
        (4, "bob", "2", ""),
        (50, "ann", "2", ""),
    ];
    let snapshot = snapshot(&stored);
    let order: Vec<u64> = snapshot.rows().map(|row| row.index).collect();
    assert_eq!(order, [3, 50, 4, 70, 12]);
    let names: Vec<String> = snapshot.identities().map(|held| held.name.read()).collect();
    assert_eq!(names, ["ann", "bob", "eve"]);
    assert_eq!(snapshot.rows_of_identity("bob"), Some(2..4));
    assert_eq!(snapshot.rows_of_identity("unused"), None);
    for (place, held) in snapshot.identities().enumerate() {
        assert!(held.rows.clone().all(|row| snapshot.row(row).identity == place));
    }
    for (row, held) in snapshot.rows().enumerate() {
        let expected = Embedding::parse(component(held.index).to_vec(), 2, NormPolicy::Normalise).unwrap();
        assert_eq!(snapshot.matrix().row(row), expected.as_slice(), "index {}", held.index);
    }
    assert!(snapshot.identity(0).threshold.is_some());
    assert_eq!(snapshot.identity(1).threshold, None);
}

#[test]
fn a_prototype_is_found_bare_or_with_its_identity_and_with_slashes_in_either() {
    let stored = [
        (0, "ann", "1", ""),
        (1, "bob", "1", ""),
        (2, "a/b", "c", ""),
        (3, "a", "b/c", ""),
        (4, "eve", "a/b/c", ""),
        (5, "eve", "ann/1", ""),
    ];
    let snapshot = snapshot(&stored);
    let find = |reference: &str| indices(&snapshot, snapshot.rows_of_prototype(reference));
    assert_eq!(find("1"), [0, 1]);
    assert_eq!(find("bob/1"), [1]);
    assert_eq!(find("b/c"), [3]);
    assert_eq!(find("a/b/c"), [2, 3, 4]);
    assert_eq!(find("ann/1"), [0, 5]);
    assert_eq!(find("eve/a/b/c"), [4]);
    for nothing in ["", "/", "2", "ann", "ann/", "/1", "bob/ann/1"] {
        assert!(find(nothing).is_empty(), "{nothing:?}");
    }
}

#[test]
fn a_source_is_found_across_identities_and_an_empty_one_never() {
    let stored =
        [(0, "ann", "1", "x.jpg"), (1, "bob", "1", "x.jpg"), (2, "ann", "2", ""), (9, "ann", "3", "y.jpg")];
    let snapshot = snapshot(&stored);
    assert_eq!(indices(&snapshot, snapshot.rows_of_source("x.jpg")), [0, 1]);
    assert_eq!(indices(&snapshot, snapshot.rows_of_source("y.jpg")), [9]);
    assert!(snapshot.rows_of_source("").count() == 0 && snapshot.rows_of_source("x").count() == 0);
}

#[test]
fn an_empty_gallery_is_a_snapshot_too() {
    let snapshot = snapshot(&[]);
    assert!(snapshot.is_empty() && snapshot.identity_count() == 0);
    assert_eq!((snapshot.matrix().rows(), snapshot.matrix().dim()), (0, 2));
    assert!(snapshot.rows_of_prototype("a/b").is_empty());
}

/// A gallery as galleries of photos are: five prototypes a person, ids that recur, a source each. `order` says whose turn it is.
fn photos(persons: u32, order: impl Iterator<Item = u32>) -> Snapshot {
    let embedding = Embedding::parse(vec![1.0, 0.0], 2, NormPolicy::Normalise).unwrap();
    let profile = GalleryProfile::named(DEFAULT_GALLERY, 2);
    let mut builder = SnapshotBuilder::new(profile, Vec::new(), persons as usize * 5);
    let mut taken = vec![0; persons as usize];
    for (index, person) in (0..).zip(order) {
        let photo = &mut taken[person as usize];
        *photo += 1;
        let (identity, prototype_id) = (format!("p_{person:05}"), format!("img_{photo:02}"));
        let source = format!("{identity}/{prototype_id}.jpg");
        builder.push(NewRow {
            index,
            identity: &identity,
            prototype_id: &prototype_id,
            source: &source,
            origin: Origin::Manual,
            embedding: &embedding,
        });
    }
    builder.finish()
}

#[test]
fn what_stands_beside_the_embeddings_takes_few_bytes_a_row() {
    let snapshot = photos(70_000, (0..350_000).map(|index| index / 5));
    let bytes = snapshot.bytes();
    assert_eq!(bytes.matrix, 350_000 * 64);
    assert!(bytes.beside_matrix() <= 12 * 350_000, "{bytes:?}");
    // Indices and identities rise evenly, and origins are the same: a bit each, with blocks' lines and a spare word.
    let columns = [bytes.indices, bytes.identities, bytes.origins];
    assert_eq!(columns, [43_752 + 342 * 24 + 8; 3]);
}

#[test]
fn rows_that_came_in_turns_are_those_that_came_together() {
    let together = photos(300, (0..1500).map(|index| index / 5));
    let in_turns = photos(300, (0..1500).map(|index| index % 300));
    assert_eq!((together.largest_identity(), in_turns.largest_identity()), (5, 5));
    let told = |row: RowView<'_>| (row.identity, row.prototype_id.read(), row.source.read(), row.origin);
    for (row, (one, other)) in together.rows().zip(in_turns.rows()).enumerate() {
        assert_eq!((one.index, other.index), (row as u64, (row / 5 + row % 5 * 300) as u64));
        assert_eq!(told(one), told(other));
    }
    assert_eq!(together.rows_of_prototype("img_03").len(), 300);
    assert_eq!(in_turns.rows_of_prototype("p_00299/img_05"), [1499]);
    assert_eq!(in_turns.rows_of_source("p_00017/img_02.jpg").collect::<Vec<_>>(), [86]);
}

#[test]
fn the_largest_identity_is_told() {
    let stored = [(0, "ann", "1", ""), (1, "bob", "1", ""), (2, "ann", "2", ""), (3, "ann", "3", "")];
    assert_eq!(snapshot(&stored).largest_identity(), 3);
    assert_eq!(snapshot(&[]).largest_identity(), 0);
}

#[test]
#[should_panic(expected = "expected an index above Some(4), got 4")]
fn an_index_that_was_there_is_refused() {
    snapshot(&[(4, "ann", "1", ""), (4, "ann", "2", "")]);
}

//! What is removed is gone from the disk, not just from the answers.

use std::fs;
use std::path::Path;

use lookalike::domain::{Embedding, NormPolicy};
use lookalike::gallery::store::{Erasure, Selection, Store, verify};

use super::{empty, import, record, vector};

const PERSONS: u32 = 40;
const EACH: u32 = 25;

/// The names of the folder's files that hold `needle`.
fn files_with(folder: &Path, needle: &[u8]) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files
        .filter(|file| {
            let content = fs::read(file.path()).unwrap();
            content.windows(needle.len()).any(|window| window == needle)
        })
        .map(|file| file.file_name().into_string().unwrap())
        .collect()
}

/// The stored bytes of the embedding made of `seed`.
fn stored(seed: u32) -> Vec<u8> {
    let embedding = Embedding::parse(vector(seed), 8, NormPolicy::Normalise).unwrap();
    embedding.as_slice().iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// 40 persons with 25 prototypes each, one import a round, so that persons lie scattered over the pages.
fn crowd(store: &mut Store) {
    for round in 0..EACH {
        let records = (0..PERSONS)
            .map(|person| record(&format!("person_{person:03}"), &round.to_string(), person * 1000 + round))
            .collect();
        import(store, "g", records).unwrap();
    }
}

#[test]
fn no_byte_of_a_removed_embedding_is_left_in_any_file() {
    let (folder, mut store) = empty();
    crowd(&mut store);
    // Removed in a scattered order and in every way, so that pages are emptied, merged and reused.
    let mut gone: Vec<u32> = Vec::new();
    for person in (0..PERSONS).step_by(3) {
        assert!(!files_with(folder.path(), &stored(person * 1000 + 7)).is_empty());
        let name = format!("person_{person:03}");
        let first =
            Selection::Prototypes((0..EACH).step_by(2).map(|round| format!("{name}/{round}")).collect());
        assert_eq!(store.remove("g", &first).unwrap().erasure, Erasure::Complete);
        store.remove("g", &Selection::Sources(vec![format!("{name}/7.jpg")])).unwrap();
        store.remove("g", &Selection::Identities(vec![name])).unwrap();
        gone.extend((0..EACH).map(|round| person * 1000 + round));
    }
    for seed in gone {
        assert!(files_with(folder.path(), &stored(seed)).is_empty(), "embedding {seed}");
    }
    assert!(!files_with(folder.path(), &stored(1007)).is_empty(), "what was not removed is there");
    assert!(files_with(folder.path(), b"person_000").is_empty(), "the name is gone too");
    assert!(verify(folder.path()).unwrap().is_sound());
    store.remove("g", &Selection::Everything).unwrap();
    for seed in (0..PERSONS).flat_map(|person| (0..EACH).map(move |round| person * 1000 + round)) {
        assert!(files_with(folder.path(), &stored(seed)).is_empty(), "embedding {seed}");
    }
}

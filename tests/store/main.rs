//! The store as its callers see it: changes, refusals, damage, crashes, other formats.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod changes;
mod damage;
mod erasure;
mod format;
mod refusals;

use std::path::Path;

use lookalike::domain::Origin;
use lookalike::gallery::store::{Import, ImportOptions, ImportReport, Store, StoreError};
use lookalike::gallery::{Place, Progress, PrototypeRecord};
use tempfile::TempDir;

/// A data folder with an empty database.
fn empty() -> (TempDir, Store) {
    let folder = TempDir::new().unwrap();
    let store = Store::create_or_open(folder.path()).unwrap();
    (folder, store)
}

/// A vector of 8 components that no other `seed` gives; not of unit length.
fn vector(seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..8).map(|_| next()).collect()
}

/// `identity/id` from `source`, at row `seed` of `faces.npy`.
fn record(identity: &str, id: &str, seed: u32) -> PrototypeRecord {
    PrototypeRecord {
        identity: identity.to_owned(),
        id: id.to_owned(),
        source: format!("{identity}/{id}.jpg"),
        origin: Origin::Import,
        embedding: vector(seed),
        place: Place::file(Path::new("faces.npy")).row(u64::from(seed)),
    }
}

fn import(
    store: &mut Store,
    gallery: &str,
    records: Vec<PrototypeRecord>,
) -> Result<ImportReport, StoreError> {
    import_as(store, gallery, ImportOptions::default(), records)
}

fn import_as(
    store: &mut Store,
    gallery: &str,
    options: ImportOptions,
    records: Vec<PrototypeRecord>,
) -> Result<ImportReport, StoreError> {
    store.import(Import { gallery, options, records }, &mut |_: Progress| ())
}

/// Three persons: ann (indices 0, 2, 4), bob (1, 3), 张伟 (5).
fn three_persons(store: &mut Store, gallery: &str) -> ImportReport {
    let records = [("ann", "1"), ("bob", "1"), ("ann", "2"), ("bob", "2"), ("ann", "3"), ("张伟", "1")];
    let records = (0_u32..).zip(records).map(|(seed, (identity, id))| record(identity, id, seed)).collect();
    import(store, gallery, records).unwrap()
}

fn text<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.to_string(),
    }
}

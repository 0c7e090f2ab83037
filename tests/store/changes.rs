//! What an import and a removal do, and who sees it when.

use std::thread;

use lookalike::domain::{Embedding, Margin, NormPolicy, PrototypeKey, Threshold};
use lookalike::gallery::store::{
    Import, ImportOptions, ImportReport, PrototypeQuery, Selection, Store, verify,
};
use lookalike::gallery::{Identity, Progress, Snapshot};

use super::{empty, import, import_as, record, text, three_persons, vector};

#[test]
fn an_import_is_there_after_a_restart() {
    let (folder, mut store) = empty();
    let report = three_persons(&mut store, "default");
    assert_eq!(
        report,
        ImportReport {
            gallery: "default".to_owned(),
            created: true,
            prototypes: 6,
            identities: 3,
            normalised: 6,
            total: 6,
            generation: 1,
        }
    );
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    let snapshot = store.snapshot("default").unwrap();
    assert_eq!(snapshot.profile().generation, 1);
    assert_eq!(snapshot.row_count(), 6);
    for (row, held) in snapshot.rows().enumerate() {
        let parsed = Embedding::parse(vector(held.index as u32), 8, NormPolicy::Normalise).unwrap();
        let stored: Vec<u32> = snapshot.matrix().row(row).iter().map(|value| value.to_bits()).collect();
        let expected: Vec<u32> = parsed.as_slice().iter().map(|value| value.to_bits()).collect();
        assert_eq!(stored, expected, "index {}", held.index);
    }
    assert_eq!(snapshot.rows_of_identity("张伟"), Some(5..6));
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[test]
fn unit_vectors_keep_their_bits_and_are_not_counted_as_normalised() {
    let (_folder, mut store) = empty();
    let mut unit = record("ann", "1", 1);
    unit.embedding = vec![0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0, -0.0];
    let report = import(&mut store, "g", vec![unit.clone(), record("ann", "2", 2)]).unwrap();
    assert_eq!(report.normalised, 1);
    let (_, rows) = store.export("g").unwrap();
    assert_eq!(rows[0].1.embedding.as_slice()[7].to_bits(), (-0.0_f32).to_bits());
    assert_eq!(rows[0].1.embedding.as_slice(), unit.embedding);
}

#[test]
fn every_change_raises_the_generation_and_no_index_comes_back() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    let removed = store.remove("g", &Selection::Prototypes(vec!["张伟/1".to_owned()])).unwrap();
    assert_eq!((removed.prototypes, removed.identities, removed.generation), (1, 1, Some(2)));
    let report = import(&mut store, "g", vec![record("张伟", "1", 77), record("ann", "9", 78)]).unwrap();
    assert_eq!((report.generation, report.total, report.identities, report.created), (3, 7, 1, false));
    let indices: Vec<u64> = store.export("g").unwrap().1.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 6, 7]);
    let snapshot = store.snapshot("g").unwrap();
    let rows: Vec<u64> = snapshot.rows().map(|row| row.index).collect();
    assert_eq!(rows, [0, 2, 4, 7, 1, 3, 6]);
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[test]
fn a_gallery_made_again_goes_on_counting_where_the_removed_one_stopped() {
    let (folder, mut store) = empty();
    three_persons(&mut store, "g");
    store.remove("g", &Selection::Identities(vec!["ann".to_owned()])).unwrap();
    store.remove("g", &Selection::Everything).unwrap();
    assert!(verify(folder.path()).unwrap().is_sound());
    // An import that fails takes nothing up.
    let mut broken = record("eve", "1", 1);
    broken.embedding.fill(0.0);
    import(&mut store, "g", vec![broken]).unwrap_err();
    drop(store);
    let mut store = Store::open(folder.path()).unwrap();
    let report = import(&mut store, "g", vec![record("ann", "1", 7), record("bob", "1", 8)]).unwrap();
    assert_eq!((report.created, report.generation, report.total), (true, 3, 2));
    let indices = |store: &Store, gallery| -> Vec<u64> {
        store.export(gallery).unwrap().1.iter().map(|(index, _)| *index).collect()
    };
    assert_eq!(indices(&store, "g"), [6, 7]);
    assert_eq!(store.snapshot("g").unwrap().profile().generation, 3);
    // Nor does what is kept of one concern another.
    assert_eq!(three_persons(&mut store, "h").generation, 1);
    assert_eq!(indices(&store, "h")[0], 0);
    store.remove("g", &Selection::Everything).unwrap();
    assert_eq!(import(&mut store, "g", vec![record("ann", "1", 7)]).unwrap().generation, 4);
    assert_eq!(indices(&store, "g"), [8]);
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[test]
fn removals_take_what_they_name_and_nothing_else() {
    let (folder, mut store) = empty();
    let left = |store: &Store| -> Vec<u64> {
        store.export("g").unwrap().1.iter().map(|(index, _)| *index).collect()
    };
    three_persons(&mut store, "g");
    let by_source = Selection::Sources(vec!["ann/2.jpg".to_owned(), "bob/1.jpg".to_owned()]);
    let report = store.remove("g", &by_source).unwrap();
    assert_eq!((report.prototypes, report.identities), (2, 0));
    assert_eq!(left(&store), [0, 3, 4, 5]);
    let report = store.remove("g", &Selection::Identities(vec!["ann".to_owned()])).unwrap();
    assert_eq!((report.prototypes, report.identities, report.generation), (2, 1, Some(3)));
    assert_eq!(left(&store), [3, 5]);
    three_persons(&mut store, "other");
    let report = store.remove("g", &Selection::Everything).unwrap();
    assert_eq!((report.prototypes, report.identities, report.generation), (2, 2, None));
    assert_eq!(text(store.snapshot("g")), "no gallery \"g\"");
    assert_eq!(store.snapshot("other").unwrap().row_count(), 6);
    assert!(verify(folder.path()).unwrap().is_sound());
}

#[test]
fn a_removal_that_fits_nothing_or_too_much_removes_nothing() {
    let (_folder, mut store) = empty();
    three_persons(&mut store, "g");
    import(&mut store, "g", vec![record("a", "b/c", 50), record("a/b", "c", 51)]).unwrap();
    let cases = [
        (Selection::Identities(vec!["ann".into(), "eve".into()]), "gallery \"g\" has no identity \"eve\""),
        (Selection::Prototypes(vec!["ann/1".into(), "1".into()]), "gallery \"g\" has no prototype \"1\""),
        (Selection::Sources(vec!["ann/1.jpg".into(), "x".into()]), "gallery \"g\" has no source \"x\""),
        (
            Selection::Prototypes(vec!["a/b/c".into()]),
            "expected one prototype, got \"a/b/c\", which 2 prototypes of gallery \"g\" fit",
        ),
    ];
    for (selection, expected) in cases {
        assert_eq!(text(store.remove("g", &selection)), expected);
    }
    let summary = store.gallery("g").unwrap();
    assert_eq!((summary.prototypes, summary.profile.generation), (8, 2));
    assert_eq!(text(store.remove("h", &Selection::Everything)), "no gallery \"h\"");
}

#[test]
fn what_there_is_can_be_listed() {
    let (_folder, mut store) = empty();
    let options = ImportOptions {
        model_id: Some("dlib".to_owned()),
        norm: Some(NormPolicy::RequireUnit),
        threshold: Some(Threshold::parse(0.9).unwrap()),
        min_margin: Some(Margin::parse(0.1).unwrap()),
        ..Default::default()
    };
    let mut unit = record("eve", "1", 9);
    unit.embedding = vec![1.0, 0.0];
    import_as(&mut store, "z", options, vec![unit]).unwrap();
    three_persons(&mut store, "人");
    let galleries = store.galleries().unwrap();
    let names: Vec<&str> = galleries.iter().map(|gallery| gallery.profile.name.as_str()).collect();
    assert_eq!(names, ["z", "人"]);
    let z = &galleries[0].profile;
    assert_eq!((z.dim, z.model_id.as_str(), z.norm), (2, "dlib", NormPolicy::RequireUnit));
    assert_eq!((z.threshold.unwrap().get(), z.min_margin.unwrap().get()), (0.9, 0.1));
    assert_eq!((galleries[1].prototypes, galleries[1].identities), (6, 3));
    assert!(galleries[1].created_ms > 1_700_000_000_000);
    let identities = store.identities("人").unwrap();
    let counts: Vec<_> = identities.iter().map(|i| (i.identity.name.as_str(), i.prototypes)).collect();
    assert_eq!(counts, [("ann", 3), ("bob", 2), ("张伟", 1)]);
    let query = PrototypeQuery { gallery: "人", identity: Some("ann"), after: Some(0), limit: 1 };
    let page = store.prototypes(&query).unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].index, 2);
    assert_eq!(page[0].key, PrototypeKey { identity: "ann".to_owned(), id: "2".to_owned() });
    assert_eq!(page[0].source, "ann/2.jpg");
    let all = PrototypeQuery { identity: None, after: None, limit: 100, ..query };
    assert_eq!(store.prototypes(&all).unwrap().len(), 6);
    let behind = PrototypeQuery { after: Some(u64::MAX), ..all };
    assert!(store.prototypes(&behind).unwrap().is_empty());
    let snapshots = store.snapshots().unwrap();
    assert_eq!(snapshots.iter().map(Snapshot::row_count).collect::<Vec<_>>(), [1, 6]);
}

#[test]
fn a_reader_sees_the_change_of_another_connection_when_it_is_whole() {
    let (folder, mut writer) = empty();
    three_persons(&mut writer, "g");
    let reader = Store::open_read_only(folder.path()).unwrap();
    assert_eq!(reader.snapshot("g").unwrap().profile().generation, 1);
    let records = (0..5000).map(|seed| record("eve", &seed.to_string(), seed + 100)).collect();
    let mut seen = Vec::new();
    let import = Import { gallery: "g", options: ImportOptions::default(), records };
    let report = writer
        .import(import, &mut |_: Progress| {
            let summary = reader.gallery("g").unwrap();
            seen.push((summary.profile.generation, summary.prototypes));
        })
        .unwrap();
    assert_eq!(report.total, 5006);
    // Told at the start, after 4096 and at the end; all within the change.
    assert_eq!(seen, [(1, 6); 3]);
    assert_eq!(reader.snapshot("g").unwrap().row_count(), 5006);
    let mut reader = reader;
    let error = text(super::import(&mut reader, "g", vec![record("x", "1", 1)]));
    assert!(error.contains("readonly"), "{error}");
}

#[test]
fn two_writers_wait_for_each_other() {
    let (folder, _store) = empty();
    let write = |person: &'static str| {
        let folder = folder.path().to_owned();
        move || {
            let mut store = Store::open(&folder).unwrap();
            for round in 0..10_u32 {
                let records =
                    (0..50).map(|i| record(person, &format!("{round}-{i}"), round * 50 + i)).collect();
                import(&mut store, "g", records).unwrap();
            }
        }
    };
    let threads = ["ann", "bob", "eve"].map(|person| thread::spawn(write(person)));
    for thread in threads {
        thread.join().unwrap();
    }
    let store = Store::open(folder.path()).unwrap();
    let summary = store.gallery("g").unwrap();
    assert_eq!((summary.profile.generation, summary.prototypes, summary.identities), (30, 1500, 3));
    assert!(verify(folder.path()).unwrap().is_sound());
}

/// Whoever looked at a gallery before changes only what was looked at.
#[test]
fn a_change_may_be_bound_to_a_generation() {
    let (_folder, mut store) = empty();
    let bound = |generation| ImportOptions { generation: Some(generation), ..Default::default() };
    let mut import = |generation, id: &str| {
        import_as(&mut store, "g", bound(generation), vec![record("ann", id, 1)])
            .map(|report| report.generation)
    };
    assert_eq!(import(0, "1").unwrap(), 1);
    let told = |expected, got| {
        format!(
            "gallery \"g\": expected generation {expected}, got {got}: somebody else changed it meanwhile, so look again"
        )
    };
    assert_eq!(text(import(0, "2")), told(0, 1));
    assert_eq!(import(1, "2").unwrap(), 2);
    assert_eq!(text(import(1, "3")), told(1, 2));
    assert_eq!(store.gallery("g").unwrap().prototypes, 2);
    assert_eq!(
        text(import_as(&mut store, "h", bound(3), vec![record("ann", "1", 1)])),
        told(3, 0).replace("\"g\"", "\"h\"")
    );
}

#[test]
fn identities_bring_their_limits_when_they_are_made() {
    let (_folder, mut store) = empty();
    let limits = |name: &str, threshold| Identity {
        name: name.to_owned(),
        threshold: Some(Threshold::parse(threshold).unwrap()),
        min_margin: None,
    };
    let with = |threshold| ImportOptions { identities: vec![limits("ann", threshold)], ..Default::default() };
    import_as(&mut store, "g", with(0.75), vec![record("ann", "1", 1), record("bob", "1", 2)]).unwrap();
    assert_eq!(store.snapshot("g").unwrap().own_limits(), [limits("ann", 0.75)]);
    // Who is there keeps what is there.
    import_as(&mut store, "g", with(0.5), vec![record("ann", "2", 3)]).unwrap();
    assert_eq!(store.snapshot("g").unwrap().own_limits(), [limits("ann", 0.75)]);
}

#[test]
fn a_gallery_takes_new_limits_as_one_change() {
    let (_folder, mut store) = empty();
    three_persons(&mut store, "family");
    let (threshold, min_margin) = (Threshold::parse(0.625).unwrap(), Margin::parse(0.125).unwrap());
    assert_eq!(store.set_limits("family", threshold, min_margin).unwrap(), 2);
    let profile = store.gallery("family").unwrap().profile;
    assert_eq!(
        (profile.threshold, profile.min_margin, profile.generation),
        (Some(threshold), Some(min_margin), 2)
    );
    assert_eq!(store.snapshot("family").unwrap().row_count(), 6);
    let error = text(store.set_limits("nobody's", threshold, min_margin));
    assert!(error.contains("nobody's"), "{error}");
}

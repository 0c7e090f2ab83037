//! The sample in the repository: it reads, and its answers are what its own NumPy script found.

use std::path::{Path, PathBuf};

use lookalike::domain::{Embedding, NormPolicy, by_rank, canonical_score};
use lookalike::gallery::store::{Import, ImportOptions, Store};
use lookalike::gallery::{DEFAULT_GALLERY, Progress, formats};
use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample").join(name)
}

#[test]
fn the_sample_gallery_answers_as_numpy_does() {
    let mut silent = |_: Progress| ();
    let labels = sample("gallery.csv");
    let records = formats::read_prototypes(&sample("gallery.npy"), Some(&labels), &mut silent).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let mut store = Store::create_or_open(folder.path()).unwrap();
    let import = Import { gallery: DEFAULT_GALLERY, options: ImportOptions::default(), records };
    let report = store.import(import, &mut silent).unwrap();
    assert_eq!((report.prototypes, report.identities, report.normalised), (60, 12, 0));
    let snapshot = store.snapshot(DEFAULT_GALLERY).unwrap();
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(sample("expected.json")).unwrap()).unwrap();
    let expected = expected["probes"].as_array().unwrap();
    let probes = formats::read_probes(&sample("probes.jsonl")).unwrap();
    assert_eq!(probes.len(), expected.len());
    for (probe, expected) in probes.into_iter().zip(expected) {
        assert_eq!(probe.id, expected["probe_id"].as_str().unwrap());
        let embedding = Embedding::parse(probe.embedding, 128, NormPolicy::RequireUnit).unwrap();
        let mut ranked: Vec<(f32, u64, usize)> = snapshot
            .rows()
            .iter()
            .enumerate()
            .map(|(row, held)| {
                (canonical_score(embedding.as_slice(), snapshot.matrix().row(row)), held.index, row)
            })
            .collect();
        ranked.sort_by(|a, b| by_rank((a.0, a.1), (b.0, b.1)));
        for (found, top) in ranked.iter().zip(expected["top"].as_array().unwrap()) {
            assert_eq!(found.1, top["index"].as_u64().unwrap(), "{}", probe.id);
            let score = top["score"].as_f64().unwrap();
            assert!((f64::from(found.0) - score).abs() < 1e-7, "{}: {} {score}", probe.id, found.0);
        }
        let best = snapshot.rows()[ranked[0].2].identity;
        let nearest = &snapshot.identities()[best].identity.name;
        assert_eq!(nearest, expected["nearest"].as_str().unwrap(), "{}", probe.id);
        let known = snapshot.rows_of_identity(probe.identity.as_deref().unwrap()).is_some();
        let decision = expected["decision"].as_str().unwrap();
        assert_eq!(known, decision != "BELOW_THRESHOLD", "{}", probe.id);
    }
}

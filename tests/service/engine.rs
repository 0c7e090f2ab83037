//! Scans of made galleries straight through the engine: odd dimensions, rows left out, rows that are alike or nearly so.

use std::path::Path;
use std::sync::Arc;

use lookalike::backend::RowSet;
use lookalike::domain::{Embedding, Matrix};
use lookalike::engine::{Engine, ScanAnswer, ScanRequest};
use lookalike::gallery::Snapshot;

use super::support::{BACKENDS, Face, REFERENCE, Random, settings, snapshot, unit};

/// Rows copied to a device at a time: several chunks to every gallery of these tests, and a last one that is not full.
const CHUNK_ROWS: &str = "backend.opencl.chunk_rows=700";

fn scan(snapshot: &Arc<Snapshot>, request: &ScanRequest, flags: &[&str]) -> ScanAnswer {
    let flags: Vec<&str> = flags.iter().copied().chain([CHUNK_ROWS]).collect();
    let engine = Engine::start(&settings(Path::new("unused"), &flags).backend, 1).unwrap();
    engine.load(Arc::clone(snapshot), None).unwrap();
    engine.scan_blocking(request.clone()).unwrap()
}

/// Every backend's answer is the reference's, to the bit; gives it.
fn all_agree(snapshot: Snapshot, probes: &[Embedding], skips: &[RowSet], ks: &[usize]) -> Vec<ScanAnswer> {
    let snapshot = Arc::new(snapshot);
    let dim = snapshot.profile().dim;
    let probes = Arc::new(Matrix::from_rows(dim, probes.iter().map(Embedding::as_slice)));
    let answer = |k: usize| {
        let request = ScanRequest {
            snapshot: Arc::clone(&snapshot),
            probes: Arc::clone(&probes),
            skips: skips.to_vec(),
            k,
        };
        let reference = scan(&snapshot, &request, &REFERENCE);
        for (_, flags) in BACKENDS {
            let answer = scan(&snapshot, &request, flags);
            assert_eq!(answer.report.fallback, None);
            assert_eq!((answer.report.invalid_indices, answer.report.bound_violations), (0, 0), "{flags:?}");
            assert_eq!(bits(&answer), bits(&reference), "{flags:?}, dim {dim}, k {k}");
        }
        reference
    };
    ks.iter().map(|k| answer(*k)).collect()
}

fn bits(answer: &ScanAnswer) -> Vec<Vec<(u32, u32)>> {
    let probes = answer.probes.iter();
    probes.map(|ranked| ranked.iter().map(|one| (one.row, one.score.to_bits())).collect()).collect()
}

/// The indices of a probe's rows.
fn indices(snapshot_rows: &[u64], answer: &ScanAnswer, probe: usize) -> Vec<u64> {
    answer.probes[probe].iter().map(|ranked| snapshot_rows[ranked.row as usize]).collect()
}

fn no_skips(probes: usize) -> Vec<RowSet> {
    vec![RowSet::default(); probes]
}

/// Prototypes of 40 persons in turn, so that the order of insertion is not the order of rows.
fn faces(vectors: Vec<Vec<f32>>) -> Vec<Face> {
    let face = |(row, vector): (usize, Vec<f32>)| {
        Face::new(&format!("person {}", row % 40), &row.to_string(), vector)
    };
    vectors.into_iter().enumerate().map(face).collect()
}

#[test]
fn odd_dimensions_with_rows_left_out() {
    for (dim, rows) in [(1, 1500), (7, 2000), (130, 1900), (512, 1501)] {
        let mut random = Random::new(dim as u64);
        let vectors: Vec<Vec<f32>> = (0..rows).map(|_| random.vector(dim)).collect();
        let mut probes: Vec<Embedding> = (0..6).map(|_| unit(&random.vector(dim))).collect();
        probes.push(unit(&vectors[rows / 2]));
        let near = random.near(&vectors[3], 0.01);
        probes.push(unit(&near));
        let end = rows as u32;
        let skips = [
            vec![],
            vec![(0, 1)],
            vec![(0, end - 1)],
            vec![(5, 900), (901, 1400)],
            (0..end / 2).map(|row| (2 * row, 2 * row + 1)).collect(),
            vec![(0, end)],
            vec![],
            vec![(699, 701)],
        ];
        let skips: Vec<RowSet> = skips.into_iter().map(RowSet::from_ranges).collect();
        let snapshot = snapshot(dim, &faces(vectors));
        let answers = all_agree(snapshot, &probes, &skips, &[1, 5, 300]);
        let lengths: Vec<usize> = answers[1].probes.iter().map(Vec::len).collect();
        assert_eq!(lengths, [5, 5, 1, 5, 5, 0, 5, 5], "dim {dim}");
    }
}

#[test]
fn rows_that_are_all_alike_stand_by_index() {
    let mut random = Random::new(3);
    let vector = random.vector(128);
    let snapshot = snapshot(128, &faces(vec![vector.clone(); 3000]));
    let order: Vec<u64> = snapshot.rows().map(|row| row.index).collect();
    let probes = [unit(&vector), unit(&random.vector(128))];
    // Of the first of these rows none may be an answer.
    let skip = order.iter().position(|index| *index == 2).unwrap() as u32;
    let skips = [RowSet::default(), RowSet::from_ranges(vec![(skip, skip + 1)])];
    let answers = all_agree(snapshot, &probes, &skips, &[5]);
    assert_eq!(indices(&order, &answers[0], 0), [0, 1, 2, 3, 4]);
    assert_eq!(indices(&order, &answers[0], 1), [0, 1, 3, 4, 5]);
}

/// Closer together than a device can tell: the order is that of the exact scores all the same.
#[test]
fn rows_a_hair_apart_stand_in_their_exact_order() {
    let mut random = Random::new(4);
    let centre = random.vector(128);
    let length = centre.iter().map(|v| v * v).sum::<f32>().sqrt();
    let vectors: Vec<Vec<f32>> = (0..2500).map(|_| random.near(&centre, 1e-7 * length)).collect();
    let snapshot = snapshot(128, &faces(vectors));
    let near = random.near(&centre, 1e-7 * length);
    let probes = [unit(&centre), unit(&near), unit(&random.vector(128))];
    let answers = all_agree(snapshot, &probes, &no_skips(3), &[1, 32, 600]);
    assert!(answers[1].probes.iter().all(|ranked| ranked.len() == 32));
}

#[test]
fn a_gallery_of_one_row_and_a_k_beyond_it() {
    let snapshot = snapshot(3, &faces(vec![vec![1.0, 2.0, 2.0]]));
    let answers = all_agree(snapshot, &[unit(&[-1.0, -2.0, -2.0])], &no_skips(1), &[1, 9]);
    assert!((answers[1].probes[0][0].score + 1.0).abs() < 1e-6);
    assert_eq!(answers[1].probes[0].len(), 1);
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_an_engine_is_told() {
    let engine = Engine::start(&settings(Path::new("unused"), &REFERENCE).backend, 1).unwrap();
    let ended = tokio::spawn(engine.ended());
    tokio::task::yield_now().await;
    assert!(!ended.is_finished());
    drop(engine);
    ended.await.unwrap();
}

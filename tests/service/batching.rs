//! Many callers at once: their probes travel together, in slices, and each gets the answer it would have got alone.

use std::path::Path;
use std::sync::Arc;

use lookalike::backend::RowSet;
use lookalike::domain::{Embedding, Matrix};
use lookalike::engine::{Engine, EngineError, ScanAnswer, ScanRequest};
use lookalike::gallery::{GalleryProfile, Snapshot};

use super::support::{CPU, Face, OPENCL, REFERENCE, Random, settings, snapshot_of, unit, until};

/// A gallery; every seventh row is one of the others again, so that there are ties.
fn gallery(name: &str, rows: usize, dim: usize) -> Arc<Snapshot> {
    let mut random = Random::new(rows as u64);
    let mut vectors: Vec<Vec<f32>> = Vec::new();
    for row in 0..rows {
        let vector = if row % 7 == 6 { vectors[random.below(row)].clone() } else { random.vector(dim) };
        vectors.push(vector);
    }
    let face =
        |(row, vector): (usize, Vec<f32>)| Face::new(&format!("p{}", row % 40), &row.to_string(), vector);
    let faces: Vec<Face> = vectors.into_iter().enumerate().map(face).collect();
    Arc::new(snapshot_of(GalleryProfile::named(name, dim), Vec::new(), &faces))
}

fn engine(galleries: &[Arc<Snapshot>], flags: &[&str], queue: usize) -> Engine {
    let engine = Engine::start(&settings(Path::new("unused"), flags).backend, queue).unwrap();
    for snapshot in galleries {
        engine.load(Arc::clone(snapshot), None).unwrap();
    }
    engine
}

fn request(snapshot: &Arc<Snapshot>, probes: usize, k: usize, random: &mut Random) -> ScanRequest {
    let rows = snapshot.rows().len() as u32;
    let dim = snapshot.profile().dim;
    let embeddings: Vec<Embedding> = (0..probes).map(|_| unit(&random.vector(dim))).collect();
    let skip = |random: &mut Random| match random.below(3) {
        0 => RowSet::default(),
        1 => RowSet::from_ranges(vec![(random.below(50) as u32, rows / 2)]),
        _ => RowSet::from_ranges((0..rows / 3).map(|row| (3 * row, 3 * row + 1)).collect()),
    };
    ScanRequest {
        snapshot: Arc::clone(snapshot),
        skips: (0..probes).map(|_| skip(random)).collect(),
        probes: Arc::new(Matrix::from_rows(dim, embeddings.iter().map(Embedding::as_slice))),
        k,
    }
}

fn bits(answer: &ScanAnswer) -> Vec<Vec<(u32, u32)>> {
    let probes = answer.probes.iter();
    probes.map(|ranked| ranked.iter().map(|one| (one.row, one.score.to_bits())).collect()).collect()
}

#[test]
fn every_one_of_many_callers_gets_the_answer_it_would_get_alone() {
    let galleries = [gallery("one", 1500, 24), gallery("other", 700, 130)];
    let mut random = Random::new(5);
    let requests: Vec<ScanRequest> = (0..40)
        .map(|number| {
            let probes = [1, 1, 2, 7, 60][number % 5];
            let k = [1, 5, 32, 300, 2000][random.below(5)];
            request(&galleries[random.below(2)], probes, k, &mut random)
        })
        .collect();
    let reference = engine(&galleries, &REFERENCE, 1);
    let expected: Vec<_> =
        requests.iter().map(|request| bits(&reference.scan_blocking(request.clone()).unwrap())).collect();
    for kind in [&CPU[..], &OPENCL] {
        for batch_probes in ["backend.batch_probes=1", "backend.batch_probes=16", "backend.batch_probes=256"]
        {
            let flags: Vec<&str> = kind.iter().copied().chain([batch_probes]).collect();
            let engine = engine(&galleries, &flags, requests.len());
            let answers: Vec<ScanAnswer> = std::thread::scope(|scope| {
                let scan = |request: &ScanRequest| engine.scan_blocking(request.clone()).unwrap();
                let callers: Vec<_> =
                    requests.iter().map(|request| scope.spawn(move || scan(request))).collect();
                callers.into_iter().map(|caller| caller.join().unwrap()).collect()
            });
            for (number, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
                assert_eq!(bits(answer), *expected, "request {number}, {flags:?}");
                let report = &answer.report;
                assert_eq!((report.bound_violations, report.invalid_indices), (0, 0), "{flags:?}");
                assert!(report.scan_ns > 0 && report.verify_ns > 0, "{report:?}");
                assert!(report.uncertified <= 2 * answer.probes.len() as u64, "{report:?}");
            }
            assert_eq!(engine.waiting(), 0);
        }
    }
}

/// Plain `f64` in small batches: a large request takes hundreds of them.
fn slow(galleries: &[Arc<Snapshot>], queue: usize) -> Arc<Engine> {
    Arc::new(engine(galleries, &[REFERENCE[0], "backend.batch_probes=8"], queue))
}

#[test]
fn a_small_request_passes_a_large_one_in_progress() {
    let galleries = [gallery("one", 1500, 64)];
    let engine = slow(&galleries, 10);
    let mut random = Random::new(6);
    let (large, small) =
        (request(&galleries[0], 4096, 3, &mut random), request(&galleries[0], 1, 3, &mut random));
    std::thread::scope(|scope| {
        let large = scope.spawn(|| engine.scan_blocking(large).unwrap());
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        let started = std::time::Instant::now();
        let answer = engine.scan_blocking(small).unwrap();
        let elapsed_ns = started.elapsed().as_nanos() as u64;
        assert!(!large.is_finished(), "the small one waited for all of the large one");
        let report = answer.report;
        let answer_scan_ns = report.scan_ns;
        assert!(report.queue_ns + report.scan_ns + report.verify_ns <= elapsed_ns, "{report:?}");
        let report = large.join().unwrap().report;
        assert!(report.scan_ns > answer_scan_ns, "512 batches take longer than one: {report:?}");
    });
}

#[test]
fn a_request_scanned_in_part_still_counts_as_waiting() {
    let galleries = [gallery("one", 1500, 64)];
    let engine = slow(&galleries, 1);
    let mut random = Random::new(7);
    let (large, small) =
        (request(&galleries[0], 4096, 3, &mut random), request(&galleries[0], 1, 3, &mut random));
    std::thread::scope(|scope| {
        let large = scope.spawn(|| engine.scan_blocking(large).unwrap());
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        let refused = engine.scan_blocking(small.clone()).unwrap_err();
        assert!(matches!(refused, EngineError::Overloaded { waiting: 1 }), "{refused:?}");
        large.join().unwrap();
    });
    engine.scan_blocking(small).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_request_is_dropped_once_its_caller_has_gone() {
    let galleries = [gallery("one", 1500, 64)];
    let engine = tokio::task::spawn_blocking({
        let galleries = galleries.clone();
        move || slow(&galleries, 10)
    });
    let engine = engine.await.unwrap();
    let mut random = Random::new(8);
    let (large, small) =
        (request(&galleries[0], 40_000, 3, &mut random), request(&galleries[0], 1, 3, &mut random));
    let gone = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.scan(large).await }
    });
    until("the large one waits", async || (engine.waiting() == 1).then_some(())).await;
    engine.scan(small.clone()).await.unwrap();
    assert_eq!(engine.waiting(), 1, "the large one is in progress");
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    engine.scan(small).await.unwrap();
    assert_eq!(engine.waiting(), 0, "what is left of it is not scanned");
}

#[test]
fn a_former_generation_is_scanned_for_those_who_asked_for_it() {
    let generation = |generation: u64, rows: usize| {
        let mut random = Random::new(generation);
        let faces: Vec<Face> =
            (0..rows).map(|row| Face::new("p", &row.to_string(), random.vector(64))).collect();
        let profile = GalleryProfile { generation, ..GalleryProfile::named("one", 64) };
        Arc::new(snapshot_of(profile, Vec::new(), &faces))
    };
    let (former, later) = (generation(1, 1500), generation(2, 900));
    let engine = slow(&[Arc::clone(&former)], 10);
    let mut random = Random::new(9);
    let old = request(&former, 400, 3, &mut random);
    let new = request(&later, 1, 3, &mut random);
    let reference = slow(&[Arc::clone(&former), Arc::clone(&later)], 10);
    let expected = [&old, &new].map(|request| bits(&reference.scan_blocking(request.clone()).unwrap()));
    std::thread::scope(|scope| {
        let scanning = scope.spawn(|| engine.scan_blocking(old.clone()).unwrap());
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        engine.load(Arc::clone(&later), None).unwrap();
        assert_eq!(bits(&engine.scan_blocking(new).unwrap()), expected[1]);
        assert_eq!(bits(&scanning.join().unwrap()), expected[0]);
    });
    // Who still holds the former generation is answered from it.
    assert_eq!(bits(&engine.scan_blocking(old.clone()).unwrap()), expected[0]);
}

#[test]
fn who_asks_for_nothing_gets_it() {
    let galleries = [gallery("one", 20, 8)];
    let engine = engine(&galleries, &CPU, 1);
    let mut random = Random::new(10);
    let nothing = engine.scan_blocking(request(&galleries[0], 0, 3, &mut random)).unwrap();
    assert_eq!(nothing.probes.len(), 0);
    let nothing = engine.scan_blocking(request(&galleries[0], 2, 0, &mut random)).unwrap();
    assert_eq!(nothing.probes, [[], []]);
}

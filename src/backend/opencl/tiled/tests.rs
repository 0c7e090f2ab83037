//! The tiled scan on a real driver, PoCL, against canonical scores. They fail where PoCL is missing.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use super::{NOT_WHOLE, kernels, take};
use crate::backend::opencl::OpenClBackend;
use crate::backend::{Ask, Backend, Candidate, Candidates, Coverage, RowSet, ScreenJob, Screened};
use crate::config::{self, CacheDir, DeviceChoice, OpenClScan, OpenClSettings, Sources};
use crate::domain::{Matrix, canonical_score};

const SCANS: [OpenClScan; 2] = [OpenClScan::Bytes, OpenClScan::Floats];

fn settings(scan: OpenClScan, chunk_rows: usize) -> OpenClSettings {
    OpenClSettings {
        device: DeviceChoice::Named("Portable Computing Language".to_owned()),
        chunk_rows,
        scan,
        cache_dir: CacheDir::Off,
        ..config::load(&Sources::default()).unwrap().backend.opencl
    }
}

fn open(scan: OpenClScan, chunk_rows: usize) -> OpenClBackend {
    open_with(&settings(scan, chunk_rows))
}

fn open_with(settings: &OpenClSettings) -> OpenClBackend {
    OpenClBackend::open(settings)
        .unwrap_or_else(|error| panic!("these tests need PoCL (apt-get install pocl-opencl-icd): {error}"))
}

/// Rows around a common centre; every fifth repeats the one before it, so that there are ties.
fn rows_around(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut matrix = Matrix::with_capacity(rows, dim);
    let mut row = vec![0.0_f32; dim];
    for place in 0..rows {
        if place % 5 != 4 {
            let values: Vec<f64> = (0..dim)
                .map(|i| {
                    let value: f64 = StandardNormal.sample(&mut random);
                    value + if i % 3 == 0 { 1.5 } else { 0.0 }
                })
                .collect();
            let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            row = values.iter().map(|value| (value / norm) as f32).collect();
        }
        matrix.push(&row);
    }
    matrix
}

/// The first k of the rows that are not skipped, and all that equal the last of them; by score, then row.
fn expected(rows: &Matrix, probe: &[f32], ask: Ask<'_>) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = (0..rows.rows() as u32)
        .filter(|row| !ask.skip.contains(*row))
        .map(|row| Candidate { row, raw: canonical_score(probe, rows.row(row as usize)) })
        .collect();
    all.sort_by(|a, b| b.raw.total_cmp(&a.raw).then(a.row.cmp(&b.row)));
    let least = all.get(ask.k - 1).map_or(f32::NEG_INFINITY, |candidate| candidate.raw);
    all.retain(|candidate| candidate.raw >= least);
    all
}

fn check(rows: &Arc<Matrix>, probes: &Matrix, asks: &[Ask<'_>], backend: &mut OpenClBackend, what: &str) {
    let mut loaded = backend.load(rows).unwrap();
    let mut screened = Screened::default();
    loaded.screen(&ScreenJob { probes, asks, attempt: 0 }, &mut screened).unwrap();
    assert_eq!((screened.probes.len(), screened.invalid_indices), (probes.rows(), 0), "{what}");
    let most = asks.iter().map(|ask| ask.k).max().unwrap();
    for (probe, found) in screened.probes.iter().enumerate() {
        assert_eq!((found.coverage, found.bound), (Coverage::Exact, 0.0), "{what}, probe {probe}");
        // One pass serves all: each probe gets as many as the one that wants most.
        let expected = expected(rows, probes.row(probe), Ask { k: most, ..asks[probe] });
        assert_eq!(found.rows, expected, "{what}, probe {probe}");
    }
}

#[test]
fn answers_are_exact_at_many_sizes() {
    let skip = RowSet::default();
    for scan in SCANS {
        let mut backend = open(scan, 0);
        // Rows, probes, dim, k.
        // Probes of one shape and few dims: PoCL takes seconds to compile for each.
        let sizes = [
            (1, 40, 128, 1),
            (7, 61, 1, 32),
            (144, 33, 93, 144),
            (4096, 41, 128, 31),
            (4099, 64, 7, 100),
            (9001, 33, 93, 7),
            (12_007, 48, 7, 512),
        ];
        for (rows, probes, dim, k) in sizes {
            let rows = Arc::new(rows_around(rows, dim, 1));
            let probes = rows_around(probes, dim, 2);
            let asks = vec![Ask { k, skip: &skip }; probes.rows()];
            let what = format!("{scan:?}, {} x {dim}, {} probes, k {k}", rows.rows(), probes.rows());
            check(&rows, &probes, &asks, &mut backend, &what);
        }
    }
}

#[test]
fn few_probes_are_answered_in_every_shape() {
    let skip = RowSet::default();
    let mut backend = open(OpenClScan::Bytes, 0);
    let rows = Arc::new(rows_around(5003, 24, 3));
    for count in [1, 8, 9, 17, 33, 65, 129] {
        let probes = rows_around(count, 24, 4);
        let asks = vec![Ask { k: 12, skip: &skip }; count];
        check(&rows, &probes, &asks, &mut backend, &format!("{count} probes"));
    }
}

#[test]
fn large_dimensions_do_not_stay_in_registers() {
    let skip = RowSet::default();
    let mut backend = open(OpenClScan::Bytes, 0);
    // The first has sums that a float's bits hold, the second has not.
    for dim in [256, 300] {
        let rows = Arc::new(rows_around(4500, dim, 5));
        let probes = rows_around(40, dim, 6);
        let asks = vec![Ask { k: 9, skip: &skip }; probes.rows()];
        check(&rows, &probes, &asks, &mut backend, &format!("dim {dim}"));
    }
}

#[test]
fn skipped_rows_appear_nowhere_and_lower_no_cut() {
    for scan in SCANS {
        let mut backend = open(scan, 0);
        let rows = Arc::new(rows_around(6007, 24, 7));
        let probes = rows_around(50, 24, 8);
        // Each probe leaves out its best rows, and whole ranges.
        let none = RowSet::default();
        let skips: Vec<RowSet> = (0..probes.rows())
            .map(|probe| {
                let best = expected(&rows, probes.row(probe), Ask { k: 60, skip: &none });
                let mut ranges: Vec<_> = best.iter().map(|one| (one.row, one.row + 1)).collect();
                ranges.extend([(0, 100), (3000, 3000 + probe as u32 * 40)]);
                RowSet::from_ranges(if probe % 4 == 0 { Vec::new() } else { ranges })
            })
            .collect();
        let asks: Vec<Ask<'_>> = skips.iter().map(|skip| Ask { k: 20, skip }).collect();
        check(&rows, &probes, &asks, &mut backend, &format!("{scan:?}"));
        let all = RowSet::from_ranges(vec![(0, 6007)]);
        let asks = vec![Ask { k: 20, skip: &all }; 50];
        check(&rows, &probes, &asks, &mut backend, "all skipped");
    }
}

#[test]
fn chunks_are_answered_one_by_one_and_together() {
    for scan in SCANS {
        for chunk_rows in [1, 93, 5000] {
            let rows = Arc::new(rows_around(if chunk_rows == 1 { 37 } else { 9973 }, 24, 9));
            check_chunks(&rows, &mut open(scan, chunk_rows), &format!("{scan:?}, {chunk_rows} rows a chunk"));
        }
    }
}

/// There are no bytes of rows that do not stay on the device.
#[test]
fn rows_that_pass_through_the_device_are_answered_in_floats() {
    let rows = Arc::new(rows_around(9973, 24, 9));
    let memory_limit_bytes = Some(rows.bytes() as u64 / 2);
    for chunk_rows in [0, 2000] {
        let settings = OpenClSettings {
            zero_copy: false,
            memory_limit_bytes,
            ..settings(OpenClScan::Bytes, chunk_rows)
        };
        check_chunks(&rows, &mut open_with(&settings), &format!("{chunk_rows} rows a chunk"));
    }
}

/// Each chunk gives its own first k, and more than k in all.
fn check_chunks(rows: &Arc<Matrix>, backend: &mut OpenClBackend, what: &str) {
    let skip = RowSet::default();
    let probes = rows_around(35, 24, 10);
    let asks = vec![Ask { k: 8, skip: &skip }; 35];
    let mut loaded = backend.load(rows).unwrap();
    let mut screened = Screened::default();
    loaded.screen(&ScreenJob { probes: &probes, asks: &asks, attempt: 0 }, &mut screened).unwrap();
    for (probe, found) in screened.probes.iter_mut().enumerate() {
        assert_eq!(found.coverage, Coverage::Exact, "{what}");
        let expected = expected(rows, probes.row(probe), asks[probe]);
        found.rows.sort_by(|a, b| b.raw.total_cmp(&a.raw).then(a.row.cmp(&b.row)));
        assert_eq!(found.rows[..expected.len()], expected, "{what}");
    }
}

#[test]
fn rows_all_alike_are_left_to_the_other_scan() {
    let skip = RowSet::default();
    for scan in SCANS {
        let mut backend = open(scan, 0);
        let one = rows_around(1, 16, 11);
        let rows = Arc::new(Matrix::from_rows(16, std::iter::repeat_n(one.row(0), kernels::CAPACITY + 4)));
        let probes = rows_around(33, 16, 12);
        let asks = vec![Ask { k: 3, skip: &skip }; 33];
        let mut loaded = backend.load(&rows).unwrap();
        let mut screened = Screened::default();
        let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
        loaded.screen(&job, &mut screened).unwrap();
        assert!(screened.probes.iter().all(|found| found.coverage == Coverage::Unknown), "{scan:?}");
        loaded.screen(&ScreenJob { attempt: 1, ..job }, &mut screened).unwrap();
        assert!(
            screened.probes.iter().all(|found| matches!(found.coverage, Coverage::AtMost(_))),
            "{scan:?}"
        );
    }
}

/// A score that is not negative and a row, as the device writes them.
fn entry(score: f32, row: u32) -> u64 {
    u64::from(score.to_bits() | 0x8000_0000) << 32 | u64::from(!row)
}

#[test]
fn what_a_device_gets_wrong_is_not_believed() {
    let skip = RowSet::from_ranges(vec![(7, 8)]);
    let sound = [2, entry(0.9, 3), entry(0.5, 4), 0];
    let mut found = Candidates::default();
    assert_eq!(take(&sound, &skip, (&(0..10), 0), &mut found), 0);
    let rows = vec![Candidate { row: 3, raw: 0.9 }, Candidate { row: 4, raw: 0.5 }];
    assert_eq!((&found.rows, found.coverage), (&rows, Coverage::Exact));
    // What one chunk could not prove, the next one does not make good.
    assert_eq!(take(&[NOT_WHOLE, 0], &skip, (&(10..20), 1), &mut found), 0);
    assert_eq!(take(&[1, entry(0.4, 12)], &skip, (&(10..20), 1), &mut found), 0);
    assert_eq!((found.rows.len(), found.coverage), (3, Coverage::Unknown));

    let faults: [(&str, &[u64], u64); 6] = [
        ("more than there is room for", &[4, entry(0.9, 3), entry(0.5, 4), 0], 0),
        ("a row that does not exist", &[2, entry(0.9, 3), entry(0.5, 10)], 1),
        ("a skipped row", &[2, entry(0.9, 7), entry(0.5, 4)], 0),
        ("a row twice", &[2, entry(0.9, 3), entry(0.9, 3)], 0),
        ("out of order", &[2, entry(0.5, 4), entry(0.9, 3)], 0),
        ("not a number", &[1, entry(f32::NAN, 3)], 0),
    ];
    for (fault, answer, invalid) in faults {
        let mut found = Candidates::default();
        assert_eq!(take(answer, &skip, (&(0..10), 0), &mut found), invalid, "{fault}");
        assert_eq!((found.rows.len(), found.coverage), (0, Coverage::Unknown), "{fault}");
    }
}

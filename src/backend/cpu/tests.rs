//! What the trait promises of a screen, for every kernel that this processor can run.

mod outline;

use std::sync::Arc;

use proptest::prelude::*;

use super::kernel::Kernel;
use super::quantized::QuantizedRows;
use super::*;
use crate::backend::{Ask, Coverage, RowSet};
use crate::domain::{Embedding, NormPolicy, canonical_score};

/// How the rows of a test lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lie {
    /// All over the sphere.
    Everywhere,
    /// Around one point, as some models have it.
    Crowded,
    /// Few different rows, each many times.
    Tied,
    /// All the same row.
    Equal,
    /// The same but for about 1e-7.
    AllButEqual,
    /// One component far larger than the others, which may be denormal.
    Spiky,
    /// Mostly zeros.
    Sparse,
    /// Near a plane of a few dimensions, and many of them near each other, as embeddings of faces do.
    Flat,
    /// Along one line, on which some lie twice.
    Line,
}

pub(super) const LIES: [Lie; 9] = [
    Lie::Everywhere,
    Lie::Crowded,
    Lie::Tied,
    Lie::Equal,
    Lie::AllButEqual,
    Lie::Spiky,
    Lie::Sparse,
    Lie::Flat,
    Lie::Line,
];

/// Numbers between -1 and 1.
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

pub(super) fn vector(lie: Lie, dim: usize, row: u64, seed: u64) -> Vec<f32> {
    let mut noise = noise(seed ^ (row << 20));
    let component = |component: usize| match lie {
        Lie::Everywhere => noise(),
        Lie::Crowded => 1.0 + 0.3 * noise(),
        Lie::Tied => ((row % 5 + 1) as f32 * (component as f32 + 0.3)).sin(),
        Lie::Equal => (component as f32 + 0.3).sin(),
        Lie::AllButEqual => (component as f32 + 0.3).sin() + 1e-7 * noise(),
        Lie::Spiky => {
            if component as u64 == row % dim as u64 {
                1.0
            } else {
                noise() * [1e-41, 1e-20, 1e-3][(row % 3) as usize]
            }
        }
        Lie::Sparse => {
            if noise() > 0.9 {
                noise()
            } else {
                0.0
            }
        }
        Lie::Flat => {
            let mut along = self::noise(row % 389);
            let axis = |axis: u64| ((axis + 1) as f32 * 0.7 * (component as f32 + 0.3)).sin();
            (0..12).map(|a| along() * axis(a)).sum::<f32>() + 0.1 * noise()
        }
        Lie::Line => (component as f32 + 0.3).sin() + (row % 89) as f32 / 40.0 * (component as f32).cos(),
    };
    let mut values: Vec<f32> = (0..dim).map(component).collect();
    if values.iter().all(|value| *value == 0.0) {
        values[0] = 1.0;
    }
    values
}

pub(super) fn matrix(dim: usize, vectors: impl Iterator<Item = Vec<f32>>) -> Matrix {
    let embeddings: Vec<Embedding> =
        vectors.map(|values| Embedding::parse(values, dim, NormPolicy::Normalise).unwrap()).collect();
    Matrix::from_rows(dim, embeddings.iter().map(Embedding::as_slice))
}

fn backend(instructions: Instructions, threads: usize) -> CpuBackend {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    CpuBackend::new(pool, &CpuSettings { threads, instructions: Some(instructions) }).unwrap()
}

/// Candidates are distinct rows that are not skipped, raw scores lie within the bound, and what was left out scores no more than stated.
fn check(rows: &Matrix, job: &ScreenJob<'_>, screened: &Screened) {
    assert_eq!(screened.probes.len(), job.probes.rows());
    for (probe, found) in screened.probes.iter().enumerate() {
        let ask = job.asks[probe];
        let mut left: Vec<bool> = (0..rows.rows()).map(|row| !ask.skip.contains(row as u32)).collect();
        let eligible = left.iter().filter(|left| **left).count();
        for candidate in &found.rows {
            let row = candidate.row as usize;
            assert!(std::mem::take(&mut left[row]), "row {row} twice or though skipped");
            let real = canonical_score(job.probes.row(probe), rows.row(row));
            assert!(
                (real - candidate.raw).abs() <= found.bound + 1e-7,
                "{real} {candidate:?} {}",
                found.bound
            );
        }
        let best_left = left
            .iter()
            .enumerate()
            .filter(|(_, left)| **left)
            .map(|(row, _)| canonical_score(job.probes.row(probe), rows.row(row)))
            .fold(f32::NEG_INFINITY, f32::max);
        match found.coverage {
            Coverage::All => assert!(best_left.is_infinite()),
            Coverage::AtMost(ceiling) => {
                assert!(best_left <= ceiling && found.rows.len() >= ask.k.min(eligible));
                // What the engine will ask for the certificate: never a second scan.
                let mut scores: Vec<f32> = found
                    .rows
                    .iter()
                    .map(|c| canonical_score(job.probes.row(probe), rows.row(c.row as usize)))
                    .collect();
                scores.sort_by(|a, b| b.total_cmp(a));
                assert!(ceiling < scores[ask.k - 1]);
            }
            Coverage::Exact | Coverage::Unknown => panic!("{:?}", found.coverage),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn screens_keep_the_promises_of_the_trait(
        rows in 1_usize..900,
        dim in 1_usize..600,
        probes in 1_usize..20,
        k in 1_usize..40,
        lies in (0..LIES.len(), 0..LIES.len()),
        seed in 0_u64..1_000_000,
        threads in 1_usize..3,
    ) {
        let (row_lie, probe_lie) = (LIES[lies.0], LIES[lies.1]);
        let rows = Arc::new(matrix(dim, (0..rows as u64).map(|row| vector(row_lie, dim, row, seed))));
        let probes = matrix(dim, (0..probes as u64).map(|p| vector(if p % 2 == 0 { row_lie } else { probe_lie }, dim, p, seed + p % 3)));
        let skips = [RowSet::default(), RowSet::from_ranges(vec![(2, 4), (50, 300)])];
        // Ks of one job differ, so that some are scanned in bytes and others not.
        let asks: Vec<Ask<'_>> =
            (0..probes.rows()).map(|p| Ask { k: if p % 5 == 4 { 20 * k } else { k }, skip: &skips[p % 2] }).collect();
        for kernel in Kernel::present() {
            let mut loaded = backend(kernel.instructions, threads).load(&rows).unwrap();
            let mut screened = Screened::default();
            for attempt in [0, 0, 1] {
                let job = ScreenJob { probes: &probes, asks: &asks, attempt };
                loaded.screen(&job, &mut screened).unwrap();
                check(&rows, &job, &screened);
            }
        }
    }
}

/// Many rows, so that all threads take part, and rows wait for their chunk.
#[test]
fn threads_share_a_scan_and_bytes_suffice() {
    let dim = 96;
    let rows = Arc::new(matrix(dim, (0..20_000).map(|row| vector(Lie::Everywhere, dim, row, 7))));
    let skip = RowSet::from_ranges(vec![(2, 4), (500, 700)]);
    for kernel in Kernel::present() {
        for (probes, threads) in [(1, 2), (7, 2), (64, 1), (64, 3)] {
            let probes = matrix(dim, (0..probes).map(|p| vector(Lie::Everywhere, dim, 31 * p, 7)));
            let asks = vec![Ask { k: 10, skip: &skip }; probes.rows()];
            let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
            let mut screened = Screened::default();
            backend(kernel.instructions, threads).load(&rows).unwrap().screen(&job, &mut screened).unwrap();
            check(&rows, &job, &screened);
            for found in &screened.probes {
                assert!(found.bound > 1e-4, "scanned in f32");
                assert!(found.rows.len() < 400, "{} rows kept", found.rows.len());
            }
        }
    }
}

#[test]
fn where_bytes_cannot_tell_rows_apart_f32_answers() {
    let dim = 64;
    let rows = Arc::new(matrix(dim, (0..60_000).map(|row| vector(Lie::Equal, dim, row, 1))));
    let probes = matrix(dim, (0..3).map(|p| vector(Lie::Everywhere, dim, p, 2)));
    let skip = RowSet::default();
    let asks = vec![Ask { k: 5, skip: &skip }; 3];
    let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
    for kernel in Kernel::present() {
        let mut loaded = backend(kernel.instructions, 2).load(&rows).unwrap();
        let mut screened = Screened::default();
        for _ in 0..2 {
            loaded.screen(&job, &mut screened).unwrap();
            for found in &screened.probes {
                assert!(found.bound < 1e-5, "scanned in bytes");
                assert_eq!(found.rows.len(), 60_000, "all rows tie");
            }
        }
    }
}

#[test]
fn instructions_that_are_not_there_are_refused_by_name() {
    let missing = Instructions::ALL
        .into_iter()
        .find(|wanted| Kernel::present().all(|kernel| kernel.instructions != *wanted))
        .expect("no processor has the instructions of two architectures");
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let error = CpuBackend::new(pool, &CpuSettings { threads: 1, instructions: Some(missing) }).unwrap_err();
    assert!(error.to_string().ends_with(&format!("portable, got {}", missing.as_str())), "{error}");
}

#[test]
fn of_itself_no_processor_takes_the_portable_kernel() {
    let chosen = kernel(None).unwrap().map(|kernel| kernel.instructions);
    assert_ne!(chosen, Some(Instructions::Portable));
    assert_eq!(chosen.is_some(), Kernel::present().count() > 1);
}

/// As on a processor for which there is no kernel but the portable one.
#[test]
fn without_quantised_rows_everything_is_scanned_in_f32() {
    let dim = 70;
    let rows = Arc::new(matrix(dim, (0..3000).map(|row| vector(Lie::Crowded, dim, row, 5))));
    let probes = matrix(dim, (0..9).map(|p| vector(Lie::Crowded, dim, p, 5)));
    let skip = RowSet::default();
    let asks = vec![Ask { k: 7, skip: &skip }; 9];
    let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
    let mut backend = backend(Instructions::Portable, 2);
    backend.kernel = None;
    let mut screened = Screened::default();
    backend.load(&rows).unwrap().screen(&job, &mut screened).unwrap();
    check(&rows, &job, &screened);
    assert!(screened.probes.iter().all(|found| found.bound < 1e-5));
}

#[test]
fn quantised_rows_take_less_than_a_third_of_the_rows() {
    let dim = 128;
    let rows = matrix(dim, (0..1600).map(|row| vector(Lie::Everywhere, dim, row, 3)));
    for kernel in Kernel::present() {
        let bytes = QuantizedRows::new(&rows, kernel).bytes();
        assert!(bytes * 10 < rows.bytes() * 3, "{bytes}");
        // A byte a component, three numbers in two a row, the mean.
        assert_eq!(bytes, 1600 * (128 + 8) + 128 * 4);
    }
}

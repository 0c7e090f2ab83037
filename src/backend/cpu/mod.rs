//! The CPU backend: dot products in `f32` by a matrix crate, block by block, and a choice of candidates that is right by
//! construction.
//!
//! Rows are parted over the threads; a thread multiplies a block of rows with a tile of probes, so that both stay in its cache, and
//! keeps of each probe's scores those that may still reach the first k (see [`select`]). Which thread saw which row changes nothing:
//! the candidates always hold every row within twice the error bound of the k-th place.

pub mod peak;
mod scan;
mod select;

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPool;

use super::{Backend, BackendError, Description, Loaded, ScreenJob, ScreenTiming, Screened};
use crate::domain::Matrix;
use crate::telemetry::BackendName;

/// The CPU backend.
#[derive(Debug)]
pub struct CpuBackend {
    description: Description,
    pool: Arc<ThreadPool>,
}

impl CpuBackend {
    /// Scans on the threads of `pool`.
    pub fn new(pool: Arc<ThreadPool>) -> Self {
        let description = Description {
            backend: BackendName::Cpu,
            device: processor_name(),
            driver: format!("f32 {}", instruction_set()),
        };
        Self { description, pool }
    }
}

impl Backend for CpuBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        Ok(Box::new(CpuRows { rows: Arc::clone(rows), pool: Arc::clone(&self.pool) }))
    }
}

struct CpuRows {
    rows: Arc<Matrix>,
    pool: Arc<ThreadPool>,
}

impl Loaded for CpuRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        let bound = error_bound(self.rows.dim());
        let started = Instant::now();
        let partial = self.pool.install(|| scan::scan(&self.rows, job, bound));
        let scanned = Instant::now();
        into.begin(job.probes.rows());
        self.pool.install(|| scan::merge(partial, &mut into.probes));
        into.timing = ScreenTiming {
            scan_ns: (scanned - started).as_nanos() as u64,
            host_merge_ns: scanned.elapsed().as_nanos() as u64,
            ..ScreenTiming::default()
        };
        Ok(())
    }
}

/// How far an `f32` dot product of two embeddings may lie from the real one, in whatever order it is summed, fused or not.
///
/// Each of at most `dim` roundings on a term's way errs by `u = 2^-24`, so the sum by `g = dim u / (1 - dim u)` of the sum of
/// absolute products (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1), which Cauchy and Schwarz bound by
/// the norms, each at most 1 + 1e-5. Products below the normal range add at most `dim * 2^-126`.
fn error_bound(dim: usize) -> f32 {
    let dim = dim as f64;
    let roundoff = dim * 2.0_f64.powi(-24);
    let bound = roundoff / (1.0 - roundoff) * (1.0 + 1e-5_f64).powi(2) + dim * 2.0_f64.powi(-126);
    (bound as f32).next_up()
}

/// The processor's name as the operating system gives it, else its architecture.
pub fn processor_name() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    told.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The instructions that the matrix crate finds on this processor.
fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "avx512f";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "avx2+fma";
        }
    }
    if cfg!(target_arch = "aarch64") { "neon" } else { "portable" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ask, Coverage, RowSet};
    use crate::domain::{Embedding, NormPolicy, canonical_score};

    fn wave(row: usize, dim: usize) -> Embedding {
        let values = (0..dim).map(|i| ((row * 31 + i * 7) as f32 * 0.61 + 0.5).sin()).collect();
        Embedding::parse(values, dim, NormPolicy::Normalise).unwrap()
    }

    fn screen(rows: usize, dim: usize, job: (usize, usize, usize)) -> (Arc<Matrix>, Matrix, Screened) {
        let (probe_count, k, threads) = job;
        let rows: Vec<Embedding> = (0..rows).map(|row| wave(row, dim)).collect();
        let matrix = Arc::new(Matrix::from_rows(dim, rows.iter().map(Embedding::as_slice)));
        let probes: Vec<Embedding> = (0..probe_count).map(|probe| wave(probe * 3 + 1, dim)).collect();
        let probes = Matrix::from_rows(dim, probes.iter().map(Embedding::as_slice));
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
        let skip = RowSet::from_ranges(vec![(2, 4), (500, 700)]);
        let asks = vec![Ask { k, skip: &skip }; probe_count];
        let mut loaded = CpuBackend::new(pool).load(&matrix).unwrap();
        let mut screened = Screened::default();
        loaded.screen(&ScreenJob { probes: &probes, asks: &asks, attempt: 0 }, &mut screened).unwrap();
        (matrix, probes, screened)
    }

    /// What the trait promises: raw scores within the bound, skipped rows nowhere, everything else accounted for.
    #[test]
    fn candidates_keep_the_promises_of_the_trait() {
        let shapes = [(1, 1, 1), (7, 3, 2), (1500, 128, 5), (5000, 96, 100), (3000, 513, 4000)];
        for (rows, dim, k) in shapes {
            for (probe_count, threads) in [(1, 1), (7, 2), (300, 2)] {
                let (matrix, probes, screened) = screen(rows, dim, (probe_count, k, threads));
                for (probe, found) in screened.probes.iter().enumerate() {
                    let mut left: Vec<bool> =
                        (0..rows).map(|r| !(2..4).contains(&r) && !(500..700).contains(&r)).collect();
                    for candidate in &found.rows {
                        let row = candidate.row as usize;
                        assert!(std::mem::take(&mut left[row]), "row {row} twice or though skipped");
                        let real = canonical_score(probes.row(probe), matrix.row(row));
                        assert!((real - candidate.raw).abs() <= found.bound + 1e-7);
                    }
                    let best_left = left
                        .iter()
                        .enumerate()
                        .filter(|(_, left)| **left)
                        .map(|(row, _)| canonical_score(probes.row(probe), matrix.row(row)))
                        .fold(f32::NEG_INFINITY, f32::max);
                    match found.coverage {
                        Coverage::All => assert!(best_left.is_infinite()),
                        Coverage::AtMost(floor) => {
                            assert!(found.rows.len() >= k && best_left <= floor + 1e-7);
                        }
                        Coverage::Exact | Coverage::Unknown => panic!("{:?}", found.coverage),
                    }
                }
            }
        }
    }

    #[test]
    fn the_bound_grows_with_the_dimension_and_covers_half_an_ulp() {
        assert!(error_bound(1) >= 2.0_f32.powi(-24));
        assert!(error_bound(128) > 7.6e-6 && error_bound(128) < 7.7e-6);
        assert!(error_bound(4096) < 2.5e-4);
    }
}

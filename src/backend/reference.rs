//! The plain `f64` backend: every row's canonical score, sorted. Slow, simple, and what the others are compared with.
//!
//! It shares no code with them: scores are summed here as their definition words it, and ranked by sorting all of them.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::{Backend, BackendError, Candidate, Coverage, Description, Loaded, ScreenJob, Screened};
use crate::domain::Matrix;
use crate::telemetry::BackendName;

/// The plain `f64` backend.
#[derive(Debug)]
pub struct ReferenceBackend {
    description: Description,
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        Self {
            description: Description {
                backend: BackendName::Reference,
                device: super::cpu::processor_name(),
                driver: "plain f64".to_owned(),
            },
        }
    }
}

impl Backend for ReferenceBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        Ok(Box::new(ReferenceRows { rows: Arc::clone(rows) }))
    }
}

struct ReferenceRows {
    rows: Arc<Matrix>,
}

impl Loaded for ReferenceRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        let started = Instant::now();
        into.begin(job.probes.rows());
        for (probe, (ask, found)) in job.asks.iter().zip(&mut into.probes).enumerate() {
            let rows = (0..self.rows.rows()).filter(|row| !ask.skip.contains(*row as u32));
            found.rows.extend(rows.map(|row| Candidate {
                row: row as u32,
                raw: score(job.probes.row(probe), self.rows.row(row)),
            }));
            found.rows.sort_by(|a, b| b.raw.partial_cmp(&a.raw).unwrap_or(Ordering::Equal));
            found.coverage = first_places(&mut found.rows, ask.k);
        }
        into.timing.scan_ns = started.elapsed().as_nanos() as u64;
        Ok(())
    }
}

/// Cuts scores sorted descending to the first `k` places and whatever ties with the last of them.
///
/// Ties are ranked by prototype index, which a backend does not know; so all of them are kept.
fn first_places(scored: &mut Vec<Candidate>, k: usize) -> Coverage {
    let Some(last) = scored.get(k.saturating_sub(1)).map(|candidate| candidate.raw) else {
        return Coverage::All;
    };
    scored.truncate(scored.partition_point(|candidate| candidate.raw >= last));
    Coverage::Exact
}

/// The canonical score, in the words of its definition: component `i` goes to lane `i mod 8`.
fn score(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f64; 8];
    for i in 0..a.len() {
        lanes[i % 8] += f64::from(a[i]) * f64::from(b[i]);
    }
    let pairs = [lanes[0] + lanes[1], lanes[2] + lanes[3], lanes[4] + lanes[5], lanes[6] + lanes[7]];
    let sum = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
    sum as f32 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ask, RowSet};
    use crate::domain::canonical_score;

    #[test]
    fn ties_with_the_last_place_are_kept_and_skipped_rows_are_not() {
        let rows = Arc::new(Matrix::from_rows(2, [&[1.0, 0.0][..], &[0.0, 1.0], &[1.0, 0.0], &[0.6, 0.8]]));
        let probes = Matrix::from_rows(2, [&[1.0, 0.0][..], &[1.0, 0.0]]);
        let (none, third) = (RowSet::default(), RowSet::from_ranges(vec![(2, 3)]));
        let mut loaded = ReferenceBackend::default().load(&rows).unwrap();
        let mut found = Screened::default();
        let asks = [Ask { k: 1, skip: &none }, Ask { k: 1, skip: &third }];
        loaded.screen(&ScreenJob { probes: &probes, asks: &asks, attempt: 0 }, &mut found).unwrap();
        let places = |probe: usize| found.probes[probe].rows.iter().map(|c| c.row).collect::<Vec<_>>();
        assert_eq!((places(0), places(1)), (vec![0, 2], vec![0]));
        let asks = [Ask { k: 9, skip: &none }, Ask { k: 2, skip: &third }];
        loaded.screen(&ScreenJob { probes: &probes, asks: &asks, attempt: 0 }, &mut found).unwrap();
        assert_eq!((found.probes[0].rows.len(), found.probes[0].coverage), (4, Coverage::All));
        assert_eq!((found.probes[1].rows.len(), found.probes[1].coverage), (2, Coverage::Exact));
    }

    #[test]
    fn both_wordings_of_the_canonical_score_give_the_same_bits() {
        for dim in [1, 7, 8, 9, 128, 515] {
            let a: Vec<f32> = (0..dim).map(|i| (i as f32 * 0.37).sin()).collect();
            let b: Vec<f32> = (0..dim).map(|i| (i as f32 * 0.11).cos() * 1e-3).collect();
            assert_eq!(score(&a, &b).to_bits(), canonical_score(&a, &b).to_bits(), "dim {dim}");
        }
    }
}

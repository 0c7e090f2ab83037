//! Whether a device computes rightly: known rows and probes, answers that the host computed in `f64`, every way to choose.
//!
//! Rows come in several chunks, so that lists are merged; every fifth repeats the one before it, so that scores tie. A device that
//! fails any part must not serve: the engine would find out, but only what it happens to look at.

use std::sync::Arc;

use crate::backend::{Ask, Backend, BackendError, Candidates, Coverage, RowSet, ScreenJob, Screened};
use crate::domain::Matrix;

/// Rows of a chunk that make several chunks here.
const CHUNK_ROWS: usize = 250;

/// The usual dimension: kernels that are compiled here serve such galleries too.
const DIM: usize = 128;

const ROWS: usize = 901;

/// A bound beyond this would let anything pass: scores lie between -1 and 1.
const MAX_BOUND: f32 = 0.1;

/// What rounding a score near 1 to `f32` may add, where the bound is that of a score not rounded.
const ROUNDING: f64 = 6.1e-8;

/// One part of the test.
struct Part {
    name: &'static str,
    rows: usize,
    probes: usize,
    k: usize,
    skips: Skips,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Skips {
    None,
    /// Every probe leaves out others, one all rows.
    Some,
}

const PARTS: [Part; 11] = [
    Part { name: "one row", rows: 1, probes: 1, k: 1, skips: Skips::None },
    Part { name: "fewer rows than k, lists of 8", rows: 7, probes: 4, k: 20, skips: Skips::None },
    Part { name: "lists of 16", rows: ROWS, probes: 4, k: 5, skips: Skips::None },
    Part { name: "lists of 32", rows: ROWS, probes: 4, k: 20, skips: Skips::None },
    Part { name: "lists of 64", rows: ROWS, probes: 4, k: 40, skips: Skips::None },
    Part { name: "lists of 128", rows: ROWS, probes: 4, k: 90, skips: Skips::None },
    Part { name: "lists of 256", rows: ROWS, probes: 4, k: 200, skips: Skips::None },
    Part { name: "all scores", rows: ROWS, probes: 4, k: 300, skips: Skips::None },
    Part { name: "rows left out of lists", rows: ROWS, probes: 4, k: 5, skips: Skips::Some },
    Part { name: "rows left out of all scores", rows: ROWS, probes: 4, k: 300, skips: Skips::Some },
    Part { name: "many probes", rows: ROWS, probes: 67, k: 5, skips: Skips::Some },
];

/// Parts of so many rows in one chunk that a sample of them is scored first.
const SAMPLED_PARTS: [Part; 3] = [
    Part { name: "a sample, one probe", rows: 5003, probes: 1, k: 5, skips: Skips::None },
    Part { name: "a sample, rows left out", rows: 5003, probes: 12, k: 5, skips: Skips::Some },
    Part { name: "a sample, many probes", rows: 5003, probes: 67, k: 40, skips: Skips::None },
];

/// Runs every part on a backend for so many rows a chunk; the `Err` names the one that failed and says why.
pub(super) fn run<B: Backend>(open: impl Fn(usize) -> Result<B, BackendError>) -> Result<(), String> {
    for (chunk_rows, parts) in [(CHUNK_ROWS, &PARTS[..]), (0, &SAMPLED_PARTS)] {
        let mut backend = open(chunk_rows).map_err(|error| error.to_string())?;
        for part in parts {
            part.run(&mut backend).map_err(|reason| format!("{}: {reason}", part.name))?;
        }
    }
    Ok(())
}

impl Part {
    fn run(&self, backend: &mut dyn Backend) -> Result<(), String> {
        let rows = Arc::new(vectors(self.rows, 1));
        let probes = vectors(self.probes, 1 << 32);
        let skips: Vec<RowSet> = (0..self.probes).map(|probe| self.skip(probe)).collect();
        let asks: Vec<Ask<'_>> = skips.iter().map(|skip| Ask { k: self.k, skip }).collect();
        let mut loaded = backend.load(&rows).map_err(|error| error.to_string())?;
        let mut screened = Screened::default();
        let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
        loaded.screen(&job, &mut screened).map_err(|error| error.to_string())?;
        if screened.invalid_indices > 0 {
            return Err(format!("{} row numbers that do not exist", screened.invalid_indices));
        }
        if screened.probes.len() != self.probes {
            return Err(format!("answers for {} of {} probes", screened.probes.len(), self.probes));
        }
        for (place, (found, ask)) in screened.probes.iter().zip(&asks).enumerate() {
            let truth: Vec<f64> = (0..self.rows).map(|row| exact(probes.row(place), rows.row(row))).collect();
            check(found, &truth, *ask).map_err(|reason| format!("probe {place}: {reason}"))?;
        }
        Ok(())
    }

    fn skip(&self, probe: usize) -> RowSet {
        let (rows, probe) = (self.rows as u32, probe as u32);
        RowSet::from_ranges(match (self.skips, probe % 4) {
            (Skips::None, _) | (Skips::Some, 0) => Vec::new(),
            (Skips::Some, 1) => vec![(probe, rows.min(probe + 300))],
            (Skips::Some, 2) => {
                (0..rows).step_by(7).map(|row| (row, rows.min(row + 1 + probe % 5))).collect()
            }
            (Skips::Some, _) => vec![(0, rows)],
        })
    }
}

/// What every answer must keep: raw scores within the bound, distinct rows that may be there, the best among them, and a coverage
/// that is true.
fn check(found: &Candidates, truth: &[f64], Ask { k, skip }: Ask<'_>) -> Result<(), String> {
    let bound = found.bound;
    // Not a number is no bound.
    if !(0.0..=MAX_BOUND).contains(&bound) {
        return Err(format!("an error bound of {bound}"));
    }
    let mut listed = vec![false; truth.len()];
    for candidate in &found.rows {
        let row = candidate.row as usize;
        let Some(seen) = listed.get_mut(row) else { return Err(format!("row {row} does not exist")) };
        if std::mem::replace(seen, true) {
            return Err(format!("row {row} twice"));
        }
        if skip.contains(candidate.row) {
            return Err(format!("row {row} was to be left out"));
        }
        let error = (f64::from(candidate.raw) - truth[row]).abs();
        // Not a number is no small error.
        if !(0.0..=f64::from(bound) + ROUNDING).contains(&error) {
            return Err(format!("the score of row {row} is off by {error:e}, its bound is {bound:e}"));
        }
    }
    let eligible = truth.len() - skip.len();
    if found.rows.len() < k.min(eligible) {
        return Err(format!("{} rows of {}", found.rows.len(), k.min(eligible)));
    }
    let left_out = truth.iter().enumerate().filter(|(row, _)| !listed[*row] && !skip.contains(*row as u32));
    let best_left = left_out.map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
    let promised = match found.coverage {
        Coverage::All => f64::NEG_INFINITY,
        Coverage::AtMost(most) => f64::from(most),
        // Nothing beyond what is asked of every answer below.
        Coverage::Exact => f64::INFINITY,
        Coverage::Unknown => return Err("the scan proved nothing".to_owned()),
    };
    if best_left > promised {
        return Err(format!("a row left out scores {best_left}, promised were at most {promised}"));
    }
    // A promise that rules nothing out would make every scan widen.
    let mut scores: Vec<f64> = found.rows.iter().map(|row| truth[row.row as usize]).collect();
    scores.sort_unstable_by(|a, b| b.total_cmp(a));
    match scores.get(k.wrapping_sub(1)) {
        Some(kth) if best_left > *kth => Err(format!("a row left out scores {best_left}, the last in {kth}")),
        Some(_) | None => Ok(()),
    }
}

fn exact(probe: &[f32], row: &[f32]) -> f64 {
    probe.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Unit vectors with no pattern that a fault could hide in; every fifth repeats the one before it.
fn vectors(count: usize, seed: u64) -> Matrix {
    let mut matrix = Matrix::with_capacity(count, DIM);
    let mut state = seed;
    let mut row = vec![0.0_f32; DIM];
    for place in 0..count {
        if place % 5 != 4 {
            let values: Vec<f64> = (0..DIM).map(|_| uniform(&mut state)).collect();
            let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            row = values.iter().map(|value| (value / norm) as f32).collect();
        }
        matrix.push(&row);
    }
    matrix
}

/// The next number of a fixed sequence between -1 and 1 (splitmix64).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests;

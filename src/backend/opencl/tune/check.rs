//! What a variant answered against the real dot products.

use crate::backend::opencl::lanes::Found;
use crate::backend::{Ask, Candidates, Coverage};
use crate::domain::Matrix;

/// The real dot product of a probe with every row, in `f64`.
pub(in crate::backend::opencl) fn exact_scores(probe: &[f32], rows: &Matrix) -> Vec<f64> {
    let exact = |row: &[f32]| probe.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    (0..rows.rows()).map(|row| exact(rows.row(row))).collect()
}

/// How answers were made.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::opencl) struct Made {
    /// How far a raw score may be off.
    pub(in crate::backend::opencl) bound: f32,
    /// Rows of a list.
    pub(in crate::backend::opencl) list: usize,
    /// Rows of a chunk.
    pub(in crate::backend::opencl) chunk_rows: usize,
}

/// Whether what a stage found for a probe is right, given the real scores of all rows; the `Err` says what is not.
pub(in crate::backend::opencl) fn check(
    found: &Found,
    exact: &[f64],
    ask: Ask<'_>,
    made: Made,
) -> Result<(), String> {
    let Made { bound, list, chunk_rows } = made;
    let bound = f64::from(bound);
    let near = |what: &str, got: f64, expected: f64, within: f64| {
        if (got - expected).abs() <= within {
            Ok(())
        } else {
            Err(format!("{what} {got}, expected {expected} within {within:e}"))
        }
    };
    match found {
        Found::Sum(sum) => {
            // Sums of so many scores on the device round, too.
            let rounding = exact.len() as f64
                * f64::from(f32::EPSILON)
                * exact.iter().map(|score| score.abs()).sum::<f64>();
            near("the sum is", *sum, exact.iter().sum(), exact.len() as f64 * bound + rounding)
        }
        Found::Highest(highest) => {
            near("the highest is", f64::from(*highest), exact.iter().copied().fold(f64::MIN, f64::max), bound)
        }
        Found::Scores(chunks) => {
            for (chunk, found) in exact.chunks(chunk_rows).zip(chunks) {
                let mut best = chunk.to_vec();
                best.sort_by(|a, b| b.total_cmp(a));
                best.truncate(list);
                if found.len() != best.len() {
                    return Err(format!("{} scores, expected {}", found.len(), best.len()));
                }
                for (got, expected) in found.iter().zip(best) {
                    near("a score is", f64::from(*got), expected, bound)?;
                }
            }
            Ok(())
        }
        Found::Candidates(found) => check_candidates(found, exact, ask),
    }
}

/// Whether candidates keep all that is promised of them: raw scores within the bound, distinct rows of which none is skipped, and a
/// coverage that is true.
pub(in crate::backend::opencl) fn check_candidates(
    found: &Candidates,
    exact: &[f64],
    ask: Ask<'_>,
) -> Result<(), String> {
    let Ask { k, skip } = ask;
    let mut listed = vec![false; exact.len()];
    for candidate in &found.rows {
        let row = candidate.row as usize;
        if row >= exact.len() || skip.contains(candidate.row) {
            return Err(format!("row {row} does not exist or is skipped"));
        }
        if std::mem::replace(&mut listed[row], true) {
            return Err(format!("row {row} twice"));
        }
        let error = (f64::from(candidate.raw) - exact[row]).abs();
        if error > f64::from(found.bound) || error.is_nan() {
            return Err(format!(
                "row {row} scores {}, expected {} within {:e}",
                candidate.raw, exact[row], found.bound
            ));
        }
    }
    let left_out = || (0..exact.len()).filter(|row| !listed[*row] && !skip.contains(*row as u32));
    let eligible = exact.len() - skip.len();
    if found.rows.len() < k.min(eligible) {
        return Err(format!("{} of {eligible} rows for k {k}", found.rows.len()));
    }
    match found.coverage {
        Coverage::All => match left_out().next() {
            None => Ok(()),
            Some(row) => Err(format!("row {row} is left out, though all should be there")),
        },
        Coverage::AtMost(highest) => match left_out().find(|row| exact[*row] > f64::from(highest)) {
            None if left_out().next().is_none() => Err("all rows are there, but that is not said".to_owned()),
            None => Ok(()),
            Some(row) => Err(format!("row {row}, left out, scores {}, above {highest}", exact[row])),
        },
        coverage @ (Coverage::Exact | Coverage::Unknown) => Err(format!("coverage {coverage:?}")),
    }
}

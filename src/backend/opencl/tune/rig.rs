//! Runs one variant: first whether it is right, on few rows, then how fast it is, on many.
//!
//! Few rows are compared with `f64` for every probe, rows to skip and several chunks among them; of the many, a few probes are.
//! Nothing is run twice, and nothing is begun after the deadline.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::opencl::lanes::{MAX_QUERY_COUNT, Measured, Stage, Trial, measure};
use crate::backend::opencl::loaded::Engine;
use crate::backend::opencl::rows::{Budget, Placement, Rows};
use crate::backend::{Ask, BackendError, RowSet};
use crate::domain::Matrix;

use super::check::{Made, check, exact_scores};

/// Rows that every probe is checked on: prime, so that nothing divides them.
const CHECKED_ROWS: usize = 1009;

/// Rows of a chunk of those.
const CHECKED_CHUNK_ROWS: usize = 419;

/// Probes that are checked on all rows.
const CHECKED_PROBES: usize = 4;

/// Least rounds of two variants in turns: of fewer nobody can say how much they differ.
const LEAST_ROUNDS: usize = 5;

/// A variant that is so many times slower than the fastest is not timed again to know it better.
const HOPELESS: u64 = 3;

/// What came of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is right: the median times of scanning and merging.
    Right {
        /// Of scanning.
        scan_ns: u64,
        /// Of merging.
        merge_ns: u64,
    },
    /// It answered wrongly; what.
    Wrong(String),
    /// The driver could not compile or run it; why.
    Failed(String),
    /// There was no time left.
    NotMeasured,
}

impl Outcome {
    /// Time of scanning and merging, if it is right.
    pub(super) fn elapsed_ns(&self) -> Option<u64> {
        match self {
            Self::Right { scan_ns, merge_ns } => Some((scan_ns + merge_ns).max(1)),
            Self::Wrong(_) | Self::Failed(_) | Self::NotMeasured => None,
        }
    }
}

/// Rows on the device, what is asked of them, and what is right.
struct Set {
    rows: Rows,
    skips: Vec<RowSet>,
    /// Probes that are checked, with the real scores of all rows.
    exact: Vec<(usize, Vec<f64>)>,
}

impl Set {
    fn run(&self, engine: &mut Engine, probes: &Matrix, trial: Trial) -> Result<Measured, BackendError> {
        let none = RowSet::default();
        let asks: Vec<Ask<'_>> = (0..probes.rows()).map(|probe| self.ask(probe, trial, &none)).collect();
        measure(engine, &self.rows, probes, &asks, trial)
    }

    fn check(&self, measured: &Measured, trial: Trial) -> Result<(), String> {
        let none = RowSet::default();
        let made = Made { bound: measured.bound, list: trial.list, chunk_rows: self.rows.chunk_rows() };
        for (probe, exact) in &self.exact {
            check(&measured.found[*probe], exact, self.ask(*probe, trial, &none), made)
                .map_err(|wrong| format!("probe {probe}: {wrong}"))?;
        }
        Ok(())
    }

    /// What is skipped is asked of what serves alone.
    fn ask<'a>(&'a self, probe: usize, trial: Trial, none: &'a RowSet) -> Ask<'a> {
        let skip = if trial.stage == Stage::Full { &self.skips[probe] } else { none };
        Ask { k: trial.list, skip }
    }
}

/// The device and what is run on it.
pub(super) struct Rig<'a> {
    engine: &'a mut Engine,
    probes: Matrix,
    few: Set,
    many: Set,
    repeats: usize,
    deadline: Instant,
    fastest_ns: u64,
    outcomes: HashMap<Trial, Outcome>,
}

/// How long the first run of a variant takes, the compiler's time in it, and a further one.
pub(super) fn warm_up(
    engine: &mut Engine,
    parts: &Parts<'_>,
    trial: Trial,
) -> Result<(Duration, Duration), BackendError> {
    let placement = parts.placement.over(parts.rows.rows());
    let rows = Rows::load(&engine.device, &parts.rows, placement, parts.budget)?;
    let none = RowSet::default();
    let asks = vec![Ask { k: trial.list, skip: &none }; parts.probes.rows()];
    let mut times = [Duration::ZERO; 2];
    for time in &mut times {
        let started = Instant::now();
        measure(engine, &rows, parts.probes, &asks, trial)?;
        *time = started.elapsed();
    }
    Ok((times[0], times[1]))
}

/// What a rig is made of.
pub(super) struct Parts<'a> {
    pub(super) rows: Arc<Matrix>,
    pub(super) probes: &'a Matrix,
    /// Of the many rows; whose range is not used.
    pub(super) placement: Placement,
    pub(super) budget: &'a Rc<Budget>,
}

impl<'a> Rig<'a> {
    /// Brings the rows to the device and scores what is checked in `f64`.
    pub(super) fn new(engine: &'a mut Engine, parts: &Parts<'_>) -> Result<Self, BackendError> {
        let Parts { rows, probes, placement, budget } = parts;
        let count = probes.rows().min(MAX_QUERY_COUNT);
        let probes = first_rows(probes, count);
        let few_rows = Arc::new(first_rows(rows, CHECKED_ROWS));
        let few = Set {
            skips: (0..count).map(|probe| some_rows(probe as u32, few_rows.rows() as u32)).collect(),
            exact: (0..count).map(|probe| (probe, exact_scores(probes.row(probe), &few_rows))).collect(),
            rows: Rows::load(
                &engine.device,
                &few_rows,
                Placement { chunk_rows: CHECKED_CHUNK_ROWS, ..placement.over(few_rows.rows()) },
                budget,
            )?,
        };
        let mut spread: Vec<usize> =
            (0..CHECKED_PROBES).map(|place| place * (count - 1) / (CHECKED_PROBES - 1)).collect();
        spread.dedup();
        let many = Set {
            skips: vec![RowSet::default(); count],
            exact: spread.into_iter().map(|probe| (probe, exact_scores(probes.row(probe), rows))).collect(),
            rows: Rows::load(&engine.device, rows, placement.over(rows.rows()), budget)?,
        };
        let (outcomes, deadline) = (HashMap::new(), Instant::now());
        Ok(Self { engine, probes, few, many, repeats: 1, deadline, fastest_ns: u64::MAX, outcomes })
    }

    /// How often a variant is timed.
    pub(super) fn repeating(mut self, repeats: usize) -> Self {
        self.repeats = repeats;
        self
    }

    /// Begins nothing later than this.
    pub(super) fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Probes that a scan takes.
    pub(super) fn probes(&self) -> usize {
        self.probes.rows()
    }

    /// What comes of a variant; what came of it, if it was run before.
    pub(super) fn outcome(&mut self, trial: Trial) -> Outcome {
        if let Some(outcome) = self.outcomes.get(&trial) {
            return outcome.clone();
        }
        if Instant::now() >= self.deadline {
            return Outcome::NotMeasured;
        }
        let outcome = self.check_and_time(trial).unwrap_or_else(|error| Outcome::Failed(error.to_string()));
        if trial.stage == Stage::Full {
            self.fastest_ns = outcome.elapsed_ns().map_or(self.fastest_ns, |ns| ns.min(self.fastest_ns));
        }
        self.outcomes.insert(trial, outcome.clone());
        outcome
    }

    /// Times two variants in turns, so that what else the machine does befalls both.
    pub(super) fn compare(&mut self, one: Trial, other: Trial) -> Result<[Rounds; 2], BackendError> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..self.repeats.max(LEAST_ROUNDS) {
            for (trial, times) in [one, other].into_iter().zip(&mut times) {
                let measured = self.many.run(self.engine, &self.probes, trial)?;
                times.push(measured.scan_ns + measured.merge_ns);
            }
        }
        Ok(times.map(Rounds::of))
    }

    fn check_and_time(&mut self, trial: Trial) -> Result<Outcome, BackendError> {
        if let Err(wrong) = self.few.check(&self.few.run(self.engine, &self.probes, trial)?, trial) {
            return Ok(Outcome::Wrong(wrong));
        }
        let warm = self.many.run(self.engine, &self.probes, trial)?;
        if let Err(wrong) = self.many.check(&warm, trial) {
            return Ok(Outcome::Wrong(wrong));
        }
        let hopeless = (warm.scan_ns + warm.merge_ns) / HOPELESS > self.fastest_ns;
        let repeats = if hopeless { 1 } else { self.repeats };
        let (mut scans, mut merges) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let measured = self.many.run(self.engine, &self.probes, trial)?;
            scans.push(measured.scan_ns);
            merges.push(measured.merge_ns);
        }
        Ok(Outcome::Right { scan_ns: median(scans), merge_ns: median(merges) })
    }
}

/// The times of one variant's rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    pub(super) median_ns: u64,
    /// From the fastest to the slowest.
    spread_ns: u64,
}

impl Rounds {
    fn of(times: Vec<u64>) -> Self {
        let ends = times.iter().max().zip(times.iter().min());
        Self { spread_ns: ends.map_or(0, |(slowest, fastest)| slowest - fastest), median_ns: median(times) }
    }

    /// Whether these are faster than the others by more than either of them differs from round to round.
    pub(super) fn beat(self, other: Self) -> bool {
        let win = other.median_ns.saturating_sub(self.median_ns);
        win > self.spread_ns.max(other.spread_ns)
    }
}

/// The middle value, the lower of two.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

fn first_rows(matrix: &Matrix, count: usize) -> Matrix {
    let rows = (0..matrix.rows().min(count)).map(|row| matrix.row(row));
    Matrix::from_rows(matrix.dim(), rows)
}

/// Rows that a probe skips: another few for each, and for every fifth none.
fn some_rows(probe: u32, rows: u32) -> RowSet {
    if probe.is_multiple_of(5) {
        return RowSet::default();
    }
    let (first, middle) = (probe % rows, rows / 2);
    RowSet::from_ranges(vec![(first, rows.min(first + 3)), (middle, rows.min(middle + probe % 40))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_win_is_more_than_rounds_differ() {
        let default = Rounds::of(vec![100, 104, 102, 101, 108]);
        assert_eq!(default, Rounds { median_ns: 102, spread_ns: 8 });
        assert!(Rounds::of(vec![90, 91, 93, 92, 94]).beat(default));
        // Eight less, which the default's own rounds differ by; and twelve less, but for one round.
        assert!(!Rounds::of(vec![94; 5]).beat(default));
        assert!(!Rounds::of(vec![90, 90, 90, 90, 103]).beat(default));
        assert!(!default.beat(default));
    }
}

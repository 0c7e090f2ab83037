//! Finds the kernel of the family that suits a device: measures, checks, keeps.
//!
//! First every experiment of DESIGN.md, section 1, around the variant that serves now by default, as tables. Then a search: from the
//! default, one experiment after the other, keeping what is faster. Then the winner and the default in turns. A variant whose answers
//! are not those of plain `f64` cannot win. What wins is kept for the device and its driver (`store`), and serves from the next start.

mod check;
mod experiments;
mod report;
mod rig;
mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::backend::{BackendError, opencl::OpenClBackend};
use crate::config::OpenClSettings;
use crate::domain::Matrix;

use super::lanes::{FEW_PROBES, Stage, Trial, Tuning, Variant, list_size};
use experiments::{Axis, Choice};
use rig::{Outcome, Parts, Rig, warm_up};

#[cfg(test)]
pub(super) use check::{Made, check, check_candidates, exact_scores};
pub use report::{TuneLine, TuneReport, TuneStep, TuneTable, TuneWork, Verdict};
pub(super) use store::load;

/// How much faster a variant must be than another to be taken in its place: less is noise.
const GAIN: f64 = 1.02;

/// Rows that say how long a run of all will take.
const SAMPLE_ROWS: usize = 8192;

/// Shares of the time that may have passed when the tables, and when the search, begin nothing more.
const TABLES_UNTIL: f64 = 0.6;
const SEARCH_UNTIL: f64 = 0.9;

/// What is measured.
#[derive(Clone, Debug)]
pub struct TunePlan {
    /// Rows; only the first so many where all would take too long.
    pub rows: Arc<Matrix>,
    /// Probes, of which a launch takes up to 256.
    pub probes: Matrix,
    /// How many neighbors a probe wants: the list is at least as long.
    pub top_k: usize,
    /// How often each variant is timed.
    pub repeats: usize,
    /// How long all may take, but for the variant that is being measured then.
    pub budget: Duration,
}

/// Why nothing was measured, or kept.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The device could not be had, or failed with the variant that serves by default.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Lists of such a length are not kept on a device.
    #[error("expected a top-k of 1 to 256, got {0}")]
    TopK(usize),
    /// No row or no probe.
    #[error("expected at least one row and one probe")]
    Nothing,
    /// The result could not be written.
    #[error("the result could not be kept: {0}")]
    Store(#[from] std::io::Error),
}

/// Measures on the device that `settings` choose, and keeps the winner. `progress` is told how many variants are done, how many there
/// are to be at most, and which one comes next.
pub fn tune(
    settings: &OpenClSettings,
    plan: &TunePlan,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<TuneReport, TuneError> {
    let started = Instant::now();
    let list = list_size(plan.top_k).filter(|_| plan.top_k > 0).ok_or(TuneError::TopK(plan.top_k))?;
    if plan.rows.rows() == 0 || plan.probes.rows() == 0 {
        return Err(TuneError::Nothing);
    }
    let backend = OpenClBackend::open(&OpenClSettings { profiling: true, ..settings.clone() })?;
    let mut engine = backend.engine.borrow_mut();
    let record = engine.device.record().clone();
    let variant = Tuning::of(record.kind).variant(plan.probes.rows());
    let base = Trial { variant, stage: Stage::Full, list };
    let at = |share: f64| started + plan.budget.mul_f64(share);

    let (probes, placement) = (&plan.probes, backend.placement(0));
    let parts = |rows: &Arc<Matrix>| Parts {
        rows: Arc::clone(rows),
        probes,
        placement: placement.clone(),
        budget: &backend.budget,
    };
    let sample = Arc::new(first(&plan.rows, SAMPLE_ROWS));
    let (compiled, further) = warm_up(&mut engine, &parts(&sample), base)?;
    let trials = Axis::ALL.iter().map(|axis| axis.table(base).len()).sum();
    let compile = compiled.saturating_sub(further);
    let count = Affordable { trials, repeats: plan.repeats, compile, sample: further }
        .rows(plan.budget.mul_f64(TABLES_UNTIL), sample.rows());
    let rows =
        if count >= plan.rows.rows() { Arc::clone(&plan.rows) } else { Arc::new(first(&plan.rows, count)) };

    let mut rig = Rig::new(&mut engine, &parts(&rows))?.repeating(plan.repeats);
    let work = TuneWork { rows: rows.rows(), probes: rig.probes(), dim: rows.dim() };
    let mut done = 0;
    let mut tell = |what: &str| {
        progress(done, 2 * trials, what);
        done = (done + 1).min(2 * trials);
    };
    rig.until(at(TABLES_UNTIL));
    let experiments = experiments(&mut rig, base, work, &mut tell);
    rig.until(at(SEARCH_UNTIL));
    let (found, search) = search(&mut rig, base, work, &mut tell);
    tell("the winner against the default");
    let won = times_default(&mut rig, found, base)?;
    // What is hardly faster than rounds differ is not faster.
    let (best, times_default) = won.map_or((base, 1.0), |times| (found, times));
    let line = |trial: Trial, outcome: &Outcome| {
        TuneLine::new(trial.variant.to_string(), work, trial.variant, outcome)
    };
    let (of_default, of_best) = (rig.outcome(base), rig.outcome(best));
    let right = of_best.elapsed_ns().is_some();
    let kept = tuned(work.probes, best.variant);
    Ok(TuneReport {
        stored: if right { store::save(&settings.cache_dir, &record, kept)? } else { None },
        device: record.name,
        platform: record.platform,
        driver: record.driver,
        kind: record.kind.as_str(),
        work,
        rows_asked: plan.rows.rows(),
        top_k: plan.top_k,
        list,
        repeats: plan.repeats,
        seconds: started.elapsed().as_secs_f64(),
        experiments,
        search,
        default: line(base, &of_default),
        winner: right.then(|| line(best, &of_best)),
        times_default,
        within_noise: won.is_none().then(|| found.variant.to_string()),
    })
}

/// Every experiment around `base`.
fn experiments(rig: &mut Rig<'_>, base: Trial, work: TuneWork, tell: &mut dyn FnMut(&str)) -> Vec<TuneTable> {
    let tables = Axis::ALL.map(|axis| (axis.as_str(), axis.table(base)));
    // The default first: all else is held against it. Then by turns, so that every experiment has something to tell if the time runs out.
    let longest = tables.iter().map(|(_, choices)| choices.len()).max().unwrap_or(0);
    rig.outcome(base);
    for place in 0..longest {
        for (name, choices) in &tables {
            if let Some(choice) = choices.get(place) {
                tell(name);
                rig.outcome(choice.trial);
            }
        }
    }
    let measured = |(name, choices): (&'static str, Vec<Choice>)| {
        let outcomes = choices.into_iter().map(|one| (one.label, one.trial.variant, rig.outcome(one.trial)));
        TuneTable::new(name, work, outcomes.collect())
    };
    tables.into_iter().map(measured).collect()
}

/// From `base`, one experiment after the other, keeping what is faster: where that leads, and the steps on the way.
fn search(
    rig: &mut Rig<'_>,
    base: Trial,
    work: TuneWork,
    tell: &mut dyn FnMut(&str),
) -> (Trial, Vec<TuneStep>) {
    let mut best = (base, rig.outcome(base));
    let mut steps = Vec::new();
    for axis in Axis::DESCENT {
        let before = best.0;
        for choice in axis.steps(best.0) {
            tell("the best together");
            let outcome = rig.outcome(choice.trial);
            if faster(&outcome, &best.1) {
                best = (choice.trial, outcome);
            }
        }
        if best.0 != before {
            steps.push(TuneStep::new(axis.as_str(), work, best.0.variant, &best.1));
        }
    }
    (best.0, steps)
}

/// How many times faster than `base` the best is, timed in turns; infinitely, without timing, where `base` is not right. `None` where it is not faster
/// by more than rounds differ.
fn times_default(rig: &mut Rig<'_>, best: Trial, base: Trial) -> Result<Option<f64>, BackendError> {
    if best == base {
        return Ok(Some(1.0));
    }
    if rig.outcome(base).elapsed_ns().is_none() {
        return Ok(Some(f64::INFINITY));
    }
    let [of_best, of_base] = rig.compare(best, base)?;
    Ok(of_best.beat(of_base).then(|| of_base.median_ns as f64 / of_best.median_ns.max(1) as f64))
}

/// Whether a variant is to be taken in place of another.
fn faster(one: &Outcome, than: &Outcome) -> bool {
    match (one.elapsed_ns(), than.elapsed_ns()) {
        (Some(one), Some(than)) => one as f64 * GAIN < than as f64,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The variant, for as many probes as it was measured with.
fn tuned(probes: usize, variant: Variant) -> store::Tuned {
    let (few, many) = if probes <= FEW_PROBES { (Some(variant), None) } else { (None, Some(variant)) };
    store::Tuned { few, many }
}

fn first(matrix: &Matrix, count: usize) -> Matrix {
    Matrix::from_rows(matrix.dim(), (0..matrix.rows().min(count)).map(|row| matrix.row(row)))
}

/// What a sample says about the time of all.
#[derive(Clone, Copy, Debug)]
struct Affordable {
    /// Variants to be measured.
    trials: usize,
    /// How often each.
    repeats: usize,
    /// The compiler's time for one.
    compile: Duration,
    /// Time of a run on the sample.
    sample: Duration,
}

impl Affordable {
    /// How many rows can be measured within `budget`; no fewer than the sample's.
    fn rows(self, budget: Duration, sample_rows: usize) -> usize {
        let a_trial = budget.div_f64(self.trials.max(1) as f64).saturating_sub(self.compile);
        // Most variants are slower than the default; a warm-up comes before the timed runs.
        let runs = 2.0 * (self.repeats + 1) as f64;
        let samples = a_trial.div_f64(runs).as_nanos() / self.sample.as_nanos().max(1);
        usize::try_from(samples).unwrap_or(usize::MAX).saturating_mul(sample_rows).max(sample_rows)
    }
}

#[cfg(test)]
mod tests;

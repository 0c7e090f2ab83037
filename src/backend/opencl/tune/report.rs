//! What is told of a measurement.

use std::path::PathBuf;

use serde::Serialize;

use crate::backend::opencl::lanes::Variant;

use super::rig::Outcome;

/// All that came of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct TuneReport {
    /// The device's name.
    pub device: String,
    /// Its platform's.
    pub platform: String,
    /// Its driver's version.
    pub driver: String,
    /// What it is.
    pub kind: &'static str,
    /// What each variant scanned.
    #[serde(flatten)]
    pub work: TuneWork,
    /// Rows that were to be scanned, had there been time.
    pub rows_asked: usize,
    /// Neighbors that a probe wants.
    pub top_k: usize,
    /// Rows of a list.
    pub list: usize,
    /// How often each variant was timed.
    pub repeats: usize,
    /// How long all took.
    pub seconds: f64,
    /// The experiments, around the default.
    pub experiments: Vec<TuneTable>,
    /// What was taken on the way from the default to the winner.
    pub search: Vec<TuneStep>,
    /// What serves the device's kind where nobody measured.
    pub default: TuneLine,
    /// What won; absent where no variant is right.
    pub winner: Option<TuneLine>,
    /// How many times faster than the default the winner is, timed in turns; infinite (in JSON null) where the default is not right.
    pub times_default: f64,
    /// What the search led to, where the default stays since rounds differed by more than was won.
    pub within_noise: Option<String>,
    /// Where the winner is kept; absent where nothing is.
    pub stored: Option<PathBuf>,
}

/// How much was compared with how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TuneWork {
    /// Rows.
    pub rows: usize,
    /// Probes.
    pub probes: usize,
    /// Components.
    pub dim: usize,
}

/// One experiment.
#[derive(Clone, Debug, Serialize)]
pub struct TuneTable {
    /// What is varied.
    pub experiment: &'static str,
    /// Its variants.
    pub lines: Vec<TuneLine>,
}

/// A step of the search.
#[derive(Clone, Debug, Serialize)]
pub struct TuneStep {
    /// What was varied.
    pub experiment: &'static str,
    /// What was taken.
    #[serde(flatten)]
    pub line: TuneLine,
}

/// What may be said of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its answers are those of plain `f64`.
    Right,
    /// They are not.
    Wrong,
    /// The driver could not compile or run it.
    Failed,
    /// There was no time left.
    NotMeasured,
}

/// One variant.
#[derive(Clone, Debug, Serialize)]
pub struct TuneLine {
    /// What is varied, in words.
    pub label: String,
    /// The whole variant, in words.
    pub variant: String,
    /// Whether it is right.
    pub verdict: Verdict,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Rows compared with probes, in millions a second; scanning and merging.
    pub mvectors_per_s: Option<f64>,
    /// Additions and multiplications, in thousands of millions a second.
    pub gops: Option<f64>,
    /// Time of scanning.
    pub scan_ms: Option<f64>,
    /// Time of merging on the device.
    pub merge_ms: Option<f64>,
    /// Whether it is the fastest of its experiment.
    pub best: bool,
}

impl TuneTable {
    pub(super) fn new(
        experiment: &'static str,
        work: TuneWork,
        outcomes: Vec<(String, Variant, Outcome)>,
    ) -> Self {
        let mut lines: Vec<TuneLine> = outcomes
            .iter()
            .map(|(label, variant, outcome)| TuneLine::new(label.clone(), work, *variant, outcome))
            .collect();
        let elapsed = |place: &usize| outcomes[*place].2.elapsed_ns();
        let best = (0..lines.len()).filter(|place| elapsed(place).is_some()).min_by_key(elapsed);
        if let Some(best) = best {
            lines[best].best = true;
        }
        Self { experiment, lines }
    }
}

impl TuneStep {
    pub(super) fn new(experiment: &'static str, work: TuneWork, variant: Variant, outcome: &Outcome) -> Self {
        Self { experiment, line: TuneLine::new(variant.to_string(), work, variant, outcome) }
    }
}

impl TuneLine {
    pub(super) fn new(label: String, work: TuneWork, variant: Variant, outcome: &Outcome) -> Self {
        let (verdict, fault) = match outcome {
            Outcome::Right { .. } => (Verdict::Right, None),
            Outcome::Wrong(what) => (Verdict::Wrong, Some(what.clone())),
            Outcome::Failed(why) => (Verdict::Failed, Some(why.clone())),
            Outcome::NotMeasured => (Verdict::NotMeasured, None),
        };
        let times = match outcome {
            Outcome::Right { scan_ns, merge_ns } => Some((*scan_ns as f64 / 1e6, *merge_ns as f64 / 1e6)),
            Outcome::Wrong(_) | Outcome::Failed(_) | Outcome::NotMeasured => None,
        };
        let comparisons = (work.rows * work.probes) as f64;
        let rate = outcome.elapsed_ns().map(|ns| comparisons / ns as f64 * 1e3);
        Self {
            label,
            variant: variant.to_string(),
            verdict,
            fault,
            mvectors_per_s: rate,
            gops: rate.map(|rate| rate * 2.0 * work.dim as f64 / 1e3),
            scan_ms: times.map(|(scan, _)| scan),
            merge_ms: times.map(|(_, merge)| merge),
            best: false,
        }
    }
}

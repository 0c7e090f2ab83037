//! What a scan is asked and what it answers.

use std::sync::Arc;

use super::BackendFallback;
use crate::backend::{RowSet, ScreenTiming};
use crate::domain::Matrix;
use crate::gallery::Snapshot;
use crate::telemetry::BackendName;

/// Asks for the first `k` rows of every probe.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The generation to scan.
    pub snapshot: Arc<Snapshot>,
    /// `f32[probes, dim]` of the gallery's dim.
    pub probes: Arc<Matrix>,
    /// For each probe the physical rows to leave out.
    pub skips: Vec<RowSet>,
    /// How many rows a probe gets; fewer where the gallery has fewer.
    pub k: usize,
}

/// One row of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The physical row.
    pub row: u32,
    /// Its canonical score.
    pub score: f32,
    /// Its score as the backend computed it; `None` where the backend did not offer the row and a scan at full precision found it.
    pub raw: Option<f32>,
}

/// What showed when a backend's raw scores for one probe were held against the canonical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RawCheck {
    /// The furthest that a raw score lay from its canonical one; infinite for one that is no number.
    pub error: f32,
    /// The largest error that the backend allows itself.
    pub bound: f32,
    /// Raw scores further off than that.
    pub violations: u64,
}

impl RawCheck {
    /// Adds what a further scan for the same probe showed.
    pub fn add(&mut self, further: Self) {
        self.error = self.error.max(further.error);
        self.bound = self.bound.max(further.bound);
        self.violations += further.violations;
    }
}

/// The first k rows of every probe, in the total order.
#[derive(Debug)]
pub struct ScanAnswer {
    /// One list a probe.
    pub probes: Vec<Vec<Ranked>>,
    /// For each probe what its raw scores showed.
    pub checks: Vec<RawCheck>,
    /// How they came about.
    pub report: ScanReport,
}

/// How an answer came about.
#[derive(Clone, Debug)]
pub struct ScanReport {
    /// What scanned.
    pub backend: BackendName,
    /// Why it was not the backend configured or preferred.
    pub fallback: Option<BackendFallback>,
    /// Time waited: for the backend, and for the batches of others between those that this request took part in.
    pub queue_ns: u64,
    /// Time in the backend, of the batches that this request took part in.
    pub scan_ns: u64,
    /// Time spent on their canonical scores and certificates, scans at full precision included.
    pub verify_ns: u64,
    /// The backend's own account of `scan_ns`.
    pub phases: ScreenTiming,
    /// Certificates of this request's probes that failed.
    pub uncertified: u64,
    /// Raw scores of this request's probes further from the canonical ones than the backend's bound allows.
    pub bound_violations: u64,
    /// Row numbers that the device returned and that do not exist, in the batches that this request took part in.
    pub invalid_indices: u64,
}

impl ScanReport {
    /// The account of nothing done yet.
    pub fn of(backend: BackendName, fallback: Option<BackendFallback>) -> Self {
        Self {
            backend,
            fallback,
            queue_ns: 0,
            scan_ns: 0,
            verify_ns: 0,
            phases: ScreenTiming::default(),
            uncertified: 0,
            bound_violations: 0,
            invalid_indices: 0,
        }
    }

    /// Adds the account of a further scan for the same request.
    pub fn add(&mut self, further: &Self) {
        self.backend = further.backend;
        self.fallback.clone_from(&further.fallback);
        self.queue_ns += further.queue_ns;
        self.scan_ns += further.scan_ns;
        self.verify_ns += further.verify_ns;
        self.phases.add(further.phases);
        self.uncertified += further.uncertified;
        self.bound_violations += further.bound_violations;
        self.invalid_indices += further.invalid_indices;
    }
}

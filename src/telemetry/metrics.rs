//! Every metric, declared once: name, kind, help, unit, label keys, buckets. No other file names one,
//! tests aside.
//!
//! Invariants: a histogram has buckets (without them the exporter would render a summary, which cannot be added up over
//! servers); a metric whose labels' values are known beforehand is rendered from the start, at 0, so that a rate or an
//! alert on it works before the first event.

use metrics::Unit;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts values by size; these are the buckets' upper ends, inclusive, rising.
    Histogram(&'static [f64]),
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels' keys.
    pub labels: &'static [&'static str],
    /// Its unit, if it has one.
    pub unit: Option<Unit>,
    /// What it says, for operators.
    pub help: &'static str,
}

/// From 50 microseconds, in seconds.
const REQUEST_SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// From 10 microseconds, in seconds.
const STAGE_SECONDS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

const PROBES: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 16_384.0, 65_536.0];

/// Finer near 0, where a decision turns.
const HEADROOM: &[f64] = &[
    -0.2, -0.15, -0.1, -0.075, -0.05, -0.025, -0.01, 0.0, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
];

/// Of cosine similarities: from half a unit in the last place to what no rounding explains.
const SCORE_ERRORS: &[f64] = &[3e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 1e-1, 1.0];

/// Shares from none to all.
const SHARES: &[f64] = &[0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0];

/// Below 1 the shadow is faster.
const RATIOS: &[f64] =
    &[0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0];

/// Declares metrics, and lists them.
macro_rules! declare {
    ($($id:ident: $kind:expr, $name:literal, [$($label:literal),*], $unit:expr, $help:literal;)+) => {
        $(pub(super) const $id: Declaration =
            Declaration { name: $name, kind: $kind, labels: &[$($label),*], unit: $unit, help: $help };)+

        /// Every metric of the product.
        pub const DECLARED: &[Declaration] = &[$($id),+];
    };
}

declare! {
    BUILD_INFO: Kind::Gauge, "lookalike_build_info", ["version"], None,
        "Always 1; the version that runs.";
    REQUESTS: Kind::Counter, "lookalike_requests_total", ["method", "code"], Some(Unit::Count),
        "Calls answered, by method and gRPC status code.";
    REQUEST_DURATION: Kind::Histogram(REQUEST_SECONDS), "lookalike_request_duration_seconds", ["method"],
        Some(Unit::Seconds), "Time from a call's arrival to the end of its answer.";
    STAGE_DURATION: Kind::Histogram(STAGE_SECONDS), "lookalike_stage_duration_seconds", ["stage"],
        Some(Unit::Seconds), "Time of a request in each stage: queue, scan, verify, decide.";
    INFLIGHT: Kind::Gauge, "lookalike_inflight_requests", [], Some(Unit::Count),
        "Calls being answered now.";
    QUEUE_DEPTH: Kind::Gauge, "lookalike_queue_depth", [], Some(Unit::Count),
        "Scans waiting for the backend now, those included of which only a part has been scanned.";
    BATCH_PROBES: Kind::Histogram(PROBES), "lookalike_batch_probes", ["role"], Some(Unit::Count),
        "Probes that a backend scanned together, of one request or several; role: primary answers, shadow is only compared.";
    DECISIONS: Kind::Counter, "lookalike_decisions_total", ["decision"], Some(Unit::Count),
        "Probes recognised or not, by decision.";
    DECISION_HEADROOM: Kind::Histogram(HEADROOM), "lookalike_decision_headroom", ["bound"], None,
        "How far best score and margin lay above the least allowed, in cosine similarity; negative: they fell short.";
    GALLERY_PROTOTYPES: Kind::Gauge, "lookalike_gallery_prototypes", ["gallery"], Some(Unit::Count),
        "Prototypes served; over all galleries unless metrics.gallery_label is set.";
    GALLERY_IDENTITIES: Kind::Gauge, "lookalike_gallery_identities", ["gallery"], Some(Unit::Count),
        "Identities served; over all galleries unless metrics.gallery_label is set.";
    GALLERY_GENERATION: Kind::Gauge, "lookalike_gallery_generation", ["gallery"], None,
        "Generation served; the sum over all galleries unless metrics.gallery_label is set.";
    BACKEND_INFO: Kind::Gauge, "lookalike_backend_info", ["backend", "device", "driver"], None,
        "1 for each backend that was made ready, with its device and driver.";
    BACKEND_UP: Kind::Gauge, "lookalike_backend_up", ["backend", "role"], None,
        "1 where a backend can answer now, else 0; NaN in a role that it no longer has. role: primary answers callers (or stands behind what does), shadow is only compared.";
    BACKEND_CHOICE: Kind::Gauge, "lookalike_backend_choice", ["backend", "reason"], None,
        "1 for the backend that answers and why it was chosen, else 0.";
    BACKEND_FALLBACK: Kind::Counter, "lookalike_backend_fallback_total", ["reason"], Some(Unit::Count),
        "Times another backend answered in place of OpenCL, by reason.";
    BACKEND_FAILURES: Kind::Counter, "lookalike_backend_failures_total", ["reason", "role"], Some(Unit::Count),
        "Times OpenCL failed, for a gallery or altogether, whoever answered then, by reason and by its role then.";
    ENGINE_PANICS: Kind::Counter, "lookalike_engine_panics_total", [], Some(Unit::Count),
        "Times the engine met a fault of its own: above 0, Lookalike has a bug, and its log says where.";
    PROGRAM_CACHE: Kind::Counter, "lookalike_program_cache_total", ["result"], Some(Unit::Count),
        "Compiled kernels asked of the cache on disk, by what came of it; unwritable comes on top where the new one could not be kept.";
    DEVICE_MEMORY: Kind::Gauge, "lookalike_device_memory_bytes", ["role"], Some(Unit::Bytes),
        "Device memory held for galleries, by the primary's backend and by the shadow's.";
    UNCERTIFIED_SCANS: Kind::Counter, "lookalike_uncertified_scans_total", ["backend"], Some(Unit::Count),
        "Probes whose first scan did not prove the answer, so that they were scanned again.";
    SCORE_BOUND_VIOLATIONS: Kind::Counter, "lookalike_score_bound_violations_total", ["backend"], Some(Unit::Count),
        "Raw scores further from the exact score than the backend's bound: above 0, the backend computes wrongly.";
    SHADOW_COMPARISONS: Kind::Counter, "lookalike_shadow_comparisons_total", ["kind"], Some(Unit::Count),
        "Probes that the shadow was to answer too, by the most serious difference from the primary's answer.";
    SHADOW_DROPS: Kind::Counter, "lookalike_shadow_drops_total", ["reason"], Some(Unit::Count),
        "Sampled probes that were not compared, by reason; together they are the comparisons of kind dropped.";
    SHADOW_SCORE_ERROR: Kind::Histogram(SCORE_ERRORS), "lookalike_shadow_score_abs_error", [], None,
        "Largest distance of a score that the shadow computed from the exact one, of each probe compared.";
    SHADOW_OVERLAP: Kind::Histogram(SHARES), "lookalike_shadow_topk_overlap", [], None,
        "Share of the primary's rows that the shadow found too, of each probe compared.";
    SHADOW_LATENCY_RATIO: Kind::Histogram(RATIOS), "lookalike_shadow_latency_ratio", [], None,
        "The shadow's time for a request, scanned and verified, over the primary's for the same.";
    SHADOW_QUEUE_DEPTH: Kind::Gauge, "lookalike_shadow_queue_depth", [], Some(Unit::Count),
        "Probes waiting for the shadow now.";
    SHADOW_GATE: Kind::Gauge, "lookalike_shadow_gate", ["condition"], None,
        "1 for each condition of promotion that is met, else 0.";
    SHADOW_BREAKER_OPEN: Kind::Gauge, "lookalike_shadow_breaker_open", [], None,
        "1 while the shadow is left alone because it failed again and again, or could not be opened, else 0.";
    SHADOW_OPEN: Kind::Gauge, "lookalike_shadow_open", [], None,
        "1 while the shadow's backend is open and can be compared; 0 while it is being opened, and where shadow mode is off.";
    SHADOW_OPEN_FAILURES: Kind::Counter, "lookalike_shadow_open_failures_total", [], Some(Unit::Count),
        "Times the shadow's backend could not be opened; it is tried again after growing pauses.";
    SHADOW_SAMPLING: Kind::Gauge, "lookalike_shadow_sampling_ratio", [], None,
        "Share of requests that the shadow is to answer too; 0 where shadow mode is off.";
    SHADOW_PROMOTED: Kind::Gauge, "lookalike_shadow_promoted", [], None,
        "1 while shadow.backend answers and the configured backend is the one that is compared, else 0.";
    SHADOW_CHANGES: Kind::Counter, "lookalike_shadow_changes_total", ["change"], Some(Unit::Count),
        "Times the shadow became primary, or was taken back.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_convention() {
        let names: BTreeSet<&str> = DECLARED.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), DECLARED.len(), "each name once");
        for metric in DECLARED {
            let name = metric.name;
            assert!(name.starts_with("lookalike_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), metric.unit == Some(Unit::Seconds), "{name}");
            assert_eq!(name.contains("duration"), metric.unit == Some(Unit::Seconds), "{name}");
            assert_eq!(name.ends_with("_bytes"), metric.unit == Some(Unit::Bytes), "{name}");
            assert!(metric.help.len() > 10 && metric.help.ends_with('.'), "{name}");
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(!buckets.is_empty() && buckets.is_sorted_by(|a, b| a < b), "{name}");
            }
        }
    }
}

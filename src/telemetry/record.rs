//! What callers record, typed: a label's value is of its set, a count is a count, a time is a duration.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata, SharedString, with_recorder};

use super::engines;
use super::labels::{
    BackendName, Bound, ChoiceReason, Code, DecisionKind, DropReason, FallbackReason, GateCondition, Label,
    Method, ProgramCacheResult, RolloutChange, ShadowKind, Stage,
};
use super::metrics::{
    BACKEND_CHOICE, BACKEND_FALLBACK, BACKEND_INFO, BUILD_INFO, DECISION_HEADROOM, DECISIONS, Declaration,
    ENGINE_PANICS, INFLIGHT, Kind, PROGRAM_CACHE, QUEUE_DEPTH, REQUEST_DURATION, REQUESTS,
    SCORE_BOUND_VIOLATIONS, SHADOW_BREAKER_OPEN, SHADOW_CHANGES, SHADOW_COMPARISONS, SHADOW_DROPS,
    SHADOW_GATE, SHADOW_LATENCY_RATIO, SHADOW_OPEN, SHADOW_OPEN_FAILURES, SHADOW_OVERLAP, SHADOW_PROMOTED,
    SHADOW_QUEUE_DEPTH, SHADOW_SAMPLING, SHADOW_SCORE_ERROR, STAGE_DURATION, UNCERTIFIED_SCANS,
};

/// Longest text of a driver's that becomes a label, in characters.
const MAX_DRIVER_TEXT_CHARS: usize = 128;

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The gauge of `metric` with labels that are no closed set: the caller bounds how many there are.
pub(super) fn open_gauge(metric: &Declaration, values: &[String]) -> Gauge {
    let key = key(metric, values.iter().cloned());
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
}

/// The series of `metric` with these values of its labels, in the order of its keys.
fn key<V: Into<SharedString>>(metric: &Declaration, values: impl IntoIterator<Item = V>) -> Key {
    let labels = metric.labels.iter().zip(values).map(|(key, value)| metrics::Label::new(*key, value));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

pub(super) fn counter<const N: usize>(metric: &Declaration, values: [&'static str; N]) -> Counter {
    debug_assert!(
        metric.kind == Kind::Counter && metric.labels.len() == N,
        "{} is another metric",
        metric.name
    );
    with_recorder(|recorder| recorder.register_counter(&key(metric, values), &METADATA))
}

pub(super) fn gauge<const N: usize>(metric: &Declaration, values: [&'static str; N]) -> Gauge {
    debug_assert!(
        metric.kind == Kind::Gauge && metric.labels.len() == N,
        "{} is another metric",
        metric.name
    );
    with_recorder(|recorder| recorder.register_gauge(&key(metric, values), &METADATA))
}

pub(super) fn histogram<const N: usize>(metric: &Declaration, values: [&'static str; N]) -> Histogram {
    debug_assert!(
        matches!(metric.kind, Kind::Histogram(_)) && metric.labels.len() == N,
        "{} is another metric",
        metric.name
    );
    with_recorder(|recorder| recorder.register_histogram(&key(metric, values), &METADATA))
}

/// Makes every series show whose labels' values are known beforehand.
pub(super) fn from_the_start() {
    gauge(&BUILD_INFO, [env!("CARGO_PKG_VERSION")]).set(1.0);
    engines::from_the_start();
    for metric in [
        &INFLIGHT,
        &QUEUE_DEPTH,
        &SHADOW_QUEUE_DEPTH,
        &SHADOW_BREAKER_OPEN,
        &SHADOW_OPEN,
        &SHADOW_SAMPLING,
        &SHADOW_PROMOTED,
    ] {
        gauge(metric, []).set(0.0);
    }
    // A histogram shows once it is registered, whether or not its handle is kept.
    for metric in [&SHADOW_SCORE_ERROR, &SHADOW_OVERLAP, &SHADOW_LATENCY_RATIO] {
        drop(histogram(metric, []));
    }
    for kind in ShadowKind::ALL {
        counter(&SHADOW_COMPARISONS, [kind.as_str()]).increment(0);
    }
    for reason in DropReason::ALL {
        counter(&SHADOW_DROPS, [reason.as_str()]).increment(0);
    }
    counter(&SHADOW_OPEN_FAILURES, []).increment(0);
    for condition in GateCondition::ALL {
        gauge(&SHADOW_GATE, [condition.as_str()]).set(0.0);
    }
    for change in RolloutChange::ALL {
        counter(&SHADOW_CHANGES, [change.as_str()]).increment(0);
    }
    for method in Method::ALL {
        drop(histogram(&REQUEST_DURATION, [method.as_str()]));
        for code in Code::ALL {
            counter(&REQUESTS, [method.as_str(), code.as_str()]).increment(0);
        }
    }
    for stage in Stage::ALL {
        drop(histogram(&STAGE_DURATION, [stage.as_str()]));
    }
    for decision in DecisionKind::ALL {
        counter(&DECISIONS, [decision.as_str()]).increment(0);
    }
    for bound in Bound::ALL {
        drop(histogram(&DECISION_HEADROOM, [bound.as_str()]));
    }
    for reason in FallbackReason::ALL {
        counter(&BACKEND_FALLBACK, [reason.as_str()]).increment(0);
    }
    counter(&ENGINE_PANICS, []).increment(0);
    for result in ProgramCacheResult::ALL {
        counter(&PROGRAM_CACHE, [result.as_str()]).increment(0);
    }
    for backend in BackendName::ALL {
        counter(&UNCERTIFIED_SCANS, [backend.as_str()]).increment(0);
        counter(&SCORE_BOUND_VIOLATIONS, [backend.as_str()]).increment(0);
        for reason in ChoiceReason::ALL {
            gauge(&BACKEND_CHOICE, [backend.as_str(), reason.as_str()]).set(0.0);
        }
    }
}

/// A call was answered, or given up.
pub fn request_done(method: Method, code: Code, elapsed: Duration) {
    counter(&REQUESTS, [method.as_str(), code.as_str()]).increment(1);
    histogram(&REQUEST_DURATION, [method.as_str()]).record(elapsed);
}

/// A call being answered: counted from [`begin`](Self::begin) until it is dropped.
#[derive(Debug)]
#[must_use = "the call counts as answered once this is dropped"]
pub struct InFlight(());

impl InFlight {
    /// A call has come.
    pub fn begin() -> Self {
        gauge(&INFLIGHT, []).increment(1.0);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge(&INFLIGHT, []).decrement(1.0);
    }
}

/// A request left a stage.
pub fn stage_done(stage: Stage, elapsed: Duration) {
    histogram(&STAGE_DURATION, [stage.as_str()]).record(elapsed);
}

/// So many scans wait for the backend now.
pub fn queue_depth(scans: usize) {
    gauge(&QUEUE_DEPTH, []).set(scans as f64);
}

/// A probe was decided on.
pub fn decision_made(decision: DecisionKind) {
    counter(&DECISIONS, [decision.as_str()]).increment(1);
}

/// How far a decision lay from one of its bounds, in cosine similarity; negative where it fell short.
pub fn headroom(bound: Bound, headroom: f32) {
    histogram(&DECISION_HEADROOM, [bound.as_str()]).record(headroom);
}

/// A backend was made ready on this device with this driver, as its description says.
pub fn backend_described(backend: BackendName, device: &str, driver: &str) {
    let short = |text: &str| text.chars().take(MAX_DRIVER_TEXT_CHARS).collect::<String>();
    open_gauge(&BACKEND_INFO, &[backend.as_str().to_owned(), short(device), short(driver)]).set(1.0);
}

/// This backend answers from now on, for this reason.
pub fn backend_chosen(backend: BackendName, reason: ChoiceReason) {
    for other in BackendName::ALL {
        for another in ChoiceReason::ALL {
            let chosen = (*other, *another) == (backend, reason);
            gauge(&BACKEND_CHOICE, [other.as_str(), another.as_str()]).set(f64::from(u8::from(chosen)));
        }
    }
}

/// Another backend answered in place of OpenCL.
pub fn fell_back(reason: FallbackReason) {
    counter(&BACKEND_FALLBACK, [reason.as_str()]).increment(1);
}

/// The engine met a fault of its own.
pub fn engine_panicked() {
    counter(&ENGINE_PANICS, []).increment(1);
}

/// A compiled kernel was asked of the cache on disk.
pub fn program_cache(result: ProgramCacheResult) {
    counter(&PROGRAM_CACHE, [result.as_str()]).increment(1);
}

/// So many more probes of the shadow ended like this.
pub fn shadow_compared(kind: ShadowKind, probes: u64) {
    counter(&SHADOW_COMPARISONS, [kind.as_str()]).increment(probes);
}

/// Of a probe that was compared: the furthest that the shadow's scores lay from the exact ones, and the share of the primary's rows
/// that it found.
pub fn shadow_probe(score_error: f32, overlap: f32) {
    histogram(&SHADOW_SCORE_ERROR, []).record(score_error);
    histogram(&SHADOW_OVERLAP, []).record(overlap);
}

/// So many sampled probes were not compared, for this reason.
pub fn shadow_dropped(reason: DropReason, probes: u64) {
    counter(&SHADOW_DROPS, [reason.as_str()]).increment(probes);
}

/// The shadow took so many times as long for a request as the primary.
pub fn shadow_latency_ratio(ratio: f64) {
    histogram(&SHADOW_LATENCY_RATIO, []).record(ratio);
}

/// So many probes wait for the shadow now.
pub fn shadow_queue_depth(probes: usize) {
    gauge(&SHADOW_QUEUE_DEPTH, []).set(probes as f64);
}

/// Whether a condition of promotion is met.
pub fn shadow_gate(condition: GateCondition, met: bool) {
    gauge(&SHADOW_GATE, [condition.as_str()]).set(f64::from(u8::from(met)));
}

/// Whether the shadow is left alone for a while.
pub fn shadow_breaker(open: bool) {
    gauge(&SHADOW_BREAKER_OPEN, []).set(f64::from(u8::from(open)));
}

/// Whether the shadow's backend is open.
pub fn shadow_open(open: bool) {
    gauge(&SHADOW_OPEN, []).set(f64::from(u8::from(open)));
}

/// The shadow's backend could not be opened.
pub fn shadow_open_failed() {
    counter(&SHADOW_OPEN_FAILURES, []).increment(1);
}

/// The share of requests that the shadow is to answer too.
pub fn shadow_sampling(share: f64) {
    gauge(&SHADOW_SAMPLING, []).set(share);
}

/// Whether the shadow's backend answers.
pub fn shadow_promoted(promoted: bool) {
    gauge(&SHADOW_PROMOTED, []).set(f64::from(u8::from(promoted)));
}

/// The shadow became primary, or was taken back.
pub fn shadow_changed(change: RolloutChange) {
    counter(&SHADOW_CHANGES, [change.as_str()]).increment(1);
}

/// So many more probes were scanned again, as this backend's first scan did not prove the answer.
pub fn uncertified_scans(backend: BackendName, probes: u64) {
    counter(&UNCERTIFIED_SCANS, [backend.as_str()]).increment(probes);
}

/// So many more raw scores of this backend lay further from the exact score than its bound.
pub fn score_bound_violations(backend: BackendName, scores: u64) {
    counter(&SCORE_BOUND_VIOLATIONS, [backend.as_str()]).increment(scores);
}

#[cfg(test)]
mod tests {
    use super::super::recorder::rendered;
    use super::*;

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|rendered| rendered == line)
    }

    #[test]
    fn a_call_counts_under_its_method_and_code() {
        let text = rendered(|| {
            for _ in 0..2 {
                request_done(Method::Search, Code::Ok, Duration::from_micros(70));
            }
            request_done(Method::Search, Code::from(8), Duration::from_millis(30));
        });
        for line in [
            "lookalike_requests_total{method=\"Recognition/Search\",code=\"ok\"} 2",
            "lookalike_requests_total{method=\"Recognition/Search\",code=\"resource_exhausted\"} 1",
            "lookalike_request_duration_seconds_bucket{method=\"Recognition/Search\",le=\"0.00005\"} 0",
            "lookalike_request_duration_seconds_bucket{method=\"Recognition/Search\",le=\"0.0001\"} 2",
            "lookalike_request_duration_seconds_count{method=\"Recognition/Search\"} 3",
        ] {
            assert!(has(&text, line), "{line} stands in\n{text}");
        }
    }

    #[test]
    fn a_call_is_in_flight_until_dropped() {
        let during = rendered(|| std::mem::forget((InFlight::begin(), InFlight::begin())));
        assert!(has(&during, "lookalike_inflight_requests 2"), "{during}");
        let after = rendered(|| drop((InFlight::begin(), InFlight::begin())));
        assert!(has(&after, "lookalike_inflight_requests 0"), "{after}");
    }

    #[test]
    fn one_choice_holds_at_a_time() {
        let text = rendered(|| {
            backend_chosen(BackendName::OpenCl, ChoiceReason::GpuFound);
            backend_chosen(BackendName::Cpu, ChoiceReason::Fallback(FallbackReason::DeviceError));
        });
        let chosen: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("lookalike_backend_choice{") && line.ends_with(" 1"))
            .collect();
        assert_eq!(chosen, ["lookalike_backend_choice{backend=\"cpu\",reason=\"device_error\"} 1"]);
    }

    #[test]
    fn what_a_driver_says_is_escaped_and_cut() {
        let text = rendered(|| backend_described(BackendName::OpenCl, "a \"b\"\nc", &"é".repeat(1000)));
        let driver = "é".repeat(MAX_DRIVER_TEXT_CHARS);
        let line = format!(
            "lookalike_backend_info{{backend=\"opencl\",device=\"a \\\"b\\\"\\nc\",driver=\"{driver}\"}} 1"
        );
        assert!(has(&text, &line), "{line} stands in\n{text}");
    }

    #[test]
    fn the_rest_lands_where_it_is_declared() {
        let text = rendered(|| {
            stage_done(Stage::Verify, Duration::from_micros(11));
            queue_depth(4);
            decision_made(DecisionKind::Ambiguous);
            headroom(Bound::Margin, -0.03);
            headroom(Bound::Threshold, 0.5);
            fell_back(FallbackReason::NoLoader);
            program_cache(ProgramCacheResult::Stale);
            engine_panicked();
            uncertified_scans(BackendName::OpenCl, 3);
            score_bound_violations(BackendName::OpenCl, 2);
            shadow_dropped(DropReason::QueueFull, 5);
            shadow_open(true);
            shadow_open_failed();
        });
        for line in [
            "lookalike_stage_duration_seconds_bucket{stage=\"verify\",le=\"0.00001\"} 0",
            "lookalike_stage_duration_seconds_bucket{stage=\"verify\",le=\"0.000025\"} 1",
            "lookalike_queue_depth 4",
            "lookalike_decisions_total{decision=\"ambiguous\"} 1",
            "lookalike_decision_headroom_bucket{bound=\"margin\",le=\"-0.05\"} 0",
            "lookalike_decision_headroom_bucket{bound=\"margin\",le=\"-0.025\"} 1",
            "lookalike_decision_headroom_bucket{bound=\"threshold\",le=\"0.4\"} 0",
            "lookalike_decision_headroom_bucket{bound=\"threshold\",le=\"+Inf\"} 1",
            "lookalike_backend_fallback_total{reason=\"no_loader\"} 1",
            "lookalike_engine_panics_total 1",
            "lookalike_program_cache_total{result=\"stale\"} 1",
            "lookalike_uncertified_scans_total{backend=\"opencl\"} 3",
            "lookalike_score_bound_violations_total{backend=\"opencl\"} 2",
            "lookalike_shadow_drops_total{reason=\"queue_full\"} 5",
            "lookalike_shadow_open 1",
            "lookalike_shadow_open_failures_total 1",
        ] {
            assert!(has(&text, line), "{line} stands in\n{text}");
        }
    }

    #[test]
    fn recording_without_a_recorder_does_nothing() {
        metrics::with_local_recorder(&metrics::NoopRecorder, || {
            request_done(Method::Other, Code::Unknown, Duration::ZERO);
            drop(InFlight::begin());
        });
    }
}

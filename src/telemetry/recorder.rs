//! What collects the metrics that `metrics` declares, and gives them as text.
//!
//! Invariants: one recorder a process; every histogram gets its declared buckets; what can be known beforehand shows from the start.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::metrics::{DECLARED, Kind};
use super::record;

/// Gives the metrics as text. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MetricsHandle(PrometheusHandle);

impl MetricsHandle {
    /// All metrics in Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> String {
        // Rendering moves the histograms' samples into their buckets itself.
        self.0.render()
    }

    /// Moves the histograms' samples into their buckets. To be called every few seconds: until this or
    /// [`render`](Self::render) runs, every sample is kept, and a server that nobody scrapes would grow.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

/// Makes the metrics of this process collectable; from then on what is recorded shows. A further call gives the same handle.
///
/// # Panics
/// If a recorder other than this one was installed in this process.
pub fn install() -> MetricsHandle {
    static HANDLE: OnceLock<MetricsHandle> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let recorder = recorder();
        let handle = MetricsHandle(recorder.handle());
        metrics::with_local_recorder(&recorder, announce);
        metrics::set_global_recorder(recorder).expect("one recorder a process");
        handle
    });
    handle.clone()
}

fn recorder() -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in DECLARED {
        if let Kind::Histogram(buckets) = metric.kind {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                .expect("a histogram is declared with buckets");
        }
    }
    builder.build_recorder()
}

/// Describes every metric and records what is known from the start.
fn announce() {
    metrics::with_recorder(|recorder| {
        for metric in DECLARED {
            let (name, help) = (metric.name.into(), metric.help.into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, metric.unit, help),
                Kind::Gauge => recorder.describe_gauge(name, metric.unit, help),
                Kind::Histogram(_) => recorder.describe_histogram(name, metric.unit, help),
            }
        }
    });
    record::from_the_start();
}

/// Runs `what` with a recorder of its own, and gives what it recorded: tests share a process.
#[cfg(test)]
pub(super) fn rendered(what: impl FnOnce()) -> String {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        announce();
        what();
    });
    MetricsHandle(recorder.handle()).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Code, Declaration, Label, Method};

    /// Metrics whose labels depend on the machine or on the operator's choice.
    const LATER: [&str; 5] = [
        "lookalike_gallery_prototypes",
        "lookalike_gallery_identities",
        "lookalike_gallery_generation",
        "lookalike_backend_info",
        "lookalike_backend_up",
    ];

    fn kind_text(kind: Kind) -> &'static str {
        match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }

    #[test]
    fn every_metric_is_rendered_from_the_start_with_help_and_type() {
        let text = rendered(|| {});
        for metric in DECLARED.iter().filter(|metric| !LATER.contains(&metric.name)) {
            let Declaration { name, help, .. } = metric;
            assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name} has its help in\n{text}");
            let kind = kind_text(metric.kind);
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is a {kind} in\n{text}");
        }
        assert!(!text.contains(" summary\n"), "{text}");
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("lookalike_build_info{{version=\"{version}\"}} 1\n")), "{text}");
    }

    #[test]
    fn closed_sets_are_rendered_whole_from_the_start() {
        let text = rendered(|| {});
        for line in [
            "lookalike_requests_total{method=\"Recognition/Search\",code=\"resource_exhausted\"} 0",
            "lookalike_request_duration_seconds_bucket{method=\"Reflection\",le=\"0.00005\"} 0",
            "lookalike_stage_duration_seconds_bucket{stage=\"decide\",le=\"10\"} 0",
            "lookalike_decisions_total{decision=\"displaced\"} 0",
            "lookalike_decision_headroom_bucket{bound=\"margin\",le=\"-0.2\"} 0",
            "lookalike_backend_choice{backend=\"cpu\",reason=\"no_loader\"} 0",
            "lookalike_backend_fallback_total{reason=\"out_of_memory\"} 0",
            "lookalike_uncertified_scans_total{backend=\"reference\"} 0",
            "lookalike_score_bound_violations_total{backend=\"opencl\"} 0",
            "lookalike_shadow_comparisons_total{kind=\"identity\"} 0",
            "lookalike_shadow_gate{condition=\"hard_rate\"} 0",
            "lookalike_shadow_changes_total{change=\"demoted\"} 0",
            "lookalike_shadow_breaker_open 0",
            "lookalike_shadow_sampling_ratio 0",
            "lookalike_inflight_requests 0",
            "lookalike_queue_depth 0",
            "lookalike_backend_failures_total{reason=\"self_test\",role=\"shadow\"} 0",
            "lookalike_device_memory_bytes{role=\"shadow\"} 0",
            "lookalike_batch_probes_count{role=\"primary\"} 0",
            "lookalike_shadow_drops_total{reason=\"queue_full\"} 0",
            "lookalike_shadow_open 0",
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line} stands in\n{text}");
        }
        let requests = text.lines().filter(|line| line.starts_with("lookalike_requests_total{")).count();
        assert_eq!(requests, Method::ALL.len() * Code::ALL.len());
    }

    #[test]
    fn installing_again_gives_the_same_metrics() {
        let (first, second) = (install(), install());
        record::shadow_probe(0.0, 0.5);
        first.upkeep();
        for text in [first.render(), second.render()] {
            assert!(text.contains("lookalike_shadow_topk_overlap_bucket{le=\"0.5\"} 1\n"), "{text}");
        }
    }
}

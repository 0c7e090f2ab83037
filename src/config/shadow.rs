//! The section `shadow`, validated.

use std::path::PathBuf;
use std::time::Duration;

use super::model::{BackendKind, GateSettings, Promotion, RecordSettings, ShadowSettings};
use super::reader::Reader;

/// `primary` is `backend.kind`, where it is sound.
pub(super) fn shadow(reader: &mut Reader<'_>, primary: Option<BackendKind>) -> Option<ShadowSettings> {
    let enabled = reader.flag("shadow.enabled");
    let kinds =
        [("cpu", BackendKind::Cpu), ("opencl", BackendKind::OpenCl), ("reference", BackendKind::Reference)];
    let backend = reader.choice("shadow.backend", &kinds);
    let sampling = reader.real("shadow.sampling", 0.0..=1.0);
    let queue = reader.size("shadow.queue", 1..=1_000_000);
    let timeout_ms = reader.integer("shadow.timeout_ms", 1..=600_000);
    let score_tolerance = reader.real("shadow.score_tolerance", 0.0..=0.01);
    let promotions = [("manual", Promotion::Manual), ("automatic", Promotion::Automatic)];
    let promote = reader.choice("shadow.promote", &promotions);
    let record = record(reader);
    let gate = gate(reader);
    if enabled == Some(true) {
        check_pair(reader, primary, backend);
    }
    Some(ShadowSettings {
        enabled: enabled?,
        backend: backend?,
        sampling: sampling?,
        queue: queue?,
        timeout: Duration::from_millis(timeout_ms?),
        score_tolerance: score_tolerance? as f32,
        promote: promote?,
        record: record?,
        gate: gate?,
    })
}

/// Two different backends, both known beforehand: evidence about a pair must not turn out to be about another.
fn check_pair(reader: &mut Reader<'_>, primary: Option<BackendKind>, shadow: Option<BackendKind>) {
    match primary {
        Some(BackendKind::Auto) => {
            let expected = "cpu, opencl or reference where shadow.enabled is true (auto may give each batch to another backend, so what is compared \
                            would not be one backend; to move from the CPU to the GPU name cpu here and opencl as shadow.backend)";
            reader.refuse("backend.kind", expected);
        }
        Some(kind) if Some(kind) == shadow => {
            reader.refuse(
                "shadow.backend",
                "another backend than backend.kind, since one is compared with the other",
            );
        }
        Some(_) | None => (),
    }
}

fn record(reader: &mut Reader<'_>) -> Option<RecordSettings> {
    let expected = "a folder's path (in quotes if it reads as a number), or off";
    let path = reader
        .parsed("shadow.record.path", expected, |text| Some((text != "off").then(|| PathBuf::from(text))));
    let max_bytes = reader.integer("shadow.record.max_bytes", 65_536..=1_099_511_627_776);
    let embeddings = reader.flag("shadow.record.embeddings");
    Some(RecordSettings { path: path?, max_bytes: max_bytes?, embeddings: embeddings? })
}

fn gate(reader: &mut Reader<'_>) -> Option<GateSettings> {
    let min_comparisons = reader.integer("shadow.gate.min_comparisons", 1..=1_000_000_000_000);
    let max_hard_rate = reader.real("shadow.gate.max_hard_rate", 0.0..=1.0);
    let max_soft_ratio = reader.real("shadow.gate.max_soft_ratio", 0.0..=1.0);
    let max_failure_ratio = reader.real("shadow.gate.max_failure_ratio", 0.0..=1.0);
    let max_drop_ratio = reader.real("shadow.gate.max_drop_ratio", 0.0..=1.0);
    let max_latency_ratio = reader.real("shadow.gate.max_latency_ratio", 0.0..=1000.0);
    Some(GateSettings {
        min_comparisons: min_comparisons?,
        max_hard_rate: max_hard_rate?,
        max_soft_ratio: max_soft_ratio?,
        max_failure_ratio: max_failure_ratio?,
        max_drop_ratio: max_drop_ratio?,
        max_latency_ratio: max_latency_ratio?,
    })
}

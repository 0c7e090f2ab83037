//! From the shadow's findings to messages.

use super::proto;
use crate::config::Promotion;
use crate::domain::bounds::{CONFIDENCE, interval};
use crate::shadow::evidence::Evidence;
use crate::shadow::gate::{self, Condition};
use crate::shadow::record::{Machine, Record, SideRecord};
use crate::shadow::sketch::Sketch;
use crate::shadow::{Guilty, Next, Opening, Replayed, ReplayedSide, Report};
use crate::telemetry::{Label, ShadowKind};

pub(in crate::grpc) fn report(report: &Report) -> proto::GetReportResponse {
    let Report { machines, rollout, evidence, conditions, .. } = report;
    proto::GetReportResponse {
        primary: Some(machine(&machines.primary)),
        shadow: Some(machine(&machines.shadow)),
        promoted: rollout.promoted && report.opening.is_none(),
        changed_ms: rollout.changed_ms,
        changed_because: rollout.because.clone(),
        promote: match report.promotion {
            Promotion::Manual => "manual",
            Promotion::Automatic => "automatic",
        }
        .to_owned(),
        held: rollout.held,
        sampling: report.sampling,
        since_ms: evidence.since_ms,
        compared: evidence.compared(),
        kinds: ShadowKind::ALL.iter().map(|kind| kind_count(evidence, *kind)).collect(),
        score_error: Some(quantiles(&evidence.score_error)),
        primary_latency_ns: Some(quantiles(&evidence.latency_ns.primary)),
        shadow_latency_ns: Some(quantiles(&evidence.latency_ns.shadow)),
        gate: conditions.iter().map(gate_check).collect(),
        gate_met: gate::is_met(conditions) && report.opening.is_none(),
        breaker_open: report.breaker_open,
        queued: report.queued as u64,
        opening: report.opening.as_ref().map(|(opening, told)| not_open(opening, told)),
        backend_reason: report.backend_reason.clone(),
    }
}

fn not_open(opening: &Opening, told: &str) -> proto::ShadowOpening {
    proto::ShadowOpening {
        since_ms: opening.since_ms,
        failures: opening.failures,
        error: opening.error.clone(),
        retry_ms: match opening.next {
            Next::At(ms) => ms,
            Next::Trying | Next::Never => 0,
        },
        sentence: told.to_owned(),
    }
}

fn kind_count(evidence: &Evidence, kind: ShadowKind) -> proto::KindCount {
    let whole = evidence.whole_of(kind);
    let count = evidence.of(kind);
    let (rate_low, rate_high) = interval(count, whole, CONFIDENCE);
    let rate = if whole == 0 { 0.0 } else { count as f64 / whole as f64 };
    proto::KindCount { kind: kind.as_str().to_owned(), count, rate, rate_low, rate_high }
}

fn quantiles(sketch: &Sketch) -> proto::Quantiles {
    let at = |share| sketch.quantile(share).unwrap_or(0.0);
    proto::Quantiles { count: sketch.count(), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
}

fn gate_check(condition: &Condition) -> proto::GateCheck {
    proto::GateCheck {
        condition: condition.condition.as_str().to_owned(),
        met: condition.met,
        value: condition.value,
        limit: condition.limit,
    }
}

fn machine(machine: &Machine) -> proto::ShadowMachine {
    let Machine { backend, device, driver, program } = machine.clone();
    proto::ShadowMachine { backend, device, driver, program }
}

pub(in crate::grpc) fn disagreement(record: &Record) -> proto::Disagreement {
    proto::Disagreement {
        id: record.id.clone(),
        at_ms: record.at_ms,
        request_id: record.request_id.clone(),
        probe: record.probe.map(|probe| probe as u32),
        gallery: record.gallery.clone(),
        generation: record.generation,
        kinds: record.kinds.clone(),
        error: record.error.clone(),
        primary: Some(side(&record.sides.primary)),
        shadow: Some(side(&record.sides.shadow)),
        method: record.asked.method.clone(),
    }
}

fn side(side: &SideRecord) -> proto::ShadowSide {
    let top = side.top.iter().map(|row| proto::ShadowRow {
        index: row.index,
        identity: row.identity.clone(),
        prototype_id: row.prototype_id.clone(),
        score: row.score,
        raw: row.raw,
    });
    proto::ShadowSide {
        machine: Some(proto::ShadowMachine {
            backend: side.backend.clone(),
            device: side.device.clone(),
            driver: side.driver.clone(),
            program: side.program.clone(),
        }),
        decision: side.decision.clone(),
        score: side.score,
        margin: side.margin,
        top: top.collect(),
        score_error: side.score_error,
        score_bound: side.score_bound,
        wrong_scores: side.wrong_scores,
    }
}

pub(in crate::grpc) fn replayed(replayed: &Replayed) -> proto::ReplayResponse {
    let guilty = match replayed.guilty {
        Guilty::Neither => proto::Guilty::Neither,
        Guilty::Primary => proto::Guilty::Primary,
        Guilty::Shadow => proto::Guilty::Shadow,
        Guilty::Both => proto::Guilty::Both,
    };
    proto::ReplayResponse {
        disagreement: Some(disagreement(&replayed.record)),
        generation: replayed.generation,
        same_generation: replayed.same_generation,
        reference: Some(side(&replayed.reference)),
        primary: Some(replayed_side(&replayed.sides.primary)),
        shadow: Some(replayed_side(&replayed.sides.shadow)),
        guilty: guilty.into(),
    }
}

fn replayed_side(one: &ReplayedSide) -> proto::ReplayedSide {
    proto::ReplayedSide {
        said: Some(side(&one.said)),
        error: one.error.clone(),
        kinds: one.kinds.clone(),
        recorded_kinds: one.recorded_kinds.clone(),
        wrong: one.wrong,
    }
}

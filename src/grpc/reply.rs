//! From answers to messages.

mod shadow;

use super::envelope::RequestId;
use super::proto;
use super::request::Wanted;
use crate::engine::{EngineError, Ranked, ScanReport};
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision};
use crate::recognize::{Recognition, RecognizeAnswer, SearchAnswer, explain};
use crate::telemetry::Label;

pub(super) use shadow::{disagreement, replayed, report};

pub(super) fn search(
    snapshot: &Snapshot,
    wanted: Wanted,
    answer: &SearchAnswer,
    meta: proto::ResponseMeta,
) -> proto::SearchResponse {
    let results = wanted
        .probe_ids
        .into_iter()
        .zip(&answer.probes)
        .map(|(probe_id, ranked)| {
            let near =
                ranked.iter().take_while(|row| wanted.min_score.is_none_or(|least| row.score >= least));
            let neighbors = near.map(|row| neighbor(snapshot, *row, wanted.include_embeddings)).collect();
            proto::SearchResult { probe_id, neighbors }
        })
        .collect();
    proto::SearchResponse { results, meta: Some(meta) }
}

fn neighbor(snapshot: &Snapshot, ranked: Ranked, include_embeddings: bool) -> proto::Neighbor {
    let row = snapshot.row(ranked.row as usize);
    proto::Neighbor {
        index: row.index,
        prototype_id: row.prototype_id.read(),
        identity: snapshot.identity(row.identity).name.read(),
        source: row.source.read(),
        score: ranked.score,
        embedding: include_embeddings.then(|| proto::Embedding {
            values: snapshot.matrix().row(ranked.row as usize).to_vec(),
            packed: Vec::new(),
        }),
    }
}

pub(super) fn recognize(
    snapshot: &Snapshot,
    probe_ids: Vec<String>,
    answer: &RecognizeAnswer,
    meta: proto::ResponseMeta,
) -> proto::RecognizeResponse {
    let recognitions = probe_ids
        .into_iter()
        .zip(&answer.recognitions)
        .map(|(probe_id, recognition)| recognized(snapshot, probe_id, recognition))
        .collect();
    proto::RecognizeResponse { recognitions, meta: Some(meta) }
}

fn recognized(snapshot: &Snapshot, probe_id: String, recognition: &Recognition) -> proto::RecognizeResult {
    let verdict = &recognition.verdict;
    let candidates: Vec<proto::Candidate> =
        recognition.candidates.iter().map(|row| candidate(snapshot, *row)).collect();
    let nearest = candidates.first().cloned();
    let identity = match (verdict.decision, &nearest) {
        (Decision::Recognized, Some(nearest)) => nearest.identity.clone(),
        (
            Decision::Recognized
            | Decision::BelowThreshold
            | Decision::Ambiguous
            | Decision::NoCandidate
            | Decision::Displaced,
            _,
        ) => String::new(),
    };
    proto::RecognizeResult {
        probe_id,
        decision: decision(verdict.decision).into(),
        identity,
        score: verdict.score,
        margin: verdict.margin,
        nearest,
        candidates,
        threshold: verdict.cut.threshold.get(),
        min_margin: verdict.cut.min_margin.get(),
        threshold_headroom: verdict.threshold_headroom(),
        margin_headroom: verdict.margin_headroom(),
    }
}

/// The reply to one probe; `cut` is what applies where the identity at a place is the best.
pub(super) fn explain(
    snapshot: &Snapshot,
    (probe_ids, answer): (Vec<String>, &RecognizeAnswer),
    cut: impl Fn(usize) -> Cut,
    meta: proto::ResponseMeta,
) -> proto::ExplainResponse {
    let one = answer.recognitions.first();
    let leading = one.into_iter().flat_map(|one| {
        let margin = one.verdict.margin;
        one.candidates.iter().enumerate().map(move |(at, row)| (at, *row, one.candidates[0].score, margin))
    });
    let leading = leading.map(|(at, row, best, margin)| {
        let view = snapshot.row(row.row as usize);
        let cut = cut(view.identity);
        let headroom = |from: f32| (f64::from(row.score) - f64::from(from)) as f32;
        proto::ExplainedCandidate {
            candidate: Some(candidate(snapshot, row)),
            origin: view.origin.as_str().to_owned(),
            prototypes: snapshot.rows_of(view.identity).len() as u32,
            threshold: cut.threshold.get(),
            min_margin: cut.min_margin.get(),
            threshold_headroom: headroom(cut.threshold.get()),
            lead: if at == 0 { margin } else { Some(headroom(best)) },
        }
    });
    let turns = one.into_iter().flat_map(|one| explain::turns(&one.verdict)).map(|turn| proto::Turn {
        decision: decision(turn.decision).into(),
        threshold: turn.cut.threshold.get(),
        min_margin: turn.cut.min_margin.get(),
    });
    proto::ExplainResponse {
        leading: leading.collect(),
        turns: turns.collect(),
        recognition: probe_ids.into_iter().zip(one).map(|(id, one)| recognized(snapshot, id, one)).next(),
        meta: Some(meta),
    }
}

fn candidate(snapshot: &Snapshot, ranked: Ranked) -> proto::Candidate {
    let row = snapshot.row(ranked.row as usize);
    proto::Candidate {
        identity: snapshot.identity(row.identity).name.read(),
        score: ranked.score,
        prototype_id: row.prototype_id.read(),
        index: row.index,
        source: row.source.read(),
    }
}

fn decision(decision: Decision) -> proto::Decision {
    match decision {
        Decision::Recognized => proto::Decision::Recognized,
        Decision::BelowThreshold => proto::Decision::BelowThreshold,
        Decision::Ambiguous => proto::Decision::Ambiguous,
        Decision::NoCandidate => proto::Decision::NoCandidate,
        Decision::Displaced => proto::Decision::Displaced,
    }
}

/// `failed` is why the promoted backend did not answer.
pub(super) fn meta(
    snapshot: &Snapshot,
    (report, failed): (&ScanReport, Option<&EngineError>),
    id: Option<&RequestId>,
) -> proto::ResponseMeta {
    let told = report.fallback.as_ref().map(|why| why.sentence.clone());
    let first_line = |error: &EngineError| error.to_string().lines().next().unwrap_or_default().to_owned();
    let failed = failed.map(|error| format!("the promoted backend failed: {}", first_line(error)));
    let profile = snapshot.profile();
    proto::ResponseMeta {
        gallery: profile.name.clone(),
        generation: profile.generation,
        model_id: profile.model_id.clone(),
        backend: report.backend.as_str().to_owned(),
        fallback_reason: failed.or(told).unwrap_or_default(),
        queue_ns: report.queue_ns,
        scan_ns: report.scan_ns,
        verify_ns: report.verify_ns,
        request_id: id.map(|id| id.0.to_string()).unwrap_or_default(),
    }
}

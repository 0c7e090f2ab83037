//! From messages to queries. All faults of a request are named at once, by field path.

use std::sync::Arc;

use super::proto;
use super::status::{self, Violations};
use crate::config::Limits;
use crate::domain::{Embedding, Margin, NormPolicy, Threshold, TopK};
use crate::gallery::Snapshot;
use crate::recognize::{Exclusions, Probe, RecognizeQuery, SearchQuery};
use tonic::Status;

/// Most bytes of a name: a gallery's, a model's, a probe's id or group.
const MAX_ID_BYTES: usize = 256;

/// Most names in one exclusion list.
const MAX_EXCLUSIONS: usize = 1000;

/// Candidates listed where the request does not say how many.
const DEFAULT_CANDIDATES: usize = 5;

/// A search, and what its reply is to show.
pub(super) struct Search {
    pub(super) query: SearchQuery,
    pub(super) wanted: Wanted,
}

/// What the reply to a search is to show.
pub(super) struct Wanted {
    pub(super) probe_ids: Vec<String>,
    pub(super) min_score: Option<f32>,
    pub(super) include_embeddings: bool,
}

/// A recognition, and what of it is the reply's business.
pub(super) struct Recognize {
    pub(super) query: RecognizeQuery,
    pub(super) probe_ids: Vec<String>,
}

/// Refuses names that no gallery or model can have, before they are repeated in an answer or the log.
pub(super) fn check_target(gallery: &str, model_id: &str) -> Result<(), Status> {
    let mut violations = Violations::default();
    for (field, name) in [("gallery", gallery), ("model_id", model_id)] {
        if name.len() > MAX_ID_BYTES {
            violations.push(field, format!("expected at most {MAX_ID_BYTES} bytes, got {}", name.len()));
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.into()) }
}

/// Numbers a request carries, as a measure of the work of reading it.
pub(super) fn values_in(probes: &[proto::Probe]) -> usize {
    let values = |embedding: &proto::Embedding| embedding.values.len() + embedding.packed.len() / 4;
    probes.iter().map(|probe| probe.embedding.as_ref().map_or(1, values)).sum()
}

pub(super) fn search(
    request: proto::SearchRequest,
    snapshot: Arc<Snapshot>,
    limits: &Limits,
) -> Result<Search, Status> {
    check_model(&request.model_id, &snapshot)?;
    let mut violations = Violations::default();
    let top_k = violations.take("top_k", TopK::parse(request.top_k as usize, limits.max_top_k));
    let min_score = request
        .min_score
        .and_then(|score| violations.take("min_score", Threshold::parse(score)))
        .map(Threshold::get)
        // Stored embeddings may be longer than 1 by 1e-5, and scores lower than -1 by as much: -1 leaves none out.
        .filter(|least| *least > -1.0);
    if let Some(top_k) = top_k {
        let each = top_k.get().min(snapshot.row_count());
        let neighbors = each.saturating_mul(request.probes.len());
        if neighbors > limits.max_neighbors {
            let text = format!(
                "expected at most {} neighbors in a reply (server.limits.max_neighbors), got {} probes of {each}",
                limits.max_neighbors,
                request.probes.len(),
            );
            violations.push("top_k", text);
        }
        let bytes = neighbors.saturating_mul(snapshot.profile().dim * size_of::<f32>());
        if request.include_embeddings && bytes > limits.max_message_bytes {
            let text = format!(
                "expected at most {} bytes of embeddings in a reply (server.limits.max_message_bytes), got {bytes}",
                limits.max_message_bytes,
            );
            violations.push("include_embeddings", text);
        }
    }
    let (probes, probe_ids) = parse_probes(request.probes, &snapshot, limits, &mut violations);
    match top_k {
        Some(top_k) if violations.is_empty() => Ok(Search {
            query: SearchQuery { snapshot, probes, top_k },
            wanted: Wanted { probe_ids, min_score, include_embeddings: request.include_embeddings },
        }),
        Some(_) | None => Err(violations.into()),
    }
}

pub(super) fn recognize(
    request: proto::RecognizeRequest,
    snapshot: Arc<Snapshot>,
    limits: &Limits,
) -> Result<Recognize, Status> {
    check_model(&request.model_id, &snapshot)?;
    let mut violations = Violations::default();
    let (threshold, min_margin) = parse_cut((request.threshold, request.min_margin), &mut violations);
    let max_candidates = parse_candidates(request.max_candidates, limits, &mut violations);
    let (probes, probe_ids) = parse_probes(request.probes, &snapshot, limits, &mut violations);
    if !violations.is_empty() {
        return Err(violations.into());
    }
    let query = RecognizeQuery {
        snapshot,
        probes,
        threshold,
        min_margin,
        max_candidates,
        unique_in_group: request.unique_in_group,
    };
    Ok(Recognize { query, probe_ids })
}

pub(super) fn explain(
    request: proto::ExplainRequest,
    snapshot: Arc<Snapshot>,
    limits: &Limits,
) -> Result<Recognize, Status> {
    check_model(&request.model_id, &snapshot)?;
    let mut violations = Violations::default();
    let (threshold, min_margin) = parse_cut((request.threshold, request.min_margin), &mut violations);
    let max_candidates = parse_candidates(request.max_candidates, limits, &mut violations);
    let probe = request.probe.unwrap_or_default();
    let probe_ids = vec![probe.id.clone()];
    let probes = parse_probe("probe", probe, &snapshot, &mut violations).into_iter().collect();
    if !violations.is_empty() {
        return Err(violations.into());
    }
    let query =
        RecognizeQuery { snapshot, probes, threshold, min_margin, max_candidates, unique_in_group: false };
    Ok(Recognize { query, probe_ids })
}

pub(super) fn parse_cut(
    (threshold, min_margin): (Option<f32>, Option<f32>),
    violations: &mut Violations,
) -> (Option<Threshold>, Option<Margin>) {
    (
        threshold.and_then(|value| violations.take("threshold", Threshold::parse(value))),
        min_margin.and_then(|value| violations.take("min_margin", Margin::parse(value))),
    )
}

fn parse_candidates(asked: u32, limits: &Limits, violations: &mut Violations) -> usize {
    match asked as usize {
        0 => DEFAULT_CANDIDATES.min(limits.max_candidates),
        count if count <= limits.max_candidates => count,
        count => {
            violations
                .push("max_candidates", format!("expected 0 to {}, got {count}", limits.max_candidates));
            count
        }
    }
}

fn check_model(asked: &str, snapshot: &Snapshot) -> Result<(), Status> {
    let model = &snapshot.profile().model_id;
    if asked.is_empty() || asked == model { Ok(()) } else { Err(status::wrong_model(model, asked)) }
}

/// The probes and their ids; where `violations` gained an entry, some are missing.
fn parse_probes(
    probes: Vec<proto::Probe>,
    snapshot: &Snapshot,
    limits: &Limits,
    violations: &mut Violations,
) -> (Vec<Probe>, Vec<String>) {
    let count = probes.len();
    if count == 0 || count > limits.max_probes {
        violations.push("probes", format!("expected 1 to {} probes, got {count}", limits.max_probes));
        return (Vec::new(), Vec::new());
    }
    let mut parsed = Vec::with_capacity(count);
    let mut ids = Vec::with_capacity(count);
    for (place, probe) in probes.into_iter().enumerate() {
        if violations.is_full() {
            break;
        }
        ids.push(probe.id.clone());
        parsed.extend(parse_probe(&format!("probes[{place}]"), probe, snapshot, violations));
    }
    (parsed, ids)
}

/// The probe at `path`; `None` where `violations` gained an entry of its embedding.
fn parse_probe(
    path: &str,
    probe: proto::Probe,
    snapshot: &Snapshot,
    violations: &mut Violations,
) -> Option<Probe> {
    let (dim, norm) = (snapshot.profile().dim, snapshot.profile().norm);
    check_lengths(path, &probe, violations);
    let embedding = parse_embedding(path, probe.embedding, (dim, norm), violations)?;
    let exclude = Exclusions {
        identities: probe.exclude_identities,
        prototypes: probe.exclude_prototypes,
        sources: probe.exclude_sources,
        rows: Vec::new(),
    };
    Some(Probe { embedding, group: probe.group, exclude })
}

fn check_lengths(path: &str, probe: &proto::Probe, violations: &mut Violations) {
    for (field, text) in [("id", &probe.id), ("group", &probe.group)] {
        if text.len() > MAX_ID_BYTES {
            let description = format!("expected at most {MAX_ID_BYTES} bytes, got {}", text.len());
            violations.push(format!("{path}.{field}"), description);
        }
    }
    let lists = [
        ("exclude_identities", &probe.exclude_identities),
        ("exclude_prototypes", &probe.exclude_prototypes),
        ("exclude_sources", &probe.exclude_sources),
    ];
    for (field, list) in lists {
        if list.len() > MAX_EXCLUSIONS {
            let description = format!("expected at most {MAX_EXCLUSIONS} names, got {}", list.len());
            violations.push(format!("{path}.{field}"), description);
        }
    }
}

fn parse_embedding(
    path: &str,
    message: Option<proto::Embedding>,
    (dim, norm): (usize, NormPolicy),
    violations: &mut Violations,
) -> Option<Embedding> {
    let path = format!("{path}.embedding");
    let message = message.unwrap_or_default();
    let values = match (message.values.is_empty(), message.packed.is_empty()) {
        (true, true) => {
            violations.push(path, format!("expected {dim} components in values or packed, got none"));
            return None;
        }
        (false, false) => {
            violations.push(path, "expected either values or packed, got both");
            return None;
        }
        (false, true) => message.values,
        (true, false) => {
            let (values, rest) = message.packed.as_chunks::<4>();
            if !rest.is_empty() {
                let text =
                    format!("expected {} bytes (4 a component), got {}", 4 * dim, message.packed.len());
                violations.push(format!("{path}.packed"), text);
                return None;
            }
            values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
    };
    violations.take(path, Embedding::parse(values, dim, norm))
}

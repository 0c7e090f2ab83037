//! A disagreement looked into: both backends are asked again, the plain `f64` reference beside them, and whoever differs from it is
//! wrong. What both said at the time is held against it too, since a fault may have passed by now.

use std::sync::Arc;

use thiserror::Error;

use super::compare::{Place, Said, compare, is_disagreement};
use super::journal;
use super::observed::{Answer, Question};
use super::record::{Machine, Record, SideRecord, kind_names};
use super::shared::Shared;
use super::{Sides, TARGET};
use crate::config::{BackendKind, BackendSettings};
use crate::domain::{Embedding, Margin, NormPolicy, Threshold};
use crate::engine::{Engine, RawCheck};
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision, Verdict};
use crate::recognize::{Exclusions, Probe, Seat};
use crate::telemetry::{BackendName, DecisionKind, Label, ShadowKind};

/// Why a disagreement could not be looked into.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// There is none of this id.
    #[error("no disagreement {0:?} in memory or in shadow.record.path")]
    Unknown(String),
    /// Its probe was not kept.
    #[error(
        "the probe of disagreement {0:?} is not in memory any more (shadow.record.embeddings keeps it on disk)"
    )]
    NoProbe(String),
    /// Its gallery is not served any more, or has another form.
    #[error("gallery {0:?} is not served any more as it was")]
    NoGallery(String),
    /// The shadow's backend is not open yet; how it stands.
    #[error("{0}")]
    NotOpen(String),
    /// The reference failed, which only a fault of ours can make it.
    #[error("the reference failed: {0}")]
    Reference(String),
}

/// Who was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guilty {
    /// Nobody, then or now.
    Neither,
    /// The backend whose answer was returned.
    Primary,
    /// The backend that was only compared.
    Shadow,
    /// Both.
    Both,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What was recorded.
    pub record: Arc<Record>,
    /// The generation that was scanned now.
    pub generation: u64,
    /// Whether that is the recorded one. If not, what was said at the time is not judged.
    pub same_generation: bool,
    /// What is right, by plain `f64`.
    pub reference: SideRecord,
    /// The two sides, in the roles that they had then.
    pub sides: Sides<ReplayedSide>,
    /// Who was wrong, then or now.
    pub guilty: Guilty,
}

/// One side, looked into.
#[derive(Clone, Debug)]
pub struct ReplayedSide {
    /// What it says now.
    pub said: SideRecord,
    /// Why it says nothing.
    pub error: String,
    /// How that differs from what is right.
    pub kinds: Vec<String>,
    /// How what it said at the time differs; empty where that is not judged.
    pub recorded_kinds: Vec<String>,
    /// Whether it was wrong, then or now.
    pub wrong: bool,
}

pub(super) async fn replay(shared: &Arc<Shared>, id: &str) -> Result<Replayed, ReplayError> {
    let (record, probe, snapshot) = find(shared, id).await?;
    if let Some(opening) = shared.opening() {
        return Err(ReplayError::NotOpen(opening.sentence(&shared.name())));
    }
    let Some(question) = Question::again(&record.asked, probe, Arc::clone(&snapshot)) else {
        return Err(ReplayError::NoProbe(id.to_owned()));
    };
    let same_generation = snapshot.profile().generation == record.generation;
    let (question, truth) = reference(shared, question).await?;
    let truth = truth.said(&snapshot, 0);
    // The roles of then: the backend that was primary may be the shadow by now.
    let machines = shared.ledger().machines.clone();
    let by = if machines.standing.backend == record.sides.primary.backend {
        Seat::Standing
    } else {
        Seat::Candidate
    };
    let machines = machines.sides(by).map(Machine::clone);
    let judge = Judge { shared, question: &question, snapshot: &snapshot, truth: &truth };
    let then = |side: &SideRecord| same_generation.then(|| judge.of_then(side));
    let sides = Sides {
        primary: judge.side(by, &machines.primary, then(&record.sides.primary)).await,
        shadow: judge.side(by.other(), &machines.shadow, shadow_then(&record, then)).await,
    };
    let guilty = match (sides.primary.wrong, sides.shadow.wrong) {
        (false, false) => Guilty::Neither,
        (true, false) => Guilty::Primary,
        (false, true) => Guilty::Shadow,
        (true, true) => Guilty::Both,
    };
    tracing::info!(target: TARGET, id, ?guilty, same_generation, "a disagreement was replayed");
    let machine = Machine { backend: BackendName::Reference.as_str().to_owned(), ..Machine::default() };
    Ok(Replayed {
        generation: snapshot.profile().generation,
        same_generation,
        reference: SideRecord::of(&machine, &snapshot, &truth, false.into()),
        sides,
        guilty,
        record,
    })
}

/// What was wrong with the shadow at the time; one that did not answer was wrong in that.
fn shadow_then(
    record: &Record,
    then: impl Fn(&SideRecord) -> Option<Vec<ShadowKind>>,
) -> Option<Vec<ShadowKind>> {
    let failed = [ShadowKind::Error, ShadowKind::Timeout]
        .into_iter()
        .find(|kind| record.kinds.first().is_some_and(|name| name == kind.as_str()));
    match failed {
        Some(kind) => Some(vec![kind]),
        None => then(&record.sides.shadow),
    }
}

/// The record, its probe, and the generation to scan.
async fn find(shared: &Arc<Shared>, id: &str) -> Result<(Arc<Record>, Probe, Arc<Snapshot>), ReplayError> {
    let kept = shared.ledger().latest.iter().find(|kept| kept.record.id == id).cloned();
    let (record, again) = match kept {
        Some(kept) => (kept.record, kept.again),
        None => (Arc::new(on_disk(shared, id).await?), None),
    };
    let gone = || ReplayError::NoGallery(record.gallery.clone());
    let snapshot = match again.as_ref().and_then(|again| again.snapshot.upgrade()) {
        Some(snapshot) => snapshot,
        None => shared.recognizer.gallery(&record.gallery).map_err(|_| gone())?,
    };
    let embedding = match (again, &record.embedding) {
        (Some(again), _) => again.embedding,
        // As it was kept it had been made a unit vector.
        (None, Some(values)) => {
            Embedding::parse(values.clone(), snapshot.profile().dim, NormPolicy::Normalise)
                .map_err(|_| gone())?
        }
        (None, None) => return Err(ReplayError::NoProbe(id.to_owned())),
    };
    if embedding.as_slice().len() != snapshot.profile().dim {
        return Err(gone());
    }
    let exclude = Exclusions {
        identities: record.asked.exclude_identities.clone(),
        prototypes: record.asked.exclude_prototypes.clone(),
        sources: record.asked.exclude_sources.clone(),
        rows: Vec::new(),
    };
    Ok((record, Probe { embedding, group: String::new(), exclude }, snapshot))
}

async fn on_disk(shared: &Arc<Shared>, id: &str) -> Result<Record, ReplayError> {
    let unknown = || ReplayError::Unknown(id.to_owned());
    let folder = shared.settings.record.path.clone().ok_or_else(unknown)?;
    let wanted = id.to_owned();
    let found = tokio::task::spawn_blocking(move || journal::find(&folder, &wanted)).await;
    found.ok().flatten().ok_or_else(unknown)
}

/// What plain `f64` says, by an engine of its own that nobody else waits for.
async fn reference(shared: &Shared, question: Question) -> Result<(Question, Answer), ReplayError> {
    let failed = |error: String| ReplayError::Reference(error);
    let settings = BackendSettings { kind: BackendKind::Reference, ..shared.backend.clone() };
    let started = tokio::task::spawn_blocking(move || Engine::start(&settings, 1)).await;
    let engine = started.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
    let recognizer = shared.recognizer.beside(engine);
    let answer = question.ask(&recognizer, Seat::Standing).await.map_err(|e| failed(e.to_string()))?;
    // Dropping it waits for its thread.
    let _ = tokio::task::spawn_blocking(move || drop(recognizer)).await;
    Ok((question, answer))
}

/// Holds answers against what is right.
struct Judge<'a> {
    shared: &'a Shared,
    question: &'a Question,
    snapshot: &'a Snapshot,
    truth: &'a Said,
}

impl Judge<'_> {
    fn kinds(&self, said: &Said) -> Vec<ShadowKind> {
        let sides = Sides { primary: self.truth, shadow: said };
        compare(sides, self.shared.settings.score_tolerance).kinds
    }

    /// Of what a side said at the time.
    fn of_then(&self, side: &SideRecord) -> Vec<ShadowKind> {
        let said = recorded(self.snapshot, side);
        let mut truth = self.truth.clone();
        // The other probes of its photo are not asked again.
        if said.verdict.is_some_and(|verdict| verdict.decision == Decision::Displaced)
            && let Some(verdict) = &mut truth.verdict
            && verdict.decision == Decision::Recognized
        {
            verdict.decision = Decision::Displaced;
        }
        truth.places.truncate(super::record::MAX_TOP);
        compare(Sides { primary: &truth, shadow: &said }, self.shared.settings.score_tolerance).kinds
    }

    /// Asks a seat again.
    async fn side(&self, seat: Seat, machine: &Machine, then: Option<Vec<ShadowKind>>) -> ReplayedSide {
        let limit = self.shared.settings.timeout;
        let asked = tokio::time::timeout(limit, self.question.ask(&self.shared.recognizer, seat)).await;
        let (said, error, kinds) = match asked {
            Err(_) => (
                SideRecord::silent(machine),
                format!("no answer within {limit:?}"),
                vec![ShadowKind::Timeout],
            ),
            Ok(Err(error)) => (SideRecord::silent(machine), error.to_string(), vec![ShadowKind::Error]),
            Ok(Ok(answer)) => {
                let said = answer.said(self.snapshot, 0);
                let kinds = self.kinds(&said);
                let wrong = kinds.contains(&ShadowKind::Score);
                (SideRecord::of(machine, self.snapshot, &said, wrong.into()), String::new(), kinds)
            }
        };
        let then = then.unwrap_or_default();
        let wrong = kinds.iter().chain(&then).any(|kind| is_disagreement(*kind));
        ReplayedSide { said, error, kinds: kind_names(&kinds), recorded_kinds: kind_names(&then), wrong }
    }
}

/// What a side said, out of its record.
fn recorded(snapshot: &Snapshot, side: &SideRecord) -> Said {
    let identity = |name: &str| {
        snapshot.rows_of_identity(name).map_or(usize::MAX, |rows| snapshot.identity_of(rows.start))
    };
    let places = side.top.iter().map(|top| Place {
        index: top.index,
        identity: identity(&top.identity),
        score: top.score,
        raw: top.raw,
    });
    let violations = u64::from(side.wrong_scores);
    Said {
        verdict: verdict(side),
        places: places.collect(),
        check: RawCheck { error: side.score_error, bound: side.score_bound, violations },
    }
}

fn verdict(side: &SideRecord) -> Option<Verdict> {
    let decision = [
        Decision::Recognized,
        Decision::BelowThreshold,
        Decision::Ambiguous,
        Decision::NoCandidate,
        Decision::Displaced,
    ]
    .into_iter()
    .find(|decision| DecisionKind::from(*decision).as_str() == side.decision)?;
    let cut = Cut {
        threshold: Threshold::parse(side.threshold?).ok()?,
        min_margin: Margin::parse(side.min_margin?).ok()?,
    };
    Some(Verdict { decision, cut, score: side.score, margin: side.margin })
}

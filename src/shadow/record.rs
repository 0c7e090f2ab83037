//! What is kept of a disagreement, as it stands in a line of `disagreements.jsonl`.
//!
//! Invariant: no embedding is in it unless `shadow.record.embeddings` says so.

use serde::{Deserialize, Serialize};

use super::Sides;
use super::compare::{Place, Said};
use crate::backend::Description;
use crate::gallery::Snapshot;
use crate::recognize::Seat;
use crate::telemetry::{BackendName, DecisionKind, Label, ShadowKind};

/// Most rows of a side that are kept.
pub const MAX_TOP: usize = 64;

/// One disagreement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// A UUID of version 7: later ones sort after earlier ones.
    pub id: String,
    /// When it was found, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The request's id.
    pub request_id: String,
    /// The probe's place in the request; `None` where the whole request was concerned.
    pub probe: Option<usize>,
    /// The gallery.
    pub gallery: String,
    /// The generation that both sides were asked about.
    pub generation: u64,
    /// Every kind of difference, most serious first.
    pub kinds: Vec<String>,
    /// What went wrong, where the shadow did not answer.
    pub error: String,
    /// What was asked.
    pub asked: AskedRecord,
    /// What each side said.
    pub sides: Sides<SideRecord>,
    /// The probe, where the configuration keeps it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub embedding: Option<Vec<f32>>,
}

/// What was asked of a probe, beside its embedding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AskedRecord {
    /// `search` or `recognize`.
    pub method: String,
    /// Neighbors, or candidates.
    pub k: usize,
    /// The request's threshold.
    pub threshold: Option<f32>,
    /// The request's least margin.
    pub min_margin: Option<f32>,
    /// Identities left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exclude_identities: Vec<String>,
    /// Prototypes left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exclude_prototypes: Vec<String>,
    /// Sources left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exclude_sources: Vec<String>,
}

/// What one side said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideRecord {
    /// Its backend.
    pub backend: String,
    /// The device.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// Which kernels it runs; empty for a backend that has none.
    pub program: String,
    /// Its decision, such as `recognized`; empty for a search, and where it did not answer.
    pub decision: String,
    /// The best score.
    pub score: Option<f32>,
    /// The margin.
    pub margin: Option<f32>,
    /// The threshold that applied.
    pub threshold: Option<f32>,
    /// The least margin that applied.
    pub min_margin: Option<f32>,
    /// What it found, best first: at most [`MAX_TOP`] rows.
    pub top: Vec<TopRecord>,
    /// The furthest that one of its raw scores lay from the canonical one. JSON has no infinity: that is [`f32::MAX`].
    pub score_error: f32,
    /// The error that its backend allows itself.
    pub score_bound: f32,
    /// Whether its scores were computed wrongly.
    pub wrong_scores: bool,
}

/// One row of what a side found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopRecord {
    /// The prototype's index.
    pub index: u64,
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub prototype_id: String,
    /// The score as served.
    pub score: f32,
    /// The score as computed.
    pub raw: Option<f32>,
}

/// What does the scanning in one seat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The backend's name.
    pub backend: String,
    /// The device.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// Which kernels it runs.
    pub program: String,
}

impl Machine {
    /// One of which only the backend is known so far.
    pub fn to_come(backend: BackendName) -> Self {
        Self { backend: backend.as_str().to_owned(), ..Self::default() }
    }

    /// Whether more is known of it than its backend.
    pub fn is_known(&self) -> bool {
        !self.device.is_empty()
    }

    /// As a backend describes itself, with the kernels it runs.
    pub fn new(description: &Description, program: String) -> Self {
        Self {
            backend: description.backend.as_str().to_owned(),
            device: description.device.clone(),
            driver: description.driver.clone(),
            program,
        }
    }
}

/// The machines of both seats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    /// Of the configured engine.
    pub standing: Machine,
    /// Of the one that is compared with it.
    pub candidate: Machine,
}

impl Machines {
    /// Whether both seats have the backends that `other` has, on whatever device.
    pub fn are_of(&self, other: &Self) -> bool {
        self.standing.backend == other.standing.backend && self.candidate.backend == other.candidate.backend
    }

    /// By role, where `answering` is the primary.
    pub fn sides(&self, answering: Seat) -> Sides<&Machine> {
        match answering {
            Seat::Standing => Sides { primary: &self.standing, shadow: &self.candidate },
            Seat::Candidate => Sides { primary: &self.candidate, shadow: &self.standing },
        }
    }
}

impl SideRecord {
    /// A side that said nothing.
    pub fn silent(machine: &Machine) -> Self {
        let Machine { backend, device, driver, program } = machine.clone();
        Self { backend, device, driver, program, ..Self::default() }
    }

    /// What a side said of a probe.
    pub fn of(machine: &Machine, snapshot: &Snapshot, said: &Said, wrong_scores: WrongScores) -> Self {
        let top = |place: &Place| {
            let (identity, prototype_id) = names(snapshot, place);
            TopRecord {
                index: place.index,
                identity,
                prototype_id,
                score: place.score,
                raw: place.raw.map(finite),
            }
        };
        Self {
            decision: said
                .verdict
                .map(|verdict| DecisionKind::from(verdict.decision).as_str().to_owned())
                .unwrap_or_default(),
            score: said.verdict.and_then(|verdict| verdict.score),
            margin: said.verdict.and_then(|verdict| verdict.margin),
            threshold: said.verdict.map(|verdict| verdict.cut.threshold.get()),
            min_margin: said.verdict.map(|verdict| verdict.cut.min_margin.get()),
            top: said.places.iter().take(MAX_TOP).map(top).collect(),
            score_error: finite(said.check.error),
            score_bound: said.check.bound,
            wrong_scores: wrong_scores == WrongScores::Yes,
            ..Self::silent(machine)
        }
    }
}

/// Whether a side's scores were computed wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongScores {
    /// They were.
    Yes,
    /// They were not.
    No,
}

impl From<bool> for WrongScores {
    fn from(wrong: bool) -> Self {
        if wrong { Self::Yes } else { Self::No }
    }
}

/// JSON knows numbers alone.
fn finite(value: f32) -> f32 {
    if value.is_finite() { value } else { f32::MAX }
}

fn names(snapshot: &Snapshot, place: &Place) -> (String, String) {
    let identity = snapshot.identity(place.identity);
    let mut rows = identity.rows.map(|row| snapshot.row(row));
    let id =
        rows.find(|row| row.index == place.index).map_or_else(String::new, |row| row.prototype_id.read());
    (identity.name.read(), id)
}

/// Kinds as they stand in a record.
pub fn kind_names(kinds: &[ShadowKind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

//! The two questions: which prototypes are nearest ([`Recognizer::search`]), and who is this ([`Recognizer::recognize`]).
//!
//! [`decision`] is pure: scores in, conclusions out; [`explain`] says what would turn one. [`pipeline`] gets it the scores, exactly, however many scans that takes.
//!
//! Invariants: a margin is the real one or absent; an identity is named for a recognised probe alone.

pub mod decision;
mod exclude;
pub mod explain;
mod identities;
mod pipeline;

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

pub use exclude::Exclusions;

use crate::config::RecognitionSettings;
use crate::domain::{Embedding, Margin, Threshold, TopK};
use crate::engine::{Engine, EngineError, Ranked, ScanReport};
use crate::gallery::{DEFAULT_GALLERY, Snapshot};
use decision::{Cut, Verdict};

/// One embedding asked about.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The face, of the gallery's dim.
    pub embedding: Embedding,
    /// The photo it was found in; empty for none.
    pub group: String,
    /// What to leave out.
    pub exclude: Exclusions,
}

/// Asks for the nearest prototypes.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// The generation to search.
    pub snapshot: Arc<Snapshot>,
    /// At least one.
    pub probes: Vec<Probe>,
    /// How many neighbors a probe gets.
    pub top_k: TopK,
}

/// The nearest prototypes of every probe.
#[derive(Debug)]
pub struct SearchAnswer {
    /// One list a probe, in the total order.
    pub probes: Vec<Vec<Ranked>>,
    /// How they came about.
    pub report: ScanReport,
}

/// Asks who each probe is.
#[derive(Clone, Debug)]
pub struct RecognizeQuery {
    /// The generation to compare with.
    pub snapshot: Arc<Snapshot>,
    /// At least one.
    pub probes: Vec<Probe>,
    /// The request's threshold.
    pub threshold: Option<Threshold>,
    /// The request's least margin.
    pub min_margin: Option<Margin>,
    /// How many candidate identities are listed, at least 1.
    pub max_candidates: usize,
    /// Whether probes of one group compete.
    pub unique_in_group: bool,
}

/// What was concluded of every probe.
#[derive(Debug)]
pub struct RecognizeAnswer {
    /// One a probe.
    pub recognitions: Vec<Recognition>,
    /// How they came about.
    pub report: ScanReport,
    /// Time spent deciding.
    pub decide_ns: u64,
}

/// What was concluded of one probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognition {
    /// The conclusion.
    pub verdict: Verdict,
    /// The leading identities, each by its best prototype, best first.
    pub candidates: Vec<Ranked>,
}

/// No gallery of that name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no gallery {name:?}; served: {}", served.join(", "))]
pub struct UnknownGallery {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub served: Vec<String>,
}

/// The galleries served and the engine that scans them.
#[derive(Debug)]
pub struct Recognizer {
    engine: Engine,
    galleries: BTreeMap<String, Arc<Snapshot>>,
    defaults: RecognitionSettings,
}

impl Recognizer {
    /// Makes galleries ready for scanning. Blocks: not for a runtime thread.
    pub fn load(
        engine: Engine,
        snapshots: Vec<Snapshot>,
        defaults: RecognitionSettings,
    ) -> Result<Self, EngineError> {
        let mut galleries = BTreeMap::new();
        for snapshot in snapshots {
            let snapshot = Arc::new(snapshot);
            engine.load(Arc::clone(&snapshot))?;
            galleries.insert(snapshot.profile().name.clone(), snapshot);
        }
        Ok(Self { engine, galleries, defaults })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The galleries, by name.
    pub fn galleries(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.galleries.values()
    }

    /// The gallery of that name; an empty name means the default one.
    pub fn gallery(&self, name: &str) -> Result<&Arc<Snapshot>, UnknownGallery> {
        let name = if name.is_empty() { DEFAULT_GALLERY } else { name };
        self.galleries.get(name).ok_or_else(|| UnknownGallery {
            name: name.to_owned(),
            served: self.galleries.keys().cloned().collect(),
        })
    }

    /// What applies to a probe whose best identity stands at this place: what is asked for, else the identity's own, else the gallery's,
    /// else the configuration's.
    pub fn cut(
        &self,
        snapshot: &Snapshot,
        best: Option<usize>,
        (threshold, min_margin): (Option<Threshold>, Option<Margin>),
    ) -> Cut {
        let best = best.map(|place| snapshot.identity(place));
        let (own_threshold, own_margin) = best.map_or((None, None), |best| (best.threshold, best.min_margin));
        let (default_threshold, default_margin) = self.defaults_of(snapshot);
        Cut {
            threshold: threshold.or(own_threshold).unwrap_or(default_threshold),
            min_margin: min_margin.or(own_margin).unwrap_or(default_margin),
        }
    }

    /// The threshold and least margin of a gallery where neither request nor identity says another.
    pub fn defaults_of(&self, snapshot: &Snapshot) -> (Threshold, Margin) {
        let profile = snapshot.profile();
        (
            profile.threshold.unwrap_or(self.defaults.threshold),
            profile.min_margin.unwrap_or(self.defaults.margin),
        )
    }
}

//! The two questions: which prototypes are nearest ([`Recognizer::search`]), and who is this ([`Recognizer::recognize`]).
//!
//! [`decision`] is pure: scores in, conclusions out; [`explain`] says what would turn one. [`pipeline`] gets it the scores, exactly, however many scans that takes.
//!
//! Galleries may be exchanged for later generations while others are asked about ([`reload`]). Two engines may be seated: the standing
//! one, as configured, and a candidate that is compared with it ([`seats`]); one of them answers at a time, and [`account`] says which and why.
//!
//! Invariants: a margin is the real one or absent; an identity is named for a recognised probe alone.

mod account;
pub mod decision;
mod exclude;
pub mod explain;
mod identities;
mod pipeline;
mod rehearsal;
mod reload;
mod seats;

use std::sync::Arc;

use thiserror::Error;

pub use account::{Account, BackendAccount, Part};
pub use exclude::Exclusions;
pub use rehearsal::rehearse;
pub use reload::{ReloadError, Reloaded};
pub use seats::{Recognizer, Seat, Served};

use crate::domain::{Embedding, Margin, Threshold, TopK};
use crate::engine::{Ranked, RawCheck, ScanReport};
use crate::gallery::Snapshot;
use decision::Verdict;

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
    /// For each probe what its raw scores showed.
    pub checks: Vec<RawCheck>,
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
    /// For each probe what its raw scores showed.
    pub checks: Vec<RawCheck>,
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
#[error("no gallery {name:?}; {}", if served.is_empty() { "none is served".to_owned() } else { format!("served: {}", served.join(", ")) })]
pub struct UnknownGallery {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub served: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gallery_that_is_not_there_is_told_with_those_that_are() {
        let unknown = |served: &[&str]| {
            let served = served.iter().map(|name| (*name).to_owned()).collect();
            UnknownGallery { name: "friends".to_owned(), served }.to_string()
        };
        assert_eq!(unknown(&["default", "work"]), "no gallery \"friends\"; served: default, work");
        assert_eq!(unknown(&[]), "no gallery \"friends\"; none is served");
    }
}

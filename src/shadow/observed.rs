//! A request as the shadow sees it: what was asked, what the primary answered, and each probe's part in both.

use std::sync::Arc;

use super::compare::{Place, Said};
use super::record::AskedRecord;
use crate::domain::{Margin, Threshold, TopK};
use crate::engine::{EngineError, Ranked, RawCheck, ScanReport};
use crate::gallery::Snapshot;
use crate::recognize::decision::Verdict;
use crate::recognize::{
    Exclusions, Probe, RecognizeAnswer, RecognizeQuery, Recognizer, SearchAnswer, SearchQuery, Seat,
};

/// What was asked.
#[derive(Debug)]
pub enum Question {
    /// For neighbors.
    Search(SearchQuery),
    /// For persons.
    Recognize(RecognizeQuery),
}

/// What was answered.
#[derive(Debug)]
pub enum Answer {
    /// Neighbors.
    Search(SearchAnswer),
    /// Persons.
    Recognize(RecognizeAnswer),
}

/// A request that was answered.
#[derive(Debug)]
pub struct Observed {
    /// The request's id.
    pub request_id: Arc<str>,
    /// What was asked.
    pub question: Question,
    /// What was answered.
    pub answer: Answer,
    /// Who answered.
    pub by: Seat,
}

impl Question {
    /// The probes.
    pub fn probes(&self) -> &[Probe] {
        match self {
            Self::Search(query) => &query.probes,
            Self::Recognize(query) => &query.probes,
        }
    }

    /// The generation asked about.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        match self {
            Self::Search(query) => &query.snapshot,
            Self::Recognize(query) => &query.snapshot,
        }
    }

    /// What is kept of it, for a probe.
    pub(super) fn record(&self, probe: usize) -> AskedRecord {
        let exclude = self.probes().get(probe).map(|probe| probe.exclude.clone()).unwrap_or_default();
        // Rows are left out by those who hold the snapshot, and no request names them.
        let Exclusions { identities, prototypes, sources, rows: _ } = exclude;
        let (method, k) = match self {
            Self::Search(query) => ("search", query.top_k.get()),
            Self::Recognize(query) => ("recognize", query.max_candidates),
        };
        let (threshold, min_margin) = match self {
            Self::Search(_) => (None, None),
            Self::Recognize(query) => {
                (query.threshold.map(Threshold::get), query.min_margin.map(Margin::get))
            }
        };
        AskedRecord {
            method: method.to_owned(),
            k,
            threshold,
            min_margin,
            exclude_identities: identities,
            exclude_prototypes: prototypes,
            exclude_sources: sources,
        }
    }

    /// The same question again, about one probe; `None` where the record makes no question.
    pub(super) fn again(asked: &AskedRecord, probe: Probe, snapshot: Arc<Snapshot>) -> Option<Self> {
        if asked.method == "search" {
            let top_k = TopK::parse(asked.k, asked.k).ok()?;
            return Some(Self::Search(SearchQuery { snapshot, probes: vec![probe], top_k }));
        }
        Some(Self::Recognize(RecognizeQuery {
            snapshot,
            probes: vec![probe],
            threshold: asked.threshold.and_then(|value| Threshold::parse(value).ok()),
            min_margin: asked.min_margin.and_then(|value| Margin::parse(value).ok()),
            max_candidates: asked.k.max(1),
            unique_in_group: false,
        }))
    }

    /// Asks the engine of a seat.
    pub(super) async fn ask(&self, recognizer: &Recognizer, seat: Seat) -> Result<Answer, EngineError> {
        match self {
            Self::Search(query) => Ok(Answer::Search(recognizer.search_by(seat, query).await?)),
            Self::Recognize(query) => Ok(Answer::Recognize(recognizer.recognize_by(seat, query).await?)),
        }
    }
}

impl Answer {
    /// How it came about.
    pub fn report(&self) -> &ScanReport {
        match self {
            Self::Search(answer) => &answer.report,
            Self::Recognize(answer) => &answer.report,
        }
    }

    /// Time in the backend and in verification: what a backend is answerable for.
    pub(super) fn took_ns(&self) -> u64 {
        self.report().scan_ns + self.report().verify_ns
    }

    /// What it says of a probe.
    pub(super) fn said(&self, snapshot: &Snapshot, probe: usize) -> Said {
        let said = |verdict: Option<Verdict>, rows: &[Ranked], check: Option<&RawCheck>| Said {
            verdict,
            places: rows.iter().map(|row| place(snapshot, row)).collect(),
            check: check.copied().unwrap_or_default(),
        };
        match self {
            Self::Search(answer) => {
                said(None, answer.probes.get(probe).map_or(&[], Vec::as_slice), answer.checks.get(probe))
            }
            Self::Recognize(answer) => match answer.recognitions.get(probe) {
                Some(one) => said(Some(one.verdict), &one.candidates, answer.checks.get(probe)),
                None => Said::default(),
            },
        }
    }
}

fn place(snapshot: &Snapshot, ranked: &Ranked) -> Place {
    let row = ranked.row as usize;
    Place {
        index: snapshot.index(row),
        identity: snapshot.identity_of(row),
        score: ranked.score,
        raw: ranked.raw,
    }
}

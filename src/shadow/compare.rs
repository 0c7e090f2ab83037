//! Two answers to one probe, held against each other: pure.
//!
//! Compared, most serious first: decision, nearest identity, rows and their order, scores, margin. What each side *served* decides on the
//! first three; the scores that each side *computed* (raw, before verification) are held against the canonical ones beside that,
//! so that a device that computes wrongly shows before it turns a decision.
//!
//! Differences that the tolerance of scores explains are borderline: rows that tie within it, a decision whose cut lies within it.
//! A row that the primary did not list is no tie unless the last row that it listed is one.

use std::collections::HashMap;

use super::Sides;
use crate::engine::RawCheck;
use crate::recognize::decision::{Decision, Verdict};
use crate::telemetry::ShadowKind;

/// Half a unit in the last place of a score near 1: what rounding the canonical score may add to an honest error.
const SCORE_ROUNDING: f32 = 6.1e-8;

/// What one side said of a probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// What it concluded; `None` where it was asked for neighbors alone.
    pub verdict: Option<Verdict>,
    /// What it found, best first.
    pub places: Vec<Place>,
    /// What its raw scores showed.
    pub check: RawCheck,
}

/// One row of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The prototype's index.
    pub index: u64,
    /// Its identity, by any number that tells identities apart.
    pub identity: usize,
    /// Its score as served.
    pub score: f32,
    /// Its score as computed, if it was offered.
    pub raw: Option<f32>,
}

/// What two answers have in common, and what not.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Every kind of difference, most serious first; [`ShadowKind::Agree`] alone where there is none. Never empty.
    pub kinds: Vec<ShadowKind>,
    /// Whose scores were computed wrongly.
    pub wrong_scores: Sides<bool>,
    /// The furthest that a score of the shadow lay from the canonical one.
    pub score_error: f32,
    /// The share of the primary's rows that the shadow found.
    pub overlap: f32,
}

impl Comparison {
    /// The most serious kind.
    pub fn worst(&self) -> ShadowKind {
        self.kinds.first().copied().unwrap_or(ShadowKind::Agree)
    }
}

/// Whether a kind means that the shadow would have said something else of a person.
pub fn is_hard(kind: ShadowKind) -> bool {
    match kind {
        ShadowKind::Decision | ShadowKind::Identity => true,
        ShadowKind::Error
        | ShadowKind::Timeout
        | ShadowKind::Order
        | ShadowKind::Score
        | ShadowKind::Borderline
        | ShadowKind::Agree
        | ShadowKind::Dropped => false,
    }
}

/// Whether a kind is a disagreement that is kept.
pub fn is_disagreement(kind: ShadowKind) -> bool {
    match kind {
        ShadowKind::Error
        | ShadowKind::Timeout
        | ShadowKind::Decision
        | ShadowKind::Identity
        | ShadowKind::Order
        | ShadowKind::Score => true,
        ShadowKind::Borderline | ShadowKind::Agree | ShadowKind::Dropped => false,
    }
}

/// Compares what both sides said of one probe; scores that differ by no more than `tolerance` are the same.
pub fn compare(sides: Sides<&Said>, tolerance: f32) -> Comparison {
    let Sides { primary, shadow } = sides;
    let rows = Sides { primary: by_index(primary), shadow: by_index(shadow) };
    let mut kinds = Vec::new();
    let mut borderline = false;
    let mut note = |difference: Difference, kind: ShadowKind| match difference {
        Difference::None => (),
        Difference::Explained => borderline = true,
        Difference::Real => kinds.push(kind),
    };
    note(decisions(primary, shadow, tolerance), ShadowKind::Decision);
    note(nearest(sides, &rows.primary, tolerance), ShadowKind::Identity);
    note(orders(sides, &rows.primary, tolerance), ShadowKind::Order);
    let wrong_scores =
        Sides { primary: computed_wrongly(primary, tolerance), shadow: computed_wrongly(shadow, tolerance) };
    let wrong = if wrong_scores.primary || wrong_scores.shadow { Difference::Real } else { Difference::None };
    note(wrong.or(served_scores(sides, &rows.shadow, tolerance)), ShadowKind::Score);
    if kinds.is_empty() {
        kinds.push(if borderline { ShadowKind::Borderline } else { ShadowKind::Agree });
    }
    Comparison {
        kinds,
        wrong_scores,
        score_error: score_error(shadow),
        overlap: overlap(primary, &rows.shadow),
    }
}

/// How two things differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    /// By what the tolerance explains.
    Explained,
    Real,
}

impl Difference {
    /// The greater of two.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Real, _) | (_, Self::Real) => Self::Real,
            (Self::Explained, _) | (_, Self::Explained) => Self::Explained,
            (Self::None, Self::None) => Self::None,
        }
    }

    /// Of what differs.
    fn unless(explained: bool) -> Self {
        if explained { Self::Explained } else { Self::Real }
    }
}

/// Written so that what is no number is not near to anything.
fn near(a: f32, b: f32, tolerance: f32) -> bool {
    (f64::from(a) - f64::from(b)).abs() <= f64::from(tolerance)
}

fn both_near(a: Option<f32>, b: Option<f32>, tolerance: f32) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => near(a, b, tolerance),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn decisions(primary: &Said, shadow: &Said, tolerance: f32) -> Difference {
    let (a, b) = match (&primary.verdict, &shadow.verdict) {
        (Some(a), Some(b)) if a.decision != b.decision => (a, b),
        (None, None) | (Some(_), Some(_)) => return Difference::None,
        (Some(_), None) | (None, Some(_)) => return Difference::Real,
    };
    let same_numbers = a.cut == b.cut
        && both_near(a.score, b.score, tolerance)
        && both_near(a.margin, b.margin, 2.0 * tolerance);
    // Who keeps an identity within a group turns on other probes' scores, which are compared by themselves.
    let displaced = [a.decision, b.decision].contains(&Decision::Displaced);
    Difference::unless(same_numbers && !displaced && near_cut(a, tolerance))
}

/// Whether a decision might have been another one had a score been off by the tolerance.
fn near_cut(verdict: &Verdict, tolerance: f32) -> bool {
    verdict.score.is_some_and(|score| near(score, verdict.cut.threshold.get(), tolerance))
        || verdict.margin.is_some_and(|margin| near(margin, verdict.cut.min_margin.get(), 2.0 * tolerance))
}

/// Scores of rows by their indices.
type Rows = HashMap<u64, f32>;

fn by_index(said: &Said) -> Rows {
    said.places.iter().map(|place| (place.index, place.score)).collect()
}

fn nearest(sides: Sides<&Said>, listed: &Rows, tolerance: f32) -> Difference {
    match (sides.primary.places.first(), sides.shadow.places.first()) {
        (None, None) => Difference::None,
        (Some(a), Some(b)) if a.identity == b.identity => Difference::None,
        (Some(_), Some(_)) => Difference::unless(tied(sides, listed, 0, tolerance)),
        (Some(_), None) | (None, Some(_)) => Difference::Real,
    }
}

fn orders(sides: Sides<&Said>, listed: &Rows, tolerance: f32) -> Difference {
    let (primary, shadow) = (&sides.primary.places, &sides.shadow.places);
    if primary.len() != shadow.len() {
        return Difference::Real;
    }
    let differ = |place: usize| {
        if primary[place].index == shadow[place].index {
            Difference::None
        } else {
            Difference::unless(tied(sides, listed, place, tolerance))
        }
    };
    (0..primary.len()).map(differ).fold(Difference::None, Difference::or)
}

/// Whether the shadow's row at a place may stand there, by the scores of the rows that the primary listed.
fn tied(sides: Sides<&Said>, listed: &Rows, place: usize, tolerance: f32) -> bool {
    let (primary, shadow) = (&sides.primary.places, &sides.shadow.places);
    let (Some(expected), Some(got)) = (primary.get(place), shadow.get(place)) else { return false };
    // A row that is not listed scores no more than the last one that is.
    let score = listed.get(&got.index).copied().or(primary.last().map(|last| last.score));
    score.is_some_and(|score| near(score, expected.score, tolerance))
        && near(got.score, expected.score, tolerance)
}

/// Whether a side's raw scores lie further from the canonical ones than both its bound and the tolerance.
fn computed_wrongly(said: &Said, tolerance: f32) -> bool {
    let allowed = said.check.bound.max(tolerance) * (1.0 + 1e-6) + SCORE_ROUNDING;
    said.check.violations > 0 || score_error(said) > allowed
}

/// The furthest that a raw score lay from the canonical one; infinite for one that is no number.
fn score_error(said: &Said) -> f32 {
    let errors = said.places.iter().filter_map(|place| Some((place.raw? - place.score).abs()));
    errors.fold(said.check.error, |most, error| if error.is_nan() { f32::INFINITY } else { most.max(error) })
}

/// Scores of the same rows, and margins, as served: canonical on both sides, so they differ where a side lies.
fn served_scores(sides: Sides<&Said>, found: &Rows, tolerance: f32) -> Difference {
    let differ = |a: Option<f32>, b: Option<f32>, tolerance| {
        if a.map(f32::to_bits) == b.map(f32::to_bits) {
            Difference::None
        } else {
            Difference::unless(both_near(a, b, tolerance))
        }
    };
    let rows = sides.primary.places.iter().filter_map(|place| Some((place.score, *found.get(&place.index)?)));
    let margin = |said: &Said| said.verdict.and_then(|verdict| verdict.margin);
    let margins = differ(margin(sides.primary), margin(sides.shadow), 2.0 * tolerance);
    rows.map(|(a, b)| differ(Some(a), Some(b), tolerance)).fold(margins, Difference::or)
}

fn overlap(primary: &Said, found: &Rows) -> f32 {
    if primary.places.is_empty() {
        return if found.is_empty() { 1.0 } else { 0.0 };
    }
    let common = primary.places.iter().filter(|place| found.contains_key(&place.index)).count();
    common as f32 / primary.places.len() as f32
}

#[cfg(test)]
mod tests;

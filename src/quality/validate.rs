//! Judges decisions about probes of whom it is known who they are.
//!
//! A probe whose person has a prototype left to compare is *known*: naming that person is right, anything else is missed or wrong. Any other
//! is a *stranger*: naming anybody is wrong. With a probe's own row left out, a person of one prototype is a stranger too, which is
//! what the gallery then is to that person.

use serde::Serialize;

use crate::engine::Ranked;
use crate::gallery::Snapshot;
use crate::recognize::Recognition;
use crate::recognize::decision::Decision;

/// What a decision was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A known person, named rightly.
    Recognized,
    /// A known person, named as another.
    WrongIdentity,
    /// A known person, not named for want of score.
    BelowThreshold,
    /// A known person, not named for want of lead.
    Ambiguous,
    /// A known person, not named because another probe of the photo was.
    Displaced,
    /// A stranger, named as somebody.
    StrangerNamed,
    /// A stranger, not named.
    StrangerRefused,
}

impl Outcome {
    /// Of a decision whose nearest identity stands at `nearest`, about a probe whose person stands at `truth`, if anywhere.
    pub fn of(decision: Decision, nearest: Option<usize>, truth: Option<usize>) -> Self {
        match (decision, truth) {
            (Decision::Recognized, None) => Self::StrangerNamed,
            (Decision::Recognized, Some(_)) if nearest == truth => Self::Recognized,
            (Decision::Recognized, Some(_)) => Self::WrongIdentity,
            (
                Decision::BelowThreshold | Decision::Ambiguous | Decision::Displaced | Decision::NoCandidate,
                None,
            ) => Self::StrangerRefused,
            // Whoever is known has a prototype to compare with, so there is a candidate.
            (Decision::BelowThreshold | Decision::NoCandidate, Some(_)) => Self::BelowThreshold,
            (Decision::Ambiguous, Some(_)) => Self::Ambiguous,
            (Decision::Displaced, Some(_)) => Self::Displaced,
        }
    }

    /// Whether it is as it should be.
    pub fn is_right(self) -> bool {
        matches!(self, Self::Recognized | Self::StrangerRefused)
    }

    /// The name it has in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recognized => "recognized",
            Self::WrongIdentity => "wrong_identity",
            Self::BelowThreshold => "below_threshold",
            Self::Ambiguous => "ambiguous",
            Self::Displaced => "displaced",
            Self::StrangerNamed => "stranger_named",
            Self::StrangerRefused => "stranger_refused",
        }
    }
}

/// A probe of whom it is known who it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// The probe's id.
    pub id: String,
    /// Who it is.
    pub identity: String,
    /// Rows of its own identity that are left out.
    pub own_rows: Vec<u32>,
}

/// One probe and what was concluded of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The probe's id.
    pub probe: String,
    /// Who it is.
    pub identity: String,
    /// Whether its person was in the gallery.
    pub known: bool,
    /// What the decision was worth.
    pub outcome: Outcome,
    /// The best identity's score.
    pub score: Option<f32>,
    /// The best prototype.
    pub best: Option<Place>,
    /// The best prototype of the second identity.
    pub runner_up: Option<Place>,
    /// The lead over the second identity.
    pub margin: Option<f32>,
    /// The threshold that was applied.
    pub threshold: f32,
    /// The least margin that was applied.
    pub min_margin: f32,
}

/// A prototype as a report names it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub prototype_id: String,
    /// The prototype's index.
    pub index: u64,
    /// Its score with the probe.
    pub score: f32,
}

impl Place {
    /// The prototype in a ranked row.
    pub fn of(snapshot: &Snapshot, ranked: Ranked) -> Self {
        let row = snapshot.row(ranked.row as usize);
        Self {
            identity: snapshot.identity(row.identity).name.read(),
            prototype_id: row.prototype_id.read(),
            index: row.index,
            score: ranked.score,
        }
    }
}

impl Case {
    /// Judges one recognition, which lists two candidates where there are two.
    pub fn judge(snapshot: &Snapshot, probe: &Labelled, recognition: &Recognition) -> Self {
        let truth = snapshot.place_of(&probe.identity).filter(|&place| {
            let rows = snapshot.rows_of(place);
            rows.len() > probe.own_rows.iter().filter(|row| rows.contains(&(**row as usize))).count()
        });
        let verdict = &recognition.verdict;
        let place = |at: usize| recognition.candidates.get(at).copied();
        let nearest = place(0).map(|best| snapshot.identity_of(best.row as usize));
        Self {
            probe: probe.id.clone(),
            identity: probe.identity.clone(),
            known: truth.is_some(),
            outcome: Outcome::of(verdict.decision, nearest, truth),
            score: verdict.score,
            best: place(0).map(|best| Place::of(snapshot, best)),
            runner_up: place(1).map(|second| Place::of(snapshot, second)),
            margin: verdict.margin,
            threshold: verdict.cut.threshold.get(),
            min_margin: verdict.cut.min_margin.get(),
        }
    }

    /// Whether the best prototype is of the right person, whatever was decided.
    pub fn is_nearest_right(&self) -> bool {
        self.known && self.best.as_ref().is_some_and(|best| best.identity == self.identity)
    }
}

/// How many cases came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// All.
    pub probes: usize,
    /// Whose person was in the gallery.
    pub known: usize,
    /// Known and named rightly.
    pub recognized: usize,
    /// Known and named as another.
    pub wrong_identity: usize,
    /// Known and not named for want of score.
    pub below_threshold: usize,
    /// Known and not named for want of lead.
    pub ambiguous: usize,
    /// Known and not named because another probe of the photo was.
    pub displaced: usize,
    /// Known, and the nearest prototype is of the right person, whatever was decided.
    pub nearest_right: usize,
    /// Whose person was not in the gallery.
    pub strangers: usize,
    /// Strangers named as somebody.
    pub strangers_named: usize,
}

impl Counts {
    /// Of these cases.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let mut counts = Self::default();
        for case in cases {
            counts.add(case);
        }
        counts
    }

    fn add(&mut self, case: &Case) {
        self.probes += 1;
        self.known += usize::from(case.known);
        self.strangers += usize::from(!case.known);
        self.nearest_right += usize::from(case.is_nearest_right());
        match case.outcome {
            Outcome::Recognized => self.recognized += 1,
            Outcome::WrongIdentity => self.wrong_identity += 1,
            Outcome::BelowThreshold => self.below_threshold += 1,
            Outcome::Ambiguous => self.ambiguous += 1,
            Outcome::Displaced => self.displaced += 1,
            Outcome::StrangerNamed => self.strangers_named += 1,
            Outcome::StrangerRefused => (),
        }
    }

    /// Of the known, the share that is named rightly; `None` where nobody is known.
    pub fn coverage(&self) -> Option<f64> {
        share(self.recognized, self.known)
    }

    /// Of the known, the share whose nearest prototype is of the right person.
    pub fn top1(&self) -> Option<f64> {
        share(self.nearest_right, self.known)
    }

    /// Of the known, the share that is named as another.
    pub fn wrong(&self) -> Option<f64> {
        share(self.wrong_identity, self.known)
    }

    /// Of the strangers, the share that is named: the false positive identification rate (FPIR of ISO/IEC 19795-1).
    pub fn false_positives(&self) -> Option<f64> {
        share(self.strangers_named, self.strangers)
    }
}

/// `part` of `whole`; `None` where there is no whole.
pub fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_right_only_where_the_right_person_or_no_stranger_is_named() {
        use Decision::{Ambiguous, BelowThreshold, Displaced, NoCandidate, Recognized};
        let table = [
            (Recognized, Some(3), Some(3), Outcome::Recognized),
            (Recognized, Some(4), Some(3), Outcome::WrongIdentity),
            (Recognized, Some(4), None, Outcome::StrangerNamed),
            (BelowThreshold, Some(3), Some(3), Outcome::BelowThreshold),
            (Ambiguous, Some(4), Some(3), Outcome::Ambiguous),
            (Displaced, Some(3), Some(3), Outcome::Displaced),
            (Ambiguous, Some(4), None, Outcome::StrangerRefused),
            (NoCandidate, None, None, Outcome::StrangerRefused),
        ];
        for (decision, nearest, truth, expected) in table {
            let outcome = Outcome::of(decision, nearest, truth);
            assert_eq!(outcome, expected, "{decision:?} {nearest:?} {truth:?}");
            assert_eq!(
                outcome.is_right(),
                matches!(expected, Outcome::Recognized | Outcome::StrangerRefused)
            );
        }
    }

    #[test]
    fn shares_are_of_the_known_and_of_the_strangers() {
        let counts = Counts {
            probes: 14,
            known: 10,
            recognized: 7,
            wrong_identity: 1,
            nearest_right: 9,
            strangers: 4,
            strangers_named: 1,
            ..Counts::default()
        };
        let shares = [counts.coverage(), counts.top1(), counts.wrong(), counts.false_positives()];
        assert_eq!(shares, [Some(0.7), Some(0.9), Some(0.1), Some(0.25)]);
        assert_eq!(Counts::default().coverage(), None);
    }
}

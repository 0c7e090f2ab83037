//! What is doubtful in a labelled gallery, and what would change without it. Nothing is changed here.
//!
//! All of it is read from how each prototype stands among the others ([`Standing`]), and from the scores among those of one identity. A prototype
//! is *misplaced* where another identity has one nearer than its own has, *tied* where one exactly as near, an *outlier* where the nearest of its own stays below the threshold, a *duplicate*
//! where the nearest of its own is nearly the same. Two identities may be one person (*split*), and one may be two (*merged*).

mod effect;
mod merged;

use std::collections::BTreeMap;

use serde::Serialize;

use super::standing::{Nearness, Standing};
use super::validate::{Outcome, Place};
use crate::engine::Ranked;
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision};

pub use effect::{Effect, effects};
pub use merged::{Merged, merged};

/// Least prototypes of an identity for one of them to be an outlier: of two, who could say which?
const LEAST_FOR_OUTLIER: usize = 3;

/// A prototype that is doubtful, and those that make it so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doubt {
    /// Its physical row.
    #[serde(skip)]
    pub row: usize,
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub prototype_id: String,
    /// The prototype's index.
    pub index: u64,
    /// The nearest other prototype of its own identity.
    pub own: Option<Place>,
    /// The nearest prototype of any other identity.
    pub other: Option<Place>,
}

/// Two identities of which prototypes are near each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The persons, the one first whose first prototype came first.
    pub identities: [String; 2],
    /// The score of their nearest prototypes.
    pub score: f32,
    /// These prototypes' ids.
    pub prototype_ids: [String; 2],
}

/// Two identities that may be one person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// The identity whose prototypes are taken for the other's.
    pub identity: String,
    /// The other.
    pub taken_for: String,
    /// How many of its prototypes would be recognised as the other, were it not in the gallery itself.
    pub prototypes: usize,
    /// Of how many.
    pub of: usize,
}

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Prototypes of one identity at this score or above are duplicates.
    pub duplicate: f32,
    /// Most findings of a kind, those that weigh most first.
    pub most: usize,
}

/// What was found, of each kind the gravest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Pairs of identities by their nearest prototypes, as far as each is the nearest other identity to a prototype of the other.
    pub confusable: Vec<Pair>,
    /// Prototypes nearer to another identity than to their own.
    pub misplaced: Vec<Doubt>,
    /// Prototypes exactly as near to another identity as to their own.
    pub tied: Vec<Doubt>,
    /// Prototypes whose nearest of their own is below the threshold.
    pub outliers: Vec<Doubt>,
    /// Prototypes nearly the same as an earlier one of their own identity.
    pub duplicates: Vec<Doubt>,
    /// Identities that may be another.
    pub split: Vec<Split>,
    /// How many of each kind there are in all: confusable, misplaced, tied, outliers, duplicates, split.
    pub counts: [usize; 6],
}

/// Looks through the standings of all rows of a gallery.
pub fn find(
    snapshot: &Snapshot,
    standings: &[Standing],
    cut: impl Fn(usize) -> Cut,
    wanted: Wanted,
) -> Findings {
    let rival = |one: &Standing| one.rivals.first().copied();
    let score = |ranked: Option<Ranked>| ranked.map_or(f32::NEG_INFINITY, |ranked| ranked.score);
    let by_own = |one: &&Standing| score(one.own);
    let lead = |one: &&Standing| score(rival(one)) - score(one.own);

    let with = |nearness: Nearness| standings.iter().filter(move |one| one.nearness() == Some(nearness));
    let mut misplaced: Vec<&Standing> = with(Nearness::Nearer).collect();
    misplaced.sort_by(|a, b| lead(b).total_cmp(&lead(a)).then(index(snapshot, a).cmp(&index(snapshot, b))));

    // Those that are nearest to both first.
    let mut tied: Vec<&Standing> = with(Nearness::AsNear).collect();
    tied.sort_by(|a, b| by_own(b).total_cmp(&by_own(a)).then(index(snapshot, a).cmp(&index(snapshot, b))));

    let mut outliers: Vec<&Standing> = standings
        .iter()
        .filter(|one| snapshot.rows_of(one.identity).len() >= LEAST_FOR_OUTLIER)
        .filter(|one| score(one.own) < cut(one.identity).threshold.get())
        .collect();
    outliers
        .sort_by(|a, b| by_own(a).total_cmp(&by_own(b)).then(index(snapshot, a).cmp(&index(snapshot, b))));

    let mut duplicates: Vec<&Standing> = standings
        .iter()
        .filter(|one| score(one.own) >= wanted.duplicate)
        // Of two that are each other's nearest the later is the duplicate.
        .filter(|one| one.own.is_some_and(|own| snapshot.index(own.row as usize) < index(snapshot, one)))
        .collect();
    duplicates
        .sort_by(|a, b| by_own(b).total_cmp(&by_own(a)).then(index(snapshot, a).cmp(&index(snapshot, b))));

    let confusable = confusable(snapshot, standings);
    let split = split(snapshot, standings, &cut);
    let counts =
        [confusable.len(), misplaced.len(), tied.len(), outliers.len(), duplicates.len(), split.len()];
    let doubts = |list: Vec<&Standing>| -> Vec<Doubt> {
        list.into_iter().take(wanted.most).map(|one| Doubt::of(snapshot, one)).collect()
    };
    Findings {
        confusable: confusable.into_iter().take(wanted.most).collect(),
        misplaced: doubts(misplaced),
        tied: doubts(tied),
        outliers: doubts(outliers),
        duplicates: doubts(duplicates),
        split: split.into_iter().take(wanted.most).collect(),
        counts,
    }
}

fn index(snapshot: &Snapshot, one: &Standing) -> u64 {
    snapshot.index(one.row)
}

impl Doubt {
    fn of(snapshot: &Snapshot, one: &Standing) -> Self {
        let view = snapshot.row(one.row);
        Self {
            row: one.row,
            identity: snapshot.identity(one.identity).name.read(),
            prototype_id: view.prototype_id.read(),
            index: view.index,
            own: one.own.map(|own| Place::of(snapshot, own)),
            other: one.rivals.first().map(|other| Place::of(snapshot, *other)),
        }
    }
}

/// Pairs of identities by the best score between a prototype and its nearest of another identity, the nearest pair first.
pub fn confusable(snapshot: &Snapshot, standings: &[Standing]) -> Vec<Pair> {
    let mut best: BTreeMap<(usize, usize), (f32, [usize; 2])> = BTreeMap::new();
    for one in standings {
        let Some(other) = one.rivals.first() else { continue };
        let row = other.row as usize;
        let mut rows = [one.row, row];
        rows.sort_unstable();
        let key = (snapshot.identity_of(rows[0]), snapshot.identity_of(rows[1]));
        let entry = best.entry(key).or_insert((other.score, rows));
        // Of equal scores the earlier rows.
        if other.score > entry.0 || (other.score >= entry.0 && rows < entry.1) {
            *entry = (other.score, rows);
        }
    }
    let mut pairs: Vec<_> = best.into_iter().collect();
    // Equal scores stay in the order of the identities.
    pairs.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
    let name = |row: usize| snapshot.identity(snapshot.identity_of(row)).name.read();
    let id = |row: usize| snapshot.row(row).prototype_id.read();
    pairs
        .into_iter()
        .map(|(_, (score, rows))| Pair { identities: rows.map(name), score, prototype_ids: rows.map(id) })
        .collect()
}

/// Identities at least half of whose prototypes would be recognised as one and the same other, or as that one among several.
fn split(snapshot: &Snapshot, standings: &[Standing], cut: &impl Fn(usize) -> Cut) -> Vec<Split> {
    let mut splits = Vec::new();
    for place in 0..snapshot.identity_count() {
        let rows = snapshot.rows_of(place);
        let of = rows.len();
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        for one in &standings[rows] {
            let conclusion = one.conclude(snapshot, None, cut);
            // Under three names a person is as near to the second as to the third: no margin, and one of them all the same.
            let named = matches!(conclusion.verdict.decision, Decision::Recognized | Decision::Ambiguous);
            if let Some(nearest) = conclusion.nearest.filter(|_| named) {
                *taken.entry(snapshot.identity_of(nearest.row as usize)).or_default() += 1;
            }
        }
        let most = taken.into_iter().max_by_key(|(other, count)| (*count, usize::MAX - other));
        if let Some((other, prototypes)) = most.filter(|(_, count)| 2 * count >= of) {
            let name = |place: usize| snapshot.identity(place).name.read();
            splits.push(Split { identity: name(place), taken_for: name(other), prototypes, of });
        }
    }
    splits.sort_by_key(|one| (usize::MAX - one.prototypes, one.identity.clone()));
    splits
}

/// What is concluded of a prototype with its own row left out, as [`super::validate`] judges it.
fn outcome(snapshot: &Snapshot, one: &Standing, cut: impl Fn(usize) -> Cut) -> Outcome {
    let conclusion = one.conclude(snapshot, one.own, cut);
    let nearest = conclusion.nearest.map(|nearest| snapshot.identity_of(nearest.row as usize));
    Outcome::of(conclusion.verdict.decision, nearest, one.own.map(|_| one.identity))
}

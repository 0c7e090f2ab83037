//! Chooses the prototypes of an identity among its embeddings: few, and such that with them its other embeddings are recognised.
//!
//! An embedding *covers* another of its identity if, as the only prototype, it has it recognised: rightly, under the given threshold and
//! margin, against all embeddings of all other identities. More prototypes never cover less, and none covers itself (leave-one-out), so
//! what a set of them recognises is the union of what each covers. First come medoids ([`mod@medoids`]), which are typical; then whatever is gained most by
//! ([`cover`]). Of the ways to share them out between the two, the one is taken that covers most, with the fewest prototypes, with the most medoids.
//!
//! The method is that of the experiment *a real person* (3 `cluster_medoid`, 2 `greedy_leave_one_out_gain`), with exchanges added: a greedy
//! choice is given up for another where that covers more.

mod cover;
mod medoids;

use rayon::prelude::*;

use super::pairs::Pairs;
use super::standing::Standing;
use super::validate::{Outcome, share};
use crate::domain::Origin;
use crate::engine::Ranked;
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision};
use cover::Covers;

pub use medoids::medoids;

/// Most embeddings of one identity that are compared with each other; of more, so many are taken evenly.
pub const MOST_CONSIDERED: usize = 4096;

/// How many prototypes to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Most prototypes of an identity, at least 1.
    pub prototypes: usize,
    /// Most of them that are medoids; at least one of the first two is, where nothing is to be gained.
    pub medoids: usize,
}

/// One prototype chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The physical row.
    pub row: usize,
    /// As a medoid, or for its gain.
    pub origin: Origin,
    /// Embeddings that are recognised with it and were not with those before it.
    pub gain: usize,
    /// Embeddings of the identity to which it is the nearest of the chosen, itself among them.
    pub nearest_to: usize,
}

/// What was chosen for an identity, and what its embeddings come to with that.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The identity's place.
    pub identity: usize,
    /// How many embeddings it has.
    pub embeddings: usize,
    /// The prototypes in the order in which they were chosen; at least one.
    pub choices: Vec<Choice>,
    /// For each embedding considered its physical row and what is concluded of it, its own row left out.
    pub outcomes: Vec<(usize, Outcome)>,
}

impl Selection {
    /// Of the embeddings considered, how many came to this.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|(_, came)| *came == outcome).count()
    }

    /// The share recognised; `None` where there is no second embedding to recognise one by.
    pub fn coverage(&self) -> Option<f64> {
        if self.outcomes.len() < 2 {
            None
        } else {
            share(self.count(Outcome::Recognized), self.outcomes.len())
        }
    }
}

/// Chooses for every identity of a gallery; `standings` are of all its rows, in physical order.
pub fn select(
    snapshot: &Snapshot,
    standings: &[Standing],
    cut: impl Fn(usize) -> Cut + Sync,
    plan: Plan,
) -> Vec<Selection> {
    let identities = (0..snapshot.identity_count()).into_par_iter();
    identities
        .map(|place| Candidates::of(snapshot, &standings[snapshot.rows_of(place)], &cut).choose(place, plan))
        .collect()
}

/// Chooses for one identity; `standings` are of its rows, in physical order.
pub fn select_one(
    snapshot: &Snapshot,
    standings: &[Standing],
    cut: impl Fn(usize) -> Cut,
    plan: Plan,
) -> Option<Selection> {
    let place = standings.first()?.identity;
    Some(Candidates::of(snapshot, standings, cut).choose(place, plan))
}

/// The embeddings of one identity, among which is chosen.
struct Candidates<'a, C> {
    snapshot: &'a Snapshot,
    /// How many there are.
    embeddings: usize,
    /// Those considered.
    standings: Vec<&'a Standing>,
    pairs: Pairs,
    covers: Covers,
    cut: C,
}

impl<'a, C: Fn(usize) -> Cut> Candidates<'a, C> {
    fn of(snapshot: &'a Snapshot, all: &'a [Standing], cut: C) -> Self {
        let most = all.len().min(MOST_CONSIDERED);
        let standings: Vec<&Standing> = (0..most).map(|i| &all[i * all.len() / most]).collect();
        let rows: Vec<usize> = standings.iter().map(|standing| standing.row).collect();
        let pairs = Pairs::of(snapshot.matrix(), &rows);
        let covers = Covers::new(standings.len(), |prototype, probe| {
            let own = Ranked { row: rows[prototype] as u32, score: pairs.score(prototype, probe), raw: None };
            let conclusion = standings[probe].conclude(snapshot, Some(own), &cut);
            conclusion.is_own && conclusion.verdict.decision == Decision::Recognized
        });
        Self { snapshot, embeddings: all.len(), standings, pairs, covers, cut }
    }

    fn choose(&self, identity: usize, plan: Plan) -> Selection {
        let most_medoids = plan.medoids.min(plan.prototypes).min(self.standings.len());
        let attempts = (0..=most_medoids).map(|count| {
            let fixed = medoids(&self.pairs, count);
            let chosen = self.covers.complete(fixed, plan.prototypes);
            (count, chosen)
        });
        // Ties go to the later, which has more medoids.
        let best = attempts
            .filter(|(_, chosen)| !chosen.is_empty())
            .max_by_key(|(_, chosen)| (self.covers.union_len(chosen), usize::MAX - chosen.len()));
        // Without medoids, nothing is chosen where nothing is gained; a person has at least one prototype.
        let (count, chosen) = best.unwrap_or_else(|| (1, medoids(&self.pairs, 1)));
        Selection {
            identity,
            embeddings: self.embeddings,
            choices: self.account(&chosen, count),
            outcomes: self.outcomes(identity, &chosen),
        }
    }

    /// What each choice gained, in their order; the first `medoids` of them are medoids.
    fn account(&self, chosen: &[usize], medoids: usize) -> Vec<Choice> {
        let mut nearest_to = vec![0; chosen.len()];
        for embedding in 0..self.standings.len() {
            // The first of the nearest.
            let distance = |at: &usize| self.pairs.distance(chosen[*at], embedding);
            let nearest = (0..chosen.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
            nearest_to[nearest.unwrap_or(0)] += 1;
        }
        let gains = self.covers.gains(chosen);
        let choices = chosen.iter().zip(gains).zip(nearest_to).enumerate();
        choices
            .map(|(at, ((&one, gain), nearest_to))| Choice {
                row: self.standings[one].row,
                origin: if at < medoids { Origin::ClusterMedoid } else { Origin::GreedyLeaveOneOutGain },
                gain,
                nearest_to,
            })
            .collect()
    }

    fn outcomes(&self, identity: usize, chosen: &[usize]) -> Vec<(usize, Outcome)> {
        let outcome = |(embedding, standing): (usize, &&Standing)| {
            let others = chosen.iter().filter(|&&one| one != embedding);
            let ranked = others.map(|&one| Ranked {
                row: self.standings[one].row as u32,
                score: self.pairs.score(one, embedding),
                raw: None,
            });
            let own = ranked.min_by(|a, b| super::standing::in_order(self.snapshot, a, b));
            let conclusion = standing.conclude(self.snapshot, own, &self.cut);
            let nearest = conclusion.nearest.map(|row| self.snapshot.identity_of(row.row as usize));
            (standing.row, Outcome::of(conclusion.verdict.decision, nearest, Some(identity)))
        };
        self.standings.iter().enumerate().map(outcome).collect()
    }
}

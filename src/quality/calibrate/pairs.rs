//! Scores of pairs: of the same person, and of different ones. What a model can tell apart at all, whatever the gallery.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::domain::canonical_score;
use crate::gallery::Snapshot;

/// Most pairs of a kind that are looked at; of more, so many are drawn.
pub const MOST_PAIRS: usize = 100_000;

/// Scores of pairs of embeddings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairScores {
    /// Of one person, ascending.
    pub same: Vec<f32>,
    /// Of two, ascending.
    pub different: Vec<f32>,
}

impl PairScores {
    /// Pairs of a gallery's rows, drawn at random; the same seed gives the same.
    pub fn draw(snapshot: &Snapshot, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |count: usize| ((u128::from(random.next_u64()) * count as u128) >> 64) as usize;
        let score = |a: usize, b: usize| canonical_score(snapshot.matrix().row(a), snapshot.matrix().row(b));
        let rows = snapshot.row_count();
        let mut scores = Self::default();
        for _ in 0..MOST_PAIRS {
            let (a, b) = (below(rows), below(rows));
            if snapshot.identity_of(a) != snapshot.identity_of(b) {
                scores.different.push(score(a, b));
            }
        }
        // Pairs of one person are few mostly, and then all are taken.
        let all: usize = snapshot.identities().map(|one| one.rows.len() * (one.rows.len() - 1) / 2).sum();
        for identity in snapshot.identities() {
            for a in identity.rows.clone() {
                for b in a + 1..identity.rows.end {
                    if all <= MOST_PAIRS || below(all) < MOST_PAIRS {
                        scores.same.push(score(a, b));
                    }
                }
            }
        }
        scores.same.sort_by(f32::total_cmp);
        scores.different.sort_by(f32::total_cmp);
        scores
    }

    /// Of different persons' pairs, the share that reaches a threshold (false match rate), and of one person's the share that does not (false
    /// non-match rate); `None` where there is no such pair.
    pub fn rates(&self, threshold: f32) -> (Option<f64>, Option<f64>) {
        let below = |scores: &[f32]| scores.partition_point(|score| *score < threshold);
        let share =
            |part: usize, whole: &[f32]| (!whole.is_empty()).then(|| part as f64 / whole.len() as f64);
        (
            share(self.different.len() - below(&self.different), &self.different),
            share(below(&self.same), &self.same),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_inclusive() {
        let scores = PairScores { same: vec![0.25, 0.5, 0.75, 1.0], different: vec![0.0, 0.25, 0.5] };
        assert_eq!(scores.rates(0.5), (Some(1.0 / 3.0), Some(0.25)));
        assert_eq!(PairScores::default().rates(0.5), (None, None));
    }
}

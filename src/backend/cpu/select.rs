//! The choice of candidates from a stream of approximate scores.
//!
//! A [`Selector`] holds every score seen that lies within `slack` of the k-th best seen so far. If `slack` is at least twice the error
//! bound of the scores, no row it dropped can belong to the first k: the k-th best row's real score is at least
//! the k-th raw score less the bound, and a dropped row's real score at most `cut` plus the bound.

use crate::backend::{Candidate, Candidates, Coverage};

/// Scores tested at once before any is looked at by itself.
const STRIP: usize = 16;

/// Whether any score is at least `cut`; every one is looked at, so that the compiler may look at many at once.
#[expect(clippy::needless_bitwise_bool, reason = "a lazy `or` would be a branch a score")]
fn any_reaches(scores: &[f32], cut: f32) -> bool {
    scores.iter().fold(false, |any, score| any | (*score >= cut))
}

/// How far scores may be off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margins {
    /// The error bound of a score.
    pub(super) bound: f32,
    /// At least twice that, and the roundings of comparing.
    pub(super) slack: f32,
}

/// Candidates of one probe among the rows seen so far.
#[derive(Debug)]
pub(super) struct Selector {
    kept: Vec<Candidate>,
    k: usize,
    margins: Margins,
    /// Scores below this are dropped; -inf until something had to be.
    cut: f32,
    /// `kept` is pruned when it reaches this.
    full: usize,
}

impl Selector {
    pub(super) fn new(k: usize, margins: Margins) -> Self {
        let full = 2 * k + 64;
        Self { kept: Vec::new(), k, margins, cut: f32::NEG_INFINITY, full }
    }

    /// Takes the scores of rows `first_row..`, less those that `skip` holds.
    pub(super) fn take(&mut self, first_row: u32, scores: &[f32], skip: impl Fn(u32) -> bool) {
        for (strip, scores) in scores.chunks(STRIP).enumerate() {
            if !any_reaches(scores, self.cut) {
                continue;
            }
            for (offset, &raw) in scores.iter().enumerate() {
                let row = first_row + (strip * STRIP + offset) as u32;
                if raw >= self.cut && !skip(row) {
                    self.kept.push(Candidate { row, raw });
                }
            }
            if self.kept.len() >= self.full {
                self.prune();
            }
        }
    }

    /// Adds what another selector kept of other rows.
    pub(super) fn absorb(&mut self, other: Self) {
        self.cut = self.cut.max(other.cut);
        self.kept.extend(other.kept);
    }

    /// Drops what cannot reach the first k any more.
    fn prune(&mut self) {
        if self.kept.len() <= self.k {
            return;
        }
        let (_, kth, _) = self.kept.select_nth_unstable_by(self.k - 1, |a, b| b.raw.total_cmp(&a.raw));
        let cut = (kth.raw - self.margins.slack).next_down();
        self.cut = self.cut.max(cut);
        let before = self.kept.len();
        self.kept.retain(|candidate| candidate.raw >= cut);
        // Many rows alike stay: look again only when there are twice as many.
        self.full = self.full.max(2 * self.kept.len());
        debug_assert!(self.kept.len() >= self.k && before >= self.kept.len());
    }

    /// The candidates.
    pub(super) fn finish(mut self, into: &mut Candidates) {
        self.prune();
        let bound = self.margins.bound;
        let all = self.cut == f32::NEG_INFINITY;
        let coverage = if all { Coverage::All } else { Coverage::below_raw(self.cut, bound) };
        *into = Candidates { rows: self.kept, coverage, bound };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(scores: &[f32], k: usize, slack: f32) -> (Vec<u32>, Coverage) {
        let mut selector = Selector::new(k, Margins { bound: slack / 2.0, slack });
        selector.take(0, scores, |_| false);
        let mut found = Candidates::default();
        selector.finish(&mut found);
        let mut rows: Vec<u32> = found.rows.iter().map(|c| c.row).collect();
        rows.sort_unstable();
        (rows, found.coverage)
    }

    #[test]
    fn keeps_what_lies_within_the_slack_of_the_kth() {
        let (rows, coverage) = select(&[0.1, 0.9, 0.5, 0.45, 0.3], 2, 0.06);
        assert_eq!(rows, [1, 2, 3]);
        let Coverage::AtMost(floor) = coverage else { panic!("{coverage:?}") };
        assert!((0.33..0.48).contains(&floor));
    }

    #[test]
    fn keeps_all_rows_that_are_alike() {
        let (rows, _) = select(&[0.7; 1000], 3, 0.0);
        assert_eq!(rows.len(), 1000);
    }

    #[test]
    fn fewer_rows_than_k_are_all_kept() {
        assert_eq!(select(&[0.7, 0.1], 3, 0.0), (vec![0, 1], Coverage::All));
        assert_eq!(select(&[0.7, 0.1], 2, 0.0).0, [0, 1]);
    }

    #[test]
    fn halves_seen_apart_give_what_the_whole_gives() {
        let scores: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.7).sin()).collect();
        let (left, right) = scores.split_at(1777);
        let mut selector = Selector::new(10, Margins { bound: 5e-5, slack: 1e-4 });
        selector.take(0, left, |_| false);
        let mut other = Selector::new(10, Margins { bound: 5e-5, slack: 1e-4 });
        other.take(1777, right, |_| false);
        selector.absorb(other);
        let mut found = Candidates::default();
        selector.finish(&mut found);
        let mut rows: Vec<u32> = found.rows.iter().map(|c| c.row).collect();
        rows.sort_unstable();
        assert_eq!(rows, select(&scores, 10, 1e-4).0);
    }
}

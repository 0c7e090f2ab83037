//! The choice of candidates from a stream of scores that may be off by a known amount.
//!
//! A [`Selector`] holds the rows of one probe whose real score may still be among the first k. Of each row it knows an interval that
//! holds the real score. The k-th largest lower end, the *floor*, is a lower bound of the k-th real score: a row whose upper end
//! stays below it cannot be among the first k and is dropped. The floor only rises, and it is exact at every moment (a heap holds the k
//! largest lower ends), since every row taken that an older floor let pass costs as much as one that matters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ordered::Ordered;
use crate::backend::{Candidate, Candidates, Coverage};

/// How far the floor stays below the k-th lower end: more than what rounding may do to canonical scores, so that a row left out never
/// ties with the k-th.
const ROUNDING: f32 = 2.5e-7;

/// Rows kept beyond k before those below the floor are thrown out for the first time.
const HEADROOM: usize = 256;

/// One row and the interval that holds its real score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) row: u32,
    pub(super) lower: f32,
    pub(super) upper: f32,
}

/// What a selector is to choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// How many first places.
    pub(super) k: usize,
    /// Most rows worth keeping; more, and the selector gives up.
    pub(super) most: usize,
}

/// Candidates of one probe among the rows seen so far.
#[derive(Debug, Default)]
pub(super) struct Selector {
    kept: Vec<Kept>,
    /// The k largest lower ends.
    lowers: BinaryHeap<Reverse<Ordered>>,
    k: usize,
    most: usize,
    /// Rows whose upper end is below this are dropped; -inf until k rows were seen, +inf once given up.
    floor: f32,
    /// Rows below the floor are thrown out of `kept` when it reaches this.
    full: usize,
}

impl Selector {
    /// Forgets everything but its memory.
    pub(super) fn begin(&mut self, wanted: Wanted) {
        self.kept.clear();
        self.lowers.clear();
        self.k = wanted.k;
        self.most = wanted.most;
        self.floor = f32::NEG_INFINITY;
        self.full = 2 * wanted.k + HEADROOM;
    }

    /// No row whose real score lies below this can be among the first k.
    pub(super) fn floor(&self) -> f32 {
        self.floor
    }

    /// Learns of a floor found elsewhere, among other rows.
    pub(super) fn raise(&mut self, floor: f32) {
        self.floor = self.floor.max(floor);
    }

    /// Whether more rows would have to be kept than are worth it; nothing more is taken then.
    pub(super) fn gave_up(&self) -> bool {
        self.floor == f32::INFINITY
    }

    /// Takes a row, unless it is known not to matter.
    pub(super) fn offer(&mut self, row: Kept) {
        if row.upper < self.floor {
            return;
        }
        self.kept.push(row);
        self.learn(row.lower);
        if self.kept.len() >= self.full {
            self.throw_out();
        }
    }

    /// Raises the floor, if this lower end is among the k largest.
    fn learn(&mut self, lower: f32) {
        let lower = Reverse(Ordered::from(lower));
        if self.lowers.len() < self.k {
            self.lowers.push(lower);
            if self.lowers.len() < self.k {
                return;
            }
        } else if let Some(mut least) = self.lowers.peek_mut() {
            if lower >= *least {
                return;
            }
            *least = lower;
        }
        if let Some(Reverse(kth)) = self.lowers.peek() {
            self.raise(f32::from(*kth) - ROUNDING);
        }
    }

    /// Adds what another selector kept of other rows.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.raise(other.floor);
        for row in &other.kept {
            self.offer(*row);
        }
    }

    /// Drops what is below the floor by now.
    fn throw_out(&mut self) {
        self.kept.retain(|kept| kept.upper >= self.floor);
        if self.kept.len() > self.most {
            self.floor = f32::INFINITY;
            self.kept.clear();
        }
        // It takes time in proportion to what is kept, so that as many may come before the next time.
        self.full = 2 * self.kept.len() + HEADROOM;
    }

    /// The candidates, unless it gave up.
    pub(super) fn finish(&mut self, into: &mut Candidates) {
        self.throw_out();
        into.rows.clear();
        let mut widest = 0.0_f32;
        for Kept { row, lower, upper } in self.kept.iter().copied() {
            let raw = f32::midpoint(lower, upper);
            widest = widest.max(upper - raw).max(raw - lower);
            into.rows.push(Candidate { row, raw });
        }
        // A difference may have been rounded down.
        into.bound = widest.next_up();
        into.coverage = if self.gave_up() {
            Coverage::Unknown
        } else if self.floor == f32::NEG_INFINITY {
            Coverage::All
        } else {
            Coverage::AtMost(self.floor)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers `scores` as rows 0, 1, 2..., each off by at most `error`.
    fn offer(selector: &mut Selector, first_row: usize, scores: &[f32], error: f32) {
        for (row, score) in scores.iter().enumerate() {
            let row = (first_row + row) as u32;
            selector.offer(Kept { row, lower: score - error, upper: score + error });
        }
    }

    fn wanting(k: usize) -> Selector {
        let mut selector = Selector::default();
        selector.begin(Wanted { k, most: usize::MAX });
        selector
    }

    fn finish(mut selector: Selector) -> (Vec<u32>, Coverage) {
        let mut found = Candidates::default();
        selector.finish(&mut found);
        let mut rows: Vec<u32> = found.rows.iter().map(|c| c.row).collect();
        rows.sort_unstable();
        (rows, found.coverage)
    }

    fn select(scores: &[f32], k: usize, error: f32) -> (Vec<u32>, Coverage) {
        let mut selector = wanting(k);
        offer(&mut selector, 0, scores, error);
        finish(selector)
    }

    #[test]
    fn keeps_what_may_reach_the_kth() {
        let (rows, coverage) = select(&[0.1, 0.9, 0.5, 0.45, 0.3], 2, 0.03);
        assert_eq!(rows, [1, 2, 3]);
        let Coverage::AtMost(floor) = coverage else { panic!("{coverage:?}") };
        assert!((0.4699..0.47).contains(&floor), "{floor}");
    }

    #[test]
    fn keeps_all_rows_that_are_alike_unless_they_are_too_many() {
        assert_eq!(select(&[0.7; 1000], 3, 0.0).0.len(), 1000);
        let mut selector = Selector::default();
        selector.begin(Wanted { k: 3, most: 900 });
        offer(&mut selector, 0, &vec![0.7; 5000], 0.0);
        assert!(selector.gave_up());
        assert_eq!(finish(selector), (vec![], Coverage::Unknown));
    }

    #[test]
    fn the_bound_is_that_of_the_rows_that_are_kept() {
        let mut selector = wanting(1);
        selector.offer(Kept { row: 0, lower: -0.9, upper: 0.3 });
        selector.offer(Kept { row: 1, lower: 0.51, upper: 0.53 });
        selector.offer(Kept { row: 2, lower: 0.40, upper: 0.55 });
        let mut found = Candidates::default();
        selector.finish(&mut found);
        assert_eq!(found.rows.iter().map(|one| one.row).collect::<Vec<_>>(), [1, 2]);
        assert!((0.075..0.075_001).contains(&found.bound), "{}", found.bound);
        for (one, [lower, upper]) in found.rows.iter().zip([[0.51, 0.53], [0.40, 0.55]]) {
            assert!(one.raw - found.bound <= lower && upper <= one.raw + found.bound);
        }
    }

    #[test]
    fn fewer_rows_than_k_are_all_kept() {
        assert_eq!(select(&[0.7, 0.1], 3, 0.0), (vec![0, 1], Coverage::All));
        assert_eq!(select(&[0.7, 0.1], 2, 0.0).0, [0, 1]);
    }

    #[test]
    fn the_floor_is_that_of_the_rows_seen_at_every_moment() {
        let mut selector = wanting(3);
        let floors: Vec<f32> = [0.1_f32, 0.4, -0.2, 0.3, 0.05, 0.9, 0.31]
            .into_iter()
            .map(|score| {
                selector.offer(Kept { row: 0, lower: score, upper: 1.0 });
                selector.floor() + ROUNDING
            })
            .collect();
        let expected = [f32::NEG_INFINITY, f32::NEG_INFINITY, -0.2, 0.1, 0.1, 0.3, 0.31];
        assert!(
            floors.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits() || (a - b).abs() < 1e-7),
            "{floors:?}"
        );
    }

    #[test]
    fn an_uncertain_row_neither_displaces_nor_is_dropped() {
        let mut selector = wanting(1);
        offer(&mut selector, 0, &[0.5], 0.001);
        selector.offer(Kept { row: 1, lower: -0.4, upper: 0.6 });
        offer(&mut selector, 2, &[0.49], 0.001);
        assert_eq!(finish(selector).0, [0, 1]);
    }

    #[test]
    fn halves_seen_apart_give_what_the_whole_gives() {
        let scores: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.7).sin()).collect();
        let (left, right) = scores.split_at(1777);
        let mut selector = wanting(10);
        offer(&mut selector, 0, left, 5e-5);
        let mut other = wanting(10);
        offer(&mut other, 1777, right, 5e-5);
        selector.absorb(&other);
        assert_eq!(finish(selector), select(&scores, 10, 5e-5));
    }
}

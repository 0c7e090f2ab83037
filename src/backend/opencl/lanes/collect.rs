//! Gathers, on the host, what the device found for one probe: the merge over chunks of rows.
//!
//! Invariants: at most twice the wanted number of candidates is held. What the device says is checked, not believed: a row that
//! does not exist, was to be skipped or comes twice, a score that is not a number, or fewer rows than there must be make the
//! probe's coverage [`Coverage::Unknown`], never a wrong claim.

use std::ops::Range;

use crate::backend::opencl::rows::Rows;
use crate::backend::{Candidate, Candidates, Coverage, RowSet};

use super::bound::error_bound;

/// The row number of a place in a list that no row fills, as in `lanes.cl`.
const NO_ROW: u32 = u32::MAX;

/// What was scanned.
#[derive(Clone, Debug)]
pub(super) struct Scanned {
    /// Which rows in all.
    pub(super) rows: Range<u32>,
    /// How far a raw score may be off.
    pub(super) bound: f32,
}

impl Scanned {
    /// All rows that are there.
    pub(super) fn all_of(rows: &Rows) -> Self {
        let Range { start, end } = *rows.range();
        Self { rows: start as u32..end as u32, bound: error_bound(rows.matrix().stride()) }
    }
}

/// The candidates of one probe so far.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    skips: &'a RowSet,
    /// How many candidates are wanted.
    wanted: usize,
    held: Vec<Candidate>,
    /// The lowest score that still can enter; nothing below it is taken.
    floor: f32,
    sound: bool,
    invalid_indices: u64,
}

impl<'a> Collector<'a> {
    /// For a probe that skips `skips` and wants the best `wanted` rows.
    pub(super) fn new(skips: &'a RowSet, wanted: usize) -> Self {
        let held = Vec::new();
        Self { skips, wanted, held, floor: f32::NEG_INFINITY, sound: true, invalid_indices: 0 }
    }

    /// Takes the list that the device made of the rows in `chunk`: its best `indices.len()` rows, in any order.
    pub(super) fn take_list(&mut self, chunk: Range<u32>, scores: &[f32], indices: &[u32]) {
        let mut taken = 0;
        for (&raw, &row) in scores.iter().zip(indices) {
            if row == NO_ROW {
                continue;
            }
            if !chunk.contains(&row) {
                self.invalid_indices += 1;
                self.sound = false;
            } else if self.skips.contains(row) {
                self.sound = false;
            } else {
                taken += 1;
                self.offer(row, raw);
            }
        }
        // A list is full, or holds all there is; else what it left out is not below what it holds.
        self.sound &= taken == eligible(self.skips, &chunk).min(indices.len());
    }

    /// Takes the score of one row, of a device that tells every row's.
    pub(super) fn take_score(&mut self, row: u32, raw: f32) {
        let enters = raw > self.floor || self.held.len() < self.wanted || raw.is_nan();
        if enters && !self.skips.contains(row) {
            self.offer(row, raw);
        }
    }

    fn offer(&mut self, row: u32, raw: f32) {
        if !raw.is_finite() {
            self.sound = false;
        } else if raw > self.floor || self.held.len() < self.wanted {
            self.held.push(Candidate { row, raw });
            if self.held.len() >= 2 * self.wanted {
                self.cut();
            }
        }
    }

    /// Keeps the best `wanted`.
    fn cut(&mut self) {
        if self.held.len() > self.wanted {
            self.held.select_nth_unstable_by(self.wanted - 1, |a, b| b.raw.total_cmp(&a.raw));
            self.held.truncate(self.wanted);
        }
        if self.held.len() == self.wanted {
            self.floor = lowest(&self.held);
        }
    }

    /// Gives the candidates, and how many row numbers did not exist.
    pub(super) fn finish(mut self, scanned: &Scanned, into: &mut Candidates) -> u64 {
        let Scanned { rows, bound } = scanned;
        let bound = *bound;
        self.cut();
        let all = eligible(self.skips, rows);
        self.held.sort_unstable_by_key(|candidate| candidate.row);
        let before = self.held.len();
        self.held.dedup_by_key(|candidate| candidate.row);
        let complete = self.held.len() == before && before == all.min(self.wanted);
        let coverage = if !self.sound || !complete {
            Coverage::Unknown
        } else if before == all {
            Coverage::All
        } else {
            Coverage::below_raw(lowest(&self.held), bound)
        };
        *into = Candidates { rows: self.held, coverage, bound };
        self.invalid_indices
    }
}

fn lowest(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|candidate| candidate.raw).fold(f32::INFINITY, f32::min)
}

/// How many rows of `rows` are not skipped.
fn eligible(skips: &RowSet, rows: &Range<u32>) -> usize {
    let ranges = skips.ranges();
    let first = ranges.partition_point(|(_, end)| *end <= rows.start);
    let skipped: usize = ranges[first..]
        .iter()
        .take_while(|(start, _)| *start < rows.end)
        .map(|(start, end)| (*end.min(&rows.end) - *start.max(&rows.start)) as usize)
        .sum();
    rows.len() - skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(collector: Collector<'_>, rows: u32) -> (Candidates, u64) {
        let mut found = Candidates::default();
        let invalid = collector.finish(&Scanned { rows: 0..rows, bound: 0.25 }, &mut found);
        (found, invalid)
    }

    fn rows_of(candidates: &Candidates) -> Vec<u32> {
        candidates.rows.iter().map(|candidate| candidate.row).collect()
    }

    #[test]
    fn lists_of_several_chunks_become_the_best_of_all() {
        let none = RowSet::default();
        let mut collector = Collector::new(&none, 2);
        collector.take_list(0..3, &[0.5, 0.9], &[0, 2]);
        collector.take_list(3..5, &[0.7, 0.1], &[4, 3]);
        let (candidates, invalid) = finish(collector, 5);
        assert_eq!((rows_of(&candidates), invalid), (vec![2, 4], 0));
        assert_eq!((candidates.coverage, candidates.bound), (Coverage::below_raw(0.7, 0.25), 0.25));
    }

    #[test]
    fn a_probe_whose_rows_are_all_there_is_covered_wholly() {
        let skips = RowSet::from_ranges(vec![(1, 3)]);
        let mut collector = Collector::new(&skips, 4);
        collector.take_list(0..4, &[0.5, 0.9, f32::MIN, f32::MIN], &[0, 3, NO_ROW, NO_ROW]);
        let (candidates, _) = finish(collector, 4);
        assert_eq!((rows_of(&candidates), candidates.coverage), (vec![0, 3], Coverage::All));
    }

    #[test]
    fn what_a_device_gets_wrong_makes_the_coverage_unknown() {
        let skips = RowSet::from_ranges(vec![(1, 2)]);
        let faults: [(&str, &[f32], &[u32], u64); 5] = [
            ("a row that does not exist", &[0.5, 0.9], &[0, 9], 1),
            ("a skipped row", &[0.5, 0.9], &[0, 1], 0),
            ("a row twice", &[0.5, 0.5], &[0, 0], 0),
            ("not a number", &[0.5, f32::NAN], &[0, 2], 0),
            ("too few rows", &[0.5, f32::MIN], &[0, NO_ROW], 0),
        ];
        for (fault, scores, indices, expected) in faults {
            let mut collector = Collector::new(&skips, 2);
            collector.take_list(0..4, scores, indices);
            let (candidates, invalid) = finish(collector, 4);
            assert_eq!((candidates.coverage, invalid), (Coverage::Unknown, expected), "{fault}");
            assert_eq!(rows_of(&candidates), [0], "{fault}");
        }
    }

    #[test]
    fn single_scores_keep_the_best_of_many() {
        let none = RowSet::default();
        let mut collector = Collector::new(&none, 3);
        // 1009 is prime: every multiple is another remainder.
        for row in 0..1009_u32 {
            collector.take_score(row, (row * 7 % 1009) as f32);
        }
        let (candidates, _) = finish(collector, 1009);
        let mut best: Vec<f32> = candidates.rows.iter().map(|candidate| candidate.raw).collect();
        best.sort_by(f32::total_cmp);
        assert_eq!(best, [1006.0, 1007.0, 1008.0]);
        assert_eq!(candidates.coverage, Coverage::below_raw(1006.0, 0.25));
    }

    #[test]
    fn eligible_rows_are_counted_across_the_edges_of_ranges() {
        let skips = RowSet::from_ranges(vec![(0, 2), (5, 9), (20, 30)]);
        assert_eq!(eligible(&skips, &(0..10)), 4);
        assert_eq!(eligible(&skips, &(6..8)), 0);
        assert_eq!(eligible(&skips, &(9..20)), 11);
        assert_eq!(eligible(&skips, &(25..40)), 10);
    }
}

//! The same question to several backends, one after the other: times side by side, and whether the answers are the same.

use comfy_table::Table;
use serde::Serialize;

use super::report::{Report, table_of_columns};
use crate::engine::Ranked;

/// Several backends, each of the others against the first.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) backends: Vec<Report>,
    pub(super) against_first: Vec<Against>,
}

/// A backend against the first.
#[derive(Debug, Serialize)]
pub(super) struct Against {
    backend: String,
    /// The first's median time by this one's.
    speedup: f64,
    /// Positions of the first's answer, and how many of them hold the same row with the same score, to the bit.
    positions: usize,
    identical: usize,
}

impl Comparison {
    /// Of at least one measurement.
    pub(super) fn of(measured: Vec<(Report, Vec<Vec<Ranked>>)>) -> Self {
        let (backends, answers): (Vec<Report>, Vec<_>) = measured.into_iter().unzip();
        let against = |(report, answer): (&Report, &Vec<Vec<Ranked>>)| {
            let (positions, identical) = identical(&answers[0], answer);
            Against {
                backend: report.backend.clone(),
                speedup: backends[0].median_ms / report.median_ms,
                positions,
                identical,
            }
        };
        let against_first = backends.iter().zip(&answers).skip(1).map(against).collect();
        Self { backends, against_first }
    }

    /// Positions of all comparisons that are not identical.
    pub(super) fn differing(&self) -> usize {
        self.against_first.iter().map(|one| one.positions - one.identical).sum()
    }

    pub(super) fn as_table(&self) -> Table {
        let mut columns: Vec<_> = self.backends.iter().map(Report::column).collect();
        columns[0].extend([String::new(), String::new()]);
        for (column, Against { backend: _, speedup, positions, identical }) in
            columns[1..].iter_mut().zip(&self.against_first)
        {
            column.extend([format!("{speedup:.3} x"), format!("{identical} of {positions}")]);
        }
        let first = &self.backends[0].backend;
        let more = [format!("speed-up over {first}"), format!("positions as {first}'s")];
        table_of_columns(&more, columns)
    }
}

/// How many positions `expected` has, and how many of them hold the same row with the same bits in `got`.
pub(super) fn identical(expected: &[Vec<Ranked>], got: &[Vec<Ranked>]) -> (usize, usize) {
    let same = |(got, expected): &(&Ranked, &Ranked)| {
        got.row == expected.row && got.score.to_bits() == expected.score.to_bits()
    };
    let pairs = got.iter().zip(expected).flat_map(|(got, expected)| got.iter().zip(expected));
    (expected.iter().map(Vec::len).sum(), pairs.filter(same).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_identical_by_row_and_by_bits() {
        let ranked = |row, score| Ranked { row, score, raw: None };
        let expected = [vec![ranked(1, 0.5), ranked(2, 0.25)], vec![ranked(7, 0.5)]];
        assert_eq!(identical(&expected, &expected), (3, 3));
        let other = [vec![ranked(1, 0.5_f32.next_up()), ranked(2, 0.25)], vec![ranked(8, 0.5)]];
        assert_eq!(identical(&expected, &other), (3, 1));
        assert_eq!(identical(&expected, &[vec![ranked(1, 0.5)], Vec::new()]), (3, 1));
    }
}

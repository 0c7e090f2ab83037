//! The last resort: canonical scores of all rows. Right whatever a backend did.

use rayon::prelude::*;

use super::Ranked;
use super::verify::{Question, keep_first};
use crate::domain::Scorer;
use crate::gallery::Snapshot;

/// Rows that stay in a core's cache while all probes pass.
const BLOCK_ROWS: usize = 256;

/// The first rows seen so far of one probe.
#[derive(Clone)]
struct First {
    kept: Vec<Ranked>,
    /// A row of a lower score is not among the first k.
    cut: f32,
}

impl First {
    fn new() -> Self {
        Self { kept: Vec::new(), cut: f32::NEG_INFINITY }
    }

    fn take(&mut self, snapshot: &Snapshot, k: usize, ranked: Ranked) {
        // An equal score may have the lower index.
        if ranked.score >= self.cut {
            self.kept.push(ranked);
            if self.kept.len() >= k.saturating_mul(2).saturating_add(64) {
                self.prune(snapshot, k);
            }
        }
    }

    fn prune(&mut self, snapshot: &Snapshot, k: usize) {
        keep_first(snapshot, &mut self.kept, k);
        if let Some(last) = self.kept.get(k.saturating_sub(1)) {
            self.cut = last.score;
        }
    }
}

/// The first rows of every probe by the canonical scores of all rows, on the threads of the pool it is called in.
pub(super) fn scan(snapshot: &Snapshot, questions: &[Question<'_>]) -> Vec<Vec<Ranked>> {
    let matrix = snapshot.matrix();
    let none = || vec![First::new(); questions.len()];
    let mut scorers = vec![Scorer::default(); questions.len()];
    scorers.iter_mut().zip(questions).for_each(|(scorer, question)| scorer.take(question.probe));
    let mut firsts = (0..matrix.rows().div_ceil(BLOCK_ROWS))
        .into_par_iter()
        .fold(none, |mut firsts, block| {
            let rows = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(matrix.rows());
            for ((question, scorer), first) in questions.iter().zip(&scorers).zip(&mut firsts) {
                let rows = rows.clone().map(|row| row as u32).filter(|row| !question.skip.contains(*row));
                for row in rows {
                    let score = scorer.score(matrix.row(row as usize));
                    first.take(snapshot, question.k, Ranked { row, score, raw: None });
                }
            }
            firsts
        })
        .reduce(none, |mut firsts, others| {
            for ((first, other), question) in firsts.iter_mut().zip(others).zip(questions) {
                for ranked in other.kept {
                    first.take(snapshot, question.k, ranked);
                }
            }
            firsts
        });
    for (first, question) in firsts.iter_mut().zip(questions) {
        first.prune(snapshot, question.k);
    }
    firsts.into_iter().map(|first| first.kept).collect()
}

#[cfg(test)]
mod tests {
    use super::super::verify::tests::{fan, index_of};
    use super::*;
    use crate::backend::RowSet;

    #[test]
    fn the_full_scan_ranks_ties_by_index_and_skips() {
        let snapshot = fan(9000);
        let row_of_0 = snapshot.rows().position(|row| row.index == 0).unwrap() as u32;
        let skip = RowSet::from_ranges(vec![(row_of_0, row_of_0 + 1)]);
        let questions = [
            Question { probe: &[1.0, 0.0], skip: &skip, k: 4 },
            Question { probe: &[0.0, 1.0], skip: &skip, k: 9000 },
        ];
        let answers = scan(&snapshot, &questions);
        let ranked = &answers[0];
        assert_eq!(answers[1].len(), 8999);
        // 2 pi hundredths of a radian later the fan has come round: rows 1256 and 1257 stand at 6.28.
        assert_eq!(index_of(&snapshot, ranked)[0], 1);
        assert_eq!(ranked.len(), 4);
        assert!(ranked.windows(2).all(|pair| pair[0].score >= pair[1].score));
    }
}

//! From candidates to a certified answer.
//!
//! The candidates' canonical scores are computed and sorted; the certificate holds if no row outside of them can reach the
//! k-th place: the most that a row left out can really score stays below the k-th canonical score. Rounding to `f32` is
//! monotone, so the comparison may be made after it. Raw scores are checked against the canonical ones too, since a
//! bound that does not hold proves nothing.

use rayon::prelude::*;

use super::Ranked;
use crate::backend::{Candidates, Coverage, RowSet};
use crate::domain::{by_rank, canonical_score};
use crate::gallery::Snapshot;

/// Half a unit in the last place of a score near 1: what rounding the canonical score may add to an honest raw error.
const SCORE_ROUNDING: f32 = 6.1e-8;

/// More than the `f64` sum behind a canonical score may differ from the real dot product of two embeddings: 4096 roundings of 2^-53
/// each are less than half of it. It decides only where scores are nearly 0.
const SUM_ERROR: f64 = 1e-12;

/// Rows that one task of a scan at full precision takes.
const BLOCK_ROWS: usize = 4096;

/// One probe and what it leaves out.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) probe: &'a [f32],
    pub(super) skip: &'a RowSet,
    pub(super) k: usize,
}

/// What became of one probe's candidates.
pub(super) struct Verdict {
    pub(super) ranked: Vec<Ranked>,
    /// Whether `ranked` is proven to be the answer.
    pub(super) certified: bool,
    /// Raw scores further from the canonical ones than the bound allows.
    pub(super) bound_violations: u64,
}

/// Ranks a probe's candidates by canonical score and says whether they are the answer.
pub(super) fn verify(snapshot: &Snapshot, question: Question<'_>, found: &Candidates) -> Verdict {
    let matrix = snapshot.matrix();
    let mut bound_violations = 0;
    let mut ranked: Vec<Ranked> = found
        .rows
        .iter()
        .map(|candidate| {
            let score = canonical_score(question.probe, matrix.row(candidate.row as usize));
            // Written so that NaN counts as a violation.
            let honest = (candidate.raw - score).abs() <= found.bound + SCORE_ROUNDING;
            bound_violations += u64::from(!honest);
            Ranked { row: candidate.row, score, raw: Some(candidate.raw) }
        })
        .collect();
    keep_first(snapshot, &mut ranked, question.k);
    let eligible = matrix.rows() - question.skip.len();
    let complete = ranked.len() == question.k.min(eligible);
    let certified = bound_violations == 0
        && complete
        && match found.coverage {
            Coverage::All => found.rows.len() == eligible,
            Coverage::Exact => true,
            Coverage::AtMost(floor) => ranked.last().is_some_and(|last| {
                let reach = f64::from(floor) + SUM_ERROR;
                (reach as f32) < last.score
            }),
            Coverage::Unknown => false,
        };
    Verdict { ranked, certified, bound_violations }
}

/// The answer by canonical scores of all rows: the last resort, and right whatever a backend did.
pub(super) fn full_scan(snapshot: &Snapshot, question: Question<'_>) -> Vec<Ranked> {
    let matrix = snapshot.matrix();
    let mut ranked: Vec<Ranked> = (0..matrix.rows().div_ceil(BLOCK_ROWS))
        .into_par_iter()
        .flat_map_iter(|block| {
            let rows = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(matrix.rows());
            let mut ranked: Vec<Ranked> = rows
                .map(|row| row as u32)
                .filter(|row| !question.skip.contains(*row))
                .map(|row| {
                    let score = canonical_score(question.probe, matrix.row(row as usize));
                    Ranked { row, score, raw: None }
                })
                .collect();
            keep_first(snapshot, &mut ranked, question.k);
            ranked
        })
        .collect();
    keep_first(snapshot, &mut ranked, question.k);
    ranked
}

/// Sorts by the total order and keeps the first `k`.
fn keep_first(snapshot: &Snapshot, ranked: &mut Vec<Ranked>, k: usize) {
    let rows = snapshot.rows();
    let order = |a: &Ranked, b: &Ranked| {
        by_rank((a.score, rows[a.row as usize].index), (b.score, rows[b.row as usize].index))
    };
    if ranked.len() > k {
        ranked.select_nth_unstable_by(k - 1, order);
        ranked.truncate(k);
    }
    ranked.sort_unstable_by(order);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Candidate;
    use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
    use crate::gallery::GalleryProfile;

    /// Rows at 0, 1, 2... hundredths of a radian from the x axis, every second one twice.
    fn fan(rows: usize) -> Snapshot {
        let prototypes = (0..rows)
            .map(|row| {
                let angle = (row / 2) as f32 / 100.0;
                let prototype = Prototype {
                    key: PrototypeKey { identity: format!("p{}", row % 3), id: row.to_string() },
                    source: String::new(),
                    origin: Origin::default(),
                    created_ms: 0,
                    embedding: Embedding::parse(vec![angle.cos(), angle.sin()], 2, NormPolicy::Normalise)
                        .unwrap(),
                };
                (row as u64, prototype)
            })
            .collect();
        Snapshot::new(GalleryProfile::named("fan", 2), Vec::new(), prototypes)
    }

    fn index_of(snapshot: &Snapshot, ranked: &[Ranked]) -> Vec<u64> {
        ranked.iter().map(|r| snapshot.rows()[r.row as usize].index).collect()
    }

    fn candidates(snapshot: &Snapshot, indices: &[u64], coverage: Coverage, bound: f32) -> Candidates {
        let rows = snapshot.rows().iter().enumerate().filter(|(_, row)| indices.contains(&row.index));
        let rows = rows
            .map(|(row, _)| Candidate {
                row: row as u32,
                raw: canonical_score(&[1.0, 0.0], snapshot.matrix().row(row)),
            })
            .collect();
        Candidates { rows, coverage, bound }
    }

    #[test]
    fn a_certificate_holds_only_where_nothing_left_out_can_reach_the_kth_place() {
        let snapshot = fan(20);
        let skip = RowSet::default();
        let question = Question { probe: &[1.0, 0.0], skip: &skip, k: 3 };
        let third = canonical_score(&[1.0, 0.0], &[0.01_f32.cos(), 0.01_f32.sin()]);
        let check = |indices: &[u64], coverage| {
            let verdict = verify(&snapshot, question, &candidates(&snapshot, indices, coverage, 1e-6));
            (index_of(&snapshot, &verdict.ranked), verdict.certified)
        };
        let first = vec![0, 1, 2];
        assert_eq!(check(&[0, 1, 2], Coverage::AtMost(third.next_down())), (first.clone(), true));
        // Row 3 ties with row 2: left out, it could have had the lower index.
        assert_eq!(check(&[0, 1, 2], Coverage::AtMost(third)), (first.clone(), false));
        assert_eq!(check(&[0, 1, 2], Coverage::Exact), (first, true));
        assert!(!check(&[0, 1, 2], Coverage::Unknown).1);
        assert!(!check(&[0, 1, 2], Coverage::All).1, "17 rows are not there");
        assert!(!check(&[0, 1], Coverage::Exact).1, "two are not three");
    }

    #[test]
    fn a_raw_score_beyond_the_bound_voids_the_certificate() {
        let snapshot = fan(4);
        let skip = RowSet::default();
        let question = Question { probe: &[1.0, 0.0], skip: &skip, k: 1 };
        for wrong in [f32::NAN, 1.1] {
            let mut found = candidates(&snapshot, &[0, 1, 2, 3], Coverage::All, 1e-3);
            found.rows[2].raw = wrong;
            let verdict = verify(&snapshot, question, &found);
            assert_eq!((verdict.certified, verdict.bound_violations), (false, 1));
        }
    }

    #[test]
    fn the_full_scan_ranks_ties_by_index_and_skips() {
        let snapshot = fan(9000);
        let row_of_0 = snapshot.rows().iter().position(|row| row.index == 0).unwrap() as u32;
        let skip = RowSet::from_ranges(vec![(row_of_0, row_of_0 + 1)]);
        let ranked = full_scan(&snapshot, Question { probe: &[1.0, 0.0], skip: &skip, k: 4 });
        // 2 pi hundredths of a radian later the fan has come round: rows 1256 and 1257 stand at 6.28.
        assert_eq!(index_of(&snapshot, &ranked)[0], 1);
        assert_eq!(ranked.len(), 4);
        assert!(ranked.windows(2).all(|pair| pair[0].score >= pair[1].score));
    }
}

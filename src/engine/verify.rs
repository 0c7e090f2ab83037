//! From candidates to a certified answer.
//!
//! The candidates' canonical scores are computed and sorted; the certificate holds if no row outside of them can reach the
//! k-th place: the most that a row left out can really score stays below the k-th canonical score. Rounding to `f32` is
//! monotone, so the comparison may be made after it. Raw scores are checked against the canonical ones too, since a
//! bound that does not hold proves nothing. A backend that gives canonical scores itself is checked by samples.

use super::{Ranked, RawCheck};
use crate::backend::{Candidate, Candidates, Coverage, RowSet};
use crate::domain::{Scorer, by_rank};
use crate::gallery::Snapshot;

/// Half a unit in the last place of a score near 1: what rounding the canonical score may add to an honest raw error.
const SCORE_ROUNDING: f32 = 6.1e-8;

/// More than the `f64` sum behind a canonical score may differ from the real dot product of two embeddings: 4096 roundings of 2^-53
/// each are less than half of it. It decides only where scores are nearly 0.
const SUM_ERROR: f64 = 1e-12;

/// How many candidates ahead rows are fetched from memory.
const AHEAD: usize = 4;

/// Of so many lists of canonical scores, about, a score of one is computed again.
const LISTS_A_SAMPLE: u32 = 8;

/// So many canonical scores take as long to take over as one to compute.
const TAKEN_A_SCORE: usize = 32;

/// Most candidates of a probe whose memory is kept for the next batch.
const KEPT_CANDIDATES: usize = 4096;

/// One probe and what it leaves out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) probe: &'a [f32],
    pub(super) skip: &'a RowSet,
    pub(super) k: usize,
}

/// What became of one probe's candidates; used again for the next.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) ranked: Vec<Ranked>,
    /// Whether `ranked` is proven to be the answer.
    pub(super) certified: bool,
    /// What the raw scores showed.
    pub(super) check: RawCheck,
    /// Candidates with their canonical scores.
    scored: Vec<Ranked>,
    scorer: Scorer,
}

/// Ranks a probe's candidates by canonical score and says whether they are the answer. Puts the candidates in another order.
pub(super) fn verify(
    snapshot: &Snapshot,
    question: Question<'_>,
    found: &mut Candidates,
    verdict: &mut Verdict,
) {
    if found.coverage == Coverage::Exact {
        return accept(snapshot, question, found, verdict);
    }
    let k = question.k;
    let first = found.rows.len().min(k);
    if found.rows.len() > k {
        // Not a number ranks first or last here, and is computed in either case.
        found.rows.select_nth_unstable_by(k - 1, |a, b| b.raw.total_cmp(&a.raw));
    }
    verdict.scorer.take(question.probe);
    verdict.scored.clear();
    verdict.check = RawCheck { bound: found.bound, ..RawCheck::default() };
    score(snapshot, (&found.rows[..first], found.bound), verdict);
    let kth = verdict.scored.iter().map(|one| one.score).fold(f32::INFINITY, f32::min);
    let mut reaching = first;
    for place in first..found.rows.len() {
        // What is not a number is not below it.
        let below = most(found.rows[place].raw, found.bound) < kth;
        if !below {
            found.rows.swap(reaching, place);
            reaching += 1;
        }
    }
    score(snapshot, (&found.rows[first..reaching], found.bound), verdict);
    keep_first(snapshot, &mut verdict.scored, k);
    verdict.ranked = verdict.scored.clone();
    verdict.scored.shrink_to(KEPT_CANDIDATES);
    let eligible = snapshot.matrix().rows() - question.skip.len();
    let complete = verdict.ranked.len() == k.min(eligible);
    verdict.certified = verdict.check.violations == 0
        && complete
        && match found.coverage {
            Coverage::All => found.rows.len() == eligible,
            Coverage::Exact | Coverage::Unknown => false,
            Coverage::AtMost(floor) => {
                verdict.ranked.last().is_some_and(|last| most(floor, 0.0) < last.score)
            }
        };
}

/// How much work a probe's candidates are, in canonical scores that are computed.
pub(super) fn scores(found: &Candidates) -> usize {
    match found.coverage {
        Coverage::Exact => found.rows.len() / TAKEN_A_SCORE,
        Coverage::All | Coverage::AtMost(_) | Coverage::Unknown => found.rows.len(),
    }
}

/// Takes over raw scores that are canonical ones already. Some are computed again, a different one each time, so that a backend that makes
/// the claim and computes wrongly does not go on unnoticed.
fn accept(snapshot: &Snapshot, question: Question<'_>, found: &mut Candidates, verdict: &mut Verdict) {
    verdict.scored.clear();
    verdict.check = RawCheck { bound: found.bound, ..RawCheck::default() };
    if let Some(last) = found.rows.last().filter(|last| last.row % LISTS_A_SAMPLE == 0) {
        verdict.scorer.take(question.probe);
        let place = (last.row / LISTS_A_SAMPLE) as usize % found.rows.len();
        score(snapshot, (&found.rows[place..=place], found.bound), verdict);
    }
    let taken = |one: &Candidate| Ranked { row: one.row, score: one.raw, raw: Some(one.raw) };
    verdict.ranked = found.rows.iter().map(taken).collect();
    keep_first(snapshot, &mut verdict.ranked, question.k);
    let eligible = snapshot.matrix().rows() - question.skip.len();
    verdict.certified = verdict.check.violations == 0 && verdict.ranked.len() == question.k.min(eligible);
}

/// The most that the canonical score of a row can be whose real one is at most `raw + bound`.
fn most(raw: f32, bound: f32) -> f32 {
    (f64::from(raw) + f64::from(bound) + SUM_ERROR) as f32
}

/// Computes the canonical scores of some candidates, and holds their raw ones against them.
fn score(snapshot: &Snapshot, (candidates, bound): (&[Candidate], f32), verdict: &mut Verdict) {
    let matrix = snapshot.matrix();
    candidates.iter().take(AHEAD).for_each(|candidate| matrix.prefetch(candidate.row as usize));
    for (place, candidate) in candidates.iter().enumerate() {
        if let Some(ahead) = candidates.get(place + AHEAD) {
            matrix.prefetch(ahead.row as usize);
        }
        let score = verdict.scorer.score(matrix.row(candidate.row as usize));
        // Written so that NaN counts as a violation.
        let error = (candidate.raw - score).abs();
        let honest = error <= bound + SCORE_ROUNDING;
        verdict.check.violations += u64::from(!honest);
        verdict.check.error = if error.is_nan() { f32::INFINITY } else { verdict.check.error.max(error) };
        verdict.scored.push(Ranked { row: candidate.row, score, raw: Some(candidate.raw) });
    }
}

/// Sorts by the total order and keeps the first `k`.
pub(super) fn keep_first(snapshot: &Snapshot, ranked: &mut Vec<Ranked>, k: usize) {
    let order = |a: &Ranked, b: &Ranked| {
        by_rank((a.score, || snapshot.index(a.row as usize)), (b.score, || snapshot.index(b.row as usize)))
    };
    // As a device's answers come.
    if ranked.is_sorted_by(|a, b| order(a, b).is_lt()) {
        return ranked.truncate(k);
    }
    if ranked.len() > k {
        ranked.select_nth_unstable_by(k - 1, order);
        ranked.truncate(k);
    }
    ranked.sort_unstable_by(order);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey, canonical_score};
    use crate::gallery::GalleryProfile;

    /// Rows at 0, 1, 2... hundredths of a radian from the x axis, every second one twice.
    pub(in crate::engine) fn fan(rows: usize) -> Snapshot {
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

    pub(in crate::engine) fn index_of(snapshot: &Snapshot, ranked: &[Ranked]) -> Vec<u64> {
        ranked.iter().map(|r| snapshot.index(r.row as usize)).collect()
    }

    fn candidates(snapshot: &Snapshot, indices: &[u64], coverage: Coverage, bound: f32) -> Candidates {
        let rows = snapshot.rows().enumerate().filter(|(_, row)| indices.contains(&row.index));
        let rows = rows
            .map(|(row, _)| Candidate {
                row: row as u32,
                raw: canonical_score(&[1.0, 0.0], snapshot.matrix().row(row)),
            })
            .collect();
        Candidates { rows, coverage, bound }
    }

    fn judge(snapshot: &Snapshot, question: Question<'_>, found: &mut Candidates) -> Verdict {
        let mut verdict = Verdict::default();
        verify(snapshot, question, found, &mut verdict);
        verdict
    }

    #[test]
    fn a_certificate_holds_only_where_nothing_left_out_can_reach_the_kth_place() {
        let snapshot = fan(20);
        let skip = RowSet::default();
        let question = Question { probe: &[1.0, 0.0], skip: &skip, k: 3 };
        let third = canonical_score(&[1.0, 0.0], &[0.01_f32.cos(), 0.01_f32.sin()]);
        let check = |indices: &[u64], coverage| {
            let verdict = judge(&snapshot, question, &mut candidates(&snapshot, indices, coverage, 1e-6));
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
            let verdict = judge(&snapshot, question, &mut found);
            assert_eq!((verdict.certified, verdict.check.violations), (false, 1));
        }
    }

    /// Raw scores as far off as the bound allows: those that cannot reach the k-th place are not computed, and none is missed.
    #[test]
    fn what_cannot_reach_the_kth_place_is_not_computed() {
        let snapshot = fan(600);
        let skip = RowSet::default();
        let question = Question { probe: &[1.0, 0.0], skip: &skip, k: 6 };
        let indices: Vec<u64> = (0..600).collect();
        let mut found = candidates(&snapshot, &indices, Coverage::All, 2e-3);
        for (place, candidate) in found.rows.iter_mut().enumerate() {
            candidate.raw += 1.9e-3 * (place as f32 * 0.7).sin();
        }
        let verdict = judge(&snapshot, question, &mut found);
        assert_eq!(index_of(&snapshot, &verdict.ranked), [0, 1, 2, 3, 4, 5]);
        assert!(verdict.certified);
        // Beyond the bound, where it could not matter: nobody looks.
        let last = found.rows.iter_mut().min_by(|a, b| a.raw.total_cmp(&b.raw)).unwrap();
        last.raw -= 0.1;
        assert_eq!(judge(&snapshot, question, &mut found).check.violations, 0);
        // Where it could, it is found out.
        let best = found.rows.iter_mut().max_by(|a, b| a.raw.total_cmp(&b.raw)).unwrap();
        best.raw += 0.1;
        let verdict = judge(&snapshot, question, &mut found);
        assert_eq!((verdict.certified, verdict.check.violations), (false, 1));
    }
}

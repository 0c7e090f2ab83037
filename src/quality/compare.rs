//! Two backends' answers to the same probes: what each would have served, and what each computed before it was verified.

use serde::Serialize;

use crate::domain::by_rank;
use crate::engine::Ranked;
use crate::gallery::Snapshot;
use crate::recognize::Recognition;

/// All that one backend answered.
#[derive(Debug)]
pub struct Answers {
    /// Who each probe is, its own rows left out.
    pub recognitions: Vec<Recognition>,
    /// The first rows of each probe, nothing left out.
    pub whole: Vec<Vec<Ranked>>,
    /// The first rows of each probe, its own rows left out.
    pub left_out: Vec<Vec<Ranked>>,
}

/// Positions of lists of rows, and how many hold the same row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Positions {
    /// All.
    pub of: usize,
    /// Served alike: the same row with the same score, to the bit.
    pub served: usize,
    /// Computed alike: the same row, where each list is put in the order of what its backend computed.
    pub raw: usize,
}

/// How far a backend agrees with the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// The backend.
    pub backend: String,
    /// Probes asked about.
    pub probes: usize,
    /// Probes whose nearest identity differs.
    pub top1_differing: usize,
    /// Probes of which another conclusion was drawn.
    pub decisions_differing: usize,
    /// Positions of the first rows.
    pub positions: Positions,
    /// The same with each probe's own rows left out.
    pub positions_left_out: Positions,
    /// Largest difference between a score as this backend computed it and the first's of the same row.
    pub largest_raw_difference: f64,
    /// Largest difference between a score as this backend computed it and the canonical one.
    pub largest_error: f64,
}

impl Agreement {
    /// Of `other` with `first`, which answered the same.
    pub fn of(snapshot: &Snapshot, backend: &str, first: &Answers, other: &Answers) -> Self {
        let pairs = || first.recognitions.iter().zip(&other.recognitions);
        let nearest =
            |one: &Recognition| one.candidates.first().map(|best| snapshot.identity_of(best.row as usize));
        let lists = || {
            let whole = first.whole.iter().zip(&other.whole);
            whole.chain(first.left_out.iter().zip(&other.left_out))
        };
        let error = |ranked: &Ranked| difference(raw(ranked), ranked.score);
        Self {
            backend: backend.to_owned(),
            probes: first.recognitions.len(),
            top1_differing: pairs().filter(|(a, b)| nearest(a) != nearest(b)).count(),
            decisions_differing: pairs().filter(|(a, b)| a.verdict.decision != b.verdict.decision).count(),
            positions: positions(snapshot, &first.whole, &other.whole),
            positions_left_out: positions(snapshot, &first.left_out, &other.left_out),
            largest_raw_difference: lists().flat_map(|(a, b)| raw_differences(a, b)).fold(0.0, f64::max),
            largest_error: lists().flat_map(|(_, b)| b.iter().map(error)).fold(0.0, f64::max),
        }
    }

    /// Whether everything that was served is the same.
    pub fn is_complete(&self) -> bool {
        let served = |positions: &Positions| positions.served == positions.of;
        self.top1_differing + self.decisions_differing == 0
            && served(&self.positions)
            && served(&self.positions_left_out)
    }
}

fn positions(snapshot: &Snapshot, first: &[Vec<Ranked>], other: &[Vec<Ranked>]) -> Positions {
    let mut positions = Positions { of: first.iter().map(Vec::len).sum(), ..Positions::default() };
    for (a, b) in first.iter().zip(other) {
        let same = |(a, b): &(&Ranked, &Ranked)| a.row == b.row && a.score.to_bits() == b.score.to_bits();
        positions.served += a.iter().zip(b).filter(same).count();
        let (a, b) = (by_raw(snapshot, a), by_raw(snapshot, b));
        positions.raw += a.iter().zip(&b).filter(|(a, b)| a == b).count();
    }
    positions
}

/// The rows of a list in the order of what its backend computed.
fn by_raw(snapshot: &Snapshot, list: &[Ranked]) -> Vec<u32> {
    let mut list = list.to_vec();
    let index = |ranked: &Ranked| snapshot.index(ranked.row as usize);
    list.sort_by(|a, b| by_rank((raw(a), || index(a)), (raw(b), || index(b))));
    list.iter().map(|ranked| ranked.row).collect()
}

/// What the backend computed; where it was asked again at full precision, that.
fn raw(ranked: &Ranked) -> f32 {
    ranked.raw.unwrap_or(ranked.score)
}

fn raw_differences<'a>(first: &'a [Ranked], other: &'a [Ranked]) -> impl Iterator<Item = f64> + 'a {
    first.iter().filter_map(|a| {
        let b = other.iter().find(|b| b.row == a.row)?;
        Some(difference(raw(a), raw(b)))
    })
}

fn difference(a: f32, b: f32) -> f64 {
    (f64::from(a) - f64::from(b)).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Embedding, Margin, NormPolicy, Origin, Prototype, PrototypeKey, Threshold};
    use crate::gallery::GalleryProfile;
    use crate::recognize::decision::{Cut, decide};

    fn snapshot() -> Snapshot {
        let prototypes = (0..3).map(|index| {
            let key = PrototypeKey { identity: format!("p{index}"), id: "1".to_owned() };
            let embedding = Embedding::parse(vec![1.0, index as f32], 2, NormPolicy::Normalise).unwrap();
            let (source, origin) = (String::new(), Origin::Import);
            (index, Prototype { key, source, origin, created_ms: 0, embedding })
        });
        Snapshot::new(GalleryProfile::named("made", 2), Vec::new(), prototypes.collect())
    }

    /// One probe: rows with their scores and what a backend computed of them.
    fn answers(rows: &[(u32, f32, f32)], threshold: f32) -> Answers {
        let list: Vec<Ranked> =
            rows.iter().map(|&(row, score, raw)| Ranked { row, score, raw: Some(raw) }).collect();
        let cut =
            Cut { threshold: Threshold::parse(threshold).unwrap(), min_margin: Margin::parse(0.0).unwrap() };
        let verdict = decide(Some(list[0].score), None, cut);
        let recognitions = vec![Recognition { verdict, candidates: list.clone() }];
        Answers { recognitions, whole: vec![list.clone()], left_out: vec![list] }
    }

    #[test]
    fn what_is_served_and_what_was_computed_are_told_apart() {
        let first = answers(&[(0, 0.5, 0.5), (1, 0.25, 0.25), (2, 0.125, 0.125)], 0.5);
        let same = Agreement::of(&snapshot(), "same", &first, &first);
        assert_eq!(same.positions, Positions { of: 3, served: 3, raw: 3 });
        assert!(same.is_complete() && same.largest_error <= 0.0);
        // Two rows computed the other way round, and served rightly all the same.
        let raw = answers(&[(0, 0.5, 0.5), (1, 0.25, 0.125), (2, 0.125, 0.25)], 0.5);
        let raw = Agreement::of(&snapshot(), "raw", &first, &raw);
        assert_eq!(raw.positions, Positions { of: 3, served: 3, raw: 1 });
        assert!(raw.is_complete());
        assert_eq!(
            (raw.largest_error.to_string(), raw.largest_raw_difference.to_string()),
            ("0.125".into(), "0.125".into())
        );
        // Another row, another decision.
        let other = answers(&[(1, 0.25, 0.25), (0, 0.5, 0.5), (2, 0.125, 0.125)], 0.5);
        let other = Agreement::of(&snapshot(), "other", &first, &other);
        assert_eq!((other.top1_differing, other.decisions_differing, other.positions.served), (1, 1, 1));
        assert!(!other.is_complete());
    }
}

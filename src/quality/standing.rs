//! How each embedding of a labelled gallery stands among the others: its nearest of its own identity, and its nearest of the two nearest others.
//!
//! That is all that a decision needs, with it in the gallery (its own row left out) and without its person (the whole identity left out). The others come from scans that leave its
//! identity out; its own from [`Pairs`], or from a scan where the identity is large.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::ask::{Asking, OnDone, row_as_probe};
use super::pairs::Pairs;
use crate::backend::RowSet;
use crate::domain::by_rank;
use crate::engine::{EngineError, Ranked};
use crate::gallery::Snapshot;
use crate::recognize::Exclusions;
use crate::recognize::decision::{self, Cut, Verdict};

/// Identities of more rows than this are scanned instead of computed pair by pair.
const MOST_PAIRED: usize = 1024;

/// How one embedding stands among the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its physical row.
    pub row: usize,
    /// Its identity's place.
    pub identity: usize,
    /// The nearest other row of its identity; `None` where it has no other.
    pub own: Option<Ranked>,
    /// The nearest rows of the two nearest other identities; fewer where there are fewer.
    pub rivals: Vec<Ranked>,
}

/// What would be concluded of an embedding, and of whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conclusion {
    /// The conclusion.
    pub verdict: Verdict,
    /// The nearest row.
    pub nearest: Option<Ranked>,
    /// The nearest row of the second identity.
    pub second: Option<Ranked>,
    /// Whether the nearest row is of its own identity.
    pub is_own: bool,
}

impl Standing {
    /// What is concluded with its nearest own row in the gallery, or with another one in its place.
    pub fn conclude(
        &self,
        snapshot: &Snapshot,
        own: Option<Ranked>,
        cut: impl Fn(usize) -> Cut,
    ) -> Conclusion {
        let rival = |at: usize| self.rivals.get(at).copied();
        let before = |a: &Ranked, b: &Ranked| in_order(snapshot, a, b).is_lt();
        // The rivals are in order, so it is enough to say where the own one comes in.
        let (nearest, second) = match (own, rival(0)) {
            (Some(own), Some(first)) if before(&first, &own) => match rival(1) {
                Some(next) if before(&next, &own) => (Some(first), Some(next)),
                Some(_) | None => (Some(first), Some(own)),
            },
            (Some(own), first) => (Some(own), first),
            (None, first) => (first, rival(1)),
        };
        let best = nearest.map(|nearest| snapshot.identity_of(nearest.row as usize));
        // Of nobody nothing is compared with a cut.
        let cut = cut(best.unwrap_or(self.identity));
        let score = |ranked: Option<Ranked>| ranked.map(|ranked| ranked.score);
        Conclusion {
            verdict: decision::decide(score(nearest), score(second), cut),
            nearest,
            second,
            is_own: best == Some(self.identity),
        }
    }
}

/// The total order.
pub fn in_order(snapshot: &Snapshot, a: &Ranked, b: &Ranked) -> Ordering {
    let index = |ranked: &Ranked| snapshot.index(ranked.row as usize);
    by_rank((a.score, || index(a)), (b.score, || index(b)))
}

/// The standing of every row, in physical order.
pub async fn standings(asking: &Asking<'_>, on_done: OnDone<'_>) -> Result<Vec<Standing>, EngineError> {
    let snapshot = asking.snapshot;
    let without_own = |row: usize| {
        let name = snapshot.identity(snapshot.identity_of(row)).name.to_owned();
        row_as_probe(snapshot, row, Exclusions { identities: vec![name], ..Exclusions::default() })
    };
    let rivals = asking.recognize(snapshot.row_count(), without_own, 2, on_done).await?;
    let own = nearest_own(asking).await?;
    let rows = rivals.into_iter().zip(own).enumerate();
    Ok(rows
        .map(|(row, (rivals, own))| Standing {
            row,
            identity: snapshot.identity_of(row),
            own,
            rivals: rivals.candidates,
        })
        .collect())
}

/// For every row the nearest other row of its identity.
async fn nearest_own(asking: &Asking<'_>) -> Result<Vec<Option<Ranked>>, EngineError> {
    let snapshot = asking.snapshot;
    let mut own: Vec<Option<Ranked>> = vec![None; snapshot.row_count()];
    let places: Vec<usize> = (0..snapshot.identity_count()).collect();
    let (small, large): (Vec<usize>, Vec<usize>) =
        places.into_iter().partition(|place| snapshot.rows_of(*place).len() <= MOST_PAIRED);
    let found: Vec<(usize, Vec<Option<Ranked>>)> =
        small.into_par_iter().map(|place| (place, nearest_among(snapshot, place))).collect();
    for (place, nearest) in found {
        own[snapshot.rows_of(place)].copy_from_slice(&nearest);
    }
    let all = snapshot.row_count() as u32;
    for place in large {
        let rows = snapshot.rows_of(place);
        let (start, end) = (rows.start as u32, rows.end as u32);
        let probe = |at: usize| {
            let row = start + at as u32;
            let skip = RowSet::from_ranges(vec![(0, start), (row, row + 1), (end, all)]);
            (snapshot.matrix().row(row as usize), skip)
        };
        let found = asking.search(rows.len(), probe, 1, &mut |_, _| ()).await?;
        for (row, nearest) in rows.zip(found) {
            own[row] = nearest.first().copied();
        }
    }
    Ok(own)
}

fn nearest_among(snapshot: &Snapshot, place: usize) -> Vec<Option<Ranked>> {
    let rows: Vec<usize> = snapshot.rows_of(place).collect();
    let pairs = Pairs::of(snapshot.matrix(), &rows);
    let nearest = |i: usize| {
        let others = (0..rows.len()).filter(|&j| j != i);
        let ranked = others.map(|j| Ranked { row: rows[j] as u32, score: pairs.score(i, j), raw: None });
        ranked.min_by(|a, b| in_order(snapshot, a, b))
    };
    (0..rows.len()).map(nearest).collect()
}

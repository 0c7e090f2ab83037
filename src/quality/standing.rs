//! How each embedding of a labelled gallery stands among the others: its nearest of its own identity, and its nearest of the two nearest others.
//!
//! That is all that a decision needs, with it in the gallery (its own row left out) and without its person (the whole identity left out). The others come from scans that leave its
//! identity out; its own from [`Pairs`], or from a scan where the identity is large.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

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

/// How near the nearest other identity is, held against its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// Nearer.
    Nearer,
    /// As near, to the bit: no score tells them apart.
    AsNear,
    /// Further, or there is none.
    Further,
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
    /// How near the nearest other identity is; `None` where it has no other row of its own.
    pub fn nearness(&self) -> Option<Nearness> {
        let own = self.own.as_ref()?.score;
        Some(match self.rivals.first() {
            Some(rival) if rival.score > own => Nearness::Nearer,
            Some(rival) if rival.score >= own => Nearness::AsNear,
            Some(_) | None => Nearness::Further,
        })
    }

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
    let rows: Vec<usize> = (0..asking.snapshot.row_count()).collect();
    standings_of(asking, &rows, on_done).await
}

/// The standing of some rows, in the order in which they are given.
pub async fn standings_of(
    asking: &Asking<'_>,
    rows: &[usize],
    on_done: OnDone<'_>,
) -> Result<Vec<Standing>, EngineError> {
    let snapshot = asking.snapshot;
    let without_own = |at: usize| {
        let name = snapshot.identity(snapshot.identity_of(rows[at])).name.read();
        row_as_probe(snapshot, rows[at], Exclusions { identities: vec![name], ..Exclusions::default() })
    };
    let rivals = asking.recognize(rows.len(), without_own, 2, on_done).await?;
    let own = nearest_own(asking, rows).await?;
    Ok(rows
        .iter()
        .zip(rivals)
        .map(|(&row, rivals)| Standing {
            row,
            identity: snapshot.identity_of(row),
            own: own.get(&row).copied(),
            rivals: rivals.candidates,
        })
        .collect())
}

/// For each of these rows the nearest other row of its identity, where it has one.
async fn nearest_own(asking: &Asking<'_>, rows: &[usize]) -> Result<HashMap<usize, Ranked>, EngineError> {
    let snapshot = asking.snapshot;
    let mut of_identities: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &row in rows {
        of_identities.entry(snapshot.identity_of(row)).or_default().push(row);
    }
    let (small, large): (Vec<_>, Vec<_>) =
        of_identities.into_iter().partition(|(place, _)| snapshot.rows_of(*place).len() <= MOST_PAIRED);
    let mut own: HashMap<usize, Ranked> = small
        .into_par_iter()
        .flat_map_iter(|(place, wanted)| nearest_among(snapshot, place, wanted))
        .collect();
    let all = snapshot.row_count() as u32;
    for (place, wanted) in large {
        let rows = snapshot.rows_of(place);
        let (start, end) = (rows.start as u32, rows.end as u32);
        let probe = |at: usize| {
            let row = wanted[at];
            let skip = RowSet::from_ranges(vec![(0, start), (row as u32, row as u32 + 1), (end, all)]);
            (snapshot.matrix().row(row), skip)
        };
        let found = asking.search(wanted.len(), probe, 1, &mut |_, _| ()).await?;
        let found = wanted.iter().zip(&found);
        own.extend(found.filter_map(|(&row, nearest)| Some((row, *nearest.first()?))));
    }
    Ok(own)
}

fn nearest_among(snapshot: &Snapshot, place: usize, wanted: Vec<usize>) -> Vec<(usize, Ranked)> {
    let rows: Vec<usize> = snapshot.rows_of(place).collect();
    let pairs = Pairs::of(snapshot.matrix(), &rows);
    let nearest = |row: usize| {
        let i = row - rows[0];
        let others = (0..rows.len()).filter(|&j| j != i);
        let ranked = others.map(|j| Ranked { row: rows[j] as u32, score: pairs.score(i, j), raw: None });
        Some((row, ranked.min_by(|a, b| in_order(snapshot, a, b))?))
    };
    wanted.into_iter().filter_map(nearest).collect()
}

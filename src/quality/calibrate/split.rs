//! Does a recommendation hold for persons that it has not seen? Halves the identities of a gallery, evenly and at random, calibrates on one
//! half and measures on the other.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::{Calibration, Pair, Rates, Recommendation, cut};
use crate::domain::{Embedding, NormPolicy};
use crate::gallery::{NewRow, Snapshot, SnapshotBuilder};

/// What is recommended from one half, on the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Split {
    /// The estimated pair, where there was one.
    pub estimated: Option<Held>,
    /// The promised pair, where there was one.
    pub promised: Option<Held>,
}

/// A pair from one half, and what it leads to on the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The pair, and the rates on the other half.
    #[serde(flatten)]
    pub rates: Rates,
    /// Whether the 95 % interval of the false positives holds the wished-for rate or lies below it.
    pub held: bool,
}

impl Split {
    /// What a recommendation leads to on persons that it was not made from.
    pub fn of(recommendation: &Recommendation, other: &Calibration) -> Self {
        let held = |pair: Pair| {
            let rates = other.rates(cut(pair.rates.threshold, pair.rates.min_margin));
            Held { rates, held: rates.false_positives.low <= recommendation.wished }
        };
        let Recommendation { estimated, promised, .. } = recommendation;
        Self { estimated: estimated.map(held), promised: promised.map(held) }
    }
}

/// Two galleries, each of half of the identities; the same seed gives the same.
pub fn halves(snapshot: &Snapshot, seed: u64) -> [Snapshot; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut places: Vec<usize> = (0..snapshot.identity_count()).collect();
    // Fisher and Yates.
    for last in (1..places.len()).rev() {
        let other = ((u128::from(random.next_u64()) * (last + 1) as u128) >> 64) as usize;
        places.swap(last, other);
    }
    let mut is_first = vec![false; places.len()];
    for &place in &places[..places.len() / 2] {
        is_first[place] = true;
    }
    [true, false].map(|half| of_identities(snapshot, |place| is_first[place] == half))
}

/// A gallery of some of the identities of another.
///
/// # Panics
/// Never: what is stored is an embedding.
pub fn of_identities(snapshot: &Snapshot, is_in: impl Fn(usize) -> bool) -> Snapshot {
    let mut rows: Vec<usize> =
        (0..snapshot.row_count()).filter(|&row| is_in(snapshot.identity_of(row))).collect();
    rows.sort_by_key(|&row| snapshot.index(row));
    let mut builder = SnapshotBuilder::new(snapshot.profile().clone(), snapshot.own_limits(), rows.len());
    for row in rows {
        let view = snapshot.row(row);
        let values = snapshot.matrix().row(row).to_vec();
        let embedding = Embedding::parse(values, snapshot.profile().dim, NormPolicy::Normalise)
            .expect("what is stored is an embedding");
        builder.push(NewRow {
            index: view.index,
            identity: &snapshot.identity(view.identity).name.read(),
            prototype_id: &view.prototype_id.read(),
            source: &view.source.read(),
            origin: view.origin,
            embedding: &embedding,
        });
    }
    builder.finish()
}

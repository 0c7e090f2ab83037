//! What can be promised of a rate of false positives.
//!
//! **The promise.** Let the persons of a gallery be drawn independently from those who will be asked about. Then with a probability of at least
//! [`CONFIDENCE`] over such draws, a stranger from among them, put to this gallery, is named with a probability of at most the wished-for
//! rate, under the pair of threshold and margin that is promised. This is of a pair that was chosen from the same persons as it is judged by:
//!
//! - *One cut.* A rate is bounded as Clopper and Pearson bound it ([`bounds`](crate::domain::bounds)), which holds for few events and for none, where
//!   resampling is too kind. What is sampled is the person, not the embedding: a person counts by the share of the embeddings that named somebody, and
//!   shares are added up and rounded up.
//! - *Lookalikes come in pairs.* Where two persons look alike, each names the other: two events, one cause. As many persons are worth half as
//!   many independent strangers ([`WORTH`]), and half of the events are counted. Of a sparse random graph the number of vertices with an edge has
//!   twice the variance of a binomial, and less where it is denser; so this is enough as long as lookalikes are pairs and not whole families, such as one
//!   person under many names (`lookalike audit` finds these).
//! - *Thresholds.* With a margin, thresholds are tested from strict to lenient, up to the first that fails: the rate only rises on the way,
//!   so that one that is too high is promised only where the first such is (fixed-sequence testing; Angelopoulos, Bates, Candès, Jordan
//!   and Lei, "Learn then Test", 2021). This needs no correction.
//! - *Margins.* Few are tried ([`MARGINS`]), and what may go wrong is shared out among them (Bonferroni): whichever is chosen, its promise holds.
//!
//! It says nothing of persons of another kind, or photographed otherwise, than those in the gallery.

use crate::domain::bounds::{CONFIDENCE, upper_bound};

/// Most margins among which a pair is chosen. Each costs confidence, and misses change little between two of them.
pub(super) const MARGINS: usize = 5;

/// So many persons, each held against all others, tell as much as one independent stranger.
pub(super) const WORTH: usize = 2;

/// More persons than this are as good as never enough.
const MOST_NEEDED: usize = 100_000_000;

/// What rounding may add to a sum of shares.
const ROUNDING: f64 = 1e-9;

/// Events as a promise counts them; of each person the share of the searches that named somebody.
#[expect(clippy::cast_sign_loss, reason = "a sum of shares is not negative")]
pub(super) fn counted(shares: impl Iterator<Item = f64>) -> u64 {
    (shares.sum::<f64>() / WORTH as f64 - ROUNDING).ceil().max(0.0) as u64
}

/// What the rate of so many events among so many persons stays below with [`CONFIDENCE`], whichever of so many margins the cut was found
/// with.
pub(super) fn at_most(events: u64, identities: usize, margins: usize) -> f64 {
    upper_bound(events, (identities / WORTH) as u64, confidence(margins))
}

/// The most events with which `wished` can be promised; `None` where not even none would do.
pub(super) fn most_events(wished: f64, identities: usize, margins: usize) -> Option<u64> {
    let suffice = |events: u64| at_most(events, identities, margins) <= wished;
    if !suffice(0) {
        return None;
    }
    // As many events as trials are bounded by 1.
    let (mut few, mut many) = (0, (identities / WORTH) as u64);
    while many - few > 1 {
        let middle = u64::midpoint(few, many);
        *if suffice(middle) { &mut few } else { &mut many } = middle;
    }
    Some(few)
}

/// How many persons it takes to promise `wished` where so large a share of them is `named`; `None` where no number would do.
#[expect(clippy::cast_sign_loss, reason = "both logarithms are negative")]
pub(super) fn needed(wished: f64, named: f64, margins: usize) -> Option<usize> {
    let events = |identities: usize| counted([named * identities as f64].into_iter());
    let suffice = |identities: usize| at_most(events(identities), identities, margins) <= wished;
    // Those that it takes where nobody is named; the first number below which it would not do.
    let mut enough = WORTH * ((1.0 - confidence(margins)).ln() / (-wished).ln_1p()).ceil() as usize;
    let mut few = enough - WORTH;
    while !suffice(enough) {
        if enough > MOST_NEEDED {
            return None;
        }
        (few, enough) = (enough, 2 * enough);
    }
    while enough - few > WORTH {
        let middle = few + (enough - few) / 2 / WORTH * WORTH;
        *if suffice(middle) { &mut enough } else { &mut few } = middle;
    }
    Some(enough)
}

/// Of one margin's sequence of tests, so that all hold together with [`CONFIDENCE`].
fn confidence(margins: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / margins.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(shares: &[f64], identities: usize, margins: usize) -> f64 {
        at_most(counted(shares.iter().copied()), identities, margins)
    }

    #[test]
    fn persons_who_look_alike_are_one_event_of_half_as_many() {
        // 1 - 0.05^(1/299): the rule of three, of 598 persons.
        assert!((bound(&[], 598, 1) - (1.0 - 0.05_f64.powf(1.0 / 299.0))).abs() < 1e-12);
        // One event or two are one pair; the upper bound of 1 in 2 is the root of the confidence.
        assert!((bound(&[1.0], 4, 1) - 0.95_f64.sqrt()).abs() < 1e-9);
        assert_eq!([counted([0.1].into_iter()), counted([1.0, 1.0].into_iter())], [1, 1]);
        assert_eq!([counted([1.0, 1.0, 0.1].into_iter()), counted([].into_iter())], [2, 0]);
        // What rounding adds to a sum of tenths is no event.
        assert_eq!(counted([0.1; 20].into_iter()), 1);
        // Of one person, or none, nothing is known.
        assert!(bound(&[], 1, 1) >= 1.0 && bound(&[], 0, 1) >= 1.0);
    }

    #[test]
    fn the_most_events_are_the_last_whose_bound_is_low_enough() {
        for (wished, identities) in [(0.05, 2000), (0.01, 600), (0.5, 20), (0.96, 3)] {
            let most = most_events(wished, identities, 1).unwrap();
            assert!(at_most(most, identities, 1) <= wished && at_most(most + 1, identities, 1) > wished);
        }
        assert_eq!([most_events(0.01, 590, 1), most_events(0.5, 1, 1), most_events(0.5, 0, 1)], [None; 3]);
    }

    #[test]
    fn more_margins_to_choose_from_take_more_persons() {
        let unseen = |wished, margins| needed(wished, 0.0, margins).unwrap();
        assert_eq!([unseen(0.01, 1), unseen(0.01, MARGINS), unseen(0.001, 1)], [598, 918, 5990]);
        for margins in [1, MARGINS] {
            assert!(at_most(0, unseen(0.01, margins), margins) <= 0.01);
            assert!(at_most(0, unseen(0.01, margins) - 1, margins) > 0.01);
        }
    }

    #[test]
    fn the_nearer_the_wish_the_more_persons_it_takes() {
        for named in [0.001, 0.004, 0.009] {
            let enough = needed(0.01, named, 1).unwrap();
            let most = |identities: usize| bound(&[named * identities as f64], identities, 1);
            assert!(most(enough) <= 0.01 && most(enough - 2) > 0.01, "{named}: {enough}");
        }
        // 1.645 standard errors of a tenth of a percent, of half of the persons.
        let far = needed(0.01, 0.009, 1).unwrap() as f64;
        assert!((far / (2.0 * (1.645 / 0.001_f64).powi(2) * 0.01 * 0.99) - 1.0).abs() < 0.1, "{far}");
        assert_eq!((needed(0.01, 0.01, 1), needed(0.01, 1.0, 5)), (None, None));
    }
}

//! How certain a rate is: the bootstrap over identities (Efron 1979; identities, not embeddings or pairs, since those of one person come
//! out alike). Identities are drawn with replacement as often as there are, again and again, and the rate is computed of each draw.
//!
//! A rate is the mean over identities of the share of each one's trials: a person counts once, however many photos there are. Otherwise one
//! person of many photos under a wrong name would outweigh hundreds of others.
//!
//! Draws know nothing of events that were not seen, so of few events they are too sure. An interval is never narrower than Clopper and
//! Pearson's ([`bounds`](crate::domain::bounds)) of the same identities.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::domain::bounds::{CONFIDENCE, interval};

/// A rate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// As it was found.
    pub rate: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end of the 95 % interval.
    pub high: f64,
}

/// The shares of their trials that came out so, of some identities: `(identity, share)`, each identity once at most.
pub type Events = [(u32, f64)];

/// How often each identity was drawn, draw by draw; the same seed gives the same draws.
#[derive(Clone, Debug)]
pub struct Resampler {
    identities: usize,
    /// Row-major `draws x identities`.
    weights: Vec<u8>,
}

/// Which identities have trials at all: their number, and in each draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Trials {
    all: usize,
    of_draws: Vec<u64>,
}

impl Trials {
    /// Identities with trials.
    pub fn identities(&self) -> usize {
        self.all
    }
}

impl Resampler {
    /// So many draws of so many identities.
    pub fn new(identities: usize, draws: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut weights = vec![0_u8; identities * draws];
        for draw in weights.chunks_exact_mut(identities.max(1)) {
            for _ in 0..identities {
                // The high half of a product is as even as can be told.
                let one = ((u128::from(random.next_u64()) * identities as u128) >> 64) as usize;
                draw[one] = draw[one].saturating_add(1);
            }
        }
        Self { identities, weights }
    }

    /// Where `of[i]` says how many trials identity `i` has.
    pub fn trials(&self, of: &[u32]) -> Trials {
        let sum =
            |draw: &[u8]| draw.iter().zip(of).filter(|(_, n)| **n > 0).map(|(&w, _)| u64::from(w)).sum();
        Trials { all: of.iter().filter(|n| **n > 0).count(), of_draws: self.draws().map(sum).collect() }
    }

    fn draws(&self) -> std::slice::ChunksExact<'_, u8> {
        self.weights.chunks_exact(self.identities.max(1))
    }

    /// The mean share over the identities that have trials, 0 of none, with its interval; `worth` identities tell as much as one independent
    /// one.
    pub fn rate(&self, events: &Events, trials: &Trials, worth: usize) -> Rate {
        let rates = self.rates(events, trials);
        let sum: f64 = events.iter().map(|(_, share)| share).sum();
        let (low, high) = exact(sum / worth as f64, trials.all / worth);
        Rate {
            rate: ratio(sum, trials.all as u64),
            low: quantile(&rates, 0.025).min(low),
            high: quantile(&rates, 0.975).max(high),
        }
    }

    /// The rate of each draw, ascending.
    fn rates(&self, events: &Events, trials: &Trials) -> Vec<f64> {
        let rate = |(draw, &trials): (&[u8], &u64)| {
            ratio(events.iter().map(|&(one, share)| f64::from(draw[one as usize]) * share).sum(), trials)
        };
        let mut rates: Vec<f64> = self.draws().zip(&trials.of_draws).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

fn ratio(part: f64, whole: u64) -> f64 {
    // The sum of nothing is -0.0.
    if whole == 0 { 0.0 } else { (part + 0.0) / whole as f64 }
}

/// Of ascending values the one below which that share of them lies; 0 of none.
#[expect(clippy::cast_sign_loss, reason = "a share of a length is not negative")]
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
}

/// Clopper and Pearson's interval of a sum of shares, rounded outwards to whole events.
#[expect(clippy::cast_sign_loss, reason = "a sum of shares is not negative")]
fn exact(sum: f64, identities: usize) -> (f64, f64) {
    let at = |events: f64| interval(events as u64, identities as u64, CONFIDENCE);
    (at(sum.floor()).0, at(sum.ceil()).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_of_as_many_identities_and_the_same_for_the_same_seed() {
        let one = Resampler::new(50, 20, 7);
        assert!(one.draws().all(|draw| draw.iter().map(|&w| usize::from(w)).sum::<usize>() == 50));
        assert_eq!(one.weights, Resampler::new(50, 20, 7).weights);
        assert_ne!(one.weights, Resampler::new(50, 20, 8).weights);
    }

    /// Of 400 identities with a trial each and events in 40, the draws' interval is the binomial's, 0.1 -+ 1.96 * 0.015; Clopper and Pearson's is
    /// 0.0724 to 0.1337.
    #[test]
    fn the_interval_of_independent_trials_is_the_binomials() {
        let resampler = Resampler::new(400, 4000, 1);
        let trials = resampler.trials(&[1; 400]);
        let events: Vec<(u32, f64)> = (0..40).map(|one| (one, 1.0)).collect();
        let Rate { rate, low, high } = resampler.rate(&events, &trials, 1);
        assert!((rate - 0.1).abs() < 1e-12 && (low - 0.0706).abs() < 0.004, "{rate} {low}");
        assert!((high - 0.1337).abs() < 1e-4, "{high}");
        let rates = resampler.rates(&events, &trials);
        assert!((quantile(&rates, 0.975) - 0.1294).abs() < 0.004);
    }

    #[test]
    fn what_was_not_seen_may_be() {
        let resampler = Resampler::new(400, 100, 1);
        let none = resampler.rate(&[], &resampler.trials(&[1; 400]), 1);
        assert!([none.rate, none.low].iter().all(|rate| rate.to_bits() == 0), "{none:?}");
        assert!((none.high - (1.0 - 0.025_f64.powf(1.0 / 400.0))).abs() < 1e-12);
        // As many identities that come in pairs are half as many.
        let pairs = resampler.rate(&[], &resampler.trials(&[1; 400]), 2);
        assert!((pairs.high - (1.0 - 0.025_f64.powf(1.0 / 200.0))).abs() < 1e-12);
        let nobody = resampler.rate(&[], &resampler.trials(&[0; 400]), 1);
        assert!(nobody.rate <= 0.0 && nobody.low <= 0.0 && nobody.high >= 1.0, "{nobody:?}");
    }

    /// The same share in a tenth as many identities is less certain, and many trials of one identity do not help.
    #[test]
    fn identities_count_not_their_trials() {
        let (many, few) = (Resampler::new(400, 2000, 1), Resampler::new(40, 2000, 1));
        let alone: Vec<(u32, f64)> = (0..40).map(|one| (one, 1.0)).collect();
        let narrow = many.rate(&alone, &many.trials(&[1; 400]), 1);
        let wide = few.rate(&alone[..4], &few.trials(&[10; 40]), 1);
        assert!((narrow.rate - wide.rate).abs() < 1e-12);
        assert!(wide.high - wide.low > 2.5 * (narrow.high - narrow.low));
    }
}

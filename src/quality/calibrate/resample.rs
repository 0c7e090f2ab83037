//! How certain a rate is: the bootstrap over identities (Efron 1979; identities, not embeddings or pairs, since those of one person come
//! out alike). Identities are drawn with replacement as often as there are, again and again, and the rate is computed of each draw.
//!
//! A rate is the mean over identities of the share of each one's trials: a person counts once, however many photos there are. Otherwise one
//! person of many photos under a wrong name would outweigh hundreds of others.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

/// A rate, and where it would lie in 95 of 100 such samples of identities.
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

    /// The mean share over the identities that have trials; 0 of none.
    pub fn rate(&self, events: &Events, trials: &Trials) -> Rate {
        let rates = self.rates(events, trials);
        let sum: f64 = events.iter().map(|(_, share)| share).sum();
        Rate {
            rate: ratio(sum, trials.all as u64),
            low: quantile(&rates, 0.025),
            high: quantile(&rates, 0.975),
        }
    }

    /// What the rate stays below in 95 of 100 draws.
    pub fn upper(&self, events: &Events, trials: &Trials) -> f64 {
        quantile(&self.rates(events, trials), 0.95)
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

/// What a rate may still be, at 95 % confidence, where none of so many identities showed an event: the exact bound 1 - 0.05^(1/n), about
/// 3 / n (the rule of three).
pub fn unseen(identities: usize) -> f64 {
    if identities == 0 { 1.0 } else { 1.0 - 0.05_f64.powf(1.0 / identities as f64) }
}

/// How many identities it takes for [`unseen`] to be no more than `rate`.
#[expect(clippy::cast_sign_loss, reason = "both logarithms are negative")]
pub fn needed(rate: f64) -> usize {
    (0.05_f64.ln() / (1.0 - rate).ln()).ceil() as usize
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

    /// Of 400 identities with a trial each and events in 40, the interval is the binomial's: 0.1 -+ 1.96 * 0.015.
    #[test]
    fn the_interval_of_independent_trials_is_the_binomials() {
        let resampler = Resampler::new(400, 4000, 1);
        let trials = resampler.trials(&[1; 400]);
        let events: Vec<(u32, f64)> = (0..40).map(|one| (one, 1.0)).collect();
        let Rate { rate, low, high } = resampler.rate(&events, &trials);
        assert!(
            (rate - 0.1).abs() < 1e-12 && (low - 0.0706).abs() < 0.004 && (high - 0.1294).abs() < 0.004,
            "{low} {high}"
        );
        assert!((resampler.upper(&events, &trials) - 0.1247).abs() < 0.004);
        let none = resampler.rate(&[], &trials);
        assert!([none.rate, none.low, none.high].iter().all(|rate| rate.to_bits() == 0), "{none:?}");
    }

    /// The same share in a tenth as many identities is less certain, and many trials of one identity do not help.
    #[test]
    fn identities_count_not_their_trials() {
        let (many, few) = (Resampler::new(400, 2000, 1), Resampler::new(40, 2000, 1));
        let alone: Vec<(u32, f64)> = (0..40).map(|one| (one, 1.0)).collect();
        let narrow = many.rate(&alone, &many.trials(&[1; 400]));
        let wide = few.rate(&alone[..4], &few.trials(&[10; 40]));
        assert!((narrow.rate - wide.rate).abs() < 1e-12);
        assert!(wide.high - wide.low > 2.5 * (narrow.high - narrow.low));
    }

    #[test]
    fn three_hundred_identities_promise_one_percent() {
        assert_eq!((needed(0.01), needed(0.001)), (299, 2995));
        assert!(unseen(299) <= 0.01 && unseen(298) > 0.01);
        assert!((unseen(0) - 1.0).abs() < 1e-12);
    }
}

//! Finds a threshold and a least margin for a wished-for rate of false positives, and says how certain that is.
//!
//! Every labelled embedding is searched twice (ISO/IEC 19795-1, open-set identification; rates as NIST's FRTE 1:N counts them, at rank 1):
//! - *mated*, with its own row left out, where its person has another: not naming its person is a miss (FNIR);
//! - *non-mated*, with its whole person left out, so that it is a stranger's: naming anybody is a false positive (FPIR).
//!
//! Rates are means over persons, each of whom counts once ([`resample`]).
//! What is named is what [`decision`](crate::recognize::decision) says under a cut. Confidence comes from resampling identities
//! ([`resample`]). The pair is recommended that misses least among those whose false positives stay below the wished-for rate at 95 % confidence.

pub mod pairs;
pub mod resample;
pub mod split;

use serde::Serialize;

use super::standing::{Conclusion, Standing};
use crate::domain::{Margin, Threshold};
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision, conclude};
use resample::{Rate, Resampler, Trials, needed, unseen};

/// Margins that are tried, 0 among them.
const MARGINS: usize = 41;

/// Thresholds and margins are multiples of this: more digits would be read from noise.
const STEP: f64 = 1e-4;

/// One search of an embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Whose embedding it is, by the identity's place.
    pub identity: u32,
    /// The best score.
    pub score: f32,
    /// The lead over the second identity; `None` where there is no second.
    pub margin: Option<f32>,
    /// Whether the best is the right person; of a non-mated search none is.
    pub is_right: bool,
}

impl Search {
    fn of(identity: usize, conclusion: &Conclusion) -> Option<Self> {
        let verdict = &conclusion.verdict;
        let (identity, is_right) = (identity as u32, conclusion.is_own);
        Some(Self { identity, score: verdict.score?, margin: verdict.margin, is_right })
    }

    /// Whether somebody is named under a cut.
    pub fn names(&self, cut: Cut) -> bool {
        conclude(Some(self.score), self.margin, cut) == Decision::Recognized
    }
}

/// All searches of a labelled gallery, and the resampled identities.
#[derive(Clone, Debug)]
pub struct Calibration {
    mated: Vec<Search>,
    /// By score, descending.
    non_mated: Vec<Search>,
    resampler: Resampler,
    /// How many of each identity.
    of_mated: Vec<u32>,
    of_non_mated: Vec<u32>,
    mated_trials: Trials,
    non_mated_trials: Trials,
}

/// The rates under one cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// The threshold.
    pub threshold: f32,
    /// The least margin.
    pub min_margin: f32,
    /// Of non-mated searches, those that name somebody (FPIR).
    pub false_positives: Rate,
    /// Of mated searches, those that do not name their person (FNIR).
    pub misses: Rate,
    /// Of mated searches, those that name another person.
    pub wrong: Rate,
}

/// What is recommended for a wished-for rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The wished-for rate of false positives.
    pub wished: f64,
    /// The pair and what it leads to.
    #[serde(flatten)]
    pub rates: Rates,
    /// What the rate of false positives stays below at 95 % confidence.
    pub at_most: f64,
    /// Whether that is no more than what was wished for.
    pub promised: bool,
    /// Identities that it takes to promise so low a rate at all.
    pub identities_needed: usize,
}

/// Draws of identities, and what they are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// How many.
    pub draws: usize,
    /// The same seed gives the same.
    pub seed: u64,
}

impl Calibration {
    /// Of the standings of all rows of a gallery.
    pub fn of(snapshot: &Snapshot, standings: &[Standing], draws: Draws) -> Self {
        // Scores and margins do not depend on the cut.
        let any = |_| cut(-1.0, 0.0);
        let mated = standings.iter().filter(|standing| standing.own.is_some());
        let mated =
            mated.filter_map(|one| Search::of(one.identity, &one.conclude(snapshot, one.own, any))).collect();
        let non_mated =
            standings.iter().filter_map(|one| Search::of(one.identity, &one.conclude(snapshot, None, any)));
        Self::of_searches(mated, non_mated.collect(), snapshot.identity_count(), draws)
    }

    /// Of searches of so many identities.
    pub fn of_searches(
        mated: Vec<Search>,
        mut non_mated: Vec<Search>,
        identities: usize,
        draws: Draws,
    ) -> Self {
        non_mated.sort_by(|a, b| b.score.total_cmp(&a.score));
        let resampler = Resampler::new(identities, draws.draws, draws.seed);
        let of_mated = counts(identities, &mated, |_| true);
        let of_non_mated = counts(identities, &non_mated, |_| true);
        Self {
            mated_trials: resampler.trials(&of_mated),
            non_mated_trials: resampler.trials(&of_non_mated),
            of_mated,
            of_non_mated,
            mated,
            non_mated,
            resampler,
        }
    }

    /// Mated searches.
    pub fn mated(&self) -> &[Search] {
        &self.mated
    }

    /// Non-mated searches, by score, descending.
    pub fn non_mated(&self) -> &[Search] {
        &self.non_mated
    }

    /// Identities held out as strangers.
    pub fn identities(&self) -> usize {
        self.non_mated_trials.identities()
    }

    /// The rates under a cut.
    pub fn rates(&self, under: Cut) -> Rates {
        let missed = events(&self.mated, &self.of_mated, |one| !(one.is_right && one.names(under)));
        let wrong = events(&self.mated, &self.of_mated, |one| !one.is_right && one.names(under));
        let named = self.named(under);
        Rates {
            threshold: under.threshold.get(),
            min_margin: under.min_margin.get(),
            false_positives: self.resampler.rate(&named, &self.non_mated_trials),
            misses: self.resampler.rate(&missed, &self.mated_trials),
            wrong: self.resampler.rate(&wrong, &self.mated_trials),
        }
    }

    /// The rates of false positives and of misses under a cut, without their intervals: for pictures, which want many.
    pub fn shares(&self, under: Cut) -> (f64, f64) {
        let mean = |events: &[(u32, f64)], trials: &Trials| {
            events.iter().map(|(_, share)| share).sum::<f64>() / trials.identities().max(1) as f64
        };
        let missed = events(&self.mated, &self.of_mated, |one| !(one.is_right && one.names(under)));
        (mean(&self.named(under), &self.non_mated_trials), mean(&missed, &self.mated_trials))
    }

    /// What the rate of false positives under a cut stays below at 95 % confidence; no less than what can be said of so few identities.
    pub fn at_most(&self, under: Cut) -> f64 {
        self.resampler.upper(&self.named(under), &self.non_mated_trials).max(unseen(self.identities()))
    }

    fn named(&self, under: Cut) -> Vec<(u32, f64)> {
        events(&self.non_mated, &self.of_non_mated, |one| one.names(under))
    }

    /// The pair that misses least among those whose false positives stay below `wished`; where so few identities cannot promise that, among
    /// those without any false positive.
    pub fn recommend(&self, wished: f64) -> Recommendation {
        let can = unseen(self.identities()) <= wished;
        let is_met = |under: Cut| {
            if can {
                self.at_most(under) <= wished
            } else {
                !self.non_mated.iter().any(|one| one.names(under))
            }
        };
        let pairs = self.margins().into_iter().map(|margin| {
            let under = self.tightened(self.least_threshold(margin, &is_met));
            (self.shares(under), under)
        });
        // Of those that miss as little the one that names fewest strangers; then the one with the greater threshold, which is the lesser
        // margin: a gallery of one person knows no margin.
        let best = pairs.min_by(|((named, missed), under), ((other_named, other_missed), other)| {
            let by_threshold = other.threshold.get().total_cmp(&under.threshold.get());
            missed.total_cmp(other_missed).then(named.total_cmp(other_named)).then(by_threshold)
        });
        let under = best.map_or_else(|| cut(1.0, 0.0), |(_, under)| under);
        let at_most = self.at_most(under);
        Recommendation {
            wished,
            rates: self.rates(under),
            at_most,
            promised: at_most <= wished && !self.mated.is_empty(),
            identities_needed: needed(wished),
        }
    }

    /// Margins to try: even steps from none to what half of the mated searches have.
    pub fn margins(&self) -> Vec<f32> {
        let mut leads: Vec<f32> =
            self.mated.iter().filter(|one| one.is_right).filter_map(|one| one.margin).collect();
        leads.sort_by(f32::total_cmp);
        let most = leads.get(leads.len() / 2).copied().unwrap_or(0.0);
        let mut margins: Vec<f32> = (0..MARGINS)
            .map(|step| on_grid(f64::from(most) * step as f64 / (MARGINS - 1) as f64) as f32)
            .collect();
        margins.dedup();
        margins
    }

    /// The same margin with a threshold under which no more is missed and fewer strangers are named, where there is one: half way between
    /// the lowest score of a person who is recognised and the highest stranger's below it.
    fn tightened(&self, under: Cut) -> Cut {
        let recognised = self.mated.iter().filter(|one| one.is_right && one.names(under));
        let lowest = recognised.map(|one| one.score).fold(f32::INFINITY, f32::min);
        let margin = under.min_margin.get();
        let below = |one: &&Search| one.score < lowest && one.names(cut(-1.0, margin));
        // They come by score, descending.
        match self.non_mated.iter().find(below) {
            Some(stranger) if lowest.is_finite() && stranger.score >= under.threshold.get() => {
                let middle = on_grid(f64::midpoint(f64::from(stranger.score), f64::from(lowest))) as f32;
                // Scores may be nearer to each other than the steps of thresholds.
                if stranger.score < middle && middle <= lowest { cut(middle, margin) } else { under }
            }
            Some(_) | None => under,
        }
    }

    /// The least threshold under which, with this margin, false positives are few enough.
    fn least_threshold(&self, margin: f32, is_met: &dyn Fn(Cut) -> bool) -> Cut {
        // Scores of strangers that the margin does not refuse, descending: only past one of them something changes.
        let free = cut(-1.0, margin);
        let scores: Vec<f32> =
            self.non_mated.iter().filter(|one| one.names(free)).map(|one| one.score).collect();
        // With the threshold just above the score at a place, so many strangers are named.
        let past = |named: usize| match scores.get(named) {
            Some(score) => cut(on_grid(f64::from(*score) + STEP * 1e-3) as f32, margin),
            None => free,
        };
        let (mut sure, mut unsure) = (0, scores.len() + 1);
        // More named is never fewer false positives.
        while unsure - sure > 1 {
            let middle = usize::midpoint(sure, unsure);
            if is_met(past(middle)) {
                sure = middle;
            } else {
                unsure = middle;
            }
        }
        past(sure)
    }
}

/// For each identity of which searches are so, the share of its searches; `of` says how many it has.
fn events(searches: &[Search], of: &[u32], is: impl Fn(&Search) -> bool) -> Vec<(u32, f64)> {
    let counts = (0..).zip(counts(of.len(), searches, is)).zip(of);
    counts.filter(|((_, n), _)| *n > 0).map(|((one, n), all)| (one, f64::from(n) / f64::from(*all))).collect()
}

/// For each identity how many of its searches are so.
fn counts(identities: usize, searches: &[Search], is: impl Fn(&Search) -> bool) -> Vec<u32> {
    let mut counts = vec![0; identities];
    for one in searches.iter().filter(|one| is(one)) {
        counts[one.identity as usize] += 1;
    }
    counts
}

/// The multiple of [`STEP`] that is no less.
fn on_grid(value: f64) -> f64 {
    (value / STEP).ceil() * STEP
}

/// A cut of numbers that are brought into their ranges.
pub fn cut(threshold: f32, min_margin: f32) -> Cut {
    let threshold = Threshold::parse(threshold.clamp(-1.0, 1.0));
    let min_margin = Margin::parse(min_margin.clamp(0.0, 2.0));
    let (Ok(threshold), Ok(min_margin)) = (threshold, min_margin) else {
        unreachable!("numbers, and within their ranges")
    };
    Cut { threshold, min_margin }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: Draws = Draws { draws: 500, seed: 1 };

    /// 600 persons of a search each way. Strangers score up to 0.5 in even steps; persons from 0.4 up, led by 0.3.
    fn calibration() -> Calibration {
        let mated = (0..600).map(|identity| Search {
            identity,
            score: 0.4 + identity as f32 / 1200.0,
            margin: Some(0.3),
            is_right: identity % 100 != 7,
        });
        let non_mated = (0..600).map(|identity| Search {
            identity,
            score: identity as f32 / 1200.0,
            margin: Some(0.05),
            is_right: false,
        });
        Calibration::of_searches(mated.collect(), non_mated.collect(), 600, DRAWS)
    }

    #[test]
    fn a_margin_that_no_stranger_has_makes_the_threshold_needless() {
        let best = calibration().recommend(0.01);
        assert!(best.promised && best.rates.min_margin > 0.05, "{best:?}");
        // Six of six hundred are nearest to somebody else, whatever the threshold.
        assert!((best.rates.misses.rate - 0.01).abs() < 1e-9, "{best:?}");
        assert!((best.rates.wrong.rate - 0.01).abs() < 1e-9 && best.rates.false_positives.rate <= 0.0);
    }

    /// A wished-for rate is the most that is accepted, not a reason to name strangers for nothing.
    #[test]
    fn no_stranger_is_named_where_that_finds_nobody() {
        let search = |identity: u32, score: f32, is_right| Search { identity, score, margin: None, is_right };
        let mated = (0..12).map(|identity| search(identity, 0.95 + identity as f32 / 1000.0, true));
        let non_mated =
            (0..12).map(|identity| search(identity, if identity < 2 { 0.94 } else { 0.5 }, false));
        let calibration = Calibration::of_searches(mated.collect(), non_mated.collect(), 12, DRAWS);
        let best = calibration.recommend(0.9);
        assert!(best.rates.false_positives.rate <= 0.0 && best.rates.misses.rate <= 0.0, "{best:?}");
        assert!((best.rates.threshold - 0.945).abs() < 2e-4, "{best:?}");
    }

    #[test]
    fn the_least_threshold_is_the_first_that_keeps_the_rate() {
        let calibration = calibration();
        let under = calibration.least_threshold(0.0, &|under| calibration.shares(under).0 <= 0.1);
        // 60 of 600 reach 540 / 1200.
        assert!((under.threshold.get() - 0.4493).abs() < 2e-4, "{under:?}");
        assert!(calibration.shares(cut(under.threshold.get() - 0.001, 0.0)).0 > 0.1);
    }

    #[test]
    fn too_few_persons_promise_nothing() {
        let calibration = calibration();
        let best = calibration.recommend(0.001);
        assert!(!best.promised && best.identities_needed == 2995, "{best:?}");
        assert!(best.at_most > 0.001 && best.rates.false_positives.rate <= 0.0);
        let none = Calibration::of_searches(Vec::new(), Vec::new(), 0, DRAWS).recommend(0.01);
        assert!(!none.promised);
    }

    #[test]
    fn rates_are_shares_of_their_own_searches() {
        let rates = calibration().rates(cut(0.45, 0.0));
        // 0.4 + i / 1200 >= 0.45 for i >= 60; of those six are of others.
        assert!((rates.misses.rate - (600.0 - 534.0) / 600.0).abs() < 0.002, "{rates:?}");
        assert!((rates.false_positives.rate - 0.1).abs() < 0.002, "{rates:?}");
        assert!(rates.misses.low < rates.misses.rate && rates.misses.rate < rates.misses.high);
    }
}

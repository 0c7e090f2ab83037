//! Finds a threshold and a least margin for a wished-for rate of false positives, and says how certain that is.
//!
//! Every labelled embedding is searched twice (ISO/IEC 19795-1, open-set identification; rates as NIST's FRTE 1:N counts them, at rank 1):
//! - *mated*, with its own row left out, where its person has another: not naming its person is a miss (FNIR);
//! - *non-mated*, with its whole person left out, so that it is a stranger's: naming anybody is a false positive (FPIR).
//!
//! Rates are means over persons, each of whom counts once; their intervals come from resampling identities ([`resample`]).
//! What is named is what [`decision`](crate::recognize::decision) says under a cut.
//!
//! Two pairs of threshold and margin are told apart. The *estimated* one misses least among those under which no more false positives were found than
//! wished for: the best guess, and sooner too kind than not. The *promised* one misses least among those of which it can be promised that false positives stay
//! below the wished-for rate, at 95 % confidence ([`promise`] says what that means); it misses more, and where there are few persons there is none.

pub mod pairs;
pub mod promise;
pub mod resample;
pub mod split;

use serde::Serialize;

use super::standing::{Conclusion, Standing};
use crate::domain::{Margin, Threshold};
use crate::gallery::Snapshot;
use crate::recognize::decision::{Cut, Decision, conclude};
use promise::{MARGINS, WORTH};
use resample::{Rate, Resampler, Trials};

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
    /// Margins to choose from, ascending, 0 among them.
    margins: Vec<f32>,
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

/// A pair of threshold and margin, and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The pair, and the rates that were found.
    #[serde(flatten)]
    pub rates: Rates,
    /// What the rate of false positives stays below at 95 % confidence, though the pair was chosen by the same persons ([`promise`]).
    pub at_most: f64,
}

/// What is recommended for a wished-for rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The wished-for rate of false positives.
    pub wished: f64,
    /// The pair that misses least among those under which no more false positives were found. That promises nothing. Absent where there is none.
    pub estimated: Option<Pair>,
    /// The pair that misses least among those of which it can be promised that false positives stay below the wished-for rate. Absent where there is none.
    pub promised: Option<Pair>,
    /// Why there is none.
    pub why_not: Option<WhyNot>,
    /// Identities that it takes to promise so low a rate at all; absent where no number would do, if as large a share of them is named.
    pub identities_needed: Option<usize>,
}

/// Why nothing can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNot {
    /// It takes more identities.
    TooFewIdentities,
    /// More identities like these would not do: where strangers are refused as often as wished for, nobody is recognised.
    NotToldApart,
    /// No identity has two embeddings, so nobody could be missed.
    NoMatedSearch,
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
            margins: margins(&mated),
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
            false_positives: self.resampler.rate(&named, &self.non_mated_trials, WORTH),
            misses: self.resampler.rate(&missed, &self.mated_trials, 1),
            wrong: self.resampler.rate(&wrong, &self.mated_trials, 1),
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

    /// The share of each person's non-mated searches that name somebody, where any does.
    fn named(&self, under: Cut) -> Vec<(u32, f64)> {
        events(&self.non_mated, &self.of_non_mated, |one| one.names(under))
    }

    /// False positives as a promise counts them.
    fn counted(&self, under: Cut) -> u64 {
        promise::counted(self.named(under).iter().map(|(_, share)| *share))
    }

    /// The pairs that miss least: among those under which no more false positives were found than wished for, and among those of which that can be
    /// promised.
    pub fn recommend(&self, wished: f64) -> Recommendation {
        let tried = self.margins.len();
        let most = promise::most_events(wished, self.identities(), tried);
        let promised = most.and_then(|most| self.best(&|under| self.counted(under) <= most));
        let estimated = self.best(&|under| self.shares(under).0 <= wished);
        let fewest = self.fewest_named();
        let identities_needed = fewest.and_then(|named| promise::needed(wished, named, tried));
        let why_not = match promised {
            Some(_) => None,
            None if self.mated.is_empty() => Some(WhyNot::NoMatedSearch),
            None if estimated.is_some() || self.non_mated.is_empty() => Some(WhyNot::TooFewIdentities),
            None => Some(WhyNot::NotToldApart),
        };
        let pair = |under: Cut| Pair {
            rates: self.rates(under),
            at_most: promise::at_most(self.counted(under), self.identities(), tried),
        };
        Recommendation {
            wished,
            estimated: estimated.map(pair),
            promised: promised.map(pair),
            why_not,
            identities_needed,
        }
    }

    /// The least rate of false positives under which anybody is recognised.
    fn fewest_named(&self) -> Option<f64> {
        let least = |margin: f32| {
            let led = self.mated.iter().filter(|one| one.is_right && one.names(cut(-1.0, margin)));
            let highest = led.map(|one| one.score).max_by(f32::total_cmp)?;
            Some(self.shares(cut(highest, margin)).0)
        };
        self.margins.iter().filter_map(|&margin| least(margin)).min_by(f64::total_cmp)
    }

    /// The pair that misses least among those that meet a condition, which stricter thresholds meet too; `None` where none does under which anybody
    /// is recognised.
    fn best(&self, is_met: &dyn Fn(Cut) -> bool) -> Option<Cut> {
        if self.mated.is_empty() || self.non_mated.is_empty() {
            return None;
        }
        let pairs = self.margins.iter().filter_map(|&margin| {
            let under = self.tightened(self.least_threshold(margin, is_met)?);
            Some((self.shares(under), under)).filter(|((_, missed), _)| *missed < 1.0)
        });
        // Of those that miss as little the one that names fewest strangers; then the one with the greater threshold, which is the lesser
        // margin: a gallery of one person knows no margin.
        let best = pairs.min_by(|((named, missed), under), ((other_named, other_missed), other)| {
            let by_threshold = other.threshold.get().total_cmp(&under.threshold.get());
            missed.total_cmp(other_missed).then(named.total_cmp(other_named)).then(by_threshold)
        });
        best.map(|(_, under)| under)
    }

    /// The greatest margin among which is chosen: what half of the mated searches have.
    pub fn most_margin(&self) -> f32 {
        self.margins.last().copied().unwrap_or(0.0)
    }

    /// The same margin with a threshold under which no more is missed and no more strangers are named, fewer if some stand in between: half way
    /// between the lowest score of a person who is recognised and the highest stranger's below it, whatever was wished for. Where the margin alone refuses enough, the strangers that it
    /// refuses count too: what is asked of a gallery of one person, which knows no margin, is a threshold.
    fn tightened(&self, under: Cut) -> Cut {
        let recognised = self.mated.iter().filter(|one| one.is_right && one.names(under));
        let lowest = recognised.map(|one| one.score).fold(f32::INFINITY, f32::min);
        let margin = under.min_margin.get();
        let by_margin_alone = under.threshold.get() <= -1.0;
        let below = |one: &&Search| one.score < lowest && (by_margin_alone || one.names(cut(-1.0, margin)));
        // They come by score, descending.
        match self.non_mated.iter().find(below) {
            Some(stranger) if lowest.is_finite() => {
                let middle = on_grid(f64::midpoint(f64::from(stranger.score), f64::from(lowest))) as f32;
                // Scores may be nearer to each other than the steps of thresholds.
                let is_between = stranger.score < middle && middle <= lowest;
                if is_between && middle > under.threshold.get() { cut(middle, margin) } else { under }
            }
            Some(_) | None => under,
        }
    }

    /// The least threshold that meets a condition with this margin, where one does.
    fn least_threshold(&self, margin: f32, is_met: &dyn Fn(Cut) -> bool) -> Option<Cut> {
        // Scores of strangers that the margin does not refuse, descending: only past one of them something changes.
        let free = cut(-1.0, margin);
        let scores: Vec<f32> =
            self.non_mated.iter().filter(|one| one.names(free)).map(|one| one.score).collect();
        // With the threshold just above the score at a place, so many strangers are named.
        let past = |named: usize| match scores.get(named) {
            Some(score) => cut(on_grid(f64::from(*score) + STEP * 1e-3) as f32, margin),
            None => free,
        };
        // No threshold refuses a score that is as high as they come.
        if !is_met(past(0)) {
            return None;
        }
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
        Some(past(sure))
    }
}

/// Margins to choose from: even steps from none to what half of the mated searches have. No false positive has a say in them.
fn margins(mated: &[Search]) -> Vec<f32> {
    let mut leads: Vec<f32> = mated.iter().filter(|one| one.is_right).filter_map(|one| one.margin).collect();
    leads.sort_by(f32::total_cmp);
    let most = leads.get(leads.len() / 2).copied().unwrap_or(0.0);
    let step = |step: usize| on_grid(f64::from(most) * step as f64 / (MARGINS - 1) as f64) as f32;
    let mut margins: Vec<f32> = (0..MARGINS).map(step).collect();
    margins.dedup();
    margins
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
mod tests;

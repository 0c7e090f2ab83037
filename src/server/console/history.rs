//! What the console draws over time: totals, taken every few seconds, for the last hour.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::telemetry::Figures;

/// Samples kept: an hour of one every five seconds.
const KEPT: usize = 720;

/// Totals at one moment.
#[derive(Clone, Debug)]
pub(in crate::server) struct Sample {
    pub(in crate::server) at: Instant,
    pub(in crate::server) figures: Figures,
    /// Comparisons, and those of them that agreed (or were borderline).
    pub(in crate::server) compared: u64,
    pub(in crate::server) agreed: u64,
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(in crate::server) struct History(Mutex<VecDeque<Sample>>);

/// What happened between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::server) struct Stretch {
    /// Requests answered a second.
    pub(in crate::server) rate: f64,
    /// Seconds that 99 % of them did not exceed; `None` where there was none.
    pub(in crate::server) p99: Option<f64>,
    /// The share of comparisons that agreed; `None` where there was none.
    pub(in crate::server) agreement: Option<f64>,
}

impl History {
    pub(in crate::server) fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The latest totals.
    pub(in crate::server) fn latest(&self) -> Option<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).back().cloned()
    }

    pub(in crate::server) fn stretches(&self) -> Vec<Stretch> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().zip(samples.iter().skip(1)).map(|(before, after)| between(before, after)).collect()
    }
}

fn between(before: &Sample, after: &Sample) -> Stretch {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let figures = after.figures.since(&before.figures);
    // Where the roles changed, counts began anew.
    let compared = after.compared.checked_sub(before.compared).filter(|compared| *compared > 0);
    let agreed = after.agreed.saturating_sub(before.agreed);
    Stretch {
        rate: if seconds > 0.0 { figures.answered / seconds } else { 0.0 },
        p99: figures.quantile(0.99),
        agreement: compared.map(|compared| agreed as f64 / compared as f64),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stretch_is_what_happened_between_two_samples() {
        let (history, start) = (History::default(), Instant::now());
        let push = |seconds: u64, answered: f64, compared, agreed| {
            let took = vec![(0.01, answered), (f64::INFINITY, answered)];
            let figures = Figures { answered, took, ..Figures::default() };
            history.push(Sample { at: start + Duration::from_secs(seconds), figures, compared, agreed });
        };
        push(0, 0.0, 0, 0);
        push(5, 50.0, 10, 9);
        push(10, 50.0, 10, 9);
        push(15, 60.0, 4, 4);
        let told = history.stretches();
        assert_eq!(told[0], Stretch { rate: 10.0, p99: Some(0.01), agreement: Some(0.9) });
        assert_eq!(told[1], Stretch::default());
        assert_eq!(told[2].agreement, None, "it began anew");
        for second in 0..2 * KEPT as u64 {
            push(20 + second, 60.0, 4, 4);
        }
        assert_eq!(history.stretches().len(), KEPT - 1);
    }
}

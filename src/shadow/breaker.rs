//! Leaves a shadow alone that fails again and again: after five failures in a row for a second, then twice as long after each trial that
//! fails, five minutes at most. Pure: the time comes from outside.

use std::time::{Duration, Instant};

/// So many failures in a row open it.
const FAILURES: u32 = 5;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);

/// Counts failures, and says when to try again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The latest pause.
    pause: Option<Duration>,
    until: Option<Instant>,
}

impl Breaker {
    /// Whether the shadow is left alone now. Once the pause is over it is tried again.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// It answered.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// It failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures += 1;
        // Once it was open, one more failure is enough.
        if self.failures >= FAILURES {
            let pause = self.pause.map_or(FIRST, |pause| pause.saturating_mul(2).min(LONGEST));
            (self.pause, self.until) = (Some(pause), Some(now + pause));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_for_longer_each_time() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..4 {
            breaker.failed(start);
        }
        breaker.succeeded();
        for _ in 0..4 {
            breaker.failed(start);
        }
        assert!(!breaker.is_open(start));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..11 {
            breaker.failed(now);
            let pause = (0..=300).find(|s| !breaker.is_open(now + Duration::from_secs(*s))).unwrap();
            pauses.push(pause);
            now += Duration::from_secs(pause);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        breaker.succeeded();
        breaker.failed(now);
        assert!(!breaker.is_open(now), "it has answered since");
    }
}

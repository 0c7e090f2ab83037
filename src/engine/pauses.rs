//! How long to wait before what failed is tried again: twice as long each time, up to a limit. Pure: the time comes from outside.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);

/// The pauses of one thing that may fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// The last pause; `None` before any.
    last: Option<Duration>,
    /// Since when it works again.
    up_since: Option<Instant>,
}

impl Pauses {
    /// It failed: when to try again. The pauses begin anew only where it had worked for longer than the last one, so that
    /// what works for a moment each time is not tried for ever at the first pace.
    pub(crate) fn failed(&mut self, now: Instant) -> Instant {
        let proven =
            self.up_since.take().zip(self.last).is_some_and(|(up, last)| now.duration_since(up) > last);
        let pause = match self.last {
            Some(last) if !proven => last.saturating_mul(2).min(LONGEST),
            Some(_) | None => FIRST,
        };
        self.last = Some(pause);
        now + pause
    }

    /// It works again.
    pub(crate) fn recovered(&mut self, now: Instant) {
        self.up_since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(pauses: &mut Pauses, now: Instant) -> u64 {
        (pauses.failed(now) - now).as_secs()
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let taken: Vec<u64> = (0..11).map(|_| pause(&mut pauses, now)).collect();
        assert_eq!(taken, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn they_begin_anew_once_it_worked_for_longer_than_the_last() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(
            [pause(&mut pauses, now), pause(&mut pauses, at(1)), pause(&mut pauses, at(3))],
            [1, 2, 4]
        );
        pauses.recovered(at(7));
        assert_eq!(pause(&mut pauses, at(11)), 8, "it worked for four seconds, not more");
        pauses.recovered(at(20));
        assert_eq!(pause(&mut pauses, at(29)), 1);
        assert_eq!(pause(&mut pauses, at(1000)), 2, "it has not worked since");
    }
}

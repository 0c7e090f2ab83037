//! What the comparisons have shown so far: counts by kind, errors of scores, latencies of both sides. Pure; survives a restart.
//!
//! It speaks of one pair of backends in one pair of roles: where either changes it begins anew.

use serde::{Deserialize, Serialize};

use super::Sides;
use super::compare::is_hard;
use super::sketch::Sketch;
use crate::telemetry::{Label, ShadowKind};

/// What has been seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// When the first of it was seen, in milliseconds since 1970 (UTC).
    pub since_ms: u64,
    /// By the place of the kind in [`ShadowKind::ALL`].
    counts: Vec<u64>,
    /// Largest errors of the shadow's scores, a probe.
    pub score_error: Sketch,
    /// Nanoseconds a request, scanned and verified.
    pub latency_ns: Sides<Sketch>,
}

impl Evidence {
    /// Nothing yet.
    pub fn since(since_ms: u64) -> Self {
        Self {
            since_ms,
            counts: vec![0; ShadowKind::ALL.len()],
            score_error: Sketch::default(),
            latency_ns: Sides::default(),
        }
    }

    /// Whether it has the form that this program writes.
    pub fn is_sound(&self) -> bool {
        self.counts.len() == ShadowKind::ALL.len()
    }

    /// So many more probes ended like this.
    pub fn count(&mut self, kind: ShadowKind, probes: u64) {
        if let Some(count) = self.counts.get_mut(place(kind)) {
            *count += probes;
        }
    }

    /// What was dropped does not count any more: it tells of how much was sampled, not of the backends.
    pub fn forget_drops(&mut self) {
        if let Some(count) = self.counts.get_mut(place(ShadowKind::Dropped)) {
            *count = 0;
        }
    }

    /// Probes that ended like this.
    pub fn of(&self, kind: ShadowKind) -> u64 {
        self.counts.get(place(kind)).copied().unwrap_or(0)
    }

    /// Probes of which both sides' answers were compared.
    pub fn compared(&self) -> u64 {
        self.sum(|kind| kind != ShadowKind::Dropped && !is_failure(kind))
    }

    /// Comparisons in which the shadow would have said something else of a person.
    pub fn hard(&self) -> u64 {
        self.sum(is_hard)
    }

    /// Comparisons in which order or scores differed.
    pub fn soft(&self) -> u64 {
        self.of(ShadowKind::Order) + self.of(ShadowKind::Score)
    }

    /// Probes that the shadow failed.
    pub fn failed(&self) -> u64 {
        self.sum(is_failure)
    }

    /// All probes that could have ended like this.
    pub fn whole_of(&self, kind: ShadowKind) -> u64 {
        match kind {
            ShadowKind::Error | ShadowKind::Timeout => self.compared() + self.failed(),
            ShadowKind::Dropped => self.sampled(),
            ShadowKind::Decision
            | ShadowKind::Identity
            | ShadowKind::Order
            | ShadowKind::Score
            | ShadowKind::Borderline
            | ShadowKind::Agree => self.compared(),
        }
    }

    /// All probes sampled.
    pub fn sampled(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn sum(&self, of: impl Fn(ShadowKind) -> bool) -> u64 {
        ShadowKind::ALL.iter().filter(|kind| of(**kind)).map(|kind| self.of(*kind)).sum()
    }
}

fn place(kind: ShadowKind) -> usize {
    ShadowKind::ALL.iter().position(|one| *one == kind).unwrap_or(usize::MAX)
}

fn is_failure(kind: ShadowKind) -> bool {
    matches!(kind, ShadowKind::Error | ShadowKind::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_once_and_belongs_somewhere() {
        let mut evidence = Evidence::since(7);
        for (place, kind) in ShadowKind::ALL.iter().enumerate() {
            evidence.count(*kind, 10_u64.pow(place as u32));
        }
        // error, timeout, decision, identity, order, score, borderline, agree, dropped.
        assert_eq!(evidence.failed(), 11);
        assert_eq!(evidence.hard(), 1_100);
        assert_eq!(evidence.soft(), 110_000);
        assert_eq!(evidence.compared(), 11_111_100);
        assert_eq!(evidence.sampled(), 111_111_111);
        let mut without = evidence.clone();
        without.forget_drops();
        assert_eq!((without.sampled(), without.compared()), (11_111_111, 11_111_100));
        let text = serde_json::to_string(&evidence).unwrap();
        let restored: Evidence = serde_json::from_str(&text).unwrap();
        assert!(restored.is_sound());
        assert_eq!(restored, evidence);
    }
}

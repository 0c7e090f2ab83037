//! Whether the shadow is fit to become the primary: conditions over the evidence, each met or not. Pure.

use super::evidence::Evidence;
use crate::config::GateSettings;
use crate::domain::bounds::{CONFIDENCE, upper_bound};
use crate::telemetry::GateCondition;

/// The percentile of latency that is compared.
const LATENCY_SHARE: f64 = 0.99;

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Which.
    pub condition: GateCondition,
    /// Whether it is met.
    pub met: bool,
    /// What was measured; `None` where nothing was yet.
    pub value: Option<f64>,
    /// What it is held against: the least for comparisons, the most for all others.
    pub limit: f64,
}

/// Every condition, in the order of [`GateCondition`].
pub fn judge(evidence: &Evidence, settings: &GateSettings) -> Vec<Condition> {
    let most = |condition, value: Option<f64>, limit: f64| Condition {
        condition,
        met: value.is_some_and(|value| value <= limit),
        value,
        limit,
    };
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let compared = evidence.compared();
    vec![
        Condition {
            condition: GateCondition::Comparisons,
            met: compared >= settings.min_comparisons,
            value: Some(compared as f64),
            limit: settings.min_comparisons as f64,
        },
        most(GateCondition::Hard, Some(evidence.hard() as f64), 0.0),
        most(
            GateCondition::HardRate,
            (compared > 0).then(|| upper_bound(evidence.hard(), compared, CONFIDENCE)),
            settings.max_hard_rate,
        ),
        most(GateCondition::Soft, share(evidence.soft(), compared), settings.max_soft_ratio),
        most(
            GateCondition::Failures,
            share(evidence.failed(), compared + evidence.failed()),
            settings.max_failure_ratio,
        ),
        most(
            GateCondition::Drops,
            share(evidence.sampled() - compared - evidence.failed(), evidence.sampled()),
            settings.max_drop_ratio,
        ),
        most(GateCondition::Latency, latency_ratio(evidence), settings.max_latency_ratio),
    ]
}

/// Whether every condition is met.
pub fn is_met(conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| condition.met)
}

/// The shadow's 99th percentile of latency by the primary's.
fn latency_ratio(evidence: &Evidence) -> Option<f64> {
    let primary = evidence.latency_ns.primary.quantile(LATENCY_SHARE)?;
    let shadow = evidence.latency_ns.shadow.quantile(LATENCY_SHARE)?;
    (primary > 0.0).then(|| shadow / primary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Label, ShadowKind};

    const SETTINGS: GateSettings = GateSettings {
        min_comparisons: 1000,
        max_hard_rate: 0.01,
        max_soft_ratio: 0.0,
        max_failure_ratio: 0.01,
        max_drop_ratio: 0.1,
        max_latency_ratio: 1.5,
    };

    /// What meets everything.
    fn good() -> Evidence {
        let mut evidence = Evidence::since(0);
        evidence.count(ShadowKind::Agree, 990);
        evidence.count(ShadowKind::Borderline, 10);
        evidence.count(ShadowKind::Timeout, 10);
        evidence.count(ShadowKind::Dropped, 100);
        evidence.latency_ns.primary.record(1e6);
        evidence.latency_ns.shadow.record(1.4e6);
        evidence
    }

    fn unmet(evidence: &Evidence) -> Vec<&'static str> {
        let unmet = judge(evidence, &SETTINGS).into_iter().filter(|one| !one.met);
        unmet.map(|one| one.condition.as_str()).collect()
    }

    #[test]
    fn every_condition_fails_by_itself() {
        assert_eq!(unmet(&good()), [""; 0]);
        assert!(is_met(&judge(&good(), &SETTINGS)));
        let with = |kind, probes| {
            let mut evidence = good();
            evidence.count(kind, probes);
            unmet(&evidence)
        };
        // One of a thousand is within 1 % at 95 %, but one is seen.
        assert_eq!(with(ShadowKind::Identity, 1), ["hard"]);
        assert_eq!(with(ShadowKind::Decision, 20), ["hard", "hard_rate"]);
        assert_eq!(with(ShadowKind::Order, 1), ["soft"]);
        assert_eq!(with(ShadowKind::Score, 1), ["soft"]);
        assert_eq!(with(ShadowKind::Error, 1), ["failures"]);
        assert_eq!(with(ShadowKind::Dropped, 20), ["drops"]);
        let mut slow = good();
        slow.latency_ns.shadow.record(1.6e6);
        assert_eq!(unmet(&slow), ["latency"]);
        assert!(!is_met(&judge(&slow, &SETTINGS)));
    }

    #[test]
    fn without_evidence_nothing_is_met_but_that_nothing_was_seen() {
        let met = judge(&Evidence::since(0), &SETTINGS).into_iter().filter(|one| one.met);
        assert_eq!(met.map(|one| one.condition.as_str()).collect::<Vec<_>>(), ["hard"]);
        assert_eq!(judge(&Evidence::since(0), &SETTINGS).len(), GateCondition::ALL.len());
        let mut few = Evidence::since(0);
        few.count(ShadowKind::Agree, 100);
        few.latency_ns = good().latency_ns;
        // None of a hundred: the rate may be 3 % all the same.
        assert_eq!(unmet(&few), ["comparisons", "hard_rate"]);
    }
}

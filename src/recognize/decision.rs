//! What is concluded from scores: pure, with no I/O and no clock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::domain::{Margin, Threshold};
use crate::telemetry::DecisionKind;

/// What is concluded of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Best score >= threshold, and one identity only or margin >= least margin.
    Recognized,
    /// Best score < threshold.
    BelowThreshold,
    /// Best score >= threshold, margin < least margin.
    Ambiguous,
    /// Nothing to compare with.
    NoCandidate,
    /// Would be recognised, but another probe of its group holds the identity with a higher score.
    Displaced,
}

impl From<Decision> for DecisionKind {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Recognized => Self::Recognized,
            Decision::BelowThreshold => Self::BelowThreshold,
            Decision::Ambiguous => Self::Ambiguous,
            Decision::NoCandidate => Self::NoCandidate,
            Decision::Displaced => Self::Displaced,
        }
    }
}

/// The least score and least margin that apply to a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Least score, inclusive.
    pub threshold: Threshold,
    /// Least margin, inclusive.
    pub min_margin: Margin,
}

/// The conclusion, with the numbers that led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The conclusion.
    pub decision: Decision,
    /// What applied.
    pub cut: Cut,
    /// The best identity's score; `None` where there is none.
    pub score: Option<f32>,
    /// The best identity's score less the second's, rounded once to `f32`; `None` where there is no second.
    pub margin: Option<f32>,
}

impl Verdict {
    /// Score less threshold.
    pub fn threshold_headroom(&self) -> Option<f32> {
        self.score.map(|score| difference(score, self.cut.threshold.get()))
    }

    /// Margin less least margin.
    pub fn margin_headroom(&self) -> Option<f32> {
        self.margin.map(|margin| difference(margin, self.cut.min_margin.get()))
    }
}

fn difference(a: f32, b: f32) -> f32 {
    (f64::from(a) - f64::from(b)) as f32
}

/// Decides from the best scores of the best and the second identity, where there are any; `second <= best`.
pub fn decide(best: Option<f32>, second: Option<f32>, cut: Cut) -> Verdict {
    let margin = best.zip(second).map(|(best, second)| difference(best, second));
    Verdict { decision: conclude(best, margin, cut), cut, score: best, margin }
}

/// Decides from the best identity's score and its lead over any other, where there are any.
pub fn conclude(score: Option<f32>, margin: Option<f32>, cut: Cut) -> Decision {
    match (score, margin) {
        (None, _) => Decision::NoCandidate,
        (Some(score), _) if score < cut.threshold.get() => Decision::BelowThreshold,
        (Some(_), Some(margin)) if margin < cut.min_margin.get() => Decision::Ambiguous,
        (Some(_), _) => Decision::Recognized,
    }
}

/// A probe that takes part in one photo, one person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender<'a> {
    /// Its photo; a probe of an empty group has no rivals.
    pub group: &'a str,
    /// Its nearest identity, by any number that tells identities apart; `None` where it has none.
    pub identity: Option<usize>,
}

/// One photo, one person: of recognised probes of one group and identity only the one with the highest score keeps it (ties: the
/// earlier), the others become [`Decision::Displaced`]. `verdicts` and `contenders` speak of the same probes.
pub fn displace(verdicts: &mut [Verdict], contenders: &[Contender<'_>]) {
    let mut holders: HashMap<(&str, usize), usize> = HashMap::new();
    for (probe, contender) in contenders.iter().enumerate() {
        let Some(identity) = contender.identity else { continue };
        if contender.group.is_empty() || verdicts[probe].decision != Decision::Recognized {
            continue;
        }
        let loser = match holders.entry((contender.group, identity)) {
            Entry::Vacant(free) => {
                free.insert(probe);
                continue;
            }
            Entry::Occupied(mut holder) => {
                if verdicts[probe].score > verdicts[*holder.get()].score {
                    holder.insert(probe)
                } else {
                    probe
                }
            }
        };
        verdicts[loser].decision = Decision::Displaced;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(threshold: f32, min_margin: f32) -> Cut {
        Cut {
            threshold: Threshold::parse(threshold).unwrap(),
            min_margin: Margin::parse(min_margin).unwrap(),
        }
    }

    #[test]
    fn threshold_and_margin_are_inclusive() {
        let table = [
            (Some(0.5), Some(0.25), Decision::Recognized),
            (Some(0.499), Some(0.0), Decision::BelowThreshold),
            (Some(0.5), Some(0.26), Decision::Ambiguous),
            (Some(0.5), None, Decision::Recognized),
            (Some(0.4), None, Decision::BelowThreshold),
            (None, None, Decision::NoCandidate),
        ];
        for (best, second, expected) in table {
            assert_eq!(decide(best, second, cut(0.5, 0.25)).decision, expected, "{best:?} {second:?}");
        }
    }

    #[test]
    fn headrooms_say_by_how_much() {
        let verdict = decide(Some(0.75), Some(0.5), cut(0.5, 0.375));
        assert_eq!((verdict.threshold_headroom(), verdict.margin_headroom()), (Some(0.25), Some(-0.125)));
        assert_eq!(decide(Some(0.75), None, cut(0.5, 0.375)).margin_headroom(), None);
        assert_eq!(decide(None, None, cut(0.5, 0.375)).threshold_headroom(), None);
    }

    #[test]
    fn one_photo_has_one_of_each_person() {
        use Decision::{BelowThreshold, Displaced, Recognized};
        let verdict = |score| decide(Some(score), None, cut(0.5, 0.0));
        let mut verdicts =
            [verdict(0.8), verdict(0.9), verdict(0.9), verdict(0.4), verdict(0.7), verdict(0.95)];
        let contender = |group, identity| Contender { group, identity: Some(identity) };
        let contenders = [
            contender("a", 1),
            contender("a", 1),
            contender("a", 1),
            contender("a", 1),
            contender("a", 2),
            contender("b", 1),
        ];
        displace(&mut verdicts, &contenders);
        let decisions = verdicts.map(|v| v.decision);
        assert_eq!(decisions, [Displaced, Recognized, Displaced, BelowThreshold, Recognized, Recognized]);
    }

    #[test]
    fn probes_of_no_group_have_no_rivals() {
        let mut verdicts = [decide(Some(0.8), None, cut(0.5, 0.0)); 2];
        displace(&mut verdicts, &[Contender { group: "", identity: Some(0) }; 2]);
        assert!(verdicts.iter().all(|v| v.decision == Decision::Recognized));
    }

    proptest! {
        /// Raising threshold or margin never turns a rejection into a recognition.
        #[test]
        fn stricter_is_never_more_permissive(
            best in -1.0_f32..1.0, lead in 0.0_f32..1.0, threshold in -1.0_f32..0.9, margin in 0.0_f32..1.0, more in 0.0_f32..0.1,
        ) {
            let second = Some(best - lead);
            let lax = decide(Some(best), second, cut(threshold, margin));
            for strict in [cut(threshold + more, margin), cut(threshold, margin + more)] {
                let strict = decide(Some(best), second, strict);
                prop_assert!(lax.decision == Decision::Recognized || strict.decision != Decision::Recognized);
            }
        }

        /// A headroom is negative exactly where its condition failed.
        #[test]
        fn headrooms_agree_with_the_decision(best in -1.0_f32..1.0, lead in 0.0_f32..1.0, t in -1.0_f32..1.0, m in 0.0_f32..1.0) {
            let verdict = decide(Some(best), Some(best - lead), cut(t, m));
            let (over_threshold, over_margin) =
                (verdict.threshold_headroom().unwrap() >= 0.0, verdict.margin_headroom().unwrap() >= 0.0);
            let expected = match (over_threshold, over_margin) {
                (false, _) => Decision::BelowThreshold,
                (true, false) => Decision::Ambiguous,
                (true, true) => Decision::Recognized,
            };
            prop_assert_eq!(verdict.decision, expected);
        }

        /// In a group every identity is held by at most one probe, and by its best.
        #[test]
        fn displacing_leaves_each_identity_its_best_probe(
            probes in prop::collection::vec((0.0_f32..1.0, 0_usize..3, 0_usize..3), 1..30),
        ) {
            let groups = ["", "a", "b"];
            let mut verdicts: Vec<_> = probes.iter().map(|p| decide(Some(p.0), None, cut(0.5, 0.0))).collect();
            let contenders: Vec<_> =
                probes.iter().map(|p| Contender { group: groups[p.1], identity: Some(p.2) }).collect();
            let before = verdicts.clone();
            displace(&mut verdicts, &contenders);
            for (i, contender) in contenders.iter().enumerate() {
                let beaten = contenders.iter().enumerate().any(|(j, rival)| {
                    rival == contender && !contender.group.is_empty() && before[j].decision == Decision::Recognized
                        && (probes[j].0 > probes[i].0 || (probes[j].0 >= probes[i].0 && j < i))
                });
                let expected = if beaten && before[i].decision == Decision::Recognized {
                    Decision::Displaced
                } else {
                    before[i].decision
                };
                prop_assert_eq!(verdicts[i].decision, expected);
            }
        }
    }
}

//! What would turn a decision: the nearest threshold or margin under which something else would be concluded. Pure.

use super::decision::{Cut, Decision, Verdict, conclude};
use crate::domain::{Margin, Threshold};

/// Another conclusion, and the cut nearest to the one that was applied under which it would be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// What would be concluded.
    pub decision: Decision,
    /// Under what.
    pub cut: Cut,
}

/// The other conclusions to which turning the threshold, turning the margin, or lowering both leads, each once, the one for which least must be
/// turned first. None for a probe without a candidate, and for one that was displaced, which no cut of its own did.
pub fn turns(verdict: &Verdict) -> Vec<Turn> {
    let (Some(score), Decision::Recognized | Decision::BelowThreshold | Decision::Ambiguous) =
        (verdict.score, verdict.decision)
    else {
        return Vec::new();
    };
    let Cut { threshold, min_margin } = verdict.cut;
    // The greatest that is still reached, and the least that is not; scores may lie beyond the range of thresholds by rounding.
    let [reached, missed] = [score, score.next_up()].map(|value| Threshold::parse(value).ok());
    let reached = reached.or_else(|| Threshold::parse(score.clamp(-1.0, 1.0)).ok());
    let margin = |value: fn(f32) -> f32| verdict.margin.and_then(|margin| Margin::parse(value(margin)).ok());
    let (led, outrun) = (margin(|lead| lead), margin(f32::next_up));
    let cuts = [
        (reached, Some(min_margin)),
        (missed, Some(min_margin)),
        (Some(threshold), led),
        (Some(threshold), outrun),
        (reached, led),
    ];
    let mut turns: Vec<Turn> = Vec::new();
    for (threshold, min_margin) in cuts {
        let (Some(threshold), Some(min_margin)) = (threshold, min_margin) else { continue };
        let cut = Cut { threshold, min_margin };
        let decision = conclude(verdict.score, verdict.margin, cut);
        if decision != verdict.decision && turns.iter().all(|turn| turn.decision != decision) {
            turns.push(Turn { decision, cut });
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recognize::decision::decide;

    fn cut(threshold: f32, min_margin: f32) -> Cut {
        Cut {
            threshold: Threshold::parse(threshold).unwrap(),
            min_margin: Margin::parse(min_margin).unwrap(),
        }
    }

    fn turned(best: f32, second: Option<f32>, under: Cut) -> Vec<(Decision, f32, f32)> {
        let turns = turns(&decide(Some(best), second, under));
        turns
            .iter()
            .map(|turn| (turn.decision, turn.cut.threshold.get(), turn.cut.min_margin.get()))
            .collect()
    }

    #[test]
    fn a_decision_is_turned_at_its_score_and_its_margin() {
        use Decision::{Ambiguous, BelowThreshold, Recognized};
        assert_eq!(
            turned(0.75, Some(0.5), cut(0.5, 0.125)),
            [(BelowThreshold, 0.75_f32.next_up(), 0.125), (Ambiguous, 0.5, 0.25_f32.next_up())]
        );
        assert_eq!(turned(0.75, Some(0.5), cut(0.8, 0.125)), [(Recognized, 0.75, 0.125)]);
        assert_eq!(
            turned(0.75, Some(0.5), cut(0.8, 0.5)),
            [(Ambiguous, 0.75, 0.5), (Recognized, 0.75, 0.25)]
        );
        assert_eq!(
            turned(0.75, Some(0.5), cut(0.5, 0.5)),
            [(BelowThreshold, 0.75_f32.next_up(), 0.5), (Recognized, 0.5, 0.25)]
        );
        assert_eq!(turned(0.75, None, cut(0.5, 0.5)), [(BelowThreshold, 0.75_f32.next_up(), 0.5)]);
    }

    #[test]
    fn what_no_cut_did_no_cut_turns() {
        assert_eq!(turns(&decide(None, None, cut(0.5, 0.0))), []);
        let displaced = Verdict { decision: Decision::Displaced, ..decide(Some(0.75), None, cut(0.5, 0.0)) };
        assert_eq!(turns(&displaced), []);
    }

    proptest! {
        /// Under each turn's cut the decision is what it says, and every conclusion that another threshold or another margin leads to is among them.
        #[test]
        fn turns_are_true_and_complete(
            best in -1.0_f32..1.0, lead in 0.0_f32..1.0, t in -1.0_f32..1.0, m in 0.0_f32..2.0,
            other_t in -1.0_f32..1.0, other_m in 0.0_f32..2.0,
        ) {
            let verdict = decide(Some(best), Some(best - lead), cut(t, m));
            let turns = turns(&verdict);
            for turn in &turns {
                prop_assert_eq!(decide(Some(best), Some(best - lead), turn.cut).decision, turn.decision);
            }
            for other in [cut(other_t, m), cut(t, other_m)] {
                let other = decide(Some(best), Some(best - lead), other).decision;
                prop_assert!(other == verdict.decision || turns.iter().any(|turn| turn.decision == other));
            }
        }
    }
}

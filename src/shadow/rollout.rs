//! Where the rollout stands: shadowing or promoted, and who may promote. Pure; survives a restart.

use serde::{Deserialize, Serialize};

use crate::config::Promotion;

/// Where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Whether the shadow's backend answers.
    pub promoted: bool,
    /// When it last moved, in milliseconds since 1970 (UTC); 0: never.
    pub changed_ms: u64,
    /// Why it last moved.
    pub because: String,
    /// Whether an operator must promote: something was seen, or said, that no amount of further evidence takes back.
    pub held: bool,
}

/// Longest reason that an operator may give, in bytes.
pub const MAX_REASON: usize = 1024;

/// What an operator did, as a reason: who, and why where that was told.
pub fn by_hand(who: &str, why: &str) -> String {
    match why.trim() {
        "" => format!("by {who}"),
        why => format!("by {who}: {why}"),
    }
}

/// Why a promoted backend is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demotion {
    /// An operator wants it.
    Asked(String),
    /// It would have said something else of a person.
    Disagreement(String),
    /// It failed, or computed wrongly, or is another machine than the one promoted.
    Failure(String),
}

impl Rollout {
    /// Whether the service may promote by itself, once the gate is met.
    pub fn may_promote(&self, promotion: Promotion) -> bool {
        promotion == Promotion::Automatic && !self.promoted && !self.held
    }

    /// Promotes; says whether anything changed.
    pub fn promote(&mut self, now_ms: u64, because: String) -> bool {
        let changed = !self.promoted;
        if changed {
            *self = Self { promoted: true, changed_ms: now_ms, because, held: false };
        }
        changed
    }

    /// Demotes; says whether anything changed.
    pub fn demote(&mut self, now_ms: u64, demotion: Demotion) -> bool {
        let changed = self.promoted;
        if changed {
            // A device may fail for a while and be sound again: the evidence that it gathers anew decides.
            let held = matches!(demotion, Demotion::Asked(_) | Demotion::Disagreement(_));
            let (Demotion::Asked(because) | Demotion::Disagreement(because) | Demotion::Failure(because)) =
                demotion;
            *self = Self { promoted: false, changed_ms: now_ms, because, held };
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_by_hand_says_by_whom() {
        assert_eq!(by_hand("anna", " too slow "), "by anna: too slow");
        assert_eq!(by_hand("an operator", ""), "by an operator");
    }

    #[test]
    fn after_a_disagreement_only_an_operator_promotes() {
        let mut rollout = Rollout::default();
        assert!(rollout.may_promote(Promotion::Automatic) && !rollout.may_promote(Promotion::Manual));
        assert!(rollout.promote(1, "the gate is met".to_owned()));
        assert!(!rollout.promote(2, "again".to_owned()) && rollout.changed_ms == 1);
        assert!(!rollout.may_promote(Promotion::Automatic), "it is promoted");
        assert!(rollout.demote(3, Demotion::Failure("lost".to_owned())));
        assert!(rollout.may_promote(Promotion::Automatic));
        assert!(!rollout.demote(4, Demotion::Failure("again".to_owned())));
        for demotion in [Demotion::Disagreement(String::new()), Demotion::Asked(String::new())] {
            rollout.promote(5, String::new());
            assert!(rollout.demote(6, demotion));
            assert!(!rollout.may_promote(Promotion::Automatic));
        }
        assert!(rollout.promote(7, "by hand".to_owned()) && !rollout.held);
    }
}

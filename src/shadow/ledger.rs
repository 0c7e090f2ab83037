//! What the shadow's thread and those who ask share: evidence, rollout, the latest disagreements. One lock, held for moments.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::evidence::Evidence;
use super::gate::{self, Condition};
use super::journal::State;
use super::record::{Machine, Machines, Record};
use super::rollout::{Demotion, Rollout};
use crate::config::{Promotion, ShadowSettings};
use crate::domain::Embedding;
use crate::gallery::Snapshot;
use crate::recognize::Seat;
use crate::telemetry::{self, RolloutChange, ShadowKind};

/// How many of the latest disagreements stay in memory.
pub(super) const KEPT: usize = 256;

/// A disagreement in memory, and what replaying it takes.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: Arc<Record>,
    /// `None` for one read from disk after a restart.
    pub(super) again: Option<Again>,
}

/// What replaying takes that is not in the record. It stays in memory, whatever is kept on disk.
#[derive(Clone, Debug)]
pub(super) struct Again {
    pub(super) embedding: Embedding,
    /// The generation, while somebody else holds it.
    pub(super) snapshot: Weak<Snapshot>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Until the shadow's backend is open, its machine is that of before the last restart, if any.
    pub(super) machines: Machines,
    /// Whether it is open.
    pub(super) open: bool,
    pub(super) evidence: Evidence,
    pub(super) rollout: Rollout,
    pub(super) configured_sampling: f64,
    pub(super) sampling: f64,
    /// Oldest first.
    pub(super) latest: VecDeque<Kept>,
    /// Whether the state on disk is behind, and should not stay so.
    pub(super) urgent: bool,
}

impl Ledger {
    pub(super) fn new(state: State, latest: Vec<Record>) -> Self {
        let State { machines, evidence, rollout, configured_sampling, sampling, .. } = state;
        let kept = |record| Kept { record: Arc::new(record), again: None };
        Self {
            machines,
            open: false,
            evidence,
            rollout,
            configured_sampling,
            sampling,
            latest: latest.into_iter().map(kept).collect(),
            urgent: false,
        }
    }

    pub(super) fn state(&self, now_ms: u64) -> State {
        let mut state = State::new(self.machines.clone(), self.configured_sampling, now_ms);
        state.sampling = self.sampling;
        state.rollout = self.rollout.clone();
        state.evidence = self.evidence.clone();
        state
    }

    /// Who answers, by this ledger.
    pub(super) fn answering(&self) -> Seat {
        if self.rollout.promoted && self.open { Seat::Candidate } else { Seat::Standing }
    }

    /// What scans in a seat is this machine. Where it is another than before, evidence begins anew and a promotion ends; sampling stays,
    /// since it costs no caller anything, and so does that only an operator may promote.
    pub(super) fn runs_on(&mut self, seat: Seat, machine: Machine, now_ms: u64) {
        let known = match seat {
            Seat::Standing => &mut self.machines.standing,
            Seat::Candidate => &mut self.machines.candidate,
        };
        let before = std::mem::replace(known, machine);
        if before == *known || !before.is_known() {
            return;
        }
        tracing::warn!(
            target: super::TARGET,
            ?before,
            now = ?*known,
            "a machine that is compared is another than before: evidence begins anew"
        );
        let held = self.rollout.held;
        let what =
            format!("{} is not the machine that it was promoted on: evidence begins anew", known.backend);
        if !self.demote(now_ms, Demotion::Failure(what)) {
            self.evidence = Evidence::since(now_ms);
            self.urgent = true;
        }
        self.rollout.held = held;
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        if self.latest.len() >= KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(kept);
    }

    pub(super) fn count(&mut self, kind: ShadowKind, probes: u64) {
        self.evidence.count(kind, probes);
    }

    /// Makes the shadow the primary; evidence begins anew, since the roles are others.
    pub(super) fn promote(&mut self, now_ms: u64, because: String) -> bool {
        let changed = self.rollout.promote(now_ms, because);
        if changed {
            tracing::warn!(
                target: super::TARGET,
                because = self.rollout.because,
                backend = self.machines.candidate.backend,
                compared = self.evidence.compared(),
                "the shadow's backend is promoted: it answers from now on"
            );
            self.moved(RolloutChange::Promoted, now_ms);
        }
        changed
    }

    /// Takes it back.
    pub(super) fn demote(&mut self, now_ms: u64, demotion: Demotion) -> bool {
        let changed = self.rollout.demote(now_ms, demotion);
        if changed {
            tracing::warn!(
                target: super::TARGET,
                because = self.rollout.because,
                backend = self.machines.standing.backend,
                compared = self.evidence.compared(),
                "the shadow's backend is demoted: the configured one answers again"
            );
            self.moved(RolloutChange::Demoted, now_ms);
        }
        changed
    }

    fn moved(&mut self, change: RolloutChange, now_ms: u64) {
        self.evidence = Evidence::since(now_ms);
        self.urgent = true;
        telemetry::shadow_changed(change);
        telemetry::shadow_promoted(self.rollout.promoted);
    }

    /// The gate's conditions now, which the metrics then show.
    pub(super) fn judge(&self, settings: &ShadowSettings) -> Vec<Condition> {
        let conditions = gate::judge(&self.evidence, &settings.gate);
        for condition in &conditions {
            telemetry::shadow_gate(condition.condition, condition.met);
        }
        conditions
    }

    /// Whether the service is to promote by itself now.
    pub(super) fn is_due(&self, conditions: &[Condition], promotion: Promotion) -> bool {
        self.rollout.may_promote(promotion) && gate::is_met(conditions)
    }
}

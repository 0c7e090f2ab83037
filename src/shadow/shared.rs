//! What the shadow's thread shares with those who offer requests and those who ask: sampling, room, the ledger.
//!
//! A request that is answered looks at two numbers here; it waits for nothing but, where it is to demote, the ledger's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::journal::{self, Journal, State};
use super::ledger::{KEPT, Ledger};
use super::record::{Machines, Record};
use super::rollout::Demotion;
use super::{TARGET, now_ms};
use crate::config::{BackendSettings, ShadowSettings};
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{self, ShadowKind};

/// What the shadow's thread shares with those who offer and ask.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: ShadowSettings,
    /// For engines that are started beside the two.
    pub(super) backend: BackendSettings,
    pub(super) recognizer: Arc<Recognizer>,
    pub(super) breaker_open: AtomicBool,
    /// Probes that wait.
    pub(super) waiting: AtomicUsize,
    pub(super) watchers: broadcast::Sender<Arc<Record>>,
    pub(super) stopping: AtomicBool,
    /// The share of requests to take, of 2^32.
    sampled_of_2_32: AtomicU64,
    /// Requests seen: each gives another number out of a generator.
    seen: AtomicU64,
    /// Probes dropped that the ledger does not know of yet.
    dropped: AtomicU64,
    ledger: Mutex<Ledger>,
}

impl Shared {
    pub(super) fn new(
        (settings, backend): (&ShadowSettings, &BackendSettings),
        recognizer: Arc<Recognizer>,
        mut ledger: Ledger,
        watchers: broadcast::Sender<Arc<Record>>,
    ) -> Self {
        if ledger.rollout.promoted {
            let readied = recognizer.engine_of(Seat::Candidate).and_then(|candidate| {
                recognizer.galleries().try_for_each(|snapshot| candidate.load(snapshot, None).map(|_| ()))
            });
            match readied {
                Ok(()) => recognizer.let_answer(Seat::Candidate),
                Err(error) => {
                    ledger.demote(now_ms(), Demotion::Failure(error.to_string()));
                }
            }
        }
        Self {
            settings: settings.clone(),
            backend: backend.clone(),
            recognizer,
            breaker_open: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            watchers,
            stopping: AtomicBool::new(false),
            sampled_of_2_32: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            ledger: Mutex::new(ledger),
        }
    }

    /// The ledger, with all that is known by now.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            ledger.count(ShadowKind::Dropped, dropped);
        }
        ledger
    }

    /// Makes what can be set by hand count, and show.
    pub(super) fn show(&self) {
        let ledger = self.ledger();
        let share = share_of_2_32(ledger.sampling);
        self.sampled_of_2_32.store(share, Ordering::Relaxed);
        telemetry::shadow_sampling(ledger.sampling);
        telemetry::shadow_promoted(ledger.rollout.promoted);
    }

    /// Whether this request is one of those to compare.
    pub(super) fn samples(&self) -> bool {
        let share = self.sampled_of_2_32.load(Ordering::Relaxed);
        share > 0 && scattered(self.seen.fetch_add(1, Ordering::Relaxed)) >> 32 < share
    }

    pub(super) fn take_room(&self, probes: usize) -> bool {
        let queue = self.settings.queue;
        let room = |waiting: usize| waiting.checked_add(probes).filter(|waiting| *waiting <= queue);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn give_room(&self, probes: usize) {
        self.waiting.fetch_sub(probes, Ordering::Relaxed);
    }

    pub(super) fn drop_probes(&self, probes: usize) {
        self.dropped.fetch_add(probes as u64, Ordering::Relaxed);
        telemetry::shadow_compared(ShadowKind::Dropped, probes as u64);
    }

    /// Takes the promoted backend back; says whether it was promoted.
    pub(super) fn demote(&self, demotion: Demotion) -> bool {
        let mut ledger = self.ledger();
        self.recognizer.let_answer(Seat::Standing);
        ledger.demote(now_ms(), demotion)
    }
}

/// A share from 0 to 1, of 2^32.
#[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
fn share_of_2_32(share: f64) -> u64 {
    (share * (1_u64 << 32) as f64).round() as u64
}

/// The n-th number of `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn scattered(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What the same machines left behind, or the beginning.
pub(super) fn resume(settings: &ShadowSettings, machines: Machines, journal: Option<&Journal>) -> Ledger {
    let fresh = State::new(machines, settings.sampling, now_ms());
    let state = match journal.and_then(Journal::state) {
        Some(state) if state.machines == fresh.machines => {
            let sampling = if state.configured_sampling.to_bits() == settings.sampling.to_bits() {
                state.sampling
            } else {
                settings.sampling
            };
            State { sampling, configured_sampling: settings.sampling, ..state }
        }
        Some(state) => {
            tracing::warn!(
                target: TARGET,
                was_promoted = state.rollout.promoted,
                "the machines that are compared are others than before: evidence begins anew"
            );
            fresh
        }
        None => fresh,
    };
    let folder = settings.record.path.as_deref().filter(|_| journal.is_some());
    Ledger::new(state, folder.map(|folder| journal::latest(folder, KEPT)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_requests_is_taken_whatever_their_rhythm() {
        for share in [0.0, 0.01, 0.25, 1.0] {
            let limit = share_of_2_32(share);
            let taken = |step: usize| {
                (0..200_000).step_by(step).filter(|n| scattered(*n) >> 32 < limit).count() as f64
            };
            for step in [1, 2, 7] {
                let expected = share * 200_000.0 / step as f64;
                assert!((taken(step) - expected).abs() <= 5.0 * expected.sqrt() + 1.0, "{share} {step}");
            }
        }
        assert_eq!((0..1000).filter(|n| scattered(*n) >> 32 < 1 << 32).count(), 1000, "all are all");
    }
}

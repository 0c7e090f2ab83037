//! What the shadow's thread shares with those who offer requests and those who ask: sampling, room, the ledger.
//!
//! A request that is answered looks at two numbers here; it waits for nothing but, where it is to demote, the ledger's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::journal::{self, Journal, State};
use super::ledger::{KEPT, Ledger};
use super::opening::{Opened, Opening};
use super::record::{Machine, Machines, Record};
use super::rollout::Demotion;
use super::{Force, NotFit, TARGET, gate, now_ms};
use crate::config::{BackendSettings, ShadowSettings};
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{self, DropReason, Label, ShadowKind};

/// What the shadow's thread shares with those who offer and ask.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: ShadowSettings,
    /// For engines that are started beside the two.
    pub(super) backend: BackendSettings,
    pub(super) recognizer: Arc<Recognizer>,
    /// Which kernels the shadow's backend runs; empty where it has none.
    pub(super) program: String,
    /// How its backend stands; `None` once it is open.
    opening: Mutex<Option<Opening>>,
    /// Whether it is.
    open: AtomicBool,
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
        (recognizer, program): (Arc<Recognizer>, String),
        ledger: Ledger,
        watchers: broadcast::Sender<Arc<Record>>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            backend: backend.clone(),
            recognizer,
            program,
            opening: Mutex::new(Some(Opening { since_ms: now_ms(), ..Opening::default() })),
            open: AtomicBool::new(false),
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
        telemetry::shadow_promoted(ledger.answering() == Seat::Candidate);
    }

    /// How the shadow's backend stands, until it is open.
    pub(super) fn opening(&self) -> Option<Opening> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows how it stands.
    pub(super) fn stands(&self, opening: &Opening) {
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = Some(opening.clone());
    }

    /// The shadow's backend is open: it takes its seat, and answers where it was promoted.
    pub(super) fn opened(&self, Opened { engine, ready }: Opened) {
        self.recognizer.seat(engine, &ready);
        let Ok(engine) = self.recognizer.engine_of(Seat::Candidate) else { return };
        let description = engine.choice().active();
        telemetry::backend_described(description.backend, &description.device, &description.driver);
        let machine = Machine::new(description, self.program.clone());
        let mut ledger = self.ledger();
        ledger.runs_on(Seat::Candidate, machine, now_ms());
        ledger.open = true;
        if ledger.rollout.promoted {
            self.recognizer.let_answer(Seat::Candidate, &ledger.rollout.because);
            telemetry::shadow_promoted(true);
        }
        drop(ledger);
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.open.store(true, Ordering::Release);
        telemetry::shadow_open(true);
        telemetry::shadow_breaker(false);
        tracing::info!(
            target: TARGET,
            backend = description.backend.as_str(),
            device = description.device,
            driver = description.driver,
            "the shadow's backend is open: it is compared from now on"
        );
    }

    /// The shadow's backend could not be opened.
    pub(super) fn not_opened(&self, why: &str) {
        telemetry::shadow_open_failed();
        telemetry::shadow_breaker(true);
        let what = format!("{} could not be opened: {why}", self.name());
        self.demote(Demotion::Failure(what));
    }

    /// Whether this request is one of those to compare.
    pub(super) fn samples(&self) -> bool {
        let share = self.sampled_of_2_32.load(Ordering::Relaxed);
        share > 0
            && self.open.load(Ordering::Acquire)
            && scattered(self.seen.fetch_add(1, Ordering::Relaxed)) >> 32 < share
    }

    pub(super) fn take_room(&self, probes: usize) -> bool {
        let queue = self.settings.queue;
        let room = |waiting: usize| waiting.checked_add(probes).filter(|waiting| *waiting <= queue);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn give_room(&self, probes: usize) {
        self.waiting.fetch_sub(probes, Ordering::Relaxed);
    }

    pub(super) fn drop_probes(&self, probes: usize, reason: DropReason) {
        self.dropped.fetch_add(probes as u64, Ordering::Relaxed);
        telemetry::shadow_dropped(reason, probes as u64);
        telemetry::shadow_compared(ShadowKind::Dropped, probes as u64);
    }

    /// Lets the shadow's backend answer, if it is open and fit; says whether anything changed.
    pub(super) fn promote(&self, because: &str, force: Force) -> Result<bool, NotFit> {
        if let Some(opening) = self.opening() {
            return Err(NotFit { unmet: Vec::new(), opening: Some(opening.sentence(&self.name())) });
        }
        let mut ledger = self.ledger();
        let conditions = ledger.judge(&self.settings);
        if force == Force::No && !ledger.rollout.promoted && !gate::is_met(&conditions) {
            let unmet = conditions.into_iter().filter(|condition| !condition.met).collect();
            return Err(NotFit { unmet, opening: None });
        }
        let changed = ledger.promote(now_ms(), because.to_owned());
        if changed {
            self.recognizer.let_answer(Seat::Candidate, because);
        }
        Ok(changed)
    }

    /// Takes the promoted backend back; says whether it was promoted.
    pub(super) fn demote(&self, demotion: Demotion) -> bool {
        let mut ledger = self.ledger();
        let answered = ledger.answering() == Seat::Candidate;
        let changed = ledger.demote(now_ms(), demotion);
        if changed && answered {
            self.recognizer.let_answer(Seat::Standing, &ledger.rollout.because);
        }
        changed
    }

    /// The name of the shadow's backend.
    pub(super) fn name(&self) -> String {
        self.ledger().machines.candidate.backend.clone()
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

/// What the same backends left behind, or the beginning. Of the candidate only the backend is known yet.
pub(super) fn resume(settings: &ShadowSettings, machines: Machines, journal: Option<&Journal>) -> Ledger {
    let standing = machines.standing.clone();
    let fresh = State::new(machines, settings.sampling, now_ms());
    let state = match journal.and_then(Journal::state) {
        Some(state) if state.machines.are_of(&fresh.machines) => {
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
                "the backends that are compared are others than before: evidence and sampling begin anew"
            );
            fresh
        }
        None => fresh,
    };
    let folder = settings.record.path.as_deref().filter(|_| journal.is_some());
    let latest = folder.map(|folder| journal::latest(folder, KEPT)).unwrap_or_default();
    let mut ledger = Ledger::new(state, latest);
    ledger.runs_on(Seat::Standing, standing, now_ms());
    ledger
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

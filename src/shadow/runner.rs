//! The shadow's thread: asks the other seat, compares, publishes.
//!
//! It waits for the shadow's answer for `shadow.timeout_ms` and never for anything else that may hang: a scan that nobody waits for any
//! more is dropped by its engine, and a shadow that fails again and again is left alone for a while ([`Breaker`]).

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem};

use tokio::sync::broadcast;

use super::breaker::Breaker;
use super::compare::{Comparison, Said, compare, is_disagreement, is_hard};
use super::journal::{self, Journal, State};
use super::ledger::{Again, KEPT, Kept, Ledger};
use super::observed::{Answer, Observed};
use super::record::{Machine, Machines, Record, SideRecord, kind_names};
use super::rollout::Demotion;
use super::{Sides, TARGET, now_ms};
use crate::config::{BackendSettings, ShadowSettings};
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{self, ShadowKind};

/// How often the thread looks after itself while nothing comes.
const TICK: Duration = Duration::from_millis(50);

/// How often the gate is judged.
const JUDGING: Duration = Duration::from_millis(500);

/// How often the state is written while it changes.
const SAVING: Duration = Duration::from_secs(5);

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
                recognizer.galleries().try_for_each(|snapshot| candidate.load(snapshot).map(|_| ()))
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

/// Owned by the thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    journal: Option<Journal>,
    runtime: tokio::runtime::Runtime,
    breaker: Breaker,
    judged: Instant,
    saved: Instant,
    /// Whether anything happened since the state was written.
    changed: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, journal: Option<Journal>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let now = Instant::now();
        let breaker = Breaker::default();
        Ok(Self { shared, journal, runtime, breaker, judged: now, saved: now, changed: false })
    }

    pub(super) fn run(mut self, jobs: &Receiver<Observed>) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            match jobs.recv_timeout(TICK) {
                Ok(observed) => self.take(&observed),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look_after(Instant::now());
        }
        self.save();
    }

    fn take(&mut self, observed: &Observed) {
        let probes = observed.question.probes().len();
        self.shared.give_room(probes);
        telemetry::shadow_queue_depth(self.shared.waiting.load(Ordering::Relaxed));
        if self.breaker.is_open(Instant::now()) {
            self.shared.drop_probes(probes);
            return;
        }
        self.changed = true;
        let answered = std::panic::catch_unwind(AssertUnwindSafe(|| self.answer(observed)));
        if answered.is_err() {
            self.fail(observed, ShadowKind::Error, "the comparison panicked".to_owned());
        }
    }

    fn answer(&mut self, observed: &Observed) {
        let (recognizer, limit) = (Arc::clone(&self.shared.recognizer), self.shared.settings.timeout);
        let seat = observed.by.other();
        let ask = async { tokio::time::timeout(limit, observed.question.ask(&recognizer, seat)).await };
        match self.runtime.block_on(ask) {
            Err(_) => self.fail(observed, ShadowKind::Timeout, format!("no answer within {limit:?}")),
            Ok(Err(error)) => self.fail(observed, ShadowKind::Error, error.to_string()),
            Ok(Ok(answer)) => match stood_in(&recognizer, seat, &answer) {
                Some(why) => self.fail(observed, ShadowKind::Error, why),
                None => self.compare(observed, &answer),
            },
        }
    }

    fn fail(&mut self, observed: &Observed, kind: ShadowKind, error: String) {
        self.breaker.failed(Instant::now());
        let probes = observed.question.probes().len() as u64;
        telemetry::shadow_compared(kind, probes);
        let mut ledger = self.shared.ledger();
        if observed.by == ledger.answering() {
            ledger.count(kind, probes);
        }
        let machines = ledger.machines.sides(observed.by).map(Machine::clone);
        drop(ledger);
        let said = observed.answer.said(observed.question.snapshot(), 0);
        let primary = SideRecord::of(&machines.primary, observed.question.snapshot(), &said, false.into());
        let sides = Sides { primary, shadow: SideRecord::silent(&machines.shadow) };
        self.publish(observed, Found { probe: None, kinds: vec![kind], error, sides });
    }

    fn compare(&mut self, observed: &Observed, answer: &Answer) {
        self.breaker.succeeded();
        let snapshot = observed.question.snapshot();
        let tolerance = self.shared.settings.score_tolerance;
        let took = Sides { primary: observed.answer.took_ns(), shadow: answer.took_ns() };
        if took.primary > 0 {
            telemetry::shadow_latency_ratio(took.shadow as f64 / took.primary as f64);
        }
        let mut compared = Vec::with_capacity(observed.question.probes().len());
        let mut different = Vec::new();
        for probe in 0..observed.question.probes().len() {
            let said =
                Sides { primary: &observed.answer, shadow: answer }.map(|one| one.said(snapshot, probe));
            let comparison = compare(Sides { primary: &said.primary, shadow: &said.shadow }, tolerance);
            telemetry::shadow_compared(comparison.worst(), 1);
            telemetry::shadow_probe(comparison.score_error, comparison.overlap);
            compared.push((comparison.worst(), comparison.score_error));
            if is_disagreement(comparison.worst()) {
                different.push((probe, said, comparison));
            }
        }
        let mut ledger = self.shared.ledger();
        // Since the roles changed, what was answered before is no evidence about those of now.
        if observed.by == ledger.answering() {
            ledger.evidence.latency_ns.primary.record(took.primary as f64);
            ledger.evidence.latency_ns.shadow.record(took.shadow as f64);
            for (kind, score_error) in compared {
                ledger.count(kind, 1);
                ledger.evidence.score_error.record(f64::from(score_error));
            }
        }
        let machines = ledger.machines.sides(observed.by).map(Machine::clone);
        drop(ledger);
        for one in different {
            self.disagree(observed, &machines, one);
        }
    }

    fn disagree(
        &mut self,
        observed: &Observed,
        machines: &Sides<Machine>,
        (probe, said, comparison): (usize, Sides<Said>, Comparison),
    ) {
        let snapshot = observed.question.snapshot();
        let Sides { primary, shadow } = comparison.wrong_scores;
        let sides = Sides {
            primary: SideRecord::of(&machines.primary, snapshot, &said.primary, primary.into()),
            shadow: SideRecord::of(&machines.shadow, snapshot, &said.shadow, shadow.into()),
        };
        if comparison.kinds.iter().any(|kind| is_hard(*kind)) {
            let what = format!("a hard disagreement in request {}", observed.request_id);
            self.shared.demote(Demotion::Disagreement(what));
        }
        self.publish(
            observed,
            Found { probe: Some(probe), kinds: comparison.kinds, error: String::new(), sides },
        );
    }

    /// Log, file, memory, watchers.
    fn publish(&mut self, observed: &Observed, found: Found) {
        let snapshot = observed.question.snapshot();
        let profile = snapshot.profile();
        let place = found.probe.unwrap_or(0);
        let embedding = observed.question.probes().get(place).map(|probe| probe.embedding.clone());
        let keep = self.shared.settings.record.embeddings;
        let record = Record {
            id: uuid::Uuid::now_v7().to_string(),
            at_ms: now_ms(),
            request_id: observed.request_id.to_string(),
            probe: found.probe,
            gallery: profile.name.clone(),
            generation: profile.generation,
            kinds: kind_names(&found.kinds),
            error: found.error,
            asked: observed.question.record(place),
            sides: found.sides,
            embedding: embedding.as_ref().filter(|_| keep).map(|embedding| embedding.as_slice().to_vec()),
        };
        let Sides { primary, shadow } = &record.sides;
        tracing::warn!(
            target: TARGET,
            id = record.id,
            request_id = record.request_id,
            probe = record.probe,
            gallery = record.gallery,
            generation = record.generation,
            kinds = record.kinds.join(","),
            error = record.error,
            primary = primary.backend,
            primary_decision = primary.decision,
            primary_wrong_scores = primary.wrong_scores,
            shadow = shadow.backend,
            shadow_decision = shadow.decision,
            shadow_wrong_scores = shadow.wrong_scores,
            shadow_device = shadow.device,
            shadow_driver = shadow.driver,
            shadow_score_error = shadow.score_error,
            "the shadow disagrees"
        );
        if let Some(journal) = &mut self.journal {
            journal.append(&record);
        }
        let record = Arc::new(record);
        let again = embedding.map(|embedding| Again { embedding, snapshot: Arc::downgrade(snapshot) });
        self.shared.ledger().keep(Kept { record: Arc::clone(&record), again });
        // Nobody may be watching.
        let _ = self.shared.watchers.send(record);
    }

    fn look_after(&mut self, now: Instant) {
        let open = self.breaker.is_open(now);
        if self.shared.breaker_open.swap(open, Ordering::Relaxed) != open {
            telemetry::shadow_breaker(open);
            tracing::warn!(target: TARGET, open, "the shadow's breaker");
        }
        if now.duration_since(self.judged) >= JUDGING {
            self.judged = now;
            self.judge();
        }
        let urgent = mem::take(&mut self.shared.ledger().urgent);
        if urgent || (self.changed && now.duration_since(self.saved) >= SAVING) {
            self.save();
        }
    }

    fn judge(&self) {
        let mut ledger = self.shared.ledger();
        let conditions = ledger.judge(&self.shared.settings);
        if ledger.is_due(&conditions, self.shared.settings.promote) {
            ledger.promote(now_ms(), "every condition of the gate is met".to_owned());
            self.shared.recognizer.let_answer(Seat::Candidate);
        }
    }

    fn save(&mut self) {
        (self.saved, self.changed) = (Instant::now(), false);
        if let Some(journal) = &mut self.journal {
            let state = self.shared.ledger().state(now_ms());
            journal.save(&state);
        }
    }
}

/// What is published of a disagreement, beside the request.
struct Found {
    probe: Option<usize>,
    kinds: Vec<ShadowKind>,
    error: String,
    sides: Sides<SideRecord>,
}

/// Why another backend answered than the one seated, if one did.
fn stood_in(recognizer: &Recognizer, seat: Seat, answer: &Answer) -> Option<String> {
    let seated = recognizer.engine_of(seat).ok()?.choice().active().backend;
    let report = answer.report();
    (report.backend != seated).then(|| {
        report
            .fallback
            .as_ref()
            .map_or_else(|| "another backend answered".to_owned(), |why| why.sentence.clone())
    })
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

//! Shadow mode: a second backend answers the same probes again, so that one may move to it on evidence.
//!
//! Its backend is opened beside all that is served ([`opening`]). After a request is answered it may be handed over
//! ([`Shadow::offer`]: a look at two numbers and one step that never waits). A thread of its own ([`runner`]) asks the engine of the other seat the same question about the same generation, compares the
//! answers ([`compare`], pure), counts ([`evidence`]), keeps disagreements ([`record`], [`journal`]), and judges whether the shadow is
//! fit to answer ([`gate`], pure). What it finds out is published, and nothing else: metrics, log, file, memory.
//!
//! Invariants: nothing here delays, fails or changes an answer; what does not fit is dropped and counted; a shadow that hangs costs
//! its engine's thread and nobody's time; both sides speak of one [`Snapshot`](crate::gallery::Snapshot). The one thing that is done with the findings is the rollout
//! ([`rollout`]): which seat answers, by an operator's word or the configuration's.
//!
//! The model is github/scientist's control and candidate.

mod breaker;
pub mod compare;
pub mod evidence;
pub mod gate;
mod journal;
mod ledger;
mod observed;
mod opening;
pub mod record;
mod replay;
pub mod rollout;
mod runner;
mod shared;
pub mod sketch;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::broadcast;

pub use observed::{Answer, Observed, Question};
pub use opening::{Next, Open, Opening};
pub use replay::{Guilty, ReplayError, Replayed, ReplayedSide};

use crate::config::{BackendKind, BackendSettings, Fallback, Promotion, RecordSettings, ShadowSettings};
use crate::engine::EngineError;
use crate::gallery::files;
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{self, BackendName, DropReason, Label, ShadowKind};
use evidence::Evidence;
use gate::Condition;
use journal::Journal;
use opening::Opener;
use record::{Machine, Machines, Record};
use rollout::{Demotion, Rollout};
use runner::Worker;
use shared::Shared;

/// The `tracing` target of everything that is said of the shadow.
pub const TARGET: &str = "lookalike::shadow";

/// Disagreements that a slow watcher may be behind.
const WATCHED: usize = 256;

/// Something on either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sides<T> {
    /// Of the backend whose answer was returned.
    pub primary: T,
    /// Of the backend that was only compared.
    pub shadow: T,
}

impl<T> Sides<T> {
    /// The same of either side.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Sides<U> {
        Sides { primary: f(self.primary), shadow: f(self.shadow) }
    }
}

/// Why there is no shadow though there was to be one.
#[derive(Debug, Error)]
pub enum ShadowError {
    /// The folder of its record.
    #[error(
        "shadow.record.path: {folder}: expected a folder to keep the record in, or a place where one can be made: {}",
        files::advice(error)
    )]
    Record {
        /// Which.
        folder: String,
        /// Why it cannot be written to.
        error: std::io::Error,
    },
    /// Its thread.
    #[error("the shadow's thread could not be started: {0}")]
    Thread(std::io::Error),
}

impl ShadowError {
    fn of_record(folder: &Path, error: std::io::Error) -> Self {
        Self::Record { folder: folder.display().to_string(), error }
    }
}

/// Why the shadow was not promoted.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{}", opening.as_deref().unwrap_or("the gate is not met"))]
pub struct NotFit {
    /// What of the gate is not met.
    pub unmet: Vec<Condition>,
    /// How its backend stands, where it is not open yet: then nothing can promote it.
    pub opening: Option<String>,
}

/// What there is to tell.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machines, in the roles they have now. Of one that is not open yet, the backend, and the device of before the last restart, if any.
    pub machines: Sides<Machine>,
    /// How the shadow's backend stands, where it is not open yet, in words.
    pub opening: Option<(Opening, String)>,
    /// Which backend answers and why, as [`Account`](crate::recognize::Account) has it.
    pub backend_reason: String,
    /// Where the rollout stands.
    pub rollout: Rollout,
    /// Who promotes.
    pub promotion: Promotion,
    /// The share of requests that are compared.
    pub sampling: f64,
    /// What was seen since the roles are what they are.
    pub evidence: Evidence,
    /// The gate.
    pub conditions: Vec<Condition>,
    /// Whether the shadow is left alone for a while.
    pub breaker_open: bool,
    /// Probes that wait for it.
    pub queued: usize,
}

/// A running shadow.
#[derive(Debug)]
pub struct Shadow {
    shared: Arc<Shared>,
    jobs: SyncSender<Observed>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Whether the record that the settings want can be kept; makes nothing that stays.
pub fn check_record(settings: &RecordSettings) -> Result<(), ShadowError> {
    let Some(folder) = &settings.path else { return Ok(()) };
    Journal::check(folder).map_err(|error| ShadowError::of_record(folder, error))
}

impl Shadow {
    /// Opens a backend for the candidate's seat of `recognizer`, beside all that is served, and then compares the two seats; goes on where
    /// the same machines left off before a restart. `programs` says which kernels each seat runs. Blocks for no longer than its record takes
    /// to be read.
    pub fn open(
        (settings, backend): (&ShadowSettings, &BackendSettings),
        recognizer: Arc<Recognizer>,
        programs: Programs,
        open: Open,
    ) -> Result<Self, ShadowError> {
        // Another backend that stood in for it would be compared in its name.
        let own = BackendSettings { kind: settings.backend, fallback: Fallback::Fail, ..backend.clone() };
        let opener = Opener::new(open, own);
        let standing = recognizer.standing().choice().active();
        let candidate = backend_name(settings.backend);
        // The CPU may stand in for a device that was configured: it is not compared with itself.
        let same = (standing.backend == candidate).then(|| {
            format!("{} stands in for backend.kind, and would be compared with itself", candidate.as_str())
        });
        let machines = Machines {
            standing: Machine::new(standing, programs.standing),
            candidate: Machine::to_come(candidate),
        };
        let journal = match &settings.record.path {
            None => None,
            Some(folder) => Some(
                Journal::open(folder, &settings.record)
                    .map_err(|error| ShadowError::of_record(folder, error))?,
            ),
        };
        let (watchers, _) = broadcast::channel(WATCHED);
        let ledger = shared::resume(settings, machines, journal.as_ref());
        let of = (recognizer, programs.candidate);
        let shared = Arc::new(Shared::new((settings, backend), of, ledger, watchers));
        shared.show();
        let opener = if let Some(why) = same {
            tracing::error!(target: TARGET, why, "there is nothing to compare");
            telemetry::shadow_breaker(true);
            shared.stands(&Opening { since_ms: now_ms(), failures: 0, error: why, next: Next::Never });
            None
        } else {
            Some(opener)
        };
        // As many requests as probes may wait at most.
        let (jobs, received) = std::sync::mpsc::sync_channel(settings.queue);
        let worker = Worker::new(Arc::clone(&shared), journal, opener).map_err(ShadowError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || worker.run(&received))
            .map_err(ShadowError::Thread)?;
        Ok(Self { shared, jobs, thread: Mutex::new(Some(thread)) })
    }

    /// Hands a request over that was answered, if it is sampled and there is room. Never waits.
    pub fn offer(&self, observed: Observed) {
        let shared = &self.shared;
        let report = observed.answer.report();
        if observed.by == Seat::Candidate && report.bound_violations + report.invalid_indices > 0 {
            let what =
                format!("it computed wrongly in request {}; the answer was mended", observed.request_id);
            shared.demote(Demotion::Failure(what));
        }
        if !shared.samples() {
            return;
        }
        let probes = observed.question.probes().len();
        // Where another backend stood in for the primary, there is nothing to compare.
        let comparable = shared
            .recognizer
            .engine_of(observed.by)
            .is_ok_and(|engine| engine.choice().active().backend == report.backend);
        let reason = if shared.breaker_open.load(Ordering::Relaxed) {
            DropReason::BreakerOpen
        } else if !comparable {
            DropReason::PrimaryStoodIn
        } else if shared.take_room(probes) {
            let reason = match self.jobs.try_send(observed) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => DropReason::QueueFull,
                Err(TrySendError::Disconnected(_)) => DropReason::Stopping,
            };
            shared.give_room(probes);
            reason
        } else {
            DropReason::QueueFull
        };
        shared.drop_probes(probes, reason);
    }

    /// The promoted backend failed a request, which the configured one has answered in its place: it is taken back.
    pub fn primary_failed(&self, error: &EngineError) {
        self.shared.demote(Demotion::Failure(error.to_string()));
    }

    /// What there is to tell.
    pub fn report(&self) -> Report {
        let shared = &self.shared;
        let ledger = shared.ledger();
        let (machines, rollout) =
            (ledger.machines.sides(ledger.answering()).map(Machine::clone), ledger.rollout.clone());
        let (evidence, sampling) = (ledger.evidence.clone(), ledger.sampling);
        // Whoever asks again and again must not keep the shadow's thread from its ledger.
        drop(ledger);
        let opening = shared.opening().map(|opening| {
            let then = if rollout.promoted { "; it was promoted, and answers once it is open" } else { "" };
            let told = format!("{}{then}", opening.sentence(&shared.name()));
            (opening, told)
        });
        Report {
            opening,
            backend_reason: shared.recognizer.account().sentence,
            conditions: gate::judge(&evidence, &shared.settings.gate),
            machines,
            rollout,
            promotion: shared.settings.promote,
            sampling,
            evidence,
            breaker_open: shared.breaker_open.load(Ordering::Relaxed),
            queued: shared.waiting.load(Ordering::Relaxed),
        }
    }

    /// Shows in the metrics how many probes wait for it now; its own thread does so only when it takes some, which one that hangs does not.
    pub fn show_queue(&self) {
        telemetry::shadow_queue_depth(self.shared.waiting.load(Ordering::Relaxed));
    }

    /// The latest disagreements, newest first, of these kinds (any, where none is named), after that many have been passed over.
    pub fn latest(&self, count: usize, kinds: &[ShadowKind]) -> Vec<Arc<Record>> {
        let names = record::kind_names(kinds);
        let wanted =
            |record: &Record| names.is_empty() || record.kinds.iter().any(|kind| names.contains(kind));
        let ledger = self.shared.ledger();
        let records = ledger.latest.iter().rev().map(|kept| &kept.record);
        records.filter(|record| wanted(record)).take(count).cloned().collect()
    }

    /// Disagreements as they are found from now on; who is too slow misses some, and learns how many.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Record>> {
        self.shared.watchers.subscribe()
    }

    /// From now on this share of requests, 0 to 1, is compared; gives it.
    pub fn set_sampling(&self, share: f64) -> f64 {
        // `+ 0.0` turns -0.0 into 0.0.
        let share = share.clamp(0.0, 1.0) + 0.0;
        let mut ledger = self.shared.ledger();
        tracing::info!(target: TARGET, from = ledger.sampling, to = share, "the shadow's sampling is changed");
        if ledger.sampling.to_bits() != share.to_bits() {
            ledger.evidence.forget_drops();
        }
        (ledger.sampling, ledger.urgent) = (share, true);
        drop(ledger);
        self.shared.show();
        share
    }

    /// Lets the shadow's backend answer, if it is open and fit; with `force` if it is open. Says whether anything changed.
    pub fn promote(&self, because: &str, force: Force) -> Result<bool, NotFit> {
        self.shared.promote(because, force)
    }

    /// Lets the configured backend answer again. Says whether anything changed.
    pub fn demote(&self, because: &str) -> bool {
        self.shared.demote(Demotion::Asked(because.to_owned()))
    }

    /// Scans a disagreement again on both backends and in `f64`, and says which was right.
    pub async fn replay(&self, id: &str) -> Result<Replayed, ReplayError> {
        replay::replay(&self.shared, id).await
    }

    /// Stops, once the request at hand is compared; waits so long for it. What waits is not compared any more, what was found is
    /// on disk then. Blocks.
    pub fn stop(&self, limit: Duration) {
        self.shared.stopping.store(true, Ordering::Release);
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let started = Instant::now();
        while !thread.is_finished() {
            if started.elapsed() > limit {
                tracing::warn!(target: TARGET, "the shadow was not waited for");
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.join().is_err() {
            tracing::error!(target: TARGET, "the shadow's thread panicked");
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        telemetry::shadow_sampling(0.0);
        telemetry::shadow_open(false);
    }
}

/// The backend of a kind; the configuration refuses `auto` for a shadow, which is none.
fn backend_name(kind: BackendKind) -> BackendName {
    match kind {
        BackendKind::OpenCl => BackendName::OpenCl,
        BackendKind::Reference => BackendName::Reference,
        BackendKind::Cpu | BackendKind::Auto => BackendName::Cpu,
    }
}

/// Which kernels each seat's backend runs; empty for one that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// The configured one's.
    pub standing: String,
    /// The other's.
    pub candidate: String,
}

/// Whether to promote though the gate is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The gate decides.
    No,
    /// The operator does.
    Yes,
}

/// Milliseconds since 1970 (UTC).
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

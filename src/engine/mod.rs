//! The engine: exact scans on one owner thread.
//!
//! A scan goes through a bounded queue to the thread that owns the backend ([`worker`]). There it is scanned together with the others
//! that wait for the same generation, in slices where it is large ([`batch`]); each batch is screened ([`pass`]), verified and
//! certified ([`verify`]), and where that fails scanned at full precision ([`full`]). Where `auto` finds a device, each batch goes to
//! it or to the CPU, by what was measured ([`crossover`]). Where a backend fails the CPU answers or the
//! scan fails, as configured ([`plan`], [`residents`]). Callers hold an [`Engine`] and wait for an answer; a caller that has gone is
//! noticed before each batch.
//!
//! Invariants: an answer holds exactly the first k rows of the total order, whatever backend screened them and whatever else was in
//! the batch; a full queue sheds; nothing waits for company.

mod batch;
mod crossover;
mod full;
mod outage;
mod pass;
mod pauses;
mod plan;
mod residents;
mod scan;
mod verify;
mod worker;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

pub use crossover::{BatchTiming, Crossover};
pub(crate) use pauses::Pauses;
pub use plan::{BackendChoice, BackendFallback};
pub use scan::{Ranked, RawCheck, ScanAnswer, ScanReport, ScanRequest};

use crate::backend::cpu::{CpuBackend, NoInstructions};
use crate::backend::{Backend, BackendError, Description};
use crate::config::{BackendKind, BackendSettings, Fallback};
use crate::domain::Kept;
use crate::gallery::Snapshot;
use crate::telemetry::{self, BackendName, BackendState, EngineMetrics, Role};
use plan::Plan;

/// Why a scan was not answered.
#[derive(Clone, Debug, Error)]
pub enum EngineError {
    /// The queue is full.
    #[error("{waiting} scans are waiting, which is the limit")]
    Overloaded {
        /// How many scans wait.
        waiting: usize,
    },
    /// The backend failed, and the configuration wants no other to answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The processor has not the instructions that the configuration names.
    #[error(transparent)]
    Instructions(#[from] NoInstructions),
    /// A fault of ours, met while this was scanned.
    #[error("the engine panicked")]
    Panicked,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The threads of the engine could not be started.
    #[error("the engine's threads could not be started: {0}")]
    Threads(String),
}

impl EngineError {
    /// Whether the engine or its backend failed; the others say that there is too much to do.
    pub fn is_of_the_engine(&self) -> bool {
        match self {
            Self::Overloaded { .. } => false,
            Self::Backend(_) | Self::Instructions(_) | Self::Panicked | Self::Stopped | Self::Threads(_) => {
                true
            }
        }
    }
}

/// A handle on the thread that owns the backend.
#[derive(Debug)]
pub struct Engine {
    commands: Option<mpsc::Sender<Command>>,
    state: Arc<State>,
    queue: usize,
    choice: BackendChoice,
    /// How many of the choice's backends may answer, as configured.
    answering: usize,
    /// Whether it compiles what it scans with, and is to do so before it serves.
    compiles: bool,
    metrics: Arc<EngineMetrics>,
    /// Closed when the thread has ended.
    running: watch::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// What the owner thread lets others see.
#[derive(Debug)]
struct State {
    /// Scans of which something waits for the backend.
    waiting: AtomicUsize,
    /// Whether the backend in use can answer.
    up: AtomicBool,
    /// What was measured of each gallery, by name.
    crossovers: Mutex<HashMap<String, Arc<Crossover>>>,
}

impl State {
    fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), up: AtomicBool::new(true), crossovers: Mutex::default() }
    }

    fn crossover(&self, gallery: &str) -> Option<Arc<Crossover>> {
        self.crossovers.lock().unwrap_or_else(PoisonError::into_inner).get(gallery).cloned()
    }

    /// What was measured of the gallery whose size is nearest to so many rows.
    fn nearest_crossover(&self, rows: usize) -> Option<Arc<Crossover>> {
        let all = self.crossovers.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().min_by_key(|crossover| crossover.distance(rows)).cloned()
    }

    fn measured(&self, gallery: &str, crossover: Crossover) -> Arc<Crossover> {
        let crossover = Arc::new(crossover);
        let mut all = self.crossovers.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(gallery.to_owned(), Arc::clone(&crossover));
        crossover
    }
}

enum Command {
    Load(Wanted),
    ReleaseUnused,
    Scan { request: ScanRequest, queued: Instant, reply: oneshot::Sender<Result<ScanAnswer, EngineError>> },
}

/// A generation to make ready.
struct Wanted {
    snapshot: Arc<Snapshot>,
    /// The one before it, and what is kept of that.
    former: Option<(Arc<Snapshot>, Arc<[Kept]>)>,
    /// For the device bytes held then.
    reply: oneshot::Sender<Result<u64, EngineError>>,
}

impl Engine {
    /// Chooses and opens a backend on a thread of its own; `queue` scans may wait for it, of which one scanned in part is one.
    pub fn start(settings: &BackendSettings, queue: usize) -> Result<Self, EngineError> {
        Self::start_as(settings, queue, plan::choose)
    }

    /// As [`Self::start`], with the backend that `open` gives instead of one that the settings choose; it is called on the thread
    /// that will own the backend.
    pub fn start_on<B: Backend + 'static>(
        settings: &BackendSettings,
        queue: usize,
        open: impl FnOnce() -> Result<B, BackendError> + Send + 'static,
    ) -> Result<Self, EngineError> {
        Self::start_as(settings, queue, move |_, _| Ok(plan::configured(Box::new(open()?))))
    }

    fn start_as(
        settings: &BackendSettings,
        queue: usize,
        choose: impl FnOnce(&BackendSettings, CpuBackend) -> Result<Plan, BackendError> + Send + 'static,
    ) -> Result<Self, EngineError> {
        // What is in there waits, and no more may wait; beside a generation to load.
        let (commands, receiver) = mpsc::channel(queue + 1);
        let state = Arc::new(State::new());
        let (opened, choice) = std::sync::mpsc::channel();
        let (settings, seen) = (settings.clone(), Arc::clone(&state));
        let (wished, fallback) = (settings.kind, settings.fallback);
        let warms_up = settings.opencl.warm_up_top_k.is_some();
        let metrics = Arc::new(EngineMetrics::default());
        let own = Arc::clone(&metrics);
        let (runs, running) = watch::channel(());
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || {
                // Goes when the thread does, however it does.
                let _runs = runs;
                telemetry::enter_engine(&own);
                match worker::Worker::open(&settings, seen, choose) {
                    Ok((worker, choice)) => {
                        let _ = opened.send(Ok(choice));
                        worker.run(receiver);
                    }
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                }
            })
            .map_err(|error| EngineError::Threads(error.to_string()))?;
        let choice = choice.recv().map_err(|_| EngineError::Stopped)??;
        // What stands behind the backend in use is the CPU; with `auto` it scans the batches for which it is faster, too.
        let alone = fallback == Fallback::Fail && wished != BackendKind::Auto;
        let answering = if alone { 1 } else { choice.backends.len() };
        // The engine itself shows whether the backend in use is up; the CPU always is.
        for behind in &choice.backends[1..answering] {
            metrics.backend_state(behind.backend, BackendState::Up);
        }
        if wished == BackendKind::OpenCl && choice.active().backend != BackendName::OpenCl {
            metrics.backend_state(BackendName::OpenCl, BackendState::Down);
        }
        let compiles = choice.active().backend == BackendName::OpenCl && warms_up;
        Ok(Self {
            commands: Some(commands),
            state,
            queue,
            choice,
            answering,
            compiles,
            metrics,
            running,
            thread: Some(thread),
        })
    }

    /// Gives engines their roles, each role to one of them: their metrics show under them. An engine without a role shows none.
    pub fn cast(roles: &[(&Self, Role)]) {
        let roles: Vec<(&EngineMetrics, Role)> =
            roles.iter().map(|(engine, role)| (&*engine.metrics, *role)).collect();
        EngineMetrics::cast(&roles);
    }

    /// Which backend was chosen, and why.
    pub fn choice(&self) -> &BackendChoice {
        &self.choice
    }

    /// The backends that may answer, as configured: the one in use, and then what answers should it fail.
    pub fn backends(&self) -> &[Description] {
        &self.choice.backends[..self.answering]
    }

    /// Whether scans may have to wait for a compiler that should have run before them.
    pub fn compiles(&self) -> bool {
        self.compiles
    }

    /// Whether the backend in use can answer; where it cannot, another may, as configured.
    pub fn is_up(&self) -> bool {
        self.state.up.load(Ordering::Relaxed)
    }

    /// Which backend scans which batches of a gallery, and why; `None` where there is nothing to choose.
    pub fn crossover(&self, gallery: &str) -> Option<Arc<Crossover>> {
        self.state.crossover(gallery)
    }

    /// Done when the engine answers nothing any more: dropped, or ended by a fault of its own.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut running = self.running.clone();
        async move { while running.changed().await.is_ok() {} }
    }

    /// Scans that wait for the backend, those included of which only a part has been scanned.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::Relaxed)
    }

    /// Makes a generation ready for scanning; answers the device bytes then held. Scans go on meanwhile; a device copies what it has of the
    /// `former` generation instead of getting it from the host again. Each generation is held for as long as its snapshot is held
    /// outside of the engine.
    ///
    /// Blocks: not for a runtime thread.
    pub fn load(&self, snapshot: Arc<Snapshot>, former: Option<&Arc<Snapshot>>) -> Result<u64, EngineError> {
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        let wanted = Wanted { former: self.kept(&snapshot, former), snapshot, reply };
        commands.blocking_send(Command::Load(wanted)).map_err(|_| EngineError::Stopped)?;
        answer.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    /// As [`Self::load`], without waiting for the generation to be ready. Where the queue is full it is made ready when it is first
    /// scanned, and that scan waits. Compares generations: not for a runtime thread.
    pub fn prepare(&self, snapshot: Arc<Snapshot>, former: Option<&Arc<Snapshot>>) {
        let (reply, _) = oneshot::channel();
        let wanted = Wanted { former: self.kept(&snapshot, former), snapshot, reply };
        if let Some(commands) = &self.commands
            && commands.try_send(Command::Load(wanted)).is_err()
        {
            tracing::debug!("a generation is made ready when it is first scanned");
        }
    }

    /// What a device need not be sent again.
    fn kept(
        &self,
        snapshot: &Arc<Snapshot>,
        former: Option<&Arc<Snapshot>>,
    ) -> Option<(Arc<Snapshot>, Arc<[Kept]>)> {
        let former = former.filter(|_| self.choice.active().backend == BackendName::OpenCl)?;
        Some((Arc::clone(former), snapshot.kept_of(former)))
    }

    /// Lets the engine release generations whose snapshots nobody holds any more. It does so after each batch too.
    pub fn release_unused(&self) {
        if let Some(commands) = &self.commands {
            // A full queue means batches.
            let _ = commands.try_send(Command::ReleaseUnused);
        }
    }

    /// Scans. Dropping the future drops what has not been scanned yet.
    ///
    /// # Panics
    /// If the request does not fit its gallery: probes of another dimension, or not one set of rows to leave out a probe.
    pub async fn scan(&self, request: ScanRequest) -> Result<ScanAnswer, EngineError> {
        self.enqueue(request)?.await.map_err(|_| EngineError::Stopped)?
    }

    /// As [`Self::scan`], for a thread that may block.
    pub fn scan_blocking(&self, request: ScanRequest) -> Result<ScanAnswer, EngineError> {
        self.enqueue(request)?.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    fn enqueue(
        &self,
        request: ScanRequest,
    ) -> Result<oneshot::Receiver<Result<ScanAnswer, EngineError>>, EngineError> {
        assert_eq!(request.probes.rows(), request.skips.len(), "every probe says what it leaves out");
        assert_eq!(
            request.probes.dim(),
            request.snapshot.matrix().dim(),
            "probes have the gallery's dimension"
        );
        let (reply, answer) = oneshot::channel();
        if request.probes.rows() == 0 || request.k == 0 {
            let report = ScanReport::of(self.choice.active().backend, self.choice.fallback.clone());
            let probes = vec![Vec::new(); request.probes.rows()];
            let checks = vec![RawCheck::default(); probes.len()];
            let _ = reply.send(Ok(ScanAnswer { probes, checks, report }));
            return Ok(answer);
        }
        let commands = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        let room = |waiting| (waiting < self.queue).then_some(waiting + 1);
        if self.state.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            return Err(EngineError::Overloaded { waiting: self.queue });
        }
        let command = Command::Scan { request, queued: Instant::now(), reply };
        commands.try_send(command).map_err(|error| {
            self.state.waiting.fetch_sub(1, Ordering::Relaxed);
            match error {
                mpsc::error::TrySendError::Full(_) => EngineError::Overloaded { waiting: self.queue },
                mpsc::error::TrySendError::Closed(_) => EngineError::Stopped,
            }
        })?;
        Ok(answer)
    }
}

impl Drop for Engine {
    /// Lets the scan in progress end and waits until the backend has released its device.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            telemetry::engine_panicked();
            tracing::error!("the engine's thread panicked");
        }
    }
}

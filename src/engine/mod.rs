//! The engine: exact scans on one owner thread.
//!
//! A scan goes through a bounded queue to the thread that owns the backend; there it is screened, verified and certified
//! ([`verify`]), and where a backend fails the CPU answers or the scan fails, as configured ([`plan`]). Callers hold an
//! [`Engine`] and wait for an answer; a caller that has gone is noticed before its scan begins.
//!
//! Invariants: an answer holds exactly the first k rows of the total order, whatever backend screened them; a full queue sheds.

mod plan;
mod scan;
mod verify;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

pub use plan::{BackendChoice, BackendFallback};
pub use scan::{Ranked, ScanAnswer, ScanReport, ScanRequest};

use crate::backend::BackendError;
use crate::backend::cpu::NoInstructions;
use crate::config::BackendSettings;
use crate::gallery::Snapshot;

/// Why a scan was not answered.
#[derive(Debug, Error)]
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
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The threads of the engine could not be started.
    #[error("the engine's threads could not be started: {0}")]
    Threads(String),
}

/// A handle on the thread that owns the backend.
#[derive(Debug)]
pub struct Engine {
    commands: Option<mpsc::Sender<Command>>,
    state: Arc<State>,
    queue: usize,
    choice: BackendChoice,
    thread: Option<JoinHandle<()>>,
}

/// What the owner thread lets others see.
#[derive(Debug)]
struct State {
    /// Scans that wait for the backend.
    waiting: AtomicUsize,
    /// Whether the backend in use can answer.
    up: AtomicBool,
}

enum Command {
    Load { snapshot: Arc<Snapshot>, reply: oneshot::Sender<Result<u64, EngineError>> },
    Scan { request: ScanRequest, queued: Instant, reply: oneshot::Sender<Result<ScanAnswer, EngineError>> },
}

impl Engine {
    /// Chooses and opens a backend on a thread of its own; `queue` scans may wait for it.
    pub fn start(settings: &BackendSettings, queue: usize) -> Result<Self, EngineError> {
        let (commands, receiver) = mpsc::channel(queue);
        let state = Arc::new(State { waiting: AtomicUsize::new(0), up: AtomicBool::new(true) });
        let (opened, choice) = std::sync::mpsc::channel();
        let (settings, seen) = (settings.clone(), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || match worker::Worker::open(&settings, seen) {
                Ok((worker, choice)) => {
                    let _ = opened.send(Ok(choice));
                    worker.run(receiver);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            })
            .map_err(|error| EngineError::Threads(error.to_string()))?;
        let choice = choice.recv().map_err(|_| EngineError::Stopped)??;
        Ok(Self { commands: Some(commands), state, queue, choice, thread: Some(thread) })
    }

    /// Which backend was chosen, and why.
    pub fn choice(&self) -> &BackendChoice {
        &self.choice
    }

    /// Whether the backend in use can answer; where it cannot, another may, as configured.
    pub fn is_up(&self) -> bool {
        self.state.up.load(Ordering::Relaxed)
    }

    /// Scans that wait for the backend.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::Relaxed)
    }

    /// Makes a generation ready for scanning, in place of the gallery's former one; answers the device bytes now held.
    /// Blocks: not for a runtime thread.
    pub fn load(&self, snapshot: Arc<Snapshot>) -> Result<u64, EngineError> {
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        commands.blocking_send(Command::Load { snapshot, reply }).map_err(|_| EngineError::Stopped)?;
        answer.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    /// Scans. Dropping the future before its turn drops the scan.
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
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
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
            tracing::error!("the engine's thread panicked");
        }
    }
}

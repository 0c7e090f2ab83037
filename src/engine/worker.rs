//! The thread that owns the backend and all that it loaded.
//!
//! It takes in whatever is queued, forms a batch of it ([`batch`](super::batch)), scans and answers it ([`pass`](super::pass)), and
//! looks at the queue again: nothing waits for company, and what comes during a scan goes together into the next.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::batch::{Slice, Turn, Waiting};
use super::pass::{Pass, Pending};
use super::plan::{BackendChoice, Plan};
use super::residents::Residents;
use super::{Command, EngineError, State};
use crate::backend::BackendError;
use crate::backend::cpu::CpuBackend;
use crate::backend::guard;
use crate::config::BackendSettings;
use crate::gallery::Snapshot;
use crate::telemetry::{self, BackendName, BackendState};

/// How long the queue is left alone while generations are on their way and nothing else is to be done.
const COMING_WATCH: Duration = Duration::from_micros(200);

/// How long the queue is watched after a device has scanned.
const DEVICE_WATCH: Duration = Duration::from_micros(100);

pub(super) struct Worker {
    residents: Residents,
    waiting: Waiting<Group, Pending>,
    pass: Pass,
    /// The batch at hand.
    slices: Vec<Slice>,
    /// Most probes of a batch.
    batch_probes: usize,
    /// How long the queue is watched before this thread sleeps.
    watch: Duration,
    state: Arc<State>,
}

/// What requests have in common that are scanned together.
pub(super) struct Group {
    pub(super) snapshot: Arc<Snapshot>,
    /// As the backend tells numbers of rows apart.
    k_class: usize,
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot) && self.k_class == other.k_class
    }
}

/// What came while nothing was to be scanned.
enum Come {
    Command(Command),
    Nothing,
    /// Every handle is gone.
    End,
}

impl Worker {
    /// To be called on the thread that will [`run`](Self::run) it: that thread scans too, as one of the pool's.
    pub(super) fn open(
        settings: &BackendSettings,
        state: Arc<State>,
        choose: impl FnOnce(&BackendSettings, CpuBackend) -> Result<Plan, BackendError>,
    ) -> Result<(Self, BackendChoice), EngineError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.cpu.threads)
            .thread_name(|thread| format!("scan-{thread}"))
            // Else every step of a scan would wake another thread and wait for it.
            .use_current_thread()
            .build()
            .map_err(|error| EngineError::Threads(error.to_string()))?;
        let pool = Arc::new(pool);
        let cpu = CpuBackend::new(Arc::clone(&pool), &settings.cpu)?;
        let plan = choose(settings, cpu.clone())?;
        let residents = Residents::new(plan.primary, cpu, Arc::clone(&state))
            .falling_back(settings.fallback, plan.choice.fallback.clone())
            .measuring(plan.measured.then_some(settings.batch_probes))
            .reopening(plan.reopen);
        let worker = Self {
            residents,
            waiting: Waiting::new(),
            pass: Pass::new(pool),
            slices: Vec::new(),
            batch_probes: settings.batch_probes,
            watch: Duration::ZERO,
            state,
        };
        Ok((worker, plan.choice))
    }

    /// Serves until every handle is gone and what they asked for is answered.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.residents.seen_up(BackendState::Up);
        loop {
            self.residents.see_to_the_coming();
            if self.waiting.is_empty() {
                let soon = guard::soon(self.watch, || commands.try_recv().ok());
                match soon.map_or_else(|| self.next(&mut commands), Come::Command) {
                    Come::Command(command) => self.take(command),
                    Come::Nothing => continue,
                    Come::End => return,
                }
            }
            while let Ok(command) = commands.try_recv() {
                self.take(command);
            }
            self.drop_those_gone();
            self.answer_a_batch();
        }
    }

    /// Waits for a command: for a moment only while generations are on their way, which nothing else tells of.
    fn next(&self, commands: &mut mpsc::Receiver<Command>) -> Come {
        if !self.residents.any_coming() {
            return commands.blocking_recv().map_or(Come::End, Come::Command);
        }
        match commands.try_recv() {
            Ok(command) => Come::Command(command),
            Err(TryRecvError::Empty) => {
                std::thread::sleep(COMING_WATCH);
                Come::Nothing
            }
            Err(TryRecvError::Disconnected) => Come::End,
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Load(wanted) => self.residents.load(wanted),
            Command::ReleaseUnused => self.residents.release_unused(),
            Command::Scan { request, queued, reply } => {
                let probes = request.probes.rows();
                let k_class = self.residents.k_class(&request.snapshot, request.k);
                let group = Group { snapshot: Arc::clone(&request.snapshot), k_class };
                self.waiting.push(group, Pending::new(request, queued, reply), probes);
            }
        }
    }

    /// Drops requests that nobody waits for any more: cancelled, or past their deadline.
    fn drop_those_gone(&mut self) {
        let gone = self.waiting.drop_those(Pending::is_gone);
        self.state.waiting.fetch_sub(gone, Ordering::Relaxed);
    }

    fn answer_a_batch(&mut self) {
        let Self { residents, waiting, pass, slices, batch_probes, watch, state } = self;
        let Some(mut turn) = waiting.next(*batch_probes, slices) else { return };
        let whole = slices.iter().filter(|slice| turn.is_last(slice)).count();
        state.waiting.fetch_sub(whole, Ordering::Relaxed);
        telemetry::batch_scanned(slices.iter().map(|slice| slice.probes.len()).sum());
        // A fault of ours costs the batch that met it, not the requests of others.
        let answered = std::panic::AssertUnwindSafe(|| answer(residents, pass, &mut turn, slices));
        let answered = std::panic::catch_unwind(answered).unwrap_or_else(|_| {
            telemetry::engine_panicked();
            tracing::error!("the engine panicked; the requests of this batch fail");
            Err(EngineError::Panicked)
        });
        *watch = match answered {
            // A device scans as fast as a thread is woken, and leaves the cores alone.
            Ok(BackendName::OpenCl) => DEVICE_WATCH,
            Ok(BackendName::Cpu | BackendName::Reference) | Err(_) => Duration::ZERO,
        };
        match answered {
            Ok(_) => waiting.end(),
            Err(error) => {
                for slice in slices.iter() {
                    turn.item_mut(slice).fail(error.clone());
                }
                waiting.abandon();
                state.waiting.fetch_sub(slices.len() - whole, Ordering::Relaxed);
            }
        }
        residents.release_unused();
    }
}

/// Answers a batch by the backend that holds its gallery, or, where that fails and the configuration allows it, by the CPU; which it was.
fn answer(
    residents: &mut Residents,
    pass: &mut Pass,
    turn: &mut Turn<'_, Group, Pending>,
    slices: &[Slice],
) -> Result<BackendName, EngineError> {
    let snapshot = Arc::clone(&turn.key().snapshot);
    let mut resident = residents.take(&snapshot)?;
    pass.begin(slices);
    let probes = slices.iter().map(|slice| slice.probes.len()).sum();
    let mut scanner = resident.scanner(probes);
    let mut backend = scanner.backend;
    if let Err(error) = pass.run(turn, slices, &mut scanner) {
        // What the device holds is in doubt now: dropping the resident releases it.
        drop(resident);
        resident = residents.settle_on_cpu(&snapshot, error)?;
        let mut scanner = resident.scanner(probes);
        backend = scanner.backend;
        pass.run(turn, slices, &mut scanner)?;
    }
    let wrong = pass.wrong().filter(|_| backend == BackendName::OpenCl);
    residents.put_back(resident);
    if let Some(what) = wrong {
        residents.take_out_wrong(what);
    }
    Ok(backend)
}

#[cfg(test)]
mod tests;

//! The thread that owns the backend and all that it loaded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use rayon::prelude::*;
use tokio::sync::mpsc;

use super::plan::{self, BackendChoice, BackendFallback};
use super::verify::{self, Question, Verdict};
use super::{Command, EngineError, Ranked, ScanAnswer, ScanReport, ScanRequest, State};
use crate::backend::cpu::CpuBackend;
use crate::backend::{Ask, Backend, BackendError, Candidates, Loaded, ScreenJob, Screened};
use crate::config::{BackendSettings, Fallback};
use crate::domain::Matrix;
use crate::gallery::Snapshot;
use crate::telemetry::{self, BackendName, BackendState};

/// How often a backend is asked for candidates before a probe is scanned at full precision.
const ATTEMPTS: u32 = 2;

/// How long the CPU answers for a gallery after the primary backend failed it, before the primary is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Worker {
    pool: Arc<ThreadPool>,
    primary: Box<dyn Backend>,
    /// What answers where the primary fails.
    cpu: CpuBackend,
    fallback: Fallback,
    /// Why the primary is not what was wished for, from the start.
    standing_fallback: Option<BackendFallback>,
    /// What is loaded, by the gallery's name.
    residents: HashMap<String, Resident>,
    state: Arc<State>,
}

/// One generation of a gallery, loaded by the primary backend or, where that failed, by the CPU.
struct Resident {
    generation: u64,
    rows: Box<dyn Loaded>,
    backend: BackendName,
    fallback: Option<BackendFallback>,
    retry_at: Option<Instant>,
}

impl Worker {
    pub(super) fn open(
        settings: &BackendSettings,
        state: Arc<State>,
    ) -> Result<(Self, BackendChoice), EngineError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.cpu.threads)
            .thread_name(|thread| format!("scan-{thread}"))
            .build()
            .map_err(|error| EngineError::Threads(error.to_string()))?;
        let pool = Arc::new(pool);
        let cpu = CpuBackend::new(Arc::clone(&pool), &settings.cpu)?;
        let plan = plan::choose(settings, cpu.clone())?;
        let worker = Self {
            pool,
            primary: plan.primary,
            cpu,
            fallback: settings.fallback,
            standing_fallback: plan.choice.fallback.clone(),
            residents: HashMap::new(),
            state,
        };
        Ok((worker, plan.choice))
    }

    /// Serves until every handle is gone.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.seen_up(BackendState::Up);
        while let Some(command) = commands.blocking_recv() {
            match command {
                Command::Load { snapshot, reply } => {
                    let _ = reply.send(self.load(&snapshot));
                }
                Command::Scan { request, queued, reply } => {
                    self.state.waiting.fetch_sub(1, Ordering::Relaxed);
                    // Nobody waits for it any more: cancelled, or past its deadline.
                    if reply.is_closed() {
                        continue;
                    }
                    let queue_ns = queued.elapsed().as_nanos() as u64;
                    let answer = self.scan(&request).map(|mut answer| {
                        answer.report.queue_ns = queue_ns;
                        answer
                    });
                    let _ = reply.send(answer);
                }
            }
        }
    }

    /// Device bytes held by all galleries, after this one was loaded.
    fn load(&mut self, snapshot: &Arc<Snapshot>) -> Result<u64, EngineError> {
        let name = &snapshot.profile().name;
        // The former generation's memory is released before the new one's is taken.
        self.residents.remove(name);
        let resident = self.settle(snapshot)?;
        self.residents.insert(name.clone(), resident);
        Ok(self.residents.values().map(|resident| resident.rows.device_bytes()).sum())
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<ScanAnswer, EngineError> {
        let profile = request.snapshot.profile();
        let current = self.residents.remove(&profile.name).filter(|resident| {
            resident.generation == profile.generation
                && resident.retry_at.is_none_or(|at| Instant::now() < at)
        });
        let mut resident = match current {
            Some(resident) => resident,
            None => self.settle(&request.snapshot)?,
        };
        let answer = match self.screen_and_verify(request, &mut resident) {
            Ok(answer) => answer,
            // What the device holds is in doubt now: dropping the resident releases it.
            Err(error) => {
                resident = self.settle_on_cpu(&request.snapshot, error)?;
                self.screen_and_verify(request, &mut resident)?
            }
        };
        self.residents.insert(profile.name.clone(), resident);
        Ok(answer)
    }

    /// Loads a generation on the primary backend, else on the CPU.
    fn settle(&mut self, snapshot: &Arc<Snapshot>) -> Result<Resident, BackendError> {
        match self.primary.load(snapshot.matrix()) {
            Ok(rows) => {
                self.seen_up(BackendState::Up);
                Ok(Resident {
                    generation: snapshot.profile().generation,
                    rows,
                    backend: self.primary.description().backend,
                    fallback: self.standing_fallback.clone(),
                    retry_at: None,
                })
            }
            Err(error) => self.settle_on_cpu(snapshot, error),
        }
    }

    /// Loads a generation on the CPU because the primary failed it, where the configuration allows that.
    fn settle_on_cpu(
        &self,
        snapshot: &Arc<Snapshot>,
        because: BackendError,
    ) -> Result<Resident, BackendError> {
        self.seen_up(BackendState::Down);
        if self.fallback == Fallback::Fail || self.primary.description().backend != BackendName::OpenCl {
            return Err(because);
        }
        tracing::warn!(gallery = snapshot.profile().name, error = %because, "the backend failed; the CPU answers");
        let mut cpu = self.cpu.clone();
        Ok(Resident {
            generation: snapshot.profile().generation,
            rows: cpu.load(snapshot.matrix())?,
            backend: cpu.description().backend,
            fallback: Some(BackendFallback {
                reason: plan::reason_of(&because),
                sentence: because.to_string(),
            }),
            retry_at: Some(Instant::now() + RETRY_AFTER),
        })
    }

    /// Shows whether the primary backend can answer.
    fn seen_up(&self, state: BackendState) {
        self.state.up.store(state == BackendState::Up, Ordering::Relaxed);
        telemetry::backend_state(self.primary.description().backend, state);
    }

    /// The heart: screen, verify, widen what is not certified, at last scan it at full precision.
    fn screen_and_verify(
        &self,
        request: &ScanRequest,
        resident: &mut Resident,
    ) -> Result<ScanAnswer, BackendError> {
        let mut report = ScanReport::of(resident.backend, resident.fallback.clone());
        let mut answers: Vec<Vec<Ranked>> = vec![Vec::new(); request.probes.rows()];
        let mut open: Vec<usize> = (0..request.probes.rows()).collect();
        for attempt in 0..ATTEMPTS {
            if open.is_empty() {
                break;
            }
            let started = Instant::now();
            let asks: Vec<Ask<'_>> =
                open.iter().map(|&probe| Ask { k: request.k, skip: &request.skips[probe] }).collect();
            let mut screened = Screened::default();
            resident.rows.screen(
                &ScreenJob { probes: &probes_of(request, &open), asks: &asks, attempt },
                &mut screened,
            )?;
            report.scan_ns += started.elapsed().as_nanos() as u64;
            report.phases.add(screened.timing);
            report.invalid_indices += screened.invalid_indices;

            let started = Instant::now();
            let verdicts = self.verify(request, &open, &screened.probes);
            let mut still_open = Vec::new();
            for (probe, verdict) in open.into_iter().zip(verdicts) {
                report.bound_violations += verdict.bound_violations;
                if verdict.certified {
                    answers[probe] = verdict.ranked;
                } else {
                    report.uncertified += 1;
                    still_open.push(probe);
                }
            }
            open = still_open;
            report.verify_ns += started.elapsed().as_nanos() as u64;
        }
        let started = Instant::now();
        for probe in open {
            let question = question(request, probe);
            answers[probe] = self.pool.install(|| verify::full_scan(&request.snapshot, question));
        }
        report.verify_ns += started.elapsed().as_nanos() as u64;
        Ok(ScanAnswer { probes: answers, report })
    }

    fn verify(&self, request: &ScanRequest, probes: &[usize], found: &[Candidates]) -> Vec<Verdict> {
        self.pool.install(|| {
            probes
                .par_iter()
                .zip(found)
                .map(|(&probe, found)| verify::verify(&request.snapshot, question(request, probe), found))
                .collect()
        })
    }
}

fn question(request: &ScanRequest, probe: usize) -> Question<'_> {
    Question { probe: request.probes.row(probe), skip: &request.skips[probe], k: request.k }
}

/// Some probes of a request.
fn probes_of<'a>(request: &'a ScanRequest, probes: &[usize]) -> Cow<'a, Matrix> {
    if probes.len() == request.probes.rows() {
        return Cow::Borrowed(&request.probes);
    }
    let rows = probes.iter().map(|&probe| request.probes.row(probe));
    Cow::Owned(Matrix::from_rows(request.probes.dim(), rows))
}

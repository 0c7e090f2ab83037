//! Galleries that a backend has made ready: which one holds each, and what happens when the backend fails.
//!
//! The primary backend holds every gallery that it can. One that it failed is held by the CPU for a while, where the
//! configuration allows that, and then the primary is tried again. A former generation stays for as long as requests wait for
//! it, beside the new one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::plan::{self, BackendFallback};
use super::{EngineError, State};
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, BackendError, Loaded};
use crate::config::Fallback;
use crate::gallery::Snapshot;
use crate::telemetry::{self, BackendName, BackendState};

/// How long the CPU answers for a gallery after the primary backend failed it, before the primary is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// One generation of a gallery, loaded by the primary backend or, where that failed, by the CPU.
pub(super) struct Resident {
    gallery: String,
    generation: u64,
    retry_at: Option<Instant>,
    pub(super) rows: Box<dyn Loaded>,
    pub(super) backend: BackendName,
    pub(super) fallback: Option<BackendFallback>,
}

impl Resident {
    fn is(&self, snapshot: &Snapshot) -> bool {
        self.generation == snapshot.profile().generation && self.gallery == snapshot.profile().name
    }
}

pub(super) struct Residents {
    primary: Box<dyn Backend>,
    cpu: CpuBackend,
    fallback: Fallback,
    /// Why the primary is not what was wished for, from the start.
    standing_fallback: Option<BackendFallback>,
    held: Vec<Resident>,
    state: Arc<State>,
}

impl Residents {
    /// Of this backend, or of `cpu` where it fails.
    pub(super) fn new(primary: Box<dyn Backend>, cpu: CpuBackend, state: Arc<State>) -> Self {
        Self { primary, cpu, fallback: Fallback::Fail, standing_fallback: None, held: Vec::new(), state }
    }

    /// What happens when the primary fails, and why it is not what was wished for.
    pub(super) fn falling_back(mut self, fallback: Fallback, standing: Option<BackendFallback>) -> Self {
        (self.fallback, self.standing_fallback) = (fallback, standing);
        self
    }

    /// Makes a generation ready, in place of those of its gallery that nobody waits for; device bytes held by all galleries then.
    pub(super) fn load(
        &mut self,
        snapshot: &Arc<Snapshot>,
        awaited: impl Fn(&str, u64) -> bool,
    ) -> Result<u64, EngineError> {
        // A former generation's memory is released before the new one's is taken.
        self.held.retain(|held| {
            let replaced =
                held.gallery == snapshot.profile().name && !awaited(&held.gallery, held.generation);
            !(replaced || held.is(snapshot))
        });
        let resident = self.settle(snapshot)?;
        self.held.push(resident);
        Ok(self.held.iter().map(|held| held.rows.device_bytes()).sum())
    }

    /// How a backend tells apart numbers of rows asked for (see [`Loaded::k_class`]).
    pub(super) fn k_class(&self, snapshot: &Snapshot, k: usize) -> usize {
        self.held.iter().find(|held| held.is(snapshot)).map_or(0, |held| held.rows.k_class(k))
    }

    /// Takes a generation out, to be scanned and put back; loads it if need be.
    pub(super) fn take(&mut self, snapshot: &Arc<Snapshot>) -> Result<Resident, BackendError> {
        let place = self.held.iter().position(|held| held.is(snapshot));
        let held = place.map(|place| self.held.swap_remove(place));
        match held.filter(|held| held.retry_at.is_none_or(|at| Instant::now() < at)) {
            Some(resident) => Ok(resident),
            None => self.settle(snapshot),
        }
    }

    pub(super) fn put_back(&mut self, resident: Resident) {
        self.held.push(resident);
    }

    /// Releases a generation that nobody waits for, if its gallery has a later one.
    pub(super) fn release_former(&mut self, snapshot: &Snapshot) {
        let profile = snapshot.profile();
        let later = |held: &Resident| held.gallery == profile.name && held.generation > profile.generation;
        if self.held.iter().any(later) {
            self.held.retain(|held| !held.is(snapshot));
        }
    }

    /// Loads a generation on the primary backend, else on the CPU.
    fn settle(&mut self, snapshot: &Arc<Snapshot>) -> Result<Resident, BackendError> {
        match self.primary.load(snapshot.matrix()) {
            Ok(rows) => {
                self.seen_up(BackendState::Up);
                Ok(Resident {
                    gallery: snapshot.profile().name.clone(),
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
    pub(super) fn settle_on_cpu(
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
            gallery: snapshot.profile().name.clone(),
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
    pub(super) fn seen_up(&self, state: BackendState) {
        self.state.up.store(state == BackendState::Up, Ordering::Relaxed);
        telemetry::backend_state(self.primary.description().backend, state);
    }
}

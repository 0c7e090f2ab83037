//! Galleries that a backend has made ready: which one holds each, and what happens when the backend fails.
//!
//! The primary backend holds every gallery that it can. One that it failed is held by the CPU for a while, where the
//! configuration allows that, and then the primary is tried again. Where the device as a whole failed, all of its galleries are, and it is
//! brought back beside the scans ([`Outage`]). Where the faster backend is to scan, the CPU holds a gallery beside the device if it
//! is faster for some batches ([`Crossover`]), or alone if it is for all.
//!
//! A generation that is to be served is made ready beside the scans ([`coming`]), and held for as long as somebody outside holds its snapshot: those
//! who serve it, and requests that came before a later one.

mod coming;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::crossover::Crossover;
use super::outage::{Outage, Recovered};
use super::pauses::Pauses;
use super::plan::{self, BackendFallback, Reopen};
use super::{EngineError, State, Wanted};
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, BackendError, Loaded};
use crate::config::Fallback;
use crate::gallery::Snapshot;
use crate::telemetry::{self, BackendName, BackendState};
use coming::Coming;

/// One generation of a gallery, loaded by the primary backend or, where that failed, by the CPU.
pub(super) struct Resident {
    pub(super) snapshot: Arc<Snapshot>,
    retry_at: Option<Instant>,
    rows: Box<dyn Loaded>,
    backend: BackendName,
    fallback: Option<BackendFallback>,
    /// The CPU, for the batches that it scans faster.
    beside: Option<Beside>,
}

/// What the CPU holds beside a device.
struct Beside {
    rows: Box<dyn Loaded>,
    crossover: Arc<Crossover>,
}

/// What scans a batch.
pub(super) struct Scanner<'a> {
    pub(super) rows: &'a mut dyn Loaded,
    pub(super) backend: BackendName,
    /// Why it is not the backend configured or preferred.
    pub(super) fallback: Option<&'a BackendFallback>,
}

impl Resident {
    /// What scans a batch of so many probes.
    pub(super) fn scanner(&mut self, probes: usize) -> Scanner<'_> {
        match &mut self.beside {
            Some(Beside { rows, crossover }) if crossover.faster(probes) == BackendName::Cpu => {
                Scanner { rows: &mut **rows, backend: BackendName::Cpu, fallback: None }
            }
            Some(_) | None => {
                let (rows, fallback) = (&mut *self.rows, self.fallback.as_ref());
                Scanner { rows, backend: self.backend, fallback }
            }
        }
    }

    fn is(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }
}

pub(super) struct Residents {
    /// While it is out of service, `outage` says so.
    primary: Box<dyn Backend>,
    reopen: Option<Reopen>,
    outage: Option<Outage>,
    /// Of the device as a whole.
    pauses: Pauses,
    /// Of galleries that the primary failed by themselves, by name.
    gallery_pauses: HashMap<String, Pauses>,
    cpu: CpuBackend,
    /// Most probes of a batch, where the faster backend is to scan each; `None` where the primary scans all.
    measured_to: Option<usize>,
    fallback: Fallback,
    /// Why the primary is not what was wished for, from the start.
    standing_fallback: Option<BackendFallback>,
    held: Vec<Resident>,
    coming: Vec<Coming>,
    /// Whether anything was: until then nobody is kept waiting by what is made ready.
    asked: bool,
    state: Arc<State>,
    /// Device memory as last shown.
    shown_bytes: Cell<u64>,
}

impl Residents {
    /// Of this backend, or of `cpu` where it fails.
    pub(super) fn new(primary: Box<dyn Backend>, cpu: CpuBackend, state: Arc<State>) -> Self {
        Self {
            primary,
            reopen: None,
            outage: None,
            pauses: Pauses::default(),
            gallery_pauses: HashMap::new(),
            cpu,
            measured_to: None,
            fallback: Fallback::Fail,
            standing_fallback: None,
            held: Vec::new(),
            coming: Vec::new(),
            asked: false,
            state,
            shown_bytes: Cell::new(0),
        }
    }

    /// What happens when the primary fails, and why it is not what was wished for.
    pub(super) fn falling_back(mut self, fallback: Fallback, standing: Option<BackendFallback>) -> Self {
        (self.fallback, self.standing_fallback) = (fallback, standing);
        self
    }

    /// Has the faster backend scan each batch, of at most so many probes, where a number is given.
    pub(super) fn measuring(mut self, most: Option<usize>) -> Self {
        self.measured_to = most;
        self
    }

    /// How the primary is brought back when it failed.
    pub(super) fn reopening(mut self, reopen: Option<Reopen>) -> Self {
        self.reopen = reopen;
        self
    }

    /// Makes a generation ready: at once while nothing was asked yet, else beside the scans.
    pub(super) fn load(&mut self, wanted: Wanted) {
        self.release_unused();
        let Wanted { snapshot, former, reply } = wanted;
        let held = self.held.iter().any(|held| held.is(&snapshot));
        let loaded = if held {
            Ok(())
        } else if self.asked {
            self.begin(&snapshot, former, Some(reply));
            return;
        } else {
            self.settle(&snapshot).map(|resident| self.put_back(resident))
        };
        // Who gave up waiting does not hear it.
        let _ = reply.send(loaded.map(|()| self.shown_bytes.get()).map_err(EngineError::Backend));
    }

    /// How a backend tells apart numbers of rows asked for (see [`Loaded::k_class`]).
    pub(super) fn k_class(&self, snapshot: &Arc<Snapshot>, k: usize) -> usize {
        self.held.iter().find(|held| held.is(snapshot)).map_or(0, |held| held.rows.k_class(k))
    }

    /// Takes a generation out, to be scanned and put back; makes it ready if need be.
    pub(super) fn take(&mut self, snapshot: &Arc<Snapshot>) -> Result<Resident, BackendError> {
        self.asked = true;
        self.see_to_the_outage();
        self.see_to_the_coming();
        let now = Instant::now();
        match self.held.iter_mut().find(|held| held.is(snapshot)) {
            Some(held) => {
                if held.retry_at.take_if(|at| *at <= now).is_some() {
                    self.begin(snapshot, None, None);
                }
            }
            None => self.await_the_coming(snapshot),
        }
        match self.held.iter().position(|held| held.is(snapshot)) {
            Some(place) => Ok(self.held.swap_remove(place)),
            None => self.settle(snapshot),
        }
    }

    pub(super) fn put_back(&mut self, resident: Resident) {
        self.held.push(resident);
        self.show_memory();
    }

    /// Releases generations whose snapshots nobody outside holds any more.
    pub(super) fn release_unused(&mut self) {
        self.give_up_the_unused();
        let held = self.held.len();
        self.held.retain(|held| Arc::strong_count(&held.snapshot) > 1);
        if self.held.len() != held {
            self.show_memory();
        }
    }

    /// Makes a generation ready on the CPU because the primary failed to scan it, where the configuration allows that.
    pub(super) fn settle_on_cpu(
        &mut self,
        snapshot: &Arc<Snapshot>,
        because: BackendError,
    ) -> Result<Resident, BackendError> {
        let retry_at = self.failed(snapshot, &because);
        self.in_its_place(snapshot, &because, retry_at)
    }

    /// What a failure of the primary costs; when the gallery is to be tried again by itself, if it is.
    fn failed(&mut self, snapshot: &Snapshot, because: &BackendError) -> Option<Instant> {
        let holds_others = self.held.iter().any(|held| held.backend == self.primary.description().backend);
        // Where nothing else is on the device, opening it anew costs nobody anything, and mends more than trying again would.
        if self.reopen.is_some() && (because.is_of_device() || !holds_others) {
            self.take_out(because);
            return None;
        }
        self.seen_up(BackendState::Down);
        self.note_failure(because);
        let pauses = self.gallery_pauses.entry(snapshot.profile().name.clone()).or_default();
        Some(pauses.failed(Instant::now()))
    }

    /// Takes the device out of service: what it holds is released, and it is tried again after a pause.
    fn take_out(&mut self, because: &BackendError) {
        if self.reopen.is_none() || self.outage.is_some() {
            return;
        }
        let name = self.primary.description().backend;
        let retry_at = self.pauses.failed(Instant::now());
        tracing::error!(
            error = %because,
            retry = ?retry_at.saturating_duration_since(Instant::now()),
            "the device is taken out of service"
        );
        self.held.retain(|held| held.backend != name);
        self.divert_the_coming(because);
        self.outage = Some(Outage::new(because.clone(), retry_at));
        self.seen_up(BackendState::Down);
        self.note_failure(because);
        self.show_memory();
    }

    /// Takes the device out of service because of what it computed. The answers were mended.
    pub(super) fn take_out_wrong(&mut self, what: String) {
        self.take_out(&BackendError::Wrong { device: self.primary.description().device.clone(), what });
    }

    /// Begins to bring the device back where it is time to, and takes it into service where that is done.
    fn see_to_the_outage(&mut self) {
        let (Some(outage), Some(reopen)) = (&mut self.outage, &self.reopen) else { return };
        let snapshots = || self.held.iter().map(|held| Arc::clone(&held.snapshot)).collect();
        match outage.look(Instant::now(), reopen, snapshots) {
            None => (),
            Some(Ok(Recovered { backend, loaded })) => {
                let description = backend.description();
                tracing::info!(device = description.device, "the device is back in service");
                telemetry::backend_described(description.backend, &description.device, &description.driver);
                self.primary = Box::new(backend);
                self.outage = None;
                self.pauses.recovered(Instant::now());
                for (snapshot, rows) in loaded {
                    // A generation that went meanwhile is not wanted any more.
                    let Some(place) = self.held.iter().position(|held| held.is(&snapshot)) else { continue };
                    match self.of_primary(&snapshot, Box::new(rows)) {
                        Ok(resident) => self.held[place] = resident,
                        Err(error) => tracing::warn!(%error, "a gallery stays on the CPU"),
                    }
                }
                self.seen_up(BackendState::Up);
                self.show_memory();
            }
            Some(Err(error)) => {
                // What answers in its place goes on saying why it went out in the first place.
                let because = outage.because.clone();
                let retry_at = self.pauses.failed(Instant::now());
                tracing::warn!(%error, "the device cannot be taken into service again yet");
                self.outage = Some(Outage::new(because, retry_at));
                self.note_failure(&error);
            }
        }
    }

    fn note_failure(&self, because: &BackendError) {
        if self.primary.description().backend == BackendName::OpenCl {
            telemetry::backend_failed(plan::reason_of(because));
        }
    }

    /// Shows the device memory that is held, where that has changed.
    fn show_memory(&self) {
        let bytes = self.held.iter().map(|held| held.rows.device_bytes()).sum();
        if self.shown_bytes.replace(bytes) != bytes {
            telemetry::device_memory(bytes);
        }
    }

    /// Shows whether the primary backend can answer.
    pub(super) fn seen_up(&self, state: BackendState) {
        self.state.up.store(state == BackendState::Up, Ordering::Relaxed);
        telemetry::backend_state(self.primary.description().backend, state);
    }
}

#[cfg(test)]
mod tests;

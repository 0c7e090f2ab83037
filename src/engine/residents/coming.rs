//! Generations that are being made ready beside the scans: by the primary, then by the CPU where that is to hold them too, or instead.
//!
//! ```text
//! Primary ──┬── ready
//!           ├── Beside, Alone (the CPU is faster for some batches, or for all) ── ready
//!           └── InItsPlace (the primary failed) ── ready
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Beside, Resident, Residents};
use crate::backend::{Backend, BackendError, Former, Loaded, Loading};
use crate::config::Fallback;
use crate::domain::Kept;
use crate::engine::EngineError;
use crate::engine::crossover::{Crossover, Measured};
use crate::engine::plan::{self, BackendFallback};
use crate::gallery::Snapshot;
use crate::telemetry::{BackendName, BackendState};

/// How long one who needs a generation now waits before it looks again.
const LOOKED_AFTER: Duration = Duration::from_micros(50);

/// Told the device bytes held once a generation is ready.
type Reply = oneshot::Sender<Result<u64, EngineError>>;

/// A generation on its way.
pub(super) struct Coming {
    snapshot: Arc<Snapshot>,
    loading: Box<dyn Loading>,
    role: Role,
    /// None where the primary is tried again for a generation that the CPU holds.
    replies: Vec<Reply>,
}

/// What the rows that are being made ready are for.
enum Role {
    /// The primary's own.
    Primary,
    /// The CPU's, for the batches that it scans faster.
    Beside { rows: Box<dyn Loaded>, crossover: Arc<Crossover> },
    /// The CPU's, which scans all batches faster.
    Alone,
    /// The CPU's, because the primary failed.
    InItsPlace { because: BackendFallback, retry_at: Option<Instant> },
}

/// What becomes of rows that the primary holds.
enum Next {
    Ready(Resident),
    /// The CPU is to hold them too, or instead; its rows, where they are there.
    OnCpu(Role, Option<Box<dyn Loaded>>),
}

impl Coming {
    fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }
}

impl Residents {
    /// Whether any generation is on its way.
    pub(in crate::engine) fn any_coming(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Makes a generation ready at once.
    pub(super) fn settle(&mut self, snapshot: &Arc<Snapshot>) -> Result<Resident, BackendError> {
        if let Some(outage) = &self.outage {
            let because = outage.because.clone();
            return self.in_its_place(snapshot, &because, None);
        }
        let loaded = self.primary.load(snapshot.matrix()).and_then(|rows| self.of_primary(snapshot, rows));
        match loaded {
            Ok(resident) => {
                self.loaded_well(snapshot);
                Ok(resident)
            }
            Err(error) => self.settle_on_cpu(snapshot, error),
        }
    }

    /// A generation that the primary holds; or the CPU, beside it or in its place, where that is faster and may be chosen.
    pub(super) fn of_primary(
        &self,
        snapshot: &Arc<Snapshot>,
        rows: Box<dyn Loaded>,
    ) -> Result<Resident, BackendError> {
        match self.after_primary(snapshot, rows)? {
            Next::Ready(resident) => Ok(resident),
            Next::OnCpu(role, Some(rows)) => Ok(self.seat(snapshot, rows, role)),
            Next::OnCpu(role, None) => {
                Ok(self.seat(snapshot, self.cpu.clone().load(snapshot.matrix())?, role))
            }
        }
    }

    /// Makes a generation ready on the CPU, at once, because the primary failed, where the configuration allows that.
    pub(super) fn in_its_place(
        &self,
        snapshot: &Arc<Snapshot>,
        because: &BackendError,
        retry_at: Option<Instant>,
    ) -> Result<Resident, BackendError> {
        let role = self.fallen_back(snapshot, because, retry_at)?;
        Ok(self.seat(snapshot, self.cpu.clone().load(snapshot.matrix())?, role))
    }

    /// Begins to make a generation ready beside the scans, or to try the primary again for it.
    pub(super) fn begin(
        &mut self,
        snapshot: &Arc<Snapshot>,
        former: Option<(Arc<Snapshot>, Arc<[Kept]>)>,
        reply: Option<Reply>,
    ) {
        if let Some(coming) = self.coming.iter_mut().find(|coming| coming.is_of(snapshot)) {
            coming.replies.extend(reply);
            return;
        }
        let replies: Vec<Reply> = reply.into_iter().collect();
        if let Some(outage) = &self.outage {
            let because = outage.because.clone();
            self.begin_in_its_place(snapshot, &because, None, replies);
            return;
        }
        let primary = self.primary.description().backend;
        let former = former.as_ref().and_then(|(former, kept)| {
            let held = self.held.iter().find(|held| held.is(former) && held.backend == primary)?;
            Some(Former { rows: &*held.rows, kept })
        });
        match self.primary.begin(snapshot.matrix(), former) {
            Ok(loading) => {
                let snapshot = Arc::clone(snapshot);
                self.coming.push(Coming { snapshot, loading, role: Role::Primary, replies });
            }
            Err(error) => self.primary_failed(snapshot, &error, replies),
        }
    }

    /// Goes on with what is on its way, and takes in what is ready.
    pub(in crate::engine) fn see_to_the_coming(&mut self) {
        for place in (0..self.coming.len()).rev() {
            // What failed before may have changed the list.
            let Some(coming) = self.coming.get_mut(place) else { continue };
            if let Some(come) = coming.loading.look() {
                let coming = self.coming.swap_remove(place);
                self.came(coming, come);
            }
        }
    }

    /// Waits until a generation that is on its way is ready, or has failed.
    pub(super) fn await_the_coming(&mut self, snapshot: &Arc<Snapshot>) {
        while self.coming.iter().any(|coming| coming.is_of(snapshot)) {
            self.see_to_the_coming();
            std::thread::sleep(LOOKED_AFTER);
        }
    }

    /// Gives up what nobody outside holds any more.
    pub(super) fn give_up_the_unused(&mut self) {
        self.coming.retain(|coming| Arc::strong_count(&coming.snapshot) > 1);
    }

    /// What was to come from a primary that is taken out of service comes from the CPU, where the configuration allows that.
    pub(super) fn divert_the_coming(&mut self, because: &BackendError) {
        for Coming { snapshot, loading, role, replies } in std::mem::take(&mut self.coming) {
            match role {
                Role::Primary => self.begin_in_its_place(&snapshot, because, None, replies),
                Role::Beside { .. } => match self.fallen_back(&snapshot, because, None) {
                    Ok(role) => self.coming.push(Coming { snapshot, loading, role, replies }),
                    Err(error) => tell(replies, &Err(error)),
                },
                role @ (Role::Alone | Role::InItsPlace { .. }) => {
                    self.coming.push(Coming { snapshot, loading, role, replies });
                }
            }
        }
    }

    fn came(&mut self, coming: Coming, come: Result<Box<dyn Loaded>, BackendError>) {
        let Coming { snapshot, role, replies, .. } = coming;
        let next = match (come, role) {
            (Ok(rows), Role::Primary) => self.after_primary(&snapshot, rows),
            (Ok(rows), role) => Ok(Next::Ready(self.seat(&snapshot, rows, role))),
            (Err(error), Role::Primary) => Err(error),
            // The CPU has no way to fail, and no other to fall back to.
            (Err(error), Role::Beside { .. } | Role::Alone | Role::InItsPlace { .. }) => {
                tell(replies, &Err(error));
                return;
            }
        };
        match next {
            Ok(Next::Ready(resident)) => self.arrived(resident, replies),
            Ok(Next::OnCpu(role, Some(rows))) => {
                let resident = self.seat(&snapshot, rows, role);
                self.arrived(resident, replies);
            }
            Ok(Next::OnCpu(role, None)) => self.begin_on_cpu(&snapshot, role, replies),
            Err(error) => self.primary_failed(&snapshot, &error, replies),
        }
    }

    fn arrived(&mut self, resident: Resident, replies: Vec<Reply>) {
        if resident.backend == self.primary.description().backend {
            self.loaded_well(&resident.snapshot);
        }
        self.held.retain(|held| !held.is(&resident.snapshot));
        self.put_back(resident);
        tell(replies, &Ok(self.shown_bytes.get()));
    }

    fn primary_failed(&mut self, snapshot: &Arc<Snapshot>, because: &BackendError, replies: Vec<Reply>) {
        let retry_at = self.failed(snapshot, because);
        self.begin_in_its_place(snapshot, because, retry_at, replies);
    }

    fn begin_in_its_place(
        &mut self,
        snapshot: &Arc<Snapshot>,
        because: &BackendError,
        retry_at: Option<Instant>,
        replies: Vec<Reply>,
    ) {
        if let Some(held) = self.held.iter_mut().find(|held| held.is(snapshot)) {
            // The CPU holds it: the primary was tried again, in vain.
            held.retry_at = retry_at;
            tell(replies, &Ok(self.shown_bytes.get()));
            return;
        }
        match self.fallen_back(snapshot, because, retry_at) {
            Ok(role) => self.begin_on_cpu(snapshot, role, replies),
            Err(error) => tell(replies, &Err(error)),
        }
    }

    fn begin_on_cpu(&mut self, snapshot: &Arc<Snapshot>, role: Role, replies: Vec<Reply>) {
        match self.cpu.begin(snapshot.matrix(), None) {
            Ok(loading) => {
                self.coming.push(Coming { snapshot: Arc::clone(snapshot), loading, role, replies });
            }
            Err(error) => tell(replies, &Err(error)),
        }
    }

    /// Whether the CPU may hold a generation that the primary failed, and what it is then.
    fn fallen_back(
        &self,
        snapshot: &Snapshot,
        because: &BackendError,
        retry_at: Option<Instant>,
    ) -> Result<Role, BackendError> {
        if self.fallback == Fallback::Fail || self.primary.description().backend != BackendName::OpenCl {
            return Err(because.clone());
        }
        tracing::warn!(gallery = snapshot.profile().name, error = %because, "the backend failed; the CPU answers");
        let because =
            BackendFallback { reason: plan::reason_of(because), sentence: plan::sentence_of(because) };
        Ok(Role::InItsPlace { because, retry_at })
    }

    /// What becomes of rows that the primary holds.
    fn after_primary(
        &self,
        snapshot: &Arc<Snapshot>,
        mut rows: Box<dyn Loaded>,
    ) -> Result<Next, BackendError> {
        let primary = self.primary.description().backend;
        let alone = |rows| Next::Ready(self.seat(snapshot, rows, Role::Primary));
        let Some(most) = self.measured_to.filter(|_| primary == BackendName::OpenCl) else {
            return Ok(alone(rows));
        };
        let (gallery, matrix) = (&snapshot.profile().name, snapshot.matrix());
        let (crossover, on_cpu) = match self.known_crossover(snapshot) {
            Some(known) => (known, None),
            None => match Crossover::measure(&mut *rows, &mut self.cpu.clone(), matrix, most)? {
                Some(Measured { crossover, on_cpu }) => {
                    tracing::info!(gallery, choice = crossover.sentence(), "CPU and device timed");
                    (self.state.measured(gallery, crossover), on_cpu)
                }
                None => return Ok(alone(rows)),
            },
        };
        Ok(match crossover.always() {
            Some(backend) if backend == primary => alone(rows),
            Some(_) => Next::OnCpu(Role::Alone, on_cpu),
            None => Next::OnCpu(Role::Beside { rows, crossover }, on_cpu),
        })
    }

    /// What is known of the gallery's times; while others are served nobody waits for a measurement, and an estimate will do.
    fn known_crossover(&self, snapshot: &Snapshot) -> Option<Arc<Crossover>> {
        let (gallery, rows) = (&snapshot.profile().name, snapshot.row_count());
        let own = self.state.crossover(gallery);
        if !self.asked || own.as_ref().is_some_and(|own| own.holds_for(rows)) {
            return own.filter(|own| own.holds_for(rows));
        }
        let near = own.or_else(|| self.state.nearest_crossover(rows))?.scaled(rows);
        tracing::info!(gallery, choice = near.sentence(), "times of CPU and device estimated");
        Some(self.state.measured(gallery, near))
    }

    /// Rows that are ready, in their role.
    fn seat(&self, snapshot: &Arc<Snapshot>, rows: Box<dyn Loaded>, role: Role) -> Resident {
        let primary = self.primary.description().backend;
        let cpu = self.cpu.description().backend;
        let standing = || self.standing_fallback.clone();
        let (rows, backend, fallback, retry_at, beside) = match role {
            Role::Primary => (rows, primary, standing(), None, None),
            Role::Alone => (rows, cpu, standing(), None, None),
            Role::Beside { rows: own, crossover } => {
                (own, primary, standing(), None, Some(Beside { rows, crossover }))
            }
            Role::InItsPlace { because, retry_at } => (rows, cpu, Some(because), retry_at, None),
        };
        Resident { snapshot: Arc::clone(snapshot), rows, backend, fallback, retry_at, beside }
    }

    /// The primary has made a generation ready.
    fn loaded_well(&mut self, snapshot: &Snapshot) {
        self.seen_up(BackendState::Up);
        if let Some(pauses) = self.gallery_pauses.get_mut(&snapshot.profile().name) {
            pauses.recovered(Instant::now());
        }
    }
}

fn tell(replies: Vec<Reply>, told: &Result<u64, BackendError>) {
    for reply in replies {
        // Who gave up waiting does not hear it.
        let _ = reply.send(told.clone().map_err(EngineError::Backend));
    }
}

//! What engines show of themselves: which backend each has and whether it is up, the device memory that it holds, the batches that it
//! scans, and how it failed, each under the role that the engine has.
//!
//! Two engines may run, the primary's and the shadow's, and the same code records for both. So an engine's thread says once whose it is
//! ([`enter_engine`]), and what is recorded on it is that engine's. An engine without a role, such as one beside the two for a
//! replay, shows nothing.
//!
//! A role passes to the other engine with a promotion, and what is shown moves with it. A series cannot be taken back: whether a
//! backend is up in a role that it no longer has is NaN, which no comparison in an alert holds for.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::labels::{BackendName, FallbackReason, Label, Role};
use super::metrics::{BACKEND_FAILURES, BACKEND_UP, BATCH_PROBES, DEVICE_MEMORY};
use super::record::{counter, gauge, histogram};

thread_local! {
    static OWN: RefCell<Option<Arc<EngineMetrics>>> = const { RefCell::new(None) };
}

/// Whether a backend can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// It can.
    Up,
    /// It cannot.
    Down,
}

/// The metrics of one engine.
#[derive(Debug, Default)]
pub struct EngineMetrics(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    /// `None`: nothing is shown.
    role: Option<Role>,
    backends: Vec<(BackendName, BackendState)>,
    device_bytes: u64,
}

impl EngineMetrics {
    /// Gives engines their roles, each role to one of them; what is shown of them moves at once.
    pub fn cast(roles: &[(&Self, Role)]) {
        // All leave their roles before any takes up another's.
        for (engine, _) in roles {
            engine.shown().leave();
        }
        for (engine, role) in roles {
            engine.shown().take_up(*role);
        }
    }

    /// A backend of this engine came up or went down.
    pub fn backend_state(&self, backend: BackendName, state: BackendState) {
        let mut shown = self.shown();
        match shown.backends.iter_mut().find(|(one, _)| *one == backend) {
            Some((_, known)) => *known = state,
            None => shown.backends.push((backend, state)),
        }
        if let Some(role) = shown.role {
            show_state(backend, role, state);
        }
    }

    fn device_memory(&self, bytes: u64) {
        let mut shown = self.shown();
        shown.device_bytes = bytes;
        if let Some(role) = shown.role {
            show_memory(role, bytes);
        }
    }

    fn role(&self) -> Option<Role> {
        self.shown().role
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    fn leave(&mut self) {
        let Some(role) = self.role.take() else { return };
        for (backend, _) in &self.backends {
            gauge(&BACKEND_UP, [backend.as_str(), role.as_str()]).set(f64::NAN);
        }
        show_memory(role, 0);
    }

    fn take_up(&mut self, role: Role) {
        self.role = Some(role);
        for (backend, state) in &self.backends {
            show_state(*backend, role, *state);
        }
        show_memory(role, self.device_bytes);
    }
}

fn show_state(backend: BackendName, role: Role, state: BackendState) {
    let value = match state {
        BackendState::Up => 1.0,
        BackendState::Down => 0.0,
    };
    gauge(&BACKEND_UP, [backend.as_str(), role.as_str()]).set(value);
}

fn show_memory(role: Role, bytes: u64) {
    gauge(&DEVICE_MEMORY, [role.as_str()]).set(bytes as f64);
}

/// Makes every series show whose labels' values are known beforehand.
pub(super) fn from_the_start() {
    for role in Role::ALL {
        show_memory(*role, 0);
        // A histogram shows once it is registered, whether or not its handle is kept.
        drop(histogram(&BATCH_PROBES, [role.as_str()]));
        for reason in FallbackReason::ALL {
            counter(&BACKEND_FAILURES, [reason.as_str(), role.as_str()]).increment(0);
        }
    }
}

/// From now on what is recorded on this thread is this engine's.
pub fn enter_engine(metrics: &Arc<EngineMetrics>) {
    OWN.set(Some(Arc::clone(metrics)));
}

/// Does something with the metrics of the engine whose thread this is; nothing on another thread.
fn with_own(record: impl FnOnce(&EngineMetrics)) {
    OWN.with_borrow(|own| {
        if let Some(own) = own {
            record(own);
        }
    });
}

/// A backend of this thread's engine came up or went down.
pub fn backend_state(backend: BackendName, state: BackendState) {
    with_own(|own| own.backend_state(backend, state));
}

/// This thread's engine holds so many bytes of device memory now.
pub fn device_memory(bytes: u64) {
    with_own(|own| own.device_memory(bytes));
}

/// This thread's engine scanned so many probes together, of one request or several.
pub fn batch_scanned(probes: usize) {
    with_own(|own| {
        if let Some(role) = own.role() {
            histogram(&BATCH_PROBES, [role.as_str()]).record(probes as f64);
        }
    });
}

/// OpenCL failed this thread's engine.
pub fn backend_failed(reason: FallbackReason) {
    with_own(|own| {
        if let Some(role) = own.role() {
            counter(&BACKEND_FAILURES, [reason.as_str(), role.as_str()]).increment(1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::recorder::rendered;
    use super::*;

    /// The lines of these metrics that say something: a series of which nothing is known yet is left out.
    fn shown(what: impl FnOnce()) -> Vec<String> {
        let text = rendered(what);
        let told = |line: &&str| {
            ["lookalike_backend_up{", "lookalike_device_memory_bytes{", "lookalike_batch_probes_sum{"]
                .iter()
                .any(|name| line.starts_with(name))
                || (line.starts_with("lookalike_backend_failures_total{") && !line.ends_with(" 0"))
        };
        let mut lines: Vec<String> = text.lines().filter(told).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn on_its_thread(engine: &Arc<EngineMetrics>, what: impl FnOnce()) {
        enter_engine(engine);
        what();
        OWN.set(None);
    }

    #[test]
    fn each_engine_shows_under_its_role() {
        let (standing, candidate) = (Arc::new(EngineMetrics::default()), Arc::new(EngineMetrics::default()));
        let lines = shown(|| {
            on_its_thread(&standing, || {
                backend_state(BackendName::Cpu, BackendState::Up);
                batch_scanned(7);
            });
            EngineMetrics::cast(&[(&standing, Role::Primary), (&candidate, Role::Shadow)]);
            on_its_thread(&standing, || batch_scanned(3));
            on_its_thread(&candidate, || {
                backend_state(BackendName::OpenCl, BackendState::Up);
                device_memory(4096);
                batch_scanned(100);
                backend_failed(FallbackReason::DeviceError);
                backend_state(BackendName::OpenCl, BackendState::Down);
            });
            // Nobody's.
            device_memory(1);
            backend_state(BackendName::Reference, BackendState::Up);
        });
        assert_eq!(
            lines,
            [
                "lookalike_backend_failures_total{reason=\"device_error\",role=\"shadow\"} 1",
                "lookalike_backend_up{backend=\"cpu\",role=\"primary\"} 1",
                "lookalike_backend_up{backend=\"opencl\",role=\"shadow\"} 0",
                "lookalike_batch_probes_sum{role=\"primary\"} 3",
                "lookalike_batch_probes_sum{role=\"shadow\"} 100",
                "lookalike_device_memory_bytes{role=\"primary\"} 0",
                "lookalike_device_memory_bytes{role=\"shadow\"} 4096",
            ]
        );
    }

    #[test]
    fn what_is_shown_moves_with_the_role() {
        let (standing, candidate) = (Arc::new(EngineMetrics::default()), Arc::new(EngineMetrics::default()));
        let lines = shown(|| {
            standing.backend_state(BackendName::Cpu, BackendState::Up);
            candidate.backend_state(BackendName::OpenCl, BackendState::Up);
            candidate.device_memory(4096);
            EngineMetrics::cast(&[(&standing, Role::Primary), (&candidate, Role::Shadow)]);
            EngineMetrics::cast(&[(&standing, Role::Shadow), (&candidate, Role::Primary)]);
            candidate.device_memory(8192);
        });
        assert_eq!(
            lines,
            [
                "lookalike_backend_up{backend=\"cpu\",role=\"primary\"} NaN",
                "lookalike_backend_up{backend=\"cpu\",role=\"shadow\"} 1",
                "lookalike_backend_up{backend=\"opencl\",role=\"primary\"} 1",
                "lookalike_backend_up{backend=\"opencl\",role=\"shadow\"} NaN",
                "lookalike_batch_probes_sum{role=\"primary\"} 0",
                "lookalike_batch_probes_sum{role=\"shadow\"} 0",
                "lookalike_device_memory_bytes{role=\"primary\"} 8192",
                "lookalike_device_memory_bytes{role=\"shadow\"} 0",
            ]
        );
    }
}

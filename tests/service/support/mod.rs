//! What the tests of the service share: servers in this process and as processes, galleries, vectors.
//!
//! Invariants: everything listens on port 0 and keeps its files in a temporary folder; nothing sleeps to wait.

mod fake;
mod faulty;
mod galleries;
mod process;
mod random;
mod served;
mod wire;

pub(crate) use fake::Fake;
pub(crate) use faulty::{Fault, Faulty, PLANTED, Switch};
pub(crate) use galleries::{
    Face, data_folder, data_folder_as, expected, packed, probe, sample_faces, sample_file, sample_probes,
    snapshot, snapshot_of, unit, values,
};
pub(crate) use process::{Program, Run, Served, http_get, lookalike};
pub(crate) use random::Random;
pub(crate) use served::{Server, recognizer, settings};
pub(crate) use wire::{begin_only, call};

/// Backends to compare with the reference, as the flags that choose them.
pub(crate) const BACKENDS: [(&str, &[&str]); 3] = [
    ("cpu", &["backend.kind=cpu", "backend.cpu.threads=1"]),
    ("cpu", &["backend.kind=cpu", "backend.cpu.threads=2"]),
    ("opencl", &OPENCL),
];

/// The flags that choose the OpenCL device of this machine, be it a CPU, and no other backend instead.
pub(crate) const OPENCL: [&str; 3] =
    ["backend.kind=opencl", "backend.fallback=fail", "backend.opencl.allow_cpu_devices=true"];

/// The flags that choose the plain `f64` backend.
pub(crate) const REFERENCE: [&str; 1] = ["backend.kind=reference"];

/// The flags that choose the CPU.
pub(crate) const CPU: [&str; 1] = ["backend.kind=cpu"];

/// Asks until `condition` holds; the pause between is the scheduler's.
///
/// # Panics
/// After a minute.
pub(crate) async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = std::time::Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(started.elapsed() < std::time::Duration::from_mins(1), "{what}: not within a minute");
        tokio::task::yield_now().await;
    }
}

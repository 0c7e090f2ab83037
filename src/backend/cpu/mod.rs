//! The CPU backend: a screen in bytes, a screen in `f32` behind it, and a choice of candidates that is right by construction.
//!
//! Rows are kept twice: as the embeddings they are, and quantised to a byte a component ([`quantized`]), which takes a quarter of the
//! memory and several times less arithmetic to scan. Where bytes cannot tell rows apart, the scan of a probe is given up and done
//! in `f32` ([`float`]). Both offer rows with proven intervals of their scores to [`select`], so the candidates always hold every row
//! that may be among the first k.
//!
//! A scan allocates nothing once it has seen its like: selectors, quantised probes and lists are kept from scan to scan.

mod float;
mod fma;
mod kernel;
mod loading;
mod multiply;
mod ordered;
mod peak;
mod quantized;
mod select;
mod sweep;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPool;
use thiserror::Error;

use self::kernel::Kernel;
use self::loading::Quantizing;
use self::quantized::{QuantizedProbes, QuantizedRows};
use self::select::Wanted;
use self::sweep::Sweep;
use super::{
    Backend, BackendError, Candidates, Coverage, Description, Former, Loaded, Loading, Ready, ScreenJob,
    Screened,
};
use crate::config::{CpuSettings, Instructions};
use crate::domain::Matrix;
use crate::telemetry::BackendName;

pub use fma::peak_f32;
pub use peak::{Peak, peak};

/// A probe that asks for more than one row in so many is scanned in `f32` at once: most rows would be kept.
const ROWS_A_PLACE: usize = 16;

/// Scans that are done in `f32` at once after bytes could not tell rows apart for most probes of one.
const DISTRUST: u32 = 31;

/// Instructions that this processor has not, or that this program has no code for.
#[derive(Clone, Debug, Error)]
#[error("backend.cpu.instructions: expected {}, got {wanted}", present.join(", "))]
pub struct NoInstructions {
    /// What was asked for.
    pub wanted: &'static str,
    /// What there is.
    pub present: Vec<&'static str>,
}

/// The CPU backend. A clone scans with the same threads and working memory.
#[derive(Clone, Debug)]
pub struct CpuBackend {
    description: Description,
    /// `None`: rows are scanned in `f32` alone.
    kernel: Option<&'static Kernel>,
    scratch: Rc<RefCell<Scratch>>,
}

/// What scans of all galleries work with, one after the other.
#[derive(Debug)]
struct Scratch {
    sweep: Sweep,
    probes: QuantizedProbes,
    /// Probes of a job that are scanned in bytes, and in `f32`.
    in_bytes: Vec<usize>,
    in_float: Vec<usize>,
    /// Some probes of a job, as a matrix of their own, and what was found for them.
    subset: Matrix,
    found: Vec<Candidates>,
}

impl CpuBackend {
    /// Scans on the threads of `pool`, with the instructions that the settings name or else the best there are.
    pub fn new(pool: Arc<ThreadPool>, settings: &CpuSettings) -> Result<Self, NoInstructions> {
        let kernel = kernel(settings.instructions)?;
        let description = Description {
            backend: BackendName::Cpu,
            device: processor_name(),
            driver: match kernel {
                Some(kernel) => {
                    format!("int8 {}, f32 {}", kernel.instructions.as_str(), float_instructions())
                }
                None => format!("f32 {}", float_instructions()),
            },
        };
        let scratch = Scratch {
            sweep: Sweep::new(pool),
            probes: QuantizedProbes::default(),
            in_bytes: Vec::new(),
            in_float: Vec::new(),
            subset: Matrix::with_capacity(0, 1),
            found: Vec::new(),
        };
        Ok(Self { description, kernel, scratch: Rc::new(RefCell::new(scratch)) })
    }
}

/// The kernel that the settings name, else the best that this processor can run and that beats the matrix crate; `None` where
/// there is no such.
fn kernel(wanted: Option<Instructions>) -> Result<Option<&'static Kernel>, NoInstructions> {
    let Some(wanted) = wanted else {
        return Ok(Kernel::present().find(|kernel| kernel.instructions != Instructions::Portable));
    };
    match Kernel::present().find(|kernel| kernel.instructions == wanted) {
        Some(kernel) => Ok(Some(kernel)),
        None => Err(NoInstructions {
            wanted: wanted.as_str(),
            present: Kernel::present().map(|kernel| kernel.instructions.as_str()).collect(),
        }),
    }
}

impl Backend for CpuBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        let scratch = self.scratch.borrow();
        let quantize = |kernel: &'static Kernel| (kernel, QuantizedRows::new(rows, kernel));
        let quantized = scratch.sweep.pool().install(|| self.kernel.map(quantize));
        drop(scratch);
        Ok(Box::new(CpuRows::new(self, rows, quantized)))
    }

    fn begin(
        &mut self,
        rows: &Arc<Matrix>,
        _former: Option<Former<'_>>,
    ) -> Result<Box<dyn Loading>, BackendError> {
        match self.kernel.and_then(|kernel| Quantizing::begin(self, rows, kernel)) {
            Some(quantizing) => Ok(Box::new(quantizing)),
            None => Ok(Box::new(Ready::new(self.load(rows)?))),
        }
    }
}

struct CpuRows {
    rows: Arc<Matrix>,
    quantized: Option<(&'static Kernel, QuantizedRows)>,
    scratch: Rc<RefCell<Scratch>>,
    /// Scans left that are done in `f32` at once.
    distrust: u32,
}

impl CpuRows {
    fn new(
        backend: &CpuBackend,
        rows: &Arc<Matrix>,
        quantized: Option<(&'static Kernel, QuantizedRows)>,
    ) -> Self {
        let (rows, scratch) = (Arc::clone(rows), Rc::clone(&backend.scratch));
        Self { rows, quantized, scratch, distrust: 0 }
    }
}

impl Loaded for CpuRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        let started = Instant::now();
        into.begin(job.probes.rows());
        let scratch = &mut *self.scratch.borrow_mut();
        scratch.in_bytes.clear();
        scratch.in_float.clear();
        let quantized = self.quantized.as_ref().filter(|_| job.attempt == 0 && self.distrust == 0);
        self.distrust = self.distrust.saturating_sub(1);
        for (probe, ask) in job.asks.iter().enumerate() {
            let few = ask.k.saturating_mul(ROWS_A_PLACE) < self.rows.rows();
            if quantized.is_some() && few { &mut scratch.in_bytes } else { &mut scratch.in_float }
                .push(probe);
        }
        if let Some((kernel, rows)) = quantized {
            let beforehand = scratch.in_float.len();
            screen_in_bytes(rows, kernel, job, scratch, &mut into.probes);
            if 2 * (scratch.in_float.len() - beforehand) > scratch.in_bytes.len() {
                self.distrust = DISTRUST;
            }
        }
        screen_in_float(&self.rows, job, scratch, &mut into.probes);
        into.timing.scan_ns = started.elapsed().as_nanos() as u64;
        Ok(())
    }
}

/// Screens the probes that `scratch` lists for bytes; those given up are added to its list for `f32`.
fn screen_in_bytes(
    rows: &QuantizedRows,
    kernel: &Kernel,
    job: &ScreenJob<'_>,
    scratch: &mut Scratch,
    into: &mut [Candidates],
) {
    let Scratch { sweep, probes, in_bytes, in_float, subset, found } = scratch;
    if in_bytes.is_empty() {
        return;
    }
    probes.fill(picked(job.probes, in_bytes, subset), rows, kernel, sweep.pool());
    sweep.begin(in_bytes.iter().map(|&probe| {
        let k = job.asks[probe].k;
        Wanted { k, most: (4 * k + 1024).max(rows.len() / 32) }
    }));
    quantized::screen(kernel, rows, probes, &|probe| job.asks[in_bytes[probe]].skip, sweep);
    take_out(in_bytes, into, found);
    sweep.finish(found);
    let given_up = in_bytes.iter().zip(&*found).filter(|(_, found)| found.coverage == Coverage::Unknown);
    in_float.extend(given_up.map(|(probe, _)| *probe));
    put_back(in_bytes, into, found);
}

/// Screens the probes that `scratch` lists for `f32`.
fn screen_in_float(rows: &Matrix, job: &ScreenJob<'_>, scratch: &mut Scratch, into: &mut [Candidates]) {
    let Scratch { sweep, in_float, subset, found, .. } = scratch;
    if in_float.is_empty() {
        return;
    }
    let probes = picked(job.probes, in_float, subset);
    sweep.begin(in_float.iter().map(|&probe| Wanted { k: job.asks[probe].k, most: usize::MAX }));
    float::screen(rows, probes, &|probe| job.asks[in_float[probe]].skip, sweep);
    take_out(in_float, into, found);
    sweep.finish(found);
    put_back(in_float, into, found);
}

/// The probes listed, which are all of them or are copied into `subset`.
fn picked<'a>(probes: &'a Matrix, list: &[usize], subset: &'a mut Matrix) -> &'a Matrix {
    if list.len() == probes.rows() {
        return probes;
    }
    subset.reset(probes.dim());
    for &probe in list {
        subset.push(probes.row(probe));
    }
    subset
}

/// Moves the lists of some probes side by side.
fn take_out(list: &[usize], from: &mut [Candidates], to: &mut Vec<Candidates>) {
    to.clear();
    to.extend(list.iter().map(|&probe| std::mem::take(&mut from[probe])));
}

/// Moves them back.
fn put_back(list: &[usize], to: &mut [Candidates], from: &mut Vec<Candidates>) {
    for (&probe, found) in list.iter().zip(from.drain(..)) {
        to[probe] = found;
    }
}

/// The processor's name as the operating system gives it, else its architecture.
pub fn processor_name() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    told.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The instructions that the matrix crate finds on this processor.
fn float_instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "avx512f";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "avx2+fma";
        }
    }
    if cfg!(target_arch = "aarch64") { "neon" } else { "portable" }
}

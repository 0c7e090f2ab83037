//! Rows quantised on threads of their own, while others are scanned.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::backend::{BackendError, Loaded, Loading};
use crate::domain::Matrix;

use super::kernel::Kernel;
use super::quantized::QuantizedRows;
use super::{CpuBackend, CpuRows};

/// Rows that are being quantised.
pub(super) struct Quantizing {
    backend: CpuBackend,
    rows: Arc<Matrix>,
    kernel: &'static Kernel,
    /// `None` once the rows were handed out.
    thread: Option<JoinHandle<QuantizedRows>>,
}

impl Quantizing {
    /// Begins; `None` where there is no thread to be had for it.
    pub(super) fn begin(backend: &CpuBackend, rows: &Arc<Matrix>, kernel: &'static Kernel) -> Option<Self> {
        // Half of the threads are left to the scans.
        let threads = (backend.scratch.borrow().sweep.pool().current_num_threads() / 2).max(1);
        let matrix = Arc::clone(rows);
        let quantize = move || {
            let quantize = || QuantizedRows::new(&matrix, kernel);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
            // Without further threads, this one does it all.
            pool.map_or_else(|_| quantize(), |pool| pool.install(quantize))
        };
        let thread = std::thread::Builder::new().name("quantize".to_owned()).spawn(quantize);
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "rows are made ready between scans"));
        Some(Self { backend: backend.clone(), rows: Arc::clone(rows), kernel, thread: Some(thread.ok()?) })
    }
}

impl Loading for Quantizing {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        let quantized = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some(Ok(Box::new(CpuRows::new(&self.backend, &self.rows, Some((self.kernel, quantized))))))
    }
}

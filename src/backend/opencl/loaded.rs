//! A gallery on the device, and which scan answers for it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::backend::{BackendError, Loaded, ScreenJob, Screened};

use super::driver::device::Device;
use super::program::Programs;
use super::rows::Rows;
use super::tiled::{self, Arithmetic, ByteRows};
use super::{lanes, tiled::Memory};

/// What scans on one device share: compiled kernels and working memory.
#[derive(Debug)]
pub(super) struct Engine {
    /// The device.
    pub(super) device: Device,
    /// How the lanes' scan lies over it.
    pub(super) tuning: lanes::Tuning,
    /// How the tiled scan computes; `None` where the device does better without it.
    pub(super) tiled: Option<Arithmetic>,
    /// Its kernels.
    pub(super) programs: Programs,
    /// Working memory of the lanes' scan.
    pub(super) scratch: lanes::Scratch,
    /// Working memory of the tiled scan.
    pub(super) memory: Memory,
}

impl Engine {
    /// Bytes of working memory on the device.
    pub(super) fn working_bytes(&self) -> u64 {
        self.scratch.device_bytes() + self.memory.device_bytes()
    }
}

/// Rows ready to be scanned.
#[derive(Debug)]
pub(super) struct LoadedRows {
    engine: Rc<RefCell<Engine>>,
    rows: Rows,
    bytes: Option<ByteRows>,
}

impl LoadedRows {
    /// Readies rows that were brought to the device.
    pub(super) fn new(engine: &Rc<RefCell<Engine>>, rows: Rows) -> Result<Self, BackendError> {
        let mut loaded = Self { engine: Rc::clone(engine), rows, bytes: None };
        loaded.quantize()?;
        Ok(loaded)
    }

    /// The rows.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Builds the kernels that serving the first `top_k` of the rows needs, for any number of probes; how many those are.
    pub(super) fn warm_up(&self, top_k: usize) -> Result<usize, BackendError> {
        let engine = &mut *self.engine.borrow_mut();
        let mut recipes = lanes::recipes(&self.rows, top_k, engine.tuning);
        if let Some(arithmetic) = self.arithmetic(engine) {
            recipes.extend(tiled::recipes(&self.rows, top_k, arithmetic));
        }
        let count = recipes.len();
        engine.programs.warm_up(&engine.device, recipes)?;
        Ok(count)
    }

    /// How the tiled scan computes these rows: in `f32` where it would in bytes and there are none, as of rows that pass through.
    fn arithmetic(&self, engine: &Engine) -> Option<Arithmetic> {
        let missing = |arithmetic: Arithmetic| arithmetic.wants_bytes() && self.bytes.is_none();
        engine.tiled.map(|wished| if missing(wished) { Arithmetic::Floats } else { wished })
    }

    /// Makes the rows' bytes, where they are wanted and fit.
    fn quantize(&mut self) -> Result<(), BackendError> {
        let Engine { device, programs, tiled, .. } = &mut *self.engine.borrow_mut();
        if let Some(arithmetic) = tiled.filter(|arithmetic| arithmetic.wants_bytes()) {
            self.bytes = ByteRows::load(device, programs, &self.rows, arithmetic)?;
        }
        Ok(())
    }
}

impl Loaded for LoadedRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        if self.rows.settle(&self.engine.borrow().device)? {
            self.quantize()?;
        }
        into.begin(job.probes.rows());
        let engine = &mut *self.engine.borrow_mut();
        let rows = (&self.rows, self.bytes.as_ref());
        match self.arithmetic(engine) {
            Some(arithmetic) if tiled::takes(arithmetic, rows, job) => {
                tiled::screen(engine, rows, arithmetic, job, into)
            }
            Some(_) | None => lanes::screen(engine, &self.rows, job, into),
        }
    }

    fn k_class(&self, k: usize) -> usize {
        lanes::k_class(k, self.rows.len())
    }

    fn device_bytes(&self) -> u64 {
        let bytes = self.bytes.as_ref().map_or(0, ByteRows::device_bytes);
        self.rows.device_bytes() + bytes + self.engine.borrow().working_bytes()
    }
}

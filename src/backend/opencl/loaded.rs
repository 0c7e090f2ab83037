//! A gallery on the device, and which scan answers for it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::backend::{BackendError, Loaded, ScreenJob, Screened};

use super::driver::device::Device;
use super::program::{Programs, Recipe};
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

    /// The kernels that serving the first `top_k` of `rows` needs, for any number of probes.
    pub(super) fn recipes(&self, rows: &Rows, top_k: usize) -> Vec<Recipe> {
        let mut recipes = lanes::recipes(rows, top_k, self.tuning);
        if let Some(arithmetic) = self.tiled {
            recipes.extend(tiled::recipes(rows, top_k, arithmetic));
        }
        recipes
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
        match engine.tiled {
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

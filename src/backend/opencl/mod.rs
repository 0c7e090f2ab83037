//! The OpenCL backend: scans on a GPU, or on any OpenCL device that the settings name.
//!
//! `driver` is the boundary to the driver (all `unsafe` is in there; its `loader.c` stands in for `libOpenCL.so` at link time);
//! `choose` picks a device; `program` compiles the kernels of `kernels/`; `rows` holds a gallery's rows on the device; `lanes` scans
//! them; `tune` measures which of the lanes' kernels suits a device.
//!
//! Invariants: the crate `ocl` is named in this folder alone. Finding out that there is no device takes no time, and nothing a
//! driver answers makes this panic. One thread owns a backend and what it loaded. What the device returns is checked before it is
//! passed on, and verified by the engine after that.
//!
//! `LOOKALIKE_OPENCL_LIBRARY`, in the environment, names the OpenCL loader to open instead of `libOpenCL.so.1`; if that file
//! cannot be opened, there is no OpenCL on this machine. It is read once, at the first use of OpenCL.

mod choose;
mod driver;
mod lanes;
mod program;
mod rows;
mod tune;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::config::OpenClSettings;
use crate::domain::Matrix;
use crate::telemetry::BackendName;

use super::{Backend, BackendError, Description, Loaded};

pub use choose::{DeviceKind, DeviceRecord, DeviceSurvey, NoDevice, NoDeviceReason};
pub use tune::{TuneError, TuneLine, TunePlan, TuneReport, TuneStep, TuneTable, TuneWork, Verdict, tune};

use driver::device::Device;
use driver::platform::{self, Found, FoundDevice};
use lanes::{Engine, LoadedRows, Scratch, Tuning};
use program::{Programs, Sources};
use rows::{Budget, Rows};

/// The OpenCL devices of this machine, and which one these settings take.
///
/// Returns at once where there is no loader or no driver, and never fails: what is missing is in the answer.
pub fn devices(settings: &OpenClSettings) -> DeviceSurvey {
    survey(settings).0
}

fn survey(settings: &OpenClSettings) -> (DeviceSurvey, Vec<FoundDevice>) {
    let Found { loader, platforms, devices, trouble } = platform::find();
    let records = devices.iter().map(|device| device.record.clone()).collect();
    (DeviceSurvey::new(loader, platforms, records, trouble, settings), devices)
}

/// Scans on one OpenCL device.
#[derive(Debug)]
pub struct OpenClBackend {
    description: Description,
    engine: Rc<RefCell<Engine>>,
    budget: Rc<Budget>,
    chunk_rows: usize,
}

impl OpenClBackend {
    /// Takes the device that `settings` choose. Kernels are read now and compiled when first needed.
    ///
    /// # Errors
    /// [`BackendError::NoDevice`] where no device may be taken, [`BackendError::Kernel`] where a file in
    /// `settings.kernel_dir` cannot be read, [`BackendError::Device`] where the driver refuses.
    pub fn open(settings: &OpenClSettings) -> Result<Self, BackendError> {
        let sources = Sources::load(settings.kernel_dir.as_deref())?;
        let (survey, mut found) = survey(settings);
        let chosen = survey.chosen.map_err(BackendError::NoDevice)?;
        let device = Device::open(found.swap_remove(chosen))?;
        let record = device.record();
        let description = Description {
            backend: BackendName::OpenCl,
            device: format!("{} ({})", record.name, record.platform),
            driver: record.driver.clone(),
        };
        let memory = record.global_memory_bytes;
        let budget = Budget::new(settings.memory_limit_bytes.unwrap_or(memory / 4 * 3));
        let scratch = Scratch::new(&device)?;
        let tuning = tuning(settings, device.record());
        tracing::info!(device = description.device, few = %tuning.few, many = %tuning.many, "OpenCL kernels chosen");
        let engine = Engine { device, tuning, programs: Programs::new(sources), scratch };
        Ok(Self {
            description,
            engine: Rc::new(RefCell::new(engine)),
            budget,
            chunk_rows: settings.chunk_rows.max(1),
        })
    }
}

/// What `lookalike tune` found fastest on a device, else what suits its kind.
fn tuning(settings: &OpenClSettings, record: &DeviceRecord) -> Tuning {
    tune::load(&settings.cache_dir, record).over(Tuning::of(record.kind))
}

/// The kernels that would scan on a device, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceKernels {
    /// For few probes.
    pub few: String,
    /// For more.
    pub many: String,
    /// Whether they were measured on it.
    pub tuned: bool,
}

/// The kernels that would scan on the device that `record` describes.
pub fn kernels(settings: &OpenClSettings, record: &DeviceRecord) -> DeviceKernels {
    let found = tune::load(&settings.cache_dir, record);
    let Tuning { few, many, .. } = found.over(Tuning::of(record.kind));
    DeviceKernels { few: few.to_string(), many: many.to_string(), tuned: found.few.or(found.many).is_some() }
}

impl Backend for OpenClBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        // Row numbers are 32 bits wide on the device, and the highest means "none".
        if rows.rows() >= u32::MAX as usize {
            return Err(BackendError::OutOfMemory {
                what: "rows, counted in 32 bits".to_owned(),
                needed: rows.rows() as u64,
                available: u64::from(u32::MAX) - 1,
            });
        }
        let rows = Rows::load(&self.engine.borrow().device, rows, self.chunk_rows, &self.budget)?;
        Ok(Box::new(LoadedRows { engine: Rc::clone(&self.engine), rows }))
    }
}

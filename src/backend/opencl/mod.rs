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

mod cache;
mod choose;
mod driver;
mod lanes;
mod loaded;
mod memory;
mod probe;
mod program;
mod rows;
mod selftest;
mod tiled;
mod tune;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::config::OpenClSettings;
use crate::domain::Matrix;
use crate::telemetry::BackendName;

use super::{Backend, BackendError, Description, Former, Loaded, Loading};

pub use choose::{
    DeviceKind, DeviceRecord, DeviceSurvey, Fault, FaultKind, NoDevice, NoDeviceReason, PlatformRecord,
};
pub use probe::{Question, answer, opens, tried_devices};
pub use tune::{TuneError, TuneLine, TunePlan, TuneReport, TuneStep, TuneTable, TuneWork, Verdict, tune};

use cache::ProgramCache;
use driver::device::Device;
use driver::platform;
use lanes::{Scratch, Tuning};
use loaded::{Engine, LoadedRows};
use program::{Programs, Sources};
use rows::{Budget, ComingRows, Placement, Rows};
use tiled::{Arithmetic, Memory};

/// The OpenCL devices of this machine, and which one these settings take. The drivers are asked in this process, and trusted.
///
/// Returns at once where there is no loader or no driver, and never fails: what is missing is in the answer.
pub fn devices(settings: &OpenClSettings) -> DeviceSurvey {
    DeviceSurvey::new(platform::find(&[], |_| ()), settings)
}

/// What is kept of compiled kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPrograms {
    /// The folder.
    pub folder: PathBuf,
    /// How many programs are in it.
    pub files: usize,
    /// Why none can be added.
    pub trouble: Option<String>,
}

/// What is kept of compiled kernels under these settings; `None` where nothing is. Makes the folder if need be.
pub fn kept_programs(settings: &OpenClSettings) -> Option<KeptPrograms> {
    let folder = cache::folder(&settings.cache_dir)?;
    let trouble = cache::check_writable(&folder).err().map(|error| error.to_string());
    Some(KeptPrograms { files: cache::count(&folder).unwrap_or(0), trouble, folder })
}

/// Tells the kernels that these settings choose from others.
///
/// # Errors
/// [`BackendError::Kernel`] where a file in `settings.kernel_dir` cannot be read.
pub fn program_hash(settings: &OpenClSettings) -> Result<String, BackendError> {
    Ok(Sources::load(settings.kernel_dir.as_deref())?.hash())
}

/// Scans on one OpenCL device.
#[derive(Debug)]
pub struct OpenClBackend {
    description: Description,
    engine: Rc<RefCell<Engine>>,
    budget: Rc<Budget>,
    share: Share,
    chunk_rows: usize,
    zero_copy: bool,
    warm_up_top_k: Option<usize>,
}

/// Which part of every gallery a device holds: of so many equal stretches of its rows one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which; less than `of`.
    pub place: usize,
    /// How many there are; at least 1.
    pub of: usize,
}

impl Share {
    /// All rows.
    pub const WHOLE: Self = Self { place: 0, of: 1 };

    /// The rows of this share, of so many.
    fn rows(self, count: usize) -> Range<usize> {
        let before = |place: usize| (count as u128 * place as u128 / self.of as u128) as usize;
        before(self.place)..before(self.place + 1)
    }
}

impl OpenClBackend {
    /// Takes the device that `settings` choose among [`devices`], the first where they choose several: tried by nobody.
    ///
    /// # Errors
    /// [`BackendError::NoDevice`] where no device may be taken, and those of [`Self::open_device`].
    pub fn open(settings: &OpenClSettings) -> Result<Self, BackendError> {
        let survey = devices(settings);
        let taken = survey.taken().map_err(BackendError::NoDevice)?;
        Self::open_device(settings, taken[0], Share::WHOLE)
    }

    /// Takes a device, for a share of every gallery. Kernels are read now and compiled when a gallery is loaded, or first needed.
    ///
    /// # Errors
    /// [`BackendError::Kernel`] where a file in `settings.kernel_dir` cannot be read, [`BackendError::Device`] where the driver
    /// refuses.
    pub fn open_device(
        settings: &OpenClSettings,
        record: &DeviceRecord,
        share: Share,
    ) -> Result<Self, BackendError> {
        let sources = Sources::load(settings.kernel_dir.as_deref())?;
        let device = Device::open(record.clone(), settings.profiling)?;
        let record = device.record();
        let description = Description {
            backend: BackendName::OpenCl,
            device: format!("{} ({})", record.name, record.platform),
            driver: record.driver.clone(),
        };
        let memory = record.global_memory_bytes;
        let budget = Budget::new(settings.memory_limit_bytes.unwrap_or(memory / 4 * 3));
        let tuning = tuning(settings, device.record());
        tracing::info!(device = description.device, few = %tuning.few, many = %tuning.many, "OpenCL kernels chosen");
        let engine = Engine {
            tuning,
            tiled: Arithmetic::of(&device, settings.scan),
            programs: Programs::new(sources, ProgramCache::new(&settings.cache_dir, device.record())),
            scratch: Scratch::new(&device)?,
            memory: Memory::new(&device)?,
            device,
        };
        Ok(Self {
            description,
            engine: Rc::new(RefCell::new(engine)),
            budget,
            share,
            chunk_rows: settings.chunk_rows,
            zero_copy: settings.zero_copy,
            warm_up_top_k: settings.warm_up_top_k,
        })
    }
}

impl OpenClBackend {
    /// How this device's share of so many rows lies on it.
    fn placement(&self, rows: usize) -> Placement {
        Placement { range: self.share.rows(rows), chunk_rows: self.chunk_rows, zero_copy: self.zero_copy }
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
        let mut coming = self.coming(rows, None)?;
        loop {
            if let Some(loaded) = coming.look() {
                return loaded;
            }
        }
    }

    fn begin(
        &mut self,
        rows: &Arc<Matrix>,
        former: Option<Former<'_>>,
    ) -> Result<Box<dyn Loading>, BackendError> {
        Ok(Box::new(self.coming(rows, former)?))
    }
}

impl OpenClBackend {
    fn coming(&mut self, rows: &Arc<Matrix>, former: Option<Former<'_>>) -> Result<Coming, BackendError> {
        // Row numbers are 32 bits wide on the device, and the highest means "none".
        if rows.rows() >= u32::MAX as usize {
            return Err(BackendError::OutOfMemory {
                what: "rows, counted in 32 bits".to_owned(),
                needed: rows.rows() as u64,
                available: u64::from(u32::MAX) - 1,
            });
        }
        let former = former.and_then(Former::of::<LoadedRows>).map(|(former, kept)| (former.rows(), &**kept));
        let how = (self.placement(rows.rows()), &self.budget);
        let rows = Rows::begin(&self.engine.borrow().device, rows, how, former)?;
        let (engine, warm_up_top_k) = (Rc::clone(&self.engine), self.warm_up_top_k);
        Ok(Coming { engine, rows: Some(rows), warm_up_top_k })
    }
}

/// Rows on their way to the device.
#[derive(Debug)]
struct Coming {
    engine: Rc<RefCell<Engine>>,
    /// `None` once they are there.
    rows: Option<ComingRows>,
    warm_up_top_k: Option<usize>,
}

impl Coming {
    /// Readies the rows, all of which are there, and builds the kernels that serving them needs, if the settings say so.
    fn ready(&self, rows: ComingRows) -> Result<LoadedRows, BackendError> {
        let loaded = LoadedRows::new(&self.engine, rows.arrived())?;
        if let Some(top_k) = self.warm_up_top_k {
            let started = Instant::now();
            let count = loaded.warm_up(top_k)?;
            tracing::info!(kernels = count, elapsed = ?started.elapsed(), "kernels built");
        }
        Ok(loaded)
    }
}

impl Loading for Coming {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        match self.rows.as_mut()?.step(&self.engine.borrow().device) {
            Ok(false) => return None,
            Ok(true) => {}
            Err(error) => return Some(Err(error)),
        }
        let rows = self.rows.take()?;
        let loaded = self.ready(rows);
        Some(loaded.map(|loaded| Box::new(loaded) as Box<dyn Loaded>))
    }
}

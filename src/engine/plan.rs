//! Which backend answers, and why.

use std::sync::Arc;

use crate::backend::cpu::CpuBackend;
use crate::backend::guard::Guarded;
use crate::backend::joined::Joined;
use crate::backend::opencl::{self, DeviceSurvey, FaultKind, NoDeviceReason, OpenClBackend, Share};
use crate::backend::reference::ReferenceBackend;
use crate::backend::{Backend, BackendError, Description};
use crate::config::{BackendKind, BackendSettings, Fallback, OpenClSettings};
use crate::telemetry::{ChoiceReason, FallbackReason, Label};

/// The backend in use, and why it is that one.
#[derive(Clone, Debug)]
pub struct BackendChoice {
    /// Backends that can answer, the one in use first.
    pub backends: Vec<Description>,
    /// What was found on the machine; `None` where nobody looked.
    pub survey: Option<DeviceSurvey>,
    /// Why, for a metric.
    pub reason: ChoiceReason,
    /// Why, as a sentence.
    pub sentence: String,
    /// Set where it is not the backend that was configured or preferred.
    pub fallback: Option<BackendFallback>,
}

/// Why a backend answers that was not configured or preferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFallback {
    /// For a metric.
    pub reason: FallbackReason,
    /// For a reader.
    pub sentence: String,
}

impl BackendChoice {
    /// The backend in use.
    pub fn active(&self) -> &Description {
        &self.backends[0]
    }
}

/// Opens a backend anew that failed: tries its device first, on the caller's thread.
pub(super) type Reopen = Arc<dyn Fn() -> Result<Joined, BackendError> + Send + Sync>;

/// An opened backend and the account of its choice.
pub(super) struct Plan {
    pub(super) primary: Box<dyn Backend>,
    /// `None` for a backend that cannot fail.
    pub(super) reopen: Option<Reopen>,
    /// Whether the CPU scans the batches for which it is faster.
    pub(super) measured: bool,
    pub(super) choice: BackendChoice,
}

/// Chooses and opens a backend; `cpu` is what the CPU would be.
pub(super) fn choose(settings: &BackendSettings, cpu: CpuBackend) -> Result<Plan, BackendError> {
    match settings.kind {
        BackendKind::Cpu => Ok(configured(Box::new(cpu))),
        BackendKind::Reference => Ok(configured(Box::new(ReferenceBackend::default()))),
        BackendKind::OpenCl => open_cl(settings, cpu, Wish::Configured),
        BackendKind::Auto => open_cl(settings, cpu, Wish::Preferred),
    }
}

/// How much OpenCL is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Configured,
    Preferred,
}

/// One backend and no other behind it.
pub(super) fn configured(primary: Box<dyn Backend>) -> Plan {
    let description = primary.description().clone();
    let sentence = format!("backend.kind is {}", description.backend.as_str());
    let choice = BackendChoice {
        backends: vec![description],
        survey: None,
        reason: ChoiceReason::Configured,
        sentence,
        fallback: None,
    };
    Plan { primary, reopen: None, measured: false, choice }
}

fn open_cl(settings: &BackendSettings, cpu: CpuBackend, wish: Wish) -> Result<Plan, BackendError> {
    let survey = opencl::tried_devices(&settings.opencl);
    let cpu_description = cpu.description().clone();
    let error = match open_surveyed(&settings.opencl, &survey) {
        Ok(primary) => {
            let description = primary.description().clone();
            let (reason, sentence) = match wish {
                Wish::Configured => (ChoiceReason::Configured, "backend.kind is opencl".to_owned()),
                Wish::Preferred => (
                    ChoiceReason::GpuFound,
                    format!(
                        "backend.kind is auto and {} is usable; each gallery says which batches it scans",
                        description.device
                    ),
                ),
            };
            let backends = vec![description, cpu_description];
            let choice = BackendChoice { backends, survey: Some(survey), reason, sentence, fallback: None };
            let opencl = settings.opencl.clone();
            let reopen: Reopen = Arc::new(move || open_surveyed(&opencl, &opencl::tried_devices(&opencl)));
            let measured = wish == Wish::Preferred;
            return Ok(Plan { primary: Box::new(primary), reopen: Some(reopen), measured, choice });
        }
        Err(error) => error,
    };
    if wish == Wish::Configured && settings.fallback == Fallback::Fail {
        return Err(error);
    }
    let reason = reason_of(&error);
    let told = sentence_of(&error);
    let sentence = match wish {
        Wish::Configured => format!("backend.kind is opencl, but {told}"),
        Wish::Preferred => format!("backend.kind is auto, but {told}"),
    };
    let choice = BackendChoice {
        backends: vec![cpu_description],
        survey: Some(survey),
        reason: ChoiceReason::Fallback(reason),
        sentence: sentence.clone(),
        fallback: Some(BackendFallback { reason, sentence }),
    };
    Ok(Plan { primary: Box::new(cpu), reopen: None, measured: false, choice })
}

/// The devices that a survey takes, each on a thread of its own.
fn open_surveyed(settings: &OpenClSettings, survey: &DeviceSurvey) -> Result<Joined, BackendError> {
    let taken = survey.taken().map_err(BackendError::NoDevice)?;
    let of = taken.len();
    let devices = taken.into_iter().enumerate().map(|(place, device)| {
        let (settings, device) = (settings.clone(), device.clone());
        Guarded::start(&device.name.clone(), settings.timeout, move || {
            OpenClBackend::open_device(&settings, &device, Share { place, of })
        })
    });
    Ok(Joined::new(devices.collect::<Result<_, _>>()?))
}

impl From<NoDeviceReason> for FallbackReason {
    fn from(reason: NoDeviceReason) -> Self {
        match reason {
            NoDeviceReason::NoLoader => Self::NoLoader,
            NoDeviceReason::NoPlatform => Self::NoPlatform,
            NoDeviceReason::NoGpu => Self::NoGpu,
            NoDeviceReason::NoMatch => Self::NoMatch,
            NoDeviceReason::Fault(FaultKind::Crashed) => Self::ProbeCrashed,
            NoDeviceReason::Fault(FaultKind::TimedOut) => Self::ProbeTimedOut,
            NoDeviceReason::Fault(FaultKind::Failed) => Self::ProbeFailed,
            NoDeviceReason::Fault(FaultKind::SelfTest) => Self::SelfTest,
        }
    }
}

/// A backend's error for those who ask: a compiler's log stays in ours.
pub(super) fn sentence_of(error: &BackendError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The label of a backend's error.
pub(super) fn reason_of(error: &BackendError) -> FallbackReason {
    match error {
        BackendError::NoDevice(absence) => absence.reason.into(),
        BackendError::Kernel { .. } => FallbackReason::KernelError,
        BackendError::Device { .. } => FallbackReason::DeviceError,
        BackendError::TimedOut { .. } => FallbackReason::DeviceTimedOut,
        BackendError::Ended { .. } => FallbackReason::DeviceEnded,
        BackendError::Wrong { .. } => FallbackReason::DeviceWrong,
        BackendError::OutOfMemory { .. } => FallbackReason::OutOfMemory,
    }
}

//! Which device is taken, and why no other: pure, over what was found.
//!
//! GPUs come first. A CPU device (PoCL, a simulator) computes on the cores that the CPU backend would use, only slower, so it is
//! taken only where the settings name it or allow it.

use serde::{Deserialize, Serialize};

use crate::config::{DeviceChoice, OpenClSettings};

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// The host's processor.
    Cpu,
    /// Another processor that its driver calls an accelerator.
    Accelerator,
    /// None of these.
    Other,
}

impl DeviceKind {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Accelerator => "accelerator",
            Self::Other => "other",
        }
    }
}

/// What a driver did when it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// It ended the process.
    Crashed,
    /// It did not answer in time.
    TimedOut,
    /// It could not be tried, or what came back was no answer.
    Failed,
    /// It reported an error, or computed wrongly.
    SelfTest,
}

/// Why a driver, a platform or a device is not used: it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What it did.
    pub kind: FaultKind,
    /// The same for people: no full stop.
    pub text: String,
}

/// An OpenCL platform: one driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Why its devices are not known.
    pub fault: Option<Fault>,
}

/// All that was found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listing {
    /// The loader's file name; `None` where there is none.
    pub(super) loader: Option<String>,
    /// The platforms, in the loader's order.
    pub(super) platforms: Vec<PlatformRecord>,
    /// All their devices.
    pub(super) devices: Vec<DeviceRecord>,
    /// What a driver answered instead of its platforms.
    pub(super) trouble: Option<String>,
    /// What it did instead of answering.
    pub(super) fault: Option<Fault>,
}

/// An OpenCL device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// The platform's place in the loader's list.
    pub platform_index: usize,
    /// The device's place in the platform's list.
    pub device_index: usize,
    /// The platform's name.
    pub platform: String,
    /// The platform's version.
    pub platform_version: String,
    /// The device's name.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Its driver's version.
    pub driver: String,
    /// Bytes of its memory.
    pub global_memory_bytes: u64,
    /// Most bytes of one allocation.
    pub max_allocation_bytes: u64,
    /// The names of its extensions.
    pub extensions: Vec<String>,
    /// What it did when it was tried, where that is why it is not used.
    pub fault: Option<Fault>,
    /// Whether the settings let it be taken.
    pub usable: bool,
    /// Why it is, or is not, taken.
    pub reason: String,
}

/// Why no device is taken: a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDeviceReason {
    /// No OpenCL loader on this machine.
    NoLoader,
    /// A loader, but no driver behind it.
    NoPlatform,
    /// Drivers, but no device that `auto` may take.
    NoGpu,
    /// No device that fits the settings' name or numbers.
    NoMatch,
    /// A driver was tried, and did this.
    Fault(FaultKind),
}

/// Why no device is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDevice {
    /// The kind of reason.
    pub reason: NoDeviceReason,
    /// The reason as a sentence without a full stop.
    pub text: String,
}

/// What OpenCL devices this machine has, and which one the settings take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSurvey {
    /// The loader's file name; `None` where there is none.
    pub loader: Option<String>,
    /// The platforms.
    pub platforms: Vec<PlatformRecord>,
    /// All their devices.
    pub devices: Vec<DeviceRecord>,
    /// The places in `devices` of those that are taken, at least one, or why none is.
    pub chosen: Result<Vec<usize>, NoDevice>,
}

impl DeviceSurvey {
    /// Chooses among what was found. Devices that cannot compute at all come with `usable: false` and a reason.
    pub(super) fn new(found: Listing, settings: &OpenClSettings) -> Self {
        let Listing { loader, platforms, devices, trouble, fault } = found;
        let nothing = NoDevice { reason: NoDeviceReason::NoLoader, text: String::new() };
        let mut survey = Self { loader, platforms, devices, chosen: Err(nothing) };
        for device in survey.devices.iter_mut().filter(|device| device.usable) {
            if let Some(reason) = objection(device, settings) {
                device.usable = false;
                device.reason = reason;
            }
        }
        let preferred = survey.preferred(settings);
        survey.chosen = match (preferred.is_empty(), fault) {
            (false, _) => {
                survey.give_reasons(&preferred);
                Ok(preferred)
            }
            (true, Some(fault)) => Err(fault.into()),
            (true, None) => Err(survey.why_none(trouble, settings)),
        };
        survey
    }

    /// The devices that are taken, at least one.
    pub fn taken(&self) -> Result<Vec<&DeviceRecord>, NoDevice> {
        match &self.chosen {
            Ok(chosen) => Ok(chosen.iter().map(|place| &self.devices[*place]).collect()),
            Err(none) => Err(none.clone()),
        }
    }

    /// The GPUs that are usable, else the other devices that are; of them the first alone, unless all are wanted.
    fn preferred(&self, settings: &OpenClSettings) -> Vec<usize> {
        let usable = |gpu: bool| {
            let usable = self.devices.iter().enumerate().filter(|(_, device)| device.usable);
            let wanted = usable.filter(move |(_, device)| (device.kind == DeviceKind::Gpu) == gpu);
            wanted.map(|(place, _)| place).collect::<Vec<_>>()
        };
        let mut preferred = usable(true);
        if preferred.is_empty() {
            preferred = usable(false);
        }
        if settings.device != DeviceChoice::All {
            preferred.truncate(1);
        }
        preferred
    }

    fn give_reasons(&mut self, chosen: &[usize]) {
        for (place, device) in self.devices.iter_mut().enumerate() {
            if chosen.contains(&place) {
                "taken".clone_into(&mut device.reason);
            } else if device.usable {
                "another that fits too is taken".clone_into(&mut device.reason);
            }
        }
    }

    fn why_none(&self, trouble: Option<String>, settings: &OpenClSettings) -> NoDevice {
        let (reason, text) = if self.loader.is_none() {
            (NoDeviceReason::NoLoader, "no OpenCL loader (libOpenCL.so.1) on this machine".to_owned())
        } else if self.platforms.is_empty() {
            let text = match trouble {
                Some(failure) => format!("an OpenCL loader but no platform: {failure}"),
                None => "an OpenCL loader but no platform (no ICD installed)".to_owned(),
            };
            (NoDeviceReason::NoPlatform, text)
        } else if let Some(fault) = self.decisive_fault(settings) {
            return fault.into();
        } else {
            match &settings.device {
                DeviceChoice::Auto | DeviceChoice::All => (NoDeviceReason::NoGpu, self.no_gpu(settings)),
                choice @ DeviceChoice::Named(name) => {
                    (NoDeviceReason::NoMatch, self.no_match(choice, &format!("named {name:?}")))
                }
                choice @ DeviceChoice::Numbered { platform, device } => {
                    (NoDeviceReason::NoMatch, self.no_match(choice, &format!("numbered {platform}:{device}")))
                }
            }
        };
        NoDevice { reason, text }
    }

    /// What was tried and failed, of all that the settings would have let be taken: had it worked, it would have been.
    fn decisive_fault(&self, settings: &OpenClSettings) -> Option<Fault> {
        let wanted = self.devices.iter().filter(|device| objection(device, settings).is_none());
        let of_devices = wanted.filter_map(|device| {
            let fault = device.fault.clone()?;
            Some(Fault { text: format!("{}: {}", device.name, fault.text), ..fault })
        });
        let of_platforms = self.platforms.iter().filter_map(|platform| platform.fault.clone());
        of_devices.chain(of_platforms).next()
    }

    fn no_gpu(&self, settings: &OpenClSettings) -> String {
        let count = self.devices.len();
        let counted = if count == 1 { "the one device".to_owned() } else { format!("{count} devices") };
        if let Some(gpu) = self.devices.iter().find(|device| device.kind == DeviceKind::Gpu) {
            return format!("no usable GPU among {counted}; {}: {}", gpu.name, gpu.reason);
        }
        if settings.allow_cpu_devices {
            return format!("no usable GPU or CPU device among {counted}");
        }
        format!(
            "no GPU among {counted}; CPU devices are taken only when named or with backend.opencl.allow_cpu_devices"
        )
    }

    fn no_match(&self, choice: &DeviceChoice, wanted: &str) -> String {
        if let Some(device) = self.devices.iter().find(|device| fits(device, choice)) {
            return format!("the device {wanted} is {}, but {}", device.name, device.reason);
        }
        let names: Vec<String> = self
            .devices
            .iter()
            .map(|device| {
                format!(
                    "{}:{} {} ({})",
                    device.platform_index, device.device_index, device.name, device.platform
                )
            })
            .collect();
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("no device {wanted}; found: {found}")
    }
}

impl From<Fault> for NoDevice {
    fn from(fault: Fault) -> Self {
        Self { reason: NoDeviceReason::Fault(fault.kind), text: fault.text }
    }
}

/// Why the settings do not let a device that could compute be taken.
fn objection(device: &DeviceRecord, settings: &OpenClSettings) -> Option<String> {
    let reason = match &settings.device {
        DeviceChoice::Auto | DeviceChoice::All => match device.kind {
            DeviceKind::Gpu => return None,
            DeviceKind::Cpu if settings.allow_cpu_devices => return None,
            DeviceKind::Cpu => "a CPU: taken only when named or with backend.opencl.allow_cpu_devices",
            DeviceKind::Accelerator | DeviceKind::Other => "neither GPU nor CPU: taken only when named",
        },
        DeviceChoice::Named(_) | DeviceChoice::Numbered { .. } if fits(device, &settings.device) => {
            return None;
        }
        DeviceChoice::Named(_) | DeviceChoice::Numbered { .. } => "the settings ask for another device",
    };
    Some(reason.to_owned())
}

fn fits(device: &DeviceRecord, choice: &DeviceChoice) -> bool {
    match choice {
        DeviceChoice::Auto | DeviceChoice::All => true,
        DeviceChoice::Named(part) => {
            let part = part.to_lowercase();
            device.name.to_lowercase().contains(&part) || device.platform.to_lowercase().contains(&part)
        }
        DeviceChoice::Numbered { platform, device: place } => {
            (device.platform_index, device.device_index) == (*platform, *place)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Sources};

    fn device(place: (usize, usize), name: &str, kind: DeviceKind) -> DeviceRecord {
        DeviceRecord {
            platform_index: place.0,
            device_index: place.1,
            platform: format!("platform {}", place.0),
            platform_version: "OpenCL 3.0".to_owned(),
            name: name.to_owned(),
            kind,
            driver: "1".to_owned(),
            global_memory_bytes: 1 << 30,
            max_allocation_bytes: 1 << 28,
            extensions: Vec::new(),
            fault: None,
            usable: true,
            reason: String::new(),
        }
    }

    fn settings(device: DeviceChoice, allow_cpu_devices: bool) -> OpenClSettings {
        let defaults = config::load(&Sources::default()).unwrap().backend.opencl;
        OpenClSettings { device, allow_cpu_devices, ..defaults }
    }

    fn survey(devices: Vec<DeviceRecord>, choice: DeviceChoice, allow_cpu_devices: bool) -> DeviceSurvey {
        let settings = settings(choice, allow_cpu_devices);
        DeviceSurvey::new(listing(devices), &settings)
    }

    fn listing(devices: Vec<DeviceRecord>) -> Listing {
        let platform = |name: &str| PlatformRecord {
            name: name.to_owned(),
            version: "OpenCL 3.0".to_owned(),
            fault: None,
        };
        let loader = Some("libOpenCL.so.1".to_owned());
        let platforms = vec![platform("platform 0"), platform("platform 1")];
        Listing { loader, platforms, devices, ..Listing::default() }
    }

    fn three() -> Vec<DeviceRecord> {
        vec![
            device((0, 0), "pthread-EPYC", DeviceKind::Cpu),
            device((1, 0), "Mali-G610 r0p0", DeviceKind::Gpu),
            device((1, 1), "DSP", DeviceKind::Accelerator),
        ]
    }

    #[test]
    fn auto_takes_a_gpu_before_a_cpu_and_says_why_of_each() {
        let found = survey(three(), DeviceChoice::Auto, true);
        assert_eq!(found.chosen, Ok(vec![1]));
        let reasons: Vec<&str> = found.devices.iter().map(|device| device.reason.as_str()).collect();
        let accelerator = "neither GPU nor CPU: taken only when named";
        assert_eq!(reasons, ["another that fits too is taken", "taken", accelerator]);
    }

    #[test]
    fn all_takes_every_gpu_or_else_every_cpu_that_is_allowed() {
        let mut devices = three();
        devices.push(device((2, 0), "H200", DeviceKind::Gpu));
        assert_eq!(survey(devices.clone(), DeviceChoice::All, true).chosen, Ok(vec![1, 3]));
        devices[1].usable = false;
        let found = survey(devices.clone(), DeviceChoice::All, true);
        assert_eq!(found.taken().unwrap(), [&found.devices[3]]);
        devices[3].usable = false;
        devices.push(device((3, 0), "pthread-Xeon", DeviceKind::Cpu));
        assert_eq!(survey(devices.clone(), DeviceChoice::All, true).chosen, Ok(vec![0, 4]));
        let none = survey(devices, DeviceChoice::All, false).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoGpu);
    }

    #[test]
    fn auto_takes_a_cpu_only_where_allowed() {
        let cpu = || vec![device((0, 0), "pthread-EPYC", DeviceKind::Cpu)];
        assert_eq!(survey(cpu(), DeviceChoice::Auto, true).chosen, Ok(vec![0]));
        let refused = survey(cpu(), DeviceChoice::Auto, false);
        let absence = refused.chosen.unwrap_err();
        assert_eq!(absence.reason, NoDeviceReason::NoGpu);
        assert_eq!(
            absence.text,
            "no GPU among the one device; CPU devices are taken only when named or with backend.opencl.allow_cpu_devices"
        );
    }

    #[test]
    fn a_name_in_any_case_or_numbers_allow_any_device() {
        let named = |part: &str| survey(three(), DeviceChoice::Named(part.to_owned()), false).chosen;
        assert_eq!(named("EPYC"), Ok(vec![0]));
        assert_eq!(named("mali-g610"), Ok(vec![1]));
        assert_eq!(named("PLATFORM 1"), Ok(vec![1]));
        let numbered =
            |platform, device| survey(three(), DeviceChoice::Numbered { platform, device }, false).chosen;
        assert_eq!(numbered(1, 1), Ok(vec![2]));
        assert!(numbered(2, 0).is_err());
    }

    #[test]
    fn what_matches_nothing_is_answered_with_what_there_is() {
        let none = survey(three(), DeviceChoice::Named("H200".to_owned()), false).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoMatch);
        assert_eq!(
            none.text,
            "no device named \"H200\"; found: 0:0 pthread-EPYC (platform 0), 1:0 Mali-G610 r0p0 (platform 1), \
             1:1 DSP (platform 1)"
        );
    }

    #[test]
    fn a_device_that_cannot_compute_is_not_taken_even_when_named() {
        let mut devices = three();
        devices[1].usable = false;
        "its driver has no compiler for kernels".clone_into(&mut devices[1].reason);
        let named =
            survey(devices.clone(), DeviceChoice::Named("Mali".to_owned()), false).chosen.unwrap_err();
        let text = "the device named \"Mali\" is Mali-G610 r0p0, but its driver has no compiler for kernels";
        assert_eq!((named.reason, named.text.as_str()), (NoDeviceReason::NoMatch, text));
        let auto = survey(devices, DeviceChoice::Auto, false).chosen.unwrap_err();
        let text = "no usable GPU among 3 devices; Mali-G610 r0p0: its driver has no compiler for kernels";
        assert_eq!((auto.reason, auto.text.as_str()), (NoDeviceReason::NoGpu, text));
    }

    #[test]
    fn no_loader_and_no_platform_are_told_apart() {
        let auto = settings(DeviceChoice::Auto, false);
        let none = DeviceSurvey::new(Listing::default(), &auto).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoLoader);
        assert_eq!(none.text, "no OpenCL loader (libOpenCL.so.1) on this machine");
        let loader = Some("libOpenCL.so.1".to_owned());
        let none = DeviceSurvey::new(Listing { loader, ..Listing::default() }, &auto).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoPlatform);
        assert_eq!(none.text, "an OpenCL loader but no platform (no ICD installed)");
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, text: "it did that".to_owned() }
    }

    #[test]
    fn what_a_driver_did_when_tried_is_why_no_device_is_taken() {
        let crashed = NoDeviceReason::Fault(FaultKind::Crashed);
        let mut devices = three();
        devices[1].usable = false;
        devices[1].fault = Some(fault(FaultKind::Crashed));
        let chosen =
            |devices: &[DeviceRecord], cpus| survey(devices.to_vec(), DeviceChoice::Auto, cpus).chosen;
        let told = chosen(&devices, false).unwrap_err();
        assert_eq!((told.reason, told.text.as_str()), (crashed, "Mali-G610 r0p0: it did that"));
        // Another that may be taken is.
        assert_eq!(chosen(&devices, true), Ok(vec![0]));
        // What would not have been taken anyway is not to blame.
        let elsewhere = survey(devices, DeviceChoice::Named("H200".to_owned()), false).chosen.unwrap_err();
        assert_eq!(elsewhere.reason, NoDeviceReason::NoMatch);

        let mut found = listing(three());
        found.platforms[1].fault = Some(fault(FaultKind::TimedOut));
        found.devices.truncate(1);
        let told = DeviceSurvey::new(found, &settings(DeviceChoice::Auto, false)).chosen.unwrap_err();
        assert_eq!(told.reason, NoDeviceReason::Fault(FaultKind::TimedOut));
        let found = Listing { fault: Some(fault(FaultKind::Failed)), ..Listing::default() };
        let told = DeviceSurvey::new(found, &settings(DeviceChoice::Auto, false)).chosen.unwrap_err();
        assert_eq!(
            (told.reason, told.text.as_str()),
            (NoDeviceReason::Fault(FaultKind::Failed), "it did that")
        );
    }
}

//! Which device is taken, and why no other: pure, over what was found.
//!
//! GPUs come first. A CPU device (PoCL, a simulator) computes on the cores that the CPU backend would use, only slower, so it is
//! taken only where the settings name it or allow it.

use crate::config::{DeviceChoice, OpenClSettings};

use super::driver::status::Failure;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An OpenCL device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// The platform's place in the loader's list.
    pub platform_index: usize,
    /// The device's place in the platform's list.
    pub device_index: usize,
    /// The platform's name.
    pub platform: String,
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
    /// The platforms' names.
    pub platforms: Vec<String>,
    /// All their devices.
    pub devices: Vec<DeviceRecord>,
    /// The place in `devices` of the one that is taken, or why none is.
    pub chosen: Result<usize, NoDevice>,
}

impl DeviceSurvey {
    /// Chooses among what was found. `devices` that cannot compute at all come with `usable: false` and a reason.
    pub(super) fn new(
        loader: Option<String>,
        platforms: Vec<String>,
        devices: Vec<DeviceRecord>,
        trouble: Option<Failure>,
        settings: &OpenClSettings,
    ) -> Self {
        let nothing = NoDevice { reason: NoDeviceReason::NoLoader, text: String::new() };
        let mut survey = Self { loader, platforms, devices, chosen: Err(nothing) };
        for device in survey.devices.iter_mut().filter(|device| device.usable) {
            if let Some(reason) = objection(device, settings) {
                device.usable = false;
                device.reason = reason;
            }
        }
        survey.chosen = survey.preferred().ok_or_else(|| survey.why_none(trouble, settings));
        if let Ok(chosen) = survey.chosen {
            survey.give_reasons(chosen);
        }
        survey
    }

    /// The first GPU that is usable, else the first device that is.
    fn preferred(&self) -> Option<usize> {
        let usable = || self.devices.iter().enumerate().filter(|(_, device)| device.usable);
        usable()
            .find(|(_, device)| device.kind == DeviceKind::Gpu)
            .or_else(|| usable().next())
            .map(|(place, _)| place)
    }

    fn give_reasons(&mut self, chosen: usize) {
        for (place, device) in self.devices.iter_mut().enumerate() {
            if place == chosen {
                "taken".clone_into(&mut device.reason);
            } else if device.usable {
                "another that fits too is taken".clone_into(&mut device.reason);
            }
        }
    }

    fn why_none(&self, trouble: Option<Failure>, settings: &OpenClSettings) -> NoDevice {
        let (reason, text) = if self.loader.is_none() {
            (NoDeviceReason::NoLoader, "no OpenCL loader (libOpenCL.so.1) on this machine".to_owned())
        } else if self.platforms.is_empty() {
            let text = match trouble {
                Some(failure) => format!("an OpenCL loader but no platform: {failure}"),
                None => "an OpenCL loader but no platform (no ICD installed)".to_owned(),
            };
            (NoDeviceReason::NoPlatform, text)
        } else {
            match &settings.device {
                DeviceChoice::Auto => (NoDeviceReason::NoGpu, self.no_gpu(settings)),
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

/// Why the settings do not let a device that could compute be taken.
fn objection(device: &DeviceRecord, settings: &OpenClSettings) -> Option<String> {
    let reason = match &settings.device {
        DeviceChoice::Auto => match device.kind {
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
        DeviceChoice::Auto => true,
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
    use crate::config::CacheDir;

    fn device(place: (usize, usize), name: &str, kind: DeviceKind) -> DeviceRecord {
        DeviceRecord {
            platform_index: place.0,
            device_index: place.1,
            platform: format!("platform {}", place.0),
            name: name.to_owned(),
            kind,
            driver: "1".to_owned(),
            global_memory_bytes: 1 << 30,
            max_allocation_bytes: 1 << 28,
            usable: true,
            reason: String::new(),
        }
    }

    fn settings(device: DeviceChoice, allow_cpu_devices: bool) -> OpenClSettings {
        OpenClSettings {
            device,
            allow_cpu_devices,
            chunk_rows: 50_000,
            memory_limit_bytes: None,
            kernel_dir: None,
            cache_dir: CacheDir::Off,
        }
    }

    fn survey(devices: Vec<DeviceRecord>, choice: DeviceChoice, allow_cpu_devices: bool) -> DeviceSurvey {
        let platforms = vec!["platform 0".to_owned(), "platform 1".to_owned()];
        let settings = settings(choice, allow_cpu_devices);
        DeviceSurvey::new(Some("libOpenCL.so.1".to_owned()), platforms, devices, None, &settings)
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
        assert_eq!(found.chosen, Ok(1));
        let reasons: Vec<&str> = found.devices.iter().map(|device| device.reason.as_str()).collect();
        let accelerator = "neither GPU nor CPU: taken only when named";
        assert_eq!(reasons, ["another that fits too is taken", "taken", accelerator]);
    }

    #[test]
    fn auto_takes_a_cpu_only_where_allowed() {
        let cpu = || vec![device((0, 0), "pthread-EPYC", DeviceKind::Cpu)];
        assert_eq!(survey(cpu(), DeviceChoice::Auto, true).chosen, Ok(0));
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
        assert_eq!(named("EPYC"), Ok(0));
        assert_eq!(named("mali-g610"), Ok(1));
        assert_eq!(named("PLATFORM 1"), Ok(1));
        let numbered =
            |platform, device| survey(three(), DeviceChoice::Numbered { platform, device }, false).chosen;
        assert_eq!(numbered(1, 1), Ok(2));
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
        let none = DeviceSurvey::new(None, Vec::new(), Vec::new(), None, &auto).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoLoader);
        assert_eq!(none.text, "no OpenCL loader (libOpenCL.so.1) on this machine");
        let loader = Some("libOpenCL.so.1".to_owned());
        let none = DeviceSurvey::new(loader, Vec::new(), Vec::new(), None, &auto).chosen.unwrap_err();
        assert_eq!(none.reason, NoDeviceReason::NoPlatform);
        assert_eq!(none.text, "an OpenCL loader but no platform (no ICD installed)");
    }
}

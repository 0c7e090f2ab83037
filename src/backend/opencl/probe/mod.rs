//! Drivers are tried before one is used: in a process of their own, which they may crash, hang or garble.
//!
//! One child process lists platforms and devices; where a platform ends it, another is started that leaves that platform alone, so
//! that one bad driver does not cost the others. For the device that would be taken one more child compiles every kind of kernel and
//! holds the answers against known ones ([`selftest`](super::selftest)); where it fails, the next device has its turn. A child
//! costs a start of this program (tens of milliseconds) beside what the driver takes.
//!
//! Where the settings name no program to be the child, devices are listed in this process and trusted.

mod answer;
mod child;

use std::collections::HashSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::{OpenClScan, OpenClSettings, Prober};

use super::cache;
use super::choose::{DeviceRecord, DeviceSurvey, Fault, FaultKind, Listing};
use super::driver::platform::{self, Step};

pub use answer::answer;
use child::{Child, Failed};

/// Most platforms that may end a child before the listing is given up, and most devices that are tried.
const MAX_FAULTS: usize = 8;

/// What a child is asked. It stands in its arguments as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Which platforms and devices there are.
    List {
        /// Platforms that must not be asked anything, by their places.
        leave: Vec<usize>,
    },
    /// Whether a device computes rightly.
    Test {
        /// The device, as it was listed.
        device: Box<DeviceRecord>,
        /// How it is to scan.
        scan: OpenClScan,
        /// The folder of the kernels, if they are not the built-in ones.
        kernel_dir: Option<PathBuf>,
        /// The folder where compiled kernels are kept, if they are.
        cache_dir: Option<PathBuf>,
    },
    /// Whether a driver's library can be opened.
    Open {
        /// Its name or path, as an ICD file has it.
        library: String,
    },
}

/// A line of a child's answer: steps first, the answer last.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Step(Step),
    Listed(Listing),
    /// Whether it passed, or what was wrong.
    Tested(Result<(), String>),
    /// Whether it opened, or why not.
    Opened(Result<(), String>),
}

/// The OpenCL devices of this machine, and which one these settings take: none that did not pass its test.
///
/// Never fails: what is missing or wrong is in the answer. Takes `settings.probe_timeout` for each driver that hangs.
pub fn tried_devices(settings: &OpenClSettings) -> DeviceSurvey {
    let Prober::Program(program) = &settings.prober else { return super::devices(settings) };
    let child = Child { program, limit: settings.probe_timeout };
    let mut found = list(&child);
    let mut passed = HashSet::new();
    for _ in 0..MAX_FAULTS {
        let survey = DeviceSurvey::new(found.clone(), settings);
        let Ok(chosen) = &survey.chosen else { return survey };
        let untried: Vec<usize> = chosen.iter().copied().filter(|place| !passed.contains(place)).collect();
        let mut failed = Vec::new();
        for (place, outcome) in untried.iter().copied().zip(test_all(&child, &survey, &untried, settings)) {
            match outcome {
                Ok(()) => _ = passed.insert(place),
                Err(fault) => failed.push((place, fault)),
            }
        }
        if failed.is_empty() {
            return survey;
        }
        for (place, fault) in failed {
            let device = &mut found.devices[place];
            tracing::warn!(device = device.name, reason = fault.text, "an OpenCL device failed its test");
            device.usable = false;
            device.reason.clone_from(&fault.text);
            device.fault = Some(fault);
        }
    }
    for device in found.devices.iter_mut().filter(|device| device.usable) {
        device.usable = false;
        device.reason = format!("not tried: {MAX_FAULTS} others failed");
    }
    DeviceSurvey::new(found, settings)
}

/// Whether a driver's library can be opened, as the loader does with what ICD files name; the `Err` says why not.
pub fn opens(settings: &OpenClSettings, library: &str) -> Result<(), String> {
    let Prober::Program(program) = &settings.prober else { return platform::open_library(library) };
    let child = Child { program, limit: settings.probe_timeout };
    match child.ask(&Question::Open { library: library.to_owned() }) {
        Ok(Line::Opened(opened)) => opened,
        Ok(Line::Step(_) | Line::Listed(_) | Line::Tested(_)) => Err(child::no_answer(None).fault.text),
        Err(failed) => Err(format!("its library {}", failed.fault.text)),
    }
}

/// Lists what there is, leaving alone what ends the child.
fn list(child: &Child<'_>) -> Listing {
    let mut bad: Vec<(usize, String, Fault)> = Vec::new();
    loop {
        let leave = bad.iter().map(|(platform, ..)| *platform).collect();
        let failed = match child.ask(&Question::List { leave }) {
            Ok(Line::Listed(mut found)) => {
                for (platform, name, fault) in bad {
                    if let Some(record) = found.platforms.get_mut(platform) {
                        (record.name, record.fault) = (name, Some(fault));
                    }
                }
                return found;
            }
            Ok(Line::Step(_) | Line::Tested(_) | Line::Opened(_)) => child::no_answer(None),
            Err(failed) => failed,
        };
        let Failed { fault, step } = failed;
        tracing::warn!(reason = fault.text, "an OpenCL driver failed while it was asked for its devices");
        match step {
            Some(Step::Devices { platform, name })
                if bad.len() < MAX_FAULTS && bad.iter().all(|(known, ..)| *known != platform) =>
            {
                bad.push((platform, name, fault));
            }
            Some(Step::Devices { .. } | Step::Platforms) | None => {
                // There is a loader, or nobody could have failed.
                let loader = Some("OpenCL".to_owned());
                return Listing { loader, fault: Some(fault), ..Listing::default() };
            }
        }
    }
}

/// Tests devices side by side, each in a process of its own: several that hang take no longer than one.
fn test_all(
    child: &Child<'_>,
    survey: &DeviceSurvey,
    places: &[usize],
    settings: &OpenClSettings,
) -> Vec<Result<(), Fault>> {
    std::thread::scope(|scope| {
        let begin = |place: &usize| {
            let device = &survey.devices[*place];
            scope.spawn(move || test(child, device, settings))
        };
        let tests: Vec<_> = places.iter().map(begin).collect();
        let outcome = |test: std::thread::ScopedJoinHandle<'_, _>| {
            test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        tests.into_iter().map(outcome).collect()
    })
}

fn test(child: &Child<'_>, device: &DeviceRecord, settings: &OpenClSettings) -> Result<(), Fault> {
    let question = Question::Test {
        device: Box::new(device.clone()),
        scan: settings.scan,
        kernel_dir: settings.kernel_dir.clone(),
        cache_dir: cache::folder(&settings.cache_dir),
    };
    match child.ask(&question) {
        Ok(Line::Tested(passed)) => {
            passed.map_err(|text| Fault { kind: FaultKind::SelfTest, text: format!("self-test: {text}") })
        }
        Ok(Line::Step(_) | Line::Listed(_) | Line::Opened(_)) => Err(child::no_answer(None).fault),
        Err(Failed { fault, .. }) => {
            Err(Fault { text: format!("{} during its self-test", fault.text), ..fault })
        }
    }
}

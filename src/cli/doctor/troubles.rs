//! What is wrong, and what to do about it. Pure.
//!
//! Wrong is what stands in the way of what is configured. `backend.kind: opencl` wants a device, and so does a shadow (`shadow.backend: opencl`): anything that leaves none is wrong.
//! `auto` takes what there is: no OpenCL at all is well, a driver or node that is there and does not work is wrong. `cpu` and
//! `reference` want no OpenCL: whatever is the matter with it is only noted.

use std::path::Path;

use serde::Serialize;

use super::facts::Facts;
use super::surroundings::{Icd, Node};

/// Something to be said.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Trouble {
    pub(super) weight: Weight,
    pub(super) what: String,
    /// What to do about it.
    pub(super) advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// It stands in the way of what is configured.
    Wrong,
    /// It may matter.
    Note,
}

/// What is at stake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matter {
    /// There is none of what OpenCL needs.
    Missing,
    /// There is, and it does not work.
    Broken,
}

const OTHERWISE: &str =
    "update the driver, name another device (backend.opencl.device), or do without (backend.kind: cpu)";

/// All troubles, what stands in the way first.
pub(super) fn of(facts: &Facts) -> Vec<Trouble> {
    let mut found = Found { facts, troubles: Vec::new() };
    found.loader_and_drivers();
    found.nodes();
    found.faults();
    found.choice();
    found.programs();
    found.troubles.sort_by_key(|trouble| trouble.weight == Weight::Note);
    found.troubles
}

struct Found<'a> {
    facts: &'a Facts,
    troubles: Vec<Trouble>,
}

impl Found<'_> {
    fn note(&mut self, matter: Matter, what: impl Into<String>, advice: impl Into<String>) {
        let wanted = [Some(self.facts.kind), self.facts.shadow];
        let needed = wanted.contains(&Some("opencl"));
        let weight = match matter {
            Matter::Broken if needed || wanted.contains(&Some("auto")) => Weight::Wrong,
            Matter::Missing if needed && !self.facts.taken => Weight::Wrong,
            Matter::Broken | Matter::Missing => Weight::Note,
        };
        self.troubles.push(Trouble { weight, what: what.into(), advice: advice.into() });
    }

    fn loader_and_drivers(&mut self) {
        let surroundings = &self.facts.surroundings;
        if self.facts.loader.is_none() {
            return match &surroundings.named_loader {
                Some(named) => self.note(
                    Matter::Broken,
                    format!("LOOKALIKE_OPENCL_LIBRARY names {named}, which cannot be opened"),
                    "name an OpenCL loader that is there, or unset the variable",
                ),
                None => self.note(
                    Matter::Missing,
                    "no OpenCL loader (libOpenCL.so.1)",
                    "install ocl-icd-libopencl1 (Debian, Ubuntu), ocl-icd (Fedora, Arch) or the board's libmali, and a driver; to do without, \
                     set backend.kind: cpu",
                ),
            };
        }
        for Icd { file, library, trouble } in &surroundings.icds {
            if let Some(trouble) = trouble {
                let what = if library.is_empty() { String::new() } else { format!(" (names {library})") };
                self.note(
                    Matter::Broken,
                    format!("the driver entry {}{what} is of no use: {trouble}", file.display()),
                    "install the driver that it belongs to again (for this processor architecture), or remove the file",
                );
            }
        }
        if self.facts.platforms.is_empty() && self.facts.fault.is_none() {
            let folder = surroundings.icd_folder.display();
            let (what, advice) = match (&surroundings.icd_folder_trouble, surroundings.icd_folder_from_environment) {
                (Some(trouble), true) => (
                    format!("an OpenCL loader but no driver: OCL_ICD_VENDORS names {folder}: {trouble}"),
                    "unset OCL_ICD_VENDORS, or name a folder with .icd files".to_owned(),
                ),
                (Some(_), false) | (None, _) => (
                    format!("an OpenCL loader but no driver: no usable .icd file in {folder}"),
                    "install the GPU's OpenCL driver (NVIDIA: part of its driver package; Intel: intel-opencl-icd; AMD: rocm-opencl-runtime or \
                     mesa-opencl-icd; Mali: the board's libmali), or pocl-opencl-icd to run on the CPU; in a container, it must be installed inside"
                        .to_owned(),
                ),
            };
            self.note(Matter::Missing, what, advice);
        }
    }

    fn nodes(&mut self) {
        let surroundings = &self.facts.surroundings;
        for Node { path, group, trouble } in &surroundings.nodes {
            if let Some(trouble) = trouble {
                let inside = if surroundings.container {
                    format!("; in a container, start it with --device {} --group-add {group}", path.display())
                } else {
                    String::new()
                };
                self.note(
                    Matter::Broken,
                    format!("the device node {} cannot be opened: {trouble}", path.display()),
                    format!("add the user to its group: usermod -aG {group} USER, then log in again{inside}"),
                );
            }
        }
        if surroundings.nodes.is_empty() && !surroundings.kernel_drivers.is_empty() {
            let seen: Vec<_> =
                surroundings.kernel_drivers.iter().map(|path| path.display().to_string()).collect();
            let what = format!("there is a GPU ({}), but no device node of it here", seen.join(", "));
            let advice = if surroundings.container {
                "start the container with the device: --device /dev/dri, --device /dev/mali0, or --gpus all for NVIDIA"
            } else {
                "load the GPU's kernel driver, or make its node (nvidia-modprobe makes NVIDIA's)"
            };
            self.note(Matter::Broken, what, advice);
        }
    }

    fn faults(&mut self) {
        let facts = self.facts;
        if let Some(fault) = &facts.fault {
            self.note(Matter::Broken, format!("OpenCL cannot be used: its driver {fault}"), OTHERWISE);
        }
        for platform in &facts.platforms {
            if let Some(fault) = &platform.fault {
                self.note(Matter::Broken, format!("the driver of {} {fault}", platform.name), OTHERWISE);
            }
        }
        for device in facts.devices.iter().filter(|device| device.self_test == Some(false)) {
            let empty = match &facts.programs {
                Some(programs) => format!(
                    "; first empty {}, if the driver may have choked on what is kept there",
                    folder(programs)
                ),
                None => String::new(),
            };
            self.note(
                Matter::Broken,
                format!("{} failed: {}", device.name, device.reason),
                format!("{OTHERWISE}{empty}"),
            );
        }
    }

    fn choice(&mut self) {
        let facts = self.facts;
        let only_not_allowed = !facts.taken && !facts.devices.is_empty();
        if only_not_allowed && facts.devices.iter().all(|device| device.self_test != Some(false)) {
            self.note(
                Matter::Missing,
                facts.conclusion.clone(),
                "without a GPU nothing: the CPU backend scans several times as fast as OpenCL does on a CPU. With one, install its driver. \
                 To try OpenCL out, allow what there is (backend.opencl.allow_cpu_devices: true, or backend.opencl.device with a \
                 name or numbers)",
            );
        }
    }

    fn programs(&mut self) {
        match &self.facts.programs {
            Some(programs) => {
                if let Some(trouble) = &programs.trouble {
                    self.note(
                        if self.facts.taken { Matter::Broken } else { Matter::Missing },
                        format!("compiled kernels cannot be kept in {}: {trouble}", programs.folder),
                        "name a folder that this user may write to (backend.opencl.cache_dir), or off; until then each start compiles",
                    );
                }
            }
            None if self.facts.taken => self.note(
                Matter::Missing,
                "compiled kernels are not kept",
                "name a folder (backend.opencl.cache_dir), so that a start does not wait for the compiler",
            ),
            None => (),
        }
    }
}

fn folder(programs: &super::facts::Programs) -> String {
    Path::new(&programs.folder).display().to_string()
}

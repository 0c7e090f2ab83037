//! What drivers say and what was measured.

use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use serde::Serialize;

use super::surroundings::Surroundings;
use crate::backend::RowSet;
use crate::backend::opencl::{self, DeviceRecord, DeviceSurvey, NoDeviceReason};
use crate::cli::bench::{limits, made};
use crate::config::{BackendKind, BackendSettings, Fallback, Instructions, Settings};
use crate::domain::{Embedding, Matrix};
use crate::engine::{Engine, ScanRequest};
use crate::telemetry::Label as _;

/// The made gallery that is scanned, and the probes of a large scan.
const ROWS: usize = 50_000;
const PROBES: usize = 64;
const TOP_K: usize = 5;

/// How often a scan is timed; the fastest counts.
const REPEAT: usize = 3;

/// Extensions that kernels of ours may use.
const EXTENSIONS: [&str; 7] = [
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_integer_dot_product",
    "cl_khr_subgroups",
    "cl_khr_int64_base_atomics",
    "cl_arm_integer_dot_product_int8",
    "cl_nv_device_attribute_query",
];

/// All that was found.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) version: &'static str,
    /// `backend.kind`.
    pub(super) kind: &'static str,
    /// `shadow.backend`, where there is a shadow.
    pub(super) shadow: Option<&'static str>,
    /// The loader's file name, if there is one.
    pub(super) loader: Option<String>,
    pub(super) surroundings: Surroundings,
    pub(super) platforms: Vec<Platform>,
    pub(super) devices: Vec<Device>,
    /// Which device is taken, or why none is.
    pub(super) conclusion: String,
    /// Whether one is.
    pub(super) taken: bool,
    /// A driver that could not even be asked.
    pub(super) fault: Option<String>,
    pub(super) programs: Option<Programs>,
    /// The instructions that the CPU scans with, and its threads.
    pub(super) cpu: String,
    pub(super) rates: Vec<Rate>,
    /// How fast this machine reads memory; `None` where it was not measured.
    pub(super) memory_gb_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Platform {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) fault: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Device {
    /// As `backend.opencl.device` takes it.
    pub(super) numbers: String,
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) driver: String,
    pub(super) memory_bytes: u64,
    pub(super) max_allocation_bytes: u64,
    /// Those of its extensions that matter here.
    pub(super) extensions: Vec<String>,
    pub(super) taken: bool,
    /// Why it is, or is not.
    pub(super) reason: String,
    /// Whether it compiled every kernel and computed rightly; `None` where it was not tried.
    pub(super) self_test: Option<bool>,
}

/// The cache of compiled kernels.
#[derive(Debug, Serialize)]
pub(super) struct Programs {
    pub(super) folder: String,
    pub(super) files: usize,
    pub(super) trouble: Option<String>,
}

/// How fast a backend scans.
#[derive(Debug, Serialize)]
pub(super) struct Rate {
    pub(super) backend: &'static str,
    pub(super) device: String,
    /// What scans: code path or driver.
    pub(super) variant: String,
    /// Millions of comparisons of a probe with a row a second, many probes at once.
    pub(super) million_vectors_per_s: f64,
    /// One probe alone: its time, in milliseconds.
    pub(super) one_probe_ms: f64,
}

impl Facts {
    /// Asks drivers, each in a process of its own.
    pub(super) fn gather(settings: &Settings, mut surroundings: Surroundings) -> Self {
        let opencl = &settings.backend.opencl;
        for icd in surroundings.icds.iter_mut().filter(|icd| icd.trouble.is_none()) {
            icd.trouble = opencl::opens(opencl, &icd.library).err();
        }
        let survey = opencl::tried_devices(opencl);
        let fault = match &survey.chosen {
            Err(none) if survey.platforms.is_empty() && is_fault(none.reason) => Some(none.text.clone()),
            Ok(_) | Err(_) => None,
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            kind: spelt(settings.backend.kind),
            shadow: settings.shadow.enabled.then(|| spelt(settings.shadow.backend)),
            platforms: platforms(&survey),
            devices: devices(&survey),
            conclusion: match survey.taken() {
                Ok(taken) => {
                    let names: Vec<&str> = taken.iter().map(|device| device.name.as_str()).collect();
                    format!("{} {} taken", names.join(", "), if taken.len() == 1 { "is" } else { "are" })
                }
                Err(none) => format!("no device is taken: {}", none.text),
            },
            taken: survey.chosen.is_ok(),
            loader: survey.loader,
            surroundings,
            fault,
            programs: opencl::kept_programs(opencl).map(|kept| Programs {
                folder: kept.folder.display().to_string(),
                files: kept.files,
                trouble: kept.trouble,
            }),
            cpu: format!(
                "{}, {} threads",
                settings
                    .backend
                    .cpu
                    .instructions
                    .map_or("instructions: the best there are", Instructions::as_str),
                settings.backend.cpu.threads
            ),
            rates: Vec::new(),
            memory_gb_per_s: None,
        }
    }

    /// Measures how fast the CPU and the device taken scan a made gallery.
    pub(super) fn measure(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.rates.push(rate(&settings.backend, BackendKind::Cpu)?);
        if let Some(cpu) = self.rates.first() {
            self.cpu = format!("{} ({}), {} threads", cpu.variant, cpu.device, settings.backend.cpu.threads);
        }
        if self.taken {
            match rate(&settings.backend, BackendKind::OpenCl) {
                Ok(rate) => self.rates.push(rate),
                // It passed its test, and fails now.
                Err(error) => {
                    self.fault = Some(format!("{error:#}"));
                    self.taken = false;
                }
            }
        }
        self.memory_gb_per_s = Some(limits::memory_gb_per_s(settings.backend.cpu.threads)?);
        Ok(())
    }
}

fn is_fault(reason: NoDeviceReason) -> bool {
    match reason {
        NoDeviceReason::Fault(_) => true,
        NoDeviceReason::NoLoader
        | NoDeviceReason::NoPlatform
        | NoDeviceReason::NoGpu
        | NoDeviceReason::NoMatch => false,
    }
}

/// As the configuration spells it.
fn spelt(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::Auto => "auto",
        BackendKind::Cpu => "cpu",
        BackendKind::OpenCl => "opencl",
        BackendKind::Reference => "reference",
    }
}

fn platforms(survey: &DeviceSurvey) -> Vec<Platform> {
    let platform = |record: &opencl::PlatformRecord| Platform {
        name: record.name.clone(),
        version: record.version.clone(),
        fault: record.fault.as_ref().map(|fault| fault.text.clone()),
    };
    survey.platforms.iter().map(platform).collect()
}

fn devices(survey: &DeviceSurvey) -> Vec<Device> {
    let device = |(place, record): (usize, &DeviceRecord)| {
        let taken = survey.chosen.as_ref().is_ok_and(|chosen| chosen.contains(&place));
        let known = |name: &&String| EXTENSIONS.contains(&name.as_str());
        Device {
            numbers: format!("{}:{}", record.platform_index, record.device_index),
            name: record.name.clone(),
            kind: record.kind.as_str(),
            driver: record.driver.clone(),
            memory_bytes: record.global_memory_bytes,
            max_allocation_bytes: record.max_allocation_bytes,
            extensions: record.extensions.iter().filter(known).cloned().collect(),
            taken,
            reason: record.reason.clone(),
            self_test: if taken { Some(true) } else { record.fault.as_ref().map(|_| false) },
        }
    };
    survey.devices.iter().enumerate().map(device).collect()
}

/// Times one backend alone.
fn rate(settings: &BackendSettings, kind: BackendKind) -> anyhow::Result<Rate> {
    // A measurement of another backend would be a lie.
    let settings = BackendSettings { kind, fallback: Fallback::Fail, ..settings.clone() };
    let engine = Engine::start(&settings, 1)?;
    let (snapshot, probes) = made::gallery(ROWS, PROBES);
    let snapshot = Arc::new(snapshot);
    engine.load(Arc::clone(&snapshot), None)?;
    let fastest_s = |count: usize| -> anyhow::Result<f64> {
        let rows = probes.iter().take(count).map(Embedding::as_slice);
        let request = ScanRequest {
            probes: Arc::new(Matrix::from_rows(snapshot.profile().dim, rows)),
            skips: vec![RowSet::default(); count],
            k: TOP_K,
            snapshot: Arc::clone(&snapshot),
        };
        // Kernels are built by the first.
        engine.scan_blocking(request.clone())?;
        let mut fastest = f64::INFINITY;
        for _ in 0..REPEAT {
            let started = Instant::now();
            engine.scan_blocking(request.clone())?;
            fastest = fastest.min(started.elapsed().as_secs_f64());
        }
        Ok(fastest)
    };
    let (one, many) = (fastest_s(1)?, fastest_s(PROBES)?);
    if !engine.is_up() {
        bail!("the backend failed while it was measured");
    }
    let description = engine.choice().active();
    Ok(Rate {
        backend: description.backend.as_str(),
        device: description.device.clone(),
        variant: description.driver.clone(),
        million_vectors_per_s: (ROWS * PROBES) as f64 / many / 1e6,
        one_probe_ms: one * 1e3,
    })
}

//! `lookalike devices`.

use clap::Args;
use serde_json::json;

use super::output::{Output, PlainFormat, table};
use super::settings::SettingsArgs;
use crate::backend::opencl::{self, DeviceKernels, DeviceRecord, DeviceSurvey, PlatformRecord};
use crate::config::OpenClSettings;

#[derive(Debug, Args)]
pub(super) struct DevicesArgs {
    /// How the list looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

pub(super) fn run(settings: &SettingsArgs, args: DevicesArgs, output: &mut Output) -> anyhow::Result<()> {
    let settings = settings.load([])?.backend.opencl;
    let survey = opencl::tried_devices(&settings);
    match args.format {
        PlainFormat::Json => {
            let devices: Vec<_> =
                survey.devices.iter().map(|device| device_json(device, &settings)).collect();
            let platforms: Vec<_> = survey.platforms.iter().map(platform_json).collect();
            output.json(&json!({
                "platforms": platforms,
                "devices": devices,
                "chosen": survey.chosen.as_deref().unwrap_or_default(),
                "conclusion": conclusion(&survey),
            }))
        }
        PlainFormat::Table => {
            print_table(&survey, output)?;
            for platform in &survey.platforms {
                if let Some(fault) = &platform.fault {
                    output.line(format_args!("{} is not used: {}", platform.name, fault.text))?;
                }
            }
            output.line(conclusion(&survey))?;
            for taken in survey.taken().unwrap_or_default() {
                let DeviceKernels { few, many, tuned } = opencl::kernels(&settings, taken);
                let how = if tuned { "measured there" } else { "by its kind; `lookalike tune` measures" };
                output.line(format!("kernels ({how}): few probes: {few}; more: {many}"))?;
            }
            Ok(())
        }
    }
}

/// Which devices are taken, or why none is.
fn conclusion(survey: &DeviceSurvey) -> String {
    match survey.taken() {
        Ok(taken) => {
            let name = |device: &&DeviceRecord| {
                format!("{}:{} {}", device.platform_index, device.device_index, device.name)
            };
            let names: Vec<String> = taken.iter().map(name).collect();
            format!("{} {} taken", names.join(", "), if taken.len() == 1 { "is" } else { "are" })
        }
        Err(absence) => format!("no device is taken: {}", absence.text),
    }
}

fn print_table(survey: &DeviceSurvey, output: &mut Output) -> std::io::Result<()> {
    if survey.devices.is_empty() {
        return Ok(());
    }
    let mut table = table(["device", "name", "kind", "platform", "driver", "memory MiB", "usable", "why"]);
    for device in &survey.devices {
        table.add_row([
            format!("{}:{}", device.platform_index, device.device_index),
            device.name.clone(),
            device.kind.as_str().to_owned(),
            device.platform.clone(),
            device.driver.clone(),
            (device.global_memory_bytes >> 20).to_string(),
            if device.usable { "yes" } else { "no" }.to_owned(),
            device.reason.clone(),
        ]);
    }
    output.line(table)
}

fn platform_json(platform: &PlatformRecord) -> serde_json::Value {
    json!({
        "name": platform.name,
        "version": platform.version,
        "fault": platform.fault.as_ref().map(|fault| &fault.text),
    })
}

fn device_json(device: &DeviceRecord, settings: &OpenClSettings) -> serde_json::Value {
    let DeviceKernels { few, many, tuned } = opencl::kernels(settings, device);
    json!({
        "platform_index": device.platform_index,
        "device_index": device.device_index,
        "platform": device.platform,
        "name": device.name,
        "kind": device.kind.as_str(),
        "driver": device.driver,
        "memory_bytes": device.global_memory_bytes,
        "usable": device.usable,
        "reason": device.reason,
        "kernels": { "few": few, "many": many, "tuned": tuned },
    })
}

//! The page as people read it.

use std::io;

use super::Page;
use super::facts::{Device, Facts};
use super::troubles::Weight;
use crate::cli::output::{Output, table};

pub(super) fn show(page: &Page, output: &mut Output) -> io::Result<()> {
    let mut lines = table(["what", "found"]);
    lines.add_rows(rows(&page.facts));
    output.line(lines)?;
    for trouble in &page.troubles {
        let mark = match trouble.weight {
            Weight::Wrong => "wrong",
            Weight::Note => "note",
        };
        output.line(format_args!("{mark}: {}\n    {}", trouble.what, trouble.advice))?;
    }
    let shadow = page.facts.shadow.map_or_else(String::new, |kind| format!(" and shadow.backend: {kind}"));
    let well = format!("nothing stands in the way of backend.kind: {}{shadow}", page.facts.kind);
    output.line(if page.well { well } else { "see what is wrong above".to_owned() })
}

fn rows(facts: &Facts) -> Vec<[String; 2]> {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, text: String| rows.push([name.to_owned(), text]);
    let surroundings = &facts.surroundings;
    let or_ok = |trouble: &Option<String>| trouble.clone().unwrap_or_else(|| "ok".to_owned());
    row("lookalike", format!("{}, backend.kind {}", facts.version, facts.kind));
    row("loader", facts.loader.clone().unwrap_or_else(|| "none".to_owned()));
    let from = if surroundings.icd_folder_from_environment { " (OCL_ICD_VENDORS)" } else { "" };
    row("driver entries", format!("in {}{from}", surroundings.icd_folder.display()));
    for icd in &surroundings.icds {
        row("", format!("{} {}: {}", icd.file.display(), icd.library, or_ok(&icd.trouble)));
    }
    for node in &surroundings.nodes {
        row(
            "device node",
            format!("{} (group {}): {}", node.path.display(), node.group, or_ok(&node.trouble)),
        );
    }
    row("container", if surroundings.container { "yes" } else { "no" }.to_owned());
    for platform in &facts.platforms {
        row(
            "platform",
            format!("{}, {}", platform.name, platform.fault.as_ref().unwrap_or(&platform.version)),
        );
    }
    for device in &facts.devices {
        row(&format!("device {}", device.numbers), described(device));
    }
    row("choice", facts.conclusion.clone());
    row(
        "compiled kernels",
        match &facts.programs {
            Some(programs) => {
                format!(
                    "{} files in {}: {}",
                    programs.files,
                    programs.folder,
                    programs.trouble.as_deref().unwrap_or("writable")
                )
            }
            None => "not kept".to_owned(),
        },
    );
    row("cpu", facts.cpu.clone());
    for rate in &facts.rates {
        row(
            &format!("{} scans", rate.backend),
            format!(
                "{:.1} million vectors/s, one probe {:.2} ms (50000 x 128; {}, {})",
                rate.million_vectors_per_s, rate.one_probe_ms, rate.device, rate.variant
            ),
        );
    }
    if let Some(speed) = facts.memory_gb_per_s {
        row("memory", format!("{speed:.1} GB/s read by all threads"));
    }
    rows
}

fn described(device: &Device) -> String {
    let test = match device.self_test {
        Some(true) => "compiled every kernel and passed its self-test",
        Some(false) => "failed",
        None => "not tried",
    };
    let extensions =
        if device.extensions.is_empty() { "none".to_owned() } else { device.extensions.join(" ") };
    format!(
        "{} ({}), driver {}\n{} MiB, {} MiB at once; of use: {extensions}\n{test}; {}",
        device.name,
        device.kind,
        device.driver,
        device.memory_bytes >> 20,
        device.max_allocation_bytes >> 20,
        device.reason
    )
}

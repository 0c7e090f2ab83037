//! `lookalike tune`: which kernel of the family suits the OpenCL device, measured there and kept for it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use indicatif::{ProgressBar, ProgressStyle};

use super::FoundWrong;
use super::bench::made::{Made, made};
use super::output::{Output, PlainFormat, table};
use super::settings::SettingsArgs;
use crate::backend::opencl::{self, TuneLine, TunePlan, TuneReport, TuneTable, Verdict};
use crate::domain::{Embedding, MAX_DIM, Matrix};
use crate::telemetry;

/// Rows of one identity, which are near each other.
const ROWS_PER_IDENTITY: usize = 5;

/// Rows, seconds, and times that a variant is timed, where nobody says; and with --quick.
const ROWS: usize = 350_000;
const QUICK_ROWS: usize = 50_000;
const SECONDS: u64 = 600;
const QUICK_SECONDS: u64 = 45;
const REPEATS: usize = 5;
const QUICK_REPEATS: usize = 2;

#[derive(Debug, Args)]
pub(super) struct TuneArgs {
    /// Most rows to make and to scan, fewer where time would not do: 350000 unless said, with --quick 50000.
    #[arg(long, value_name = "N", value_parser = count(100_000_000))]
    rows: Option<usize>,
    /// How many probes to make. Up to 4 tune what scans so few, more what scans more.
    #[arg(long, value_name = "Q", default_value_t = 256, value_parser = count(256))]
    probes_count: usize,
    /// Components of a vector.
    #[arg(long, value_name = "D", default_value_t = 128, value_parser = count(MAX_DIM))]
    dim: usize,
    /// How many neighbors a probe wants.
    #[arg(long, value_name = "K", default_value_t = 32, value_parser = count(256))]
    top_k: usize,
    /// Under a minute, for a first impression: 45 seconds, two times each.
    #[arg(long)]
    quick: bool,
    /// How many seconds it may take: 600 unless said.
    #[arg(long, value_name = "S", value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    seconds: Option<u64>,
    /// How often each variant is timed: 5 times unless said.
    #[arg(long, value_name = "R", value_parser = count(1000))]
    repeat: Option<usize>,
    /// How the result looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

/// Takes a number from 1 to `most`.
fn count(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

pub(super) fn run(settings: &SettingsArgs, args: TuneArgs, output: &mut Output) -> anyhow::Result<()> {
    let settings = settings.load([])?;
    telemetry::init(&settings.log)?;
    let (rows, seconds, repeats) =
        if args.quick { (QUICK_ROWS, QUICK_SECONDS, QUICK_REPEATS) } else { (ROWS, SECONDS, REPEATS) };
    let (rows, probes) = made(&Made {
        rows: args.rows.unwrap_or(rows),
        rows_per_identity: ROWS_PER_IDENTITY,
        dim: args.dim,
        probes: args.probes_count,
        seed: 1,
    });
    let matrix = |vectors: &[Embedding]| Matrix::from_rows(args.dim, vectors.iter().map(Embedding::as_slice));
    let plan = TunePlan {
        rows: Arc::new(matrix(&rows)),
        probes: matrix(&probes),
        top_k: args.top_k,
        repeats: args.repeat.unwrap_or(repeats),
        budget: Duration::from_secs(args.seconds.unwrap_or(seconds)),
    };
    drop(rows);
    let bar = ProgressBar::new(1).with_style(
        ProgressStyle::with_template("{msg:40} {wide_bar} {pos}/{len} {elapsed}").context("progress bar")?,
    );
    let report = opencl::tune(&settings.backend.opencl, &plan, &mut |done, of, what| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    })?;
    bar.finish_and_clear();
    match args.format {
        PlainFormat::Json => output.json(&report)?,
        PlainFormat::Table => print(&report, output)?,
    }
    match wrong(&report) {
        0 => Ok(()),
        wrong => Err(FoundWrong(format!("{wrong} variants answered wrongly")).into()),
    }
}

/// Variants of the experiments that answered wrongly.
fn wrong(report: &TuneReport) -> usize {
    let lines = report.experiments.iter().flat_map(|table| &table.lines);
    lines.filter(|line| line.verdict == Verdict::Wrong).count()
}

fn print(report: &TuneReport, output: &mut Output) -> anyhow::Result<()> {
    let TuneReport { device, platform, driver, kind, work, list, repeats, .. } = report;
    output.line(format!("{device} ({platform}, {kind}), driver {driver}"))?;
    let fewer = if work.rows < report.rows_asked {
        format!(" of {}, to keep to the time", report.rows_asked)
    } else {
        String::new()
    };
    output.line(format!(
        "{} rows{fewer} x {} probes, dim {}, lists of {list}, medians of {repeats}; around {}",
        work.rows, work.probes, work.dim, report.default.variant,
    ))?;
    for experiment in &report.experiments {
        output.line(as_table(experiment))?;
    }
    if !report.search.is_empty() {
        let mut steps = table(["from the default", "M vectors/s", "variant"]);
        for step in &report.search {
            steps.add_row([step.experiment, &figure(step.line.mvectors_per_s), &step.line.variant]);
        }
        output.line(steps)?;
    }
    match &report.winner {
        Some(winner) => output.line(format!(
            "best: {}: {} M vectors/s, {:.2} x the default",
            winner.variant,
            figure(winner.mvectors_per_s),
            report.times_default,
        ))?,
        None => output.line("no variant could be measured and found right")?,
    }
    if let Some(variant) = &report.within_noise {
        output.line(format!("the default stays: {variant} was faster by less than rounds differ"))?;
    }
    if let Some(path) = &report.stored {
        output.line(format!("kept in {}; it serves from the next start", path.display()))?;
    }
    Ok(())
}

fn as_table(experiment: &TuneTable) -> comfy_table::Table {
    let mut lines = table([experiment.experiment, "M vectors/s", "GOP/s", "scan ms", "merge ms", ""]);
    for line in &experiment.lines {
        lines.add_row([
            line.label.clone(),
            figure(line.mvectors_per_s),
            figure(line.gops),
            figure(line.scan_ms),
            figure(line.merge_ms),
            remark(line),
        ]);
    }
    lines
}

fn remark(line: &TuneLine) -> String {
    let fault = || line.fault.as_deref().and_then(|fault| fault.lines().next()).unwrap_or_default();
    match line.verdict {
        Verdict::Right => if line.best { "best" } else { "" }.to_owned(),
        Verdict::Wrong => format!("WRONG: {}", fault()),
        Verdict::Failed => format!("failed: {}", fault()),
        Verdict::NotMeasured => "not measured: out of time".to_owned(),
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

//! `lookalike bench`: how long one whole exact batch search takes on this machine, how near that is to what the machine can do at all,
//! and how many callers a server on it answers.
//!
//! `made` makes or reads the vectors, `work` asks and times, `limits` measures the machine, `callers` serves and calls, `report`
//! writes down, `compare` several backends side by side. Invariant: nothing else is measured than what was asked for; where that cannot be had, nothing is.

mod callers;
mod compare;
pub(super) mod limits;
pub(super) mod made;
mod report;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::output::{Output, PlainFormat};
use super::settings::SettingsArgs;
use super::{FoundWrong, Usage};
use crate::config::{ConfigError, Fallback, OwnSetting, Settings};
use crate::domain::MAX_DIM;
use crate::engine::Engine;
use crate::recognize::Recognizer;
use crate::telemetry;
use compare::Comparison;
use made::Vectors;
use report::Report;
use work::Work;

/// How many neighbors a probe gets where nobody says.
const TOP_K: usize = 32;

/// Candidate identities of a recognition where nobody says: the first, and the one that it must be ahead of.
const MAX_CANDIDATES: usize = 2;

/// How a server for callers is set: nothing else may reach it, and its log says no more than what is wrong.
const SERVED: [&str; 3] = ["server.listen=127.0.0.1:0", "metrics.listen=off", "log.level=warn"];

/// Takes a number from 1 to `most`.
fn count(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

/// What is asked of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Ask {
    /// The nearest rows of every probe.
    Search,
    /// Who every probe is: the nearest identities, and an exact margin.
    Recognize,
}

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// Rows to search (.npy); or make some with --rows.
    #[arg(long, value_name = "FILE")]
    gallery: Option<PathBuf>,
    /// Probes to search for (.npy); or make some with --probes-count.
    #[arg(long, value_name = "FILE")]
    probes: Option<PathBuf>,
    /// How many rows to make: 350000 unless said.
    #[arg(long, value_name = "N", value_parser = count(100_000_000))]
    rows: Option<usize>,
    /// Components of made vectors: 128 unless said.
    #[arg(long, value_name = "D", value_parser = count(MAX_DIM))]
    dim: Option<usize>,
    /// How many probes to make: 256 unless said.
    #[arg(long, value_name = "Q", value_parser = count(1_000_000))]
    probes_count: Option<usize>,
    /// So many consecutive rows are of one identity; made ones are near each other.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count(100_000_000))]
    rows_per_identity: usize,
    /// What made vectors are made from; the same seed gives the same vectors.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// What is asked of the engine: neighbors, or who it is.
    #[arg(long, value_enum, default_value = "search", conflicts_with = "callers")]
    ask: Ask,
    /// How many neighbors a probe gets: 32 unless said. With --ask search.
    #[arg(long, value_name = "K", value_parser = count(100_000_000), conflicts_with = "callers")]
    top_k: Option<usize>,
    /// How many candidate identities a recognition lists: 2 unless said. With --ask recognize or --callers.
    #[arg(long, value_name = "C", value_parser = count(1_000))]
    max_candidates: Option<usize>,
    /// Which backend scans (backend.kind); auto takes what would serve. Several, comma-separated, are compared: a position that
    /// differs from the first's ends with 3.
    #[arg(long, value_name = "cpu|opencl|reference|auto", default_value = "auto", value_delimiter = ',')]
    backend: Vec<String>,
    /// Threads that scan (backend.cpu.threads); 0 for one a core.
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// How often the search is timed, after a warm-up; with --callers, how many rounds of each kind.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = count(10_000))]
    repeat: usize,
    /// Measure what the machine's memory and arithmetic can do, and how near the search comes.
    #[arg(long, conflicts_with = "callers")]
    limits: bool,
    /// Compare the answers for so many of the probes, to the bit, with the plain f64 backend's; a difference ends with 3.
    #[arg(long, value_name = "N", value_parser = count(1_000_000), conflicts_with = "callers")]
    check: Option<usize>,
    /// Serve the gallery from this process and send Recognize with one probe each: one caller alone, then so many at once.
    #[arg(long, value_name = "N", value_parser = count(callers::MOST))]
    callers: Option<usize>,
    /// How long a round of --callers takes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=600_000), requires = "callers")]
    round_ms: u64,
    /// How the result looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
    /// Write the answer's indices here: .npy, int64[probes, k]. With --ask search.
    #[arg(long, value_name = "FILE", conflicts_with = "callers")]
    write_indices: Option<PathBuf>,
    /// Write the answer's scores here: .npy, float32[probes, k]. With --ask search.
    #[arg(long, value_name = "FILE", conflicts_with = "callers")]
    write_scores: Option<PathBuf>,
}

impl BenchArgs {
    /// Refuses what would have no effect.
    fn check(&self) -> Result<(), Usage> {
        let several = self.backend.len() > 1;
        if several && (self.callers.is_some() || self.limits || self.check.is_some()) {
            let text =
                "several backends are compared with each other: not with --callers, --limits or --check";
            return Err(Usage(text.to_owned()));
        }
        if several && (self.write_indices.is_some() || self.write_scores.is_some()) {
            return Err(Usage("--write-indices and --write-scores go with one backend".to_owned()));
        }
        let searches = self.ask == Ask::Search && self.callers.is_none();
        if searches && self.max_candidates.is_some() {
            return Err(Usage("--max-candidates goes with --ask recognize or --callers".to_owned()));
        }
        if !searches && (self.top_k.is_some() || self.write_indices.is_some() || self.write_scores.is_some())
        {
            return Err(Usage("--top-k, --write-indices and --write-scores go with --ask search".to_owned()));
        }
        Ok(())
    }

    fn max_candidates(&self) -> usize {
        self.max_candidates.unwrap_or(MAX_CANDIDATES)
    }
}

pub(super) fn run(settings: &SettingsArgs, args: BenchArgs, output: &mut Output) -> anyhow::Result<()> {
    args.check()?;
    let of_backend = |kind: &String| {
        let own = std::iter::once(("flag --backend", format!("backend.kind={kind}")))
            .chain(args.threads.map(|threads| ("flag --threads", format!("backend.cpu.threads={threads}"))))
            .chain(args.callers.iter().flat_map(|_| SERVED.map(|set| ("flag --callers", set.to_owned()))));
        let mut settings = settings.load(own.map(|(origin, setting)| OwnSetting { origin, setting }))?;
        // A measurement of another backend than the one asked for would be a lie.
        settings.backend.fallback = Fallback::Fail;
        Ok(settings)
    };
    let mut of_backends = args.backend.iter().map(of_backend).collect::<Result<Vec<_>, ConfigError>>()?;
    let settings = of_backends.remove(0);
    telemetry::init(&settings.log)?;
    let vectors = Vectors::of(&args)?;
    if !of_backends.is_empty() {
        of_backends.insert(0, settings);
        // A comparison tells phases apart.
        for settings in &mut of_backends {
            settings.backend.opencl.profiling = true;
        }
        let comparison = compare(&args, &of_backends, vectors)?;
        match args.format {
            PlainFormat::Json => output.json(&comparison)?,
            PlainFormat::Table => output.line(comparison.as_table())?,
        }
        return found_wrong(comparison.differing(), "positions differ between the backends");
    }
    if let Some(callers) = args.callers {
        let plan = callers::Plan {
            callers,
            rounds: args.repeat,
            round: std::time::Duration::from_millis(args.round_ms),
            max_candidates: args.max_candidates(),
        };
        let report = callers::measure(settings, vectors, &plan)?;
        match args.format {
            PlainFormat::Json => output.json(&report)?,
            PlainFormat::Table => output.line(report.as_table())?,
        }
        return found_wrong(report.differing(), "answers depended on who else asked");
    }
    let report = search(&args, &settings, vectors)?;
    match args.format {
        PlainFormat::Json => output.json(&report)?,
        PlainFormat::Table => output.line(report.as_table())?,
    }
    let differing = report.checked.map_or(0, |checked| checked.positions - checked.equal);
    found_wrong(differing, "positions differ from the plain f64 backend's")
}

/// Times one question to several backends, one after the other.
fn compare(args: &BenchArgs, settings: &[Settings], vectors: Vectors) -> anyhow::Result<Comparison> {
    let (snapshot, probes) = vectors.into_snapshot();
    let work = Work::of(args, Arc::new(snapshot), &probes);
    let measured = settings.iter().map(|settings| {
        // The question brings its gallery along.
        let recognizer =
            Recognizer::load(Engine::start(&settings.backend, 1)?, Vec::new(), settings.recognition)?;
        let measured = work.measure(&recognizer, args.repeat)?;
        Ok((Report::of(&recognizer, &work, &measured, settings.backend.cpu.threads), measured.answer))
    });
    Ok(Comparison::of(measured.collect::<anyhow::Result<_>>()?))
}

fn found_wrong(count: usize, what: &str) -> anyhow::Result<()> {
    if count == 0 { Ok(()) } else { Err(FoundWrong(format!("{count} {what}")).into()) }
}

/// Times one question to the engine, asked again and again.
fn search(args: &BenchArgs, settings: &Settings, vectors: Vectors) -> anyhow::Result<Report> {
    let (snapshot, probes) = vectors.into_snapshot();
    let engine = Engine::start(&settings.backend, 1)?;
    let recognizer = Recognizer::load(engine, vec![snapshot], settings.recognition)?;
    let Some(snapshot) = recognizer.galleries().next() else { bail!("no gallery") };
    let resident = report::resident_bytes();
    let work = Work::of(args, snapshot, &probes);
    let measured = work.measure(&recognizer, args.repeat)?;
    work.write(args, &measured.answer)?;
    let checked = args.check.map(|probes| work.check(&measured.answer, settings, probes)).transpose()?;
    let mut report = Report::of(&recognizer, &work, &measured, settings.backend.cpu.threads);
    report.memory.resident_bytes = resident;
    report.checked = checked;
    if args.limits {
        report.limits = Some(limits::measure(report.threads)?.of(report.size(), report.median_ms));
    }
    Ok(report)
}

//! `lookalike bench`: how long one whole exact batch search takes on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;

use super::Usage;
use super::output::{Output, PlainFormat, table};
use super::settings::SettingsArgs;
use crate::backend::RowSet;
use crate::config::Fallback;
use crate::domain::{Embedding, MAX_DIM, Matrix, NormPolicy, Origin, Prototype, PrototypeKey};
use crate::engine::{Engine, ScanAnswer, ScanRequest};
use crate::gallery::formats;
use crate::gallery::{GalleryProfile, Snapshot};
use crate::telemetry::{self, Label};

/// Made rows come in clusters of this many, as the prototypes of a person do.
const ROWS_A_CLUSTER: usize = 5;

/// Most bytes of made vectors.
const MAX_MADE_BYTES: usize = 64 << 30;

/// What is made where nobody says.
const ROWS: usize = 350_000;
const DIM: usize = 128;
const PROBES: usize = 256;

/// Takes a number from 1 to `most`.
fn count(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
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
    /// What made vectors are made from; the same seed gives the same vectors.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many neighbors a probe gets.
    #[arg(long, value_name = "K", default_value_t = 32, value_parser = count(100_000_000))]
    top_k: usize,
    /// Which backend scans (backend.kind); auto takes what would serve.
    #[arg(long, value_name = "cpu|opencl|reference|auto", default_value = "auto")]
    backend: String,
    /// Threads that scan (backend.cpu.threads); 0 for one a core.
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// How often the search is timed, after one warm-up.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = count(10_000))]
    repeat: usize,
    /// How the result looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
    /// Write the answer's indices here: .npy, int64[probes, k].
    #[arg(long, value_name = "FILE")]
    write_indices: Option<PathBuf>,
    /// Write the answer's scores here: .npy, float32[probes, k].
    #[arg(long, value_name = "FILE")]
    write_scores: Option<PathBuf>,
}

/// What was measured; times in milliseconds.
#[derive(Debug, Serialize)]
struct Report {
    backend: String,
    device: String,
    driver: String,
    rows: usize,
    dim: usize,
    probes: usize,
    top_k: usize,
    threads: usize,
    total_ms: Vec<f64>,
    median_ms: f64,
    /// Rows compared with probes, in millions a second.
    mvectors_per_s: f64,
    gflops: f64,
    /// As if every comparison read its row from memory.
    gb_per_s: f64,
    invalid_indices: u64,
    uncertified: u64,
    phases_ms: Phases,
}

/// Medians.
#[derive(Debug, Serialize)]
struct Phases {
    scan: f64,
    device_merge: f64,
    host_merge: f64,
    verify: f64,
}

pub(super) fn run(settings: &SettingsArgs, args: BenchArgs, output: &mut Output) -> anyhow::Result<()> {
    let own = [format!("backend.kind={}", args.backend)]
        .into_iter()
        .chain(args.threads.map(|threads| format!("backend.cpu.threads={threads}")));
    let mut settings = settings.load(own)?;
    telemetry::init(&settings.log)?;
    // A measurement of another backend than the one asked for would be a lie.
    settings.backend.fallback = Fallback::Fail;
    let said = args.rows.or(args.dim).or(args.probes_count).is_some();
    let (rows, probes) = match (&args.gallery, &args.probes) {
        (Some(gallery), Some(probes)) if !said => (read(gallery)?, read(probes)?),
        (None, None) => made(&Made::of(&args)?),
        (Some(_), _) | (None, Some(_)) => {
            let text = "--gallery and --probes go together, and not with --rows, --dim or --probes-count";
            return Err(Usage(text.to_owned()).into());
        }
    };
    let (Some(first), Some(probe)) = (rows.first(), probes.first()) else {
        bail!("expected at least one row and one probe, got {} and {}", rows.len(), probes.len());
    };
    if first.dim() != probe.dim() {
        bail!("rows have {} components, probes {}", first.dim(), probe.dim());
    }
    let engine = Engine::start(&settings.backend, 1)?;
    let request = request(rows, &probes, args.top_k);
    engine.load(Arc::clone(&request.snapshot))?;
    let (times, answers) = measure(&engine, &request, args.repeat)?;
    write(&args, &request, &answers)?;
    let report = report(&engine, &request, (times, &answers), settings.backend.cpu.threads);
    match args.format {
        PlainFormat::Json => output.json(&report),
        PlainFormat::Table => Ok(output.line(as_table(&report))?),
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Embedding>> {
    let vectors = formats::read_vectors(path, &mut |_| ())?;
    let dim = vectors.dim();
    let parse = |(row, values): (usize, &[f32])| {
        Embedding::parse(values.to_vec(), dim, NormPolicy::Normalise)
            .with_context(|| format!("{} row {row}", path.display()))
    };
    vectors.rows().enumerate().map(parse).collect()
}

/// How many vectors of which size are made, and from what.
struct Made {
    rows: usize,
    dim: usize,
    probes: usize,
    seed: u64,
}

impl Made {
    fn of(args: &BenchArgs) -> anyhow::Result<Self> {
        let made = Self {
            rows: args.rows.unwrap_or(ROWS),
            dim: args.dim.unwrap_or(DIM),
            probes: args.probes_count.unwrap_or(PROBES),
            seed: args.seed,
        };
        let bytes = (made.rows + made.probes).saturating_mul(made.dim * size_of::<f32>());
        if bytes > MAX_MADE_BYTES {
            return Err(
                Usage(format!("expected at most {MAX_MADE_BYTES} bytes of vectors, got {bytes}")).into()
            );
        }
        Ok(made)
    }
}

/// Rows in clusters, and probes near some of the rows: unit vectors of normally distributed components.
fn made(made: &Made) -> (Vec<Embedding>, Vec<Embedding>) {
    let mut random = ChaCha8Rng::seed_from_u64(made.seed);
    let mut near = |centre: Option<&Embedding>, spread: f32| loop {
        let scale = spread / (made.dim as f32).sqrt();
        let values = (0..made.dim).map(|component| {
            let noise: f32 = StandardNormal.sample(&mut random);
            centre.map_or(0.0, |centre| centre.as_slice()[component]) + noise * scale
        });
        // Only an all but impossible draw of zeros is no embedding.
        if let Ok(embedding) = Embedding::parse(values.collect(), made.dim, NormPolicy::Normalise) {
            return embedding;
        }
    };
    let mut rows: Vec<Embedding> = Vec::with_capacity(made.rows);
    while rows.len() < made.rows {
        let centre = near(None, 1.0);
        for _ in 0..ROWS_A_CLUSTER.min(made.rows - rows.len()) {
            rows.push(near(Some(&centre), 0.8));
        }
    }
    let step = (rows.len() / made.probes).max(1);
    let probes = (0..made.probes).map(|probe| near(rows.get(probe * step % rows.len()), 0.6)).collect();
    (rows, probes)
}

fn request(rows: Vec<Embedding>, probes: &[Embedding], k: usize) -> ScanRequest {
    let dim = probes[0].dim();
    let prototypes = rows.into_iter().enumerate().map(|(row, embedding)| {
        let prototype = Prototype {
            key: PrototypeKey { identity: "bench".to_owned(), id: row.to_string() },
            source: String::new(),
            origin: Origin::Import,
            created_ms: 0,
            embedding,
        };
        (row as u64, prototype)
    });
    let snapshot = Snapshot::new(GalleryProfile::named("bench", dim), Vec::new(), prototypes.collect());
    ScanRequest {
        k: k.min(snapshot.row_count()),
        snapshot: Arc::new(snapshot),
        probes: Arc::new(Matrix::from_rows(dim, probes.iter().map(Embedding::as_slice))),
        skips: vec![RowSet::default(); probes.len()],
    }
}

/// One warm-up, then as many timed searches as asked: vectors in memory to sorted answers in memory.
fn measure(
    engine: &Engine,
    request: &ScanRequest,
    repeat: usize,
) -> anyhow::Result<(Vec<f64>, Vec<ScanAnswer>)> {
    engine.scan_blocking(request.clone())?;
    let mut times = Vec::with_capacity(repeat);
    let mut answers = Vec::with_capacity(repeat);
    for _ in 0..repeat {
        let request = request.clone();
        let started = Instant::now();
        let answer = engine.scan_blocking(request)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        answers.push(answer);
    }
    Ok((times, answers))
}

fn write(args: &BenchArgs, request: &ScanRequest, answers: &[ScanAnswer]) -> anyhow::Result<()> {
    let Some(answer) = answers.last() else { return Ok(()) };
    let flat = || answer.probes.iter().flatten();
    if let Some(path) = &args.write_indices {
        let indices: Vec<i64> =
            flat().map(|ranked| request.snapshot.index(ranked.row as usize) as i64).collect();
        formats::npy::write_i64(path, request.k, indices.chunks_exact(request.k))?;
    }
    if let Some(path) = &args.write_scores {
        let scores: Vec<f32> = flat().map(|ranked| ranked.score).collect();
        formats::npy::write_f32(path, request.k, scores.chunks_exact(request.k))?;
    }
    Ok(())
}

fn report(
    engine: &Engine,
    request: &ScanRequest,
    (times, answers): (Vec<f64>, &[ScanAnswer]),
    threads: usize,
) -> Report {
    let description = engine.choice().active();
    let (rows, dim, probes) = (request.snapshot.row_count(), request.probes.dim(), request.probes.rows());
    let median_ms = median(times.clone());
    let comparisons = (rows * probes) as f64;
    let phase = |ns: fn(&ScanAnswer) -> u64| median(answers.iter().map(|a| ns(a) as f64 / 1e6).collect());
    Report {
        backend: description.backend.as_str().to_owned(),
        device: description.device.clone(),
        driver: description.driver.clone(),
        rows,
        dim,
        probes,
        top_k: request.k,
        threads,
        total_ms: times,
        median_ms,
        mvectors_per_s: comparisons / median_ms / 1e3,
        gflops: comparisons * 2.0 * dim as f64 / median_ms / 1e6,
        gb_per_s: comparisons * (dim * size_of::<f32>()) as f64 / median_ms / 1e6,
        invalid_indices: answers.iter().map(|answer| answer.report.invalid_indices).sum(),
        uncertified: answers.iter().map(|answer| answer.report.uncertified).sum(),
        phases_ms: Phases {
            scan: phase(|answer| answer.report.phases.scan_ns),
            device_merge: phase(|answer| answer.report.phases.device_merge_ns),
            host_merge: phase(|answer| answer.report.phases.host_merge_ns),
            verify: phase(|answer| answer.report.verify_ns),
        },
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

fn as_table(report: &Report) -> comfy_table::Table {
    let mut table = table(["", "value"]);
    let Report { backend, device, driver, .. } = report;
    table.add_row(["backend", &format!("{backend}: {device} ({driver}), {} threads", report.threads)]);
    let Report { rows, dim, probes, top_k, .. } = report;
    table.add_row(["work", &format!("{rows} rows x {probes} probes, dim {dim}, k {top_k}")]);
    table.add_row(["median", &format!("{:.3} ms of {}", report.median_ms, report.total_ms.len())]);
    let Phases { scan, device_merge, host_merge, verify } = &report.phases_ms;
    let phases = format!(
        "scan {scan:.3}, device merge {device_merge:.3}, host merge {host_merge:.3}, verify {verify:.3} ms"
    );
    table.add_row(["phases", &phases]);
    let Report { mvectors_per_s, gflops, gb_per_s, .. } = report;
    table.add_row([
        "rate",
        &format!("{mvectors_per_s:.1} M vectors/s, {gflops:.1} GFLOP/s, {gb_per_s:.1} GB/s"),
    ]);
    let Report { invalid_indices, uncertified, .. } = report;
    table.add_row(["trust", &format!("{invalid_indices} invalid indices, {uncertified} uncertified scans")]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}

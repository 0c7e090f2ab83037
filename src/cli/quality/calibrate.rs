//! `lookalike calibrate`: which threshold and margin suit a model, and how certain that is.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rayon::prelude::*;
use serde::Serialize;

use super::plot::{Axis, BLUE, GREEN, ORANGE, Scale, Series, curves, histogram, map};
use super::{FacesArgs, Ready, Steps, percent};
use crate::cli::output::{Output, PlainFormat, table};
use crate::cli::settings::SettingsArgs;
use crate::cli::{FoundWrong, Usage};
use crate::config::Settings;
use crate::domain::{Margin, Threshold};
use crate::gallery::store::Store;
use crate::gallery::{Snapshot, formats};
use crate::quality::calibrate::pairs::PairScores;
use crate::quality::calibrate::resample::Rate;
use crate::quality::calibrate::split::{Held, halves};
use crate::quality::calibrate::{Calibration, Draws, Pair, Rates, Recommendation, WhyNot, cut};
use crate::quality::standing::standings;
use crate::telemetry;

/// Rates that are looked at beside the wished-for one.
const OTHER_RATES: [f64; 5] = [0.001, 0.003, 0.01, 0.03, 0.1];

/// Thresholds and margins of the grid that is reported.
const GRID: (usize, usize) = (16, 9);

/// Cells of the map that is drawn, and points of a curve.
const MAP: (usize, usize) = (60, 40);
const POINTS: usize = 120;

/// Of the splits so many must hold: 18 of 20.
const HELD: f64 = 0.9;

#[derive(Debug, Args)]
pub(in crate::cli) struct CalibrateArgs {
    #[command(flatten)]
    faces: FacesArgs,
    /// The wished-for rate of false positives: of strangers, the share that may be named. Above 0, below 1.
    #[arg(long, value_name = "RATE", default_value_t = 0.01, value_parser = rate)]
    false_positives: f64,
    /// Halve the persons at random so many times, calibrate on one half and measure on the other; ends with 3 where fewer than nine in ten hold.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=1000))]
    splits: usize,
    /// How often persons are resampled for confidence bounds.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = RangedU64ValueParser::<usize>::new().range(100..=10_000))]
    draws: usize,
    /// What random draws are made from; the same seed gives the same.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw pictures (SVG) into this folder: scores.svg, det.svg, map.svg.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Write threshold and margin into the gallery: the promised pair, where there is one, or with --apply=estimate the estimated one, of which
    /// nothing is promised.
    #[arg(long, value_enum, value_name = "PAIR", num_args = 0..=1, require_equals = true, default_missing_value = "promise")]
    apply: Option<Apply>,
    /// How the report looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

/// Which pair is written into the gallery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Apply {
    /// The promised one.
    Promise,
    /// The estimated one.
    Estimate,
}

fn rate(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err("expected a number above 0 and below 1".to_owned())
    }
}

/// What is reported. Rates are means over persons, with their 95 % intervals.
#[derive(Debug, Serialize)]
struct Report {
    gallery: String,
    embeddings: usize,
    identities: usize,
    /// Searches of embeddings whose person has another.
    mated: usize,
    /// Searches of embeddings whose person was left out.
    non_mated: usize,
    recommended: Recommendation,
    /// What applies now.
    current: Rates,
    /// The same for other rates.
    others: Vec<Recommendation>,
    grid: Vec<Rates>,
    /// Pairs at each of the grid's thresholds.
    pairs: Vec<PairRates>,
    splits: Vec<Held>,
    /// The gallery's generation once the pair was written into it.
    applied: Option<u64>,
}

/// How pairs of embeddings compare with a threshold.
#[derive(Debug, Serialize)]
struct PairRates {
    threshold: f32,
    false_match: Option<f64>,
    false_non_match: Option<f64>,
}

pub(in crate::cli) fn run(
    settings: &SettingsArgs,
    args: CalibrateArgs,
    output: &mut Output,
) -> anyhow::Result<()> {
    let loaded = settings.load([])?;
    telemetry::init(&loaded.log)?;
    // Before anything that takes long.
    args.plots.as_deref().map_or(Ok(()), make_folder)?;
    let ready = Ready::new(&loaded, args.faces.snapshot(settings)?)?;
    let draws = Draws { draws: args.draws, seed: args.seed };
    let calibration = measure(&ready, draws, Some(&Steps::new("comparing")))?;
    let snapshot = &ready.snapshot;
    let recommended = calibration.recommend(args.false_positives);
    let (threshold, min_margin) = ready.recognizer.defaults_of(snapshot);
    let pairs = PairScores::draw(snapshot, args.seed);
    let grid = grid(&calibration);
    let mut report = Report {
        gallery: snapshot.profile().name.clone(),
        embeddings: snapshot.row_count(),
        identities: snapshot.identity_count(),
        mated: calibration.mated().len(),
        non_mated: calibration.non_mated().len(),
        recommended,
        current: calibration.rates(cut(threshold.get(), min_margin.get())),
        others: OTHER_RATES.iter().map(|rate| calibration.recommend(*rate)).collect(),
        pairs: grid.0.iter().map(|threshold| pair_rates(&pairs, *threshold)).collect(),
        grid: cells(&calibration, &grid),
        splits: split(&loaded, snapshot, &args, draws)?,
        applied: None,
    };
    if let Some(folder) = &args.plots {
        draw(folder, &calibration, &recommended, &pairs)?;
    }
    if let Some(pair) = applied(&recommended, args.apply) {
        let mut store = Store::open(&args.faces.gallery.folder.path(settings)?)?;
        let threshold = Threshold::parse(pair.rates.threshold)?;
        let min_margin = Margin::parse(pair.rates.min_margin)?;
        report.applied = Some(store.set_limits(&args.faces.gallery.gallery, threshold, min_margin)?);
    }
    match args.format {
        PlainFormat::Json => output.json(&report)?,
        PlainFormat::Table => show(&report, output)?,
    }
    verdict(&report, args.apply)
}

/// The pair that is to be written into the gallery, if any.
fn applied(recommended: &Recommendation, apply: Option<Apply>) -> Option<Pair> {
    match apply? {
        Apply::Promise => recommended.promised.then_some(recommended.pair),
        Apply::Estimate => recommended.estimate,
    }
}

/// Makes the folder for pictures, where it is not there yet.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let got = match fs::create_dir_all(folder) {
        Ok(()) => return Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
            "a file".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(Usage(format!(
        "--plots: expected a folder, or a place where one can be made, got {}: {got}",
        folder.display()
    ))
    .into())
}

fn measure(ready: &Ready, draws: Draws, steps: Option<&Steps>) -> anyhow::Result<Calibration> {
    let asking = ready.asking((None, None));
    let mut show = |done, of| {
        if let Some(steps) = steps {
            steps.show(done, of);
        }
    };
    let standings = crate::cli::runtime()?.block_on(standings(&asking, &mut show))?;
    Ok(Calibration::of(&ready.snapshot, &standings, draws))
}

fn split(
    settings: &Settings,
    snapshot: &Snapshot,
    args: &CalibrateArgs,
    draws: Draws,
) -> anyhow::Result<Vec<Held>> {
    let steps = Steps::new("splitting");
    let mut held = Vec::with_capacity(args.splits);
    for at in 0..args.splits {
        steps.show(at, args.splits);
        let [one, other] = halves(snapshot, args.seed.wrapping_add(at as u64));
        if one.is_empty() || other.is_empty() {
            break;
        }
        let one = measure(&Ready::new(settings, one)?, draws, None)?;
        let other = measure(&Ready::new(settings, other)?, draws, None)?;
        held.push(Held::of(&one.recommend(args.false_positives), &other));
    }
    Ok(held)
}

fn verdict(report: &Report, apply: Option<Apply>) -> anyhow::Result<()> {
    let best = &report.recommended;
    let wished = percent(Some(best.wished));
    let found = match best.why_not {
        // Who asks for an estimate has been told that it is one.
        Some(WhyNot::TooFewIdentities) if apply == Some(Apply::Estimate) => None,
        Some(WhyNot::TooFewIdentities) => Some(format!(
            "too few persons to promise {wished} of strangers named: of {} it can only be said to be at most {}; it takes {} or more; \
             what is shown is an estimate",
            report.identities,
            percent(Some(best.pair.at_most)),
            best.identities_needed.unwrap_or_default(),
        )),
        Some(WhyNot::NotToldApart) => Some(format!(
            "no threshold and margin tells these persons apart: where {wished} of strangers are named at most, nobody is recognised; \
             more persons would not help (`lookalike audit` finds one person under several names)"
        )),
        Some(WhyNot::NoMatedSearch) => Some(
            "no person has two embeddings, so it cannot be told how many would be missed: expected at least one with two".to_owned(),
        ),
        None => None,
    };
    if let Some(text) = found {
        return Err(FoundWrong(text).into());
    }
    let held = report.splits.iter().filter(|one| one.held).count();
    if (held as f64) < HELD * report.splits.len() as f64 {
        return Err(FoundWrong(format!("held in {held} of {} splits only", report.splits.len())).into());
    }
    Ok(())
}

/// Thresholds from what few strangers reach to what few persons do, and margins from none up.
fn grid(calibration: &Calibration) -> (Vec<f32>, Vec<f32>) {
    let (low, high) = span(calibration);
    let margins = calibration.margins();
    let most = margins.last().copied().unwrap_or(0.0);
    (steps(low, high, GRID.0), steps(0.0, most, GRID.1))
}

/// From the score that all but one in twenty strangers reach to the one that one in twenty persons does.
fn span(calibration: &Calibration) -> (f32, f32) {
    let strangers = calibration.non_mated();
    let low = strangers.get(strangers.len() * 19 / 20).map_or(-1.0, |one| one.score);
    let mut scores: Vec<f32> = calibration.mated().iter().map(|one| one.score).collect();
    scores.sort_by(f32::total_cmp);
    let high = scores.get(scores.len() * 19 / 20).copied().unwrap_or(1.0);
    if low < high { (low, high) } else { (-1.0, 1.0) }
}

fn steps(low: f32, high: f32, count: usize) -> Vec<f32> {
    (0..count).map(|step| low + (high - low) * step as f32 / (count - 1) as f32).collect()
}

fn cells(calibration: &Calibration, (thresholds, margins): &(Vec<f32>, Vec<f32>)) -> Vec<Rates> {
    let all: Vec<(f32, f32)> = thresholds
        .iter()
        .flat_map(|&threshold| margins.iter().map(move |&margin| (threshold, margin)))
        .collect();
    all.into_par_iter().map(|(threshold, margin)| calibration.rates(cut(threshold, margin))).collect()
}

fn pair_rates(pairs: &PairScores, threshold: f32) -> PairRates {
    let (false_match, false_non_match) = pairs.rates(threshold);
    PairRates { threshold, false_match, false_non_match }
}

/// The pictures: scores of pairs, the trade between false positives and misses, and where the wished-for rate is kept.
fn draw(
    folder: &Path,
    calibration: &Calibration,
    best: &Recommendation,
    pairs: &PairScores,
) -> anyhow::Result<()> {
    let wide = |scores: &[f32]| scores.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let (same, different) = (wide(&pairs.same), wide(&pairs.different));
    let series = [
        Series { name: "same person", colour: BLUE, values: &same },
        Series { name: "different", colour: ORANGE, values: &different },
    ];
    let threshold = (f64::from(best.pair.rates.threshold), "threshold");
    formats::write_text(
        &folder.join("scores.svg"),
        &histogram("Scores of pairs", "score", &series, &[threshold]),
    )?;
    formats::write_text(&folder.join("det.svg"), &det(calibration, best))?;
    Ok(formats::write_text(&folder.join("map.svg"), &kept(calibration, best))?)
}

/// Detection error trade-off, along the threshold: without a margin and with the recommended one.
fn det(calibration: &Calibration, best: &Recommendation) -> String {
    let (low, high) = span(calibration);
    let curve = |margin: f32| -> Vec<(f64, f64)> {
        steps(low, high, POINTS).iter().map(|threshold| calibration.shares(cut(*threshold, margin))).collect()
    };
    let (without, with) = (curve(0.0), curve(best.pair.rates.min_margin));
    let least = 0.5 / calibration.non_mated().len().max(1) as f64;
    let axis = |label| Axis { label, low: least, high: 1.0, scale: Scale::Logarithmic };
    let series = [
        Series { name: "no margin", colour: ORANGE, values: &without },
        Series { name: "recommended margin", colour: GREEN, values: &with },
    ];
    let Rates { threshold, min_margin, .. } = best.pair.rates;
    let point = calibration.shares(cut(threshold, min_margin));
    let axes = (axis("strangers named (FPIR)"), axis("persons missed (FNIR)"));
    curves("False positives and misses", axes, &series, &[point])
}

/// Who is named where the wished-for rate is kept.
fn kept(calibration: &Calibration, best: &Recommendation) -> String {
    let (low, high) = span(calibration);
    let most = calibration.margins().last().copied().unwrap_or(0.0).max(1e-3);
    let middle =
        |low: f32, high: f32, at: usize, of: usize| low + (high - low) * (at as f32 + 0.5) / of as f32;
    let cell = |row: usize, column: usize| {
        let under = cut(middle(low, high, column, MAP.0), middle(0.0, most, row, MAP.1));
        let (named, missed) = calibration.shares(under);
        if named <= best.wished { 1.0 - missed } else { 0.0 }
    };
    let values: Vec<Vec<f64>> =
        (0..MAP.1).map(|row| (0..MAP.0).map(|column| cell(row, column)).collect()).collect();
    let axis = |label, low: f32, high: f32| Axis {
        label,
        low: f64::from(low),
        high: f64::from(high),
        scale: Scale::Linear,
    };
    let title = format!("Persons named, where at most {} of strangers were", percent(Some(best.wished)));
    let point = (f64::from(best.pair.rates.threshold), f64::from(best.pair.rates.min_margin));
    map(&title, (axis("threshold", low, high), axis("least margin", 0.0, most)), &values, Some(point))
}

fn interval(rate: &Rate) -> String {
    format!("{:.2} % ({:.2} to {:.2})", rate.rate * 100.0, rate.low * 100.0, rate.high * 100.0)
}

fn show(report: &Report, output: &mut Output) -> anyhow::Result<()> {
    output.line(format_args!(
        "{}: {} embeddings of {} persons; {} searches with their person, {} without",
        report.gallery, report.embeddings, report.identities, report.mated, report.non_mated
    ))?;
    output.line(pairs_table(report))?;
    output.line(
        "promised: at 95 % confidence no larger share of strangers is named; estimated: no larger share was found, which promises nothing",
    )?;
    if !report.splits.is_empty() {
        let held = report.splits.iter().filter(|one| one.held).count();
        let mean =
            |of: fn(&Held) -> f64| report.splits.iter().map(of).sum::<f64>() / report.splits.len() as f64;
        output.line(format_args!(
            "on the other half of the persons: held in {held} of {} splits; {} of strangers named, {} of persons missed on average",
            report.splits.len(),
            percent(Some(mean(|one| one.false_positives.rate))),
            percent(Some(mean(|one| one.misses.rate))),
        ))?;
    }
    if let Some(generation) = report.applied {
        output.line(format_args!("{}: written, generation {generation}", report.gallery))?;
    }
    Ok(())
}

fn pairs_table(report: &Report) -> comfy_table::Table {
    let mut table = table([
        "",
        "threshold",
        "least margin",
        "strangers named (95 %)",
        "persons missed (95 %)",
        "named wrongly",
        "promise",
    ]);
    let mut add = |name: String, rates: &Rates, promise: String| {
        table.add_row([
            name,
            format!("{:.4}", rates.threshold),
            format!("{:.4}", rates.min_margin),
            interval(&rates.false_positives),
            interval(&rates.misses),
            percent(Some(rates.wrong.rate)),
            promise,
        ]);
    };
    let best = &report.recommended;
    add(format!("for {} %, {}", best.wished * 100.0, kind(best)), &best.pair.rates, promise(best));
    if let (true, Some(estimate)) = (best.promised, &best.estimate) {
        let may_be = format!("none, may be {:.2} %", estimate.at_most * 100.0);
        add(format!("for {} %, estimated", best.wished * 100.0), &estimate.rates, may_be);
    }
    add("now".to_owned(), &report.current, String::new());
    for other in &report.others {
        add(format!("for {} %, {}", other.wished * 100.0, kind(other)), &other.pair.rates, promise(other));
    }
    table
}

/// What sort of a pair is recommended.
fn kind(one: &Recommendation) -> &'static str {
    match (one.promised, one.estimate) {
        (true, _) => "promised",
        (false, Some(_)) => "estimated",
        (false, None) => "nobody named",
    }
}

fn promise(one: &Recommendation) -> String {
    let at_most = format!("{:.2} %", one.pair.at_most * 100.0);
    match one.why_not {
        None => format!("at most {at_most}"),
        Some(WhyNot::TooFewIdentities) => format!("none, may be {at_most}: too few persons"),
        Some(WhyNot::NotToldApart) => "none: not told apart".to_owned(),
        Some(WhyNot::NoMatedSearch) => "none: nobody has two embeddings".to_owned(),
    }
}

//! `lookalike calibrate`: which threshold and margin suit a model, and how certain that is.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rayon::prelude::*;
use serde::Serialize;

use super::drawing::Drawing;
use super::pictures::{pictures, span, steps};
use super::{FacesArgs, Ready, Steps, percent};
use crate::cli::output::{Output, PlainFormat, table};
use crate::cli::settings::SettingsArgs;
use crate::cli::{FoundWrong, Usage};
use crate::config::Settings;
use crate::domain::{Margin, Threshold};
use crate::gallery::store::Store;
use crate::gallery::{Snapshot, files, formats};
use crate::quality::audit::confusable;
use crate::quality::calibrate::pairs::PairScores;
use crate::quality::calibrate::resample::Rate;
use crate::quality::calibrate::split::{Held, Split, halves};
use crate::quality::calibrate::{Calibration, Draws, Pair, Rates, Recommendation, WhyNot, cut};
use crate::quality::standing::{Standing, standings};
use crate::telemetry;

/// Rates that are looked at beside the wished-for one.
const OTHER_RATES: [f64; 5] = [0.001, 0.003, 0.01, 0.03, 0.1];

/// Thresholds and margins of the grid that is reported.
const GRID: (usize, usize) = (16, 9);

/// The sorts of pairs that splits try.
type OfSplit = fn(&Split) -> Option<Held>;
const KINDS: [(&str, OfSplit); 2] =
    [("estimated", |split| split.estimated), ("promised", |split| split.promised)];

/// Pairs of persons that are named.
const MOST_ALIKE: usize = 3;

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
    /// How often persons are resampled for the 95 % intervals; promises do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = RangedU64ValueParser::<usize>::new().range(100..=10_000))]
    draws: usize,
    /// What random draws are made from; the same seed gives the same.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw pictures into this folder: scores.svg, det.svg, map.svg.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// What pictures are drawn as.
    #[arg(long, value_enum, default_value = "svg", requires = "plots")]
    plot_format: PlotFormat,
    /// Write threshold and margin into the gallery: the promised pair, where there is one, or with --apply=estimate the estimated one, of which
    /// nothing is promised.
    #[arg(long, value_enum, value_name = "PAIR", num_args = 0..=1, require_equals = true, default_missing_value = "promise")]
    apply: Option<Apply>,
    /// How the report looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

/// What a picture is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlotFormat {
    /// Lines and text, of any size.
    Svg,
    /// Pixels.
    Png,
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
    /// For the wished-for rate.
    recommended: Recommendation,
    /// What applies now.
    current: Rates,
    /// The same for other rates.
    others: Vec<Recommendation>,
    /// The pairs of persons who look most alike: what a promise has to refuse.
    most_alike: Vec<Alike>,
    grid: Vec<Rates>,
    /// Pairs at each of the grid's thresholds.
    pairs: Vec<PairRates>,
    splits: Vec<Split>,
    /// The gallery's generation once the pair was written into it.
    applied: Option<u64>,
}

/// Two persons, by their nearest embeddings.
#[derive(Debug, Serialize)]
struct Alike {
    identities: [String; 2],
    score: f32,
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
    let snapshot = &ready.snapshot;
    let standings = compare(&ready, Some(&Steps::new("comparing")))?;
    let calibration = Calibration::of(snapshot, &standings, draws);
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
        others: other_rates(args.false_positives).map(|rate| calibration.recommend(rate)).collect(),
        most_alike: most_alike(snapshot, &standings),
        pairs: grid.0.iter().map(|threshold| pair_rates(&pairs, *threshold)).collect(),
        grid: cells(&calibration, &grid),
        splits: split(&loaded, snapshot, &args, draws)?,
        applied: None,
    };
    // What was found is told, whatever becomes of the pictures.
    let drawn = draw(&args, pictures(&calibration, &recommended, &pairs));
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
    drawn?;
    verdict(&report, args.apply)
}

/// The pair that is to be written into the gallery, if any.
fn applied(recommended: &Recommendation, apply: Option<Apply>) -> Option<Pair> {
    match apply? {
        Apply::Promise => recommended.promised,
        Apply::Estimate => recommended.estimated,
    }
}

/// Writes the pictures that are wished for.
fn draw(args: &CalibrateArgs, pictures: [(&str, Drawing); 3]) -> anyhow::Result<()> {
    let Some(folder) = &args.plots else { return Ok(()) };
    for (name, picture) in pictures {
        let (ending, content) = match args.plot_format {
            PlotFormat::Svg => ("svg", picture.svg().into_bytes()),
            PlotFormat::Png => ("png", picture.png()?),
        };
        formats::write_whole(&folder.join(name).with_extension(ending), &content)?;
    }
    Ok(())
}

/// Makes the folder for pictures, where it is not there yet.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let got = match fs::create_dir_all(folder) {
        Ok(()) => return Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
            "a file".to_owned()
        }
        Err(error) => files::advice(&error),
    };
    Err(Usage(format!(
        "--plots: expected a folder, or a place where one can be made, got {}: {got}",
        folder.display()
    ))
    .into())
}

/// The rates that are looked at beside this one.
fn other_rates(wished: f64) -> impl Iterator<Item = f64> {
    OTHER_RATES.into_iter().filter(move |rate| (rate - wished).abs() > f64::EPSILON)
}

fn most_alike(snapshot: &Snapshot, standings: &[Standing]) -> Vec<Alike> {
    let pairs = confusable(snapshot, standings).into_iter().take(MOST_ALIKE);
    pairs.map(|pair| Alike { identities: pair.identities, score: pair.score }).collect()
}

fn compare(ready: &Ready, steps: Option<&Steps>) -> anyhow::Result<Vec<Standing>> {
    let asking = ready.asking((None, None));
    let mut show = |done, of| {
        if let Some(steps) = steps {
            steps.show(done, of);
        }
    };
    Ok(crate::cli::runtime()?.block_on(standings(&asking, &mut show))?)
}

fn split(
    settings: &Settings,
    snapshot: &Snapshot,
    args: &CalibrateArgs,
    draws: Draws,
) -> anyhow::Result<Vec<Split>> {
    let steps = Steps::new("splitting");
    let mut splits = Vec::with_capacity(args.splits);
    for at in 0..args.splits {
        steps.show(at, args.splits);
        let [one, other] = halves(snapshot, args.seed.wrapping_add(at as u64));
        if one.is_empty() || other.is_empty() {
            break;
        }
        let measure = |half| {
            let ready = Ready::new(settings, half)?;
            anyhow::Ok(Calibration::of(&ready.snapshot, &compare(&ready, None)?, draws))
        };
        let (one, other) = (measure(one)?, measure(other)?);
        splits.push(Split::of(&one.recommend(args.false_positives), &other));
    }
    Ok(splits)
}

fn verdict(report: &Report, apply: Option<Apply>) -> anyhow::Result<()> {
    let best = &report.recommended;
    // Who asks for an estimate knows that it is one, where there is one.
    let enough = apply == Some(Apply::Estimate)
        && best.why_not == Some(WhyNot::TooFewIdentities)
        && best.estimated.is_some();
    match broken(report) {
        Some(text) if enough => writeln!(io::stderr(), "warning: {text}")?,
        Some(text) => return Err(FoundWrong(text).into()),
        None => {}
    }
    for (kind, of) in KINDS {
        let splits = || report.splits.iter().filter_map(of);
        let (held, count) = (splits().filter(|one| one.held).count(), splits().count());
        if (held as f64) < HELD * count as f64 {
            return Err(FoundWrong(format!("what was {kind} held in {held} of {count} splits only")).into());
        }
    }
    Ok(())
}

/// Why nothing is promised, if so, and what it would take.
fn broken(report: &Report) -> Option<String> {
    let best = &report.recommended;
    let wished = percent(Some(best.wished));
    Some(match best.why_not? {
        WhyNot::TooFewIdentities => format!(
            "too few persons to promise that at most {wished} of strangers are named: there are {}, {}; {}",
            report.identities,
            best.identities_needed.map_or_else(
                || "and more would not do while as large a share of them is named".to_owned(),
                |needed| format!("it takes {needed} or more")
            ),
            best.estimated.as_ref().map_or_else(
                || "not even an estimate can be made".to_owned(),
                |pair| format!(
                    "of the estimate it can only be said to be at most {} (--apply=estimate writes it all the same)",
                    percent(Some(pair.at_most))
                )
            ),
        ),
        WhyNot::NotToldApart => format!(
            "no threshold and margin tells these persons apart: where at most {wished} of strangers are named, nobody is recognised, \
             and more persons would not help (`lookalike audit` finds one person under several names)"
        ),
        WhyNot::NoMatedSearch => {
            "no person has two embeddings, so nobody could be recognised: expected at least one with two"
                .to_owned()
        }
    })
}

/// Thresholds from what few strangers reach to what few persons do, and margins from none up.
fn grid(calibration: &Calibration) -> (Vec<f32>, Vec<f32>) {
    let (low, high) = span(calibration);
    (steps(low, high, GRID.0), steps(0.0, calibration.most_margin(), GRID.1))
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

fn interval(rate: &Rate) -> String {
    format!("{:.2} % ({:.2} to {:.2})", rate.rate * 100.0, rate.low * 100.0, rate.high * 100.0)
}

fn show(report: &Report, output: &mut Output) -> anyhow::Result<()> {
    output.line(format_args!(
        "{}: {} embeddings of {} persons; {} searches with their person, {} without",
        report.gallery, report.embeddings, report.identities, report.mated, report.non_mated
    ))?;
    output.line(pairs_table(report))?;
    output.line(format_args!(
        "at most {}: the share of strangers that may be named; estimated: no larger one was among these persons; promised: at 95 % confidence none \
         is among others like them",
        wish(&report.recommended)
    ))?;
    if looser_is_stricter(report) {
        output.line("threshold and margin are chosen together: a looser wish may take a higher threshold with a lower margin")?;
    }
    if !report.most_alike.is_empty() {
        let pair =
            |one: &Alike| format!("{} and {} ({:.4})", one.identities[0], one.identities[1], one.score);
        let pairs: Vec<String> = report.most_alike.iter().map(pair).collect();
        output.line(format_args!("most alike, so that a promise must be strict: {}", pairs.join(", ")))?;
    }
    for (kind, of) in KINDS {
        let splits: Vec<Held> = report.splits.iter().filter_map(of).collect();
        let none = report.splits.len() - splits.len();
        if none > 0 {
            let all = report.splits.len();
            output.line(format_args!(
                "in {none} of {all} splits there was no {kind} pair to try on the other half"
            ))?;
        }
        if splits.is_empty() {
            continue;
        }
        let mean = |of: fn(&Rates) -> f64| {
            splits.iter().map(|one| of(&one.rates)).sum::<f64>() / splits.len() as f64
        };
        output.line(format_args!(
            "on the other half of the persons, {kind}: held in {} of {} splits; {} of strangers named, {} of persons missed on average",
            splits.iter().filter(|one| one.held).count(),
            splits.len(),
            percent(Some(mean(|one| one.false_positives.rate))),
            percent(Some(mean(|one| one.misses.rate))),
        ))?;
    }
    if let Some(generation) = report.applied {
        output.line(format_args!("{}: written, generation {generation}", report.gallery))?;
    }
    Ok(())
}

/// The wished-for rate, in as many digits as it has.
fn wish(one: &Recommendation) -> String {
    format!("{} %", (one.wished * 1e6).round() / 1e4)
}

/// Whether some wish shows a higher threshold than a stricter one.
fn looser_is_stricter(report: &Report) -> bool {
    let mut all: Vec<&Recommendation> = report.others.iter().chain([&report.recommended]).collect();
    all.sort_by(|a, b| a.wished.total_cmp(&b.wished));
    let rises = |of: fn(&Recommendation) -> Option<Pair>| {
        let thresholds: Vec<f32> =
            all.iter().filter_map(|one| of(one)).map(|pair| pair.rates.threshold).collect();
        thresholds.windows(2).any(|pair| pair[0] < pair[1])
    };
    rises(|one| one.estimated) || rises(|one| one.promised)
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
    let mut add_both = |one: &Recommendation| {
        let wished = wish(one);
        if let Some(pair) = &one.estimated {
            let may_be = format!("none: may be {:.2} %", pair.at_most * 100.0);
            add(format!("at most {wished}, estimated"), &pair.rates, may_be);
        }
        if let Some(pair) = &one.promised {
            add(
                format!("at most {wished}, promised"),
                &pair.rates,
                format!("at most {:.2} %", pair.at_most * 100.0),
            );
        }
    };
    add_both(&report.recommended);
    report.others.iter().for_each(&mut add_both);
    add("now".to_owned(), &report.current, String::new());
    table
}

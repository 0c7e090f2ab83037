//! `lookalike audit`: what is doubtful in a gallery, and what would change without it.

use std::collections::BTreeMap;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::{CutArgs, FacesArgs, Ready, Steps};
use crate::cli::Usage;
use crate::cli::output::{Output, PlainFormat, table};
use crate::cli::settings::SettingsArgs;
use crate::domain::Threshold;
use crate::quality::audit::{self, Doubt, Effect, Findings, Merged, Pair, Split, Wanted};
use crate::quality::standing::standings;
use crate::quality::validate::Place;
use crate::telemetry;

#[derive(Debug, Args)]
pub(in crate::cli) struct AuditArgs {
    #[command(flatten)]
    faces: FacesArgs,
    #[command(flatten)]
    cut: CutArgs,
    /// Prototypes of one person at this score or above are duplicates, -1 to 1.
    #[arg(long, value_name = "SCORE", default_value_t = 0.999, allow_negative_numbers = true)]
    duplicate: f32,
    /// Most findings of a kind that are listed, those that weigh most first.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    most: usize,
    /// How the report looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

/// What is reported. Nothing is changed.
#[derive(Debug, Serialize)]
struct Report {
    gallery: String,
    prototypes: usize,
    identities: usize,
    /// How many of each kind there are, listed or not.
    counts: BTreeMap<&'static str, usize>,
    confusable: Vec<Pair>,
    misplaced: Vec<Doubtful>,
    tied: Vec<Doubtful>,
    outliers: Vec<Doubtful>,
    duplicates: Vec<Doubtful>,
    /// Identities that may be another.
    split: Vec<Split>,
    /// Identities that may be several persons.
    merged: Vec<Merged>,
}

/// A prototype, and what would change without it.
#[derive(Debug, Serialize)]
struct Doubtful {
    #[serde(flatten)]
    doubt: Doubt,
    without: Effect,
}

pub(in crate::cli) fn run(
    settings: &SettingsArgs,
    args: AuditArgs,
    output: &mut Output,
) -> anyhow::Result<()> {
    let cut = args.cut.parse()?;
    let duplicate =
        Threshold::parse(args.duplicate).map_err(|error| Usage(format!("--duplicate: {error}")))?;
    let loaded = settings.load([])?;
    telemetry::init(&loaded.log)?;
    let ready = Ready::new(&loaded, args.faces.snapshot(settings)?)?;
    let (asking, snapshot, runtime) = (ready.asking(cut), &ready.snapshot, crate::cli::runtime()?);
    let steps = Steps::new("comparing");
    let standings = runtime.block_on(standings(&asking, &mut |done, of| steps.show(done, of)))?;
    drop(steps);
    let wanted = Wanted { duplicate: duplicate.get(), most: args.most };
    let found = audit::find(snapshot, &standings, |place| asking.cut(place), wanted);
    let mut merged = audit::merged(snapshot, |place| asking.cut(place));
    let rows: Vec<usize> = [&found.misplaced, &found.tied, &found.outliers, &found.duplicates]
        .into_iter()
        .flatten()
        .map(|one| one.row)
        .collect();
    let steps = Steps::new("asking what would change");
    let effects =
        runtime.block_on(audit::effects(&asking, &standings, &rows, &mut |done, of| steps.show(done, of)))?;
    drop(steps);
    let Findings { confusable, misplaced, tied, outliers, duplicates, split, counts } = found;
    let names = ["confusable", "misplaced", "tied", "outliers", "duplicates", "split"];
    let mut counts: BTreeMap<&str, usize> = names.into_iter().zip(counts).collect();
    counts.insert("merged", merged.len());
    merged.truncate(args.most);
    let with_effect = |doubts: Vec<Doubt>| -> Vec<Doubtful> {
        let effect = |row: usize| effects.get(&row).copied().unwrap_or_default();
        doubts.into_iter().map(|doubt| Doubtful { without: effect(doubt.row), doubt }).collect()
    };
    let report = Report {
        gallery: snapshot.profile().name.clone(),
        prototypes: snapshot.row_count(),
        identities: snapshot.identity_count(),
        counts,
        confusable,
        misplaced: with_effect(misplaced),
        tied: with_effect(tied),
        outliers: with_effect(outliers),
        duplicates: with_effect(duplicates),
        split,
        merged,
    };
    match args.format {
        PlainFormat::Json => output.json(&report),
        PlainFormat::Table => show(&report, output),
    }
}

fn show(report: &Report, output: &mut Output) -> anyhow::Result<()> {
    let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
    output.line(format_args!(
        "{}: {} prototypes of {} persons; listed: what weighs most; nothing was changed",
        report.gallery, report.prototypes, report.identities
    ))?;
    for (title, name, doubts) in [
        ("nearer to another person", "misplaced", &report.misplaced),
        ("exactly as near to another person", "tied", &report.tied),
        ("far from all of their own", "outliers", &report.outliers),
        ("nearly the same as an earlier one", "duplicates", &report.duplicates),
    ] {
        output.line(format_args!("\n{title}: {}", count(name)))?;
        if !doubts.is_empty() {
            output.line(doubts_table(doubts))?;
        }
    }
    output.line(format_args!("\nperhaps the same person as another: {}", count("split")))?;
    if !report.split.is_empty() {
        let mut table = table(["identity", "taken for", "prototypes"]);
        for one in &report.split {
            let share = format!("{} of {}", one.prototypes, one.of);
            table.add_row([&one.identity, &one.taken_for, &share]);
        }
        output.line(table)?;
    }
    output.line(format_args!("\nperhaps several persons: {}", count("merged")))?;
    if !report.merged.is_empty() {
        let mut table = table(["identity", "groups", "best score between"]);
        for one in &report.merged {
            let sizes: Vec<String> = one.groups.iter().map(|group| group.len().to_string()).collect();
            table.add_row([one.identity.clone(), sizes.join(" + "), format!("{:.6}", one.between)]);
        }
        output.line(table)?;
    }
    output.line(format_args!("\nnearest pairs of persons: {}", count("confusable")))?;
    let mut table = table(["identity", "identity", "score", "prototypes"]);
    for one in &report.confusable {
        let [a, b] = &one.identities;
        table.add_row([a.clone(), b.clone(), format!("{:.6}", one.score), one.prototype_ids.join(", ")]);
    }
    Ok(output.line(table)?)
}

fn doubts_table(doubts: &[Doubtful]) -> comfy_table::Table {
    let mut table = table(["prototype", "nearest of its own", "nearest other", "without it"]);
    let place = |place: &Option<Place>| {
        let text = |p: &Place| format!("{}/{} {:.6}", p.identity, p.prototype_id, p.score);
        place.as_ref().map_or_else(|| "-".to_owned(), text)
    };
    for Doubtful { doubt, without } in doubts {
        table.add_row([
            format!("{}/{}", doubt.identity, doubt.prototype_id),
            place(&doubt.own),
            place(&doubt.other),
            format!("{} mended, {} broken", without.mended, without.broken),
        ]);
    }
    table
}

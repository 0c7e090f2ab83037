//! `lookalike validate`: how a gallery does on probes of whom it is known who they are.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::html;
use super::probes::Probes;
use super::{CutArgs, Ready, percent};
use crate::cli::gallery::OneArgs;
use crate::cli::output::{Format, Output, number, table};
use crate::cli::settings::SettingsArgs;
use crate::cli::{FoundWrong, Usage};
use crate::config::{ConfigError, Fallback, OwnSetting, Settings};
use crate::gallery::formats;
use crate::gallery::store::Store;
use crate::quality::ask::Asking;
use crate::quality::compare::Agreement;
use crate::quality::validate::{Case, Counts};
use crate::telemetry;

#[derive(Debug, Args)]
pub(in crate::cli) struct ValidateArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Probes that say who they are: .npy with --labels, or JSON lines ({"id","identity","embedding":[...]}). One that carries a prototype's
    /// name is not compared with that prototype. Unset: every prototype of the gallery is asked about, itself left out.
    #[arg(long, value_name = "FILE")]
    probes: Option<PathBuf>,
    /// Who the rows of an .npy are: a line a row, identity/id, or CSV (`identity,prototype_id,source`).
    #[arg(long, value_name = "FILE", requires = "probes")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    cut: CutArgs,
    /// One photo, one person: probes of one group (the key "group" of JSON lines) compete for a person, and who loses is displaced.
    #[arg(long, requires = "probes")]
    unique_in_group: bool,
    /// Which backend answers (backend.kind). Several, comma-separated, are compared with the first; another answer ends with 3.
    #[arg(long, value_name = "cpu|opencl|reference|auto", value_delimiter = ',')]
    backend: Vec<String>,
    /// How many rows of each probe are compared between backends.
    #[arg(long, value_name = "K", default_value_t = 32, value_parser = RangedU64ValueParser::<usize>::new().range(1..=16_384))]
    top_k: usize,
    /// End with 3 where a share is below this: `coverage=0.95` (of the known, named rightly) or `top1=0.99` (nearest is right). May be repeated.
    #[arg(long, value_name = "SHARE=LEAST")]
    fail_under: Vec<Bar>,
    /// End with 3 where a share is above this: `false_positives=0.01` (of the strangers, named) or `wrong=0` (of the known, named as another). May
    /// be repeated.
    #[arg(long, value_name = "SHARE=MOST")]
    fail_over: Vec<Bar>,
    /// Write a report with pictures here, one HTML file that needs no other.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How the report looks; jsonl is every probe, the others list those that did not come out right.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// A share that a report tells, and where it may end.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    share: Share,
    at: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Coverage,
    Top1,
    FalsePositives,
    Wrong,
}

impl Share {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Coverage, "coverage"),
        (Self::Top1, "top1"),
        (Self::FalsePositives, "false_positives"),
        (Self::Wrong, "wrong"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(share, _)| *share == self).map_or("", |(_, name)| name)
    }

    fn of(self, counts: &Counts) -> Option<f64> {
        match self {
            Self::Coverage => counts.coverage(),
            Self::Top1 => counts.top1(),
            Self::FalsePositives => counts.false_positives(),
            Self::Wrong => counts.wrong(),
        }
    }
}

impl FromStr for Bar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected coverage, top1, false_positives or wrong, = and a number from 0 to 1, got {text:?}"
            )
        };
        let (name, at) = text.split_once('=').ok_or_else(expected)?;
        let share = Share::ALL.iter().find(|(_, known)| *known == name).ok_or_else(expected)?.0;
        let at: f64 = at.parse().map_err(|_| expected())?;
        if (0.0..=1.0).contains(&at) { Ok(Self { share, at }) } else { Err(expected()) }
    }
}

/// What is reported.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) gallery: String,
    generation: u64,
    backend: &'static str,
    /// Whether the gallery's own prototypes were asked about.
    leave_one_out: bool,
    pub(super) prototypes: usize,
    pub(super) identities: usize,
    /// Prototypes that were left out of the comparison with themselves.
    left_out: usize,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) coverage: Option<f64>,
    pub(super) top1: Option<f64>,
    pub(super) wrong: Option<f64>,
    pub(super) false_positives: Option<f64>,
    /// Each probe that did not come out right.
    pub(super) cases: Vec<Case>,
    /// The other backends against the first.
    pub(super) backends: Vec<Agreement>,
    /// Bars that were missed.
    pub(super) missed: Vec<String>,
}

pub(in crate::cli) fn run(
    settings: &SettingsArgs,
    args: ValidateArgs,
    output: &mut Output,
) -> anyhow::Result<()> {
    let cut = args.cut.parse()?;
    let of_backends = settings_of(settings, &args.backend)?;
    telemetry::init(&of_backends[0].log)?;
    let folder = args.gallery.folder.path(settings)?;
    let load = || Store::open_read_only(&folder)?.snapshot(&args.gallery.gallery);
    let probes = match &args.probes {
        Some(path) => Probes::read(path, args.labels.as_deref(), &load()?)?,
        None => Probes::of_gallery(&load()?),
    };
    if args.unique_in_group && !probes.are_grouped() {
        return Err(Usage("--unique-in-group: expected probes with a group, got none".to_owned()).into());
    }
    let runtime = crate::cli::runtime()?;
    let mut answered = Vec::new();
    for settings in &of_backends {
        let ready = Ready::new(settings, load()?)?;
        let asking = Asking { unique_in_group: args.unique_in_group, ..ready.asking(cut) };
        let depth = (of_backends.len() > 1).then_some(args.top_k);
        answered.push((runtime.block_on(probes.ask(&asking, depth))?, ready));
    }
    let (first, ready) = &answered[0];
    let snapshot = &ready.snapshot;
    let judged = probes.labels.iter().zip(&first.recognitions);
    let cases: Vec<Case> =
        judged.map(|(label, recognition)| Case::judge(snapshot, label, recognition)).collect();
    let others = answered[1..].iter();
    let backends =
        others.map(|(answers, ready)| Agreement::of(snapshot, ready.backend(), first, answers)).collect();
    let report = report(&args, (ready, &probes), &cases, backends);
    // What was found is told, whatever becomes of the page.
    let written = args
        .html
        .as_deref()
        .map_or(Ok(()), |path| formats::write_whole(path, html::page(&report, &cases).as_bytes()));
    match args.format {
        Format::Json => output.json(&report)?,
        Format::Jsonl => cases.iter().try_for_each(|case| output.json_line(case))?,
        Format::Table => show(&report, output)?,
    }
    written?;
    let differing = report.backends.iter().filter(|other| !other.is_complete()).count();
    let wrong = report
        .missed
        .iter()
        .cloned()
        .chain(
            (report.prototypes == 0)
                .then(|| format!("gallery {:?} is empty: nobody can be recognised", report.gallery)),
        )
        .chain((differing > 0).then(|| "backends answered differently".to_owned()));
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(FoundWrong(wrong.join("; ")).into()) }
}

/// The settings of each backend, the configured one where none is named. Another than the named one answers for it nowhere.
fn settings_of(settings: &SettingsArgs, backends: &[String]) -> Result<Vec<Settings>, ConfigError> {
    if backends.is_empty() {
        return Ok(vec![settings.load([])?]);
    }
    let of = |kind: &String| {
        let mut settings = settings
            .load([OwnSetting { origin: "flag --backend", setting: format!("backend.kind={kind}") }])?;
        settings.backend.fallback = Fallback::Fail;
        Ok(settings)
    };
    backends.iter().map(of).collect()
}

fn report(
    args: &ValidateArgs,
    (ready, probes): (&Ready, &Probes),
    cases: &[Case],
    backends: Vec<Agreement>,
) -> Report {
    let counts = Counts::of(cases);
    let missed = |bars: &[Bar], is_missed: fn(f64, f64) -> bool, word: &str| -> Vec<String> {
        let missed = bars.iter().filter_map(|bar| {
            let got = bar.share.of(&counts);
            let missed = got.is_none_or(|got| is_missed(got, bar.at));
            missed.then(|| format!("{}: expected at {word} {}, got {}", bar.share.name(), bar.at, shown(got)))
        });
        missed.collect()
    };
    let snapshot = &ready.snapshot;
    Report {
        gallery: snapshot.profile().name.clone(),
        generation: snapshot.profile().generation,
        backend: ready.backend(),
        leave_one_out: args.probes.is_none(),
        prototypes: snapshot.row_count(),
        identities: snapshot.identity_count(),
        left_out: probes.labels.iter().map(|label| label.own_rows.len()).sum(),
        coverage: counts.coverage(),
        top1: counts.top1(),
        wrong: counts.wrong(),
        false_positives: counts.false_positives(),
        counts,
        cases: cases.iter().filter(|case| !case.outcome.is_right()).cloned().collect(),
        backends,
        missed: [
            missed(&args.fail_under, |got, at| got < at, "least"),
            missed(&args.fail_over, |got, at| got > at, "most"),
        ]
        .concat(),
    }
}

fn shown(share: Option<f64>) -> String {
    share.map_or_else(|| "no probe to measure it on".to_owned(), |share| share.to_string())
}

fn show(report: &Report, output: &mut Output) -> anyhow::Result<()> {
    let Report { counts, .. } = report;
    let mut known = table([
        "known probes",
        "prototypes",
        "recognized",
        "below threshold",
        "ambiguous",
        "displaced",
        "wrong identity",
        "coverage",
        "nearest right",
    ]);
    known.add_row([
        counts.known.to_string(),
        report.prototypes.to_string(),
        counts.recognized.to_string(),
        counts.below_threshold.to_string(),
        counts.ambiguous.to_string(),
        counts.displaced.to_string(),
        counts.wrong_identity.to_string(),
        percent(report.coverage),
        percent(report.top1),
    ]);
    output.line(known)?;
    let mut strangers = table(["strangers", "named", "false positives"]);
    strangers.add_row([
        counts.strangers.to_string(),
        counts.strangers_named.to_string(),
        percent(report.false_positives),
    ]);
    output.line(strangers)?;
    if !report.cases.is_empty() {
        output.line(cases_table(&report.cases))?;
    }
    if !report.backends.is_empty() {
        output.line(backends_table(report))?;
    }
    Ok(())
}

fn cases_table(cases: &[Case]) -> comfy_table::Table {
    let mut table = table(["probe", "identity", "outcome", "score", "best", "runner-up", "margin"]);
    for case in cases {
        let name = |place: &Option<crate::quality::validate::Place>| {
            place.as_ref().map_or_else(|| "-".to_owned(), |p| format!("{}/{}", p.identity, p.prototype_id))
        };
        table.add_row([
            case.probe.clone(),
            case.identity.clone(),
            case.outcome.as_str().to_owned(),
            number(case.score),
            name(&case.best),
            name(&case.runner_up),
            number(case.margin),
        ]);
    }
    table
}

fn backends_table(report: &Report) -> comfy_table::Table {
    let header = [
        "against",
        "top-1 differs",
        "decision differs",
        "served alike",
        "raw alike",
        "raw, left out",
        "largest error",
    ];
    let mut table = table(header);
    for other in &report.backends {
        let (whole, rest) = (other.positions, other.positions_left_out);
        table.add_row([
            format!("{}: {}", report.backend, other.backend),
            other.top1_differing.to_string(),
            other.decisions_differing.to_string(),
            format!("{} of {}", whole.served, whole.of),
            format!("{} of {}", whole.raw, whole.of),
            format!("{} of {}", rest.raw, rest.of),
            format!("{:.3e}", other.largest_error),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_named_shares_from_0_to_1() {
        assert_eq!("coverage=0.95".parse(), Ok(Bar { share: Share::Coverage, at: 0.95 }));
        assert_eq!("wrong=0".parse(), Ok(Bar { share: Share::Wrong, at: 0.0 }));
        for bad in ["coverage", "coverage=", "coverage=1.5", "cover=0.5", "top1=NaN"] {
            assert!(bad.parse::<Bar>().is_err(), "{bad}");
        }
    }
}

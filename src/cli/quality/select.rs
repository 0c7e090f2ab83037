//! `lookalike select`: which prototypes to keep of each person.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::{CutArgs, FacesArgs, Ready, Steps, percent};
use crate::cli::output::{Format, Output, table};
use crate::cli::settings::SettingsArgs;
use crate::domain::{Margin, Origin, Threshold};
use crate::gallery::store::{Import, ImportOptions, Store, StoreError};
use crate::gallery::{Identity, Place, PrototypeRecord, Snapshot, formats};
use crate::quality::select::{self, Choice, Plan, Selection};
use crate::quality::standing::standings;
use crate::quality::validate::{Outcome, share};
use crate::telemetry;

#[derive(Debug, Args)]
pub(in crate::cli) struct SelectArgs {
    #[command(flatten)]
    faces: FacesArgs,
    #[command(flatten)]
    cut: CutArgs,
    /// Most prototypes of a person.
    #[arg(long, value_name = "P", default_value_t = 5, value_parser = count())]
    prototypes: usize,
    /// Most of them that are medoids; the others are added one by one, each for what it gains.
    #[arg(long, value_name = "M", default_value_t = 3, value_parser = count())]
    medoids: usize,
    /// List every prototype chosen with its reason, not just the persons.
    #[arg(long)]
    choices: bool,
    /// Write what is chosen here, as JSON lines that `gallery import` reads.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put what is chosen into a new gallery of the data folder, with the model, thresholds and margins of the one that it is chosen from.
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// How the report looks; jsonl is one person a line.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=256)
}

/// What is reported.
#[derive(Debug, Serialize)]
struct Report {
    gallery: String,
    embeddings: usize,
    identities: usize,
    prototypes: usize,
    #[serde(flatten)]
    counts: Counts,
    coverage: Option<f64>,
    selected: Vec<Selected>,
}

/// What the embeddings of persons with more than one come to, each with its own row left out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    probes: usize,
    recognized: usize,
    below_threshold: usize,
    ambiguous: usize,
    wrong_identity: usize,
}

/// One person.
#[derive(Debug, Serialize)]
struct Selected {
    identity: String,
    embeddings: usize,
    /// Embeddings that were compared with each other; fewer than there are for a person of very many.
    considered: usize,
    prototypes: usize,
    #[serde(flatten)]
    counts: Counts,
    coverage: Option<f64>,
    choices: Vec<Chosen>,
}

/// One prototype.
#[derive(Debug, Serialize)]
struct Chosen {
    prototype_id: String,
    index: u64,
    source: String,
    origin: &'static str,
    /// Embeddings recognised with it and not with those before it.
    gain: usize,
    /// Embeddings to which it is the nearest of the chosen, itself among them.
    nearest_to: usize,
}

pub(in crate::cli) fn run(
    settings: &SettingsArgs,
    args: SelectArgs,
    output: &mut Output,
) -> anyhow::Result<()> {
    let cut = args.cut.parse()?;
    let loaded = settings.load([])?;
    telemetry::init(&loaded.log)?;
    if let Some(name) = &args.into {
        refuse_existing(&args.faces.gallery.folder.path(settings)?, name)?;
    }
    let ready = Ready::new(&loaded, args.faces.snapshot(settings)?)?;
    let (asking, snapshot) = (ready.asking(cut), &ready.snapshot);
    let steps = Steps::new("comparing");
    let standings =
        crate::cli::runtime()?.block_on(standings(&asking, &mut |done, of| steps.show(done, of)))?;
    drop(steps);
    let plan = Plan { prototypes: args.prototypes, medoids: args.medoids };
    let selections = select::select(snapshot, &standings, |place| asking.cut(place), plan);
    // What was found is told, whatever becomes of the file.
    let written = args.out.as_deref().map_or(Ok(()), |path| {
        let choices = selections.iter().flat_map(|selection| &selection.choices);
        formats::write_jsonl(path, choices.map(|choice| line(snapshot, choice)))
    });
    if let Some(name) = &args.into {
        import(settings, &args, (snapshot, &selections, name), cut)?;
    }
    let report = Report::of(snapshot, &selections);
    match args.format {
        Format::Json => output.json(&report)?,
        Format::Jsonl => report.selected.iter().try_for_each(|one| output.json_line(one))?,
        Format::Table => show(&report, args.choices, output)?,
    }
    Ok(written?)
}

/// Refuses to mix what is chosen with what is there.
fn refuse_existing(folder: &std::path::Path, name: &str) -> anyhow::Result<()> {
    match Store::open_read_only(folder).and_then(|store| store.gallery(name)) {
        Ok(_) => bail!("--into: expected a new gallery, got {name:?}, which is there already"),
        Err(StoreError::UnknownGallery(_) | StoreError::NoFolder(_) | StoreError::NoDatabase(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn line<'a>(snapshot: &'a Snapshot, choice: &Choice) -> formats::ExportLine<'a> {
    let row = snapshot.row(choice.row);
    formats::ExportLine {
        id: row.prototype_id.read(),
        identity: snapshot.identity(row.identity).name.read(),
        source: row.source.read(),
        origin: choice.origin.as_str(),
        embedding: snapshot.matrix().row(choice.row),
    }
}

fn import(
    settings: &SettingsArgs,
    args: &SelectArgs,
    (snapshot, selections, name): (&Snapshot, &[Selection], &str),
    (threshold, min_margin): (Option<Threshold>, Option<Margin>),
) -> anyhow::Result<()> {
    let profile = snapshot.profile();
    let place = Place::file(std::path::Path::new(&profile.name));
    let record = |choice: &Choice| {
        let line = line(snapshot, choice);
        PrototypeRecord {
            identity: line.identity,
            id: line.id,
            source: line.source,
            origin: choice.origin,
            embedding: line.embedding.to_vec(),
            place: place.row(snapshot.index(choice.row)),
        }
    };
    let options = ImportOptions {
        model_id: (!profile.model_id.is_empty()).then(|| profile.model_id.clone()),
        norm: Some(profile.norm),
        threshold: threshold.or(profile.threshold),
        min_margin: min_margin.or(profile.min_margin),
        identities: own_limits(snapshot, (threshold, min_margin)),
        generation: Some(0),
    };
    let records = selections.iter().flat_map(|selection| selection.choices.iter().map(record)).collect();
    let mut store = Store::create_or_open(&args.faces.gallery.folder.path(settings)?)?;
    store.import(Import { gallery: name, options, records }, &mut |_| ())?;
    Ok(())
}

/// The thresholds and margins of identities, as far as those under which was chosen did not go over them.
fn own_limits(
    snapshot: &Snapshot,
    (threshold, min_margin): (Option<Threshold>, Option<Margin>),
) -> Vec<Identity> {
    let kept = |one: Identity| Identity {
        threshold: one.threshold.filter(|_| threshold.is_none()),
        min_margin: one.min_margin.filter(|_| min_margin.is_none()),
        ..one
    };
    snapshot.own_limits().into_iter().map(kept).collect()
}

impl Counts {
    fn of(selection: &Selection) -> Self {
        if selection.outcomes.len() < 2 {
            return Self::default();
        }
        Self {
            probes: selection.outcomes.len(),
            recognized: selection.count(Outcome::Recognized),
            below_threshold: selection.count(Outcome::BelowThreshold),
            ambiguous: selection.count(Outcome::Ambiguous),
            wrong_identity: selection.count(Outcome::WrongIdentity),
        }
    }

    fn add(&mut self, other: &Self) {
        self.probes += other.probes;
        self.recognized += other.recognized;
        self.below_threshold += other.below_threshold;
        self.ambiguous += other.ambiguous;
        self.wrong_identity += other.wrong_identity;
    }

    fn cells(&self) -> [String; 5] {
        [
            self.recognized.to_string(),
            self.below_threshold.to_string(),
            self.ambiguous.to_string(),
            self.wrong_identity.to_string(),
            percent(share(self.recognized, self.probes)),
        ]
    }
}

impl Report {
    fn of(snapshot: &Snapshot, selections: &[Selection]) -> Self {
        let selected: Vec<Selected> =
            selections.iter().map(|selection| Selected::of(snapshot, selection)).collect();
        let mut counts = Counts::default();
        for one in &selected {
            counts.add(&one.counts);
        }
        Self {
            gallery: snapshot.profile().name.clone(),
            embeddings: snapshot.row_count(),
            identities: selected.len(),
            prototypes: selected.iter().map(|one| one.prototypes).sum(),
            coverage: share(counts.recognized, counts.probes),
            counts,
            selected,
        }
    }
}

impl Selected {
    fn of(snapshot: &Snapshot, selection: &Selection) -> Self {
        let choice = |choice: &Choice| {
            let row = snapshot.row(choice.row);
            Chosen {
                prototype_id: row.prototype_id.read(),
                index: row.index,
                source: row.source.read(),
                origin: choice.origin.as_str(),
                gain: choice.gain,
                nearest_to: choice.nearest_to,
            }
        };
        Self {
            identity: snapshot.identity(selection.identity).name.read(),
            embeddings: selection.embeddings,
            considered: selection.outcomes.len(),
            prototypes: selection.choices.len(),
            counts: Counts::of(selection),
            coverage: selection.coverage(),
            choices: selection.choices.iter().map(choice).collect(),
        }
    }

    /// How many of the choices are medoids, and how many were added.
    fn shares(&self) -> String {
        let medoids = self.choices.iter().filter(|one| one.origin == Origin::ClusterMedoid.as_str()).count();
        format!("{} ({medoids} medoid, {} greedy)", self.prototypes, self.prototypes - medoids)
    }
}

fn show(report: &Report, choices: bool, output: &mut Output) -> anyhow::Result<()> {
    if choices {
        let mut table = table(["identity", "prototype", "reason", "gain", "nearest to"]);
        for one in &report.selected {
            for choice in &one.choices {
                table.add_row([
                    one.identity.clone(),
                    choice.prototype_id.clone(),
                    choice.origin.to_owned(),
                    format!("+{}", choice.gain),
                    choice.nearest_to.to_string(),
                ]);
            }
        }
        output.line(table)?;
    }
    let mut table = table([
        "identity",
        "embeddings",
        "prototypes",
        "recognized",
        "below threshold",
        "ambiguous",
        "wrong identity",
        "coverage",
    ]);
    for one in &report.selected {
        let cells = [one.identity.clone(), one.embeddings.to_string(), one.shares()];
        table.add_row(cells.into_iter().chain(one.counts.cells()));
    }
    let all = ["all".to_owned(), report.embeddings.to_string(), report.prototypes.to_string()];
    table.add_row(all.into_iter().chain(report.counts.cells()));
    Ok(output.line(table)?)
}

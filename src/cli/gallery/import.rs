//! `lookalike gallery import`.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::OneArgs;
use super::conflicts::{self, Found, OnConflict};
use crate::cli::output::{Output, PlainFormat};
use crate::cli::settings::SettingsArgs;
use crate::cli::{FoundWrong, Usage};
use crate::domain::{Margin, NormPolicy, OutOfRange, Threshold};
use crate::gallery::formats;
use crate::gallery::store::{Import, ImportOptions, ImportReport, Store};
use crate::gallery::{Progress, PrototypeRecord, Stage};
use crate::quality::conflict::Conflict;

#[derive(Debug, Args)]
pub(in crate::cli) struct ImportArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Embeddings: .npy (float rows), or JSON lines ({"id","identity","source","embedding":[...]}).
    #[arg(value_name = "FILE")]
    embeddings: PathBuf,
    /// Who the rows of an .npy are: a line a row, identity/prototype-id, or CSV (`identity,prototype_id,source`).
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// The model that made the embeddings; a new gallery keeps it.
    #[arg(long, value_name = "NAME")]
    model_id: Option<String>,
    /// A new gallery refuses vectors that are not of unit length.
    #[arg(long)]
    require_unit: bool,
    /// A new gallery's own threshold, -1 to 1.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// A new gallery's own least margin, 0 to 2.
    #[arg(long, value_name = "DIFFERENCE")]
    min_margin: Option<f32>,
    /// What happens when a new prototype is as near to another person as to its own, or nearer; accept does not look.
    #[arg(long, value_enum, default_value = "accept")]
    on_conflict: OnConflict,
    /// How the report looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

pub(super) fn run(settings: &SettingsArgs, args: ImportArgs, output: &mut Output) -> anyhow::Result<()> {
    let name = args.gallery.gallery.clone();
    let folder = args.gallery.folder.path(settings)?;
    let options = ImportOptions {
        model_id: args.model_id,
        norm: args.require_unit.then_some(NormPolicy::RequireUnit),
        threshold: args.threshold.map(Threshold::parse).transpose().map_err(usage("--threshold"))?,
        min_margin: args.min_margin.map(Margin::parse).transpose().map_err(usage("--min-margin"))?,
        ..ImportOptions::default()
    };
    let files = (args.embeddings.as_path(), args.labels.as_deref());
    let mut found = Found::default();
    let done = import_files((&folder, &name), files, options, &mut |records, options| {
        if args.on_conflict != OnConflict::Accept {
            found = conflicts::find(settings, (&folder, &name), records, options)?;
            // What was looked at is what is written to.
            options.generation = Some(found.generation);
        }
        if args.on_conflict == OnConflict::Reject && !found.conflicts.is_empty() {
            let told = conflicts::summary(&found.conflicts);
            return Err(FoundWrong(format!("nothing was imported: {told}")).into());
        }
        Ok(())
    });
    match (done, args.format) {
        (Err(error), PlainFormat::Json) if error.is::<FoundWrong>() => {
            output.json(&Told { report: &rejected(name, &found), conflicts: &found.conflicts })?;
            Err(error)
        }
        (Err(error), _) => Err(error),
        (Ok(report), PlainFormat::Json) => {
            output.json(&Told { report: &report, conflicts: &found.conflicts })
        }
        (Ok(report), PlainFormat::Table) => {
            for conflict in &found.conflicts {
                output.line(conflicts::sentence(conflict))?;
            }
            let verb = if report.created { "made with" } else { "grown by" };
            Ok(output.line(format_args!(
                "{}: {verb} {} prototypes ({} normalised), {} new identities; holds {}, generation {}",
                report.gallery,
                report.prototypes,
                report.normalised,
                report.identities,
                report.total,
                report.generation,
            ))?)
        }
    }
}

/// The report of an import that changed nothing.
fn rejected(gallery: String, found: &Found) -> ImportReport {
    ImportReport {
        gallery,
        created: false,
        prototypes: 0,
        identities: 0,
        normalised: 0,
        total: found.held as u64,
        generation: found.generation,
    }
}

/// As JSON.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    report: &'a ImportReport,
    conflicts: &'a [Conflict],
}

/// A flag whose value lies outside its range.
fn usage(flag: &str) -> impl Fn(OutOfRange) -> Usage {
    move |error| Usage(format!("{flag}: {error}"))
}

/// Looks at what was read before any of it is written, and may say more of the gallery; an error of it ends the import.
pub(in crate::cli) type Check<'a> =
    &'a mut dyn FnMut(&[PrototypeRecord], &mut ImportOptions) -> anyhow::Result<()>;

/// Reads the files, embeddings and labels, and adds what they hold to a gallery of the data folder.
pub(in crate::cli) fn import_files(
    (folder, gallery): (&Path, &str),
    (embeddings, labels): (&Path, Option<&Path>),
    mut options: ImportOptions,
    check: Check<'_>,
) -> anyhow::Result<ImportReport> {
    let mut bar = Bar::default();
    let records = formats::read_prototypes(embeddings, labels, &mut |progress| bar.show(progress))?;
    check(&records, &mut options)?;
    let mut store = Store::create_or_open(folder)?;
    let report = store.import(Import { gallery, options, records }, &mut |progress| bar.show(progress))?;
    bar.finish();
    Ok(report)
}

/// A bar on stderr, where that is a terminal.
#[derive(Default)]
struct Bar(Option<(Stage, ProgressBar)>);

impl Bar {
    fn show(&mut self, progress: Progress) {
        let bar = match &self.0 {
            Some((stage, bar)) if *stage == progress.stage => bar,
            Some(_) | None => {
                self.finish();
                let (name, style) = match progress.stage {
                    Stage::Reading => ("reading", "{msg} {wide_bar} {bytes}/{total_bytes} {eta}"),
                    Stage::Storing => ("storing", "{msg} {wide_bar} {pos}/{len} {eta}"),
                };
                let bar = ProgressBar::new(progress.total).with_message(name);
                if let Ok(style) = ProgressStyle::with_template(style) {
                    bar.set_style(style);
                }
                &self.0.insert((progress.stage, bar)).1
            }
        };
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }

    fn finish(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another import comes between the look at the gallery and the change of it.
    #[test]
    fn what_changed_since_it_was_looked_at_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            let line = format!("{{\"id\": \"1\", \"identity\": \"{name}\", \"embedding\": [1.0, 0.0]}}\n");
            std::fs::write(&path, line).unwrap();
            path
        };
        let (data, ann, bob) = (folder.path().join("data"), file("ann"), file("bob"));
        let place = (data.as_path(), "g");
        let late = import_files(place, (&ann, None), ImportOptions::default(), &mut |_, options| {
            options.generation = Some(0);
            import_files(place, (&bob, None), ImportOptions::default(), &mut |_, _| Ok(())).map(drop)
        });
        let told = late.unwrap_err().to_string();
        assert!(told.contains("expected generation 0, got 1: somebody else changed it meanwhile"), "{told}");
        assert_eq!(Store::open_read_only(&data).unwrap().gallery("g").unwrap().prototypes, 1);
    }
}

//! `lookalike gallery list`.

use clap::Args;
use serde::Serialize;

use super::FolderArgs;
use crate::cli::output::{Output, PlainFormat, number, table};
use crate::cli::settings::SettingsArgs;
use crate::domain::{Margin, Threshold};
use crate::gallery::store::{GallerySummary, Store};

#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// How the list looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

pub(super) fn run(settings: &SettingsArgs, args: ListArgs, output: &mut Output) -> anyhow::Result<()> {
    let galleries = Store::open_read_only(&args.folder.path(settings)?)?.galleries()?;
    match args.format {
        PlainFormat::Json => output.json(&List { galleries: galleries.iter().map(Summary::of).collect() }),
        PlainFormat::Table => {
            let mut table = table([
                "gallery",
                "dim",
                "model",
                "prototypes",
                "identities",
                "generation",
                "threshold",
                "min margin",
            ]);
            for gallery in &galleries {
                let profile = &gallery.profile;
                table.add_row([
                    profile.name.clone(),
                    profile.dim.to_string(),
                    profile.model_id.clone(),
                    gallery.prototypes.to_string(),
                    gallery.identities.to_string(),
                    profile.generation.to_string(),
                    number(profile.threshold.map(Threshold::get)),
                    number(profile.min_margin.map(Margin::get)),
                ]);
            }
            Ok(output.line(table)?)
        }
    }
}

/// As JSON.
#[derive(Serialize)]
struct List<'a> {
    galleries: Vec<Summary<'a>>,
}

#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    dim: usize,
    model_id: &'a str,
    generation: u64,
    prototypes: u64,
    identities: u64,
    threshold: Option<Threshold>,
    min_margin: Option<Margin>,
    created_ms: i64,
}

impl<'a> Summary<'a> {
    fn of(gallery: &'a GallerySummary) -> Self {
        let profile = &gallery.profile;
        Self {
            name: &profile.name,
            dim: profile.dim,
            model_id: &profile.model_id,
            generation: profile.generation,
            prototypes: gallery.prototypes,
            identities: gallery.identities,
            threshold: profile.threshold,
            min_margin: profile.min_margin,
            created_ms: gallery.created_ms,
        }
    }
}

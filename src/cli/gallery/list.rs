//! `lookalike gallery list`.

use clap::Args;
use serde_json::{Value, json};

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
        PlainFormat::Json => {
            let galleries: Vec<Value> = galleries.iter().map(summary_json).collect();
            output.json(&json!({ "galleries": galleries }))
        }
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

fn summary_json(gallery: &GallerySummary) -> Value {
    let profile = &gallery.profile;
    json!({
        "name": profile.name,
        "dim": profile.dim,
        "model_id": profile.model_id,
        "generation": profile.generation,
        "prototypes": gallery.prototypes,
        "identities": gallery.identities,
        "threshold": profile.threshold.map(Threshold::get),
        "min_margin": profile.min_margin.map(Margin::get),
        "created_ms": gallery.created_ms,
    })
}

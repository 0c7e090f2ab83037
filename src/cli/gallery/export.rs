//! `lookalike gallery export`.

use std::path::PathBuf;

use clap::Args;

use super::OneArgs;
use crate::cli::output::Output;
use crate::cli::settings::SettingsArgs;
use crate::gallery::formats;
use crate::gallery::store::Store;

#[derive(Debug, Args)]
pub(in crate::cli) struct ExportArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Where the embeddings go, rows in index order; the labels go beside them under the ending .csv.
    #[arg(value_name = "OUT.npy")]
    out: PathBuf,
}

pub(super) fn run(settings: &SettingsArgs, args: ExportArgs, output: &mut Output) -> anyhow::Result<()> {
    let store = Store::open_read_only(&args.gallery.folder.path(settings)?)?;
    let (profile, prototypes) = store.export(&args.gallery.gallery)?;
    let files = formats::write_prototypes(&args.out, profile.dim, &prototypes)?;
    Ok(output.line(format_args!(
        "{} prototypes of {} (generation {}) in {}, labels in {}",
        prototypes.len(),
        profile.name,
        profile.generation,
        files.vectors.display(),
        files.labels.display(),
    ))?)
}

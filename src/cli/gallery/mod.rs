//! `lookalike gallery`: the galleries of a data folder.

mod conflicts;
mod export;
mod import;
mod list;
mod remove;
mod show;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) use import::import_files;

use super::output::Output;
use super::settings::SettingsArgs;
use crate::config::ConfigError;
use crate::gallery::DEFAULT_GALLERY;

#[derive(Debug, Subcommand)]
pub(super) enum GalleryCommand {
    /// Add prototypes from a file, all or none.
    Import(import::ImportArgs),
    /// List the galleries.
    List(list::ListArgs),
    /// Show a gallery's identities, or the prototypes of one.
    Show(show::ShowArgs),
    /// Write a gallery's embeddings (.npy) and labels (.csv).
    Export(export::ExportArgs),
    /// Remove identities, prototypes, sources or the whole gallery, and erase them from the disk.
    Remove(remove::RemoveArgs),
    /// Check the data folder: structure, checksums, norms, counters.
    Verify(verify::VerifyArgs),
}

/// The data folder.
#[derive(Debug, Args)]
pub(super) struct FolderArgs {
    /// Data folder; unset: storage.path of the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl FolderArgs {
    pub(super) fn path(&self, settings: &SettingsArgs) -> Result<PathBuf, ConfigError> {
        match &self.data {
            Some(path) => Ok(path.clone()),
            None => Ok(settings.load([])?.storage.path),
        }
    }
}

/// One gallery of the data folder.
#[derive(Debug, Args)]
pub(super) struct OneArgs {
    #[command(flatten)]
    pub(super) folder: FolderArgs,
    /// Which gallery.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GALLERY)]
    pub(super) gallery: String,
}

pub(super) fn run(
    settings: &SettingsArgs,
    command: GalleryCommand,
    output: &mut Output,
) -> anyhow::Result<()> {
    match command {
        GalleryCommand::Import(args) => import::run(settings, args, output),
        GalleryCommand::List(args) => list::run(settings, args, output),
        GalleryCommand::Show(args) => show::run(settings, args, output),
        GalleryCommand::Export(args) => export::run(settings, args, output),
        GalleryCommand::Remove(args) => remove::run(settings, args, output),
        GalleryCommand::Verify(args) => verify::run(settings, args, output),
    }
}

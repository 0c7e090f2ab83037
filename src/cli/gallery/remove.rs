//! `lookalike gallery remove`.

use clap::Args;

use super::OneArgs;
use crate::cli::output::Output;
use crate::cli::settings::SettingsArgs;
use crate::gallery::store::{Erasure, Selection, Store};

#[derive(Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    #[command(flatten)]
    gallery: OneArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

/// What goes; one kind at a time.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct SelectionArgs {
    /// This identity with all its prototypes; may be repeated.
    #[arg(long, value_name = "NAME")]
    identity: Vec<String>,
    /// This prototype, as identity/prototype-id; may be repeated.
    #[arg(long, value_name = "IDENTITY/ID")]
    prototype: Vec<String>,
    /// All prototypes from this source; may be repeated.
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// The whole gallery.
    #[arg(long)]
    everything: bool,
}

impl From<SelectionArgs> for Selection {
    fn from(args: SelectionArgs) -> Self {
        if args.everything {
            Self::Everything
        } else if !args.identity.is_empty() {
            Self::Identities(args.identity)
        } else if !args.prototype.is_empty() {
            Self::Prototypes(args.prototype)
        } else {
            Self::Sources(args.source)
        }
    }
}

pub(super) fn run(settings: &SettingsArgs, args: RemoveArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut store = Store::open(&args.gallery.folder.path(settings)?)?;
    let name = args.gallery.gallery;
    let report = store.remove(&name, &args.selection.into())?;
    let generation = report
        .generation
        .map_or_else(|| "the gallery is gone".to_owned(), |generation| format!("generation {generation}"));
    let erasure = match report.erasure {
        Erasure::Complete => "erased from the disk",
        Erasure::Pending => "erased from the disk when other processes have closed the data folder",
    };
    Ok(output.line(format_args!(
        "{name}: removed {} prototypes, {} identities; {generation}; {erasure}",
        report.prototypes, report.identities
    ))?)
}

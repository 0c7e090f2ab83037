//! `lookalike gallery verify`.

use clap::Args;

use super::FolderArgs;
use crate::cli::FoundWrong;
use crate::cli::output::Output;
use crate::cli::settings::SettingsArgs;
use crate::gallery::store;

#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

pub(super) fn run(settings: &SettingsArgs, args: VerifyArgs, output: &mut Output) -> anyhow::Result<()> {
    let report = store::verify(&args.folder.path(settings)?)?;
    for fault in &report.faults {
        output.line(fault)?;
    }
    let faults = report.faults.len() as u64 + report.more_faults;
    output.line(format_args!(
        "{} galleries, {} prototypes checked: {}",
        report.galleries,
        report.prototypes,
        if faults == 0 { "sound".to_owned() } else { format!("{faults} faults") }
    ))?;
    if faults == 0 { Ok(()) } else { Err(FoundWrong(format!("{faults} faults")).into()) }
}

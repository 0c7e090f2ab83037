//! `lookalike doctor`: one page of what was found on this machine, and what to do about each trouble.
//!
//! [`surroundings`] looks at files, [`facts`] asks drivers and measures, [`troubles`] judges (pure), [`page`] shows.

mod facts;
mod page;
mod surroundings;
mod troubles;

use std::path::Path;

use clap::Args;

use super::FoundWrong;
use super::output::{Output, PlainFormat};
use super::settings::SettingsArgs;
use crate::telemetry;
use facts::Facts;
use surroundings::Surroundings;
use troubles::{Trouble, Weight};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How the page looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
    /// Leave out what takes a few seconds: how fast this machine scans and reads memory.
    #[arg(long)]
    no_rates: bool,
}

/// What is on the page.
#[derive(Debug, serde::Serialize)]
struct Page {
    #[serde(flatten)]
    facts: Facts,
    troubles: Vec<Trouble>,
    /// Whether nothing stands in the way of what is configured.
    well: bool,
}

pub(super) fn run(settings: &SettingsArgs, args: DoctorArgs, output: &mut Output) -> anyhow::Result<()> {
    let settings = settings.load([])?;
    telemetry::init(&settings.log)?;
    let surroundings = Surroundings::look(Path::new("/"), |name| std::env::var(name).ok());
    let mut facts = Facts::gather(&settings, surroundings);
    if !args.no_rates {
        facts.measure(&settings)?;
    }
    let troubles = troubles::of(&facts);
    let wrong = troubles.iter().filter(|trouble| trouble.weight == Weight::Wrong).count();
    let page = Page { facts, troubles, well: wrong == 0 };
    match args.format {
        PlainFormat::Json => output.json(&page)?,
        PlainFormat::Table => page::show(&page, output)?,
    }
    if wrong == 0 { Ok(()) } else { Err(FoundWrong(format!("{wrong} things are wrong")).into()) }
}

//! `lookalike gallery show`.

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::OneArgs;
use crate::cli::output::{Output, PlainFormat, number, table};
use crate::cli::settings::SettingsArgs;
use crate::domain::{Margin, Threshold};
use crate::gallery::store::{PrototypeQuery, Store};

/// Prototypes read at a time.
const PAGE: usize = 1000;

#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Show the prototypes of this identity, instead of all identities.
    #[arg(long, value_name = "NAME", conflicts_with = "prototypes")]
    identity: Option<String>,
    /// Show the prototypes of every identity, by index.
    #[arg(long)]
    prototypes: bool,
    /// How the list looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

pub(super) fn run(settings: &SettingsArgs, args: ShowArgs, output: &mut Output) -> anyhow::Result<()> {
    let store = Store::open_read_only(&args.gallery.folder.path(settings)?)?;
    let name = args.gallery.gallery;
    if args.prototypes || args.identity.is_some() {
        show_prototypes(&store, (&name, args.identity.as_deref()), args.format, output)
    } else {
        show_identities(&store, &name, args.format, output)
    }
}

/// As JSON.
#[derive(Serialize)]
struct Identities<'a> {
    gallery: &'a str,
    identities: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    identity: &'a str,
    prototypes: u64,
    threshold: Option<Threshold>,
    min_margin: Option<Margin>,
}

fn show_identities(
    store: &Store,
    gallery: &str,
    format: PlainFormat,
    output: &mut Output,
) -> anyhow::Result<()> {
    let identities = store.identities(gallery)?;
    match format {
        PlainFormat::Json => {
            let rows = identities.iter().map(|one| Row {
                identity: &one.identity.name,
                prototypes: one.prototypes,
                threshold: one.identity.threshold,
                min_margin: one.identity.min_margin,
            });
            output.json(&Identities { gallery, identities: rows.collect() })
        }
        PlainFormat::Table => {
            let mut table = table(["identity", "prototypes", "threshold", "min margin"]);
            for one in &identities {
                table.add_row([
                    one.identity.name.clone(),
                    one.prototypes.to_string(),
                    number(one.identity.threshold.map(Threshold::get)),
                    number(one.identity.min_margin.map(Margin::get)),
                ]);
            }
            Ok(output.line(table)?)
        }
    }
}

fn show_prototypes(
    store: &Store,
    (gallery, identity): (&str, Option<&str>),
    format: PlainFormat,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut prototypes = Vec::new();
    loop {
        let after = prototypes.last().map(|last: &crate::gallery::store::PrototypeSummary| last.index);
        let page = store.prototypes(&PrototypeQuery { gallery, identity, after, limit: PAGE })?;
        let last = page.len() < PAGE;
        prototypes.extend(page);
        if last {
            break;
        }
    }
    if let Some(identity) = identity
        && prototypes.is_empty()
    {
        bail!("gallery {gallery:?} has no identity {identity:?}");
    }
    match format {
        PlainFormat::Json => {
            let rows: Vec<Value> = prototypes
                .iter()
                .map(|one| {
                    json!({
                        "index": one.index,
                        "identity": one.key.identity,
                        "prototype_id": one.key.id,
                        "source": one.source,
                        "origin": one.origin.as_str(),
                        "created_ms": one.created_ms,
                    })
                })
                .collect();
            output.json(&json!({ "gallery": gallery, "prototypes": rows }))
        }
        PlainFormat::Table => {
            let mut table = table(["index", "identity", "prototype", "source", "origin"]);
            for one in &prototypes {
                table.add_row([
                    one.index.to_string(),
                    one.key.identity.clone(),
                    one.key.id.clone(),
                    one.source.clone(),
                    one.origin.to_string(),
                ]);
            }
            Ok(output.line(table)?)
        }
    }
}

//! `lookalike cluster`: groups the probes of a batch that nobody knows.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::{CutArgs, Ready, Steps};
use crate::cli::Usage;
use crate::cli::gallery::OneArgs;
use crate::cli::output::{Format, Output, table};
use crate::cli::settings::SettingsArgs;
use crate::domain::{Embedding, NormPolicy, Origin, Threshold};
use crate::gallery::store::Store;
use crate::gallery::{GalleryProfile, NewRow, Snapshot, SnapshotBuilder, formats};
use crate::quality::cluster::{Clusters, Density, cluster};
use crate::recognize::decision::Decision;
use crate::recognize::{Exclusions, Probe};
use crate::telemetry;

#[derive(Debug, Args)]
pub(in crate::cli) struct ClusterArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Who is to be grouped: .npy (a row a probe) or JSON lines ({"id","embedding":[...]}). Whom the gallery knows is left out.
    #[arg(long, value_name = "FILE")]
    probes: PathBuf,
    /// Group all probes, and ask no gallery.
    #[arg(long)]
    everyone: bool,
    #[command(flatten)]
    cut: CutArgs,
    /// Least score of two probes that are neighbors, -1 to 1: the gallery's threshold unless said. Must be said with --everyone.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    min_score: Option<f32>,
    /// Least probes within reach of one, itself among them, for a group to grow from it.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    min_probes: usize,
    /// How the report looks; jsonl is one probe a line.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// What is reported.
#[derive(Debug, Serialize)]
struct Report {
    probes: usize,
    /// Whom the gallery knows.
    recognized: usize,
    min_score: f32,
    min_probes: usize,
    clusters: Vec<Group>,
    /// Probes that are in no group.
    alone: Vec<String>,
}

/// One group.
#[derive(Debug, Serialize)]
struct Group {
    cluster: usize,
    size: usize,
    /// The one with most neighbors: whom to show.
    typical: String,
    probes: Vec<String>,
}

/// One probe.
#[derive(Debug, Serialize)]
struct Line<'a> {
    probe: &'a str,
    /// Who it is, where the gallery knows.
    identity: Option<&'a str>,
    /// Its group, from 0.
    cluster: Option<u32>,
}

/// The probes of a file.
struct Batch {
    ids: Vec<String>,
    embeddings: Vec<Embedding>,
}

pub(in crate::cli) fn run(
    settings: &SettingsArgs,
    args: ClusterArgs,
    output: &mut Output,
) -> anyhow::Result<()> {
    let cut = args.cut.parse()?;
    let min_score = args.min_score.map(Threshold::parse).transpose();
    let min_score = min_score.map_err(|error| Usage(format!("--min-score: {error}")))?;
    if args.everyone && min_score.is_none() {
        return Err(
            Usage("--everyone: expected --min-score too, since no gallery says one".to_owned()).into()
        );
    }
    let loaded = settings.load([])?;
    telemetry::init(&loaded.log)?;
    let gallery = if args.everyone {
        None
    } else {
        let folder = args.gallery.folder.path(settings)?;
        Some(Store::open_read_only(&folder)?.snapshot(&args.gallery.gallery)?)
    };
    let batch = Batch::read(&args.probes, gallery.as_ref())?;
    let runtime = crate::cli::runtime()?;
    let mut names: Vec<Option<String>> = vec![None; batch.ids.len()];
    let mut least = min_score;
    if let Some(gallery) = gallery {
        let ready = Ready::new(&loaded, gallery)?;
        let (asking, steps) = (ready.asking(cut), Steps::new("recognising"));
        let probe = |at: usize| Probe {
            embedding: batch.embeddings[at].clone(),
            group: String::new(),
            exclude: Exclusions::default(),
        };
        let mut show = |done, of| steps.show(done, of);
        let recognitions = runtime.block_on(asking.recognize(batch.ids.len(), probe, 2, &mut show))?;
        for (name, one) in names.iter_mut().zip(recognitions) {
            if one.verdict.decision == Decision::Recognized {
                let best = one.candidates.first().map(|best| ready.snapshot.identity_of(best.row as usize));
                *name = best.map(|place| ready.snapshot.identity(place).name.read());
            }
        }
        least = least.or(cut.0).or(Some(ready.recognizer.defaults_of(&ready.snapshot).0));
    }
    let strangers: Vec<usize> = (0..names.len()).filter(|&at| names[at].is_none()).collect();
    let density = Density { min_score: least.map_or(1.0, Threshold::get), min_points: args.min_probes };
    let clusters = if strangers.is_empty() {
        Clusters { labels: Vec::new(), neighbors: Vec::new(), count: 0 }
    } else {
        let ready = Ready::new(&loaded, batch.snapshot(&strangers))?;
        let (asking, steps) = (ready.asking((None, None)), Steps::new("comparing"));
        runtime.block_on(cluster(&asking, density, &mut |done, of| steps.show(done, of)))?
    };
    if args.format == Format::Jsonl {
        return lines(&batch, &names, &clusters, output);
    }
    let report = report(&batch, &strangers, &clusters, density);
    match args.format {
        Format::Json => output.json(&report),
        Format::Table | Format::Jsonl => show(&report, output),
    }
}

impl Batch {
    fn read(path: &std::path::Path, gallery: Option<&Snapshot>) -> anyhow::Result<Self> {
        let records = formats::read_probes(path)?;
        let profile = gallery.map(Snapshot::profile);
        let dim = profile.map_or(records[0].embedding.len(), |profile| profile.dim);
        let norm = profile.map_or(NormPolicy::Normalise, |profile| profile.norm);
        let mut batch = Self { ids: Vec::new(), embeddings: Vec::new() };
        for record in records {
            let place = record.place;
            let embedding = Embedding::parse(record.embedding, dim, norm);
            batch.embeddings.push(embedding.with_context(|| format!("{place}: embedding"))?);
            batch.ids.push(record.id);
        }
        Ok(batch)
    }

    /// Some of the probes as rows to scan, in their order.
    fn snapshot(&self, rows: &[usize]) -> Snapshot {
        let dim = self.embeddings[rows[0]].as_slice().len();
        let mut builder = SnapshotBuilder::new(GalleryProfile::named("probes", dim), Vec::new(), rows.len());
        for (index, &row) in (0..).zip(rows) {
            builder.push(NewRow {
                index,
                // Of one identity, rows stand in the order of their indices.
                identity: "probes",
                prototype_id: &self.ids[row],
                source: "",
                origin: Origin::Import,
                embedding: &self.embeddings[row],
            });
        }
        builder.finish()
    }
}

fn lines(
    batch: &Batch,
    names: &[Option<String>],
    clusters: &Clusters,
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut labels = clusters.labels.iter();
    for (probe, name) in batch.ids.iter().zip(names) {
        let cluster = if name.is_none() { labels.next().copied().flatten() } else { None };
        output.json_line(&Line { probe, identity: name.as_deref(), cluster })?;
    }
    Ok(())
}

fn report(batch: &Batch, strangers: &[usize], clusters: &Clusters, density: Density) -> Report {
    let id = |at: &usize| batch.ids[strangers[*at]].clone();
    let group = |(cluster, members): (usize, Vec<usize>)| Group {
        cluster,
        size: members.len(),
        typical: clusters.typical(&members).as_ref().map(id).unwrap_or_default(),
        probes: members.iter().map(id).collect(),
    };
    let alone = (0..strangers.len()).filter(|&at| clusters.labels[at].is_none());
    Report {
        probes: batch.ids.len(),
        recognized: batch.ids.len() - strangers.len(),
        min_score: density.min_score,
        min_probes: density.min_points,
        clusters: clusters.members().into_iter().enumerate().map(group).collect(),
        alone: alone.map(|at| id(&at)).collect(),
    }
}

fn show(report: &Report, output: &mut Output) -> anyhow::Result<()> {
    let mut table = table(["group", "probes", "typical", "among them"]);
    for one in &report.clusters {
        let few: Vec<&str> = one.probes.iter().take(4).map(String::as_str).collect();
        table.add_row([one.cluster.to_string(), one.size.to_string(), one.typical.clone(), few.join(", ")]);
    }
    output.line(table)?;
    Ok(output.line(format_args!(
        "{} probes: {} recognised, {} in {} groups, {} alone (neighbors from a score of {})",
        report.probes,
        report.recognized,
        report.clusters.iter().map(|one| one.size).sum::<usize>(),
        report.clusters.len(),
        report.alone.len(),
        report.min_score,
    ))?)
}

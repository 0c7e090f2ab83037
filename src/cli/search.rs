//! `lookalike search`.

use clap::Args;

use super::output::{Format, Output, number, table};
use super::settings::SettingsArgs;
use super::target::{PROBES_A_REQUEST, TargetArgs, add_meta};
use crate::grpc::proto::{SearchRequest, SearchResponse};

#[derive(Debug, Args)]
pub(super) struct SearchArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// How many neighbors a probe gets; unset: the configuration says.
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Least score of a neighbor, -1 to 1.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    min_score: Option<f32>,
    /// Answer with the stored embeddings too.
    #[arg(long)]
    include_embeddings: bool,
    /// How the answer looks.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(settings: &SettingsArgs, args: SearchArgs, output: &mut Output) -> anyhow::Result<()> {
    let probes = args.target.read_probes()?;
    let top_k = match args.top_k {
        Some(top_k) => top_k,
        None => settings.load([])?.recognition.top_k as u32,
    };
    let response = super::runtime()?.block_on(async {
        let mut target = args.target.open(settings).await?;
        let mut whole = SearchResponse::default();
        for probes in probes.chunks(PROBES_A_REQUEST) {
            let request = SearchRequest {
                gallery: args.target.gallery.clone(),
                probes: probes.to_vec(),
                top_k,
                min_score: args.min_score,
                include_embeddings: args.include_embeddings,
                model_id: String::new(),
            };
            let part = target.search(request).await?;
            whole.results.extend(part.results);
            add_meta(&mut whole.meta, part.meta);
        }
        anyhow::Ok(whole)
    })?;
    match args.format {
        Format::Json => output.json(&response),
        Format::Jsonl => response.results.iter().try_for_each(|result| output.json_line(result)),
        Format::Table => Ok(print_table(&response, output)?),
    }
}

fn print_table(response: &SearchResponse, output: &mut Output) -> std::io::Result<()> {
    let mut table = table(["probe", "place", "score", "identity", "prototype", "index", "source"]);
    for result in &response.results {
        for (place, neighbor) in result.neighbors.iter().enumerate() {
            table.add_row([
                result.probe_id.clone(),
                (place + 1).to_string(),
                number(Some(neighbor.score)),
                neighbor.identity.clone(),
                neighbor.prototype_id.clone(),
                neighbor.index.to_string(),
                neighbor.source.clone(),
            ]);
        }
    }
    output.line(table)
}

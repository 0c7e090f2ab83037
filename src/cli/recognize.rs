//! `lookalike recognize`.

use clap::Args;

use super::output::{Format, Output, number, table};
use super::settings::SettingsArgs;
use super::target::{PROBES_A_REQUEST, TargetArgs, add_meta};
use crate::grpc::proto::{Decision, RecognizeRequest, RecognizeResponse, RecognizeResult};

#[derive(Debug, Args)]
pub(super) struct RecognizeArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Least score of the best identity, -1 to 1; else the identity's, the gallery's or the configuration's.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// Least lead over any other identity, 0 to 2; else likewise.
    #[arg(long, value_name = "DIFFERENCE", allow_negative_numbers = true)]
    min_margin: Option<f32>,
    /// How many candidate identities a probe lists; 0 means 5.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_candidates: u32,
    /// One photo, one person: probes of one group compete for an identity.
    #[arg(long)]
    unique_in_group: bool,
    /// How the answer looks.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(settings: &SettingsArgs, args: RecognizeArgs, output: &mut Output) -> anyhow::Result<()> {
    let probes = args.target.read_probes()?;
    // Probes that compete must be asked about together.
    let together = if args.unique_in_group { probes.len() } else { PROBES_A_REQUEST };
    let response = super::runtime()?.block_on(async {
        let mut target = args.target.open(settings).await?;
        let mut whole = RecognizeResponse::default();
        for probes in probes.chunks(together) {
            let request = RecognizeRequest {
                gallery: args.target.gallery.clone(),
                probes: probes.to_vec(),
                threshold: args.threshold,
                min_margin: args.min_margin,
                max_candidates: args.max_candidates,
                unique_in_group: args.unique_in_group,
                model_id: String::new(),
            };
            let part = target.recognize(request).await?;
            whole.recognitions.extend(part.recognitions);
            add_meta(&mut whole.meta, part.meta);
        }
        anyhow::Ok(whole)
    })?;
    match args.format {
        Format::Json => output.json(&response),
        Format::Jsonl => response.recognitions.iter().try_for_each(|one| output.json_line(one)),
        Format::Table => Ok(output.line(decisions_table(&response.recognitions))?),
    }
}

/// Probes and what was concluded of them.
pub(super) fn decisions_table(recognitions: &[RecognizeResult]) -> comfy_table::Table {
    let mut table = table(["probe", "decision", "identity", "score", "margin", "nearest", "runner-up"]);
    for one in recognitions {
        let name = |place: usize| one.candidates.get(place).map_or("-", |candidate| &candidate.identity);
        let decision = one.decision().as_str_name();
        let identity = match one.decision() {
            Decision::Recognized => one.identity.as_str(),
            Decision::Unspecified
            | Decision::BelowThreshold
            | Decision::Ambiguous
            | Decision::NoCandidate
            | Decision::Displaced => "-",
        };
        table.add_row([
            one.probe_id.as_str(),
            decision.strip_prefix("DECISION_").unwrap_or(decision),
            identity,
            &number(one.score),
            &number(one.margin),
            name(0),
            name(1),
        ]);
    }
    table
}

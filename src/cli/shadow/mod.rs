//! `lookalike shadow`: shadow mode on a running server.

mod page;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use tonic::Request;
use tonic::transport::Channel;

use super::output::{Format, Output, PlainFormat};
use super::settings::SettingsArgs;
use super::target::{channel, refused};
use super::{FoundWrong, Usage};
use crate::grpc::proto::shadow_client::ShadowClient;
use crate::grpc::proto::{
    DemoteRequest, GetReportRequest, Guilty, ListDisagreementsRequest, PromoteRequest, ReplayRequest,
    SetSamplingRequest, WatchDisagreementsRequest,
};

/// A watch may last for ever.
const WATCH_LIMIT: Duration = Duration::from_hours(24 * 365);

#[derive(Debug, Subcommand)]
pub(super) enum ShadowCommand {
    /// What the comparisons have shown; exit code 3 where the shadow is not fit to become the primary.
    Report(ReportArgs),
    /// The latest disagreements, newest first.
    List(ListArgs),
    /// Disagreements as they are found, until interrupted.
    Watch(WatchArgs),
    /// Scan a disagreement again on both backends and in f64, and say who was wrong.
    Replay(ReplayArgs),
    /// Let the shadow's backend answer.
    Promote(PromoteArgs),
    /// Let the configured backend answer again.
    Demote(DemoteArgs),
    /// Set the share of requests that is compared.
    Sampling(SamplingArgs),
}

#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Ask this server; unset: the one that the configuration would start (server.listen).
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// How long it may take to answer, such as 30s.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// A file with the token of an admin, for what changes the server (server.tokens); else the environment's `LOOKALIKE_TOKEN`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// A request that changes the server, with the token where there is one.
    fn request<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        let token = match &self.token_file {
            Some(path) => Some(
                std::fs::read_to_string(path).with_context(|| format!("--token-file: {}", path.display()))?,
            ),
            None => std::env::var("LOOKALIKE_TOKEN").ok(),
        };
        let mut request = Request::new(message);
        if let Some(token) = token {
            // A value that is no header is not repeated: it may be a token all the same.
            let header = format!("Bearer {}", token.trim());
            let header =
                header.parse().map_err(|_| Usage("expected a token of ASCII characters".to_owned()))?;
            request.metadata_mut().insert("authorization", header);
        }
        Ok(request)
    }

    async fn client(&self, settings: &SettingsArgs) -> anyhow::Result<ShadowClient<Channel>> {
        self.client_for(settings, self.timeout).await
    }

    async fn client_for(
        &self,
        settings: &SettingsArgs,
        limit: Duration,
    ) -> anyhow::Result<ShadowClient<Channel>> {
        let url = match &self.server {
            Some(url) => url.clone(),
            None => settings.load([])?.server.listen.to_string(),
        };
        Ok(ShadowClient::new(channel(&url, limit).await?))
    }
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How the report looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How many, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=256))]
    limit: u32,
    /// Only those of this kind, such as identity; may be repeated.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// How the list looks.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// End after so many.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The disagreement's id.
    id: String,
    /// How the answer looks.
    #[arg(long, value_enum, default_value = "table")]
    format: PlainFormat,
}

#[derive(Debug, Args)]
pub(super) struct PromoteArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Promote though the gate is not met.
    #[arg(long)]
    force: bool,
    /// Why, for the log and the report.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub(super) struct DemoteArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Why, for the log and the report.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub(super) struct SamplingArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Share of requests, 0 to 1, or a percentage such as 1%.
    share: String,
}

pub(super) fn run(
    settings: &SettingsArgs,
    command: ShadowCommand,
    output: &mut Output,
) -> anyhow::Result<()> {
    super::runtime()?.block_on(async {
        match command {
            ShadowCommand::Report(args) => report(settings, args, output).await,
            ShadowCommand::List(args) => list(settings, args, output).await,
            ShadowCommand::Watch(args) => watch(settings, args, output).await,
            ShadowCommand::Replay(args) => replay(settings, args, output).await,
            ShadowCommand::Promote(PromoteArgs { server, force, reason }) => {
                let request = server.request(PromoteRequest { force, reason })?;
                let reply = server.client(settings).await?.promote(request).await.map_err(refused)?;
                let changed = reply.into_inner().changed;
                Ok(output.line(if changed { "promoted" } else { "it was promoted before" })?)
            }
            ShadowCommand::Demote(DemoteArgs { server, reason }) => {
                let request = server.request(DemoteRequest { reason })?;
                let reply = server.client(settings).await?.demote(request).await.map_err(refused)?;
                let changed = reply.into_inner().changed;
                Ok(output.line(if changed { "demoted" } else { "it was not promoted" })?)
            }
            ShadowCommand::Sampling(args) => sampling(settings, args, output).await,
        }
    })
}

async fn report(settings: &SettingsArgs, args: ReportArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut client = args.server.client(settings).await?;
    let report = client.get_report(GetReportRequest {}).await.map_err(refused)?.into_inner();
    match args.format {
        PlainFormat::Json => output.json(&report)?,
        PlainFormat::Table => page::report(&report, output)?,
    }
    // Once it is promoted the roles are others, and the gate has been passed.
    if report.gate_met || report.promoted {
        Ok(())
    } else {
        Err(FoundWrong("the gate is not met".to_owned()).into())
    }
}

async fn list(settings: &SettingsArgs, args: ListArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut client = args.server.client(settings).await?;
    let request = ListDisagreementsRequest { limit: args.limit, kinds: args.kind };
    let reply = client.list_disagreements(request).await.map_err(refused)?.into_inner();
    match args.format {
        Format::Json => output.json(&reply),
        Format::Jsonl => reply.disagreements.iter().try_for_each(|one| output.json_line(one)),
        Format::Table => Ok(output.line(page::disagreements(&reply.disagreements))?),
    }
}

/// One JSON object a line, at once.
async fn watch(settings: &SettingsArgs, args: WatchArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut client = args.server.client_for(settings, WATCH_LIMIT).await?;
    let mut news =
        client.watch_disagreements(WatchDisagreementsRequest {}).await.map_err(refused)?.into_inner();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(one) = news.message().await.map_err(refused)? else { break };
        if one.missed > 0 {
            tracing::warn!(missed = one.missed, "disagreements came faster than they were read");
        }
        if let Some(disagreement) = &one.disagreement {
            output.json_line(disagreement)?;
            output.flush()?;
            left -= 1;
        }
    }
    Ok(())
}

async fn replay(settings: &SettingsArgs, args: ReplayArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut client = args.server.client(settings).await?;
    let reply = client.replay(ReplayRequest { id: args.id }).await.map_err(refused)?.into_inner();
    match args.format {
        PlainFormat::Json => output.json(&reply)?,
        PlainFormat::Table => page::replayed(&reply, output)?,
    }
    match reply.guilty() {
        Guilty::Unspecified | Guilty::Neither => Ok(()),
        Guilty::Primary | Guilty::Shadow | Guilty::Both => {
            Err(FoundWrong(format!("guilty: {}", page::guilty(reply.guilty()))).into())
        }
    }
}

async fn sampling(settings: &SettingsArgs, args: SamplingArgs, output: &mut Output) -> anyhow::Result<()> {
    let Some(sampling) = share(&args.share) else {
        return Err(
            Usage(format!("expected 0 to 1, or a percentage such as 1%, got {:?}", args.share)).into()
        );
    };
    let mut client = args.server.client(settings).await?;
    let reply = client
        .set_sampling(args.server.request(SetSamplingRequest { sampling })?)
        .await
        .map_err(refused)?
        .into_inner();
    Ok(output.line(format_args!("{} of requests are compared", page::percent(reply.sampling)))?)
}

fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.trim().parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(["0", "0.25", "1", "1%", "100 %"].map(share), [0.0, 0.25, 1.0, 0.01, 1.0].map(Some));
        assert_eq!(["", "%", "1.1", "101%", "-1", "nan", "half"].map(share), [None; 7]);
    }
}

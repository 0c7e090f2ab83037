//! `lookalike demo`: the main job on a fresh machine, with nothing made up. A data folder is filled from the sample gallery, the
//! real server started on free ports, real probes sent over gRPC.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, anyhow};
use clap::Args;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::gallery::import_files;
use super::output::Output;
use super::recognize::decisions_table;
use super::settings::SettingsArgs;
use super::signals::Stop;
use super::target::packed;
use crate::config::OwnSetting;
use crate::domain::{Margin, Threshold};
use crate::gallery::store::ImportOptions;
use crate::gallery::{DEFAULT_GALLERY, formats};
use crate::grpc::proto::recognition_client::RecognitionClient;
use crate::grpc::proto::{Probe, RecognizeRequest, RecognizeResponse};
use crate::server::{self, Listeners};
use crate::telemetry;

/// The sample: 128-dimensional embeddings of real faces; `sample/README.md` says whose and by which model.
const FILES: [(&str, &[u8]); 3] = [
    ("gallery.npy", include_bytes!("../../sample/gallery.npy")),
    ("gallery.csv", include_bytes!("../../sample/gallery.csv")),
    ("probes.jsonl", include_bytes!("../../sample/probes.jsonl")),
];

/// The sample's model, and what was found to suit it (`sample/README.md`).
const MODEL: &str = "dlib_resnet_v1";
const THRESHOLD: f32 = 0.942;
const MIN_MARGIN: f32 = 0.04;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Go on serving until interrupted.
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(settings: &SettingsArgs, args: DemoArgs, output: &mut Output) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("lookalike-demo-").context("a temporary folder")?;
    for (name, bytes) in FILES {
        fs::write(folder.path().join(name), bytes)?;
    }
    let data = folder.path().join("data");
    fill(folder.path(), &data)?;
    let own = [
        format!("storage.path={}", data.display()),
        "server.listen=127.0.0.1:0".to_owned(),
        "metrics.listen=127.0.0.1:0".to_owned(),
        "log.level=warn".to_owned(),
    ];
    let settings = settings.load(own.map(|setting| OwnSetting { origin: "the demo", setting }))?;
    telemetry::init(&settings.log)?;
    let metrics = telemetry::install();
    super::runtime()?.block_on(async {
        let mut told = std::pin::pin!(Stop::listen()?.told());
        let listeners = Listeners::bind(&settings).await?;
        let grpc = listeners.grpc_address()?;
        let http = listeners.metrics_address()?.context("the demo serves metrics")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let mut server = tokio::spawn(server::run(settings, listeners, metrics, async {
            let _ = stopped.await;
        }));
        let shown = tokio::select! {
            shown = show(grpc, http, folder.path(), output) => shown,
            () = &mut told => Err(anyhow!("interrupted")),
            ended = &mut server => Err(ended?.err().map_or_else(|| anyhow!("the server ended"), Into::into)),
        };
        if shown.is_ok() && args.keep {
            output.line("serving until interrupted (Ctrl-C)")?;
            output.flush()?;
            told.await;
        }
        let _ = stop.send(());
        if !server.is_finished() {
            server.await??;
        }
        shown
    })
}

fn fill(sample: &Path, data: &Path) -> anyhow::Result<()> {
    let options = ImportOptions {
        model_id: Some(MODEL.to_owned()),
        norm: None,
        threshold: Some(Threshold::parse(THRESHOLD)?),
        min_margin: Some(Margin::parse(MIN_MARGIN)?),
        ..ImportOptions::default()
    };
    let files = (&*sample.join("gallery.npy"), Some(&*sample.join("gallery.csv")));
    import_files((data, DEFAULT_GALLERY), files, options, &mut |_, _| Ok(()))?;
    Ok(())
}

async fn show(grpc: SocketAddr, http: SocketAddr, sample: &Path, output: &mut Output) -> anyhow::Result<()> {
    let channel = Channel::from_shared(format!("http://{grpc}"))?.connect().await?;
    until_serving(channel.clone()).await?;
    let probes = formats::read_probes(&sample.join("probes.jsonl"))?;
    let probes: Vec<Probe> = probes
        .into_iter()
        .map(|probe| Probe {
            id: probe.id,
            embedding: Some(packed(&probe.embedding)),
            group: probe.group,
            ..Probe::default()
        })
        .collect();
    let first = probes[0].clone();
    let request = RecognizeRequest { probes, ..RecognizeRequest::default() };
    let response = RecognitionClient::new(channel).recognize(request).await?.into_inner();
    tell(&response, output)?;
    output
        .line(format_args!("\nThe first probe again, with grpcurl (while the server runs: demo --keep):"))?;
    output.line(grpcurl(&first, grpc)?)?;
    output.line(format_args!("\nMetrics: http://{http}/metrics"))?;
    Ok(output.flush()?)
}

/// Waits until the server says that it serves.
pub(super) async fn until_serving(channel: Channel) -> anyhow::Result<()> {
    let mut watch = HealthClient::new(channel).watch(HealthCheckRequest::default()).await?.into_inner();
    while let Some(health) = watch.message().await? {
        if health.status() == ServingStatus::Serving {
            return Ok(());
        }
    }
    Err(anyhow!("the server never served"))
}

fn tell(response: &RecognizeResponse, output: &mut Output) -> anyhow::Result<()> {
    let meta = response.meta.clone().unwrap_or_default();
    let (threshold, min_margin) =
        response.recognitions.first().map_or((0.0, 0.0), |one| (one.threshold, one.min_margin));
    output.line(format_args!(
        "{} probes against gallery {:?} (generation {}, {}): threshold {threshold}, least margin {min_margin}",
        response.recognitions.len(),
        meta.gallery,
        meta.generation,
        meta.model_id,
    ))?;
    output.line(decisions_table(&response.recognitions))?;
    let why =
        if meta.fallback_reason.is_empty() { String::new() } else { format!(" ({})", meta.fallback_reason) };
    output.line(format_args!(
        "Scanned on {}{why}: {:.1} us queued, {:.1} us scanning, {:.1} us verifying.",
        meta.backend,
        meta.queue_ns as f64 / 1e3,
        meta.scan_ns as f64 / 1e3,
        meta.verify_ns as f64 / 1e3,
    ))?;
    Ok(())
}

/// The command that asks about one probe.
fn grpcurl(probe: &Probe, grpc: SocketAddr) -> anyhow::Result<String> {
    let embedding = serde_json::to_value(probe.embedding.clone().unwrap_or_default())?;
    let request = serde_json::json!({
        "probes": [{ "id": probe.id, "embedding": { "packed": embedding["packed"] } }],
    });
    // Base64, and ids of the sample's own making: nothing in it ends the quotes.
    Ok(format!("grpcurl -plaintext -d '{request}' {grpc} lookalike.v1.Recognition/Recognize"))
}

//! `lookalike serve`.

use std::path::PathBuf;

use clap::Args;

use super::settings::SettingsArgs;
use super::signals::Stop;
use crate::config::OwnSetting;
use crate::server::{self, Listeners};
use crate::telemetry;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Data folder (storage.path).
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to serve gRPC (server.listen).
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Where to serve metrics (metrics.listen), or "off".
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<String>,
    /// Which backend scans (backend.kind).
    #[arg(long, value_name = "auto|cpu|opencl|reference")]
    backend: Option<String>,
}

pub(super) fn run(settings: &SettingsArgs, args: ServeArgs) -> anyhow::Result<()> {
    let flags = [
        ("flag --data", "storage.path", args.data.map(|path| path.to_string_lossy().into_owned())),
        ("flag --listen", "server.listen", args.listen),
        ("flag --metrics-listen", "metrics.listen", args.metrics_listen),
        ("flag --backend", "backend.kind", args.backend),
    ];
    let own = flags
        .into_iter()
        .filter_map(|(origin, key, value)| Some(OwnSetting { origin, setting: format!("{key}={}", value?) }));
    let settings = settings.load(own)?;
    telemetry::init(&settings.log)?;
    let metrics = telemetry::install();
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let stop = Stop::listen()?;
        let listeners = Listeners::bind(&settings).await?;
        let (grpc, http) = (listeners.grpc_address()?, listeners.metrics_address()?);
        let http = http.map_or_else(|| "off".to_owned(), |address| address.to_string());
        tracing::info!(%grpc, metrics = http, version = env!("CARGO_PKG_VERSION"), "listening");
        Ok(server::run(settings, listeners, metrics, stop.told()).await?)
    });
    // Stopped while loading: what loads has nobody to load for, and is not waited for.
    runtime.shutdown_background();
    served
}

//! Wiring: listeners in, galleries loaded, services served, and the order in which all of it stops.
//!
//! The listeners and the stop signal come from outside, so that tests and the demo bind port 0 and stop when they like. The server
//! listens from the start and says `NOT_SERVING` until the galleries are loaded. It does not wait for the shadow's backend, which is opened
//! beside what is served.
//!
//! It stops in this order:
//! 1. health turns `NOT_SERVING`, `/readyz` 503, and the watchers of health are let go;
//! 2. the shadow stops, its findings are on disk, and those who watch it are let go;
//! 3. no new connection is taken; requests in flight go on, for `server.shutdown_grace` at most;
//! 4. what is still in flight is cut off;
//! 5. the engines end their scans and release their devices, for which two seconds are given;
//! 6. the metrics listener closes, so that the end can still be seen.

mod console;
mod health;
mod http;
mod incoming;
mod load;
mod shadow;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use load::{LoadError, load};
pub use shadow::{cast_shadow, opener};

use crate::config::{ServerSettings, Settings};
use crate::grpc::envelope::EnvelopeLayer;
use crate::grpc::proto::operations_server::OperationsServer;
use crate::grpc::proto::recognition_server::RecognitionServer;
use crate::grpc::proto::shadow_server::ShadowServer;
use crate::grpc::{
    OperationsService, RecognitionService, Serving, ShadowService, Tokens, TokensError, proto,
};
use crate::shadow::Open;
use crate::telemetry::{GalleryGauges, GalleryLabel, MetricsHandle};
use console::Console;
use health::Health;
use incoming::Bounds;

/// Flow-control windows: a message of megabytes must not wait for a round trip every 64 KiB.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Requests that one connection may have open; more wait in the client.
const MAX_STREAMS_A_CONNECTION: u32 = 1024;

/// How often an idle connection is asked whether its peer is there, and how long the peer may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long a new connection's peer may take to say that it speaks HTTP/2.
const GREETING: Duration = Duration::from_secs(20);

/// How long the scan in progress is waited for at the end, so that the device is released in order.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// How often the metrics' samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long pages that are being sent are waited for at the end, if the grace is over by then.
const LAST_PAGES: Duration = Duration::from_millis(500);

/// Why the server did not start or did not go on.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address could not be listened on.
    #[error("{key}: cannot listen on {address}: {error}")]
    Listen {
        /// The configuration's key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The galleries could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The tokens could not be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The gRPC side failed.
    #[error("serving gRPC failed")]
    Grpc(#[from] tonic::transport::Error),
    /// The descriptors for reflection are broken.
    #[error("server reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The HTTP side failed.
    #[error("serving metrics failed")]
    Http(#[source] io::Error),
}

/// Where the server listens.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Takes the addresses that the settings name; port 0 takes a free port.
    pub async fn bind(settings: &Settings) -> Result<Self, ServerError> {
        let grpc = bind("server.listen", settings.server.listen).await?;
        let metrics = match settings.metrics.listen {
            Some(address) => Some(bind("metrics.listen", address).await?),
            None => None,
        };
        Ok(Self { grpc, metrics })
    }

    /// Where gRPC is served.
    pub fn grpc_address(&self) -> io::Result<SocketAddr> {
        self.grpc.local_addr()
    }

    /// Where metrics are served, if they are.
    pub fn metrics_address(&self) -> io::Result<Option<SocketAddr>> {
        self.metrics.as_ref().map(TcpListener::local_addr).transpose()
    }
}

async fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|error| ServerError::Listen { key, address, error })
}

/// Serves until `shutdown` is done, then stops in order.
pub async fn run(
    settings: Settings,
    listeners: Listeners,
    metrics: MetricsHandle,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    run_with(settings, listeners, metrics, opener(), shutdown).await
}

/// As [`run`], with another way to open the shadow's backend.
pub async fn run_with(
    settings: Settings,
    listeners: Listeners,
    metrics: MetricsHandle,
    open_shadow: Open,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let gauges = Arc::new(Mutex::new(GalleryGauges::new(gallery_label(&settings))));
    let serving = Arc::new(serving(&settings, &gauges)?);
    let (health, health_service) = Health::new();
    health.loading().await;
    let (stop_grpc, grpc_stopped) = watch::channel(false);
    let (stop_http, http_stopped) = watch::channel(false);
    let console = Console { serving: Arc::clone(&serving), health: health.clone(), history: Arc::default() };
    let upkeep = tokio::spawn(keep_up(metrics.clone(), console.clone()));
    let http = listeners
        .metrics
        .map(|listener| tokio::spawn(http::serve(listener, metrics, console, raised(http_stopped))));
    let routes = routes(&serving, &settings.server, health_service)?;
    let grace = settings.server.shutdown_grace;
    let most = settings.server.limits.max_connections;
    let mut grpc = tokio::spawn(serve_grpc(listeners.grpc, most, routes, raised(grpc_stopped)));

    let loading =
        load_galleries((with_warm_up(settings), open_shadow), Arc::clone(&serving), (health.clone(), gauges));
    let until_stop = async {
        let mut shutdown = std::pin::pin!(shutdown);
        let ended = tokio::select! {
            loaded = loading => loaded?,
            () = &mut shutdown => return Ok(()),
        };
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            () = ended => (),
        }
        // Whoever watches over the process decides; until then nobody is sent here.
        tracing::error!("the engine has ended: nothing is served any more");
        health.failed().await;
        shutdown.await;
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = until_stop => outcome,
        ended = &mut grpc => flatten(ended),
    };

    tracing::info!(grace = ?grace, "stopping");
    let until = Instant::now() + grace;
    health.draining().await;
    stop_shadow(&serving).await;
    let _ = stop_grpc.send(true);
    if !grpc.is_finished() {
        if let Ok(ended) = tokio::time::timeout(grace, &mut grpc).await {
            flatten(ended)?;
        } else {
            tracing::warn!("requests in flight were cut off: server.shutdown_grace is over");
            grpc.abort();
        }
    }
    // Mostly the last handle on the engine: dropping it waits for the scan in progress.
    if let Some(served) = serving.serve(None) {
        let releasing = tokio::task::spawn_blocking(move || drop(served));
        match tokio::time::timeout(RELEASE_LIMIT, releasing).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => tracing::error!(%error, "releasing the engine failed"),
            Err(_) => tracing::warn!("the scan in progress was not waited for"),
        }
    }
    let _ = stop_http.send(true);
    if let Some(http) = http {
        last_pages(http, until.max(Instant::now() + LAST_PAGES)).await?;
    }
    upkeep.abort();
    tracing::info!("stopped");
    outcome
}

/// Waits for the pages that are being sent, until then.
async fn last_pages(mut http: JoinHandle<()>, until: Instant) -> Result<(), ServerError> {
    if let Ok(ended) = tokio::time::timeout_at(until, &mut http).await {
        return ended.map_err(|error| ServerError::Http(io::Error::other(error)));
    }
    tracing::warn!("connections for pages and metrics were cut off: server.shutdown_grace is over");
    http.abort();
    Ok(())
}

fn serving(settings: &Settings, gauges: &Arc<Mutex<GalleryGauges>>) -> Result<Serving, TokensError> {
    let tokens = settings.server.tokens.as_deref().map(Tokens::load).transpose()?;
    let serving = Serving::new(settings.server.limits).guarded_by(tokens);
    Ok(serving.reloading(load::reloading(settings, Arc::clone(gauges))))
}

fn gallery_label(settings: &Settings) -> GalleryLabel {
    if settings.metrics.gallery_label { GalleryLabel::Name } else { GalleryLabel::Off }
}

/// A server builds the kernels that it will need beforehand.
fn with_warm_up(mut settings: Settings) -> Settings {
    settings.backend.opencl.warm_up_top_k = Some(settings.recognition.top_k);
    settings
}

/// Gives what is done when the engine has ended.
async fn load_galleries(
    (settings, open_shadow): (Settings, Open),
    serving: Arc<Serving>,
    (health, gauges): (Health, Arc<Mutex<GalleryGauges>>),
) -> Result<impl Future<Output = ()> + use<>, ServerError> {
    let loaded = tokio::task::spawn_blocking(move || {
        let recognizer = Arc::new(load(&settings)?);
        // Before the shadow's backend may answer, which is told over it.
        load::announce(&recognizer, &mut gauges.lock().unwrap_or_else(PoisonError::into_inner));
        let shadow = cast_shadow(&settings, &recognizer, open_shadow)?;
        Ok::<_, LoadError>((recognizer, shadow))
    });
    let loaded = loaded.await.map_err(|error| LoadError::Panicked(error.to_string()))?;
    let (recognizer, shadow) = loaded?;
    let ended = recognizer.standing().ended();
    serving.cast_shadow(shadow);
    serving.serve(Some(recognizer));
    health.serving().await;
    Ok(ended)
}

async fn stop_shadow(serving: &Serving) {
    let Some(shadow) = serving.cast_shadow(None) else { return };
    let stopping = tokio::task::spawn_blocking(move || shadow.stop(RELEASE_LIMIT));
    if let Err(error) = stopping.await {
        tracing::error!(%error, "stopping the shadow failed");
    }
}

/// Everything that is served over gRPC.
fn routes(
    serving: &Arc<Serving>,
    settings: &ServerSettings,
    health: tonic::service::Routes,
) -> Result<tonic::service::Routes, ServerError> {
    let limit = settings.limits.max_message_bytes;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(health
        .add_service(
            RecognitionServer::new(RecognitionService::new(Arc::clone(serving)))
                .max_decoding_message_size(limit),
        )
        .add_service(
            OperationsServer::new(OperationsService::new(Arc::clone(serving)))
                .max_decoding_message_size(limit),
        )
        .add_service(
            ShadowServer::new(ShadowService::new(Arc::clone(serving))).max_decoding_message_size(limit),
        )
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
}

async fn serve_grpc(
    listener: TcpListener,
    most_connections: usize,
    routes: tonic::service::Routes,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let bounds =
        Bounds { key: "server.listen", most: most_connections, greeting: Some(GREETING), reading: None };
    let incoming = incoming::connections(listener, bounds);
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS_A_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .layer(EnvelopeLayer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop)
        .await?;
    Ok(())
}

/// Moves samples into histograms now and then, so that they do not pile up where nobody scrapes, and notes what the console draws.
async fn keep_up(metrics: MetricsHandle, console: Console) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        let (metrics, console) = (metrics.clone(), console.clone());
        let noted = tokio::task::spawn_blocking(move || {
            metrics.upkeep();
            console.note(&metrics.render());
        });
        if let Err(error) = noted.await {
            tracing::error!(%error, "noting the metrics failed");
        }
    }
}

/// Done when the flag is raised, or can no longer be.
async fn raised(mut flag: watch::Receiver<bool>) {
    let _ = flag.wait_for(|raised| *raised).await;
}

fn flatten(ended: Result<Result<(), ServerError>, tokio::task::JoinError>) -> Result<(), ServerError> {
    ended.unwrap_or_else(|error| Err(ServerError::Http(io::Error::other(error))))
}

//! The server in this process.

use std::net::SocketAddr;
use std::path::Path;

use lookalike::config::{self, Settings, Sources};
use lookalike::engine::Engine;
use lookalike::gallery::Snapshot;
use lookalike::grpc::proto::GetReportRequest;
use lookalike::grpc::proto::operations_client::OperationsClient;
use lookalike::grpc::proto::recognition_client::RecognitionClient;
use lookalike::grpc::proto::shadow_client::ShadowClient;
use lookalike::recognize::Recognizer;
use lookalike::server::{self, Listeners, ServerError};
use lookalike::shadow::Open;
use lookalike::telemetry;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Where tests keep compiled kernels: not where the user does.
pub(crate) const PROGRAM_CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/opencl");

/// Settings for a server of this data folder on free ports; later flags win.
pub(crate) fn settings(data: &Path, flags: &[&str]) -> Settings {
    let own = [
        format!("storage.path={}", data.display()),
        "server.listen=127.0.0.1:0".to_owned(),
        "metrics.listen=127.0.0.1:0".to_owned(),
        format!("backend.opencl.cache_dir={PROGRAM_CACHE}"),
    ];
    let flags = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
    config::load(&Sources { flags, ..Sources::default() }).unwrap()
}

/// A recognizer of one gallery in memory, with no server around it. Blocks.
pub(crate) fn recognizer(snapshot: Snapshot, flags: &[&str]) -> Recognizer {
    let settings = settings(Path::new("unused"), flags);
    let engine = Engine::start(&settings.backend, 8).unwrap();
    Recognizer::load(engine, vec![snapshot], settings.recognition).unwrap()
}

/// A running server.
pub(crate) struct Server {
    pub(crate) channel: Channel,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServerError>>,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub(crate) async fn start(data: &Path, flags: &[&str]) -> Self {
        let server = Self::spawn(settings(data, flags)).await;
        server.until_serving().await;
        server
    }

    /// Starts a server that opens its shadow's backend like this, and waits until it serves and its shadow, if any, is open.
    pub(crate) async fn start_with(settings: Settings, open: Open) -> Self {
        let shadowed = settings.shadow.enabled;
        let server = Self::spawn_with(settings, open).await;
        server.until_serving().await;
        if shadowed {
            server.until_shadowed().await;
        }
        server
    }

    /// Waits until it serves.
    pub(crate) async fn until_serving(&self) {
        let mut watch = self.watch("").await;
        while watch.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    }

    /// Starts a server and does not wait.
    pub(crate) async fn spawn(settings: Settings) -> Self {
        Self::spawn_with(settings, server::opener()).await
    }

    /// As [`Self::spawn`], with another way to open the shadow's backend.
    pub(crate) async fn spawn_with(settings: Settings, open: Open) -> Self {
        let metrics = telemetry::install();
        let listeners = Listeners::bind(&settings).await.unwrap();
        let (grpc, http) = (listeners.grpc_address().unwrap(), listeners.metrics_address().unwrap().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server::run_with(settings, listeners, metrics, open, async {
            let _ = stopped.await;
        }));
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
        Self { channel, grpc, http, stop, task }
    }

    /// Stops the server and gives what it ended with.
    pub(crate) async fn stop(self) -> Result<(), ServerError> {
        let Self { channel, stop, task, .. } = self;
        drop(channel);
        let _ = stop.send(());
        task.await.unwrap()
    }

    /// Asks the server to stop and does not wait; what it ends with comes from the answer.
    pub(crate) fn ask_to_stop(self) -> JoinHandle<Result<(), ServerError>> {
        let _ = self.stop.send(());
        self.task
    }

    /// What the server ends with by itself.
    pub(crate) async fn ended(self) -> Result<(), ServerError> {
        self.task.await.unwrap()
    }

    pub(crate) fn recognition(&self) -> RecognitionClient<Channel> {
        RecognitionClient::new(self.channel.clone()).max_decoding_message_size(1 << 30)
    }

    pub(crate) fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.channel.clone())
    }

    pub(crate) fn shadow(&self) -> ShadowClient<Channel> {
        ShadowClient::new(self.channel.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    /// Waits until its shadow's backend is open.
    async fn until_shadowed(&self) {
        super::until("the shadow's backend is open", async || {
            let report = self.shadow().get_report(GetReportRequest {}).await.unwrap().into_inner();
            report.opening.is_none().then_some(())
        })
        .await;
    }

    /// Watches the health of a service.
    pub(crate) async fn watch(
        &self,
        service: &str,
    ) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
        let request = HealthCheckRequest { service: service.to_owned() };
        self.health().watch(request).await.unwrap().into_inner()
    }
}

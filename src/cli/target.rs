//! Who answers `search` and `recognize`: a server, or a data folder by the same service without a network between.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::settings::SettingsArgs;
use crate::config::OwnSetting;
use crate::gallery::DEFAULT_GALLERY;
use crate::gallery::{ProbeRecord, formats};
use crate::grpc::proto::recognition_client::RecognitionClient;
use crate::grpc::proto::recognition_server::Recognition;
use crate::grpc::proto::{self, RecognizeRequest, RecognizeResponse, SearchRequest, SearchResponse};
use crate::grpc::{RecognitionService, Serving};
use crate::{server, telemetry};

/// Probes sent in one request; a file of more is sent in several.
pub(super) const PROBES_A_REQUEST: usize = 256;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest reply that is taken from a server.
const MAX_REPLY_BYTES: usize = 1 << 30;

#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("target").required(true))]
pub(super) struct TargetArgs {
    /// Ask this server, such as `127.0.0.1:50051`.
    #[arg(long, value_name = "URL", group = "target")]
    server: Option<String>,
    /// Ask this data folder, with no server.
    #[arg(long, value_name = "DIR", group = "target")]
    data: Option<PathBuf>,
    /// How long a server may take to answer a request, such as 30s.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Which gallery.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GALLERY)]
    pub(super) gallery: String,
    /// Who is asked about: .npy (a row a probe) or JSON lines ({"id","group","embedding":[...]}).
    #[arg(long, value_name = "FILE")]
    probes: PathBuf,
    /// Leave this identity out; may be repeated.
    #[arg(long, value_name = "NAME")]
    exclude_identity: Vec<String>,
    /// Leave this prototype out (identity/id, or id alone); may be repeated.
    #[arg(long, value_name = "ID")]
    exclude_prototype: Vec<String>,
    /// Leave prototypes of this source out; may be repeated.
    #[arg(long, value_name = "NAME")]
    exclude_source: Vec<String>,
}

impl TargetArgs {
    /// The probes of the file, with what the flags leave out.
    pub(super) fn read_probes(&self) -> anyhow::Result<Vec<proto::Probe>> {
        let probes = formats::read_probes(&self.probes)?;
        if probes.is_empty() {
            return Err(anyhow!("{}: expected probes, got none", self.probes.display()));
        }
        Ok(probes.into_iter().map(|probe| self.probe(probe)).collect())
    }

    fn probe(&self, record: ProbeRecord) -> proto::Probe {
        let join = |own: Vec<String>, flags: &[String]| [own, flags.to_vec()].concat();
        proto::Probe {
            id: record.id,
            embedding: Some(packed(&record.embedding)),
            group: record.group,
            exclude_identities: join(record.exclude_identities, &self.exclude_identity),
            exclude_prototypes: join(record.exclude_prototypes, &self.exclude_prototype),
            exclude_sources: join(record.exclude_sources, &self.exclude_source),
        }
    }

    /// Connects to the server or opens the folder.
    pub(super) async fn open(&self, settings: &SettingsArgs) -> anyhow::Result<Target> {
        if let Some(url) = &self.server {
            return connect(url, self.timeout).await;
        }
        let own = self.data.iter().map(|path| OwnSetting {
            origin: "flag --data",
            setting: format!("storage.path={}", path.display()),
        });
        let settings = settings.load(own)?;
        telemetry::init(&settings.log)?;
        let serving = Serving::new(settings.server.limits);
        let recognizer = tokio::task::spawn_blocking(move || server::load(&settings)).await??;
        serving.serve(Some(Arc::new(recognizer)));
        Ok(Target::Folder(RecognitionService::new(Arc::new(serving))))
    }
}

/// A vector in the protocol's compact form.
pub(super) fn packed(values: &[f32]) -> proto::Embedding {
    let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    proto::Embedding { values: Vec::new(), packed }
}

async fn connect(url: &str, timeout: Duration) -> anyhow::Result<Target> {
    let channel = channel(url, timeout).await?;
    Ok(Target::Server(RecognitionClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES)))
}

/// A connection to the server at `url`, each of whose calls may take so long.
pub(super) async fn channel(url: &str, timeout: Duration) -> anyhow::Result<Channel> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let endpoint = Endpoint::from_shared(whole)
        .with_context(|| format!("--server: expected a URL such as http://127.0.0.1:50051, got {url:?}"))?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(timeout);
    endpoint.connect().await.with_context(|| format!("no server answers at {url}"))
}

/// Who answers.
#[derive(Debug)]
pub(super) enum Target {
    Server(RecognitionClient<Channel>),
    Folder(RecognitionService),
}

impl Target {
    pub(super) async fn search(&mut self, request: SearchRequest) -> anyhow::Result<SearchResponse> {
        let answer = match self {
            Self::Server(client) => client.search(request).await,
            Self::Folder(service) => service.search(Request::new(request)).await,
        };
        Ok(answer.map_err(refused)?.into_inner())
    }

    pub(super) async fn recognize(&mut self, request: RecognizeRequest) -> anyhow::Result<RecognizeResponse> {
        let answer = match self {
            Self::Server(client) => client.recognize(request).await,
            Self::Folder(service) => service.recognize(Request::new(request)).await,
        };
        Ok(answer.map_err(refused)?.into_inner())
    }
}

/// A refusal, as the command line tells it.
pub(super) fn refused(status: Status) -> anyhow::Error {
    anyhow!("{:?}: {}", status.code(), status.message())
}

/// Adds the account of a further request to that of the first.
pub(super) fn add_meta(sum: &mut Option<proto::ResponseMeta>, further: Option<proto::ResponseMeta>) {
    match (sum.as_mut(), further) {
        (Some(sum), Some(further)) => {
            sum.queue_ns += further.queue_ns;
            sum.scan_ns += further.scan_ns;
            sum.verify_ns += further.verify_ns;
        }
        (None, further) => *sum = further,
        (Some(_), None) => (),
    }
}

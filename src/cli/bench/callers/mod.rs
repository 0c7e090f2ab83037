//! How many callers a server on this machine answers: one alone, and many at once.
//!
//! The real server runs in this process, on a free port of the loopback, and loads the vectors from a data folder made for it. Callers
//! send `Recognize` with one probe each and wait for the reply, over HTTP/2 connections that they share. They run on one
//! thread and send messages encoded beforehand, since what they take of the machine the server lacks.
//!
//! Rounds alternate, so that a drift of the machine's speed meets both kinds. Invariant: a reply that is an error ends the measurement.

mod client;
mod report;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use prost::Message;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::made::Vectors;
use crate::cli::demo::until_serving;
use crate::cli::target::packed;
use crate::config::Settings;
use crate::domain::Embedding;
use crate::gallery::DEFAULT_GALLERY;
use crate::gallery::store::{Import, ImportOptions, Store};
use crate::grpc::proto::operations_client::OperationsClient;
use crate::grpc::proto::{
    BackendInfo, GetInfoRequest, Probe, RecognizeRequest, RecognizeResponse, RecognizeResult,
};
use crate::server::{self, Listeners};
use crate::telemetry;
use client::{Connection, Frame};
use report::{CallersReport, Tally};

/// Most callers at once: a connection has no more requests open.
pub(super) const MOST: usize = 1024;

/// Connections that callers share.
const CONNECTIONS: usize = 4;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// How many call at once.
    pub(super) callers: usize,
    /// How many rounds of each kind.
    pub(super) rounds: usize,
    /// How long a round lasts.
    pub(super) round: Duration,
    /// Candidate identities that a recognition lists.
    pub(super) max_candidates: usize,
}

/// Serves the vectors and calls.
pub(super) fn measure(
    mut settings: Settings,
    vectors: Vectors,
    plan: &Plan,
) -> anyhow::Result<CallersReport> {
    let folder = TempDir::with_prefix("lookalike-bench-").context("a temporary folder")?;
    let (rows, dim) = (vectors.rows.len(), vectors.dim());
    let (records, probes) = vectors.into_records();
    let import = Import { gallery: DEFAULT_GALLERY, options: ImportOptions::default(), records };
    Store::create_or_open(folder.path())?.import(import, &mut |_| ())?;
    settings.storage.path = folder.path().into();
    // Shedding is not what is measured.
    let limits = &mut settings.server.limits;
    limits.max_in_flight = limits.max_in_flight.max(plan.callers);
    limits.max_connections = limits.max_connections.max(plan.callers);
    limits.queue = limits.queue.max(plan.callers);
    let threads = settings.backend.cpu.threads;

    let metrics = telemetry::install();
    let serving = crate::cli::runtime()?;
    let listeners = serving.block_on(Listeners::bind(&settings))?;
    let address = listeners.grpc_address()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = serving.spawn(server::run(settings, listeners, metrics, async {
        let _ = stopped.await;
    }));
    let calling = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let messages = messages(&probes, plan.max_candidates);
    let called = calling.block_on(call(address, messages, plan));
    // With it the callers' connections close, which the server would wait for.
    drop(calling);
    let _ = stop.send(());
    // Why the server ended says more than that its callers lost it.
    serving.block_on(server)??;
    let called = called?;
    Ok(CallersReport::of(plan, &called, report::Served { rows, dim, threads, probes: probes.len() }))
}

/// What came of calling.
struct Called {
    backend: BackendInfo,
    connections: usize,
    one: Tally,
    many: Tally,
    /// Probes whose answer was another among many callers than alone.
    differing: usize,
}

/// One request a probe.
fn messages(probes: &[Embedding], max_candidates: usize) -> Arc<[Frame]> {
    let message = |embedding: &Embedding| RecognizeRequest {
        probes: vec![Probe { embedding: Some(packed(embedding.as_slice())), ..Probe::default() }],
        max_candidates: max_candidates as u32,
        ..RecognizeRequest::default()
    };
    probes.iter().map(|embedding| client::frame(&message(embedding).encode_to_vec())).collect()
}

async fn call(address: SocketAddr, messages: Arc<[Frame]>, plan: &Plan) -> anyhow::Result<Called> {
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    until_serving(channel.clone()).await?;
    let info = OperationsClient::new(channel).get_info(GetInfoRequest {}).await?.into_inner();
    let backend = info.backends.into_iter().next().unwrap_or_default();
    let mut connections = Vec::new();
    for _ in 0..plan.callers.min(CONNECTIONS) {
        connections.push(Connection::open(address, "/lookalike.v1.Recognition/Recognize").await?);
    }
    let crowd = Crowd { connections: connections.into(), messages };
    // Warms up, and sees whether company changes an answer.
    let alone = crowd.ask_all(1).await?;
    let together = crowd.ask_all(plan.callers).await?;
    let differing = alone.iter().zip(&together).filter(|(a, b)| a != b).count();
    let (mut one, mut many) = (Tally::default(), Tally::default());
    for _ in 0..plan.rounds {
        one.add(crowd.round(1, plan.round).await?);
        many.add(crowd.round(plan.callers, plan.round).await?);
    }
    Ok(Called { backend, connections: crowd.connections.len(), one, many, differing })
}

/// One round: how long it took until the last reply, and how long each reply took.
struct Round {
    took: Duration,
    latencies_ms: Vec<f64>,
}

/// Those who call, with what they share.
#[derive(Clone)]
struct Crowd {
    connections: Arc<[Connection]>,
    messages: Arc<[Frame]>,
}

impl Crowd {
    /// So many callers send request after request for so long.
    async fn round(&self, callers: usize, round: Duration) -> anyhow::Result<Round> {
        let mut tasks = JoinSet::new();
        let started = Instant::now();
        for caller in 0..callers {
            let crowd = self.clone();
            tasks.spawn(async move {
                let mut latencies_ms = Vec::new();
                // Callers ask about different probes at any time.
                let mut place = caller * crowd.messages.len() / callers;
                while latencies_ms.is_empty() || started.elapsed() < round {
                    let sent = Instant::now();
                    crowd.ask(caller, place).await?;
                    latencies_ms.push(sent.elapsed().as_secs_f64() * 1e3);
                    place += 1;
                }
                anyhow::Ok(latencies_ms)
            });
        }
        let mut latencies_ms = Vec::new();
        while let Some(done) = tasks.join_next().await {
            latencies_ms.extend(done??);
        }
        Ok(Round { took: started.elapsed(), latencies_ms })
    }

    /// So many callers ask about every probe once.
    async fn ask_all(&self, callers: usize) -> anyhow::Result<Vec<Vec<RecognizeResult>>> {
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            let crowd = self.clone();
            tasks.spawn(async move {
                let mut answers = Vec::new();
                for place in (caller..crowd.messages.len()).step_by(callers) {
                    let reply = RecognizeResponse::decode(&crowd.ask(caller, place).await?[..])?;
                    answers.push((place, reply.recognitions));
                }
                anyhow::Ok(answers)
            });
        }
        let mut answers = vec![Vec::new(); self.messages.len()];
        while let Some(done) = tasks.join_next().await {
            for (place, recognitions) in done?? {
                answers[place] = recognitions;
            }
        }
        Ok(answers)
    }

    async fn ask(&self, caller: usize, place: usize) -> anyhow::Result<Vec<u8>> {
        let connection = &self.connections[caller % self.connections.len()];
        connection.call(&self.messages[place % self.messages.len()]).await
    }
}

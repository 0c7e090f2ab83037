//! More than the server can do at once: deadlines, shedding, callers who go away, and stopping in the middle of it.
//!
//! The backend is the plain `f64` reference on a gallery that takes it long, and each server is a process of its own, whose
//! metrics say what it is at.

use std::time::{Duration, Instant};

use lookalike::grpc::proto::{Probe, SearchRequest, SearchResponse};
use prost::Message;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::support::{
    Face, REFERENCE, Random, Served, Server, begin_only, call, data_folder, http_get, lookalike, probe,
    sample_faces,
};

const DIM: usize = 64;
const ROWS: usize = 12_000;

/// Probes that keep the backend busy for about a second, in a build without optimisations.
const SECOND: usize = 256;

const IN_FLIGHT: &str = "lookalike_inflight_requests";
const WAITING: &str = "lookalike_queue_depth";

fn gallery() -> TempDir {
    let mut random = Random::new(8);
    let face = |row: usize| Face::new(&format!("person {}", row / 4), &row.to_string(), random.vector(DIM));
    data_folder(&(0..ROWS).map(face).collect::<Vec<_>>())
}

async fn server(data: &TempDir, limits: &[&str]) -> Served {
    let flags: Vec<&str> = REFERENCE.iter().chain(limits).copied().collect();
    lookalike().serve(data.path(), &flags).await
}

fn search(probes: usize) -> SearchRequest {
    let mut random = Random::new(9);
    let probes: Vec<Probe> = (0..probes).map(|_| probe("p", &random.vector(DIM))).collect();
    SearchRequest { probes, top_k: 1, ..Default::default() }
}

/// Begins a search and does not wait for it.
fn begin(server: &Served, probes: usize) -> JoinHandle<Result<SearchResponse, Status>> {
    let mut client = server.recognition();
    tokio::spawn(async move { client.search(search(probes)).await.map(tonic::Response::into_inner) })
}

fn requests(code: &str) -> String {
    format!("lookalike_requests_total{{method=\"Recognition/Search\",code=\"{code}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_deadline_is_called_that() {
    let data = gallery();
    let server = server(&data, &[]).await;
    let message = search(SECOND).encode_to_vec();
    // On the wire: tonic's client would give up by itself.
    let ended =
        call(server.grpc, "/lookalike.v1.Recognition/Search", &[("grpc-timeout", "1m")], &message).await;
    assert_eq!(ended.status.code(), Code::DeadlineExceeded, "{:?}", ended.status);
    assert_eq!(ended.status.message(), "not done within 1ms");
    server.until_metric(&requests("deadline_exceeded"), 1.0).await;
    assert!((server.metric(&requests("cancelled")).await).abs() < f64::EPSILON);
    let mut patient = Request::new(search(1));
    patient.set_timeout(std::time::Duration::from_secs(50));
    server.recognition().search(patient).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_who_send_nothing_hold_no_place() {
    let data = gallery();
    let server = server(&data, &["server.limits.max_in_flight=2"]).await;
    let begun = begin_only(server.grpc, "/lookalike.v1.Recognition/Search", 50).await;
    server.until_metric(IN_FLIGHT, 50.0).await;
    server.recognition().search(search(1)).await.unwrap();
    drop(begun);
    server.until_metric(IN_FLIGHT, 0.0).await;
}

/// Connections of either side that send nothing: each is a file descriptor.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_closed_at_once() {
    let data = data_folder(&sample_faces());
    let server = server(&data, &["server.limits.max_connections=2"]).await;
    let _second = TcpStream::connect(server.grpc).await.unwrap();
    let mut third = TcpStream::connect(server.grpc).await.unwrap();
    assert_eq!(third.read(&mut [0]).await.unwrap_or_default(), 0);
    server.operations().get_info(lookalike::grpc::proto::GetInfoRequest {}).await.unwrap();

    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(TcpStream::connect(server.http).await.unwrap());
    }
    let mut another = TcpStream::connect(server.http).await.unwrap();
    assert_eq!(another.read(&mut [0]).await.unwrap_or_default(), 0);
    drop(idle);
    super::support::until("a place is free", async || {
        let mut stream = TcpStream::connect(server.http).await.ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.ends_with("ok\n").then_some(())
    })
    .await;
}

fn assert_shed(refused: &Status, text: &str) {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert_eq!(refused.message(), text);
    assert!(refused.get_details_retry_info().unwrap().retry_delay.unwrap() > std::time::Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_too_many_is_shed_at_once() {
    let data = gallery();
    let server = server(&data, &["server.limits.max_in_flight=1"]).await;
    let first = begin(&server, SECOND);
    server.until_metric(IN_FLIGHT, 1.0).await;
    for _ in 0..5 {
        let refused = server.recognition().search(search(1)).await.unwrap_err();
        assert_shed(&refused, "overloaded: 1 requests are being answered, which is the limit");
    }
    // What scans nothing is answered all the same.
    server.operations().get_info(lookalike::grpc::proto::GetInfoRequest {}).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap().results.len(), SECOND);
    server.until_metric(IN_FLIGHT, 0.0).await;
    server.recognition().search(search(1)).await.unwrap();
    assert!((server.metric(&requests("resource_exhausted")).await - 5.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_sheds_and_does_not_grow() {
    let data = gallery();
    let server = server(&data, &["server.limits.queue=1"]).await;
    let scanning = begin(&server, SECOND);
    server.until_metric(IN_FLIGHT, 1.0).await;
    server.until_metric(WAITING, 0.0).await;
    let waiting = begin(&server, 1);
    server.until_metric(WAITING, 1.0).await;
    for _ in 0..5 {
        let refused = server.recognition().search(search(1)).await.unwrap_err();
        assert_shed(&refused, "overloaded: 1 scans are waiting, which is the limit");
    }
    scanning.await.unwrap().unwrap();
    let waited = waiting.await.unwrap().unwrap().meta.unwrap();
    assert!(waited.queue_ns > 0);
    server.recognition().search(search(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_caller_who_has_gone_is_dropped() {
    let data = gallery();
    let server = server(&data, &[]).await;
    let first = begin(&server, SECOND);
    server.until_metric(IN_FLIGHT, 1.0).await;
    server.until_metric(WAITING, 0.0).await;
    // Sixteen times the work, which nobody will wait for.
    let gone = begin(&server, 16 * SECOND);
    server.until_metric(WAITING, 1.0).await;
    gone.abort();
    server.until_metric(&requests("cancelled"), 1.0).await;
    let last = begin(&server, 1);
    let scan_ns = first.await.unwrap().unwrap().meta.unwrap().scan_ns;
    let last = last.await.unwrap().unwrap().meta.unwrap();
    assert!(last.queue_ns < 4 * scan_ns, "waited {} ns, the first took {scan_ns}", last.queue_ns);
    assert!((server.metric(&requests("ok")).await - 2.0).abs() < f64::EPSILON);
    assert!((server.metric(IN_FLIGHT).await).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_lets_a_request_in_flight_end() {
    let data = gallery();
    let server = server(&data, &["server.shutdown_grace=60s"]).await;
    let request = begin(&server, SECOND);
    server.until_metric(IN_FLIGHT, 1.0).await;
    server.terminate();
    assert_eq!(request.await.unwrap().unwrap().results.len(), SECOND);
    let (status, stdout, lines) = server.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
    let said = |message: &str| lines.iter().any(|line| line["message"] == message);
    assert!(said("stopping") && said("stopped"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_outlasts_the_grace_is_cut_off() {
    let data = gallery();
    let server = server(&data, &["server.shutdown_grace=0s"]).await;
    let request = begin(&server, SECOND);
    server.until_metric(IN_FLIGHT, 1.0).await;
    server.terminate();
    assert!(request.await.unwrap().is_err());
    let (status, _, lines) = server.end();
    assert_eq!(status.code(), Some(0));
    let cut = "requests in flight were cut off: server.shutdown_grace is over";
    assert!(lines.iter().any(|line| line["message"] == cut), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_a_connection_for_pages_does_not_hold_up_the_end() {
    let data = data_folder(&sample_faces());
    let server = Server::start(data.path(), &["backend.kind=cpu", "server.shutdown_grace=1s"]).await;
    let mut held = tokio::net::TcpStream::connect(server.http).await.unwrap();
    held.write_all(b"GET /metr").await.unwrap();
    // Who comes after it has been answered: it is known to the server by then.
    assert_eq!(http_get(server.http, "/healthz").await.0, 200);
    let began = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(20), server.stop()).await;
    ended.expect("the connection is still held").unwrap();
    assert!(began.elapsed() > Duration::from_millis(900), "it was not held: {:?}", began.elapsed());
    drop(held);
}

//! The HTTP side for operators: `/metrics`, `/healthz` (the process is there), `/readyz` (requests will be answered), and the
//! console.
//!
//! Whoever holds a connection without asking, or asks by halves, is let go: few peers ask here, and none of them may keep the others out.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;

use super::console::{self, Console};
use super::health::Health;
use super::incoming::{self, Bounds};
use crate::grpc::Serving;
use crate::telemetry::{self, MetricsHandle};

/// The content type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Connections at once: Prometheus, whoever asks for health, and some browsers.
const MAX_CONNECTIONS: usize = 64;

/// How long a peer is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// From the connection or the last answer on, until a request's head has come. Other than the intervals at which one asks for metrics (10, 15, 30
    /// seconds), so that connections do not end just as they are used.
    head: Duration,
    /// From then on until the answer is made, for which the request's body must have come.
    answer: Duration,
    /// While it reads nothing of an answer.
    reading: Duration,
}

const PATIENCE: Patience = Patience {
    head: Duration::from_secs(20),
    answer: Duration::from_mins(1),
    reading: Duration::from_secs(20),
};

#[derive(Clone)]
struct Page {
    metrics: MetricsHandle,
    serving: Arc<Serving>,
    health: Health,
}

pub(super) async fn serve(
    listener: TcpListener,
    metrics: MetricsHandle,
    console: Console,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let (serving, health) = (Arc::clone(&console.serving), console.health.clone());
    let pages = Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Page { metrics, serving, health })
        .merge(console::routes(console));
    answer(listener, pages, PATIENCE, stop).await;
}

/// Answers until `stop` is done, and what was asked by then.
async fn answer(listener: TcpListener, pages: Router, patience: Patience, stop: impl Future<Output = ()>) {
    let pages = pages.layer(middleware::from_fn_with_state(patience.answer, within));
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(patience.head);
    let bounds = Bounds {
        key: "metrics.listen",
        most: MAX_CONNECTIONS,
        greeting: None,
        reading: Some(patience.reading),
    };
    let mut incoming = incoming::connections(listener, bounds);
    let (open, mut stop) = (GracefulShutdown::new(), pin!(stop));
    loop {
        let connection = tokio::select! {
            connection = incoming.next() => connection,
            () = &mut stop => None,
        };
        let Some(Ok(connection)) = connection else { break };
        let pages = TowerToHyperService::new(pages.clone());
        let serving = open.watch(protocol.serve_connection(TokioIo::new(connection), pages));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "a connection for pages and metrics ended early");
            }
        });
    }
    drop(incoming);
    open.shutdown().await;
}

/// The answer, unless it takes longer than that.
async fn within(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    tokio::time::timeout(limit, next.run(request))
        .await
        .unwrap_or_else(|_| (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response())
}

async fn render(State(page): State<Page>) -> impl IntoResponse {
    if let Ok(recognizer) = page.serving.recognizer() {
        telemetry::queue_depth(recognizer.engine().waiting());
    }
    if let Some(shadow) = page.serving.shadow_if_any() {
        shadow.show_queue();
    }
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], page.metrics.render())
}

async fn ready(State(page): State<Page>) -> (StatusCode, &'static str) {
    if page.health.is_ready() {
        // Galleries come and go while one is served, so that whoever brings the first must be let through.
        let serves_any =
            page.serving.recognizer().is_ok_and(|recognizer| recognizer.galleries().next().is_some());
        (StatusCode::OK, if serves_any { "ready\n" } else { "ready, but no gallery is served\n" })
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "loading, draining or failed\n")
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;

    /// Sends this to a server that waits for so many milliseconds for a head and for a body, and reads until it hangs up.
    async fn sent(parts: &str, (head, answered): (u64, u64)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let pages =
            Router::new().route("/", get(|| async { "got\n" }).merge(post(|body: String| async { body })));
        let patience = Patience {
            head: Duration::from_millis(head),
            answer: Duration::from_millis(answered),
            ..PATIENCE
        };
        let serving = tokio::spawn(answer(listener, pages, patience, async {
            let _ = stopped.await;
        }));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(parts.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap();
        answer
    }

    /// Were they waited for, this would never end.
    #[tokio::test]
    async fn connections_without_a_request_or_with_half_of_one_are_let_go() {
        for nothing in ["", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
            assert_eq!(sent(nothing, (20, 60_000)).await, "");
        }
        // One that was answered, and then asks no more.
        assert!(sent("GET / HTTP/1.1\r\nHost: x\r\n\r\n", (20, 60_000)).await.ends_with("\r\n\r\ngot\n"));
        let half = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf";
        assert!(sent(half, (60_000, 20)).await.starts_with("HTTP/1.1 408 "));
    }
}

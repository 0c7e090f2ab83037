//! The HTTP side for operators: `/metrics`, `/healthz` (the process is there), `/readyz` (requests will be answered), and the
//! console.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::console::{self, Console};
use super::health::Health;
use crate::grpc::Serving;
use crate::telemetry::{self, MetricsHandle};

/// The content type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
) -> io::Result<()> {
    let (serving, health) = (Arc::clone(&console.serving), console.health.clone());
    let pages = Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Page { metrics, serving, health })
        .merge(console::routes(console));
    axum::serve(listener, pages).with_graceful_shutdown(stop).await
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
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "loading, draining or failed\n")
    }
}

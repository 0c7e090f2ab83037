//! The console: one page for operators beside `/metrics`, made here with no build step.
//!
//! It reads without JavaScript, and keeps itself current with it: `/console/live` is its changing part by itself. It shows; what it can do (sampling,
//! promotion, demotion) asks for an admin's token with every request, so that no other page can make a browser do it, and is not there
//! where `server.tokens` names none. Nothing is loaded from elsewhere, and the policy that it is sent with forbids it.

mod change;
mod chart;
mod history;
mod page;
mod rollout;
mod text;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};

use history::{History, Sample};

use super::health::Health;
use crate::grpc::Serving;
use crate::shadow::evidence::Evidence;
use crate::telemetry::{Figures, ShadowKind};

const STYLE: &str = include_str!("style.css");
const LIVE: &str = include_str!("live.js");

/// Nothing but what this server sends itself.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// What the page is made of.
#[derive(Clone)]
pub(super) struct Console {
    pub(super) serving: Arc<Serving>,
    pub(super) health: Health,
    pub(super) history: Arc<History>,
}

impl Console {
    /// Notes what the metrics say now.
    pub(super) fn note(&self, rendered: &str) {
        let evidence = self.serving.shadow_if_any().map(|shadow| shadow.report().evidence);
        let of = |kind| evidence.as_ref().map_or(0, |evidence| evidence.of(kind));
        self.history.push(Sample {
            at: Instant::now(),
            figures: Figures::of(rendered),
            compared: evidence.as_ref().map_or(0, Evidence::compared),
            agreed: of(ShadowKind::Agree) + of(ShadowKind::Borderline),
        });
    }
}

/// The console's routes.
pub(super) fn routes(console: Console) -> Router {
    Router::new()
        .route("/", get(back))
        .route("/console", get(whole))
        .route("/console/live", get(live))
        .route("/console/style.css", get(|| async { asset("text/css; charset=utf-8", STYLE) }))
        .route("/console/live.js", get(|| async { asset("text/javascript; charset=utf-8", LIVE) }))
        .route("/console/sampling", form(post(change::sampling)))
        .route("/console/promote", form(post(change::promote)))
        .route("/console/demote", form(post(change::demote)))
        .fallback(nothing_here)
        .with_state(console)
}

/// Where a form is sent to; who comes without one is shown the page that has it.
fn form(sent: MethodRouter<Console>) -> MethodRouter<Console> {
    sent.get(back)
}

async fn back() -> Redirect {
    Redirect::to("/console")
}

async fn nothing_here(uri: Uri) -> Response {
    (StatusCode::NOT_FOUND, html(page::nothing_at(uri.path()))).into_response()
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

fn html(text: String) -> Response {
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}

async fn whole(State(console): State<Console>) -> Response {
    made(console, page::whole).await
}

async fn live(State(console): State<Console>) -> Response {
    made(console, page::live).await
}

/// Off the runtime's threads: bounds of very many trials take a moment.
async fn made(console: Console, make: fn(&Console) -> String) -> Response {
    match tokio::task::spawn_blocking(move || make(&console)).await {
        Ok(text) => html(text),
        Err(error) => {
            tracing::error!(%error, "the console's page failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the page failed; the server's log says why\n")
                .into_response()
        }
    }
}

//! The console: one page for operators beside `/metrics`, made here with no build step.
//!
//! It reads without JavaScript, and keeps itself current with it: `/console/live` is its changing part by itself. It shows; what it can do (sampling,
//! promotion, demotion) asks for an admin's token with every request, so that no other page can make a browser do it, and is not there
//! where `server.tokens` names none. Nothing is loaded from elsewhere, and the policy that it is sent with forbids it.

mod chart;
mod history;
mod page;
mod rollout;
mod text;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Form, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use history::{History, Sample};

use super::health::Health;
use crate::grpc::Serving;
use crate::shadow::Force;
use crate::shadow::evidence::Evidence;
use crate::telemetry::{Figures, ShadowKind};

const STYLE: &str = include_str!("style.css");
const LIVE: &str = include_str!("live.js");

/// Nothing but what this server sends itself.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Longest reason that is taken, in bytes.
const MAX_REASON: usize = 1024;

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
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console", get(whole))
        .route("/console/live", get(live))
        .route("/console/style.css", get(|| async { asset("text/css; charset=utf-8", STYLE) }))
        .route("/console/live.js", get(|| async { asset("text/javascript; charset=utf-8", LIVE) }))
        .route("/console/sampling", post(sampling))
        .route("/console/promote", post(promote))
        .route("/console/demote", post(demote))
        .with_state(console)
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

/// What an operator sends.
#[derive(Deserialize)]
struct Wish {
    token: String,
    #[serde(default)]
    percent: Option<f64>,
    #[serde(default)]
    reason: String,
}

async fn sampling(State(console): State<Console>, Form(wish): Form<Wish>) -> Response {
    let percent = wish.percent.filter(|percent| (0.0..=100.0).contains(percent));
    carry_out(&console, &wish, "Shadow/SetSampling", |shadow| match percent {
        Some(percent) => {
            shadow.set_sampling(percent / 100.0);
            Ok(())
        }
        None => Err("expected 0 to 100 %".to_owned()),
    })
}

async fn promote(State(console): State<Console>, Form(wish): Form<Wish>) -> Response {
    carry_out(&console, &wish, "Shadow/Promote", |shadow| {
        shadow.promote(&reason(&wish), Force::No).map(|_| ()).map_err(|error| error.to_string())
    })
}

async fn demote(State(console): State<Console>, Form(wish): Form<Wish>) -> Response {
    carry_out(&console, &wish, "Shadow/Demote", |shadow| {
        shadow.demote(&reason(&wish));
        Ok(())
    })
}

fn reason(wish: &Wish) -> String {
    let reason = wish.reason.trim();
    if reason.is_empty() || reason.len() > MAX_REASON {
        "an operator's word (console)".to_owned()
    } else {
        reason.to_owned()
    }
}

/// Does what an admin wants, and shows the page again.
fn carry_out(
    console: &Console,
    wish: &Wish,
    what: &str,
    act: impl FnOnce(&crate::shadow::Shadow) -> Result<(), String>,
) -> Response {
    if !console.serving.is_admin(&wish.token, what) {
        return (StatusCode::FORBIDDEN, "expected an admin's token (server.tokens)\n").into_response();
    }
    let Some(shadow) = console.serving.shadow_if_any() else {
        return (StatusCode::CONFLICT, "there is no shadow\n").into_response();
    };
    match act(&shadow) {
        Ok(()) => Redirect::to("/console").into_response(),
        Err(why) => (StatusCode::CONFLICT, format!("{why}\n")).into_response(),
    }
}

//! What an admin changes from the page: a form in, the page again out, or a page that says what is wrong and what would be right.
//!
//! In this order: there is a shadow (409), tokens are named at all (403), the form is one (400, 413, 415), the token is an admin's (403), each
//! field holds what it may (422), and the gate is met (409).

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};

use super::{Console, html, page};
use crate::domain::unprintable;
use crate::grpc::TURN_ON;
use crate::shadow::rollout::{MAX_REASON, by_hand};
use crate::shadow::{Force, NotFit, Shadow};
use crate::telemetry::Label;

/// Most bytes of what was sent that are repeated.
const MAX_REPEATED: usize = 60;

/// A form's fields as they came, or why they are none.
pub(super) type Sent = Result<Form<Vec<(String, String)>>, FormRejection>;

/// Why nothing was changed.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    /// One sentence a fault.
    faults: Vec<String>,
}

impl Refusal {
    fn one(status: StatusCode, fault: impl Into<String>) -> Self {
        Self { status, faults: vec![fault.into()] }
    }

    fn into_response(self) -> Response {
        (self.status, html(page::refused(&self.faults))).into_response()
    }
}

pub(super) async fn sampling(State(console): State<Console>, sent: Sent) -> Response {
    carry_out(&console, sent, "Shadow/SetSampling", |shadow, asked| {
        let percent = asked.percent()?;
        shadow.set_sampling(percent / 100.0);
        Ok(())
    })
}

pub(super) async fn promote(State(console): State<Console>, sent: Sent) -> Response {
    carry_out(&console, sent, "Shadow/Promote", |shadow, asked| {
        shadow.promote(&by_hand(&asked.who, asked.reason()?), Force::No).map_err(|why| not_fit(&why))?;
        Ok(())
    })
}

pub(super) async fn demote(State(console): State<Console>, sent: Sent) -> Response {
    carry_out(&console, sent, "Shadow/Demote", |shadow, asked| {
        shadow.demote(&by_hand(&asked.who, asked.reason()?));
        Ok(())
    })
}

/// What an admin asks for.
struct Asked {
    /// The admin's name.
    who: String,
    fields: Vec<(String, String)>,
}

impl Asked {
    fn field(&self, name: &str) -> Option<&str> {
        value(&self.fields, name)
    }

    fn percent(&self) -> Result<f64, Refusal> {
        let sent = self.field("percent").map(str::trim).filter(|text| !text.is_empty());
        let percent = sent.and_then(|text| text.parse::<f64>().ok());
        percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .ok_or_else(|| fault("percent", "a number from 0 to 100, such as 12.5", sent))
    }

    fn reason(&self) -> Result<&str, Refusal> {
        let reason = self.field("reason").unwrap_or_default();
        if let Some(found) = unprintable(reason) {
            return Err(fault(
                "reason",
                "text that can be printed on one line",
                Some(&format!("{found:?} in it")),
            ));
        }
        if reason.len() <= MAX_REASON {
            return Ok(reason);
        }
        Err(fault("reason", &format!("at most {MAX_REASON} bytes"), Some(&format!("{} bytes", reason.len()))))
    }
}

fn value<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
}

fn fault(field: &str, expected: &str, got: Option<&str>) -> Refusal {
    let got = got.map_or_else(
        || "nothing".to_owned(),
        |got| {
            let cut: String = got.chars().take(MAX_REPEATED).collect();
            if cut.len() < got.len() { format!("{cut}…") } else { cut }
        },
    );
    Refusal::one(StatusCode::UNPROCESSABLE_ENTITY, format!("{field}: expected {expected}, got {got}"))
}

fn not_fit(why: &NotFit) -> Refusal {
    if why.opening.is_some() {
        return Refusal::one(StatusCode::CONFLICT, why.to_string());
    }
    let mut faults =
        vec!["The gate is not met. To promote all the same: lookalike shadow promote --force".to_owned()];
    faults.extend(why.unmet.iter().map(|one| {
        let value = one.value.map_or_else(|| "nothing".to_owned(), super::text::number);
        format!(
            "{}: limit {}, got {value}",
            one.condition.as_str().replace('_', " "),
            super::text::number(one.limit)
        )
    }));
    Refusal { status: StatusCode::CONFLICT, faults }
}

/// Does what an admin wants, and shows the page again.
fn carry_out(
    console: &Console,
    sent: Sent,
    what: &str,
    act: impl FnOnce(&Shadow, &Asked) -> Result<(), Refusal>,
) -> Response {
    let done = asked(console, sent, what).and_then(|(shadow, asked)| act(&shadow, &asked));
    match done {
        Ok(()) => Redirect::to("/console").into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

fn asked(console: &Console, sent: Sent, what: &str) -> Result<(std::sync::Arc<Shadow>, Asked), Refusal> {
    let serving = &console.serving;
    let Some(shadow) = serving.shadow_if_any() else {
        let why = if serving.recognizer().is_ok() {
            format!("Shadow mode is off: {TURN_ON}.")
        } else {
            "The server is loading or stopping: there is no shadow yet, or no more.".to_owned()
        };
        return Err(Refusal::one(StatusCode::CONFLICT, why));
    };
    if !serving.has_tokens() {
        let why = "This server names no tokens (server.tokens), so the console changes nothing: use lookalike shadow.";
        return Err(Refusal::one(StatusCode::FORBIDDEN, why));
    }
    let Form(fields) = sent.map_err(|rejection| malformed(&rejection))?;
    let token = value(&fields, "token").map(str::trim).filter(|token| !token.is_empty());
    let who = token.and_then(|token| serving.admin(token, what)).map(str::to_owned);
    let who = who.ok_or_else(|| {
        let got = if token.is_some() { "one that it does not name" } else { "none" };
        let why = format!(
            "token: expected an admin's token (its SHA-256 stands in the file server.tokens), got {got}"
        );
        Refusal::one(StatusCode::FORBIDDEN, why)
    })?;
    Ok((shadow, Asked { who, fields }))
}

/// What cannot be read as a form at all.
fn malformed(rejection: &FormRejection) -> Refusal {
    let status = match rejection.status() {
        // The body is a form in name alone.
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        other => other,
    };
    let why = if status == StatusCode::PAYLOAD_TOO_LARGE {
        "expected a form of at most 2 MiB, got a larger one"
    } else {
        "expected a form (application/x-www-form-urlencoded) with the fields token and percent or reason, got something else"
    };
    Refusal::one(status, why)
}

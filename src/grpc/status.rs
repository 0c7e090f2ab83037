//! The one place where errors become gRPC statuses.
//!
//! Texts of drivers and files stay in the log: a client learns what it can act upon.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetails, FieldViolation, PreconditionViolation, StatusExt};

use super::serving::Loading;
use crate::engine::EngineError;
use crate::recognize::{ReloadError, UnknownGallery};
use crate::shadow::{NotFit, ReplayError};
use crate::telemetry::Label;

/// Most faults that one answer lists.
const MAX_VIOLATIONS: usize = 32;

/// How long a client is asked to wait before it tries an overloaded or loading server again.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The domain of `google.rpc.ErrorInfo`.
const DOMAIN: &str = "lookalike.v1";

/// Faults of a request, by field path.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<FieldViolation>);

impl Violations {
    /// Notes one fault; `description` says what was expected and what came.
    pub(super) fn push(&mut self, field: impl Into<String>, description: impl Into<String>) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push(FieldViolation::new(field, description));
        }
    }

    /// Keeps `value`, or notes why there is none.
    pub(super) fn take<T, E: std::fmt::Display>(
        &mut self,
        field: impl Into<String>,
        value: Result<T, E>,
    ) -> Option<T> {
        value.map_err(|error| self.push(field, error.to_string())).ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() == MAX_VIOLATIONS
    }
}

/// `INVALID_ARGUMENT`: the first fault in the message, all of them in `google.rpc.BadRequest`.
impl From<Violations> for Status {
    fn from(violations: Violations) -> Self {
        let message = match violations.0.as_slice() {
            [] => "bad request".to_owned(),
            [only] => format!("{}: {}", only.field, only.description),
            [first, others @ ..] => {
                format!("{}: {} (and {} more)", first.field, first.description, others.len())
            }
        };
        let details = ErrorDetails::with_bad_request(BadRequest::new(violations.0).field_violations);
        Self::with_error_details(Code::InvalidArgument, message, details)
    }
}

/// One fault alone.
pub(super) fn invalid(field: &str, description: impl Into<String>) -> Status {
    let mut violations = Violations::default();
    violations.push(field, description);
    violations.into()
}

/// The request was made with another model's embeddings.
pub(super) fn wrong_model(expected: &str, got: &str) -> Status {
    let metadata =
        HashMap::from([("expected".to_owned(), expected.to_owned()), ("got".to_owned(), got.to_owned())]);
    let details = ErrorDetails::with_error_info("WRONG_MODEL", DOMAIN, metadata);
    let message = format!("model_id: expected {expected:?}, the gallery's model, got {got:?}");
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

/// The gallery has nobody of that name; the name is not repeated, since it may be a person's.
pub(super) fn unknown_identity() -> Status {
    Status::not_found("identity: the gallery has no such identity")
}

/// The server has as much to do as it may have.
pub(super) fn overloaded(what: impl std::fmt::Display) -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_DELAY));
    Status::with_error_details(Code::ResourceExhausted, format!("overloaded: {what}"), details)
}

/// The caller's deadline has passed.
pub(super) fn expired(deadline: Duration) -> Status {
    Status::deadline_exceeded(format!("not done within {deadline:?}"))
}

impl From<Loading> for Status {
    fn from(_: Loading) -> Self {
        let details = ErrorDetails::with_retry_info(Some(RETRY_DELAY));
        Self::with_error_details(
            Code::Unavailable,
            "the galleries are still being loaded, or the server is stopping",
            details,
        )
    }
}

impl From<UnknownGallery> for Status {
    fn from(unknown: UnknownGallery) -> Self {
        let details = ErrorDetails::with_resource_info("gallery", unknown.name.clone(), "", "is not served");
        Self::with_error_details(Code::NotFound, format!("gallery: {unknown}"), details)
    }
}

/// The data folder could not be loaded anew; what its texts say of files stays in the log.
impl From<ReloadError> for Status {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Store(error) => {
                tracing::error!(%error, "the data folder cannot be loaded");
                Self::failed_precondition("the data folder cannot be loaded; the server's log says why")
            }
            ReloadError::Engine(error) => error.into(),
        }
    }
}

impl From<NotFit> for Status {
    fn from(not_fit: NotFit) -> Self {
        if not_fit.opening.is_some() {
            return Self::failed_precondition(not_fit.to_string());
        }
        let told = |value: Option<f64>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
        let unmet: Vec<(&str, String)> = not_fit
            .unmet
            .iter()
            .map(|one| (one.condition.as_str(), format!("limit {}, got {}", one.limit, told(one.value))))
            .collect();
        let sentence: Vec<String> = unmet.iter().map(|(name, what)| format!("{name}: {what}")).collect();
        let violations = unmet
            .into_iter()
            .map(|(name, what)| PreconditionViolation::new("GATE", name, what))
            .collect::<Vec<_>>();
        let message = format!("{not_fit} (force promotes all the same): {}", sentence.join("; "));
        let details = ErrorDetails::with_precondition_failure(violations);
        Self::with_error_details(Code::FailedPrecondition, message, details)
    }
}

impl From<ReplayError> for Status {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Unknown(_) => Self::not_found(error.to_string()),
            ReplayError::NoProbe(_) | ReplayError::NoGallery(_) | ReplayError::NotOpen(_) => {
                Self::failed_precondition(error.to_string())
            }
            ReplayError::Reference(_) => {
                tracing::error!(%error, "a replay failed");
                Self::internal("the replay failed; the server's log says why")
            }
        }
    }
}

impl From<EngineError> for Status {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Overloaded { .. } => overloaded(error),
            EngineError::Stopped => Self::unavailable("the engine has stopped"),
            EngineError::Panicked => Self::internal("the engine failed; the server's log says why"),
            EngineError::Backend(error) => {
                tracing::error!(%error, "the backend failed and backend.fallback is fail");
                Self::internal("the backend failed; the server's log says why")
            }
            // Both end the start, before there is anybody to answer.
            EngineError::Threads(_) | EngineError::Instructions(_) => {
                tracing::error!(%error, "the engine did not start");
                Self::internal("the engine failed; the server's log says why")
            }
        }
    }
}

/// What tonic says of a message that it could not take, in our words: it answers before a service is asked.
pub(super) fn undecodable(status: &Status) -> Option<Status> {
    let message = status.message();
    match status.code() {
        Code::OutOfRange => {
            let numbers: Vec<u64> = message.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [got, limit] = numbers[..] else { return None };
            let text = format!("expected at most {limit} bytes (server.limits.max_message_bytes), got {got}");
            Some(invalid("(message)", text))
        }
        Code::Internal if message.starts_with("Missing request message") => {
            Some(invalid("(message)", "expected one message, got none"))
        }
        Code::Internal if message.starts_with("failed to decode Protobuf message") => Some(invalid(
            "(message)",
            format!("expected a message of this method, got bytes that are none: {message}"),
        )),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_listed_by_path_up_to_the_limit() {
        let mut violations = Violations::default();
        for probe in 0..100 {
            violations.push(format!("probes[{probe}].embedding"), "expected 128 components, got 3");
        }
        let status = Status::from(violations);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("probes[0].embedding: expected 128"), "{}", status.message());
        let listed = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!((listed.len(), listed[31].field.as_str()), (MAX_VIOLATIONS, "probes[31].embedding"));
    }

    #[test]
    fn overload_says_when_to_come_back() {
        let status = Status::from(EngineError::Overloaded { waiting: 5 });
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.get_details_retry_info().unwrap().retry_delay.is_some());
    }

    #[test]
    fn a_message_over_the_limit_names_both_numbers() {
        let told = "Error, decoded message length too large: found 5000 bytes, the limit is: 4096 bytes";
        let status = undecodable(&Status::out_of_range(told)).unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("at most 4096") && status.message().contains("got 5000"));
        assert!(undecodable(&Status::internal("the backend failed")).is_none());
        let missing = undecodable(&Status::internal("Missing request message.")).unwrap();
        assert_eq!(missing.code(), Code::InvalidArgument);
    }
}

//! What every request passes through, whichever service it is for: an id and a span, the count of those in flight,
//! the deadline, and the metrics of its end.
//!
//! It lies around tonic's services, so that what tonic answers by itself (an undecodable message, an unknown
//! method) is named and counted like the rest.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument;

use super::status;
use crate::telemetry::{self, InFlight, Label, Method};

/// The header that carries a request's id, both ways.
pub const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is taken from a caller.
const MAX_REQUEST_ID: usize = 128;

/// A request's id: the caller's, or made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

impl RequestId {
    /// The caller's id where it is 1 to 128 visible ASCII characters, else a new one (a UUID of version 7).
    fn of(headers: &HeaderMap) -> Self {
        let told = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let fits = |id: &&str| {
            (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match told.filter(fits) {
            Some(id) => Self(id.into()),
            None => Self(uuid::Uuid::now_v7().to_string().into()),
        }
    }
}

/// Puts [`Envelope`] around a service.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeLayer;

impl<S> Layer<S> for EnvelopeLayer {
    type Service = Envelope<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Envelope { inner }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Envelope<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Envelope<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let method = Method::from_path(request.uri().path());
        let id = RequestId::of(request.headers());
        let span = tracing::info_span!("request", id = %id.0, method = method.as_str());
        let ended = Ended::new(method);
        let deadline = grpc_timeout(request.headers()).map(|timeout| (timeout, Instant::now() + timeout));
        request.extensions_mut().insert(id.clone());
        let answer = self.inner.call(request);
        let answering = async move {
            let response = match deadline {
                None => answer.await?,
                Some((timeout, _)) if timeout.is_zero() => status::expired(timeout).into_http(),
                // Dropping the service's future withdraws its scan from the queue.
                Some((timeout, at)) => match tokio::time::timeout_at(at.into(), answer).await {
                    Ok(answer) => answer?,
                    Err(_) => status::expired(timeout).into_http(),
                },
            };
            Ok(ended.with(explained(response), &id))
        };
        Box::pin(answering.instrument(span))
    }
}

/// What tonic said by itself, in our words.
fn explained(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()).as_ref().and_then(status::undecodable) {
        Some(status) => status.into_http(),
        None => response,
    }
}

/// Counts a request when it ends, also when its caller goes away before.
struct Ended {
    method: Method,
    began: Instant,
    code: Code,
    _in_flight: InFlight,
}

impl Ended {
    fn new(method: Method) -> Self {
        Self { method, began: Instant::now(), code: Code::Cancelled, _in_flight: InFlight::begin() }
    }

    /// The request ends with this response, which gets the request's id.
    fn with(mut self, mut response: Response<Body>, id: &RequestId) -> Response<Body> {
        // A status in the headers is an error; without one the body will end well.
        let status = Status::from_header_map(response.headers());
        self.code = status.as_ref().map_or(Code::Ok, Status::code);
        if let Ok(value) = HeaderValue::from_str(&id.0) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        let message = status.as_ref().map_or("", Status::message);
        let elapsed_us = self.began.elapsed().as_micros() as u64;
        if self.code == Code::Ok {
            tracing::debug!(elapsed_us, "answered");
        } else {
            tracing::info!(elapsed_us, code = ?self.code, message, "refused");
        }
        response
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let code = telemetry::Code::from(self.code as i32);
        telemetry::request_done(self.method, code, self.began.elapsed());
    }
}

/// The caller's deadline, as the gRPC protocol writes it: at most 8 digits and a unit.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(count)),
        "M" => Some(Duration::from_mins(count)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn deadlines_are_read_as_the_protocol_writes_them() {
        let read = |text| grpc_timeout(&headers("grpc-timeout", text));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        for bad in ["", "5", "S", "123456789S", "5x", "-5S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_callers_id_is_kept_and_a_bad_one_replaced() {
        let of = |id: &str| RequestId::of(&headers("x-request-id", id)).0;
        assert_eq!(&*of("photo-42/face-1"), "photo-42/face-1");
        for bad in ["", "two words", &"x".repeat(129)] {
            assert_eq!(of(bad).len(), 36, "{bad:?}");
        }
        assert_ne!(RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
    }
}

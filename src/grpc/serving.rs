//! What the services share: the galleries once they are loaded, and the bounds on requests.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::config::Limits;
use crate::recognize::Recognizer;

/// Shared by all services of one server.
#[derive(Debug)]
pub struct Serving {
    recognizer: OnceLock<Arc<Recognizer>>,
    limits: Limits,
    started: Instant,
}

/// The galleries are still being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading;

impl Serving {
    /// A server that is still loading.
    pub fn new(limits: Limits) -> Self {
        Self { recognizer: OnceLock::new(), limits, started: Instant::now() }
    }

    /// Loading is done. Answers false if it was done before.
    pub fn loaded(&self, recognizer: Arc<Recognizer>) -> bool {
        self.recognizer.set(recognizer).is_ok()
    }

    /// The galleries and their engine.
    pub fn recognizer(&self) -> Result<&Arc<Recognizer>, Loading> {
        self.recognizer.get().ok_or(Loading)
    }

    /// The bounds on requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When the server started.
    pub fn started(&self) -> Instant {
        self.started
    }
}

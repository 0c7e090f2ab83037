//! What the services share: the galleries once they are loaded, and the bounds on requests.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::config::Limits;
use crate::recognize::Recognizer;

/// Shared by all services of one server.
#[derive(Debug)]
pub struct Serving {
    recognizer: RwLock<Option<Arc<Recognizer>>>,
    limits: Limits,
    started: Instant,
}

/// The galleries are not loaded yet, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading;

impl Serving {
    /// A server that is still loading.
    pub fn new(limits: Limits) -> Self {
        Self { recognizer: RwLock::new(None), limits, started: Instant::now() }
    }

    /// From now on these galleries are served, or none any more; gives back what was served before.
    pub fn serve(&self, recognizer: Option<Arc<Recognizer>>) -> Option<Arc<Recognizer>> {
        let mut served = self.recognizer.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *served, recognizer)
    }

    /// The galleries and their engine.
    pub fn recognizer(&self) -> Result<Arc<Recognizer>, Loading> {
        self.recognizer.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Loading)
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

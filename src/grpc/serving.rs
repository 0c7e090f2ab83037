//! What the services share: the galleries once they are loaded, and the bounds on requests.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::status;
use crate::config::Limits;
use crate::recognize::Recognizer;

/// Shared by all services of one server.
#[derive(Debug)]
pub struct Serving {
    recognizer: RwLock<Option<Arc<Recognizer>>>,
    limits: Limits,
    places: Arc<Semaphore>,
    started: Instant,
}

/// The galleries are not loaded yet, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading;

impl Serving {
    /// A server that is still loading.
    pub fn new(limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.max_in_flight));
        Self { recognizer: RwLock::new(None), limits, places, started: Instant::now() }
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

    /// A place among the requests being answered, held until it is dropped. It is taken when the message is there: a caller who
    /// opens requests and sends nothing holds none.
    pub(super) fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let most = self.limits.max_in_flight;
            status::overloaded(format!("{most} requests are being answered, which is the limit"))
        })
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

//! A device out of service, and the way back: tried, opened and filled on a thread of its own, while others answer.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Instant;

use super::plan::Reopen;
use crate::backend::BackendError;
use crate::backend::joined::{Joined, JoinedRows};
use crate::gallery::Snapshot;

/// Why a device is out of service, and what is done about it.
pub(super) struct Outage {
    pub(super) because: BackendError,
    retry_at: Instant,
    /// Once it is being brought back.
    coming: Option<Receiver<Result<Recovered, BackendError>>>,
}

/// A device that is back, with what it holds.
pub(super) struct Recovered {
    pub(super) backend: Joined,
    pub(super) loaded: Vec<(Arc<Snapshot>, JoinedRows)>,
}

impl Outage {
    pub(super) fn new(because: BackendError, retry_at: Instant) -> Self {
        Self { because, retry_at, coming: None }
    }

    /// Whether it is being brought back.
    #[cfg(test)]
    pub(super) fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Begins to bring it back when it is time to, with these generations; what came of it, once.
    pub(super) fn look(
        &mut self,
        now: Instant,
        reopen: &Reopen,
        snapshots: impl FnOnce() -> Vec<Arc<Snapshot>>,
    ) -> Option<Result<Recovered, BackendError>> {
        if let Some(coming) = &self.coming {
            return match coming.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(TryRecvError::Empty) => None,
                // Its thread panicked.
                Err(TryRecvError::Disconnected) => Some(Err(self.because.clone())),
            };
        }
        if now < self.retry_at {
            return None;
        }
        let (reopen, snapshots) = (Arc::clone(reopen), snapshots());
        let (sender, coming) = mpsc::channel();
        let started = std::thread::Builder::new().name("recovery".to_owned()).spawn(move || {
            let _ = sender.send(recover(&reopen, snapshots));
        });
        match started {
            Ok(_) => self.coming = Some(coming),
            // No thread to be had now: the next look tries again.
            Err(error) => tracing::warn!(%error, "the device cannot be tried"),
        }
        None
    }
}

fn recover(reopen: &Reopen, snapshots: Vec<Arc<Snapshot>>) -> Result<Recovered, BackendError> {
    let mut backend = reopen()?;
    let mut loaded = Vec::new();
    for snapshot in snapshots {
        match backend.load_rows(snapshot.matrix()) {
            Ok(rows) => loaded.push((snapshot, rows)),
            Err(error) if error.is_of_device() => return Err(error),
            // It stays where it is, and is tried by itself.
            Err(error) => {
                tracing::warn!(gallery = snapshot.profile().name, %error, "a gallery stays on the CPU");
            }
        }
    }
    Ok(Recovered { backend, loaded })
}

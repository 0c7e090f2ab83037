//! The shadow's backend on its way: opened and filled on a thread of its own, beside all that is served, and tried again after pauses
//! where that fails.
//!
//! A driver may compile for a minute, or never come back: then its thread is left to itself, and those who ask learn that it is being
//! opened.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::now_ms;
use crate::config::BackendSettings;
use crate::engine::{Engine, EngineError, Pauses};
use crate::gallery::Snapshot;
use crate::recognize::rehearse;

/// Opens the shadow's engine, as these settings choose it. Blocks.
pub type Open = Arc<dyn Fn(&BackendSettings) -> Result<Engine, EngineError> + Send + Sync>;

/// How a backend that is not open yet stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Since when it is to be opened, in milliseconds since 1970 (UTC).
    pub since_ms: u64,
    /// How often that failed.
    pub failures: u64,
    /// Why it failed last; empty where it did not.
    pub error: String,
    /// What comes next.
    pub next: Next,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// It is being opened now.
    #[default]
    Trying,
    /// It is tried again then, in milliseconds since 1970 (UTC).
    At(u64),
    /// Nothing: it cannot be compared as things are configured.
    Never,
}

impl Opening {
    /// In words, of the backend of this name.
    pub fn sentence(&self, backend: &str) -> String {
        let time = |ms| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms));
        let times = if self.failures == 1 { "once".to_owned() } else { format!("{} times", self.failures) };
        let failed = format!("{backend} could not be opened ({times}): {}", self.error);
        match self.next {
            Next::Trying if self.failures == 0 => {
                format!(
                    "{backend} has been opening since {}; nothing is compared until it is open",
                    time(self.since_ms)
                )
            }
            Next::Trying => format!("{failed}; it is being opened again"),
            Next::At(ms) => format!("{failed}; it is tried again at {}", time(ms)),
            Next::Never => format!("{backend} cannot be compared: {}", self.error),
        }
    }
}

/// An engine that is open, and holds these generations.
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) ready: Vec<Arc<Snapshot>>,
}

/// Opens an engine, until that has been done.
pub(super) struct Opener {
    open: Open,
    settings: BackendSettings,
    coming: Option<Receiver<Result<Opened, EngineError>>>,
    retry_at: Option<Instant>,
    pauses: Pauses,
    seen: Opening,
}

impl Opener {
    pub(super) fn new(open: Open, settings: BackendSettings) -> Self {
        let seen = Opening { since_ms: now_ms(), ..Opening::default() };
        Self { open, settings, coming: None, retry_at: None, pauses: Pauses::default(), seen }
    }

    /// How it stands.
    pub(super) fn seen(&self) -> &Opening {
        &self.seen
    }

    /// Begins where it is time to, with the galleries served now; what came of it, once.
    pub(super) fn look(
        &mut self,
        now: Instant,
        galleries: impl FnOnce() -> Vec<Arc<Snapshot>>,
    ) -> Option<Result<Opened, String>> {
        let Some(coming) = &self.coming else {
            if self.retry_at.is_none_or(|at| now >= at) {
                self.begin(galleries());
            }
            return None;
        };
        let why = match coming.try_recv() {
            Ok(Ok(opened)) => return Some(Ok(opened)),
            Ok(Err(error)) => first_line(&error),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => "opening it panicked".to_owned(),
        };
        self.coming = None;
        let retry_at = self.pauses.failed(now);
        self.retry_at = Some(retry_at);
        let pause = retry_at.saturating_duration_since(now).as_millis();
        self.seen.failures += 1;
        self.seen.error.clone_from(&why);
        self.seen.next = Next::At(now_ms().saturating_add(u64::try_from(pause).unwrap_or(u64::MAX)));
        Some(Err(why))
    }

    fn begin(&mut self, galleries: Vec<Arc<Snapshot>>) {
        let (open, settings) = (Arc::clone(&self.open), self.settings.clone());
        let (sender, coming) = mpsc::channel();
        let started = std::thread::Builder::new().name("shadow-opening".to_owned()).spawn(move || {
            // Where the server has stopped meanwhile nobody takes it, and it closes again.
            let _ = sender.send(opened(&open, &settings, galleries));
        });
        match started {
            Ok(_) => (self.coming, self.seen.next) = (Some(coming), Next::Trying),
            // No thread to be had now: the next look tries again.
            Err(error) => tracing::warn!(%error, "the shadow's backend cannot be opened yet"),
        }
    }
}

/// What holds no gallery yet would let the first requests wait for them, and call that its latency.
fn opened(open: &Open, settings: &BackendSettings, ready: Vec<Arc<Snapshot>>) -> Result<Opened, EngineError> {
    let engine = open(settings)?;
    for snapshot in &ready {
        engine.load(Arc::clone(snapshot), None)?;
    }
    for snapshot in &ready {
        rehearse(&engine, snapshot);
    }
    Ok(Opened { engine, ready })
}

/// A compiler's log stays in ours.
fn first_line(error: &EngineError) -> String {
    tracing::error!(target: super::TARGET, %error, "the shadow's backend could not be opened; callers are served all the same");
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_stands_is_said_in_words() {
        let at =
            |failures, error: &str, next| Opening { since_ms: 1000, failures, error: error.to_owned(), next };
        for (opening, told) in [
            (
                at(0, "", Next::Trying),
                "opencl has been opening since 1970-01-01T00:00:01Z; nothing is compared until it is open",
            ),
            (
                at(1, "lost", Next::At(2000)),
                "opencl could not be opened (once): lost; it is tried again at 1970-01-01T00:00:02Z",
            ),
            (
                at(3, "lost", Next::Trying),
                "opencl could not be opened (3 times): lost; it is being opened again",
            ),
            (at(0, "it is the primary", Next::Never), "opencl cannot be compared: it is the primary"),
        ] {
            assert_eq!(opening.sentence("opencl"), told);
        }
    }
}

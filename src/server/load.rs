//! From settings to galleries that are ready for scanning.

use thiserror::Error;

use crate::config::Settings;
use crate::engine::{Engine, EngineError};
use crate::gallery::store::{Store, StoreError};
use crate::recognize::Recognizer;
use crate::telemetry::metrics;

/// Why the galleries could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The data folder.
    #[error("storage.path: {0}")]
    Store(#[from] StoreError),
    /// The backend.
    #[error("backend: {0}")]
    Engine(#[from] EngineError),
    /// A fault of ours.
    #[error("loading panicked: {0}")]
    Panicked(String),
}

/// Opens the backend and the data folder and makes every gallery ready. Blocks.
pub fn load(settings: &Settings) -> Result<Recognizer, LoadError> {
    let snapshots = Store::open_read_only(&settings.storage.path)?.snapshots()?;
    let engine = Engine::start(&settings.backend, settings.server.limits.queue)?;
    Ok(Recognizer::load(engine, snapshots, settings.recognition)?)
}

/// Says in the log and the metrics what is served and by what.
pub(super) fn announce(recognizer: &Recognizer, gallery_label: bool) {
    let choice = recognizer.engine().choice();
    let active = choice.active();
    tracing::info!(
        backend = active.backend,
        device = active.device,
        driver = active.driver,
        reason = choice.sentence,
        "backend chosen"
    );
    for status in &choice.backends {
        let description = &status.description;
        metrics::backend(description.backend, &description.device, &description.driver);
        metrics::backend_up(description.backend, status.up);
    }
    metrics::backend_choice(active.backend, choice.reason);
    metrics::device_memory(recognizer.device_bytes());
    let mut sums = (0, 0, 0);
    for snapshot in recognizer.galleries() {
        let profile = snapshot.profile();
        let counts = (snapshot.rows().len() as u64, snapshot.identities().len() as u64, profile.generation);
        tracing::info!(
            gallery = profile.name,
            dim = profile.dim,
            prototypes = counts.0,
            identities = counts.1,
            generation = counts.2,
            "gallery loaded"
        );
        if gallery_label {
            metrics::gallery(Some(&profile.name), counts.0, counts.1, counts.2);
        }
        sums = (sums.0 + counts.0, sums.1 + counts.1, sums.2 + counts.2);
    }
    if !gallery_label {
        metrics::gallery(None, sums.0, sums.1, sums.2);
    }
}

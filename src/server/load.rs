//! From settings to galleries that are ready for scanning.

use thiserror::Error;

use crate::config::Settings;
use crate::domain::{return_free_pages, return_large_blocks};
use crate::engine::{Engine, EngineError};
use crate::gallery::store::{Store, StoreError};
use crate::recognize::Recognizer;
use crate::telemetry::{self, BackendState, GalleryFigures, GalleryGauges, GalleryLabel, Label};

/// Why the galleries could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The data folder.
    #[error("storage.path")]
    Store(#[from] StoreError),
    /// The backend.
    #[error("backend")]
    Engine(#[from] EngineError),
    /// A fault of ours.
    #[error("loading panicked: {0}")]
    Panicked(String),
}

/// Opens the backend and the data folder and makes every gallery ready. Blocks.
pub fn load(settings: &Settings) -> Result<Recognizer, LoadError> {
    return_large_blocks();
    let snapshots = Store::open_read_only(&settings.storage.path)?.snapshots()?;
    let engine = Engine::start(&settings.backend, settings.server.limits.queue)?;
    let recognizer = Recognizer::load(engine, snapshots, settings.recognition)?;
    return_free_pages();
    Ok(recognizer)
}

/// Says in the log and the metrics what is served and by what.
pub(super) fn announce(recognizer: &Recognizer, label: GalleryLabel) {
    let choice = recognizer.engine().choice();
    let active = choice.active();
    tracing::info!(
        backend = active.backend.as_str(),
        device = active.device,
        driver = active.driver,
        reason = choice.sentence,
        "backend chosen"
    );
    for description in &choice.backends {
        telemetry::backend_described(description.backend, &description.device, &description.driver);
    }
    // The engine shows whether the one in use is up; what stands behind it is the CPU, which always is.
    for behind in &choice.backends[1..] {
        telemetry::backend_state(behind.backend, BackendState::Up);
    }
    if let Some(fallback) = &choice.fallback {
        telemetry::fell_back(fallback.reason);
    }
    telemetry::backend_chosen(active.backend, choice.reason);
    let galleries: Vec<(&str, GalleryFigures)> = recognizer
        .galleries()
        .map(|snapshot| {
            let figures = GalleryFigures {
                prototypes: snapshot.row_count() as u64,
                identities: snapshot.identity_count() as u64,
                generation: snapshot.profile().generation,
            };
            (snapshot.profile().name.as_str(), figures)
        })
        .collect();
    for (gallery, figures) in &galleries {
        let GalleryFigures { prototypes, identities, generation } = figures;
        tracing::info!(gallery, prototypes, identities, generation, "gallery loaded");
    }
    GalleryGauges::new(label).show(galleries);
}

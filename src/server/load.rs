//! From settings to galleries that are ready for scanning.

use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::config::Settings;
use crate::domain::{return_free_pages, return_large_blocks};
use crate::engine::{Engine, EngineError};
use crate::gallery::Snapshot;
use crate::gallery::store::{Store, StoreError};
use crate::grpc::Reloading;
use crate::recognize::Recognizer;
use crate::shadow::ShadowError;
use crate::telemetry::{self, GalleryFigures, GalleryGauges, Label};

/// Why the galleries could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The data folder.
    #[error("storage.path")]
    Store(#[from] StoreError),
    /// The backend.
    #[error("backend")]
    Engine(#[from] EngineError),
    /// The shadow.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
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

/// How the data folder is loaded anew; the galleries' metrics follow.
pub(super) fn reloading(settings: &Settings, gauges: Arc<Mutex<GalleryGauges>>) -> Reloading {
    let path = settings.storage.path.clone();
    Box::new(move |recognizer| {
        // One at a time.
        let mut gauges = gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let reloaded = recognizer.reload(&Store::open_read_only(&path)?)?;
        for gallery in &reloaded.withdrawn {
            tracing::info!(gallery, "gallery withdrawn");
        }
        // Galleries of other sizes may have another backend answer.
        recognizer.account().show();
        show(recognizer, &mut gauges, |name| reloaded.loaded.iter().any(|(loaded, _)| loaded == name));
        return_free_pages();
        Ok(reloaded)
    })
}

/// Says in the log and the metrics what is served and by what.
pub(super) fn announce(recognizer: &Recognizer, gauges: &mut GalleryGauges) {
    let choice = recognizer.standing().choice();
    let account = recognizer.account();
    let answers = account.answers();
    tracing::info!(
        backend = answers.backend.as_str(),
        device = answers.device,
        driver = answers.driver,
        reason = account.sentence,
        "backend chosen"
    );
    for description in &choice.backends {
        telemetry::backend_described(description.backend, &description.device, &description.driver);
    }
    if let Some(fallback) = &choice.fallback {
        telemetry::fell_back(fallback.reason);
    }
    account.show();
    show(recognizer, gauges, |_| true);
}

/// Says what is served: in the metrics of all, in the log of those that are new.
fn show(recognizer: &Recognizer, gauges: &mut GalleryGauges, is_new: impl Fn(&str) -> bool) {
    let served: Vec<Arc<Snapshot>> = recognizer.galleries().collect();
    let figures = served.iter().map(|snapshot| {
        let profile = snapshot.profile();
        let figures = GalleryFigures {
            prototypes: snapshot.row_count() as u64,
            identities: snapshot.identity_count() as u64,
            generation: profile.generation,
        };
        let GalleryFigures { prototypes, identities, generation } = figures;
        if is_new(&profile.name) {
            tracing::info!(gallery = profile.name, prototypes, identities, generation, "gallery served");
        }
        (profile.name.as_str(), figures)
    });
    gauges.show(figures);
    if served.is_empty() {
        tracing::warn!(
            "no gallery is served: every question is answered NOT_FOUND until one is imported and reloaded"
        );
    }
}

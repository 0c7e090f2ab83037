//! From settings to galleries that are ready for scanning.

use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::backend::opencl;
use crate::config::{BackendKind, BackendSettings, Fallback, Settings};
use crate::domain::{return_free_pages, return_large_blocks};
use crate::engine::{Engine, EngineError};
use crate::gallery::Snapshot;
use crate::gallery::store::{Store, StoreError};
use crate::grpc::Reloading;
use crate::recognize::{Recognizer, Seat};
use crate::shadow::{self, Programs, Shadow, ShadowError};
use crate::telemetry::{self, BackendState, GalleryFigures, GalleryGauges, Label};

/// Requests that may wait for the shadow's engine: its thread asks one at a time, and an operator may replay beside it.
const SHADOW_QUEUE: usize = 64;

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

/// What is served, and what stands beside it.
#[derive(Debug)]
pub struct Loaded {
    /// The galleries and their engines.
    pub recognizer: Arc<Recognizer>,
    /// The shadow, or why there is none; `None` where none is wanted.
    pub shadow: Option<Result<Shadow, String>>,
}

/// As [`load`], with the shadow that the settings want. One that cannot start keeps nothing from being served, unless its record cannot be
/// kept, which is a fault of the configuration. Blocks.
pub fn load_with_shadow(settings: &Settings) -> Result<Loaded, LoadError> {
    load_with(settings, |backend| Engine::start(backend, SHADOW_QUEUE))
}

/// As [`load_with_shadow`], with another engine for the shadow than the one that the settings choose: `start` is given what they would
/// choose it by.
pub fn load_with(
    settings: &Settings,
    start: impl FnOnce(&BackendSettings) -> Result<Engine, EngineError>,
) -> Result<Loaded, LoadError> {
    let recognizer = load(settings)?;
    if !settings.shadow.enabled {
        return Ok(Loaded { recognizer: Arc::new(recognizer), shadow: None });
    }
    // Another backend that stood in for it would be compared in its name.
    let backend = BackendSettings {
        kind: settings.shadow.backend,
        fallback: Fallback::Fail,
        ..settings.backend.clone()
    };
    let engine = match start(&backend) {
        Ok(engine) => engine,
        Err(error) => return Ok(without_shadow(recognizer, &error.to_string())),
    };
    let both = engine.choice().active().backend;
    if recognizer.standing().choice().active().backend == both {
        let why = format!("{} stands in for backend.kind, and would be compared with itself", both.as_str());
        return Ok(without_shadow(recognizer, &why));
    }
    let programs = Programs {
        standing: program(settings.backend.kind, settings),
        candidate: program(settings.shadow.backend, settings),
    };
    let recognizer = Arc::new(recognizer.with_candidate(engine));
    match Shadow::start((&settings.shadow, &settings.backend), Arc::clone(&recognizer), programs) {
        Ok(shadow) => Ok(Loaded { recognizer, shadow: Some(Ok(shadow)) }),
        Err(error) => Err(LoadError::Shadow(error)),
    }
}

fn without_shadow(recognizer: Recognizer, why: &str) -> Loaded {
    tracing::error!(target: shadow::TARGET, why, "the shadow cannot start; nothing is compared");
    telemetry::shadow_breaker(true);
    let told = why.lines().next().unwrap_or_default().to_owned();
    Loaded { recognizer: Arc::new(recognizer), shadow: Some(Err(told)) }
}

/// Which kernels a backend runs.
fn program(kind: BackendKind, settings: &Settings) -> String {
    match kind {
        BackendKind::OpenCl => opencl::program_hash(&settings.backend.opencl).unwrap_or_default(),
        BackendKind::Auto | BackendKind::Cpu | BackendKind::Reference => String::new(),
    }
}

/// How the data folder is loaded anew; the galleries' metrics follow.
pub(super) fn reloading(settings: &Settings, gauges: Arc<Mutex<GalleryGauges>>) -> Reloading {
    let path = settings.storage.path.clone();
    Box::new(move |recognizer| {
        // One at a time.
        let mut gauges = gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let reloaded = recognizer.reload(&Store::open_read_only(&path)?)?;
        show(recognizer, &mut gauges);
        return_free_pages();
        Ok(reloaded)
    })
}

/// Says in the log and the metrics what is served and by what.
pub(super) fn announce(recognizer: &Recognizer, gauges: &mut GalleryGauges) {
    let choice = recognizer.standing().choice();
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
    if let Ok(candidate) = recognizer.engine_of(Seat::Candidate) {
        let description = candidate.choice().active();
        telemetry::backend_described(description.backend, &description.device, &description.driver);
    }
    show(recognizer, gauges);
}

/// Says what is served.
fn show(recognizer: &Recognizer, gauges: &mut GalleryGauges) {
    let served: Vec<Arc<Snapshot>> = recognizer.galleries().collect();
    let figures = served.iter().map(|snapshot| {
        let profile = snapshot.profile();
        let figures = GalleryFigures {
            prototypes: snapshot.row_count() as u64,
            identities: snapshot.identity_count() as u64,
            generation: profile.generation,
        };
        let GalleryFigures { prototypes, identities, generation } = figures;
        tracing::info!(gallery = profile.name, prototypes, identities, generation, "gallery served");
        (profile.name.as_str(), figures)
    });
    gauges.show(figures);
}

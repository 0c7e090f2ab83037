//! The shadow beside what is served, as the configuration wants it.

use std::sync::Arc;

use super::LoadError;
use crate::backend::opencl;
use crate::config::{BackendKind, Settings};
use crate::engine::Engine;
use crate::recognize::Recognizer;
use crate::shadow::{Open, Programs, Shadow};

/// Requests that may wait for the shadow's engine: its thread asks one at a time, and an operator may replay beside it.
const QUEUE: usize = 64;

/// How the shadow's engine is opened: as the settings choose it.
pub fn opener() -> Open {
    Arc::new(|backend| Engine::start(backend, QUEUE))
}

/// The shadow that the settings want, whose engine `open` opens beside all that is served; `None` where they want none. That its record
/// cannot be kept is a fault of the configuration; that its backend cannot be opened keeps nothing from being served. Blocks.
pub fn cast_shadow(
    settings: &Settings,
    recognizer: &Arc<Recognizer>,
    open: Open,
) -> Result<Option<Shadow>, LoadError> {
    if !settings.shadow.enabled {
        return Ok(None);
    }
    let programs = Programs {
        standing: program(settings.backend.kind, settings),
        candidate: program(settings.shadow.backend, settings),
    };
    let opened = Shadow::open((&settings.shadow, &settings.backend), Arc::clone(recognizer), programs, open);
    Ok(Some(opened?))
}

/// Which kernels a backend runs.
fn program(kind: BackendKind, settings: &Settings) -> String {
    match kind {
        BackendKind::OpenCl => opencl::program_hash(&settings.backend.opencl).unwrap_or_default(),
        BackendKind::Auto | BackendKind::Cpu | BackendKind::Reference => String::new(),
    }
}

//! A changed data folder becomes what is served, while requests go on.
//!
//! Only galleries whose generation differs from the one served are read, and all of a database file that took the place of another. Each is exchanged by itself, once it is ready: a request is
//! answered from one generation, the former or the new one.

use thiserror::Error;

use super::Recognizer;
use crate::engine::EngineError;
use crate::gallery::store::{Store, StoreError};

/// What became of the galleries, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Served anew, with the generation that is served now.
    pub loaded: Vec<(String, u64)>,
    /// Served as before: nothing has changed.
    pub unchanged: Vec<String>,
    /// No longer served: they are not in the data folder any more.
    pub withdrawn: Vec<String>,
}

/// Why a data folder could not be loaded anew; galleries exchanged before stay exchanged.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The data folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Recognizer {
    /// Serves what the data folder holds now. Blocks: not for a runtime thread, and one call at a time.
    pub fn reload(&self, store: &Store) -> Result<Reloaded, ReloadError> {
        let mut done = Reloaded::default();
        let stored = store.galleries()?;
        for gallery in &stored {
            let name = &gallery.profile.name;
            // Another file may count alike.
            let is_served = self.gallery(name).is_ok_and(|served| {
                served.profile().generation == gallery.profile.generation && served.file() == store.file_id()
            });
            if is_served {
                done.unchanged.push(name.clone());
                continue;
            }
            let snapshot = self.replace(store.snapshot(name)?)?;
            done.loaded.push((name.clone(), snapshot.profile().generation));
        }
        for snapshot in self.galleries() {
            let name = &snapshot.profile().name;
            if !stored.iter().any(|gallery| gallery.profile.name == *name) {
                self.withdraw(name);
                done.withdrawn.push(name.clone());
            }
        }
        Ok(done)
    }
}

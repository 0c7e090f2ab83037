//! Galleries: how they are kept on disk ([`store`]), read from files ([`formats`]) and held in memory for scanning
//! ([`Snapshot`]).
//!
//! Invariants: a [`Snapshot`] never changes; a change of the store makes a new generation and so a new snapshot. SQL is
//! spoken in `store` alone.

mod compact;
pub(crate) mod files;
pub mod formats;
mod kept;
mod profile;
mod record;
mod snapshot;
pub mod store;

pub use compact::Text;
pub use profile::{DEFAULT_GALLERY, GalleryProfile, Identity};
pub use record::{OnProgress, Place, ProbeRecord, Progress, PrototypeRecord, Stage};
pub use snapshot::{FileId, IdentityView, NewRow, RowView, Snapshot, SnapshotBuilder, SnapshotBytes};

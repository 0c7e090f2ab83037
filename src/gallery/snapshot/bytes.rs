//! What a snapshot takes in memory, by part.

use super::{OwnLimits, Snapshot};

/// Bytes of a snapshot's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotBytes {
    /// The embeddings with their padding.
    pub matrix: usize,
    /// The prototypes' indices.
    pub indices: usize,
    /// The rows' identities.
    pub identities: usize,
    /// The prototypes' ids, and the rows by id.
    pub prototype_ids: usize,
    /// The prototypes' sources, and the rows by source.
    pub sources: usize,
    /// The prototypes' origins.
    pub origins: usize,
    /// The persons: names, persons by name, rows, thresholds and margins.
    pub persons: usize,
}

impl SnapshotBytes {
    /// All parts but the embeddings.
    pub fn beside_matrix(&self) -> usize {
        let Self { matrix: _, indices, identities, prototype_ids, sources, origins, persons } = self;
        indices + identities + prototype_ids + sources + origins + persons
    }
}

impl Snapshot {
    /// What it takes in memory.
    pub fn bytes(&self) -> SnapshotBytes {
        SnapshotBytes {
            matrix: self.matrix.bytes(),
            indices: self.indices.bytes(),
            identities: self.identities.bytes(),
            prototype_ids: self.prototype_ids.bytes(),
            sources: self.sources.bytes(),
            origins: self.origins.bytes(),
            persons: self.names.bytes()
                + self.first_rows.bytes()
                + self.own_limits.len() * size_of::<OwnLimits>(),
        }
    }
}

//! One generation of a gallery in memory: what backends scan and answers are read from.
//!
//! Invariants: rows of one identity stand together, so that an identity can be left out as one range; physical row order
//! is internal, and every answer speaks of prototype indices (order of insertion). A snapshot never changes.
//!
//! What stands beside the embeddings is kept in columns of few bytes (`gallery/compact`), a few large blocks in all: a struct with
//! its own strings and hash maps of them took more than the quantised rows do.

mod builder;
mod bytes;

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use super::compact::{Labels, Packed, Text};
use super::profile::{GalleryProfile, Identity};
use crate::domain::{Margin, Matrix, Origin, Threshold};

pub use builder::{NewRow, SnapshotBuilder};
pub use bytes::SnapshotBytes;

/// A person in a snapshot.
#[derive(Clone, Debug)]
pub struct IdentityView<'a> {
    /// The person's name.
    pub name: Text<'a>,
    /// The person's own threshold.
    pub threshold: Option<Threshold>,
    /// The person's own least margin.
    pub min_margin: Option<Margin>,
    /// The physical rows of the person's prototypes; never empty.
    pub rows: Range<usize>,
}

/// What stands beside one physical row of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// The prototype's index: its place in the order of insertion.
    pub index: u64,
    /// Its identity, as a place in [`Snapshot::identities`].
    pub identity: usize,
    /// Its id, unique within the identity.
    pub prototype_id: Text<'a>,
    /// Where it came from; may be empty.
    pub source: Text<'a>,
    /// How it was chosen.
    pub origin: Origin,
}

/// The threshold and margin of an identity that has any of its own.
#[derive(Clone, Copy, Debug)]
struct OwnLimits {
    identity: u32,
    threshold: Option<Threshold>,
    min_margin: Option<Margin>,
}

/// One generation of a gallery, ready for scanning.
#[derive(Debug)]
pub struct Snapshot {
    profile: GalleryProfile,
    matrix: Arc<Matrix>,
    // A value a row.
    indices: Packed,
    identities: Packed,
    prototype_ids: Labels,
    sources: Labels,
    origins: Packed,
    // A value an identity.
    names: Labels,
    /// Where each identity's rows begin, and the end of the last's.
    first_rows: Packed,
    /// By identity.
    own_limits: Box<[OwnLimits]>,
    largest_identity: usize,
    read_from: Option<FileId>,
}

/// Tells one file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Where it is kept.
    pub device: u64,
    /// Its number there, which another file may get once it is gone.
    pub number: u64,
    /// When it was made, where the file system knows.
    pub made: Option<SystemTime>,
}

impl Snapshot {
    /// What the gallery is.
    pub fn profile(&self) -> &GalleryProfile {
        &self.profile
    }

    /// As read from this file.
    #[must_use]
    pub fn read_from(mut self, file: Option<FileId>) -> Self {
        self.read_from = file;
        self
    }

    /// The file that it was read from, if any: generations of one file count on.
    pub fn file(&self) -> Option<FileId> {
        self.read_from
    }

    /// The embeddings, `f32[rows, dim]`, in physical order.
    pub fn matrix(&self) -> &Arc<Matrix> {
        &self.matrix
    }

    /// How many prototypes there are.
    pub fn row_count(&self) -> usize {
        self.matrix.rows()
    }

    /// What stands beside each physical row.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowView<'_>> + DoubleEndedIterator {
        (0..self.row_count()).map(|row| self.row(row))
    }

    /// What stands beside a physical row.
    pub fn row(&self, row: usize) -> RowView<'_> {
        RowView {
            index: self.index(row),
            identity: self.identity_of(row),
            prototype_id: self.prototype_ids.get(row),
            source: self.sources.get(row),
            origin: Origin::ALL[self.origins.get(row) as usize],
        }
    }

    /// The index of the prototype in a physical row: its place in the order of insertion.
    #[inline]
    pub fn index(&self, row: usize) -> u64 {
        self.indices.get(row)
    }

    /// The identity that owns a physical row, as a place in [`Self::identities`].
    #[inline]
    pub fn identity_of(&self, row: usize) -> usize {
        self.identities.get(row) as usize
    }

    /// How many persons there are.
    pub fn identity_count(&self) -> usize {
        self.first_rows.len() - 1
    }

    /// The persons, in the order of their first prototypes.
    pub fn identities(&self) -> impl ExactSizeIterator<Item = IdentityView<'_>> + DoubleEndedIterator {
        (0..self.identity_count()).map(|place| self.identity(place))
    }

    /// The persons who have a threshold or a least margin of their own.
    pub fn own_limits(&self) -> Vec<Identity> {
        let own = self.identities().filter(|one| one.threshold.is_some() || one.min_margin.is_some());
        let identity = |one: IdentityView<'_>| Identity {
            name: one.name.read(),
            threshold: one.threshold,
            min_margin: one.min_margin,
        };
        own.map(identity).collect()
    }

    /// The person at a place among [`Self::identities`].
    pub fn identity(&self, place: usize) -> IdentityView<'_> {
        let own = self.own_limits.binary_search_by_key(&place, |own| own.identity as usize).ok();
        let own = own.map(|found| self.own_limits[found]);
        IdentityView {
            name: self.names.get(place),
            threshold: own.and_then(|own| own.threshold),
            min_margin: own.and_then(|own| own.min_margin),
            rows: self.rows_of(place),
        }
    }

    /// The physical rows of the identity at a place among [`Self::identities`].
    #[inline]
    pub fn rows_of(&self, place: usize) -> Range<usize> {
        self.first_rows.get(place) as usize..self.first_rows.get(place + 1) as usize
    }

    /// Rows of the identity that has most; 0 in an empty gallery.
    pub fn largest_identity(&self) -> usize {
        self.largest_identity
    }

    /// Whether the gallery holds no prototype.
    pub fn is_empty(&self) -> bool {
        self.row_count() == 0
    }

    /// The place among [`Self::identities`] of the person of that name.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.names.places(name).next()
    }

    /// The physical rows of an identity; none for an unknown name.
    pub fn rows_of_identity(&self, name: &str) -> Option<Range<usize>> {
        self.place_of(name).map(|place| self.rows_of(place))
    }

    /// The physical row of the prototype of that id in the identity at a place among [`Self::identities`].
    pub fn prototype_in(&self, place: usize, id: &str) -> Option<usize> {
        self.prototype_ids.places_within(id, self.rows_of(place)).next()
    }

    /// The physical rows that `reference` names: `identity/prototype_id` one, a bare `prototype_id` every one that carries
    /// it. Where both readings fit, both are meant.
    pub fn rows_of_prototype(&self, reference: &str) -> Vec<usize> {
        let mut rows: Vec<usize> = self.prototype_ids.places(reference).collect();
        // Names may hold slashes themselves, so every place to part them is tried.
        for (slash, _) in reference.match_indices('/') {
            let (identity, id) = (&reference[..slash], &reference[slash + 1..]);
            if let Some(owned) = self.rows_of_identity(identity) {
                rows.extend(self.prototype_ids.places_within(id, owned));
            }
        }
        rows
    }

    /// The physical rows that came from `source`, ascending.
    pub fn rows_of_source(&self, source: &str) -> impl Iterator<Item = usize> + use<'_> {
        self.sources.places(source)
    }
}

#[cfg(test)]
mod tests;

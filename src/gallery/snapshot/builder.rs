//! From prototypes, one by one, to a snapshot.
//!
//! No row takes a block of memory of its own, and rows that came in no order of identities are put into it where they lie: loading takes
//! little more memory than what is loaded, and the allocator keeps a few megabytes of it at most.

use std::sync::Arc;

use super::{OwnLimits, Snapshot};
use crate::domain::{Embedding, Matrix, Origin, Prototype};
use crate::gallery::compact::{Interner, Labels, Packed};
use crate::gallery::profile::{GalleryProfile, Identity};

/// A prototype on its way into a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'a> {
    /// Its place in the order of insertion.
    pub index: u64,
    /// The person's name.
    pub identity: &'a str,
    /// Its id, unique within the identity.
    pub prototype_id: &'a str,
    /// Where it came from; may be empty.
    pub source: &'a str,
    /// How it was chosen.
    pub origin: Origin,
    /// Its vector, of the gallery's dim.
    pub embedding: &'a Embedding,
}

/// A row whose texts are numbers.
#[derive(Clone, Copy, Debug)]
struct NumberedRow {
    index: u64,
    identity: u32,
    prototype_id: u32,
    source: u32,
    origin: Origin,
}

/// Takes prototypes in the order of their indices.
#[derive(Debug)]
pub struct SnapshotBuilder {
    profile: GalleryProfile,
    known: Vec<Identity>,
    matrix: Matrix,
    rows: Vec<NumberedRow>,
    names: Interner,
    prototype_ids: Interner,
    sources: Interner,
}

impl SnapshotBuilder {
    /// A builder with room for `capacity` prototypes. `identities` gives the thresholds and margins of those that have their own.
    pub fn new(profile: GalleryProfile, identities: Vec<Identity>, capacity: usize) -> Self {
        Self {
            matrix: Matrix::with_capacity(capacity, profile.dim),
            rows: Vec::with_capacity(capacity),
            names: Interner::with_capacity(capacity),
            prototype_ids: Interner::with_capacity(capacity),
            sources: Interner::with_capacity(capacity),
            known: identities,
            profile,
        }
    }

    /// Takes one prototype.
    ///
    /// # Panics
    /// If its index is not above those before, or its embedding has not the gallery's dim.
    pub fn push(&mut self, row: NewRow<'_>) {
        let last = self.rows.last().map(|last| last.index);
        assert!(last < Some(row.index), "expected an index above {last:?}, got {}", row.index);
        self.matrix.push(row.embedding.as_slice());
        self.rows.push(NumberedRow {
            index: row.index,
            identity: self.names.intern(row.identity),
            prototype_id: self.prototype_ids.intern(row.prototype_id),
            source: self.sources.intern(row.source),
            origin: row.origin,
        });
    }

    /// The snapshot of what was taken. Identities stand in the order of their first prototype, and the rows of each in the order of their indices.
    pub fn finish(self) -> Snapshot {
        let Self { profile, known, mut matrix, rows, names, prototype_ids, sources } = self;
        let first_rows = first_rows(&rows, names.len());
        let rows = arrange(rows, &mut matrix, &first_rows);
        let own_limits = own_limits(known, &names);
        let sizes = first_rows.windows(2).map(|pair| pair[1] - pair[0]);
        Snapshot {
            largest_identity: sizes.max().unwrap_or(0) as usize,
            indices: Packed::new(rows.iter().map(|row| row.index)),
            identities: Packed::new(rows.iter().map(|row| row.identity.into())),
            prototype_ids: Labels::new(prototype_ids, rows.iter().map(|row| row.prototype_id)),
            sources: Labels::new(sources, rows.iter().map(|row| row.source)),
            origins: Packed::new(rows.iter().map(|row| row.origin as u64)),
            first_rows: Packed::new(first_rows.iter().map(|row| u64::from(*row))),
            names: {
                let count = names.len() as u32;
                Labels::new(names, 0..count)
            },
            own_limits,
            matrix: Arc::new(matrix),
            profile,
            read_from: None,
        }
    }
}

impl Snapshot {
    /// A snapshot of prototypes that are in memory already: `(index, prototype)` in any order. See [`SnapshotBuilder`].
    pub fn new(
        profile: GalleryProfile,
        identities: Vec<Identity>,
        mut prototypes: Vec<(u64, Prototype)>,
    ) -> Self {
        prototypes.sort_by_key(|(index, _)| *index);
        let mut builder = SnapshotBuilder::new(profile, identities, prototypes.len());
        for (index, prototype) in prototypes {
            builder.push(NewRow {
                index,
                identity: &prototype.key.identity,
                prototype_id: &prototype.key.id,
                source: &prototype.source,
                origin: prototype.origin,
                embedding: &prototype.embedding,
            });
        }
        builder.finish()
    }
}

/// Where each identity's rows begin once they stand together, and the end of the last's.
fn first_rows(rows: &[NumberedRow], identities: usize) -> Vec<u32> {
    let mut firsts = vec![0; identities + 1];
    for row in rows {
        firsts[row.identity as usize + 1] += 1;
    }
    for place in 0..identities {
        firsts[place + 1] += firsts[place];
    }
    firsts
}

/// Puts rows of one identity together, unless they stand so already.
fn arrange(rows: Vec<NumberedRow>, matrix: &mut Matrix, first_rows: &[u32]) -> Vec<NumberedRow> {
    if rows.is_sorted_by_key(|row| row.identity) {
        return rows;
    }
    let mut next = first_rows.to_vec();
    let mut order = vec![0_u32; rows.len()];
    for (place, row) in (0..).zip(&rows) {
        let to = &mut next[row.identity as usize];
        order[*to as usize] = place;
        *to += 1;
    }
    drop(next);
    let arranged = order.iter().map(|&place| rows[place as usize]).collect();
    drop(rows);
    matrix.arrange(order);
    arranged
}

/// The limits of the identities that are there and have any of their own.
fn own_limits(known: Vec<Identity>, names: &Interner) -> Box<[OwnLimits]> {
    let with_limits =
        known.into_iter().filter(|known| known.threshold.is_some() || known.min_margin.is_some());
    let mut limits: Vec<OwnLimits> = with_limits
        .filter_map(|Identity { name, threshold, min_margin }| {
            Some(OwnLimits { identity: names.find(&name)?, threshold, min_margin })
        })
        .collect();
    limits.sort_unstable_by_key(|own| own.identity);
    limits.into()
}

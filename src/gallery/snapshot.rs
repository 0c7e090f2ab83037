//! One generation of a gallery in memory: what backends scan and answers are read from.
//!
//! Invariants: rows of one identity stand together, so that an identity can be left out as one range; physical row order
//! is internal, and every answer speaks of prototype indices (order of insertion). A snapshot never changes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::domain::{Margin, Matrix, NormPolicy, Origin, Prototype, Threshold};

/// The name of the gallery that is meant where none is named.
pub const DEFAULT_GALLERY: &str = "default";

/// What a gallery is, beside its prototypes.
#[derive(Clone, Debug, PartialEq)]
pub struct GalleryProfile {
    /// Its name.
    pub name: String,
    /// Components of an embedding.
    pub dim: usize,
    /// The model that made the embeddings; may be empty.
    pub model_id: String,
    /// What happens to vectors that are not of unit length.
    pub norm: NormPolicy,
    /// The gallery's own threshold.
    pub threshold: Option<Threshold>,
    /// The gallery's own least margin.
    pub min_margin: Option<Margin>,
    /// Rises with every change.
    pub generation: u64,
}

impl GalleryProfile {
    /// A gallery of its first generation with no settings of its own.
    pub fn named(name: &str, dim: usize) -> Self {
        Self {
            name: name.to_owned(),
            dim,
            model_id: String::new(),
            norm: NormPolicy::default(),
            threshold: None,
            min_margin: None,
            generation: 1,
        }
    }
}

/// A person, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The person's name.
    pub name: String,
    /// The person's own threshold.
    pub threshold: Option<Threshold>,
    /// The person's own least margin.
    pub min_margin: Option<Margin>,
}

/// A person in a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotIdentity {
    /// The person.
    pub identity: Identity,
    /// The physical rows of the person's prototypes; never empty.
    pub rows: Range<usize>,
}

/// What stands beside one physical row of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The prototype's index: its place in the order of insertion.
    pub index: u64,
    /// Its identity, as a place in [`Snapshot::identities`].
    pub identity: usize,
    /// Its id, unique within the identity.
    pub prototype_id: String,
    /// Where it came from; may be empty.
    pub source: String,
    /// How it was chosen.
    pub origin: Origin,
}

/// One generation of a gallery, ready for scanning.
#[derive(Debug)]
pub struct Snapshot {
    profile: GalleryProfile,
    matrix: Arc<Matrix>,
    rows: Vec<Row>,
    identities: Vec<SnapshotIdentity>,
    largest_identity: usize,
    by_identity: HashMap<String, usize>,
    by_prototype: HashMap<String, Vec<usize>>,
    by_source: HashMap<String, Vec<usize>>,
}

impl Snapshot {
    /// Arranges prototypes for scanning: `(index, prototype)` in any order.
    ///
    /// Identities stand in the order of their first prototype; `identities` gives the thresholds and margins of those that
    /// have their own. Every prototype's embedding has `profile.dim` components.
    pub fn new(
        profile: GalleryProfile,
        identities: Vec<Identity>,
        mut prototypes: Vec<(u64, Prototype)>,
    ) -> Self {
        prototypes.sort_by_key(|(index, _)| *index);
        let mut owned: HashMap<String, Identity> =
            identities.into_iter().map(|identity| (identity.name.clone(), identity)).collect();
        let mut by_identity = HashMap::new();
        let mut groups: Vec<(Identity, Vec<(u64, Prototype)>)> = Vec::new();
        for (index, prototype) in prototypes {
            let name = &prototype.key.identity;
            let place = *by_identity.entry(name.clone()).or_insert_with(|| {
                let identity = owned.remove(name).unwrap_or_else(|| Identity {
                    name: name.clone(),
                    threshold: None,
                    min_margin: None,
                });
                groups.push((identity, Vec::new()));
                groups.len() - 1
            });
            groups[place].1.push((index, prototype));
        }
        let count = groups.iter().map(|(_, members)| members.len()).sum();
        let largest_identity = groups.iter().map(|(_, members)| members.len()).max().unwrap_or(0);
        let mut snapshot = Self {
            matrix: Arc::new(Matrix::with_capacity(0, profile.dim)),
            rows: Vec::with_capacity(count),
            identities: Vec::with_capacity(groups.len()),
            largest_identity,
            by_identity,
            by_prototype: HashMap::with_capacity(count),
            by_source: HashMap::new(),
            profile,
        };
        let mut matrix = Matrix::with_capacity(count, snapshot.profile.dim);
        for (identity, members) in groups {
            let first = matrix.rows();
            for (index, prototype) in members {
                matrix.push(prototype.embedding.as_slice());
                snapshot.add_row(index, prototype);
            }
            snapshot.identities.push(SnapshotIdentity { identity, rows: first..matrix.rows() });
        }
        snapshot.matrix = Arc::new(matrix);
        snapshot
    }

    fn add_row(&mut self, index: u64, prototype: Prototype) {
        let row = self.rows.len();
        let id = prototype.key.id;
        self.by_prototype.entry(id.clone()).or_default().push(row);
        if !prototype.source.is_empty() {
            self.by_source.entry(prototype.source.clone()).or_default().push(row);
        }
        self.rows.push(Row {
            index,
            identity: self.identities.len(),
            prototype_id: id,
            source: prototype.source,
            origin: prototype.origin,
        });
    }

    /// What the gallery is.
    pub fn profile(&self) -> &GalleryProfile {
        &self.profile
    }

    /// The embeddings, `f32[rows, dim]`, in physical order.
    pub fn matrix(&self) -> &Arc<Matrix> {
        &self.matrix
    }

    /// What stands beside each physical row.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The persons.
    pub fn identities(&self) -> &[SnapshotIdentity] {
        &self.identities
    }

    /// Rows of the person who has most; 0 in an empty gallery.
    pub fn largest_identity(&self) -> usize {
        self.largest_identity
    }

    /// Whether the gallery holds no prototype.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The physical rows of an identity; none for an unknown name.
    pub fn rows_of_identity(&self, name: &str) -> Option<Range<usize>> {
        self.by_identity.get(name).map(|&place| self.identities[place].rows.clone())
    }

    /// The physical rows that `reference` names: `identity/prototype_id` one, a bare `prototype_id` every one that carries
    /// it. Where both readings fit, both are meant.
    pub fn rows_of_prototype(&self, reference: &str) -> Vec<usize> {
        let mut rows = self.by_prototype.get(reference).cloned().unwrap_or_default();
        // Names may hold slashes themselves, so every place to part them is tried.
        for (slash, _) in reference.match_indices('/') {
            let (identity, id) = (&reference[..slash], &reference[slash + 1..]);
            if let (Some(owned), Some(named)) = (self.rows_of_identity(identity), self.by_prototype.get(id)) {
                rows.extend(named.iter().copied().filter(|row| owned.contains(row)));
            }
        }
        rows
    }

    /// The physical rows that came from `source`.
    pub fn rows_of_source(&self, source: &str) -> &[usize] {
        self.by_source.get(source).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Embedding, PrototypeKey};

    /// `(index, identity, id, source)`; the embedding's first component says which index it is.
    fn snapshot(prototypes: &[(u64, &str, &str, &str)]) -> Snapshot {
        let profile = GalleryProfile {
            name: DEFAULT_GALLERY.to_owned(),
            dim: 2,
            model_id: String::new(),
            norm: NormPolicy::Normalise,
            threshold: None,
            min_margin: None,
            generation: 3,
        };
        let ann = Identity {
            name: "ann".to_owned(),
            threshold: Some(Threshold::parse(0.5).unwrap()),
            min_margin: None,
        };
        let unused = Identity { name: "unused".to_owned(), threshold: None, min_margin: None };
        let prototypes = prototypes.iter().map(|(index, identity, id, source)| {
            let key = PrototypeKey { identity: (*identity).to_owned(), id: (*id).to_owned() };
            let embedding = Embedding::parse(component(*index).to_vec(), 2, NormPolicy::Normalise).unwrap();
            let source = (*source).to_owned();
            (*index, Prototype { key, source, origin: Origin::Import, created_ms: 0, embedding })
        });
        Snapshot::new(profile, vec![unused, ann], prototypes.collect())
    }

    fn component(index: u64) -> [f32; 2] {
        let angle = index as f32 / 100.0;
        [angle.cos(), angle.sin()]
    }

    /// Rows as the indices they hold, sorted.
    fn indices(snapshot: &Snapshot, rows: impl IntoIterator<Item = usize>) -> Vec<u64> {
        let mut indices: Vec<u64> = rows.into_iter().map(|row| snapshot.rows()[row].index).collect();
        indices.sort_unstable();
        indices
    }

    #[test]
    fn rows_of_an_identity_stand_together_in_whatever_order_they_came() {
        let stored = [
            (70, "bob", "1", ""),
            (3, "ann", "1", ""),
            (12, "eve", "1", ""),
            (4, "bob", "2", ""),
            (50, "ann", "2", ""),
        ];
        let snapshot = snapshot(&stored);
        let order: Vec<u64> = snapshot.rows().iter().map(|row| row.index).collect();
        assert_eq!(order, [3, 50, 4, 70, 12]);
        let names: Vec<&str> = snapshot.identities().iter().map(|held| held.identity.name.as_str()).collect();
        assert_eq!(names, ["ann", "bob", "eve"]);
        assert_eq!(snapshot.rows_of_identity("bob"), Some(2..4));
        assert_eq!(snapshot.rows_of_identity("unused"), None);
        assert_eq!(snapshot.largest_identity(), 2);
        for (place, held) in snapshot.identities().iter().enumerate() {
            assert!(snapshot.rows()[held.rows.clone()].iter().all(|row| row.identity == place));
        }
        for (row, held) in snapshot.rows().iter().enumerate() {
            let expected =
                Embedding::parse(component(held.index).to_vec(), 2, NormPolicy::Normalise).unwrap();
            assert_eq!(snapshot.matrix().row(row), expected.as_slice(), "index {}", held.index);
        }
        assert!(snapshot.identities()[0].identity.threshold.is_some());
        assert_eq!(snapshot.identities()[1].identity.threshold, None);
    }

    #[test]
    fn a_prototype_is_found_bare_or_with_its_identity_and_with_slashes_in_either() {
        let stored = [
            (0, "ann", "1", ""),
            (1, "bob", "1", ""),
            (2, "a/b", "c", ""),
            (3, "a", "b/c", ""),
            (4, "eve", "a/b/c", ""),
            (5, "eve", "ann/1", ""),
        ];
        let snapshot = snapshot(&stored);
        let find = |reference: &str| indices(&snapshot, snapshot.rows_of_prototype(reference));
        assert_eq!(find("1"), [0, 1]);
        assert_eq!(find("bob/1"), [1]);
        assert_eq!(find("b/c"), [3]);
        assert_eq!(find("a/b/c"), [2, 3, 4]);
        assert_eq!(find("ann/1"), [0, 5]);
        assert_eq!(find("eve/a/b/c"), [4]);
        for nothing in ["", "/", "2", "ann", "ann/", "/1", "bob/ann/1"] {
            assert!(find(nothing).is_empty(), "{nothing:?}");
        }
    }

    #[test]
    fn a_source_is_found_across_identities_and_an_empty_one_never() {
        let stored = [
            (0, "ann", "1", "x.jpg"),
            (1, "bob", "1", "x.jpg"),
            (2, "ann", "2", ""),
            (9, "ann", "3", "y.jpg"),
        ];
        let snapshot = snapshot(&stored);
        assert_eq!(indices(&snapshot, snapshot.rows_of_source("x.jpg").iter().copied()), [0, 1]);
        assert_eq!(indices(&snapshot, snapshot.rows_of_source("y.jpg").iter().copied()), [9]);
        assert!(snapshot.rows_of_source("").is_empty() && snapshot.rows_of_source("x").is_empty());
    }

    #[test]
    fn an_empty_gallery_is_a_snapshot_too() {
        let snapshot = snapshot(&[]);
        assert!(snapshot.is_empty() && snapshot.identities().is_empty());
        assert_eq!(snapshot.largest_identity(), 0);
        assert_eq!((snapshot.matrix().rows(), snapshot.matrix().dim()), (0, 2));
        assert!(snapshot.rows_of_prototype("a/b").is_empty());
    }
}

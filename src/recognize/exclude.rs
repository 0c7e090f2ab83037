//! What a probe leaves out, by name, and the rows that these names mean.

use crate::backend::RowSet;
use crate::gallery::Snapshot;

/// Names to leave out; unknown ones leave out nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Persons.
    pub identities: Vec<String>,
    /// Prototypes, as `identity/prototype_id` or a bare `prototype_id`.
    pub prototypes: Vec<String>,
    /// Sources.
    pub sources: Vec<String>,
}

impl Exclusions {
    /// The physical rows that are meant.
    pub fn rows(&self, snapshot: &Snapshot) -> RowSet {
        let single = |row: usize| (row as u32, row as u32 + 1);
        let identities = self
            .identities
            .iter()
            .filter_map(|name| snapshot.rows_of_identity(name))
            .map(|rows| (rows.start as u32, rows.end as u32));
        let prototypes = self.prototypes.iter().flat_map(|name| snapshot.rows_of_prototype(name)).map(single);
        let sources = self.sources.iter().flat_map(|name| snapshot.rows_of_source(name)).map(single);
        RowSet::from_ranges(identities.chain(prototypes).chain(sources).collect())
    }
}

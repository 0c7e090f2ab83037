//! What a probe leaves out, and the rows that this means.

use crate::backend::RowSet;
use crate::gallery::Snapshot;

/// What to leave out; unknown names leave out nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Persons.
    pub identities: Vec<String>,
    /// Prototypes, as `identity/prototype_id` or a bare `prototype_id`.
    pub prototypes: Vec<String>,
    /// Sources.
    pub sources: Vec<String>,
    /// Physical rows of the generation that is asked, for callers that hold it: a name may be ambiguous, a row is not.
    pub rows: Vec<u32>,
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
        let rows = self.rows.iter().map(|&row| (row, row + 1));
        RowSet::from_ranges(identities.chain(prototypes).chain(sources).chain(rows).collect())
    }
}

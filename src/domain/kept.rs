//! What one generation of rows has in common with the one before it.

/// Rows that stand in a former matrix and in the one that takes its place, with the same values in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The first of them in the former matrix.
    pub from: usize,
    /// The first of them in the later one.
    pub to: usize,
    /// How many there are; at least 1.
    pub count: usize,
}

//! Rows of `f32` in one block of memory, laid out for scanning.

use aligned_vec::{AVec, ConstAlign};

/// Bytes to which every row of a [`Matrix`] is aligned: a cache line.
pub(super) const ROW_ALIGNMENT: usize = 64;

/// The alignment of a [`Matrix`]'s rows as a type.
pub type RowAlignment = ConstAlign<ROW_ALIGNMENT>;

/// A row-major `f32[rows, dim]` whose rows begin on 64-byte boundaries; the padding behind each row holds zeros, so
/// that dot products may run over the whole stride.
#[derive(Clone, Debug)]
pub struct Matrix {
    values: AVec<f32, RowAlignment>,
    rows: usize,
    dim: usize,
    stride: usize,
}

impl Matrix {
    /// A matrix of no rows with room for `rows` of `dim` components.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn with_capacity(rows: usize, dim: usize) -> Self {
        assert!(dim > 0, "a row has at least one component");
        let stride = dim.next_multiple_of(ROW_ALIGNMENT / size_of::<f32>());
        Self { values: AVec::with_capacity(ROW_ALIGNMENT, rows * stride), rows: 0, dim, stride }
    }

    /// A matrix of the given rows, each of `dim` components.
    pub fn from_rows<'a>(dim: usize, rows: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let rows = rows.into_iter();
        let mut matrix = Self::with_capacity(rows.size_hint().0, dim);
        rows.for_each(|row| matrix.push(row));
        matrix
    }

    /// Drops all rows, keeping their memory for rows of `dim` components.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn clear(&mut self, dim: usize) {
        let values = std::mem::replace(&mut self.values, AVec::new(ROW_ALIGNMENT));
        *self = Self { values, ..Self::with_capacity(0, dim) };
        self.values.clear();
    }

    /// Appends one row.
    ///
    /// # Panics
    /// If `row` has not `dim` components.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.dim, "a row has the matrix's dimension");
        self.values.extend_from_slice(row);
        self.rows += 1;
        self.values.resize(self.rows * self.stride, 0.0);
    }

    /// Row `row`, `dim` components.
    pub fn row(&self, row: usize) -> &[f32] {
        let start = row * self.stride;
        &self.values[start..start + self.dim]
    }

    /// Rows `first..first + count` with their padding: `count * stride` values.
    pub fn block(&self, first: usize, count: usize) -> &[f32] {
        &self.values[first * self.stride..(first + count) * self.stride]
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Components a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Values from the start of one row to the start of the next: `dim` rounded up to 16.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.values.len() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_and_padded_with_zeros() {
        let matrix = Matrix::from_rows(3, [&[1.0, 2.0, 3.0][..], &[4.0, 5.0, 6.0]]);
        assert_eq!((matrix.rows(), matrix.dim(), matrix.stride()), (2, 3, 16));
        assert_eq!(matrix.row(1), [4.0, 5.0, 6.0]);
        assert!(matrix.block(1, 1)[3..].iter().all(|v| v.to_bits() == 0));
        assert_eq!(matrix.row(0).as_ptr() as usize % ROW_ALIGNMENT, 0);
        assert_eq!(matrix.row(1).as_ptr() as usize % ROW_ALIGNMENT, 0);
    }
}

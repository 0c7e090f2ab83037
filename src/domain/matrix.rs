//! Rows of `f32` in one block of memory, laid out for scanning.

use aligned_vec::{AVec, ConstAlign};

use super::pages::advise_large_pages;

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
        let stride = stride_of(dim);
        let values = AVec::with_capacity(ROW_ALIGNMENT, rows * stride);
        let start: *const f32 = values.as_ptr();
        advise_large_pages(&(start..start.wrapping_add(values.capacity())));
        Self { values, rows: 0, dim, stride }
    }

    /// A matrix of the given rows, each of `dim` components.
    pub fn from_rows<'a>(dim: usize, rows: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let rows = rows.into_iter();
        let mut matrix = Self::with_capacity(rows.size_hint().0, dim);
        rows.for_each(|row| matrix.push(row));
        matrix
    }

    /// Takes all rows away and keeps their memory, for rows of `dim` components.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn reset(&mut self, dim: usize) {
        assert!(dim > 0, "a row has at least one component");
        self.values.clear();
        (self.rows, self.dim, self.stride) = (0, dim, stride_of(dim));
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

    /// Puts row `order[i]` at place `i`, for every `i`, in the memory that the rows have: a copy of a large gallery might not fit
    /// beside it.
    ///
    /// # Panics
    /// If `order` does not name every row; one that names a row twice gives rows in no order in particular.
    pub fn arrange(&mut self, mut order: Vec<u32>) {
        assert_eq!(order.len(), self.rows, "an order names every row");
        let stride = self.stride;
        let mut first_row = vec![0.0; stride];
        // Each cycle is followed from its first place; what has its row points to itself.
        for first in 0..order.len() {
            if order[first] as usize == first {
                continue;
            }
            first_row.copy_from_slice(&self.values[first * stride..][..stride]);
            let mut place = first;
            loop {
                let from = std::mem::replace(&mut order[place], place as u32) as usize;
                if from == first || from == place {
                    break;
                }
                self.values.copy_within(from * stride..(from + 1) * stride, place * stride);
                place = from;
            }
            self.values[place * stride..][..stride].copy_from_slice(&first_row);
        }
    }

    /// Row `row`, `dim` components.
    pub fn row(&self, row: usize) -> &[f32] {
        let start = row * self.stride;
        &self.values[start..start + self.dim]
    }

    /// Has row `row` fetched from memory while something else is computed; the processor may ignore it.
    pub fn prefetch(&self, row: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in self.block(row, 1).chunks(ROW_ALIGNMENT / size_of::<f32>()) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            #[expect(unsafe_code, reason = "an intrinsic that takes a pointer")]
            // SAFETY: a hint; it reads nothing, and the pointer comes from a slice.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = row;
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

/// `dim` rounded up to whole cache lines.
fn stride_of(dim: usize) -> usize {
    dim.next_multiple_of(ROW_ALIGNMENT / size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_used_again_for_rows_of_another_dimension() {
        let mut matrix = Matrix::from_rows(18, [&[7.0; 18][..], &[8.0; 18]]);
        let (at, fresh) = (matrix.block(0, 1).as_ptr(), Matrix::from_rows(3, [&[1.0, 2.0, 3.0][..]]));
        matrix.reset(3);
        assert_eq!(matrix.rows(), 0);
        matrix.push(&[1.0, 2.0, 3.0]);
        assert_eq!((matrix.rows(), matrix.dim(), matrix.stride()), (1, 3, 16));
        assert_eq!((matrix.block(0, 1), matrix.block(0, 1).as_ptr()), (fresh.block(0, 1), at));
        matrix.prefetch(0);
    }

    #[test]
    fn rows_are_aligned_and_padded_with_zeros() {
        let matrix = Matrix::from_rows(3, [&[1.0, 2.0, 3.0][..], &[4.0, 5.0, 6.0]]);
        assert_eq!((matrix.rows(), matrix.dim(), matrix.stride()), (2, 3, 16));
        assert_eq!(matrix.row(1), [4.0, 5.0, 6.0]);
        assert!(matrix.block(1, 1)[3..].iter().all(|v| v.to_bits() == 0));
        assert_eq!(matrix.row(0).as_ptr() as usize % ROW_ALIGNMENT, 0);
        assert_eq!(matrix.row(1).as_ptr() as usize % ROW_ALIGNMENT, 0);
    }

    #[test]
    fn rows_are_arranged_where_they_lie() {
        let orders: [&[u32]; 4] = [&[], &[0, 1, 2], &[2, 0, 1], &[4, 3, 2, 0, 1, 6, 5]];
        for order in orders {
            let values: Vec<[f32; 2]> = (0..order.len()).map(|row| [row as f32, 0.5]).collect();
            let mut matrix = Matrix::from_rows(2, values.iter().map(<[f32; 2]>::as_slice));
            matrix.arrange(order.to_vec());
            for (place, &row) in order.iter().enumerate() {
                assert_eq!(matrix.row(place), values[row as usize], "{order:?}");
            }
        }
    }
}

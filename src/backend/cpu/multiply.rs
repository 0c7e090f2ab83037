//! Products of matrices in `f32`, by a matrix crate: the one place that hands it pointers.

use crate::domain::Matrix;

/// A matrix within a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Values from one row to the next, and from one column to the next.
    strides: [usize; 2],
}

impl<'a> View<'a> {
    /// Row-major `f32[rows, columns]` in one piece.
    ///
    /// # Panics
    /// If `values` are not so many.
    pub(super) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix has rows x columns values");
        Self { values, rows, columns, strides: [columns, 1] }
    }

    /// Some consecutive rows of a matrix.
    pub(super) fn of(matrix: &'a Matrix, first: usize, count: usize) -> Self {
        let values = matrix.block(first, count);
        Self { values, rows: count, columns: matrix.dim(), strides: [matrix.stride(), 1] }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Rows as columns.
    pub(super) fn transposed(self) -> Self {
        let [row, column] = self.strides;
        Self { rows: self.columns, columns: self.rows, strides: [column, row], ..self }
    }

    /// Whether every element lies inside the slice.
    fn fits(&self) -> bool {
        let last = |count: usize, stride: usize| count.saturating_sub(1) * stride;
        let end = last(self.rows, self.strides[0]) + last(self.columns, self.strides[1]) + 1;
        self.rows == 0 || self.columns == 0 || end <= self.values.len()
    }
}

/// `product` becomes `left * right`, row-major. Sums are made in no order in particular.
///
/// # Panics
/// If the shapes do not go together.
#[expect(unsafe_code, reason = "the matrix crate takes pointers")]
pub(super) fn multiply(left: View<'_>, right: View<'_>, product: &mut [f32]) {
    assert_eq!(left.columns, right.rows, "as many columns as the other has rows");
    assert_eq!(product.len(), left.rows * right.columns, "room for the product");
    assert!(left.fits() && right.fits(), "views lie inside their slices");
    let [left_strides, right_strides] = [left, right].map(|view| view.strides.map(|stride| stride as isize));
    // SAFETY: every element that the strides reach lies inside its slice and `product` has room (asserted); it is borrowed mutably and
    // overlaps neither.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            product.as_mut_ptr(),
            1,
            right.columns as isize,
            false,
            left.values.as_ptr(),
            left_strides[1],
            left_strides[0],
            right.values.as_ptr(),
            right_strides[1],
            right_strides[0],
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// How far a component of a product may lie from the real one, by the norms of the row and the column that it is the dot product of.
///
/// Each of at most `terms` roundings on a term's way errs by `u = 2^-24`, so the sum by `g = terms u / (1 - terms u)` of the sum of
/// absolute products (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1), which Cauchy and Schwarz bound by
/// the norms, in whatever order it is summed, fused or not. Products below the normal range add at most `terms * 2^-126`.
pub(super) fn error_of_product(terms: usize, norms: f64) -> f64 {
    let terms = terms as f64;
    let roundoff = terms * 2.0_f64.powi(-24);
    roundoff / (1.0 - roundoff) * norms + terms * 2.0_f64.powi(-126)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_written_out_rows_taken_as_columns_too() {
        let left: Vec<f32> = (0..6).map(|value| value as f32).collect();
        let right = [1.0, -1.0, 2.0, 0.5, 3.0, 4.0];
        let mut product = [f32::NAN; 4];
        multiply(View::new(&left, 2, 3), View::new(&right, 3, 2), &mut product);
        assert_eq!(product.map(f32::to_bits), [8.0, 8.5, 26.0, 19.0].map(f32::to_bits));
        multiply(View::new(&left, 3, 2).transposed(), View::new(&right, 3, 2), &mut product);
        assert_eq!(product.map(f32::to_bits), [16.0, 17.0, 22.0, 20.5].map(f32::to_bits));
        let matrix = Matrix::from_rows(3, left.chunks(3));
        multiply(View::of(&matrix, 1, 1), View::new(&right, 3, 2), &mut product[..2]);
        assert_eq!(product.map(f32::to_bits), [26.0, 19.0, 22.0, 20.5].map(f32::to_bits));
    }

    #[test]
    #[should_panic(expected = "as many columns")]
    fn shapes_that_do_not_go_together_are_refused() {
        multiply(View::new(&[0.0; 6], 2, 3), View::new(&[0.0; 6], 2, 3), &mut [0.0; 6]);
    }
}

//! The few directions in which a gallery's rows differ most.
//!
//! Found by orthogonal iteration (Golub and Van Loan, *Matrix Computations*, section 8.2.4) on a sample of the rows: what does most under
//! the rows' covariance prevails when it is applied again and again. Nothing is owed to how well they are found but speed: a proof
//! needs only that together they lengthen no vector, and that is tested.

use rayon::prelude::*;

use crate::backend::cpu::multiply::{View, multiply};
use crate::domain::Matrix;

/// Rows looked at, at most.
const SAMPLE: usize = 4096;

/// Rows that one task multiplies.
const TASK_ROWS: usize = 256;

/// How often the covariance is applied: by then the plane found holds nearly as much as the best one.
const ROUNDS: usize = 5;

/// Length of each axis: less than 1 by more than rounding to `f32` and what is left of angles between axes can make up for.
const LENGTH: f64 = 1.0 - 1e-4;

/// Axes that lengthen no vector: with them as columns of `V`, `|V' x| <= |x|` for every `x`.
#[derive(Debug)]
pub(super) struct Axes {
    /// `[axis][component]`.
    values: Vec<f32>,
    count: usize,
}

impl Axes {
    /// The `count` axes along which rows differ most from `centre`, and how much of the sum of squares of a sample lies along
    /// them, 0 to 1; on the threads of the current pool. Nothing where no such axes could be made.
    pub(super) fn find(rows: &Matrix, centre: &[f32], count: usize) -> Option<(Self, f64)> {
        let dim = rows.dim();
        let sample = sample(rows, centre);
        let squares = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        let whole: f64 = sample.iter().map(|block| squares(block)).sum();
        let mut axes = Self { values: Vec::new(), count };
        let mut next = beginning(count, dim);
        let mut along = 0.0;
        for _ in 0..ROUNDS {
            axes.values = orthogonal(&mut next, dim)?;
            // `S' S V`, task by task and added in order, so that the same rows give the same axes.
            let parts: Vec<(Vec<f32>, f64)> = sample
                .par_iter()
                .map(|block| {
                    let shadows = axes.project(View::new(block, block.len() / dim, dim));
                    let mut part = vec![0.0; count * dim];
                    let shadows_view = View::new(&shadows, block.len() / dim, count);
                    multiply(shadows_view.transposed(), View::new(block, block.len() / dim, dim), &mut part);
                    (part, squares(&shadows))
                })
                .collect();
            next.fill(0.0);
            along = 0.0;
            for (part, squares) in parts {
                next.iter_mut().zip(part).for_each(|(sum, value)| *sum += f64::from(value));
                along += squares;
            }
        }
        (whole > 0.0 && axes.lengthens_nothing()).then_some((axes, along / whole))
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Components of each.
    #[cfg(test)]
    pub(super) fn dim(&self) -> usize {
        self.values.len() / self.count
    }

    /// `f32[vectors, axes]`: how far each vector reaches along each axis.
    pub(super) fn project(&self, vectors: View<'_>) -> Vec<f32> {
        let mut shadows = vec![0.0; vectors.rows() * self.count];
        self.project_into(vectors, &mut shadows);
        shadows
    }

    /// As [`project`](Self::project).
    pub(super) fn project_into(&self, vectors: View<'_>, shadows: &mut [f32]) {
        let dim = self.values.len() / self.count;
        multiply(vectors, View::new(&self.values, self.count, dim).transposed(), shadows);
    }

    /// Whether `|V' x| <= |x|` for every `x`: `|V' V - c I| + c <= 1` in the norm of Frobenius, which is no less than the spectral one. What
    /// `f64` may err here is a thousandth of what is asked for.
    fn lengthens_nothing(&self) -> bool {
        let dim = self.values.len() / self.count;
        let kept = LENGTH * LENGTH;
        let mut off = 0.0;
        for (place, axis) in self.values.chunks_exact(dim).enumerate() {
            for (other_place, other) in self.values.chunks_exact(dim).enumerate() {
                let wanted = if place == other_place { kept } else { 0.0 };
                let product: f64 = axis.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                off += (product - wanted).powi(2);
            }
        }
        off.sqrt() * (1.0 + 1e-3) + kept <= 1.0
    }
}

/// Some rows less the centre, in blocks; the same ones for the same number of rows, and in no rhythm that a gallery's order might have.
fn sample(rows: &Matrix, centre: &[f32]) -> Vec<Vec<f32>> {
    let taken = rows.rows().min(SAMPLE);
    let row_of = |place: usize| {
        if taken == rows.rows() {
            return place;
        }
        // Multiples of the golden ratio, less the whole, lie evenly between 0 and 1: here between 0 and 2^64.
        let fraction = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(fraction) * rows.rows() as u128) >> 64) as usize
    };
    let block = |first: usize| {
        let places = first..taken.min(first + TASK_ROWS);
        places
            .flat_map(|place| {
                rows.row(row_of(place)).iter().zip(centre).map(|(value, centre)| value - centre)
            })
            .collect()
    };
    (0..taken).step_by(TASK_ROWS).map(block).collect()
}

/// Directions to begin with, `[axis][component]`: any that are not all at right angles to what is sought.
fn beginning(count: usize, dim: usize) -> Vec<f64> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    };
    (0..count * dim).map(|_| next()).collect()
}

/// Orthogonal axes of [`LENGTH`] that span what the given ones do; one that depends on those before it gives place to another direction. `None`
/// if there are not so many directions.
fn orthogonal(directions: &mut [f64], dim: usize) -> Option<Vec<f32>> {
    let mut spare = 0..dim;
    for first in (0..directions.len()).step_by(dim) {
        let (before, rest) = directions.split_at_mut(first);
        let axis = &mut rest[..dim];
        while !straighten(axis, before) {
            axis.fill(0.0);
            axis[spare.next()?] = 1.0;
        }
    }
    Some(directions.iter().map(|value| (value * LENGTH) as f32).collect())
}

/// Makes `axis` a unit vector at right angles to those `before` it (Gram and Schmidt, twice, since once leaves angles); false if it depends
/// on them, and what is left of it is noise.
fn straighten(axis: &mut [f64], before: &[f64]) -> bool {
    if make_unit(axis) <= 0.0 {
        return false;
    }
    let mut left = 1.0;
    for _ in 0..2 {
        for other in before.chunks_exact(axis.len()) {
            let along: f64 = axis.iter().zip(other).map(|(a, b)| a * b).sum();
            axis.iter_mut().zip(other).for_each(|(value, other)| *value -= along * other);
        }
        left *= make_unit(axis);
    }
    left > 1e-6
}

/// Gives a vector the length 1, unless it has none; the length that it had.
fn make_unit(values: &mut [f64]) -> f64 {
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    if norm > 0.0 {
        for value in values {
            *value /= norm;
        }
    }
    norm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64) -> impl FnMut() -> f32 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    /// Rows within a space of so many dimensions.
    fn flat(rows: usize, dim: usize, dimensions: usize) -> Matrix {
        let mut noise = noise(1);
        let basis: Vec<Vec<f32>> = (0..dimensions).map(|_| (0..dim).map(|_| noise()).collect()).collect();
        let rows: Vec<Vec<f32>> = (0..rows)
            .map(|_| {
                let mut row = vec![0.0; dim];
                for axis in &basis {
                    let along = noise();
                    row.iter_mut().zip(axis).for_each(|(value, axis)| *value += along * axis);
                }
                row
            })
            .collect();
        Matrix::from_rows(dim, rows.iter().map(Vec::as_slice))
    }

    #[test]
    fn axes_hold_rows_that_lie_in_few_dimensions_and_lengthen_nothing() {
        for (rows, dim, dimensions) in [(300, 80, 20), (5000, 80, 32), (10, 80, 3), (1, 40, 1)] {
            let rows = flat(rows, dim, dimensions);
            let (axes, along) = Axes::find(&rows, &vec![0.0; dim], 32).unwrap();
            assert!(along > 0.999 && along < 1.0, "{along} {dimensions}");
            assert!(axes.lengthens_nothing());
            let mut noise = noise(9);
            for _ in 0..50 {
                let vector: Vec<f32> = (0..dim).map(|_| noise()).collect();
                let shadow = axes.project(View::new(&vector, 1, dim));
                let norm = |values: &[f32]| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
                assert!(norm(&shadow) <= norm(&vector));
            }
        }
    }

    #[test]
    fn rows_all_over_the_sphere_have_no_axes_that_hold_much() {
        let dim = 256;
        let mut noise = noise(5);
        let rows: Vec<Vec<f32>> = (0..6000).map(|_| (0..dim).map(|_| noise()).collect()).collect();
        let rows = Matrix::from_rows(dim, rows.iter().map(Vec::as_slice));
        let (_, along) = Axes::find(&rows, &vec![0.0; dim], 32).unwrap();
        assert!((0.125..0.25).contains(&along), "{along}");
    }

    #[test]
    fn rows_all_at_the_centre_have_no_axes_and_neither_do_too_few_dimensions() {
        let rows = Matrix::from_rows(50, [&[0.1; 50][..]; 7]);
        assert!(Axes::find(&rows, &[0.1; 50], 32).is_none());
        assert!(Axes::find(&flat(9, 20, 2), &[0.0; 20], 32).is_none());
    }

    #[test]
    fn axes_that_lengthen_a_vector_are_found_out() {
        let axis = |angle: f64| [angle.cos() * LENGTH, angle.sin() * LENGTH].map(|value| value as f32);
        let right = std::f64::consts::FRAC_PI_2;
        for (angle, length, good) in
            [(right, 1.0, true), (right - 1e-5, 1.0, true), (right - 1e-3, 1.0, false), (right, 1.001, false)]
        {
            let second = axis(angle).map(|value| value * length);
            let axes = Axes { values: [axis(0.0), second].concat(), count: 2 };
            assert_eq!(axes.lengthens_nothing(), good, "{angle} {length}");
        }
    }
}

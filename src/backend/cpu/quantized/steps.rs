//! Vectors in whole steps of a scale of their own, within what a kernel's sums can hold.

use crate::backend::cpu::kernel::{GROUP, Grid, PANEL_GROUP_BYTES, half_precise, stored};

/// Added to a number of magnitude below 2^51 and taken away again, it leaves the nearest whole one, to even where two are as near: between 2^52 and
/// 2^53 an `f64` has no room for a fraction, and the lowest bits are those of the whole number. A call of the mathematical library
/// would do the same, number by number.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Sums made side by side, so that none waits for the last.
const LANES: usize = 8;

/// A vector less the centre: in `f64`, which errs by no more than 2^-53 of a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct Centred<'a> {
    pub(super) vector: &'a [f32],
    pub(super) centre: &'a [f32],
}

/// What a vector became, beside its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// What one step is worth, [`half_precise`]; 0 where nothing worth it is there.
    pub(super) scale: f32,
    /// Norm of what is left over.
    pub(super) error: f64,
    /// Norm of all steps together, times the scale.
    pub(super) reach: f64,
    /// Norm of the vector less the centre.
    pub(super) norm: f64,
}

impl Centred<'_> {
    /// Writes the vector in steps of the least scale at which they stay within `grid`, of magnitude `most` at most; behind it, zeros.
    pub(super) fn quantize(self, grid: &Grid, most: i32, steps: &mut [i8]) -> Steps {
        let mut largest = [0.0_f64; LANES];
        let (mut longest, mut all) = (0.0_f64, 0.0);
        let segment = grid.segment.saturating_mul(GROUP).min(self.vector.len());
        for (vector, centre) in self.vector.chunks(segment).zip(self.centre.chunks(segment)) {
            let mut squares = [0.0; LANES];
            by_lanes(vector, centre, |lane, value| {
                squares[lane] += value * value;
                let magnitude = value.abs();
                largest[lane] = if magnitude > largest[lane] { magnitude } else { largest[lane] };
            });
            let squares: f64 = squares.iter().sum();
            longest = longest.max(squares);
            all += squares;
        }
        let largest = largest.into_iter().fold(0.0, f64::max);
        // Rounding to whole steps adds at most half a step a component to a segment's norm.
        let room = grid.norm - 0.5 * (segment as f64).sqrt();
        let scale = ((largest / f64::from(most)).max(longest.sqrt() / room) * (1.0 + 1e-6)) as f32;
        let scale = if scale > f32::MIN_POSITIVE { half_precise(scale) } else { 0.0 };
        let (error, reach) = self.write(scale, steps);
        Steps { scale, error, reach, norm: all.sqrt() }
    }

    /// Its norm.
    pub(super) fn norm(self) -> f64 {
        let mut squares = [0.0; LANES];
        by_lanes(self.vector, self.centre, |lane, value| squares[lane] += value * value);
        squares.iter().sum::<f64>().sqrt()
    }

    /// Its product with the centre.
    pub(super) fn along_centre(self) -> f64 {
        let values = self.vector.iter().zip(self.centre);
        values.map(|(value, centre)| (f64::from(*value) - f64::from(*centre)) * f64::from(*centre)).sum()
    }

    /// Writes the vector in steps of `scale`; the norms of what is left over, and of what is written.
    fn write(self, scale: f32, steps: &mut [i8]) -> (f64, f64) {
        let scale = f64::from(scale);
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let (mut left, mut whole) = ([0.0; LANES], [0.0; LANES]);
        let (steps, behind) = steps.split_at_mut(self.vector.len());
        let mut places = steps.iter_mut();
        by_lanes(self.vector, self.centre, |lane, value| {
            let shifted = value * inverse + ROUNDER;
            let rounded = shifted - ROUNDER;
            if let Some(step) = places.next() {
                *step = shifted.to_bits() as i8;
            }
            left[lane] += (value - rounded * scale).powi(2);
            whole[lane] += rounded * rounded;
        });
        behind.fill(0);
        (left.iter().sum::<f64>().sqrt(), whole.iter().sum::<f64>().sqrt() * scale)
    }
}

/// Hands on each component of a vector less the centre, in order, by turns to each lane.
#[inline]
fn by_lanes(vector: &[f32], centre: &[f32], mut take: impl FnMut(usize, f64)) {
    let ((vector, vector_end), (centre, centre_end)) =
        (vector.as_chunks::<LANES>(), centre.as_chunks::<LANES>());
    for (vector, centre) in vector.iter().zip(centre) {
        for lane in 0..LANES {
            take(lane, f64::from(vector[lane]) - f64::from(centre[lane]));
        }
    }
    for (lane, (value, centre)) in vector_end.iter().zip(centre_end).enumerate() {
        take(lane, f64::from(*value) - f64::from(*centre));
    }
}

/// Writes one row's steps to its place in a panel.
pub(super) fn write_row(panel: &mut [u8], place: usize, steps: &[i8], offset: u8) {
    let groups = panel.as_chunks_mut::<PANEL_GROUP_BYTES>().0;
    for (group, steps) in groups.iter_mut().zip(steps.chunks(GROUP)) {
        for (code, step) in group[place * GROUP..].iter_mut().zip(steps) {
            *code = stored(i32::from(*step), offset);
        }
    }
}

/// A norm as `f32`, not less than it is, whatever rounding took from it.
pub(super) fn rounded_up(norm: f64) -> f32 {
    ((norm * (1.0 + 1e-6)) as f32).next_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::kernel::Kernel;

    /// Every fraction that a step can have, around every step that there is.
    #[test]
    fn steps_are_the_nearest_whole_numbers_halves_going_to_even() {
        for step in -130_i32..=130 {
            for fraction in [0.0, 0.25, 0.499_999_999, 0.5, 0.500_000_001, 0.75] {
                for value in [f64::from(step) + fraction, f64::from(step) - fraction] {
                    let shifted = value + ROUNDER;
                    let nearest = value.round_ties_even() as i32;
                    assert_eq!((shifted - ROUNDER) as i32, nearest, "{value}");
                    assert_eq!(shifted.to_bits() as i8, nearest as i8, "{value}");
                }
            }
        }
    }

    #[test]
    fn steps_and_what_is_left_make_up_the_vector() {
        for kernel in Kernel::present() {
            for dim in [1, 7, 8, 31, 32, 33, 100, 517] {
                for spike in [0.0, 1.0, 1e-40] {
                    let vector: Vec<f32> = (0..dim)
                        .map(|c| if c == 0 { 1.0 } else { spike * (c as f32 * 1.7).sin() / 20.0 })
                        .collect();
                    let centre: Vec<f32> = (0..dim).map(|c| (c as f32).cos() / 50.0).collect();
                    let mut steps = vec![1; dim + 3];
                    let centred = Centred { vector: &vector, centre: &centre };
                    let found = centred.quantize(&kernel.grid, kernel.grid.row, &mut steps);
                    let values: Vec<f64> =
                        vector.iter().zip(&centre).map(|(v, c)| f64::from(*v) - f64::from(*c)).collect();
                    let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
                    let whole: Vec<f64> =
                        steps[..dim].iter().map(|s| f64::from(*s) * f64::from(found.scale)).collect();
                    let left: Vec<f64> = values.iter().zip(&whole).map(|(v, w)| v - w).collect();
                    for (is, should) in
                        [(found.error, norm(&left)), (found.reach, norm(&whole)), (found.norm, norm(&values))]
                    {
                        assert!((is - should).abs() < 1e-12, "{is} {should}");
                    }
                    assert!(left.iter().all(|left| left.abs() <= 0.501 * f64::from(found.scale)));
                    assert_eq!(steps[dim..], [0; 3]);
                    for segment in steps[..dim].chunks(kernel.grid.segment.saturating_mul(GROUP)) {
                        let steps: Vec<f64> = segment.iter().map(|s| f64::from(*s)).collect();
                        assert!(norm(&steps) <= kernel.grid.norm);
                        assert!(segment.iter().all(|s| i32::from(*s).abs() <= kernel.grid.row));
                    }
                }
            }
        }
    }
}

//! Rows in bytes.

use aligned_vec::AVec;
use rayon::prelude::*;

use crate::backend::cpu::kernel::{GROUP, Grid, Kernel, PANEL, PANEL_GROUP_BYTES, Panels, stored};
use crate::domain::{Matrix, RowAlignment};

/// Panels that one task quantises.
const TASK_PANELS: usize = 64;

/// A gallery's rows, quantised: about `dim + 12` bytes a row.
#[derive(Debug)]
pub(in crate::backend::cpu) struct QuantizedRows {
    groups: usize,
    codes: AVec<u8, RowAlignment>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    errors: Vec<f32>,
    /// What was subtracted before quantising.
    centre: Vec<f32>,
    /// Largest norm of a row as quantised, `|s r|`.
    reach: f64,
    /// Largest of `errors`.
    worst_error: f32,
}

/// One row's numbers beside its bytes.
#[derive(Clone, Copy, Debug)]
struct RowNumbers {
    scale: f32,
    bias: f32,
    error: f32,
    /// `|s r|`.
    norm: f64,
}

impl QuantizedRows {
    /// Quantises rows for a kernel, on the threads of the current pool.
    pub(in crate::backend::cpu) fn new(rows: &Matrix, kernel: &Kernel) -> Self {
        let panels = rows.rows().div_ceil(PANEL);
        let groups = rows.dim().div_ceil(GROUP);
        let panel_bytes = groups * PANEL_GROUP_BYTES;
        let centre = mean(rows);
        let mut codes = AVec::with_capacity(size_of::<[u8; 64]>(), panels * panel_bytes);
        codes.resize(panels * panel_bytes, stored(0, kernel.grid.offset));
        let padded = panels * PANEL;
        let (mut scales, mut errors) = (vec![0.0; padded], vec![0.0; padded]);
        // Of padding, NaN reaches no cut.
        let mut biases = vec![f32::NAN; padded];
        let reach = codes
            .par_chunks_mut(TASK_PANELS * panel_bytes)
            .zip(scales.par_chunks_mut(TASK_PANELS * PANEL))
            .zip(biases.par_chunks_mut(TASK_PANELS * PANEL))
            .zip(errors.par_chunks_mut(TASK_PANELS * PANEL))
            .enumerate()
            .map(|(task, (((codes, scales), biases), errors))| {
                let first = task * TASK_PANELS * PANEL;
                let count = scales.len().min(rows.rows() - first);
                let mut work = RowWork::new(rows.dim(), &centre, &kernel.grid);
                let mut reach = 0.0_f64;
                for row in 0..count {
                    let numbers = work.quantize(rows.row(first + row));
                    let panel = &mut codes[row / PANEL * panel_bytes..][..panel_bytes];
                    work.write(panel, row % PANEL, kernel.grid.offset);
                    (scales[row], biases[row], errors[row]) = (numbers.scale, numbers.bias, numbers.error);
                    reach = reach.max(numbers.norm);
                }
                reach
            })
            .reduce(|| 0.0, f64::max);
        let worst_error = errors.iter().copied().fold(0.0, f32::max);
        Self { groups, codes, scales, biases, errors, centre, reach, worst_error }
    }

    pub(super) fn panels(&self) -> Panels<'_> {
        Panels {
            groups: self.groups,
            codes: &self.codes,
            scales: &self.scales,
            biases: &self.biases,
            errors: &self.errors,
        }
    }

    /// What was subtracted from every row before it was quantised; to be subtracted from probes too.
    pub(super) fn centre(&self) -> &[f32] {
        &self.centre
    }

    /// Largest norm of a row as quantised.
    pub(super) fn reach(&self) -> f64 {
        self.reach
    }

    /// Largest norm of a row's quantisation error.
    pub(super) fn worst_error(&self) -> f32 {
        self.worst_error
    }

    /// How many rows, padding included.
    pub(in crate::backend::cpu) fn len(&self) -> usize {
        self.scales.len()
    }

    /// Bytes held.
    #[cfg(test)]
    pub(in crate::backend::cpu) fn bytes(&self) -> usize {
        self.codes.len() + 3 * size_of_val(&self.scales[..]) + size_of_val(&self.centre[..])
    }
}

/// The mean of the rows. Any vector would do for the proof; this one makes what is quantised small.
fn mean(rows: &Matrix) -> Vec<f32> {
    let sum = (0..rows.rows())
        .into_par_iter()
        .fold(
            || vec![0.0_f64; rows.dim()],
            |mut sum, row| {
                sum.iter_mut().zip(rows.row(row)).for_each(|(sum, value)| *sum += f64::from(*value));
                sum
            },
        )
        .reduce(
            || vec![0.0; rows.dim()],
            |mut a, b| {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                a
            },
        );
    sum.into_iter().map(|sum| (sum / rows.rows() as f64) as f32).collect()
}

/// Where one row is quantised.
struct RowWork<'a> {
    centre: &'a [f32],
    grid: &'a Grid,
    centred: Vec<f64>,
    steps: Vec<i32>,
}

impl<'a> RowWork<'a> {
    fn new(dim: usize, centre: &'a [f32], grid: &'a Grid) -> Self {
        Self { centre, grid, centred: vec![0.0; dim], steps: vec![0; dim] }
    }

    fn quantize(&mut self, row: &[f32]) -> RowNumbers {
        let mut bias = 0.0;
        for ((centred, value), centre) in self.centred.iter_mut().zip(row).zip(self.centre) {
            *centred = f64::from(*value) - f64::from(*centre);
            bias += *centred * f64::from(*centre);
        }
        let scale = scale(&self.centred, self.grid, self.grid.row);
        let error = quantize(&self.centred, scale, &mut self.steps);
        let norm = self.steps.iter().map(|step| f64::from(step * step)).sum::<f64>().sqrt();
        RowNumbers { scale, bias: bias as f32, error: rounded_up(error), norm: norm * f64::from(scale) }
    }

    fn write(&self, panel: &mut [u8], place: usize, offset: u8) {
        let codes = panel.as_chunks_mut::<PANEL_GROUP_BYTES>().0;
        for (group, steps) in codes.iter_mut().zip(self.steps.chunks(GROUP)) {
            for (code, step) in group[place * GROUP..].iter_mut().zip(steps) {
                *code = stored(*step, offset);
            }
        }
    }
}

/// The least scale at which `values` stay within a kernel's grid; 0 where nothing worth it is there.
pub(super) fn scale(values: &[f64], grid: &Grid, most: i32) -> f32 {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    // Rounding to whole steps adds at most half a step a component to a segment's norm.
    let segment = grid.segment.saturating_mul(GROUP);
    let room = grid.norm - 0.5 * (segment.min(values.len()) as f64).sqrt();
    let norm = values
        .chunks(segment)
        .map(|values| values.iter().map(|value| value * value).sum::<f64>().sqrt())
        .fold(0.0, f64::max);
    let scale = ((largest / f64::from(most)).max(norm / room) * (1.0 + 1e-6)) as f32;
    if scale > f32::MIN_POSITIVE { scale } else { 0.0 }
}

/// Writes `values` in steps of `scale`; the norm of what is left over.
pub(super) fn quantize(values: &[f64], scale: f32, steps: &mut [i32]) -> f64 {
    let scale = f64::from(scale);
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut rest = 0.0;
    for (step, value) in steps.iter_mut().zip(values) {
        let rounded = (value * inverse).round_ties_even();
        *step = rounded as i32;
        let left = value - rounded * scale;
        rest += left * left;
    }
    rest.sqrt()
}

/// A norm as `f32`, not less than it is, whatever rounding took from it.
pub(super) fn rounded_up(norm: f64) -> f32 {
    ((norm * (1.0 + 1e-6)) as f32).next_up()
}

//! Rows in bytes.

use aligned_vec::AVec;
use rayon::prelude::*;

use super::outline::Outline;
use super::steps::{Centred, rounded_up, write_row};
use crate::backend::cpu::kernel::{GROUP, Kernel, Measures, PANEL, PANEL_GROUP_BYTES, Panels, stored};
use crate::domain::{Matrix, RowAlignment};

/// Panels that one task quantises.
pub(super) const TASK_PANELS: usize = 64;

/// A gallery's rows, quantised: about `dim + 8` bytes a row, and an eighth more where they have an outline.
#[derive(Debug)]
pub(in crate::backend::cpu) struct QuantizedRows {
    codes: Codes,
    biases: Vec<f32>,
    /// What was subtracted before quantising.
    centre: Vec<f32>,
    /// Largest norm of a row as quantised, `|s r|`.
    reach: f64,
    pub(super) outline: Option<Outline>,
}

/// Bytes and measures of rows, panel by panel.
#[derive(Debug)]
pub(super) struct Codes {
    pub(super) groups: usize,
    pub(super) bytes: AVec<u8, RowAlignment>,
    pub(super) measures: Vec<Measures>,
}

impl Codes {
    /// For so many rows of `dim` components, all 0 at first.
    pub(super) fn new(rows: usize, dim: usize, kernel: &Kernel) -> Self {
        let (panels, groups) = (rows.div_ceil(PANEL), dim.div_ceil(GROUP));
        let size = panels * groups * PANEL_GROUP_BYTES;
        let mut bytes = AVec::with_capacity(size_of::<[u8; 64]>(), size);
        bytes.resize(size, stored(0, kernel.grid.offset));
        Self { groups, bytes, measures: vec![Measures::default(); panels * PANEL] }
    }

    /// Bytes and measures, task by task.
    pub(super) fn tasks(&mut self) -> impl IndexedParallelIterator<Item = (&mut [u8], &mut [Measures])> {
        let bytes = self.bytes.par_chunks_mut(TASK_PANELS * self.groups * PANEL_GROUP_BYTES);
        bytes.zip(self.measures.par_chunks_mut(TASK_PANELS * PANEL))
    }
}

impl QuantizedRows {
    /// Quantises rows for a kernel, on the threads of the current pool.
    pub(in crate::backend::cpu) fn new(rows: &Matrix, kernel: &Kernel) -> Self {
        let centre = mean(rows);
        let mut codes = Codes::new(rows.rows(), rows.dim(), kernel);
        let (groups, padded) = (codes.groups, codes.measures.len());
        // Of padding, NaN reaches no cut.
        let mut biases = vec![f32::NAN; padded];
        let reach = codes
            .tasks()
            .zip(biases.par_chunks_mut(TASK_PANELS * PANEL))
            .enumerate()
            .map(|(task, ((bytes, measures), biases))| {
                let first = task * TASK_PANELS * PANEL;
                let mut steps = vec![0; groups * GROUP];
                let mut reach = 0.0_f64;
                for row in 0..measures.len().min(rows.rows() - first) {
                    let centred = Centred { vector: rows.row(first + row), centre: &centre };
                    let found = centred.quantize(&kernel.grid, kernel.grid.row, &mut steps);
                    let panel = &mut bytes[row / PANEL * groups * PANEL_GROUP_BYTES..];
                    write_row(
                        &mut panel[..groups * PANEL_GROUP_BYTES],
                        row % PANEL,
                        &steps,
                        kernel.grid.offset,
                    );
                    measures[row] = Measures::new(found.scale, rounded_up(found.error));
                    biases[row] = centred.along_centre() as f32;
                    reach = reach.max(found.reach);
                }
                reach
            })
            .reduce(|| 0.0, f64::max);
        let outline = Outline::new(rows, &centre, kernel);
        Self { codes, biases, centre, reach, outline }
    }

    pub(super) fn panels(&self) -> Panels<'_> {
        Panels {
            groups: self.codes.groups,
            codes: &self.codes.bytes,
            measures: &self.codes.measures,
            biases: &self.biases,
        }
    }

    /// The outline of the rows, and its panels.
    pub(super) fn outline(&self) -> Option<(&Outline, Panels<'_>)> {
        self.outline.as_ref().map(|outline| (outline, outline.panels(&self.biases)))
    }

    /// What was subtracted from every row before it was quantised; to be subtracted from probes too.
    pub(super) fn centre(&self) -> &[f32] {
        &self.centre
    }

    /// Largest norm of a row as quantised.
    pub(super) fn reach(&self) -> f64 {
        self.reach
    }

    /// How many rows, padding included.
    pub(in crate::backend::cpu) fn len(&self) -> usize {
        self.biases.len()
    }

    /// Bytes held.
    #[cfg(test)]
    pub(in crate::backend::cpu) fn bytes(&self) -> usize {
        let outline = self.outline.as_ref().map_or(0, Outline::bytes);
        self.codes.bytes.len() + 2 * size_of_val(&self.biases[..]) + size_of_val(&self.centre[..]) + outline
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

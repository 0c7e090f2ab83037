//! Probes in bytes, quantised anew for each scan, into memory that is kept.

use std::ops::Range;

use super::ROUNDING;
use super::rows::{QuantizedRows, quantize, rounded_up, scale};
use crate::backend::cpu::kernel::{GROUP, Kernel, Tiles, tile_width};
use crate::domain::Matrix;

/// A scan's probes, quantised to go with certain rows.
#[derive(Debug, Default)]
pub(in crate::backend::cpu) struct QuantizedProbes {
    codes: Vec<i32>,
    starts: Vec<i32>,
    scales: Vec<f32>,
    /// Norm of the centred probe.
    norms: Vec<f32>,
    /// What is added to all scores of a probe, `<q, m>`.
    bases: Vec<f32>,
    /// `|d| max |s r| + R`: what a score may be off beside the row's part.
    errors: Vec<f32>,
    centred: Vec<f64>,
    steps: Vec<i32>,
    bytes: Vec<i8>,
}

impl QuantizedProbes {
    /// Takes the probes of a scan of `rows`, in place of those it held.
    pub(in crate::backend::cpu) fn fill(&mut self, probes: &Matrix, rows: &QuantizedRows, kernel: &Kernel) {
        let (dim, padded) = (probes.dim(), probes.dim().next_multiple_of(GROUP));
        for values in [&mut self.scales, &mut self.norms, &mut self.bases, &mut self.errors] {
            values.clear();
        }
        self.centred.resize(dim, 0.0);
        self.steps.resize(dim, 0);
        self.bytes.clear();
        for probe in 0..probes.rows() {
            let mut base = 0.0;
            for ((centred, value), centre) in
                self.centred.iter_mut().zip(probes.row(probe)).zip(rows.centre())
            {
                *centred = f64::from(*value) - f64::from(*centre);
                base += f64::from(*value) * f64::from(*centre);
            }
            let scale = scale(&self.centred, &kernel.grid, kernel.grid.probe);
            let error = quantize(&self.centred, scale, &mut self.steps);
            let norm = self.centred.iter().map(|value| value * value).sum::<f64>().sqrt();
            self.bytes.extend(self.steps.iter().map(|step| *step as i8));
            self.bytes.resize((probe + 1) * padded, 0);
            self.scales.push(scale);
            self.norms.push(rounded_up(norm));
            self.bases.push(base as f32);
            self.errors.push(rounded_up(error * rows.reach()) + ROUNDING);
        }
        self.arrange(padded, kernel);
    }

    /// Words and starts, tile by tile.
    fn arrange(&mut self, padded: usize, kernel: &Kernel) {
        self.codes.clear();
        self.starts.clear();
        let segment = kernel.grid.segment.saturating_mul(GROUP).min(padded);
        let mut rest = &self.bytes[..];
        while !rest.is_empty() {
            let width = tile_width(rest.len() / padded, kernel.grid.tile);
            let (tile, further) = rest.split_at(width * padded);
            for group in (0..padded).step_by(GROUP) {
                self.codes.extend(tile.chunks_exact(padded).map(|probe| {
                    i32::from_le_bytes(std::array::from_fn(|place| probe[group + place].cast_unsigned()))
                }));
            }
            for first in (0..padded).step_by(segment) {
                let end = (first + segment).min(padded);
                self.starts.extend(tile.chunks_exact(padded).map(|probe| (kernel.start)(&probe[first..end])));
            }
            rest = further;
        }
    }

    /// How many.
    pub(in crate::backend::cpu) fn len(&self) -> usize {
        self.scales.len()
    }

    /// Those of a range that begins with a tile, `cuts` being theirs.
    pub(super) fn tiles<'a>(&'a self, range: &Range<usize>, cuts: &'a [f32]) -> Tiles<'a> {
        let (first, end) = (range.start, range.end);
        let (groups, segments) = (self.codes.len() / self.len(), self.starts.len() / self.len());
        Tiles {
            codes: &self.codes[first * groups..end * groups],
            starts: &self.starts[first * segments..end * segments],
            scales: &self.scales[first..end],
            norms: &self.norms[first..end],
            cuts,
        }
    }

    /// What is to be added to a kernel's upper end of a score to make it one of the real score.
    pub(super) fn base(&self, probe: usize) -> f32 {
        self.bases[probe] + self.errors[probe]
    }

    /// What a kernel's upper end must reach for the real score's to reach `floor`.
    pub(super) fn cut(&self, probe: usize, floor: f32) -> f32 {
        floor - self.base(probe)
    }

    /// How far a score may be off, for a row whose quantisation error has this norm.
    pub(in crate::backend::cpu) fn error(&self, probe: usize, row_error: f32) -> f32 {
        self.norms[probe] * row_error + self.errors[probe]
    }

    /// How far any score may be off.
    pub(in crate::backend::cpu) fn bound(&self, probe: usize, rows: &QuantizedRows) -> f32 {
        self.error(probe, rows.worst_error()).next_up()
    }
}

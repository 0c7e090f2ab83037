//! Probes in bytes, quantised anew for each scan, into memory that is kept.

use std::ops::Range;

use rayon::ThreadPool;
use rayon::prelude::*;

use super::ROUNDING;
use super::rows::QuantizedRows;
use super::steps::{Centred, rounded_up};
use crate::backend::cpu::kernel::{GROUP, Kernel, Tiles, tile_width};
use crate::backend::cpu::multiply::View;
use crate::domain::Matrix;

/// Probes that are quantised sooner than another thread could help.
const ALONE: usize = 16;

/// A scan's probes, quantised to go with certain rows.
#[derive(Debug, Default)]
pub(in crate::backend::cpu) struct QuantizedProbes {
    whole: Side,
    /// Where the rows have an outline: the probes as in `whole`, each in a tile of its own, and their shadows.
    single: Words,
    outline: Side,
    /// `f32[probes, axes]`.
    shadows: Vec<f32>,
}

/// Probes as a kernel takes them, whole or in outline.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// `[probe][component]`, padded to whole groups.
    bytes: Vec<i8>,
    words: Words,
    scales: Vec<f32>,
    norms: Vec<f32>,
    bases: Vec<f32>,
    errors: Vec<f32>,
}

/// Bytes by tiles and groups.
#[derive(Debug, Default)]
struct Words {
    codes: Vec<i32>,
    starts: Vec<i32>,
}

/// What a kernel takes of a probe beside its bytes, and what is added to what it gives.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    scale: f32,
    /// By what rows' errors are multiplied.
    norm: f32,
    /// What is added to all scores of a probe, `<q, m>`.
    base: f32,
    /// What a score may be off beside the row's part.
    error: f32,
}

impl QuantizedProbes {
    /// Takes the probes of a scan of `rows`, in place of those it held, on the threads of `pool`.
    pub(in crate::backend::cpu) fn fill(
        &mut self,
        probes: &Matrix,
        rows: &QuantizedRows,
        kernel: &Kernel,
        pool: &ThreadPool,
    ) {
        let (count, grid) = (probes.rows(), &kernel.grid);
        let centred = |probe: usize| Centred { vector: probes.row(probe), centre: rows.centre() };
        let base = |probe: usize| {
            let products = probes.row(probe).iter().zip(rows.centre());
            products.map(|(value, centre)| f64::from(*value) * f64::from(*centre)).sum::<f64>() as f32
        };
        self.whole.quantize((count, probes.dim()), pool, |probe, bytes| {
            let steps = centred(probe).quantize(grid, grid.probe, bytes);
            let error = rounded_up(steps.error * rows.reach()) + ROUNDING;
            Numbers { scale: steps.scale, norm: rounded_up(steps.norm), base: base(probe), error }
        });
        self.whole.arrange(kernel);
        let Some((outline, _)) = rows.outline() else { return };
        self.single.arrange(&self.whole.bytes, count, kernel, 1);
        let axes = outline.axes().count();
        self.shadows.resize(count * axes, 0.0);
        outline.axes().project_into(View::of(probes, 0, count), &mut self.shadows);
        let shadows = &self.shadows;
        self.outline.quantize((count, axes), pool, |probe, bytes| {
            let shadow = Centred { vector: &shadows[probe * axes..][..axes], centre: outline.centre() };
            let steps = shadow.quantize(grid, grid.probe, bytes);
            let error = rounded_up(outline.slack(steps.norm, steps.error)) + ROUNDING;
            let norm = outline.rest(centred(probe).norm(), steps.norm);
            Numbers { scale: steps.scale, norm, base: base(probe), error }
        });
        self.outline.arrange(kernel);
    }

    /// How many.
    pub(in crate::backend::cpu) fn len(&self) -> usize {
        self.whole.scales.len()
    }

    pub(super) fn whole(&self) -> &Side {
        &self.whole
    }

    /// Of use where the rows have an outline.
    pub(super) fn outline(&self) -> &Side {
        &self.outline
    }

    /// One probe by itself, `cut` being its, where the rows have an outline.
    pub(super) fn single<'a>(&'a self, probe: usize, cut: &'a f32) -> Tiles<'a> {
        self.whole.tiles_of(&self.single, &(probe..probe + 1), std::slice::from_ref(cut))
    }

    /// How far a score may be off, for a row whose quantisation error has this norm.
    pub(in crate::backend::cpu) fn error(&self, probe: usize, row_error: f32) -> f32 {
        self.whole.norms[probe] * row_error + self.whole.errors[probe]
    }
}

impl Side {
    /// Has so many probes of so many components quantised.
    fn quantize(
        &mut self,
        (count, dim): (usize, usize),
        pool: &ThreadPool,
        quantize: impl Fn(usize, &mut [i8]) -> Numbers + Sync,
    ) {
        let padded = dim.next_multiple_of(GROUP);
        self.bytes.resize(count * padded, 0);
        for values in [&mut self.scales, &mut self.norms, &mut self.bases, &mut self.errors] {
            values.resize(count, 0.0);
        }
        let places = (
            self.bytes.par_chunks_mut(padded),
            self.scales.par_iter_mut(),
            self.norms.par_iter_mut(),
            self.bases.par_iter_mut(),
            self.errors.par_iter_mut(),
        );
        let work = places.into_par_iter().with_min_len(ALONE).enumerate();
        pool.install(|| {
            work.for_each(|(probe, (bytes, scale, norm, base, error))| {
                let numbers = quantize(probe, bytes);
                (*scale, *norm, *base, *error) = (numbers.scale, numbers.norm, numbers.base, numbers.error);
            });
        });
    }

    fn arrange(&mut self, kernel: &Kernel) {
        self.words.arrange(&self.bytes, self.scales.len(), kernel, kernel.grid.tile);
    }

    /// Those of a range that begins with a tile, `cuts` being theirs.
    pub(super) fn tiles<'a>(&'a self, range: &Range<usize>, cuts: &'a [f32]) -> Tiles<'a> {
        self.tiles_of(&self.words, range, cuts)
    }

    fn tiles_of<'a>(&'a self, words: &'a Words, range: &Range<usize>, cuts: &'a [f32]) -> Tiles<'a> {
        let (first, end, count) = (range.start, range.end, self.scales.len());
        let (groups, segments) = (words.codes.len() / count, words.starts.len() / count);
        Tiles {
            codes: &words.codes[first * groups..end * groups],
            starts: &words.starts[first * segments..end * segments],
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
}

impl Words {
    /// Of the bytes of so many probes, tile by tile.
    fn arrange(&mut self, bytes: &[i8], count: usize, kernel: &Kernel, tile: usize) {
        self.codes.clear();
        self.starts.clear();
        let padded = bytes.len() / count;
        let segment = kernel.grid.segment.saturating_mul(GROUP).min(padded);
        let mut rest = bytes;
        while !rest.is_empty() {
            let width = tile_width(rest.len() / padded, tile);
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
}

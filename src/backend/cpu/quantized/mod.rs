//! The quantised screen: rows in bytes, scored by integer dot products, with a proven interval for every real score.
//!
//! **What is quantised.** With `m` the mean of the rows, `<q, x> = <q - m, x - m> + <q, m> + <x - m, m>`. Only the first term is
//! approximated, since embeddings of some models crowd around their mean and differ from it by little:
//!
//! - a row's `x - m = s r + e`, with integers `r`, a scale `s` of its own, and the error `e`, whose norm is kept ([`rows`]);
//! - a probe's `q - m = t p + d`, likewise ([`probes`]).
//!
//! **The bound.** `<q - m, x - m> = s t <r, p> + <d, s r> + <q - m, e>`, and by Cauchy and Schwarz the last two are at most `|d| |s r|` and
//! `|q - m| |e|`. So the real score lies within `|q - m| |e| + |d| max |s r| + R` of `s t <r, p> + <q, m> + <x - m, m>`, where `R`
//! ([`ROUNDING`]) is what computing this in `f32` may add. The integer dot product itself is exact.
//!
//! **The scan.** Panels of rows go by, in order, each past all probes; a row whose upper end stays below a probe's floor costs one
//! comparison. What is left is offered to the probe's [`Selector`], which raises the floor. Threads take chunks of panels as they
//! come free, have selectors of their own, and tell each other their floors.
//!
//! A probe of which too many rows would have to be kept (rows alike, as far as bytes can tell) is given up and left to `f32`.

mod probes;
mod rows;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) use probes::QuantizedProbes;
pub(super) use rows::QuantizedRows;

use super::kernel::{Hit, Kernel, PANEL, Panels};
use super::select::{Kept, Selector};
use super::sweep::{Lane, Sweep};
use crate::backend::RowSet;

/// What the roundings of the `f32` arithmetic around the integer dot product may add up to: of seven, each at most 2^-24 of a number
/// that is at most 4.1 + 2 + 2, less than half of this; the rest covers the norms' own rounding.
const ROUNDING: f32 = 8e-6;

/// Panels that a thread takes at a time: rows of dim 128 fill a core's cache.
const CHUNK_PANELS: usize = 256;

/// Offers the rows that may be among the first k of each probe to the probe's selectors; `skip_of` says what each leaves out.
pub(super) fn screen<'a>(
    kernel: &'a Kernel,
    rows: &'a QuantizedRows,
    probes: &'a QuantizedProbes,
    skip_of: &'a (dyn Fn(usize) -> &'a RowSet + Sync),
    sweep: &mut Sweep,
) {
    let scan = Scan { kernel, panels: rows.panels(), probes, skip_of };
    let panels = scan.panels.scales.len() / PANEL;
    let next = AtomicUsize::new(0);
    sweep.run(scan.panels.codes.len() * probes.len(), |lane, floors| {
        lane.cuts.resize(probes.len(), 0.0);
        loop {
            let first = next.fetch_add(CHUNK_PANELS, Ordering::Relaxed);
            let end = (first + CHUNK_PANELS).min(panels);
            if first >= end {
                break;
            }
            for ((selector, cut), (probe, floor)) in
                lane.selectors.iter_mut().zip(&mut lane.cuts).zip(floors.iter().enumerate())
            {
                selector.raise(floor.get());
                *cut = probes.cut(probe, selector.floor());
            }
            if lane.cuts.iter().all(|cut| *cut == f32::INFINITY) {
                break;
            }
            scan.chunk(first..end, lane);
            for (selector, floor) in lane.selectors.iter().zip(floors) {
                floor.raise(selector.floor());
            }
        }
    });
}

/// What all threads scan with.
struct Scan<'a> {
    kernel: &'a Kernel,
    panels: Panels<'a>,
    probes: &'a QuantizedProbes,
    skip_of: &'a (dyn Fn(usize) -> &'a RowSet + Sync),
}

impl Scan<'_> {
    fn chunk(&self, panels: Range<usize>, lane: &mut Lane) {
        let mut next = panels.start;
        while next < panels.end {
            let tiles = self.probes.tiles(&lane.cuts);
            next = self.kernel.scan(&self.panels, &tiles, next..panels.end, &mut lane.hits);
            for hit in &lane.hits {
                let selector = &mut lane.selectors[hit.probe];
                self.offer((next - 1) * PANEL, hit, selector);
                lane.cuts[hit.probe] = self.probes.cut(hit.probe, selector.floor());
            }
        }
    }

    fn offer(&self, first_row: usize, hit: &Hit, selector: &mut Selector) {
        let (base, cut) = (self.probes.base(hit.probe), self.probes.cut(hit.probe, selector.floor()));
        let skip = (self.skip_of)(hit.probe);
        for (row, &upper) in (first_row..).zip(&hit.upper) {
            if upper >= cut && !skip.contains(row as u32) {
                let upper = upper + base;
                let lower = upper - 2.0 * self.probes.error(hit.probe, self.panels.errors[row]);
                selector.offer(Kept { row: row as u32, lower, upper });
            }
        }
    }
}

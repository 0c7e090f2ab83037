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

pub(super) use probes::QuantizedProbes;
pub(super) use rows::QuantizedRows;

use super::kernel::{Hit, Kernel, PANEL, Panels};
use super::select::{Kept, Selector};
use super::sweep::{Floor, Lane, Sweep};
use crate::backend::RowSet;

/// What the roundings of the `f32` arithmetic around the integer dot product may add up to: of seven, each at most 2^-24 of a number
/// that is at most 4.1 + 2 + 2, less than half of this; the rest covers the norms' own rounding.
const ROUNDING: f32 = 8e-6;

/// Panels that a thread takes at a time: rows of dim 128 fill a core's cache.
const CHUNK_PANELS: usize = 256;

/// Probes that are worth a pass over the rows of their own: with fewer, reading rows would take as long as scoring them.
const GROUP_PROBES: usize = 32;

/// Offers the rows that may be among the first k of each probe to the probe's selectors; `skip_of` says what each leaves out.
///
/// Many probes are parted into groups, each at first scanned by threads of its own: of two threads that scan half of the rows each,
/// either would find twice as many rows that look as if they mattered. Threads without work help with the other groups.
pub(super) fn screen<'a>(
    kernel: &'a Kernel,
    rows: &'a QuantizedRows,
    probes: &'a QuantizedProbes,
    skip_of: &'a (dyn Fn(usize) -> &'a RowSet + Sync),
    sweep: &mut Sweep,
) {
    let scan = Scan { kernel, panels: rows.panels(), probes, skip_of };
    let panels = scan.panels.scales.len() / PANEL;
    let groups = (probes.len() / GROUP_PROBES).clamp(1, sweep.threads());
    // A group begins where a tile does.
    let width = probes.len().div_ceil(groups).next_multiple_of(kernel.grid.tile);
    let groups = probes.len().div_ceil(width);
    sweep.run(scan.panels.codes.len() * probes.len(), groups, |thread, lane, shared| {
        lane.cuts.resize(probes.len(), 0.0);
        for group in (0..groups).map(|group| (thread + group) % groups) {
            let probes = group * width..((group + 1) * width).min(probes.len());
            while let Some(chunk) = shared.take(group, CHUNK_PANELS, panels) {
                if !scan.learn(&probes, lane, &shared.floors) {
                    break;
                }
                scan.chunk(chunk, &probes, lane);
                for probe in probes.clone() {
                    shared.floors[probe].raise(lane.selectors[probe].floor());
                }
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
    /// Takes over what others found; false if all these probes were given up.
    fn learn(&self, probes: &Range<usize>, lane: &mut Lane, floors: &[Floor]) -> bool {
        let mut any = false;
        for probe in probes.clone() {
            let selector = &mut lane.selectors[probe];
            selector.raise(floors[probe].get());
            lane.cuts[probe] = self.probes.cut(probe, selector.floor());
            any |= !selector.gave_up();
        }
        any
    }

    fn chunk(&self, panels: Range<usize>, probes: &Range<usize>, lane: &mut Lane) {
        let mut next = panels.start;
        while next < panels.end {
            let tiles = self.probes.tiles(probes, &lane.cuts[probes.clone()]);
            next = self.kernel.scan(&self.panels, &tiles, next..panels.end, &mut lane.hits);
            for hit in &lane.hits {
                let probe = probes.start + hit.probe as usize;
                let selector = &mut lane.selectors[probe];
                self.offer(probe, hit, selector);
                lane.cuts[probe] = self.probes.cut(probe, selector.floor());
            }
        }
    }

    fn offer(&self, probe: usize, hit: &Hit, selector: &mut Selector) {
        let (base, skip) = (self.probes.base(probe), (self.skip_of)(probe));
        let mut reached = hit.reached;
        while reached != 0 {
            let place = reached.trailing_zeros() as usize;
            reached &= reached - 1;
            let row = hit.panel as usize * PANEL + place;
            if !skip.contains(row as u32) {
                let upper = hit.upper[place] + base;
                let lower = upper - 2.0 * self.probes.error(probe, self.panels.errors[row]);
                selector.offer(Kept { row: row as u32, lower, upper });
            }
        }
    }
}

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
//! **The outline.** Long rows that lie near a plane of few dimensions are first scored by their shadows on some axes of it ([`outline`]), an eighth of
//! the arithmetic. Let the axes be the columns of `V`, with `|V' y| <= |y|` for every `y`, which is tested when they are made. Then
//! `I - V V'` is positive semidefinite, so that Cauchy and Schwarz hold for it too: with `a = q - m` and `b = x - m`,
//!
//! `<a, b> = <V' a, V' b> + a' (I - V V') b <= <V' a, V' b> + rest(a) rest(b)`, where `rest(y)^2 = |y|^2 - |V' y|^2`.
//!
//! That holds for any such axes, however far from the best ones and from right angles to each other. Shadows are computed in `f32`, which blurs each by
//! a vector whose norm is at most `h` ([`Outline::slack`](outline::Outline::slack)), and quantised: `V' b = s r + e` and `V' a = t p + d`, where `|e|` and `|d|` are the norms of what is
//! left over, and `h` more. As above, `<V' a, V' b> <= s t <r, p> + |d| max |s r| + |V' a| max |e|`. A rest is computed from the norms
//! with the shadow's `h` shorter, so that it is no less than it is. A row whose upper end by its outline stays below the floor cannot be
//! among the first k; of a panel with any other, all rows are scored whole, as above. Where too many pass, as with low floors, the outline is
//! left aside for a while.
//!
//! A probe of which too many rows would have to be kept (rows alike, as far as bytes can tell) is given up and left to `f32`.

mod axes;
mod outline;
mod probes;
mod rows;
mod steps;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub(super) use probes::QuantizedProbes;
pub(super) use rows::QuantizedRows;

use super::kernel::{Hit, Kernel, PANEL, Panels};
use super::select::{Kept, Selector};
use super::sweep::{Cuts, Floor, Lane, Sweep};
use crate::backend::RowSet;

/// What the roundings of the `f32` arithmetic around the integer dot product may add up to: of seven, each at most 2^-24 of a number
/// that is at most 4.1 + 2 + 2, less than half of this; the rest covers the norms' own rounding. In outline, the products of shadows and of
/// rests are together no more than that of the norms, so the same holds.
const ROUNDING: f32 = 8e-6;

/// Panels that a thread takes at a time: rows of dim 128 fill a core's cache.
const CHUNK_PANELS: usize = 256;

/// Probes that are worth a pass over the rows of their own: with fewer, reading rows would take as long as scoring them.
const GROUP_PROBES: usize = 32;

/// Panels for which it is decided at once whether to use the outline, and the first of them, on which it is tried.
const STRETCH_PANELS: usize = 128;
const TRIAL_PANELS: usize = 8;

/// The outline is used where at most one pair of panel and probe in so many passes it: scoring one by itself takes longer than in a tile.
const PAIRS_A_PASS: usize = 4;

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
    let outline = rows.outline().map(|(_, panels)| panels);
    let scan = Scan { kernel, panels: rows.panels(), outline, probes, skip_of };
    let panels = scan.panels.measures.len() / PANEL;
    let groups = (probes.len() / GROUP_PROBES).clamp(1, sweep.threads());
    // A group begins where a tile does.
    let width = probes.len().div_ceil(groups).next_multiple_of(kernel.grid.tile);
    let groups = probes.len().div_ceil(width);
    sweep.run(scan.panels.codes.len() * probes.len(), groups, |thread, lane, shared| {
        lane.cuts.whole.resize(probes.len(), 0.0);
        lane.cuts.outline.resize(probes.len(), 0.0);
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
    /// The same rows in outline, if they have one.
    outline: Option<Panels<'a>>,
    probes: &'a QuantizedProbes,
    skip_of: &'a (dyn Fn(usize) -> &'a RowSet + Sync),
}

impl Scan<'_> {
    /// Takes over what others found; false if all these probes were given up.
    fn learn(&self, probes: &Range<usize>, lane: &mut Lane, floors: &[Floor]) -> bool {
        let mut any = false;
        for probe in probes.clone() {
            lane.selectors[probe].raise(floors[probe].get());
            self.raise_cuts(probe, lane.selectors[probe].floor(), &mut lane.cuts);
            any |= !lane.selectors[probe].gave_up();
        }
        any
    }

    /// Has the cuts of a probe follow its floor.
    fn raise_cuts(&self, probe: usize, floor: f32, cuts: &mut Cuts) {
        cuts.whole[probe] = self.probes.whole().cut(probe, floor);
        if self.outline.is_some() {
            cuts.outline[probe] = self.probes.outline().cut(probe, floor);
        }
    }

    fn chunk(&self, panels: Range<usize>, probes: &Range<usize>, lane: &mut Lane) {
        let Some(outline) = &self.outline else { return self.whole(panels, probes, lane) };
        for first in panels.clone().step_by(STRETCH_PANELS) {
            let end = panels.end.min(first + STRETCH_PANELS);
            let trial = first..end.min(first + TRIAL_PANELS);
            let most = trial.len() * probes.len() / PAIRS_A_PASS;
            let mut next = self.in_outline(outline, trial.clone(), probes, (most, lane));
            if next == trial.end {
                next = self.in_outline(outline, next..end, probes, (usize::MAX, lane));
            }
            self.whole(next..end, probes, lane);
        }
    }

    /// Scans panels without looking at outlines.
    fn whole(&self, panels: Range<usize>, probes: &Range<usize>, lane: &mut Lane) {
        let mut next = panels.start;
        while next < panels.end {
            let tiles = self.probes.whole().tiles(probes, &lane.cuts.whole[probes.clone()]);
            next = self.kernel.scan(&self.panels, &tiles, next..panels.end, &mut lane.hits);
            for hit in &lane.hits {
                let probe = probes.start + hit.probe as usize;
                self.offer(probe, hit, &mut lane.selectors[probe], &mut lane.cuts);
            }
        }
    }

    /// Scans panels by their outline, and whole what that lets pass, as long as this is at most so many panels and probes; returns where it
    /// stopped.
    fn in_outline(
        &self,
        outline: &Panels<'_>,
        panels: Range<usize>,
        probes: &Range<usize>,
        (most, lane): (usize, &mut Lane),
    ) -> usize {
        let (mut next, mut passed) = (panels.start, 0_usize);
        while next < panels.end {
            let tiles = self.probes.outline().tiles(probes, &lane.cuts.outline[probes.clone()]);
            let from = next;
            next = self.kernel.scan(outline, &tiles, next..panels.end, &mut lane.passed);
            passed = passed.saturating_add(lane.passed.len());
            if passed > most {
                return from;
            }
            #[cfg(test)]
            {
                lane.settled += (next - from) * probes.len() - lane.passed.len();
            }
            for passed in &lane.passed {
                let (panel, probe) = (passed.panel as usize, probes.start + passed.probe as usize);
                let tiles = self.probes.single(probe, &lane.cuts.whole[probe]);
                self.kernel.scan(&self.panels, &tiles, panel..panel + 1, &mut lane.hits);
                for hit in &lane.hits {
                    self.offer(probe, hit, &mut lane.selectors[probe], &mut lane.cuts);
                }
            }
        }
        next
    }

    /// Offers the rows of a hit to a probe's selector.
    fn offer(&self, probe: usize, hit: &Hit, selector: &mut Selector, cuts: &mut Cuts) {
        let (base, skip) = (self.probes.whole().base(probe), (self.skip_of)(probe));
        let mut reached = hit.reached;
        while reached != 0 {
            let place = reached.trailing_zeros() as usize;
            reached &= reached - 1;
            let row = hit.panel as usize * PANEL + place;
            if !skip.contains(row as u32) {
                let upper = hit.upper[place] + base;
                let lower = upper - 2.0 * self.probes.error(probe, self.panels.measures[row].error());
                selector.offer(Kept { row: row as u32, lower, upper });
            }
        }
        self.raise_cuts(probe, selector.floor(), cuts);
    }
}

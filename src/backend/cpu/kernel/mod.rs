//! Integer dot products of quantised rows and probes, by the best instructions that the processor has.
//!
//! ```text
//! panel: 16 rows, components in groups of 4         tile: W probes, likewise
//!   group 0: row 0 [c0 c1 c2 c3] row 1 [....] ... row 15      group 0: probe 0 [c0 c1 c2 c3] ... probe W-1
//!   group 1: row 0 [c4 c5 c6 c7] ...                          group 1: ...
//! ```
//!
//! One group of a panel fills one or more registers, each 32-bit lane of which belongs to a row; one group of a probe is a
//! 32-bit word that is broadcast. A multiply-add of bytes into lanes thus adds four components of a probe to the
//! scores of many rows, and the scores of a panel come out side by side, ready to be compared with what a row must reach.
//!
//! Rows are stored as unsigned bytes, `offset` above their value, since the multiply-adds of x86 take one unsigned and one signed
//! factor; what the offset adds depends on the probe alone and is taken back by where its sums start ([`Grid`]).
//!
//! Measured before they were chosen, on an AMD EPYC (Zen 3, AVX2) with other work on it, 350 000 rows x 256 probes, dim 128, one thread,
//! processor time: a draft of the AVX2 kernel 107 to 163 ms with the comparison included, by its tile; crate `numkong` 7.8.7
//! (`dots_packed`, i8) 301 to 434 ms for the products alone, by its blocks.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::config::Instructions;

/// Rows of a panel.
pub(super) const PANEL: usize = 16;

/// Components of a group.
pub(super) const GROUP: usize = 4;

/// Bytes of one group of a panel.
pub(super) const PANEL_GROUP_BYTES: usize = PANEL * GROUP;

/// How far ahead of the arithmetic rows are fetched, in bytes: hardware that fetches ahead stops at every page, and the wait for memory
/// is as long as the arithmetic of a panel with few probes.
const FETCH_AHEAD: usize = 8192;

/// So many hits are looked at together: by then cuts may have risen, but going back and forth for each would take as long as it saves.
const ENOUGH_HITS: usize = 16;

/// What a kernel asks of quantised numbers so that no sum of theirs overflows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Largest magnitude of a row's component.
    pub(super) row: i32,
    /// Largest magnitude of a probe's component.
    pub(super) probe: i32,
    /// What is added to a row's component to store it, modulo 256.
    pub(super) offset: u8,
    /// Groups whose products are summed before the sums are widened; the last segment may be shorter.
    pub(super) segment: usize,
    /// Largest L2 norm of a row's or a probe's components within a segment.
    pub(super) norm: f64,
    /// Most probes of a tile.
    pub(super) tile: usize,
}

/// The code for one set of instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) instructions: Instructions,
    pub(super) grid: Grid,
    /// Where the sums of a probe start in one segment, given its components there: minus what the rows' offset will add.
    pub(super) start: fn(&[i8]) -> i32,
    is_present: fn() -> bool,
    scan: ScanFn,
    peak: PeakFn,
    /// Multiply-adds of bytes that `peak` does in one round.
    peak_products: u64,
}

/// Scans panels from the first of the range on, until there are enough hits or the range ends: see [`Kernel::scan`].
///
/// # Safety
/// The processor has the kernel's instructions, and the sizes are those that [`Kernel::scan`] asserts.
type ScanFn = unsafe fn(&Panels<'_>, &Tiles<'_>, Range<usize>, &mut Vec<Hit>) -> usize;

/// Multiplies and adds in registers, so many rounds.
///
/// # Safety
/// The processor has the kernel's instructions.
type PeakFn = unsafe fn(u64);

/// All kernels of this architecture, the best first.
const KERNELS: &[Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    avx512::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx2::KERNEL,
    #[cfg(target_arch = "aarch64")]
    neon::KERNEL,
    PORTABLE,
];

/// The one that runs everywhere.
pub(super) const PORTABLE: Kernel = portable::KERNEL;

/// Some rows, quantised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panels<'a> {
    /// Groups of a row.
    pub(super) groups: usize,
    /// `[panel][group][row of panel][component of group]`, each `offset` above its value.
    pub(super) codes: &'a [u8],
    /// `[row]`, 0 for padding.
    pub(super) measures: &'a [Measures],
    /// What is added to a row's score, `[row]`; NaN for padding, which thus reaches no cut.
    pub(super) biases: &'a [f32],
}

/// What one step of a row's components is worth, and the norm of its quantisation error: the upper halves of two `f32`, one word together, the scale
/// in its upper half. Eight bits of precision are as good as more, as long as scales are those that rows were quantised with, and
/// errors no less than they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(transparent)]
pub(super) struct Measures(u32);

impl Measures {
    /// Of a scale from [`half_precise`], and an error, which is rounded up.
    pub(super) fn new(scale: f32, error: f32) -> Self {
        debug_assert!(scale.to_bits().trailing_zeros() >= 16);
        Self(scale.to_bits() | half_precise(error).to_bits() >> 16)
    }

    pub(super) fn scale(self) -> f32 {
        f32::from_bits(self.0 & Self::SCALE)
    }

    pub(super) fn error(self) -> f32 {
        f32::from_bits(self.0 << 16)
    }

    /// The bits of the scale.
    const SCALE: u32 = 0xffff_0000;
}

/// The least number not below `value`, which is not negative, that the upper half of an `f32` holds.
pub(super) fn half_precise(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + 0xffff) & Measures::SCALE)
}

/// The probes of a scan, quantised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles<'a> {
    /// `[tile][group][probe of tile]`, each word four components.
    pub(super) codes: &'a [i32],
    /// `[tile][segment][probe of tile]`: where sums start.
    pub(super) starts: &'a [i32],
    /// What one step of a probe's components is worth, `[probe]`.
    pub(super) scales: &'a [f32],
    /// The probe's norm, `[probe]`: by what the rows' errors are multiplied.
    pub(super) norms: &'a [f32],
    /// What a row must reach, `[probe]`.
    pub(super) cuts: &'a [f32],
}

/// A probe and a panel at least one row of which reaches the probe's cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hit {
    pub(super) panel: u32,
    pub(super) probe: u32,
    /// Which rows reach the cut, the panel's first row in the lowest bit.
    pub(super) reached: u32,
    /// `scale * probe's scale * products + bias + error * probe's norm` of each row.
    pub(super) upper: [f32; PANEL],
}

/// How a row's component is stored.
pub(super) fn stored(component: i32, offset: u8) -> u8 {
    (component as i8).cast_unsigned().wrapping_add(offset)
}

/// How many probes stand in the next tile, with so many left: at the end tiles are powers of two, so that none is padded.
pub(super) fn tile_width(left: usize, tile: usize) -> usize {
    if left >= tile { tile } else { 1 << left.ilog2() }
}

/// Makes the place behind `hits` a hit where any row was reached. Without a branch: which probes hit cannot be foretold, and a wrong guess
/// would throw away what the processor has begun of the next tile.
///
/// # Safety
/// There is room for one more, and it was written.
#[inline]
#[expect(unsafe_code, reason = "a hit is written before it is known to be one")]
unsafe fn keep_if(reached: u32, hits: &mut Vec<Hit>) {
    // SAFETY: as promised.
    unsafe { hits.set_len(hits.len() + usize::from(reached != 0)) };
}

/// Where sums in 32 bits start.
fn start_in_32_bits(offset: u8, components: &[i8]) -> i32 {
    -i32::from(offset) * components.iter().map(|component| i32::from(*component)).sum::<i32>()
}

impl Panels<'_> {
    /// Addresses of the numbers beside the codes of the panel after next, to be fetched ahead.
    #[cfg(target_arch = "x86_64")]
    fn numbers_ahead(&self, panel: usize) -> [*const i8; 2] {
        let row = (panel + 2) * PANEL;
        [self.measures.as_ptr().wrapping_add(row).cast(), self.biases.as_ptr().wrapping_add(row).cast()]
    }
}

impl Kernel {
    /// The kernels that this processor can run, the best first.
    pub(super) fn present() -> impl Iterator<Item = &'static Self> {
        KERNELS.iter().filter(|kernel| (kernel.is_present)())
    }

    /// Scans the panels of `range` in order and stops behind the one with which there are [`ENOUGH_HITS`]; returns where it stopped.
    ///
    /// `hits` then holds the hits of all panels scanned, in order, at most one a panel and probe.
    #[expect(unsafe_code, reason = "calls code compiled for instructions beyond the baseline")]
    pub(super) fn scan(
        &self,
        panels: &Panels<'_>,
        tiles: &Tiles<'_>,
        range: Range<usize>,
        hits: &mut Vec<Hit>,
    ) -> usize {
        let (groups, rows, probes) = (panels.groups, range.end * PANEL, tiles.cuts.len());
        assert!(
            panels.codes.len() >= rows * groups * GROUP && panels.codes.as_ptr().addr().is_multiple_of(64)
        );
        assert!(panels.measures.len() >= rows && panels.biases.len() >= rows);
        assert!(tiles.codes.len() >= probes * groups);
        assert!(tiles.starts.len() >= probes * groups.div_ceil(self.grid.segment));
        assert!([tiles.scales, tiles.norms].iter().all(|values| values.len() >= probes));
        hits.clear();
        // One more than there can be: what is no hit is written too, and written over by the next.
        // Two panels may be scored before hits are counted.
        hits.reserve(ENOUGH_HITS + 2 * probes);
        // SAFETY: kernels come from `present`, so the processor has the instructions; the sizes were just asserted.
        unsafe { (self.scan)(panels, tiles, range, hits) }
    }

    /// Does `rounds` rounds of multiply-adds in registers, as fast as this processor can; returns how many multiply-adds that were.
    #[expect(unsafe_code, reason = "calls code compiled for instructions beyond the baseline")]
    pub(super) fn multiply_in_registers(&self, rounds: u64) -> u64 {
        // SAFETY: kernels come from `present`, so the processor has the instructions.
        unsafe { (self.peak)(rounds) };
        rounds * self.peak_products
    }
}

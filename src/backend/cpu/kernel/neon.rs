//! NEON dot product: `sdot` multiplies 16 pairs of signed bytes and adds them by fours into 32-bit lanes, four registers a panel's group.
//!
//! Both factors are signed, so rows are stored as they are (offset 0). The probe's word is picked from a register of four, so that
//! one load serves a tile. Sums stay far below 2^31 (4096 * 127 * 127). `sdot` is written as assembly because its intrinsic is not
//! stable yet.

use std::arch::aarch64::{
    float32x4_t, int32x4_t, vaddvq_u32, vandq_u32, vcgeq_f32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s32,
    vdupq_n_u32, vfmaq_f32, vld1q_f32, vld1q_s8, vld1q_u32, vmulq_f32, vorrq_u32, vreinterpretq_f32_u32,
    vreinterpretq_s8_s32, vshlq_n_u32, vst1q_f32,
};
use std::arch::asm;
use std::ops::Range;

use super::{
    ENOUGH_HITS, FETCH_AHEAD, Grid, Hit, Kernel, Measures, PANEL, PANEL_GROUP_BYTES, Panels, Tiles,
    tile_width,
};
use crate::config::Instructions;

/// Registers of a panel's group.
const PARTS: usize = PANEL / 4;

pub(super) const KERNEL: Kernel = Kernel {
    instructions: Instructions::NeonDot,
    grid: Grid { row: 127, probe: 127, offset: 0, segment: usize::MAX, norm: f64::INFINITY, tile: 4 },
    start: |_| 0,
    is_present: || std::arch::is_aarch64_feature_detected!("dotprod"),
    scan,
    peak,
    peak_products: 16 * 16,
};

#[target_feature(enable = "neon,dotprod")]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn scan(panels: &Panels<'_>, tiles: &Tiles<'_>, range: Range<usize>, hits: &mut Vec<Hit>) -> usize {
    let probes = tiles.cuts.len();
    for panel in range.clone() {
        let mut first = 0;
        while first < probes {
            let width = tile_width(probes - first, KERNEL.grid.tile);
            // SAFETY: the caller's promises are passed on; `first + width` stays within the probes.
            unsafe {
                match width {
                    4 => scan_tile::<4>(panels, tiles, (panel, first), hits),
                    2 => scan_tile::<2>(panels, tiles, (panel, first), hits),
                    _ => scan_tile::<1>(panels, tiles, (panel, first), hits),
                }
            }
            first += width;
        }
        if hits.len() >= ENOUGH_HITS {
            return panel + 1;
        }
    }
    range.end
}

/// Scores one panel against `W` probes.
#[target_feature(enable = "neon,dotprod")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn scan_tile<const W: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    (panel, first): (usize, usize),
    hits: &mut Vec<Hit>,
) {
    // SAFETY: panels hold `groups * 64` bytes and 16 values a row array; tiles hold `W` words a group, and a value a probe.
    unsafe {
        let sums = products::<W>(panels, tiles, panel, first);
        let row = panel * PANEL;
        for (place, sums) in sums.iter().enumerate() {
            let probe = first + place;
            let scale = vdupq_n_f32(*tiles.scales.get_unchecked(probe));
            let norm = vdupq_n_f32(*tiles.norms.get_unchecked(probe));
            let cut = vdupq_n_f32(*tiles.cuts.get_unchecked(probe));
            let mut upper: [float32x4_t; PARTS] = [cut; PARTS];
            let mut reached = vcgeq_f32(vdupq_n_f32(-1.0), vdupq_n_f32(1.0));
            for part in 0..PARTS {
                let at = row + part * 4;
                let measures = vld1q_u32(panels.measures.as_ptr().add(at).cast());
                let errors = vreinterpretq_f32_u32(vshlq_n_u32::<16>(measures));
                let scales = vreinterpretq_f32_u32(vandq_u32(measures, vdupq_n_u32(Measures::SCALE)));
                let biases = vld1q_f32(panels.biases.as_ptr().add(at));
                let scales = vmulq_f32(scales, scale);
                let rest = vfmaq_f32(biases, errors, norm);
                upper[part] = vfmaq_f32(rest, vcvtq_f32_s32(sums[part]), scales);
                reached = vorrq_u32(reached, vcgeq_f32(upper[part], cut));
            }
            if vaddvq_u32(reached) != 0 {
                let mut hit =
                    Hit { panel: panel as u32, probe: probe as u32, reached: 0, upper: [0.0; PANEL] };
                for (part, upper) in upper.iter().enumerate() {
                    vst1q_f32(hit.upper.as_mut_ptr().add(part * 4), *upper);
                }
                for (row, upper) in hit.upper.iter().enumerate() {
                    hit.reached |= u32::from(*upper >= *tiles.cuts.get_unchecked(probe)) << row;
                }
                hits.push(hit);
            }
        }
    }
}

/// `sums[part] += rows . word $lane of words`, by fours.
macro_rules! sdot {
    ($sums:expr, $rows:expr, $words:expr, $lane:literal) => {
        asm!(
            concat!("sdot {sums:v}.4s, {rows:v}.16b, {words:v}.4b[", $lane, "]"),
            sums = inout(vreg) $sums,
            rows = in(vreg) $rows,
            words = in(vreg) $words,
            options(pure, nomem, nostack, preserves_flags),
        )
    };
}

/// The products of one panel's rows with `W` probes, rows in 32-bit lanes.
#[target_feature(enable = "neon,dotprod")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn products<const W: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    panel: usize,
    first: usize,
) -> [[int32x4_t; PARTS]; W] {
    // SAFETY: as in `scan_tile`; a tile of fewer than four probes is copied word by word, not read beyond its end.
    unsafe {
        let groups = panels.groups;
        let rows = panels.codes.as_ptr().add(panel * groups * PANEL_GROUP_BYTES).cast::<i8>();
        let probes = tiles.codes.as_ptr().add(first * groups);
        let mut sums = [[vdupq_n_s32(0); PARTS]; W];
        for group in 0..groups {
            let mut four = [0_i32; 4];
            std::ptr::copy_nonoverlapping(probes.add(group * W), four.as_mut_ptr(), W);
            let words = vreinterpretq_s8_s32(std::arch::aarch64::vld1q_s32(four.as_ptr()));
            if first == 0 {
                // The first tile fetches for all. A prefetch may name any address.
                let ahead = rows.wrapping_add(group * PANEL_GROUP_BYTES + FETCH_AHEAD);
                asm!("prfm pldl1keep, [{0}]", in(reg) ahead, options(readonly, nostack, preserves_flags));
            }
            for part in 0..PARTS {
                let rows = vld1q_s8(rows.add(group * PANEL_GROUP_BYTES + part * 16));
                sdot!(sums[0][part], rows, words, "0");
                if W > 1 {
                    sdot!(sums[1 % W][part], rows, words, "1");
                }
                if W > 2 {
                    sdot!(sums[2 % W][part], rows, words, "2");
                    sdot!(sums[3 % W][part], rows, words, "3");
                }
            }
        }
        sums
    }
}

/// Sixteen independent multiply-adds a round.
#[target_feature(enable = "neon,dotprod")]
#[expect(unsafe_code, reason = "instructions that the compiler must neither move nor drop")]
unsafe fn peak(rounds: u64) {
    for _ in 0..rounds {
        // SAFETY: only registers named as overwritten are written, and no memory.
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23",
                "sdot v\\i\\().4s, v30.16b, v31.16b",
                ".endr",
                out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                out("v4") _, out("v5") _, out("v6") _, out("v7") _,
                out("v16") _, out("v17") _, out("v18") _, out("v19") _,
                out("v20") _, out("v21") _, out("v22") _, out("v23") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

//! AVX-512 VNNI: `vpdpbusd` multiplies 64 pairs of bytes and adds them by fours into 32-bit lanes. One register is one group of a
//! panel; sums stay far below 2^31 (4096 * 255 * 127).
//!
//! The addition takes several cycles to come out, so a tile has up to 16 sums in the making, of two panels with up to eight probes: narrow
//! tiles split each probe's sum into chains.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _CMP_GE_OQ, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_and_si512, _mm512_castsi512_ps,
    _mm512_cmp_ps_mask, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_load_si512,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_storeu_ps,
};
use std::ops::Range;

use super::{
    ENOUGH_HITS, FETCH_AHEAD, Grid, Hit, Kernel, Measures, PANEL, PANEL_GROUP_BYTES, Panels, Tiles, keep_if,
    tile_width,
};
use crate::config::Instructions;

const OFFSET: u8 = 128;

pub(super) const KERNEL: Kernel = Kernel {
    instructions: Instructions::Avx512Vnni,
    grid: Grid { row: 127, probe: 127, offset: OFFSET, segment: usize::MAX, norm: f64::INFINITY, tile: 8 },
    start: |components| super::start_in_32_bits(OFFSET, components),
    is_present: || {
        std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vnni")
    },
    scan,
    peak,
    peak_products: 16 * 64,
};

#[target_feature(enable = "avx512f,avx512vnni")]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn scan(panels: &Panels<'_>, tiles: &Tiles<'_>, range: Range<usize>, hits: &mut Vec<Hit>) -> usize {
    let probes = tiles.cuts.len();
    let mut panel = range.start;
    while panel < range.end {
        // Two panels share what is read of the probes, and two probes or more what is read of the rows: else reading would take longer
        // than multiplying.
        let pair = range.end - panel >= 2;
        let end = panel + 1 + usize::from(pair);
        for panel in panel..end {
            for numbers in panels.numbers_ahead(panel) {
                _mm_prefetch::<_MM_HINT_T0>(numbers);
            }
        }
        let mut first = 0;
        while first < probes {
            let width = tile_width(probes - first, KERNEL.grid.tile);
            // SAFETY: the caller's promises are passed on; `first + width` stays within the probes, `end` within the panels.
            unsafe {
                match (width, pair) {
                    (8, true) => scan_tile::<8, 1, 2>(panels, tiles, (panel, first), hits),
                    (4, true) => scan_tile::<4, 2, 2>(panels, tiles, (panel, first), hits),
                    (2, true) => scan_tile::<2, 4, 2>(panels, tiles, (panel, first), hits),
                    (_, true) => scan_tile::<1, 4, 2>(panels, tiles, (panel, first), hits),
                    (8, false) => scan_tile::<8, 2, 1>(panels, tiles, (panel, first), hits),
                    (4, false) => scan_tile::<4, 4, 1>(panels, tiles, (panel, first), hits),
                    (2, false) => scan_tile::<2, 4, 1>(panels, tiles, (panel, first), hits),
                    (_, false) => scan_tile::<1, 4, 1>(panels, tiles, (panel, first), hits),
                }
            }
            first += width;
        }
        panel = end;
        if hits.len() >= ENOUGH_HITS {
            break;
        }
    }
    panel
}

/// Scores `P` panels against `W` probes.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn scan_tile<const W: usize, const CHAINS: usize, const P: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    (panel, first): (usize, usize),
    hits: &mut Vec<Hit>,
) {
    // SAFETY: panels hold `groups * 64` bytes and 16 values a row array; tiles hold `W` words a group, and a value a probe.
    unsafe {
        let sums = products::<W, CHAINS, P>(panels, tiles, panel, first);
        for (panel, sums) in (panel..).zip(&sums) {
            let row = panel * PANEL;
            let measures = _mm512_loadu_si512(panels.measures.as_ptr().add(row).cast());
            let scale_bits = _mm512_set1_epi32(Measures::SCALE.cast_signed());
            let scales = _mm512_castsi512_ps(_mm512_and_si512(measures, scale_bits));
            let errors = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(measures));
            let biases = _mm512_loadu_ps(panels.biases.as_ptr().add(row));
            for (place, sum) in sums.iter().enumerate() {
                let probe = first + place;
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(*tiles.scales.get_unchecked(probe)));
                let rest = _mm512_fmadd_ps(errors, _mm512_set1_ps(*tiles.norms.get_unchecked(probe)), biases);
                let upper = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*sum), scale, rest);
                let cut = _mm512_set1_ps(*tiles.cuts.get_unchecked(probe));
                let reached = u32::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(upper, cut));
                if reached != 0 {
                    let hit = hits.as_mut_ptr().add(hits.len());
                    _mm512_storeu_ps((&raw mut (*hit).upper).cast(), upper);
                    ((*hit).panel, (*hit).probe, (*hit).reached) = (panel as u32, probe as u32, reached);
                    keep_if(reached, hits);
                }
            }
        }
    }
}

/// The products of the rows of `P` panels with `W` probes, rows in 32-bit lanes.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
#[expect(
    clippy::needless_range_loop,
    reason = "places in arrays of three dimensions, which the compiler sees through"
)]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn products<const W: usize, const CHAINS: usize, const P: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    panel: usize,
    first: usize,
) -> [[__m512i; W]; P] {
    // SAFETY: as in `scan_tile`; a chain's group is tested against the number of groups.
    unsafe {
        let groups = panels.groups;
        let rows: [*const u8; P] = std::array::from_fn(|place| {
            panels.codes.as_ptr().add((panel + place) * groups * PANEL_GROUP_BYTES)
        });
        let probes = tiles.codes.as_ptr().add(first * groups);
        let mut sums = [[[_mm512_setzero_si512(); CHAINS]; W]; P];
        for sums in &mut sums {
            for (probe, sums) in sums.iter_mut().enumerate() {
                sums[0] = _mm512_set1_epi32(*tiles.starts.as_ptr().add(first + probe));
            }
        }
        let mut group = 0;
        while group + CHAINS <= groups {
            for chain in 0..CHAINS {
                let mut codes = [_mm512_setzero_si512(); P];
                for place in 0..P {
                    let at = rows[place].add((group + chain) * PANEL_GROUP_BYTES);
                    if first == 0 {
                        // The first tile fetches for all. A prefetch may name any address.
                        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(FETCH_AHEAD).cast());
                    }
                    codes[place] = _mm512_load_si512(at.cast());
                }
                let words = probes.add((group + chain) * W);
                for probe in 0..W {
                    let word = _mm512_set1_epi32(*words.add(probe));
                    for place in 0..P {
                        sums[place][probe][chain] =
                            _mm512_dpbusd_epi32(sums[place][probe][chain], codes[place], word);
                    }
                }
            }
            group += CHAINS;
        }
        while group < groups {
            for probe in 0..W {
                let word = _mm512_set1_epi32(*probes.add(group * W + probe));
                for place in 0..P {
                    let codes = _mm512_load_si512(rows[place].add(group * PANEL_GROUP_BYTES).cast());
                    sums[place][probe][0] = _mm512_dpbusd_epi32(sums[place][probe][0], codes, word);
                }
            }
            group += 1;
        }
        // Loops, not `map` and the like: what those are made of is compiled without these instructions, and is not always inlined.
        let mut whole = [[_mm512_setzero_si512(); W]; P];
        for place in 0..P {
            for probe in 0..W {
                whole[place][probe] = sums[place][probe][0];
                for chain in 1..CHAINS {
                    whole[place][probe] = _mm512_add_epi32(whole[place][probe], sums[place][probe][chain]);
                }
            }
        }
        whole
    }
}

/// Sixteen independent multiply-adds a round.
#[target_feature(enable = "avx512f,avx512vnni")]
#[expect(unsafe_code, reason = "instructions that the compiler must neither move nor drop")]
unsafe fn peak(rounds: u64) {
    for _ in 0..rounds {
        // SAFETY: only registers named as overwritten are written, and no memory.
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "vpdpbusd zmm\\i, zmm30, zmm31",
                ".endr",
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

//! AVX2: `vpmaddubsw` alone, sums of a segment kept in 16 bits.
//!
//! `vpmaddubsw` multiplies 32 pairs of bytes and adds neighbours, saturating at 16 bits; `vpaddw` adds those modulo 2^16. A saturated pair cannot
//! occur: 2 * (row + offset) * probe = 2 * 180 * 91 < 2^15. Sums may wrap on the way, but their end cannot: by Cauchy and Schwarz it
//! is at most the product of two norms, 181 * 181 < 2^15, so a segment's sum is right modulo 2^16 and within range. It is then widened by
//! `vpmaddwd`. That is one multiplication for 32 products where the usual `vpmaddubsw`, `vpmaddwd` pair takes two.

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _CMP_GE_OQ, _MM_HINT_T0, _mm_prefetch, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepi32_ps, _mm256_fmadd_ps,
    _mm256_load_si256, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_movemask_ps, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_slli_epi32, _mm256_storeu_ps,
};
use std::ops::Range;

use super::{
    ENOUGH_HITS, FETCH_AHEAD, Grid, Hit, Kernel, Measures, PANEL, PANEL_GROUP_BYTES, Panels, Tiles, keep_if,
    tile_width,
};
use crate::config::Instructions;

const SEGMENT: usize = 8;

pub(super) const KERNEL: Kernel = Kernel {
    instructions: Instructions::Avx2,
    grid: Grid { row: 90, probe: 91, offset: 90, segment: SEGMENT, norm: 181.0, tile: 6 },
    start,
    is_present: || std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma"),
    scan,
    peak,
    peak_products: 12 * 32,
};

/// Two sums of 16 bits, modulo 2^16: one of the first two components of each group, one of the last two.
fn start(components: &[i8]) -> i32 {
    let offset = |place: usize| {
        let sum: i32 = components
            .chunks(4)
            .flat_map(|group| group.iter().skip(place).take(2))
            .map(|c| i32::from(*c))
            .sum();
        (-i32::from(KERNEL.grid.offset) * sum) & 0xffff
    };
    offset(0) | (offset(2) << 16)
}

#[target_feature(enable = "avx2,fma")]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn scan(panels: &Panels<'_>, tiles: &Tiles<'_>, range: Range<usize>, hits: &mut Vec<Hit>) -> usize {
    let probes = tiles.cuts.len();
    for panel in range.clone() {
        for numbers in panels.numbers_ahead(panel) {
            _mm_prefetch::<_MM_HINT_T0>(numbers);
        }
        let mut first = 0;
        while first < probes {
            let width = tile_width(probes - first, KERNEL.grid.tile);
            // SAFETY: the caller's promises are passed on; `first + width` stays within the probes.
            unsafe {
                match width {
                    6 => scan_tile::<6>(panels, tiles, (panel, first), hits),
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
#[target_feature(enable = "avx2,fma")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
#[expect(clippy::cast_ptr_alignment, reason = "loaded from wherever it is")]
unsafe fn scan_tile<const W: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    (panel, first): (usize, usize),
    hits: &mut Vec<Hit>,
) {
    // SAFETY: panels hold `groups * 64` bytes and 16 values a row array; tiles hold `W` words a group and a segment, and a value a probe.
    unsafe {
        let sums = products::<W>(panels, tiles, panel, first);
        let row = panel * PANEL;
        let biases = panels.biases.as_ptr().add(row);
        let biases = [_mm256_loadu_ps(biases), _mm256_loadu_ps(biases.add(8))];
        let measures = panels.measures.as_ptr().add(row).cast::<__m256i>();
        let measures = [_mm256_loadu_si256(measures), _mm256_loadu_si256(measures.add(1))];
        let scale_bits = _mm256_set1_epi32(Measures::SCALE.cast_signed());
        // Written out: what `map` is made of is compiled without these instructions, and is not always inlined.
        let scales = [
            _mm256_castsi256_ps(_mm256_and_si256(measures[0], scale_bits)),
            _mm256_castsi256_ps(_mm256_and_si256(measures[1], scale_bits)),
        ];
        let errors = [
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(measures[0])),
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(measures[1])),
        ];
        for (place, sums) in sums.iter().enumerate() {
            let probe = first + place;
            let scale = _mm256_set1_ps(*tiles.scales.get_unchecked(probe));
            let norm = _mm256_set1_ps(*tiles.norms.get_unchecked(probe));
            let cut = _mm256_set1_ps(*tiles.cuts.get_unchecked(probe));
            let upper: [__m256; 2] = std::array::from_fn(|half| {
                let rest = _mm256_fmadd_ps(errors[half], norm, biases[half]);
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[half]), _mm256_mul_ps(scales[half], scale), rest)
            });
            let reached = upper.map(|upper| _mm256_cmp_ps::<_CMP_GE_OQ>(upper, cut));
            let [low, high] = reached.map(|reached| _mm256_movemask_ps(reached).cast_unsigned());
            let reached = low | (high << 8);
            let hit = hits.as_mut_ptr().add(hits.len());
            let uppers = (&raw mut (*hit).upper).cast::<f32>();
            _mm256_storeu_ps(uppers, upper[0]);
            _mm256_storeu_ps(uppers.add(8), upper[1]);
            ((*hit).panel, (*hit).probe, (*hit).reached) = (panel as u32, probe as u32, reached);
            keep_if(reached, hits);
        }
    }
}

/// The products of one panel's rows with `W` probes, rows in 32-bit lanes.
#[target_feature(enable = "avx2,fma")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
unsafe fn products<const W: usize>(
    panels: &Panels<'_>,
    tiles: &Tiles<'_>,
    panel: usize,
    first: usize,
) -> [[__m256i; 2]; W] {
    // SAFETY: as in `scan_tile`.
    unsafe {
        let groups = panels.groups;
        let rows = panels.codes.as_ptr().add(panel * groups * PANEL_GROUP_BYTES);
        let probes = tiles.codes.as_ptr().add(first * groups);
        let mut starts = tiles.starts.as_ptr().add(first * groups.div_ceil(SEGMENT));
        let mut wide = [[_mm256_setzero_si256(); 2]; W];
        let mut group = 0;
        while group < groups {
            let mut sums: [[__m256i; 2]; W] =
                std::array::from_fn(|probe| [_mm256_set1_epi32(*starts.add(probe)); 2]);
            starts = starts.add(W);
            let (codes, words) = (rows.add(group * PANEL_GROUP_BYTES), probes.add(group * W));
            if group + SEGMENT <= groups {
                // Of known length, so that the compiler unrolls it.
                for step in 0..SEGMENT {
                    add_group::<W>(
                        &mut sums,
                        codes.add(step * PANEL_GROUP_BYTES),
                        words.add(step * W),
                        first,
                    );
                }
            } else {
                for step in 0..groups - group {
                    add_group::<W>(
                        &mut sums,
                        codes.add(step * PANEL_GROUP_BYTES),
                        words.add(step * W),
                        first,
                    );
                }
            }
            group += SEGMENT;
            let ones = _mm256_set1_epi16(1);
            for (wide, sums) in wide.iter_mut().zip(sums) {
                wide[0] = _mm256_add_epi32(wide[0], _mm256_madd_epi16(sums[0], ones));
                wide[1] = _mm256_add_epi32(wide[1], _mm256_madd_epi16(sums[1], ones));
            }
        }
        wide
    }
}

/// Adds the products of one group.
#[target_feature(enable = "avx2,fma")]
#[inline]
#[expect(unsafe_code, reason = "loads from pointers into slices whose sizes the caller asserted")]
#[expect(clippy::cast_ptr_alignment, reason = "panels begin on 64-byte boundaries")]
unsafe fn add_group<const W: usize>(
    sums: &mut [[__m256i; 2]; W],
    codes: *const u8,
    words: *const i32,
    first: usize,
) {
    // SAFETY: `codes` points to the group's 64 bytes and `words` to its `W` words; a prefetch may name any address.
    unsafe {
        if first == 0 {
            // The first tile fetches for all.
            _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(FETCH_AHEAD).cast());
        }
        let row = codes.cast::<__m256i>();
        let halves = [_mm256_load_si256(row), _mm256_load_si256(row.add(1))];
        for (probe, sums) in sums.iter_mut().enumerate() {
            let word = _mm256_set1_epi32(*words.add(probe));
            sums[0] = _mm256_add_epi16(sums[0], _mm256_maddubs_epi16(halves[0], word));
            sums[1] = _mm256_add_epi16(sums[1], _mm256_maddubs_epi16(halves[1], word));
        }
    }
}

/// Twelve independent multiplications and additions a round.
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "instructions that the compiler must neither move nor drop")]
unsafe fn peak(rounds: u64) {
    for _ in 0..rounds {
        // SAFETY: only registers named as overwritten are written, and no memory.
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5",
                "vpmaddubsw ymm12, ymm14, ymm15",
                "vpaddw ymm\\i, ymm\\i, ymm12",
                "vpmaddubsw ymm13, ymm14, ymm15",
                "vpaddw ymm\\i, ymm\\i, ymm13",
                ".endr",
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                out("ymm12") _, out("ymm13") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

//! Blocks of rows against tiles of probes.

use rayon::prelude::*;

use super::select::{Margins, Selector};
use crate::backend::{Candidates, ScreenJob};
use crate::domain::Matrix;

/// Rows of a block and probes of a tile: their scores, 256 KiB, stay in a core's cache between being computed and chosen from.
const BLOCK_ROWS: usize = 256;
const TILE_PROBES: usize = 256;

/// One selector a probe.
type Selectors = Vec<Selector>;

/// Scans all rows; one list of selectors for each part of the rows.
pub(super) fn scan(rows: &Matrix, job: &ScreenJob<'_>, bound: f32) -> Vec<Selectors> {
    // Twice the bound by the selector's proof, and the roundings of the comparison itself.
    let slack = 2.0 * bound + 5e-7;
    let parts = rayon::current_num_threads();
    let part_rows = rows.rows().div_ceil(parts).next_multiple_of(BLOCK_ROWS).max(BLOCK_ROWS);
    (0..rows.rows().div_ceil(part_rows).max(1))
        .into_par_iter()
        .map(|part| {
            let first = part * part_rows;
            let count = part_rows.min(rows.rows() - first);
            let mut selectors: Selectors =
                job.asks.iter().map(|ask| Selector::new(ask.k, Margins { bound, slack })).collect();
            let mut scores = vec![0.0_f32; BLOCK_ROWS * TILE_PROBES.min(job.probes.rows())];
            for (tile, selectors) in selectors.chunks_mut(TILE_PROBES).enumerate() {
                let tile = Tile { first_probe: tile * TILE_PROBES, selectors };
                scan_part(rows, first..first + count, job, tile, &mut scores);
            }
            selectors
        })
        .collect()
}

struct Tile<'a> {
    first_probe: usize,
    selectors: &'a mut [Selector],
}

fn scan_part(
    rows: &Matrix,
    part: std::ops::Range<usize>,
    job: &ScreenJob<'_>,
    tile: Tile<'_>,
    scores: &mut [f32],
) {
    for first in part.clone().step_by(BLOCK_ROWS) {
        let count = BLOCK_ROWS.min(part.end - first);
        let probes = tile.selectors.len();
        let scores = &mut scores[..probes * count];
        dot_products(
            Block { matrix: job.probes, first: tile.first_probe, count: probes },
            Block { matrix: rows, first, count },
            scores,
        );
        for ((probe, selector), scores) in
            tile.selectors.iter_mut().enumerate().zip(scores.chunks_exact(count))
        {
            let skip = job.asks[tile.first_probe + probe].skip;
            selector.take(first as u32, scores, |row| skip.contains(row));
        }
    }
}

/// Some consecutive rows of a matrix.
struct Block<'a> {
    matrix: &'a Matrix,
    first: usize,
    count: usize,
}

/// `scores[p, r]` becomes the dot product of row `p` of `probes` and row `r` of `rows`.
#[expect(unsafe_code, reason = "the matrix crate takes pointers")]
fn dot_products(probes: Block<'_>, rows: Block<'_>, scores: &mut [f32]) {
    let dim = probes.matrix.dim();
    assert_eq!(dim, rows.matrix.dim(), "probes and rows have one dimension");
    assert_eq!(scores.len(), probes.count * rows.count);
    let (probe_stride, row_stride) = (probes.matrix.stride() as isize, rows.matrix.stride() as isize);
    let lhs = probes.matrix.block(probes.first, probes.count);
    let rhs = rows.matrix.block(rows.first, rows.count);
    // SAFETY: `lhs` holds `probes.count` rows of `probe_stride >= dim` values, `rhs` `rows.count` rows of `row_stride >= dim`, and
    // `scores` `probes.count * rows.count` values (asserted), so every element that the strides reach lies inside its slice;
    // `scores` is borrowed mutably and overlaps neither.
    unsafe {
        gemm::gemm(
            probes.count,
            rows.count,
            dim,
            scores.as_mut_ptr(),
            1,
            rows.count as isize,
            false,
            lhs.as_ptr(),
            1,
            probe_stride,
            rhs.as_ptr(),
            row_stride,
            1,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The candidates of each probe over all parts.
pub(super) fn merge(parts: Vec<Selectors>, into: &mut [Candidates]) {
    let mut parts = parts.into_iter();
    let Some(mut merged) = parts.next() else { return };
    for part in parts {
        for (selector, other) in merged.iter_mut().zip(part) {
            selector.absorb(other);
        }
    }
    merged.into_par_iter().zip(into).for_each(|(selector, found)| selector.finish(found));
}

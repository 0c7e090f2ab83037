//! The screen in `f32`: blocks of rows against tiles of probes through a matrix crate.
//!
//! Slower than bytes, but its error is a thousand times smaller: it answers where bytes cannot tell rows apart.

use super::select::{Kept, Selector};
use super::sweep::{Lane, Sweep};
use crate::backend::RowSet;
use crate::domain::Matrix;

/// What each probe leaves out.
type SkipOf<'a> = dyn Fn(usize) -> &'a RowSet + Sync + 'a;

/// Rows of a block and probes of a tile: their scores, 256 KiB, stay in a core's cache between being computed and chosen from.
const BLOCK_ROWS: usize = 256;
const TILE_PROBES: usize = 256;

/// Rows that a thread takes at a time.
const CHUNK_ROWS: usize = 16 * BLOCK_ROWS;

/// Scores tested at once before any is looked at by itself.
const STRIP: usize = 16;

/// Offers the rows that may be among the first k of each probe to the probe's selectors; `skip_of` says what each leaves out.
pub(super) fn screen(rows: &Matrix, probes: &Matrix, skip_of: &SkipOf<'_>, sweep: &mut Sweep) {
    let bound = error_bound(rows.dim());
    sweep.run(rows.rows() * probes.rows() * rows.dim(), 1, |_, lane, shared| {
        lane.scores.resize(BLOCK_ROWS * TILE_PROBES.min(probes.rows()), 0.0);
        while let Some(chunk) = shared.take(0, CHUNK_ROWS, rows.rows()) {
            for (selector, floor) in lane.selectors.iter_mut().zip(&shared.floors) {
                selector.raise(floor.get());
            }
            for first in chunk.clone().step_by(BLOCK_ROWS) {
                let block = Block { matrix: rows, first, count: BLOCK_ROWS.min(chunk.end - first) };
                scan_block(block, probes, skip_of, bound, lane);
            }
            for (selector, floor) in lane.selectors.iter().zip(&shared.floors) {
                floor.raise(selector.floor());
            }
        }
    });
}

fn scan_block(rows: Block<'_>, probes: &Matrix, skip_of: &SkipOf<'_>, bound: f32, lane: &mut Lane) {
    for first in (0..probes.rows()).step_by(TILE_PROBES) {
        let count = TILE_PROBES.min(probes.rows() - first);
        let scores = &mut lane.scores[..count * rows.count];
        dot_products(Block { matrix: probes, first, count }, rows, scores);
        let selectors = &mut lane.selectors[first..first + count];
        for ((probe, selector), scores) in (first..).zip(selectors).zip(scores.chunks_exact(rows.count)) {
            take(selector, skip_of(probe), bound, (rows.first as u32, scores));
        }
    }
}

/// Offers the scores of consecutive rows, less those that `skip` holds.
fn take(selector: &mut Selector, skip: &RowSet, bound: f32, (first_row, scores): (u32, &[f32])) {
    for (strip, scores) in scores.chunks(STRIP).enumerate() {
        let cut = selector.floor() - bound;
        if !any_reaches(scores, cut) {
            continue;
        }
        for (offset, &score) in scores.iter().enumerate() {
            let row = first_row + (strip * STRIP + offset) as u32;
            if score >= cut && !skip.contains(row) {
                selector.offer(Kept { row, lower: score - bound, upper: score + bound });
            }
        }
    }
}

/// Whether any score is at least `cut`; every one is looked at, so that the compiler may look at many at once.
#[expect(clippy::needless_bitwise_bool, reason = "a lazy `or` would be a branch a score")]
fn any_reaches(scores: &[f32], cut: f32) -> bool {
    scores.iter().fold(false, |any, score| any | (*score >= cut))
}

/// How far an `f32` dot product of two embeddings may lie from the real one, in whatever order it is summed, fused or not.
///
/// Each of at most `dim` roundings on a term's way errs by `u = 2^-24`, so the sum by `g = dim u / (1 - dim u)` of the sum of
/// absolute products (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1), which Cauchy and Schwarz bound by
/// the norms, each at most 1 + 1e-5. Products below the normal range add at most `dim * 2^-126`, and adding the bound to a score or taking
/// it away another half unit in the last place.
pub(super) fn error_bound(dim: usize) -> f32 {
    let dim = dim as f64;
    let roundoff = dim * 2.0_f64.powi(-24);
    let bound = roundoff / (1.0 - roundoff) * (1.0 + 1e-5_f64).powi(2) + dim * 2.0_f64.powi(-126);
    (bound as f32).next_up() + 2.5e-7
}

/// Some consecutive rows of a matrix.
#[derive(Clone, Copy)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_with_the_dimension_and_covers_half_an_ulp() {
        assert!(error_bound(1) >= 2.0_f32.powi(-24));
        assert!(error_bound(128) > 7.6e-6 && error_bound(128) < 8.0e-6);
        assert!(error_bound(4096) < 2.5e-4);
    }
}

//! The screen in `f32`: blocks of rows against tiles of probes through a matrix crate.
//!
//! Slower than bytes, but its error is a thousand times smaller: it answers where bytes cannot tell rows apart.

use std::ops::Range;

use super::multiply::{View, error_of_product, multiply};
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
                let block = first..chunk.end.min(first + BLOCK_ROWS);
                scan_block((rows, block), probes, skip_of, bound, lane);
            }
            for (selector, floor) in lane.selectors.iter().zip(&shared.floors) {
                floor.raise(selector.floor());
            }
        }
    });
}

fn scan_block(
    (rows, block): (&Matrix, Range<usize>),
    probes: &Matrix,
    skip_of: &SkipOf<'_>,
    bound: f32,
    lane: &mut Lane,
) {
    for first in (0..probes.rows()).step_by(TILE_PROBES) {
        let count = TILE_PROBES.min(probes.rows() - first);
        let scores = &mut lane.scores[..count * block.len()];
        let rows = View::of(rows, block.start, block.len());
        multiply(View::of(probes, first, count), rows.transposed(), scores);
        let selectors = &mut lane.selectors[first..first + count];
        for ((probe, selector), scores) in (first..).zip(selectors).zip(scores.chunks_exact(block.len())) {
            take(selector, skip_of(probe), bound, (block.start as u32, scores));
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

/// How far an `f32` dot product of two embeddings, whose norms are at most 1 + 1e-5, may lie from the real one; adding the bound to a score
/// or taking it away adds another half unit in the last place.
pub(super) fn error_bound(dim: usize) -> f32 {
    (error_of_product(dim, (1.0 + 1e-5_f64).powi(2)) as f32).next_up() + 2.5e-7
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

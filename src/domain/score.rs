//! The canonical score and the total order: what "exact" means, for every backend and machine.
//!
//! The product of two `f32` is exact in `f64` (24 + 24 bits of 53), so a fused multiply-add gives the same bits as
//! a product and a sum; only the order of summation matters, and it is fixed here.

use std::cmp::Ordering;

const LANES: usize = 8;

/// Cosine similarity of two embeddings of equal length: the same bits on every machine.
///
/// Products in `f64`, summed in 8 lanes by component modulo 8, the lanes pairwise, the sum rounded once to `f32`.
/// Never NaN for finite input, and never negative zero.
pub fn canonical_score(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lanes = [0.0_f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] += f64::from(x[lane]) * f64::from(y[lane]);
        }
    }
    for (lane, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += f64::from(*x) * f64::from(*y);
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    let sum = ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7));
    // A tiny negative sum rounds to -0.0; adding zero makes equal scores equal bits.
    sum as f32 + 0.0
}

/// The total order of answers: canonical score descending, then prototype index ascending.
pub fn by_rank(a: (f32, u64), b: (f32, u64)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_eight_lanes_then_pairwise() {
        // 2^60 is lost or kept depending on who is added to whom first: only the stated order gives 3.
        let big = 2.0_f32.powi(60);
        let a = [big, 1.0, -big, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 3.0];
        let b = [1.0; 13];
        // lanes: big, 2, -big, 2, 3, 0, 0, 0 -> (big + 2) + (-big + 2) = 0, + 3
        assert_eq!(canonical_score(&a, &b).to_bits(), 3.0_f32.to_bits());
    }

    #[test]
    fn a_score_is_never_negative_zero() {
        let tiny = f32::from_bits(1);
        assert_eq!(canonical_score(&[tiny], &[-tiny]).to_bits(), 0.0_f32.to_bits());
    }

    #[test]
    fn equal_scores_rank_by_index() {
        let mut answers = vec![(0.5, 7), (0.9, 9), (0.5, 2)];
        answers.sort_by(|a, b| by_rank(*a, *b));
        assert_eq!(answers, [(0.9, 9), (0.5, 2), (0.5, 7)]);
    }
}

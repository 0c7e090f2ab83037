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
    dispatch(a, b)
}

/// A probe made ready for many canonical scores: its components are widened once instead of once a row, which halves the work.
#[derive(Clone, Debug, Default)]
pub struct Scorer(Vec<f64>);

impl Scorer {
    /// For this probe, in the memory that was another's.
    pub fn take(&mut self, probe: &[f32]) {
        self.0.clear();
        self.0.extend(probe.iter().copied().map(f64::from));
    }

    /// [`canonical_score`] of the probe and a row of its length.
    pub fn score(&self, row: &[f32]) -> f32 {
        dispatch(&self.0, row)
    }
}

/// One body, compiled for several processors: the operations and their order are the same, so are the bits.
fn dispatch<A: Copy + Into<f64>>(a: &[A], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        #[expect(unsafe_code, reason = "a function for some processors only")]
        // SAFETY: this processor has both, as was just seen.
        return unsafe { score_avx2(a, b) };
    }
    score(a, b, |x, y, sum| sum + x * y)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn score_avx2<A: Copy + Into<f64>>(a: &[A], b: &[f32]) -> f32 {
    score(a, b, f64::mul_add)
}

/// `multiply_add(x, y, sum)` is `x * y + sum`, rounded once or, since the product is exact, likewise twice.
#[expect(clippy::inline_always, reason = "it must become part of functions compiled for other processors")]
#[inline(always)]
fn score<A: Copy + Into<f64>>(a: &[A], b: &[f32], multiply_add: impl Fn(f64, f64, f64) -> f64) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lanes = [0.0_f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] = multiply_add(x[lane].into(), f64::from(y[lane]), lanes[lane]);
        }
    }
    for (lane, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] = multiply_add((*x).into(), f64::from(*y), lanes[lane]);
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    let sum = ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7));
    // A tiny negative sum rounds to -0.0; adding zero makes equal scores equal bits.
    sum as f32 + 0.0
}

/// The `f64` that is written with the same digits, for what writes `f64` alone: 0.909, not 0.9089999794960022.
pub fn widened(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// The total order of answers: canonical score descending, then prototype index ascending. Indices are asked for only where
/// scores are equal, since they lie elsewhere.
pub fn by_rank(a: (f32, impl FnOnce() -> u64), b: (f32, impl FnOnce() -> u64)) -> Ordering {
    b.0.total_cmp(&a.0).then_with(|| a.1().cmp(&b.1()))
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
    fn every_way_to_compute_gives_the_same_bits() {
        let kinds: [fn(usize) -> f32; 4] = [
            |i| (i as f32 * 0.37).sin(),
            |i| (i as f32 * 0.11).cos() * 1e-3,
            // Denormals, and what makes them when multiplied.
            |i| f32::from_bits(i as u32 * 7919 % 0x007f_ffff) * if i % 3 == 0 { -1.0 } else { 1.0 },
            |i| (i as f32 + 1.5).recip() * 1e-20,
        ];
        for len in (1..70).chain([127, 128, 129, 511, 512, 515, 4096]) {
            for (one, other) in [(0, 1), (1, 1), (0, 2), (2, 2), (2, 3), (3, 3)] {
                let (a, b): (Vec<f32>, Vec<f32>) =
                    (0..len).map(|i| (kinds[one](i + 3), kinds[other](i))).unzip();
                let plain = score(&a, &b, |x, y, sum| sum + x * y);
                let fused = score(&a, &b, f64::mul_add);
                assert_eq!(plain.to_bits(), fused.to_bits(), "{len} of kinds {one} and {other}");
                assert_eq!(
                    plain.to_bits(),
                    canonical_score(&a, &b).to_bits(),
                    "{len} of kinds {one} and {other}"
                );
            }
        }
    }

    #[test]
    fn a_score_is_never_negative_zero() {
        let tiny = f32::from_bits(1);
        assert_eq!(canonical_score(&[tiny], &[-tiny]).to_bits(), 0.0_f32.to_bits());
    }

    #[test]
    fn what_is_widened_keeps_its_digits() {
        for value in [0.909, -0.3, 1.0, 0.0, 3.4e-7, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY] {
            assert_eq!(widened(value).to_string(), value.to_string());
        }
        assert!(widened(f32::NAN).is_nan());
    }

    #[test]
    fn equal_scores_rank_by_index() {
        let mut answers = vec![(0.5, 7), (0.9, 9), (0.5, 2)];
        answers.sort_by(|a, b| by_rank((a.0, || a.1), (b.0, || b.1)));
        assert_eq!(answers, [(0.9, 9), (0.5, 2), (0.5, 7)]);
    }
}

//! How far a score computed on a device may lie from the real dot product.

/// One operation's relative error: twice the unit roundoff of `f32`, so that devices that round toward zero, and a `mad` that
/// drops bits of the product (`-cl-fast-relaxed-math` allows it), stay within it.
const OPERATION_ERROR: f64 = 1.0 / (1 << 23) as f64;

/// More than the product of two embeddings' norms, each at most 1 + 1e-5, and than the roundings in computing the bound.
const NORMS: f64 = 1.0001;

/// A bound on |raw - real| for dot products over rows of `stride` values, in whatever order they are summed.
///
/// Let n be `stride`, u be [`OPERATION_ERROR`], q a probe and x a row.
///
/// Each term `q[i] * x[i]` meets at most one rounding of its product and, whatever the order of summation (a chain is the
/// longest), n - 1 of sums, and each of these counts twice here, for a `mad` whose product and sum err by themselves: 2n
/// factors of the form (1 + d), |d| <= u. So (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1)
///
/// ```text
/// |raw - real| <= g * sum |q[i] x[i]| <= g * |q| |x|,   g = 2nu / (1 - 2nu)
/// ```
///
/// the last step by Cauchy and Schwarz. Devices may also flush subnormal numbers to zero: either factor, the product, and
/// the sum, each time an error of at most 2^-126 (the other factor is below 2 in magnitude, which the doubling covers): n * 2^-123 in all.
pub(in crate::backend::opencl) fn error_bound(stride: usize) -> f32 {
    let operations = 2.0 * stride as f64 * OPERATION_ERROR;
    let rounding = operations / (1.0 - operations) * NORMS;
    let flushing = stride as f64 * 2.0_f64.powi(-123);
    (rounding + flushing) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_small_and_grows_with_the_dimension() {
        let (small, usual, large) = (error_bound(16), error_bound(128), error_bound(4096));
        assert!(small < usual && usual < large);
        assert!((3.0e-5..3.2e-5).contains(&usual), "{usual}");
        assert!(large < 1.0e-3, "{large}");
    }
}

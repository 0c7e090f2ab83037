//! Exact confidence bounds of a rate: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
//! binomial" (Biometrika 26, 1934). Pure.
//!
//! The upper bound of `hits` among `trials` is the rate at which so few hits or fewer would be seen with a probability of one less
//! the confidence; the lower bound likewise. Both are quantiles of the beta distribution, found here by bisecting its distribution
//! function, which is a continued fraction (Lentz' method). It takes a number of steps that grows with the square root of the trials.
//! What stands before the fraction is reckoned by its distance from the peak (Loader, "Fast and accurate computation of binomial
//! probabilities", 2000), since differences of large logarithms of the gamma function would lose half their digits.

use std::f64::consts::TAU;

/// Of the bounds that a report gives.
pub const CONFIDENCE: f64 = 0.95;

/// Most terms of the continued fraction: enough for 10^12 trials.
const MAX_TERMS: u32 = 10_000_000;

/// The rate is surely no higher, with this confidence (one-sided); 1 where nothing was tried.
pub fn upper_bound(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits >= trials {
        return 1.0;
    }
    if hits == 0 {
        // (1 - p)^n = 1 - confidence, without losing digits of a small p.
        return -((1.0 - confidence).ln() / trials as f64).exp_m1();
    }
    let (a, b) = (hits as f64 + 1.0, (trials - hits) as f64);
    beta_quantile(a, b, confidence)
}

/// The rate is surely no lower, with this confidence (one-sided); 0 where nothing was tried.
pub fn lower_bound(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits == 0 {
        return 0.0;
    }
    if hits >= trials {
        return ((1.0 - confidence).ln() / trials as f64).exp();
    }
    let (a, b) = (hits as f64, (trials - hits) as f64 + 1.0);
    beta_quantile(a, b, 1.0 - confidence)
}

/// The interval that holds the rate with this confidence: as much of the rest lies below as above.
pub fn interval(hits: u64, trials: u64, confidence: f64) -> (f64, f64) {
    let each = f64::midpoint(1.0, confidence);
    (lower_bound(hits, trials, each), upper_bound(hits, trials, each))
}

/// The x at which the distribution function of Beta(a, b) reaches `share`.
fn beta_quantile(a: f64, b: f64, share: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    loop {
        let middle = f64::midpoint(low, high);
        // No number lies between any more, or none that matters.
        if middle <= low || middle >= high || high - low <= 1e-15 * high {
            return middle;
        }
        if beta_share(a, b, middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// The distribution function of Beta(a, b) at x: the regularised incomplete beta function.
fn beta_share(a: f64, b: f64, x: f64) -> f64 {
    let n = a + b;
    let apart = stirling_error(n)
        - stirling_error(a)
        - stirling_error(b)
        - deviance(a, n * x)
        - deviance(b, n * (1.0 - x));
    let front = (a * b / (TAU * n)).sqrt() * apart.exp();
    // The fraction converges fast on this side of the mean, and the other side is its mirror image.
    if x < (a + 1.0) / (n + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, 1.0 - x) / b
    }
}

/// What Stirling's formula leaves out of the logarithm of the gamma function.
fn stirling_error(z: f64) -> f64 {
    if z < 16.0 {
        return libm::lgamma(z) - (z - 0.5) * z.ln() + z - 0.5 * TAU.ln();
    }
    let square = 1.0 / (z * z);
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - square / 1680.0) * square) * square) / z
}

/// k ln(k / m) + m - k, also where k is near to m.
fn deviance(k: f64, m: f64) -> f64 {
    let ratio = (k - m) / (k + m);
    if ratio.abs() >= 0.1 {
        return k * (k / m).ln() + m - k;
    }
    let mut sum = (k - m) * ratio;
    let mut term = 2.0 * k * ratio;
    for odd in (3..).step_by(2) {
        term *= ratio * ratio;
        let next = sum + term / f64::from(odd);
        if next.to_bits() == sum.to_bits() {
            break;
        }
        sum = next;
    }
    sum
}

/// The continued fraction of the incomplete beta function (Abramowitz and Stegun, 26.5.8).
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let apart = |value: f64| if value.abs() < TINY { TINY } else { value };
    // Lentz: the value is a product of quotients of what the numerators and denominators come to.
    let mut below = 1.0 / apart(1.0 - (a + b) * x / (a + 1.0));
    let (mut above, mut value) = (1.0, below);
    for term in 1..=MAX_TERMS {
        let i = f64::from(term);
        let even = i * (b - i) * x / ((a + 2.0 * i - 1.0) * (a + 2.0 * i));
        let odd = -(a + i) * (a + b + i) * x / ((a + 2.0 * i) * (a + 2.0 * i + 1.0));
        for part in [even, odd] {
            below = 1.0 / apart(1.0 + part * below);
            above = apart(1.0 + part / above);
            value *= below * above;
        }
        if (below * above - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(got: f64, expected: f64) -> bool {
        (got - expected).abs() <= 1e-9 * expected.abs().max(1e-300)
    }

    #[test]
    fn what_can_be_reckoned_by_hand() {
        // 1 - 0.05^(1/n).
        assert!(near(upper_bound(0, 1, 0.95), 0.95));
        assert!(near(upper_bound(0, 100_000, 0.95), 1.0 - 0.05_f64.powf(1e-5)));
        // Of two trials one hit: (1 - p)^2 + 2 p (1 - p) = 1 - p^2 = 0.05.
        assert!(near(upper_bound(1, 2, 0.95), 0.95_f64.sqrt()));
        assert!(near(lower_bound(1, 2, 0.95), 1.0 - 0.95_f64.sqrt()));
        assert_eq!(interval(0, 0, 0.95), (0.0, 1.0));
        assert_eq!(interval(5, 5, 0.95).1.to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn very_many_trials_are_bounded_too() {
        // The Poisson limits of 3 events at 95 %: 0.8177 and 7.7537 (one-sided).
        let n = 1_000_000_000_u64;
        assert!((upper_bound(3, n, 0.95) * n as f64 - 7.753_656_5).abs() < 1e-4);
        assert!((lower_bound(3, n, 0.95) * n as f64 - 0.817_691_4).abs() < 1e-4);
        let (low, high) = interval(n / 2, n, 0.95);
        assert!(low < 0.5 && high > 0.5 && high - low < 7e-5, "{low} {high}");
    }

    proptest! {
        #[test]
        fn a_bound_is_where_the_binomial_says(hits in 0_u64..12, more in 1_u64..40, confidence in 0.5_f64..0.999) {
            let trials = hits + more;
            let upper = upper_bound(hits, trials, confidence);
            // The probability of so few hits or fewer, summed as the definition has it.
            let mut sum = 0.0;
            let mut ways = 1.0;
            for i in 0..=hits {
                sum += ways * upper.powi(i as i32) * (1.0 - upper).powi((trials - i) as i32);
                ways *= (trials - i) as f64 / (i + 1) as f64;
            }
            prop_assert!((sum - (1.0 - confidence)).abs() < 1e-9, "{} at {}", sum, upper);
            // Hits and misses are the same thing seen from both sides.
            prop_assert!((lower_bound(trials - hits, trials, confidence) - (1.0 - upper)).abs() < 1e-9);
            prop_assert!(upper >= hits as f64 / trials as f64);
        }
    }
}

//! Quantiles of positive numbers in little memory: a histogram whose buckets grow by 2 %. Pure.
//!
//! Invariant: a quantile is never less than the real one, and at most 2 % more (beyond the ends, the end).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Each bucket ends so many times as high as the one before.
const GROWTH: f64 = 1.02;

/// Where the first bucket ends; what is smaller counts as 0.
const LEAST: f64 = 1e-12;

/// The number of the last bucket: 10^12 and more.
const LAST: u16 = 2800;

/// How often each size was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sketch {
    /// Bucket 0 holds what counts as 0; bucket `i` ends at `LEAST * GROWTH^i`.
    buckets: BTreeMap<u16, u64>,
    count: u64,
}

impl Sketch {
    /// Sees a number; what is none counts as the largest.
    pub fn record(&mut self, value: f64) {
        #[expect(clippy::cast_sign_loss, reason = "its logarithm over the least's is positive")]
        let place = if value.is_nan() {
            LAST
        } else if value <= LEAST {
            0
        } else {
            ((value / LEAST).ln() / GROWTH.ln()).ceil().min(f64::from(LAST)) as u16
        };
        *self.buckets.entry(place).or_default() += 1;
        self.count += 1;
    }

    /// How many numbers were seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A number that this share of those seen do not exceed; `None` where none was.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (&place, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return Some(if place == 0 { 0.0 } else { LEAST * GROWTH.powi(i32::from(place)) });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_seen_has_no_quantile_and_zero_is_zero() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.quantile(0.5), None);
        sketch.record(0.0);
        assert_eq!(sketch.quantile(0.99), Some(0.0));
        sketch.record(f64::NAN);
        assert!(sketch.quantile(1.0).unwrap() > 1e11);
    }

    proptest! {
        #[test]
        fn quantiles_are_never_too_low_and_hardly_too_high(
            values in prop::collection::vec(1e-9_f64..1e9, 1..200),
            share in 0.01_f64..1.0,
        ) {
            let mut sketch = Sketch::default();
            for value in &values {
                sketch.record(*value);
            }
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            let real = *sorted.iter().enumerate().find(|(at, _)| (at + 1) as f64 >= share * sorted.len() as f64).unwrap().1;
            let told = sketch.quantile(share).unwrap();
            prop_assert!(told >= real * (1.0 - 1e-9) && told <= real * 1.021, "{} of {}", told, real);
            let restored: Sketch = serde_json::from_str(&serde_json::to_string(&sketch).unwrap()).unwrap();
            prop_assert_eq!(restored, sketch);
        }
    }
}

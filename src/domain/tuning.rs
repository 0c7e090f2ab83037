//! The numbers a caller may turn: threshold, margin, k. A value of these types is within its range.

use serde::Serialize;
use thiserror::Error;

/// A number outside its range.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("expected {expected}, got {got}")]
pub struct OutOfRange {
    /// The range in words.
    pub expected: String,
    /// What came.
    pub got: String,
}

fn within(value: f32, low: f32, high: f32) -> Result<f32, OutOfRange> {
    // NaN lies in no range.
    if (low..=high).contains(&value) {
        // `+ 0.0` turns -0.0 into 0.0.
        Ok(value + 0.0)
    } else {
        Err(OutOfRange { expected: format!("a number from {low} to {high}"), got: value.to_string() })
    }
}

/// Least score of the best identity, inclusive: -1 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Threshold(f32);

impl Threshold {
    /// A threshold, if `value` lies in -1 to 1.
    pub fn parse(value: f32) -> Result<Self, OutOfRange> {
        within(value, -1.0, 1.0).map(Self)
    }

    /// The score.
    pub fn get(self) -> f32 {
        self.0
    }
}

/// Least lead of the best identity over any other, inclusive: 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Margin(f32);

impl Margin {
    /// A margin, if `value` lies in 0 to 2.
    pub fn parse(value: f32) -> Result<Self, OutOfRange> {
        within(value, 0.0, 2.0).map(Self)
    }

    /// The difference of scores.
    pub fn get(self) -> f32 {
        self.0
    }
}

/// How many neighbors are asked for: at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopK(usize);

impl TopK {
    /// A k, if `value` lies in 1 to `limit`.
    pub fn parse(value: usize, limit: usize) -> Result<Self, OutOfRange> {
        if (1..=limit).contains(&value) {
            Ok(Self(value))
        } else {
            Err(OutOfRange { expected: format!("1 to {limit}"), got: value.to_string() })
        }
    }

    /// The number.
    pub fn get(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_inclusive_and_nan_lies_in_none() {
        assert!(Threshold::parse(1.0).is_ok() && Threshold::parse(-1.0).is_ok());
        assert_eq!(Threshold::parse(1.5).unwrap_err().to_string(), "expected a number from -1 to 1, got 1.5");
        assert!(Threshold::parse(f32::NAN).is_err());
        assert!(Margin::parse(2.0).is_ok() && Margin::parse(-0.1).is_err());
        assert_eq!(Margin::parse(-0.0).unwrap().get().to_bits(), 0);
        assert_eq!(TopK::parse(0, 10).unwrap_err().to_string(), "expected 1 to 10, got 0");
        assert!(TopK::parse(11, 10).is_err());
    }
}

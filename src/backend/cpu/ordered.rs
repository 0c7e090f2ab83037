//! Numbers as integers of the same order, for heaps and atomics, which know no order of `f32`.

/// An `f32` that is not NaN, ordered as numbers are, -0.0 before 0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ordered(i32);

impl Ordered {
    /// The integer.
    pub(super) fn to_bits(self) -> i32 {
        self.0
    }

    /// Of such an integer.
    pub(super) fn from_bits(bits: i32) -> Self {
        Self(bits)
    }
}

/// Flips the magnitude's bits of negative numbers, so that larger magnitudes come first; its own inverse.
fn flipped(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

impl From<f32> for Ordered {
    fn from(value: f32) -> Self {
        Self(flipped(value.to_bits().cast_signed()))
    }
}

impl From<Ordered> for f32 {
    fn from(ordered: Ordered) -> Self {
        Self::from_bits(flipped(ordered.0).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_numbers_and_nothing_is_lost() {
        let rising = [
            f32::NEG_INFINITY,
            -1.5,
            -1.0,
            -f32::from_bits(1),
            -0.0,
            0.0,
            f32::from_bits(1),
            0.25,
            1.0,
            f32::INFINITY,
        ];
        assert!(rising.windows(2).all(|pair| Ordered::from(pair[0]) < Ordered::from(pair[1])));
        for value in rising {
            assert_eq!(f32::from(Ordered::from(value)).to_bits(), value.to_bits());
        }
    }
}

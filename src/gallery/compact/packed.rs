//! Whole numbers in as many bits as the greatest of them needs.
//!
//! Value `i` lies in bits `i * bits` and up of a little-endian row of words, and may cross from one word into the next. One spare word
//! follows the last, so that every value is read as part of two words, without a branch.

/// Numbers that never change, each in the same count of bits.
#[derive(Debug)]
pub(in crate::gallery) struct Packed {
    words: Box<[u64]>,
    /// Bits a value, 1 at least.
    bits: usize,
    mask: u64,
    len: usize,
}

impl Packed {
    /// Packs `values`.
    ///
    /// # Panics
    /// If one of them is above `greatest`'s bits.
    pub(in crate::gallery) fn new(greatest: u64, values: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut packed = Self::zeros(greatest, values.len());
        for (place, value) in values.enumerate() {
            packed.fill(place, value);
        }
        packed
    }

    /// `len` zeros, to be filled with values up to `greatest`.
    pub(in crate::gallery) fn zeros(greatest: u64, len: usize) -> Self {
        let bits = u64::BITS - greatest.max(1).leading_zeros();
        let (bits, mask) = (bits as usize, u64::MAX >> (u64::BITS - bits));
        let words = vec![0_u64; (len * bits).div_ceil(64) + 1].into_boxed_slice();
        Self { words, bits, mask, len }
    }

    /// Puts `value` where a zero is.
    ///
    /// # Panics
    /// If it has more bits than the greatest value, or there is no such place.
    pub(in crate::gallery) fn fill(&mut self, place: usize, value: u64) {
        assert!(place < self.len, "expected a place below {}, got {place}", self.len);
        assert!(value <= self.mask, "expected at most {} bits, got {value}", self.bits);
        debug_assert_eq!(self.get(place), 0);
        let (word, shift) = (place * self.bits / 64, place * self.bits % 64);
        let shifted = u128::from(value) << shift;
        self.words[word] |= shifted as u64;
        self.words[word + 1] |= (shifted >> 64) as u64;
    }

    /// How many there are.
    pub(in crate::gallery) fn len(&self) -> usize {
        self.len
    }

    /// The value at `place`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(in crate::gallery) fn get(&self, place: usize) -> u64 {
        assert!(place < self.len, "expected a place below {}, got {place}", self.len);
        let (word, shift) = (place * self.bits / 64, place * self.bits % 64);
        let pair = u128::from(self.words[word]) | u128::from(self.words[word + 1]) << 64;
        (pair >> shift) as u64 & self.mask
    }

    /// How many values there are before the first for which `before` does not hold; it holds for none behind that one.
    pub(in crate::gallery) fn partition_point(&self, before: impl Fn(u64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes held.
    pub(in crate::gallery) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_take_as_many_bits_as_the_greatest() {
        let packed =
            Packed::new(5, [5, 0, 3, 1].into_iter().cycle().take(1000).collect::<Vec<_>>().into_iter());
        assert_eq!(packed.len(), 1000);
        // 3000 bits are 47 words, and the spare one.
        assert_eq!(packed.bytes(), 48 * 8);
        assert_eq!((0..4).map(|place| packed.get(996 + place)).collect::<Vec<_>>(), [5, 0, 3, 1]);
        let zeros = Packed::new(0, [0; 1000].into_iter());
        assert_eq!((zeros.get(999), zeros.bytes()), (0, 17 * 8));
    }

    #[test]
    fn a_sorted_column_is_searched() {
        let packed = Packed::new(900, (0..10_u32).map(|place| u64::from(place) * 100));
        for (least, place) in [(0, 0), (1, 1), (100, 1), (850, 9), (901, 10)] {
            assert_eq!(packed.partition_point(|value| value < least), place, "{least}");
        }
    }

    #[test]
    #[should_panic(expected = "expected a place below 3, got 3")]
    fn there_is_nothing_behind_the_last() {
        Packed::new(1, [1, 0, 1].into_iter()).get(3);
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out(
            values in prop::collection::vec(any::<u64>(), 0..200),
            bits in 1_u32..=64,
        ) {
            let values: Vec<u64> = values.into_iter().map(|value| value >> (64 - bits)).collect();
            let packed = Packed::new(values.iter().copied().max().unwrap_or(0), values.iter().copied());
            let back: Vec<u64> = (0..packed.len()).map(|place| packed.get(place)).collect();
            prop_assert_eq!(back, values);
        }
    }
}

//! Whole numbers in few bits each.
//!
//! Numbers of a gallery mostly rise evenly with their place: rows by their indices, texts by where they start. So of each block of them a line
//! is kept, and of each number how far above the line it is, in as many bits as the farthest of the block needs. What lies in no
//! order takes as many bits as its greatest does.
//!
//! Value `i` of a block lies in bits `i * bits` and up of a little-endian row of words, and may cross from one word into the next. One spare
//! word follows the last, so that every value is read as part of two words, without a branch.

/// Values of a block.
const BLOCK: usize = 1024;

/// Numbers that never change, each of a block in the same count of bits.
#[derive(Debug)]
pub(in crate::gallery) struct Packed {
    blocks: Box<[Block]>,
    words: Box<[u64]>,
    len: usize,
}

/// Where the values of a block are.
#[derive(Clone, Copy, Debug)]
struct Block {
    line: Line,
    first_word: u32,
    /// Bits a value, 1 at least.
    bits: u32,
}

/// What the values of a block are no less than: all numbers modulo 2^64.
#[derive(Clone, Copy, Debug)]
struct Line {
    base: u64,
    /// How much it rises from place to place, in units of 2^-32.
    step: u64,
}

impl Line {
    fn at(self, place: usize) -> u64 {
        self.base.wrapping_add(((place as u128 * u128::from(self.step)) >> 32) as u64)
    }

    /// The line of a block's values from which the farthest is least far, level or from the first to the last, and how far that is.
    fn below(values: &[u64]) -> (Self, u64) {
        let (least, most) =
            values.iter().fold((u64::MAX, 0), |(least, most), value| (least.min(*value), most.max(*value)));
        let level = (Self { base: least, step: 0 }, most.saturating_sub(least));
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return level };
        // Beyond this, distances from a line would not fit in 64 bits.
        if most >= 1 << 62 || last <= first {
            return level;
        }
        let Ok(step) = u64::try_from((u128::from(last - first) << 32) / (values.len() as u128 - 1)) else {
            return level;
        };
        let rising = Self { base: 0, step };
        let above = |place: usize| values[place].cast_signed() - rising.at(place).cast_signed();
        let (least, most) = (0..values.len())
            .map(above)
            .fold((i64::MAX, i64::MIN), |(least, most), above| (least.min(above), most.max(above)));
        let farthest = (most - least).cast_unsigned();
        if farthest < level.1 { (Self { base: least.cast_unsigned(), step }, farthest) } else { level }
    }
}

impl Packed {
    /// Packs `values`.
    ///
    /// # Panics
    /// If there are so many that they take 32 GiB.
    pub(in crate::gallery) fn new(values: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        let len = values.len();
        let (mut blocks, mut words) = (Vec::with_capacity(len.div_ceil(BLOCK)), 0);
        let (mut rest, mut block) = (values.clone(), Vec::with_capacity(BLOCK));
        while blocks.len() < len.div_ceil(BLOCK) {
            block.clear();
            block.extend(rest.by_ref().take(BLOCK));
            let (line, farthest) = Line::below(&block);
            let bits = u64::BITS - farthest.max(1).leading_zeros();
            assert!(u32::try_from(words).is_ok(), "expected at most 2^32 words, got {words}");
            blocks.push(Block { line, first_word: words as u32, bits });
            words += (block.len() * bits as usize).div_ceil(64);
        }
        let mut packed = Self { blocks: blocks.into(), words: vec![0; words + 1].into(), len };
        for (place, value) in values.enumerate() {
            let above = value.wrapping_sub(packed.blocks[place / BLOCK].line.at(place % BLOCK));
            let (word, shift) = packed.bits_of(place);
            let shifted = u128::from(above) << shift;
            packed.words[word] |= shifted as u64;
            packed.words[word + 1] |= (shifted >> 64) as u64;
        }
        packed
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
        let (word, shift) = self.bits_of(place);
        let pair = u128::from(self.words[word]) | u128::from(self.words[word + 1]) << 64;
        let Block { line, bits, .. } = self.blocks[place / BLOCK];
        line.at(place % BLOCK).wrapping_add((pair >> shift) as u64 & (u64::MAX >> (u64::BITS - bits)))
    }

    /// In which word the value at `place` begins, and at which of its bits.
    fn bits_of(&self, place: usize) -> (usize, usize) {
        let block = self.blocks[place / BLOCK];
        let bit = place % BLOCK * block.bits as usize;
        (block.first_word as usize + bit / 64, bit % 64)
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
        size_of_val(&*self.words) + size_of_val(&*self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of what is kept of the blocks of so many values.
    fn blocks(values: usize) -> usize {
        values.div_ceil(BLOCK) * 24
    }

    fn packed(values: &[u64]) -> Packed {
        Packed::new(values.iter().copied())
    }

    #[test]
    fn values_in_no_order_take_as_many_bits_as_the_greatest() {
        let packed = packed(&[5, 0, 3, 1].repeat(250));
        assert_eq!(packed.len(), 1000);
        // 3000 bits are 47 words, and the spare one.
        assert_eq!(packed.bytes(), 48 * 8 + blocks(1000));
        assert_eq!((0..4).map(|place| packed.get(996 + place)).collect::<Vec<_>>(), [5, 0, 3, 1]);
    }

    #[test]
    fn values_that_rise_evenly_take_a_bit() {
        let even: Vec<u64> = (0..5000).map(|place| 1_000_000_007 + 25 * place).collect();
        let by_fives: Vec<u64> = (0..5000).map(|place| place / 5).collect();
        for values in [vec![0; 5000], vec![u64::MAX; 5000], even, by_fives] {
            let packed = packed(&values);
            assert!((0..5000).all(|place| packed.get(place) == values[place]));
            // Each block begins a word.
            assert_eq!(packed.bytes(), (4 * 16 + 15 + 1) * 8 + blocks(5000));
        }
        // Steps of 20 to 28: as far from their line as chance takes them within a block, not as far as all of them rise.
        let mut sum = 0;
        let uneven = packed(
            &(0..100_000_u64)
                .map(|place| {
                    sum += 20 + place.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 9;
                    sum
                })
                .collect::<Vec<_>>(),
        );
        assert!(uneven.bytes() < 100_000 * 9 / 8, "{}", uneven.bytes());
    }

    #[test]
    fn a_sorted_column_is_searched() {
        let packed = packed(&(0..10).map(|place| place * 100).collect::<Vec<_>>());
        for (least, place) in [(0, 0), (1, 1), (100, 1), (850, 9), (901, 10)] {
            assert_eq!(packed.partition_point(|value| value < least), place, "{least}");
        }
    }

    #[test]
    #[should_panic(expected = "expected a place below 3, got 3")]
    fn there_is_nothing_behind_the_last() {
        packed(&[1, 0, 1]).get(3);
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out(
            values in prop::collection::vec(any::<u64>(), 0..3000),
            bits in 1_u32..=64,
            sorted in any::<bool>(),
        ) {
            let mut values: Vec<u64> = values.into_iter().map(|value| value >> (64 - bits)).collect();
            if sorted {
                values.sort_unstable();
            }
            let packed = packed(&values);
            let back: Vec<u64> = (0..packed.len()).map(|place| packed.get(place)).collect();
            prop_assert_eq!(back, values);
        }
    }
}

//! A column of texts: the text of a place, and the places of a text.
//!
//! Equal texts are kept once, numbered in the order of their bytes. The places stand sorted, by their texts and then by themselves, and those
//! of a text are found by binary search.

use std::ops::Range;

use super::front_coded::{FrontCoded, Text, shared};
use super::{Interner, Packed};

/// A text a place, in both directions.
#[derive(Debug)]
pub(in crate::gallery) struct Labels {
    texts: FrontCoded,
    /// The number of each place's text.
    numbers: Packed,
    /// Places by their texts.
    by_text: Packed,
}

impl Labels {
    /// A column of the texts that have these numbers in `interner`.
    pub(in crate::gallery) fn new(
        interner: Interner,
        numbers: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Self {
        let (texts, ranks) = in_order(interner);
        let numbers = numbers.map(|number| ranks[number as usize]);
        // Each text's count of places, then where its places begin, then where the next of them goes.
        let mut next = vec![0_u32; texts.len()];
        numbers.clone().for_each(|number| next[number as usize] += 1);
        let mut sum = 0;
        for count in &mut next {
            sum += std::mem::replace(count, sum);
        }
        let mut by_text = vec![0_u32; numbers.len()];
        for (place, number) in (0..).zip(numbers.clone()) {
            let to = &mut next[number as usize];
            by_text[*to as usize] = place;
            *to += 1;
        }
        let by_text = Packed::new(by_text.iter().map(|place| u64::from(*place)));
        Self { texts, numbers: Packed::new(numbers.map(u64::from)), by_text }
    }

    /// The text of a place.
    pub(in crate::gallery) fn get(&self, place: usize) -> Text<'_> {
        self.texts.get(self.numbers.get(place) as usize)
    }

    /// The places that carry `text`, ascending; none for the empty text.
    pub(in crate::gallery) fn places(&self, text: &str) -> impl Iterator<Item = usize> + use<'_> {
        self.places_within(text, 0..self.numbers.len())
    }

    /// Those of `within` that carry `text`.
    pub(in crate::gallery) fn places_within(
        &self,
        text: &str,
        within: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let number = self.texts.find(text).filter(|_| !text.is_empty());
        let range = number.map_or(0..0, |number| {
            self.first_from((number as u64, within.start))..self.first_from((number as u64, within.end))
        });
        range.map(|rank| self.by_text.get(rank) as usize)
    }

    /// How many stand before a text's number and a place in the order of both.
    fn first_from(&self, from: (u64, usize)) -> usize {
        self.by_text.partition_point(|held| (self.numbers.get(held as usize), held as usize) < from)
    }

    /// Bytes held.
    pub(in crate::gallery) fn bytes(&self) -> usize {
        self.texts.bytes() + self.numbers.bytes() + self.by_text.bytes()
    }
}

/// The texts in the order of their bytes, and for each number that one had where it has come to stand.
fn in_order(interner: Interner) -> (FrontCoded, Vec<u32>) {
    let (texts, starts) = interner.into_parts();
    let text = |number: u32| texts.get(starts[number as usize]);
    let order = sorted_by_text(starts.len() as u32, text);
    let mut ranks = vec![0; order.len()];
    for (rank, number) in (0..).zip(&order) {
        ranks[*number as usize] = rank;
    }
    (FrontCoded::new(order.into_iter().map(text)), ranks)
}

/// The numbers of distinct texts in the order of the texts.
///
/// Most comparisons are settled by the eight bytes behind what all texts begin with, which stand beside the numbers: looking texts up takes
/// longer than comparing them.
fn sorted_by_text<'a>(count: u32, text: impl Fn(u32) -> &'a str) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let first = text(0);
    let shared = (1..count).fold(first.len(), |sharing, number| shared(&first[..sharing], text(number)));
    let key = |number: u32| {
        let mut bytes = [0; 8];
        let rest = &text(number).as_bytes()[shared..];
        let taken = rest.len().min(bytes.len());
        bytes[..taken].copy_from_slice(&rest[..taken]);
        (u64::from_be_bytes(bytes), number)
    };
    let mut order: Vec<(u64, u32)> = (0..count).map(key).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| text(a.1).cmp(text(b.1))));
    order.into_iter().map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(texts: &[impl AsRef<str>]) -> Labels {
        let mut interner = Interner::with_capacity(texts.len());
        let numbers: Vec<u32> = texts.iter().map(|text| interner.intern(text.as_ref())).collect();
        Labels::new(interner, numbers.into_iter())
    }

    #[test]
    fn texts_are_found_both_ways() {
        let texts = ["b", "", "a", "ab", "b", "a", "", "b"];
        let labels = labels(&texts);
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(labels.get(place).read(), *text);
        }
        let places = |text| labels.places(text).collect::<Vec<_>>();
        assert_eq!((places("a"), places("ab"), places("b")), (vec![2, 5], vec![3], vec![0, 4, 7]));
        for nothing in ["", "0", "aa", "c"] {
            assert!(places(nothing).is_empty(), "{nothing:?}");
        }
        let within = |range| labels.places_within("b", range).collect::<Vec<_>>();
        assert_eq!((within(1..7), within(4..8), within(5..7)), (vec![4], vec![4, 7], vec![]));
    }

    #[test]
    fn texts_stand_in_the_order_of_their_bytes() {
        let texts =
            ["a/12345678", "a/123456789", "a/1", "a/1\0", "a/12345678\0", "a/", "a/张", "a/é", "a/123456780"];
        let mut sorted = texts;
        sorted.sort_unstable();
        let order = sorted_by_text(texts.len() as u32, |number| texts[number as usize]);
        assert_eq!(order.iter().map(|number| texts[*number as usize]).collect::<Vec<_>>(), sorted);
        assert_eq!(sorted_by_text(1, |_| "a"), [0]);
    }

    #[test]
    fn a_column_of_nothing_holds_nothing() {
        assert_eq!(labels(&[""; 0]).places("a").count(), 0);
        assert_eq!(labels(&["", ""]).places("").count(), 0);
    }

    #[test]
    fn a_text_that_many_places_share_is_kept_once() {
        let shared = labels(&vec!["the same long source.jpg"; 4096]);
        // A number in a bit and a place in another.
        assert!(shared.bytes() <= 4096 * 2 / 8 + 280, "{}", shared.bytes());
    }

    proptest! {
        #[test]
        fn places_are_those_that_carry_the_text(
            texts in prop::collection::vec("[ab\u{e9}]{0,3}", 0..99),
            text in "[ab\u{e9}]{1,3}",
            within in (0_usize..99, 0_usize..99),
        ) {
            let labels = labels(&texts);
            let within = within.0.min(texts.len())..within.1.min(texts.len());
            let expected: Vec<usize> = within.clone().filter(|place| texts[*place] == text).collect();
            prop_assert_eq!(labels.places_within(&text, within).collect::<Vec<_>>(), expected);
            let back: Vec<String> = (0..texts.len()).map(|place| labels.get(place).read()).collect();
            prop_assert_eq!(back, texts);
        }
    }
}

//! A column of texts: the text of a place, and the places of a text.
//!
//! Equal texts are kept once. The places that carry a text stand sorted, by text and then by place, and are found by binary search; places
//! without a text are not among them.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Interner, Packed, Texts};

/// A text a place, in both directions.
#[derive(Debug)]
pub(in crate::gallery) struct Labels {
    texts: Texts,
    /// Where the text of each place starts.
    starts: Packed,
    /// Places by their texts; those of the empty text are left out.
    by_text: Packed,
}

impl Labels {
    /// A column of the texts that have these numbers in `interner`.
    pub(in crate::gallery) fn new(
        interner: Interner,
        numbers: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Self {
        let (texts, starts_by_number) = interner.into_parts();
        let text = |number: u32| texts.get(starts_by_number[number as usize]);
        let starts = Packed::new(numbers.clone().map(|number| starts_by_number[number as usize]));
        let labelled = numbers.clone().enumerate().filter(|(_, number)| !text(*number).is_empty());
        let mut by_text = vec![0_u32; labelled.clone().count()];
        let order = sorted_by_text(starts_by_number.len() as u32, text);
        // Each text's count of places, then where its places begin, then where the next of them goes.
        let mut next = vec![0_u32; order.len()];
        labelled.clone().for_each(|(_, number)| next[number as usize] += 1);
        let mut sum = 0;
        for number in order {
            sum += std::mem::replace(&mut next[number as usize], sum);
        }
        for (place, number) in labelled {
            by_text[next[number as usize] as usize] = place as u32;
            next[number as usize] += 1;
        }
        Self { texts, starts, by_text: Packed::new(by_text.iter().map(|place| u64::from(*place))) }
    }

    /// The text of a place.
    pub(in crate::gallery) fn get(&self, place: usize) -> &str {
        self.texts.get(self.starts.get(place))
    }

    /// The places that carry `text`, ascending; none for the empty text.
    pub(in crate::gallery) fn places(&self, text: &str) -> impl Iterator<Item = usize> + use<'_> {
        self.places_within(text, 0..self.starts.len())
    }

    /// Those of `within` that carry `text`.
    pub(in crate::gallery) fn places_within(
        &self,
        text: &str,
        within: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let (first, end) = (self.first_from(text, within.start), self.first_from(text, within.end));
        (first..end).map(|rank| self.by_text.get(rank) as usize)
    }

    /// How many stand before `text` at `place` in the order of texts and places.
    fn first_from(&self, text: &str, place: usize) -> usize {
        self.by_text.partition_point(|held| {
            self.get(held as usize).cmp(text).then((held as usize).cmp(&place)) == Ordering::Less
        })
    }

    /// Bytes held.
    pub(in crate::gallery) fn bytes(&self) -> usize {
        self.texts.bytes() + self.starts.bytes() + self.by_text.bytes()
    }
}

/// The numbers of distinct texts in the order of the texts.
///
/// Most comparisons are settled by the eight bytes behind what all texts begin with, which stand beside the numbers: looking texts up takes
/// longer than comparing them.
fn sorted_by_text<'a>(count: u32, text: impl Fn(u32) -> &'a str) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let first = text(0).as_bytes();
    let shared = (1..count).fold(first.len(), |shared, number| {
        let both = first[..shared].iter().zip(text(number).as_bytes());
        both.take_while(|(a, b)| a == b).count()
    });
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

    fn labels(texts: &[&str]) -> Labels {
        let mut interner = Interner::with_capacity(texts.len());
        let numbers: Vec<u32> = texts.iter().map(|text| interner.intern(text)).collect();
        Labels::new(interner, numbers.into_iter())
    }

    #[test]
    fn texts_are_found_both_ways() {
        let texts = ["b", "", "a", "ab", "b", "a", "", "b"];
        let labels = labels(&texts);
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(labels.get(place), *text);
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
        assert_eq!(labels(&[]).places("a").count(), 0);
        assert_eq!(labels(&["", ""]).places("").count(), 0);
    }

    #[test]
    fn a_text_that_many_places_share_is_kept_once() {
        let shared = labels(&vec!["the same long source.jpg"; 4096]);
        // A start in a bit and a place in another.
        assert!(shared.bytes() <= 4096 * 2 / 8 + 250, "{}", shared.bytes());
    }
}

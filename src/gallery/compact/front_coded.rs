//! Texts in the order of their bytes, each as what it adds to the one before it.
//!
//! Texts in order share how they begin: files of a folder, names with a number behind. So of each text is kept how many bytes it shares with
//! the one before, and the rest (front coding). They stand in blocks, the first of which shares nothing, so that one is read with a few others at
//! most, and found by a binary search among the first ones.
//!
//! What is shared ends between two characters, and lengths are characters too (`texts`): the whole is a text itself, and nothing of it needs
//! to be checked again.

use std::fmt;

use super::Packed;
use super::texts::{push_length, split_length};

/// Texts of a block: more would save little, and take longer to read.
const BLOCK: usize = 16;

/// Texts that never change, by their numbers from 0.
#[derive(Debug)]
pub(in crate::gallery) struct FrontCoded {
    all: Box<str>,
    /// Where each block starts.
    blocks: Packed,
    len: usize,
}

/// A text of a gallery, which is put together when it is read.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    of: &'a FrontCoded,
    number: usize,
}

/// Goes through a block, text by text.
struct Walk<'a> {
    text: String,
    rest: &'a str,
}

impl FrontCoded {
    /// Keeps `texts`, which rise.
    pub(in crate::gallery) fn new<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let (len, mut all, mut before) = (texts.len(), String::new(), "");
        let mut blocks = Vec::with_capacity(len.div_ceil(BLOCK));
        for (number, text) in texts.enumerate() {
            if number % BLOCK == 0 {
                blocks.push(all.len() as u64);
                before = "";
            }
            let shared = shared(before, text);
            push_length(&mut all, shared);
            push_length(&mut all, text.len() - shared);
            all.push_str(&text[shared..]);
            before = text;
        }
        Self { all: all.into(), blocks: Packed::new(blocks.iter().copied()), len }
    }

    /// The text of that number, which must be one.
    pub(in crate::gallery) fn get(&self, number: usize) -> Text<'_> {
        Text { of: self, number }
    }

    /// The number of `text`, if it is there.
    pub(in crate::gallery) fn find(&self, text: &str) -> Option<usize> {
        let block = self.blocks.partition_point(|start| self.walk(start).whole() <= text).checked_sub(1)?;
        let mut walk = self.walk(self.blocks.get(block));
        (block * BLOCK..self.len.min((block + 1) * BLOCK)).find(|_| walk.next() == text)
    }

    fn walk(&self, start: u64) -> Walk<'_> {
        Walk { text: String::new(), rest: &self.all[start as usize..] }
    }

    /// How many there are.
    pub(in crate::gallery) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub(in crate::gallery) fn bytes(&self) -> usize {
        self.all.len() + self.blocks.bytes()
    }
}

impl Text<'_> {
    /// What it says.
    pub fn read(self) -> String {
        let Self { of, number } = self;
        let mut walk = of.walk(of.blocks.get(number / BLOCK));
        for _ in 0..=number % BLOCK {
            walk.next();
        }
        walk.text
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl<'a> Walk<'a> {
    /// The next text, which must be there.
    fn next(&mut self) -> &str {
        let (shared, added) = self.step();
        self.text.truncate(shared);
        self.text.push_str(added);
        &self.text
    }

    /// The first text of a block, without a copy of it.
    fn whole(mut self) -> &'a str {
        self.step().1
    }

    /// How much the next text shares with this one, and what it adds.
    fn step(&mut self) -> (usize, &'a str) {
        let (shared, rest) = split_length(self.rest);
        let (length, rest) = split_length(rest);
        let (added, rest) = rest.split_at(length);
        self.rest = rest;
        (shared, added)
    }
}

/// With how many bytes both begin that are the same characters.
pub(super) fn shared(one: &str, other: &str) -> usize {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    other.floor_char_boundary(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn front_coded(texts: &[impl AsRef<str>]) -> FrontCoded {
        FrontCoded::new(texts.iter().map(AsRef::as_ref))
    }

    fn all(of: &FrontCoded) -> Vec<String> {
        (0..of.len()).map(|number| of.get(number).read()).collect()
    }

    #[test]
    fn texts_of_every_kind_come_back() {
        let (long, longer) = ("x".repeat(300_000), "x".repeat(300_001));
        // Characters of one to four bytes, some of which begin with the same bytes; a text that begins the next one; equal ones.
        let mut texts = vec![
            "",
            "",
            "\0",
            "\0\0",
            "a",
            "a\0b",
            "ab",
            "ab",
            "è",
            "é",
            "éa",
            "张伟",
            "张傅",
            "弡",
            "👩",
            "👩\u{200d}🚀",
            "👪",
            "👪",
            &long,
            &longer,
            "z",
        ];
        let in_this_order = front_coded(&texts);
        assert_eq!(
            (all(&in_this_order), in_this_order.len()),
            (texts.iter().map(|&text| text.to_owned()).collect(), 21)
        );
        texts.sort_unstable();
        assert_eq!(all(&front_coded(&texts)), texts);
        assert_eq!(format!("{:?}", in_this_order.get(5)), r#""a\0b""#);
    }

    #[test]
    fn what_is_shared_ends_between_characters() {
        for (one, other, bytes) in
            [("è", "é", 0), ("aé", "aéb", 3), ("👩", "👪", 0), ("ab", "ab", 2), ("", "a", 0), ("a👪", "a", 1)]
        {
            assert_eq!((shared(one, other), shared(other, one)), (bytes, bytes), "{one} {other}");
        }
    }

    #[test]
    fn texts_are_found_in_every_block_and_others_are_not() {
        let texts: Vec<String> = (0..1000).map(|number| format!("p_{:04}", 2 * number)).collect();
        let kept = front_coded(&texts);
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(kept.find(text), Some(number));
            assert_eq!(kept.find(&format!("p_{:04}", 2 * number + 1)), None);
            assert_eq!(kept.find(&format!("{text}\0")), None);
        }
        assert_eq!((kept.find(""), kept.find("q"), front_coded(&[""; 0]).find("")), (None, None, None));
    }

    /// Paths of 24 bytes: four of five add five bytes, behind two lengths.
    #[test]
    fn paths_take_two_fifths_of_their_bytes() {
        let paths: Vec<String> =
            (0..10_000).map(|row| format!("photos/{:06}/img_{:02}.jpg", row / 5, row % 5)).collect();
        let (content, kept) = (paths.iter().map(String::len).sum::<usize>(), front_coded(&paths).bytes());
        assert!(kept <= content * 2 / 5, "{kept} of {content}");
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out_and_is_found(texts in prop::collection::btree_set("[ab\0é张👩]{0,9}", 0..90), other in "[abé]{0,4}") {
            let texts: Vec<String> = texts.into_iter().collect();
            let kept = front_coded(&texts);
            for (number, text) in texts.iter().enumerate() {
                prop_assert_eq!(kept.find(text), Some(number));
            }
            prop_assert_eq!(kept.find(&other), texts.binary_search(&other).ok());
            prop_assert_eq!(all(&kept), texts);
        }

        #[test]
        fn texts_in_any_order_come_out(texts in prop::collection::vec(any::<String>(), 0..40)) {
            prop_assert_eq!(all(&front_coded(&texts)), texts);
        }
    }
}

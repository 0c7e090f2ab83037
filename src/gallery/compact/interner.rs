//! Texts numbered in the order in which they first come; one that comes again gets its number again.
//!
//! A table of open addressing over [`Texts`]: a `HashMap` of `String`s would take a block of memory for each.

use std::hash::{BuildHasher, RandomState};

use super::Texts;

/// Distinct texts and their numbers, from 0.
#[derive(Debug)]
pub(in crate::gallery) struct Interner {
    texts: Texts,
    /// Where each text starts, by number.
    starts: Vec<u64>,
    /// The upper half of a text's hash and its number plus one, or 0 where nothing is. As many as a power of 2.
    slots: Vec<u64>,
    /// The number that came last: labels mostly run in groups.
    last: Option<u32>,
    hasher: RandomState,
}

/// Where a text is in the table, or where it belongs.
struct Slot {
    place: usize,
    tag: u64,
    number: Option<u32>,
}

impl Interner {
    /// An interner with room for `capacity` distinct texts.
    pub(in crate::gallery) fn with_capacity(capacity: usize) -> Self {
        Self {
            texts: Texts::default(),
            starts: Vec::with_capacity(capacity),
            // Zeroed memory is not touched before it is used, so room that is not needed costs nothing.
            slots: vec![0; slots_for(capacity)],
            last: None,
            hasher: RandomState::new(),
        }
    }

    /// The number of `text`, which is new if it never came before.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct texts already.
    pub(in crate::gallery) fn intern(&mut self, text: &str) -> u32 {
        if let Some(last) = self.last.filter(|last| self.text(*last) == text) {
            return last;
        }
        let number = self.number(text);
        self.last = Some(number);
        number
    }

    fn number(&mut self, text: &str) -> u32 {
        let slot = self.slot(text);
        if let Some(number) = slot.number {
            return number;
        }
        let number = self.starts.len() as u64;
        assert!(number < u64::from(u32::MAX), "expected fewer than 2^32 - 1 distinct texts");
        self.starts.push(self.texts.push(text));
        self.slots[slot.place] = slot.tag | (number + 1);
        if slots_for(self.starts.len()) > self.slots.len() {
            self.grow();
        }
        number as u32
    }

    /// The number of `text`, if it came before.
    pub(in crate::gallery) fn find(&self, text: &str) -> Option<u32> {
        self.slot(text).number
    }

    /// How many distinct texts there are.
    pub(in crate::gallery) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The texts, and where each starts, by number.
    pub(in crate::gallery) fn into_parts(self) -> (Texts, Vec<u64>) {
        (self.texts, self.starts)
    }

    fn slot(&self, text: &str) -> Slot {
        let hash = self.hasher.hash_one(text);
        let tag = hash & !u64::from(u32::MAX);
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let held = self.slots[place];
            if held == 0 {
                return Slot { place, tag, number: None };
            }
            let number = held as u32 - 1;
            if held & !u64::from(u32::MAX) == tag && self.text(number) == text {
                return Slot { place, tag, number: Some(number) };
            }
            place = (place + 1) & mask;
        }
    }

    fn text(&self, number: u32) -> &str {
        self.texts.get(self.starts[number as usize])
    }

    fn grow(&mut self) {
        self.slots = vec![0; 2 * self.slots.len()];
        for number in 0..self.starts.len() as u32 {
            let Slot { place, tag, .. } = self.slot(self.text(number));
            self.slots[place] = tag | (u64::from(number) + 1);
        }
    }
}

/// Slots for so many texts: at least a quarter stays free, so that a search for one that is not there ends soon.
fn slots_for(texts: usize) -> usize {
    (texts + texts / 3 + 1).next_power_of_two().max(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_comes_again_gets_its_number_again() {
        let mut interner = Interner::with_capacity(0);
        let name = |place: u32| format!("p_{:04}", place % 700);
        for place in 0..2000 {
            assert_eq!(interner.intern(&name(place)), place % 700);
            assert_eq!(interner.intern(&name(place)), place % 700, "twice in a row");
        }
        assert_eq!(
            (interner.len(), interner.find("p_0699"), interner.find("p_0700")),
            (700, Some(699), None)
        );
        assert_eq!(interner.intern(""), 700);
        let (texts, starts) = interner.into_parts();
        assert_eq!((texts.get(starts[699]), texts.get(starts[700])), ("p_0699", ""));
    }
}

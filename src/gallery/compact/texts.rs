//! Texts one behind another in one block of memory, each behind its length.
//!
//! The length stands in front as ASCII characters that hold six bits each, lowest first, and a seventh that says that more follow: one for
//! a usual name, two up to 4095 bytes. So the whole is a text itself, and no slice of it needs to be checked again.

/// Bits of a length that one character holds, and the bit that says that another follows.
const LENGTH_BITS: u32 = 6;
const MORE: u8 = 1 << LENGTH_BITS;

/// Texts, each known by where it starts.
#[derive(Debug, Default)]
pub(in crate::gallery) struct Texts {
    all: String,
}

impl Texts {
    /// Appends a text and says where it starts.
    pub(in crate::gallery) fn push(&mut self, text: &str) -> u64 {
        let start = self.all.len() as u64;
        push_length(&mut self.all, text.len());
        self.all.push_str(text);
        start
    }

    /// The text that starts at `start`, which [`Self::push`] gave.
    pub(in crate::gallery) fn get(&self, start: u64) -> &str {
        let (length, rest) = split_length(&self.all[start as usize..]);
        &rest[..length]
    }
}

/// Appends a length.
pub(super) fn push_length(all: &mut String, mut length: usize) {
    while length >= usize::from(MORE) {
        all.push(char::from(length as u8 & (MORE - 1) | MORE));
        length >>= LENGTH_BITS;
    }
    all.push(char::from(length as u8));
}

/// The length that stands in front, and what follows it.
#[inline]
pub(super) fn split_length(all: &str) -> (usize, &str) {
    let (mut length, mut shift) = (0, 0);
    for (place, byte) in all.bytes().enumerate() {
        length |= usize::from(byte & (MORE - 1)) << shift;
        shift += LENGTH_BITS;
        if byte & MORE == 0 {
            return (length, &all[place + 1..]);
        }
    }
    (0, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_come_back_and_take_little_more_than_themselves() {
        let mut texts = Texts::default();
        let lengths = [0, 1, 63, 64, 65, 127, 128, 256, 4095, 4096, 300_000];
        let given: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
        let starts: Vec<u64> = given.iter().map(|text| texts.push(text)).collect();
        let names = ["张伟", "O'Brien", "👩\u{200d}🚀", "a\0b"];
        let more: Vec<u64> = names.iter().map(|text| texts.push(text)).collect();
        for (text, start) in given.iter().zip(starts) {
            assert_eq!(texts.get(start), text);
        }
        for (text, start) in names.iter().zip(more) {
            assert_eq!(texts.get(start), *text);
        }
        let content: usize = given.iter().map(String::len).chain(names.map(str::len)).sum();
        // Seven lengths in one character, six in two, one in three, one in four.
        assert_eq!(texts.all.len() - content, 7 + 6 * 2 + 3 + 4);
    }
}

//! The header of a `.npy` file, guarded: `npyz` reads it, but trusts its lengths, its nesting and its shape.

use std::io::{Cursor, Read};

use crate::gallery::formats::Problem;

/// How every `.npy` file begins.
pub(in crate::gallery::formats) const MAGIC: &[u8] = b"\x93NUMPY";

/// Most bytes of a header's text: as NumPy itself allows by default.
const MAX_HEADER_BYTES: usize = 10_000;

/// Most levels of brackets in a header; that of a plain matrix has two.
const MAX_NESTING: usize = 8;

/// A header and how many bytes it takes.
pub(super) struct Header {
    pub(super) npyz: npyz::NpyHeader,
    pub(super) length: u64,
}

impl Header {
    /// Reads the header; the reader then stands at the first value.
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, Problem> {
        let wrong = |what: &str| Problem::NpyHeader(what.to_owned());
        let cut = |_| wrong("the file is cut off");
        let mut bytes = vec![0; MAGIC.len() + 2];
        reader.read_exact(&mut bytes).map_err(cut)?;
        if !bytes.starts_with(MAGIC) {
            return Err(wrong("the file does not begin with \\x93NUMPY"));
        }
        let length_bytes = match bytes[MAGIC.len()] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(Problem::NpyHeader(format!("got version {version}"))),
        };
        let mut length = [0; 4];
        reader.read_exact(&mut length[..length_bytes]).map_err(cut)?;
        bytes.extend_from_slice(&length[..length_bytes]);
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER_BYTES {
            return Err(Problem::NpyHeader(format!(
                "expected at most {MAX_HEADER_BYTES} bytes, got {length}"
            )));
        }
        let start = bytes.len();
        bytes.resize(start + length, 0);
        reader.read_exact(&mut bytes[start..]).map_err(cut)?;
        guard(&bytes[start..]).map_err(wrong)?;
        let npyz = npyz::NpyHeader::from_reader(Cursor::new(&bytes))
            .map_err(|error| Problem::NpyHeader(error.to_string()))?;
        Ok(Self { npyz, length: bytes.len() as u64 })
    }

    /// The shape as Python writes it.
    pub(super) fn shape(&self) -> String {
        match self.npyz.shape() {
            [one] => format!("({one},)"),
            many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Refuses what would make `npyz` recurse too deep or multiply past `u64`: its parser is recursive, and it multiplies the
/// shape unchecked. Every number outside quotes counts, wherever it stands.
fn guard(text: &[u8]) -> Result<(), &'static str> {
    let (mut nesting, mut quote, mut number, mut product) = (0_usize, None, None::<u64>, 1_u64);
    for &byte in text {
        match (quote, byte) {
            (Some(open), _) => {
                if byte == open {
                    quote = None;
                }
            }
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => nesting += 1,
            (None, b')' | b']' | b'}') => nesting = nesting.saturating_sub(1),
            (None, b'0'..=b'9') => {
                let digits = number.unwrap_or(0).checked_mul(10);
                number = Some(digits.and_then(|n| n.checked_add(u64::from(byte - b'0'))).ok_or(TOO_LARGE)?);
                continue;
            }
            (None, _) => (),
        }
        if nesting > MAX_NESTING {
            return Err("brackets are nested too deep");
        }
        // Zeros are left out: products are taken of parts of the shape too.
        product = product.checked_mul(number.take().unwrap_or(1).max(1)).ok_or(TOO_LARGE)?;
    }
    Ok(())
}

const TOO_LARGE: &str = "the shape is larger than any file";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Header, Problem> {
        let mut bytes = [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes()].concat();
        bytes.extend_from_slice(text.as_bytes());
        Header::read(&mut bytes.as_slice())
    }

    #[test]
    fn a_plain_header_is_read() {
        let header = read("{'descr': '<f4', 'fortran_order': False, 'shape': (30, 128), }\n").unwrap();
        assert_eq!(header.npyz.shape(), [30, 128]);
        assert_eq!((header.shape().as_str(), header.length), ("(30, 128)", 73));
    }

    #[test]
    fn hostile_headers_are_refused_before_they_are_parsed() {
        let shape = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        let cases = [
            (shape("(4294967296, 4294967296, 2)"), "larger than any file"),
            (shape("(0, 4294967296, 4294967296)"), "larger than any file"),
            (shape("(99999999999999999999999999, 1)"), "larger than any file"),
            (shape(&"(".repeat(3000)), "nested too deep"),
            (format!("{{'descr': {}", "[".repeat(3000)), "nested too deep"),
            ("not a header".to_owned(), "header"),
            (shape("(-3, 4)"), "negative"),
        ];
        for (text, expected) in cases {
            let error = read(&text).map(|header| header.shape()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_header_longer_than_it_may_be_is_not_allocated() {
        let mut bytes = [MAGIC, &[2, 0], &u32::MAX.to_le_bytes()].concat();
        bytes.push(b'{');
        let error = Header::read(&mut bytes.as_slice()).map(|header| header.length).unwrap_err();
        assert!(error.to_string().contains("at most 10000 bytes, got 4294967295"), "{error}");
    }
}

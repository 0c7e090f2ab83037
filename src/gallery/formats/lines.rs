//! The lines of a text file: UTF-8, of bounded length, counted from 1. A byte-order mark at the start, CRLF line ends and one
//! blank line at the end are tolerated.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{FormatError, MAX_LINE_BYTES, MAX_ROWS, Problem, input};
use crate::gallery::{OnProgress, Place, Progress, Stage};

/// UTF-8's byte-order mark.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 1 << 22;

/// Reads a text file line by line.
pub(super) struct Lines<'a> {
    reader: BufReader<File>,
    place: Place,
    number: u64,
    buffer: Vec<u8>,
    done: u64,
    reported: u64,
    total: u64,
    on_progress: OnProgress<'a>,
}

impl<'a> Lines<'a> {
    /// Opens `path`.
    pub(super) fn open(path: &Path, on_progress: OnProgress<'a>) -> Result<Self, FormatError> {
        let place = Place::file(path);
        let (file, total) = input::open(path).map_err(|problem| problem.at(place.clone()))?;
        let reader = BufReader::with_capacity(1 << 18, file);
        Ok(Self { reader, place, number: 0, buffer: Vec::new(), done: 0, reported: 0, total, on_progress })
    }

    /// The file as a whole.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The next line without its end, and where it stands; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<(&str, u64)>, FormatError> {
        self.number += 1;
        let place = self.place.line(self.number);
        let full = self.read_line().map_err(|error| Problem::Io(error).at(place.clone()))?;
        if !full {
            self.report();
            return Ok(None);
        }
        if self.buffer.len() > MAX_LINE_BYTES {
            return Err(Problem::LineTooLong.at(place));
        }
        if self.number > MAX_ROWS {
            return Err(Problem::TooManyRows(self.number).at(place));
        }
        if self.done - self.reported >= REPORT_BYTES {
            self.report();
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some((line, self.number))),
            Err(error) => {
                let at = error.valid_up_to();
                Err(Problem::NotUtf8 { byte: self.buffer[at], at }.at(place))
            }
        }
    }

    /// Fills the buffer with the next line; false where there is none.
    fn read_line(&mut self) -> std::io::Result<bool> {
        self.buffer.clear();
        // Two more than allowed: a line of the greatest length with its CRLF still fits.
        let limit = MAX_LINE_BYTES as u64 + 2;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.buffer)?;
        self.done += read as u64;
        if self.buffer.pop_if(|last| *last == b'\n').is_some() {
            self.buffer.pop_if(|last| *last == b'\r');
        }
        if self.number == 1 && self.buffer.starts_with(BOM) {
            self.buffer.drain(..BOM.len());
        }
        let blank_end = self.buffer.is_empty() && self.reader.fill_buf()?.is_empty();
        Ok(read > 0 && !blank_end)
    }

    fn report(&mut self) {
        self.reported = self.done;
        (self.on_progress)(Progress { stage: Stage::Reading, done: self.done, total: self.total });
    }
}

//! Labels beside a `.npy` file: who each row is.
//!
//! Text, one line a row: `identity/prototype-id`, parted at the first slash, or a bare `identity`, whose prototype id then is the row's
//! number from 0. Or CSV: `identity,prototype_id,source`, the last two optional; a header line that names the columns may give them in any
//! order. A file is CSV if its name ends in `.csv` or its first line is such a header; otherwise a comma is part of a name.

use std::io::BufReader;
use std::path::Path;

use super::lines::Lines;
use super::{FormatError, MAX_LABEL_BYTES, MAX_ROWS, Problem, checked_name, checked_optional, input};
use crate::gallery::{OnProgress, Place};

/// Who one row is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub prototype_id: String,
    /// Where it came from; may be empty.
    pub source: String,
}

/// The labels of a file, one a row.
#[derive(Debug)]
pub struct Labels {
    labels: Vec<Label>,
    place: Place,
}

impl Labels {
    /// Reads a labels file.
    pub fn read(path: &Path) -> Result<Self, FormatError> {
        let place = Place::file(path);
        let (_, length) = input::open(path).map_err(|problem| problem.at(place.clone()))?;
        if length > MAX_LABEL_BYTES {
            return Err(Problem::LabelsTooLong(length).at(place));
        }
        let labels = if is_csv(path)? { read_csv(path)? } else { read_text(path)? };
        Ok(Self { labels, place })
    }

    /// Checks that there is one label a row of the file of vectors.
    pub(super) fn check_count(&self, rows: usize, vectors: &Path) -> Result<(), FormatError> {
        if self.labels.len() == rows {
            return Ok(());
        }
        let problem = Problem::LabelCount {
            expected: rows as u64,
            got: self.labels.len() as u64,
            vectors: vectors.to_owned(),
        };
        Err(problem.at(self.place.clone()))
    }

    /// The labels in the order of the rows.
    pub fn into_labels(self) -> Vec<Label> {
        self.labels
    }
}

fn is_csv(path: &Path) -> Result<bool, FormatError> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
        return Ok(true);
    }
    let silent: OnProgress<'_> = &mut |_| ();
    let mut lines = Lines::open(path, silent)?;
    let first = lines.next()?;
    Ok(first.is_some_and(|(line, _)| line.contains(',') && is_header(line.split(','))))
}

/// Whether the first line's fields name columns: no field of a row is likely to be one of these words.
fn is_header<'a>(mut fields: impl Iterator<Item = &'a str>) -> bool {
    fields.any(|field| matches!(field.trim(), "identity" | "prototype_id"))
}

fn read_text(path: &Path) -> Result<Vec<Label>, FormatError> {
    let silent: OnProgress<'_> = &mut |_| ();
    let mut lines = Lines::open(path, silent)?;
    let file = lines.place().clone();
    let mut labels = Vec::new();
    while let Some((line, number)) = lines.next()? {
        let (identity, id) = match line.split_once('/') {
            Some((identity, id)) => (identity, id.to_owned()),
            None => (line, labels.len().to_string()),
        };
        let raw = Label { identity: identity.to_owned(), prototype_id: id, source: String::new() };
        labels.push(check(raw).map_err(|problem| problem.at(file.line(number)))?);
    }
    Ok(labels)
}

fn check(label: Label) -> Result<Label, Problem> {
    Ok(Label {
        identity: checked_name("identity", label.identity)?,
        prototype_id: checked_name("prototype id", label.prototype_id)?,
        source: checked_optional("source", label.source)?,
    })
}

/// Which field of a CSV line is what.
#[derive(Clone, Copy, Debug)]
struct Columns {
    identity: usize,
    prototype_id: Option<usize>,
    source: Option<usize>,
}

impl Columns {
    fn named(header: &csv::StringRecord) -> Result<Self, Problem> {
        let wrong = || Problem::Header { got: header.iter().collect::<Vec<_>>().join(",") };
        let (mut identity, mut prototype_id, mut source) = (None, None, None);
        for (column, name) in header.iter().enumerate() {
            let slot = match name.trim() {
                "identity" => &mut identity,
                "prototype_id" => &mut prototype_id,
                "source" => &mut source,
                _ => return Err(wrong()),
            };
            if slot.replace(column).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self { identity: identity.ok_or_else(wrong)?, prototype_id, source })
    }

    fn in_order(fields: usize) -> Result<Self, Problem> {
        if !(1..=3).contains(&fields) {
            return Err(Problem::FieldCount { expected: "1 to 3".to_owned(), got: fields as u64 });
        }
        Ok(Self { identity: 0, prototype_id: (fields > 1).then_some(1), source: (fields > 2).then_some(2) })
    }

    fn label(self, record: &csv::StringRecord, row: usize) -> Result<Label, Problem> {
        let field = |column: usize| record.get(column).unwrap_or_default().to_owned();
        check(Label {
            identity: field(self.identity),
            prototype_id: self.prototype_id.map_or_else(|| row.to_string(), field),
            source: self.source.map(field).unwrap_or_default(),
        })
    }
}

fn read_csv(path: &Path) -> Result<Vec<Label>, FormatError> {
    let place = Place::file(path);
    let (file, _) = input::open(path).map_err(|problem| problem.at(place.clone()))?;
    // The reader drops a byte-order mark itself.
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(BufReader::new(file));
    let mut columns = None;
    let mut labels = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| csv_error(&place, &error))?;
        let line = record.position().map_or(1, csv::Position::line);
        let at = |problem: Problem| problem.at(place.line(line));
        let columns = match columns {
            Some(columns) => columns,
            None if is_header(record.iter()) => {
                columns = Some(Columns::named(&record).map_err(at)?);
                continue;
            }
            None => *columns.insert(Columns::in_order(record.len()).map_err(at)?),
        };
        if labels.len() as u64 >= MAX_ROWS {
            return Err(at(Problem::TooManyRows(MAX_ROWS + 1)));
        }
        labels.push(columns.label(&record, labels.len()).map_err(at)?);
    }
    Ok(labels)
}

fn csv_error(place: &Place, error: &csv::Error) -> FormatError {
    let line = error.position().map(csv::Position::line);
    let problem = if let csv::ErrorKind::Utf8 { err, .. } = error.kind() {
        let (byte, field) = (err.valid_up_to(), err.field());
        Problem::Csv(format!("expected UTF-8 text, got another byte at byte {byte} of field {field}"))
    } else if let csv::ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
        Problem::FieldCount { expected: expected_len.to_string(), got: *len }
    } else {
        Problem::Csv(error.to_string())
    };
    problem.at(line.map_or_else(|| place.clone(), |line| place.line(line)))
}

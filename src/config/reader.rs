//! Reads keys of the effective tree as the types they must have.
//!
//! A key that does not hold what it should becomes a problem, and `None`: the caller reads on, so that all are found.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::problem::{Problem, shown};
use super::tree::{Leaf, Tree};
use crate::domain::OutOfRange;

/// Longest text that a setting may be.
const MAX_TEXT_BYTES: usize = 4096;

/// Reads keys by path, and keeps what is wrong with them.
pub(super) struct Reader<'a> {
    tree: &'a Tree,
    /// Every path asked for.
    read: BTreeSet<&'static str>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tree: &'a Tree, problems: &'a mut Vec<Problem>) -> Self {
        Self { tree, read: BTreeSet::new(), problems }
    }

    fn leaf(&mut self, path: &'static str) -> &'a Leaf {
        self.read.insert(path);
        self.tree.leaf(path).expect("what is read stands in the defaults: a test reads them all")
    }

    pub(super) fn refuse(&mut self, path: &'static str, expected: &str) {
        let leaf = self.leaf(path);
        self.problems.push(Problem {
            path: path.to_owned(),
            origin: leaf.origin.clone(),
            expected: expected.to_owned(),
            got: shown(&leaf.value),
        });
    }

    /// What `accept` makes of the value; what it does not take is refused.
    fn accepted<T>(
        &mut self,
        path: &'static str,
        expected: &str,
        accept: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let accepted = accept(&self.leaf(path).value);
        if accepted.is_none() {
            self.refuse(path, expected);
        }
        accepted
    }

    pub(super) fn integer(&mut self, path: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.accepted(path, &expected, |value| value.as_u64().filter(|value| range.contains(value)))
    }

    pub(super) fn size(&mut self, path: &'static str, range: RangeInclusive<u64>) -> Option<usize> {
        let value = self.integer(path, range)?;
        Some(usize::try_from(value).expect("the ranges end below 2^32"))
    }

    /// A number within a range.
    pub(super) fn real(&mut self, path: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        // `+ 0.0` turns -0.0 into 0.0.
        self.accepted(path, &expected, |value| {
            value.as_f64().filter(|value| range.contains(value)).map(|value| value + 0.0)
        })
    }

    /// A number of a type that knows its own range.
    pub(super) fn number<T>(
        &mut self,
        path: &'static str,
        parse: fn(f32) -> Result<T, OutOfRange>,
    ) -> Option<T> {
        // What is no number is parsed as one that lies in no range, for the sake of the range's own words.
        let value = self.leaf(path).value.as_f64().unwrap_or(f64::NAN);
        parse(value as f32).map_err(|error| self.refuse(path, &error.expected)).ok()
    }

    pub(super) fn flag(&mut self, path: &'static str) -> Option<bool> {
        self.accepted(path, "true or false", Value::as_bool)
    }

    pub(super) fn choice<T: Copy>(&mut self, path: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = match names.as_slice() {
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
            [] => String::new(),
        };
        self.parsed(path, &expected, |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        })
    }

    /// What `parse` makes of a text that is not blank.
    pub(super) fn parsed<T>(
        &mut self,
        path: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.accepted(path, expected, |value| {
            let text = value.as_str()?;
            let sound = !text.trim().is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains('\0');
            sound.then(|| parse(text)).flatten()
        })
    }

    pub(super) fn is_null(&mut self, path: &'static str) -> bool {
        self.leaf(path).value.is_null()
    }

    /// Every path asked for so far, sorted.
    #[cfg(test)]
    pub(super) fn paths_read(&self) -> impl Iterator<Item = &'static str> {
        self.read.iter().copied()
    }
}

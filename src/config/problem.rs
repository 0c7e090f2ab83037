//! What is wrong with a configuration: every fault at once, each by key path and origin.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

/// Most faults listed; a file of a million wrong keys needs no longer list.
pub(super) const MAX_PROBLEMS: usize = 1000;

/// Most characters of a value that a message repeats.
const MAX_SHOWN_CHARS: usize = 80;

/// The path of what concerns a whole source rather than a key of it.
pub(super) const WHOLE: &str = "configuration";

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `server.listen`; `configuration` where a whole source is at fault.
    pub path: String,
    /// Where the value came from: `defaults`, `file x.yaml`, `environment LOOKALIKE__SERVER__LISTEN`, `flag --set server.listen`, `flag --listen`.
    pub origin: String,
    /// What would have been right.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, origin, expected, got } = self;
        write!(f, "{path}: expected {expected}, got {got} (from {origin})")
    }
}

/// A configuration that cannot be used: all its faults, one a line, never none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        debug_assert!(!problems.is_empty(), "an error has a cause");
        Self { problems }
    }

    /// The faults, in the order in which they were found; at most 1000.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if line == 0 { "" } else { "\n" })?;
        }
        if self.problems.len() == MAX_PROBLEMS {
            write!(f, "\nonly the first {MAX_PROBLEMS} problems are listed")?;
        }
        Ok(())
    }
}

/// A value as a message repeats it: short, and on one line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => shown_text(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a section".to_owned(),
    }
}

/// A text as a message repeats it: quoted, escaped, cut where it is long.
pub(super) fn shown_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}...", &text[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_short_and_on_one_line() {
        assert_eq!(shown_text("a\nb"), r#""a\nb""#);
        let long = shown(&Value::String("é".repeat(1000)));
        assert_eq!(long, format!("\"{}\"...", "é".repeat(MAX_SHOWN_CHARS)));
    }

    #[test]
    fn every_problem_has_a_line() {
        let problem = |path: &str| Problem {
            path: path.to_owned(),
            origin: "file x.yaml".to_owned(),
            expected: "true or false".to_owned(),
            got: "\"yes\"".to_owned(),
        };
        let error = ConfigError::new(vec![problem("a.b"), problem("a.c")]);
        assert_eq!(
            error.to_string(),
            "a.b: expected true or false, got \"yes\" (from file x.yaml)\n\
             a.c: expected true or false, got \"yes\" (from file x.yaml)"
        );
    }
}

//! The effective configuration: one value a key, with where it came from.
//!
//! The tree of the defaults is the schema too: it says which keys there are, and which of them are sections. Laying
//! another source over it can change a key's value, never the shape.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::problem::{MAX_PROBLEMS, Problem, WHOLE, shown, shown_text};

/// Longest key for which a likely meaning is sought.
const MAX_SUGGESTED_CHARS: usize = 64;

/// Longest path that a message repeats whole.
const MAX_PLAIN_BYTES: usize = 128;

/// A key's value, never a section or a list.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// What it is.
    pub(super) value: Value,
    /// Who set it, as [`Problem::origin`] says it.
    pub(super) origin: String,
}

/// The keys by path. The top has the empty path.
#[derive(Debug)]
pub(super) struct Tree {
    leaves: BTreeMap<String, Leaf>,
    sections: BTreeSet<String>,
}

impl Tree {
    /// The tree of the defaults.
    pub(super) fn of_defaults(defaults: &Value) -> Self {
        let mut tree = Self { leaves: BTreeMap::new(), sections: BTreeSet::new() };
        tree.grow("", defaults);
        tree
    }

    fn grow(&mut self, path: &str, value: &Value) {
        if let Value::Object(keys) = value {
            self.sections.insert(path.to_owned());
            for (key, value) in keys {
                self.grow(&join(path, key), value);
            }
        } else {
            let leaf = Leaf { value: value.clone(), origin: "defaults".to_owned() };
            self.leaves.insert(path.to_owned(), leaf);
        }
    }

    /// The leaf of a key.
    pub(super) fn leaf(&self, path: &str) -> Option<&Leaf> {
        self.leaves.get(path)
    }

    /// Lays `value` over the key or section at `path`; what does not fit is a problem and changes nothing.
    pub(super) fn lay(&mut self, path: &str, value: Value, origin: &str, problems: &mut Vec<Problem>) {
        if problems.len() >= MAX_PROBLEMS {
            return;
        }
        let problem = |path: &str, expected: String, got: String| Problem {
            path: named(path),
            origin: origin.to_owned(),
            expected,
            got,
        };
        if self.sections.contains(path) {
            let Value::Object(keys) = value else {
                return problems.push(problem(path, self.section_text(path), shown(&value)));
            };
            for (key, value) in keys {
                if key.contains('.') {
                    let expected = "keys without dots, each under its section".to_owned();
                    problems.push(problem(path, expected, shown_text(&key)));
                } else {
                    self.lay(&join(path, &key), value, origin, problems);
                }
            }
        } else if let Some(leaf) = self.leaves.get_mut(path) {
            if value.is_object() || value.is_array() {
                problems.push(problem(path, "a single value".to_owned(), shown(&value)));
            } else {
                *leaf = Leaf { value, origin: origin.to_owned() };
            }
        } else {
            problems.push(problem(path, self.known_text(path), "an unknown one".to_owned()));
        }
    }

    fn section_text(&self, path: &str) -> String {
        format!("a section with keys of {}", self.children(path).join(", "))
    }

    fn known_text(&self, path: &str) -> String {
        match self.suggestion(path) {
            Some(near) => format!("a known key (did you mean {near}?)"),
            None => format!("a known key (lookalike has {})", self.nearest_section(path)),
        }
    }

    /// The keys of the innermost known section around an unknown path.
    fn nearest_section(&self, path: &str) -> String {
        let mut section = path;
        while !self.sections.contains(section) {
            section = section.rsplit_once('.').map_or("", |(above, _)| above);
        }
        let keys: Vec<String> = self.children(section).iter().map(|key| join(section, key)).collect();
        keys.join(", ")
    }

    /// The known path that `path` was likely meant to be: a near spelling beside it, else the same key elsewhere.
    fn suggestion(&self, path: &str) -> Option<&str> {
        if path.chars().count() > MAX_SUGGESTED_CHARS {
            return None;
        }
        let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
        let allowed = (key.chars().count() / 3).clamp(1, 3);
        let near = self
            .known()
            .map(|known| (edit_distance(path, known), known))
            .filter(|(distance, _)| *distance <= allowed)
            .min();
        let elsewhere = || {
            self.known().find(|known| {
                known.rsplit_once('.').is_some_and(|(section, last)| last == key && section != above)
            })
        };
        near.map(|(_, known)| known).or_else(elsewhere)
    }

    /// The keys right under a section, sorted.
    fn children(&self, section: &str) -> Vec<&str> {
        let mut keys: Vec<&str> = self
            .known()
            .filter_map(|path| {
                let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
                (above == section).then_some(key)
            })
            .collect();
        keys.sort_unstable();
        keys
    }

    /// Every key and section but the top.
    fn known(&self) -> impl Iterator<Item = &str> {
        let paths = self.leaves.keys().chain(&self.sections);
        paths.map(String::as_str).filter(|path| !path.is_empty())
    }

    /// Every key's path.
    #[cfg(test)]
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.leaves.keys().map(String::as_str)
    }
}

/// The path of `key` in the section at `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A path as a message names it: never empty, cut where it is long, on one line.
fn named(path: &str) -> String {
    if path.is_empty() {
        WHOLE.to_owned()
    } else if path.len() > MAX_PLAIN_BYTES || path.contains(char::is_control) {
        shown_text(path)
    } else {
        path.to_owned()
    }
}

/// How many characters must be put in, taken out, changed, or swapped with their neighbour to turn `a` into `b`
/// (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree() -> Tree {
        Tree::of_defaults(&json!({
            "server": {"listen": "a", "limits": {"queue": 1}},
            "metrics": {"listen": "b"},
        }))
    }

    fn laid(path: &str, value: Value) -> (Tree, Vec<String>) {
        let (mut tree, mut problems) = (tree(), Vec::new());
        tree.lay(path, value, "file x", &mut problems);
        (tree, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn a_source_changes_only_the_keys_it_names() {
        let (tree, problems) = laid("", json!({"server": {"limits": {"queue": 2}}}));
        assert_eq!(problems, [""; 0]);
        let queue = tree.leaf("server.limits.queue").unwrap();
        assert_eq!((&queue.value, queue.origin.as_str()), (&json!(2), "file x"));
        assert_eq!(tree.leaf("server.listen").unwrap().origin, "defaults");
    }

    #[test]
    fn the_shape_is_held() {
        for (path, value, problem) in [
            (
                "",
                json!({"server": 3}),
                "server: expected a section with keys of limits, listen, got 3 (from file x)",
            ),
            (
                "",
                json!({"server": null}),
                "server: expected a section with keys of limits, listen, got nothing (null) (from file x)",
            ),
            (
                "",
                json!([1]),
                "configuration: expected a section with keys of metrics, server, got a list (from file x)",
            ),
            (
                "server",
                json!({"listen": {"a": 1}}),
                "server.listen: expected a single value, got a section (from file x)",
            ),
            ("server.listen", json!([1]), "server.listen: expected a single value, got a list (from file x)"),
            (
                "",
                json!({"server.listen": "c"}),
                "configuration: expected keys without dots, each under its section, got \"server.listen\" (from file x)",
            ),
        ] {
            let (tree, problems) = laid(path, value);
            assert_eq!(problems, [problem]);
            assert_eq!(tree.leaf("server.listen").unwrap().value, json!("a"));
        }
    }

    #[test]
    fn an_unknown_key_is_answered_with_what_was_likely_meant() {
        for (path, meant) in [
            ("server.listne", Some("server.listen")),
            ("sever.listen", Some("server.listen")),
            ("metric", Some("metrics")),
            ("queue", Some("server.limits.queue")),
            ("server.queue", Some("server.limits.queue")),
            ("server.colour", None),
            (&"x".repeat(1 << 20), None),
        ] {
            assert_eq!(tree().suggestion(path), meant, "{path}");
        }
        let (_, problems) = laid("server.limits.colour", json!(1));
        assert_eq!(
            problems,
            [
                "server.limits.colour: expected a known key (lookalike has server.limits.queue), got an unknown one (from file x)"
            ]
        );
    }

    #[test]
    fn the_distance_counts_swaps_once() {
        for (a, b, distance) in [("", "abc", 3), ("listen", "litsen", 1), ("queue", "que", 2), ("é", "e", 1)]
        {
            assert_eq!(edit_distance(a, b), distance);
        }
    }
}

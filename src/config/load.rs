//! Reads the sources of a configuration and lays them over the defaults. YAML is spoken here alone.
//!
//! Invariants: later sources win key by key (defaults, file, environment, flags, what a command sets itself); one faulty source does not hide the
//! faults of the others; what is read is bounded before it is kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::document::Document;
use super::model::Settings;
use super::problem::{ConfigError, Problem, WHOLE, shown_text};
use super::tree::Tree;
use super::validate::validate;

/// The defaults, as the program carries them.
pub const DEFAULTS: &str = include_str!("../../config/lookalike.yaml");

/// Most bytes of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What an environment variable that is a setting begins with, in any case.
const PREFIX: &str = "LOOKALIKE__";

/// Where settings come from, beside the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The user's YAML file, at most 1 MiB.
    pub file: Option<PathBuf>,
    /// Environment variables; only those that begin with `LOOKALIKE__` are settings (`LOOKALIKE__SERVER__LISTEN`, in
    /// any case). A value that reads as a YAML scalar is one, any other is text.
    pub environment: BTreeMap<String, String>,
    /// `key.path=value`, values as in the environment; of two for one key the later wins.
    pub flags: Vec<String>,
    /// What a command sets itself, over all else.
    pub own: Vec<OwnSetting>,
}

/// A setting that a command makes for one of its own flags, or for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSetting {
    /// What a fault is said to come from: `flag --backend`.
    pub origin: &'static str,
    /// `key.path=value`, as in [`Sources::flags`].
    pub setting: String,
}

impl Sources {
    /// The given file and flags, and this process's environment.
    pub fn from_process(file: Option<PathBuf>, flags: Vec<String>, own: Vec<OwnSetting>) -> Self {
        // A variable that is no UTF-8 shows by its replacement characters, which `load` refuses.
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| setting_path(name).is_some())
            .collect();
        Self { file, environment, flags, own }
    }
}

/// The settings that `sources` give, or everything that is wrong with them.
pub fn load(sources: &Sources) -> Result<Settings, ConfigError> {
    let mut problems = Vec::new();
    let mut tree = defaults();
    if let Some(file) = &sources.file {
        lay_file(&mut tree, file, &mut problems);
    }
    lay_environment(&mut tree, &sources.environment, &mut problems);
    for flag in &sources.flags {
        lay_flag(&mut tree, flag, None, &mut problems);
    }
    for own in &sources.own {
        lay_flag(&mut tree, &own.setting, Some(own.origin), &mut problems);
    }
    match validate(&tree, &mut problems) {
        Some(settings) if problems.is_empty() => Ok(settings),
        Some(_) | None => Err(ConfigError::new(problems)),
    }
}

/// The tree of the defaults.
pub(super) fn defaults() -> Tree {
    let document = parse_yaml(DEFAULTS).expect("the defaults are YAML: a test loads them");
    Tree::of_defaults(&document.tree)
}

fn lay_file(tree: &mut Tree, file: &Path, problems: &mut Vec<Problem>) {
    let origin = format!("file {}", file.display());
    let fault = |path: &str, expected: &str, got: String| Problem {
        path: path.to_owned(),
        origin: origin.clone(),
        expected: expected.to_owned(),
        got,
    };
    let text = match read_file(file) {
        Ok(text) => text,
        Err((expected, got)) => return problems.push(fault(WHOLE, &expected, got)),
    };
    match parse_yaml(&text) {
        Ok(document) => {
            for path in document.duplicates {
                problems.push(fault(&path, "one value", "the same key again".to_owned()));
            }
            // A file in which everything is commented out sets nothing.
            if !document.tree.is_null() {
                tree.lay("", document.tree, &origin, problems);
            }
        }
        Err(error) => problems.push(fault(WHOLE, "a YAML mapping", error.to_string())),
    }
}

/// The file's text, or what was expected of it and what came.
fn read_file(file: &Path) -> Result<String, (String, String)> {
    let mut bytes = Vec::new();
    // Read to one byte past the limit rather than ask for the size: a pipe has none.
    File::open(file)
        .and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| ("a readable file".to_owned(), error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err((format!("at most {MAX_FILE_BYTES} bytes"), "more".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ("UTF-8 text".to_owned(), format!("another byte at offset {at}"))
    })
}

fn lay_environment(tree: &mut Tree, environment: &BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for (name, text) in environment {
        let Some(path) = setting_path(name) else { continue };
        let origin = format!("environment {name}");
        let earlier = names.insert(path.clone(), name);
        if let Some(earlier) = earlier {
            let expected = format!("one variable for this key, as {earlier} sets it too");
            problems.push(Problem { path, origin, expected, got: shown_text(text) });
        } else if text.contains(char::REPLACEMENT_CHARACTER) {
            problems.push(Problem { path, origin, expected: "UTF-8 text".to_owned(), got: shown_text(text) });
        } else if path.is_empty() {
            let expected = "a variable named LOOKALIKE__SECTION__KEY".to_owned();
            problems.push(Problem { path: WHOLE.to_owned(), origin, expected, got: shown_text(name) });
        } else {
            tree.lay(&path, scalar(text), &origin, problems);
        }
    }
}

/// The key that an environment variable sets, if it is a setting.
fn setting_path(name: &str) -> Option<String> {
    let (prefix, rest) = name.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then(|| rest.to_lowercase().replace("__", "."))
}

/// Lays `key.path=value`, which came from `--set` unless another origin is said.
fn lay_flag(tree: &mut Tree, flag: &str, origin: Option<&str>, problems: &mut Vec<Problem>) {
    match flag.split_once('=') {
        Some((path, text)) if !path.trim().is_empty() => {
            let path = path.trim();
            let origin = origin.map_or_else(|| format!("flag --set {path}"), str::to_owned);
            tree.lay(path, scalar(text), &origin, problems);
        }
        Some(_) | None => problems.push(Problem {
            path: WHOLE.to_owned(),
            origin: origin.unwrap_or("flag --set").to_owned(),
            expected: "key.path=value".to_owned(),
            got: shown_text(flag),
        }),
    }
}

/// A value given as text: a YAML scalar if it reads as one. Anything else is the text itself, so that a name with a
/// colon or a bracket needs no quotes.
fn scalar(text: &str) -> Value {
    match parse_yaml(text) {
        Ok(Document { tree: Value::Object(_) | Value::Array(_), .. }) | Err(_) => Value::from(text.trim()),
        Ok(document) => document.tree,
    }
}

fn parse_yaml(text: &str) -> Result<Document, serde_yaml::Error> {
    Document::read(serde_yaml::Deserializer::from_str(text))
}

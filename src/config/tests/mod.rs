//! Tests of the whole: sources in, settings or problems out.

mod sources;
mod values;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use tempfile::NamedTempFile;

use super::*;

fn sources(file: Option<&Path>, environment: &[(&str, &str)], flags: &[&str]) -> Sources {
    let environment: BTreeMap<String, String> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources {
        file: file.map(Path::to_owned),
        environment,
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        own: Vec::new(),
    }
}

fn with_flags(flags: &[&str]) -> Result<Settings, ConfigError> {
    load(&sources(None, &[], flags))
}

fn file(text: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    file
}

fn lines(error: &ConfigError) -> Vec<String> {
    error.problems().iter().map(ToString::to_string).collect()
}

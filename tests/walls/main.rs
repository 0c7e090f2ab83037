//! The rules of the house, held by reading the source: who may name whom, and what a file must be. ARCHITECTURE.md says why.
//!
//! It builds nothing of the crate, so that it runs in a moment. Every check is tried on bad text too: one that cannot fail
//! holds nothing.

mod checks;
mod layers;
mod planted;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use text::Source;

/// Every file below `folder` whose name ends so, with its text.
fn sources(folder: &str, ending: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                found.push(Source::new(name, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} below {folder}");
    found
}

/// No check has anything to say of any file.
fn hold(sources: &[Source], checks: &[fn(&Source) -> Vec<String>]) {
    let faults: Vec<String> =
        sources.iter().flat_map(|source| checks.iter().flat_map(|check| check(source))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn imports_run_one_way() {
    let sources = sources("src", ".rs");
    hold(&sources, &[layers::against_the_order]);
    // Every folder of src/ is a layer that the table knows.
    let known = |source: &&Source| source.layer().is_none_or(|layer| layers::may_name(layer).is_some());
    assert_eq!(sources.iter().filter(|source| !known(source)).map(Source::path).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn crates_are_named_where_they_belong() {
    hold(&sources("src", ".rs"), &[checks::crates_out_of_place]);
}

#[test]
fn metrics_are_named_in_telemetry_alone() {
    hold(&sources("src", ".rs"), &[checks::metric_names_out_of_place]);
}

#[test]
fn source_is_finished_and_does_not_print() {
    hold(&sources("src", ".rs"), &[checks::no_head, checks::forbidden_words, checks::unwraps]);
    hold(&sources("tests", ".rs"), &[checks::no_head]);
}

#[test]
fn every_file_can_be_read_at_one_sitting() {
    for (folder, ending) in
        [("src", ".rs"), ("src", ".c"), ("tests", ".rs"), ("kernels", ".cl"), ("proto", ".proto")]
    {
        hold(&sources(folder, ending), &[checks::too_long]);
    }
}

#[test]
fn a_kernel_opens_with_what_it_is() {
    hold(&sources("kernels", ".cl"), &[checks::no_comment_first]);
}

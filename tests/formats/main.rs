//! Files as real tools write them, and files as they break.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod arrays;
#[path = "../common/mod.rs"]
mod common;
mod places;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use lookalike::gallery::formats::{self, FormatError, Vectors, npy};
use lookalike::gallery::{Progress, PrototypeRecord};
use tempfile::TempDir;

fn silent(_: Progress) {}

fn vectors(path: &Path) -> Result<Vectors, FormatError> {
    formats::read_vectors(path, &mut silent)
}

fn prototypes(path: &Path, labels: Option<&Path>) -> Result<Vec<PrototypeRecord>, FormatError> {
    formats::read_prototypes(path, labels, &mut silent)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A folder with one file in it.
fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    (folder, path)
}

/// What is wrong, without the folder's name, which differs from run to run.
fn message<T>(result: Result<T, FormatError>) -> String {
    let Err(error) = result else { panic!("expected an error") };
    let text = error.to_string();
    let folder_end = text.find(": ").and_then(|colon| text[..colon].rfind('/')).map_or(0, |slash| slash + 1);
    text[folder_end..].to_owned()
}

fn row(index: usize, dim: usize) -> Vec<f32> {
    (0..dim).map(|component| (index * dim + component) as f32 + 0.5).collect()
}

/// `count` rows of 4 components.
fn npy_file(count: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faces.npy");
    let rows: Vec<Vec<f32>> = (0..count).map(|index| row(index, 4)).collect();
    npy::write_f32(&path, 4, rows.iter().map(Vec::as_slice)).unwrap();
    (folder, path)
}

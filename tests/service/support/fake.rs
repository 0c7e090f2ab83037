//! An OpenCL loader that misbehaves as told (`tests/fixtures/fake_opencl/fake.c`), before this machine's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

use tempfile::TempDir;

use super::process::Program;

/// A loader that can be told to misbehave from some moment on.
pub(crate) struct Fake {
    library: PathBuf,
    /// Holds the file that says when.
    folder: TempDir,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self { library: build(), folder: TempDir::new().unwrap() }
    }

    fn moment(&self) -> PathBuf {
        self.folder.path().join("now")
    }

    /// A program on this loader, which does `told` (see the head of `fake.c`) from the start.
    pub(crate) fn always(&self, program: Program, told: &[(&str, &str)]) -> Program {
        let library = self.library.to_str().unwrap();
        told.iter().fold(program.env("LOOKALIKE_OPENCL_LIBRARY", library), |program, (name, value)| {
            program.env(&format!("FAKE_{name}"), value)
        })
    }

    /// The same between [`Self::begin`] and [`Self::end`].
    pub(crate) fn at_times(&self, program: Program, told: &[(&str, &str)]) -> Program {
        self.always(program, told).env("FAKE_WHEN", self.moment().to_str().unwrap())
    }

    pub(crate) fn begin(&self) {
        fs::write(self.moment(), b"").unwrap();
    }

    pub(crate) fn end(&self) {
        fs::remove_file(self.moment()).unwrap();
    }
}

/// Compiles the loader: put in its place whole, since tests run side by side.
fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (library, own) =
        (folder.join("libfake_opencl.so"), folder.join(format!("fake-{}.so", process::id())));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake_opencl/fake.c");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&own)
        .args([source, "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl", "-lm"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(own, &library).unwrap();
    library
}

//! The program as a process: what stands on stdout, how it ends, and that it runs where there is no OpenCL.

mod bench;
mod devices;
mod doctor;
mod galleries;
mod output;
mod tune;

use std::fs;
use std::path::Path;

use super::support::{Run, lookalike, sample_file};

/// The flags that import the sample into a folder.
fn import(data: &Path) -> Run {
    let (labels, vectors) = (sample_file("gallery.csv"), sample_file("gallery.npy"));
    let args = [
        "gallery",
        "import",
        "--data",
        text(data),
        "--model-id",
        "dlib_resnet_v1",
        "--threshold",
        "0.942",
        "--min-margin",
        "0.04",
        "--labels",
        text(&labels),
        text(&vectors),
        "--format",
        "json",
    ];
    lookalike().args(args).run()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs it with arguments parted by blanks, `@` standing for the folder.
fn run(folder: &Path, args: &str) -> Run {
    let args = args.split(' ').map(|arg| arg.replace('@', text(folder)));
    lookalike().args(args).env("LOOKALIKE__BACKEND__KIND", "cpu").run()
}

fn write(folder: &Path, name: &str, content: &str) {
    fs::write(folder.join(name), content).unwrap();
}

//! The kernels under oclgrind, which watches every access: no data race, no read of what was never written, no access outside a
//! buffer, no wrong call of the API.
//!
//! Oclgrind is used as a driver: a folder with one `.icd` file that names its library, given in `OCL_ICD_VENDORS`. (Its usual
//! way, `LD_PRELOAD`, cannot reach calls bound to the loader that is linked in.) So the scan runs in a process of its own: this test
//! binary, started again and told by the environment to scan. Needs the Debian package `oclgrind`.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use lookalike::backend::opencl::OpenClBackend;
use lookalike::backend::{Ask, Backend, Coverage, RowSet, ScreenJob, Screened};
use lookalike::config::{CacheDir, DeviceChoice, OpenClSettings};
use lookalike::domain::Matrix;

/// The test that a child process runs, and the variable that tells it that it is one.
const CHILD_TEST: &str = "oclgrind_finds_no_fault_in_the_kernels";
const CHILD: &str = "LOOKALIKE_TEST_CHILD";
const KERNEL_DIR: &str = "LOOKALIKE_TEST_KERNEL_DIR";

/// What `lanes.cl` has where it skips no row, and a fault in its place.
const SOUND: &str = "for (; held < TOPK; ++held) {";
const UNWRITTEN: &str = "for (; held + 1 < TOPK; ++held) {";
const OUTSIDE: &str = "for (; held <= TOPK; ++held) {";
const SOUND_LIST: &str =
    "const size_t list = ((size_t)probe * get_global_size(2) + segment) * LANES_PER_QUERY + lane;";
const SHARED_LIST: &str =
    "const size_t list = ((size_t)probe * get_global_size(2) + segment) * LANES_PER_QUERY;";

fn library() -> PathBuf {
    ["/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/local/lib/oclgrind/liboclgrind-rt-icd.so"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .expect("oclgrind's driver liboclgrind-rt-icd.so (apt-get install oclgrind)")
}

/// A folder with the kernels, `from` in `lanes.cl` replaced by `to`.
fn kernels_with(folder: &Path, from: &str, to: &str) {
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let lanes = folder.join("lanes.cl");
    let text = fs::read_to_string(&lanes).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    fs::write(lanes, text.replace(from, to)).unwrap();
}

/// Runs the child under oclgrind; gives whether it passed, what it printed, and oclgrind's log.
fn scan_under_oclgrind(kernel_dir: Option<&Path>) -> (bool, String, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("oclgrind.icd"), library().display().to_string()).unwrap();
    let log = folder.path().join("log");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", CHILD_TEST, "--nocapture"])
        .env(CHILD, "1")
        .env("OCL_ICD_VENDORS", folder.path())
        .env("OCLGRIND_LOG", &log)
        .env("OCLGRIND_CHECK_API", "1")
        .env("OCLGRIND_DATA_RACES", "1")
        .env("OCLGRIND_UNINITIALIZED", "1")
        // What the optimiser makes of a sum across a vector (a shuffle whose mask is partly undefined) crashes the check for
        // uninitialised values in oclgrind 21.10; and unoptimised, every access that is written is watched.
        .env("OCLGRIND_BUILD_OPTIONS", "-O0");
    if let Some(kernel_dir) = kernel_dir {
        child.env(KERNEL_DIR, kernel_dir);
    }
    let output = child.output().unwrap();
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(log).expect("oclgrind writes its log");
    (output.status.success(), printed, log)
}

#[test]
fn oclgrind_finds_no_fault_in_the_kernels() {
    if std::env::var_os(CHILD).is_some() {
        return scan();
    }
    let (passed, printed, log) = scan_under_oclgrind(None);
    assert!(passed && printed.contains("1 passed"), "{printed}\n{log}");
    assert_eq!(log.trim(), "", "oclgrind's log");
}

#[test]
fn oclgrind_reports_planted_faults() {
    for (fault, from, to, report) in [
        ("a place never written", SOUND, UNWRITTEN, "Uninitialized value"),
        ("a write beyond the list", SOUND, OUTSIDE, "data race"),
        ("lanes that share a list", SOUND_LIST, SHARED_LIST, "data race"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        kernels_with(folder.path(), from, to);
        let (_, printed, log) = scan_under_oclgrind(Some(folder.path()));
        assert!(log.contains(report), "{fault}: {log}\n{printed}");
    }
}

/// A unit vector with no pattern that a fault could hide in.
fn row(seed: usize, dim: usize) -> Vec<f32> {
    let values: Vec<f64> = (0..dim).map(|i| (((seed * 31 + i * 17) % 101) as f64 - 50.0) / 50.0).collect();
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    values.iter().map(|value| (value / norm) as f32).collect()
}

fn matrix(rows: usize, dim: usize, seed: usize) -> Matrix {
    let rows: Vec<Vec<f32>> = (0..rows).map(|place| row(seed + place, dim)).collect();
    Matrix::from_rows(dim, rows.iter().map(Vec::as_slice))
}

/// What the child process does.
fn scan() {
    let settings = OpenClSettings {
        device: DeviceChoice::Named("oclgrind".to_owned()),
        allow_cpu_devices: false,
        chunk_rows: 40,
        memory_limit_bytes: None,
        kernel_dir: std::env::var_os(KERNEL_DIR).map(PathBuf::from),
        cache_dir: CacheDir::Off,
    };
    let mut backend = OpenClBackend::open(&settings).unwrap();
    let (rows, probes) = (Arc::new(matrix(93, 13, 0)), matrix(5, 13, 500));
    let skips: Vec<RowSet> = (0..5).map(|probe| RowSet::from_ranges(vec![(probe, 2 * probe)])).collect();
    let mut loaded = backend.load(&rows).unwrap();
    // Lists, merged on the device; then, for more than a list holds, every score.
    let asks = |k| skips.iter().map(|skip| Ask { k, skip }).collect::<Vec<_>>();
    let mut found = Screened::default();
    loaded.screen(&ScreenJob { probes: &probes, asks: &asks(3), attempt: 0 }, &mut found).unwrap();
    assert!(found.probes.iter().all(|probe| matches!(probe.coverage, Coverage::AtMost(_))), "{found:?}");
    let mut loaded = backend.load(&Arc::new(matrix(300, 13, 0))).unwrap();
    loaded.screen(&ScreenJob { probes: &probes, asks: &asks(290), attempt: 0 }, &mut found).unwrap();
    assert!(found.probes.iter().all(|probe| probe.coverage == Coverage::All), "{found:?}");
}

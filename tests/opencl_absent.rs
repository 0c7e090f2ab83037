//! Machines without OpenCL: the program starts, and says at once what is missing.
//!
//! The OpenCL loader is opened once a process, so each case is a process of its own: this test binary, started again with another
//! environment and told by the environment to run the same test.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lookalike::backend::BackendError;
use lookalike::backend::opencl::{NoDeviceReason, OpenClBackend, devices};
use lookalike::config::{CacheDir, DeviceChoice, OpenClSettings};

fn settings() -> OpenClSettings {
    OpenClSettings {
        device: DeviceChoice::Auto,
        allow_cpu_devices: true,
        chunk_rows: 50_000,
        memory_limit_bytes: None,
        kernel_dir: None,
        cache_dir: CacheDir::Off,
    }
}

/// Tells a process that it is a child.
const CHILD: &str = "LOOKALIKE_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn run_child(name: &str, variable: &str, value: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .env(variable, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Asks for the devices twice over, by both ways, and checks what is said and how fast.
fn check_absence(reason: NoDeviceReason, text: &str) {
    let started = Instant::now();
    let survey = devices(&settings());
    let refused = OpenClBackend::open(&settings()).unwrap_err();
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    let absence = survey.chosen.unwrap_err();
    assert_eq!((absence.reason, absence.text.as_str()), (reason, text));
    assert!(survey.devices.is_empty());
    assert!(matches!(&refused, BackendError::NoDevice(said) if said.text == text), "{refused}");
}

#[test]
fn without_a_loader_the_survey_says_so_in_under_a_second() {
    if is_child() {
        check_absence(NoDeviceReason::NoLoader, "no OpenCL loader (libOpenCL.so.1) on this machine");
        assert_eq!(devices(&settings()).loader, None);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("libOpenCL.so.1");
    let name = "without_a_loader_the_survey_says_so_in_under_a_second";
    run_child(name, "LOOKALIKE_OPENCL_LIBRARY", &missing);
}

#[test]
fn without_a_driver_the_survey_says_so_in_under_a_second() {
    if is_child() {
        check_absence(NoDeviceReason::NoPlatform, "an OpenCL loader but no platform (no ICD installed)");
        assert!(devices(&settings()).loader.is_some());
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    run_child("without_a_driver_the_survey_says_so_in_under_a_second", "OCL_ICD_VENDORS", empty.path());
}

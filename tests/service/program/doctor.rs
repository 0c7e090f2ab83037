//! What the doctor finds on machines that lack something, and with drivers that misbehave.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::text;
use crate::support::{Fake, OPENCL, Program, lookalike};

/// The page and the exit code, without measurements.
fn examined(program: Program, set: &[&str]) -> (Value, Option<i32>) {
    let set = set.iter().flat_map(|flag| ["--set", flag]);
    let run = program.args(["doctor", "--no-rates", "--format", "json"]).args(set).run();
    let page = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", run.stdout, run.stderr));
    (page, run.code)
}

/// What is said of it, and whether that is wrong.
fn told(page: &Value, what: &str) -> (String, String) {
    let troubles = page["troubles"].as_array().unwrap();
    let found = troubles.iter().find(|trouble| trouble["what"].as_str().unwrap().contains(what));
    let found = found.unwrap_or_else(|| panic!("{what} in {page:#}"));
    (found["weight"].as_str().unwrap().to_owned(), found["advice"].as_str().unwrap().to_owned())
}

#[test]
fn no_opencl_at_all_is_wrong_only_where_it_is_asked_for() {
    let empty = TempDir::new().unwrap();
    let no_driver = || lookalike().env("OCL_ICD_VENDORS", text(empty.path()));
    let shadow = ["backend.kind=cpu", "shadow.enabled=true", "shadow.backend=opencl"];
    for (set, weight, code) in [
        (&["backend.kind=auto"][..], "note", 0),
        (&["backend.kind=cpu"], "note", 0),
        (&["backend.kind=opencl"], "wrong", 3),
        (&shadow, "wrong", 3),
    ] {
        let (page, ended) = examined(no_driver(), set);
        let (weighed, advice) = told(&page, "an OpenCL loader but no driver");
        assert_eq!((weighed.as_str(), ended), (weight, Some(code)), "{set:?}");
        assert!(advice.contains("pocl-opencl-icd"), "{advice}");
        assert_eq!(page["well"], code == 0);
    }
    let (page, code) = examined(lookalike().without_opencl(), &[]);
    // Somebody named a loader that is not there.
    assert_eq!(
        (told(&page, "LOOKALIKE_OPENCL_LIBRARY names /nonexistent").0.as_str(), code),
        ("wrong", Some(3))
    );
    assert_eq!(page["loader"], Value::Null);
}

#[test]
fn a_device_that_works_is_described() {
    let cache = TempDir::new().unwrap();
    let flag = format!("backend.opencl.cache_dir={}", text(cache.path()));
    let set: Vec<&str> = OPENCL.iter().copied().chain([flag.as_str()]).collect();
    let (page, code) = examined(lookalike(), &set);
    assert_eq!(code, Some(0), "{page:#}");
    let device = &page["devices"][0];
    assert_eq!(
        (&device["self_test"], &device["taken"], &device["kind"]),
        (&true.into(), &true.into(), &"cpu".into())
    );
    assert!(device["extensions"].as_array().unwrap().contains(&"cl_khr_fp64".into()), "{device}");
    assert!(
        page["programs"]["files"].as_u64().unwrap() >= 10,
        "the self-test filled it: {}",
        page["programs"]
    );
    assert!(
        page["surroundings"]["icds"]
            .as_array()
            .unwrap()
            .iter()
            .any(|icd| { icd["library"].as_str().unwrap().contains("pocl") && icd["trouble"].is_null() })
    );
    // A CPU is not taken unasked, which is no fault of the machine.
    let (page, code) = examined(lookalike(), &[&flag]);
    assert_eq!((told(&page, "no GPU among the one device").0.as_str(), code), ("note", Some(0)));
    assert_eq!(page["devices"][0]["self_test"], Value::Null);
}

#[test]
fn a_driver_that_crashes_or_hangs_is_wrong() {
    let fake = Fake::new();
    for (action, function, what) in [
        ("segv", "clGetPlatformIDs", "its driver crashed with signal 11 (SIGSEGV) in the OpenCL loader"),
        ("hang", "clGetDeviceIDs", "the driver of Portable Computing Language gave no answer within 2s"),
        ("error", "clBuildProgram", "failed: self-test: one row: OpenCL kernel"),
    ] {
        let program = fake.always(lookalike(), &[("ACTION", action), ("FUNCTION", function)]);
        let limit = if action == "hang" { "2s" } else { "1m" };
        let limit = format!("backend.opencl.probe_timeout={limit}");
        let (page, code) = examined(program, &["backend.opencl.allow_cpu_devices=true", &limit]);
        let (weight, advice) = told(&page, what);
        assert_eq!((weight.as_str(), code), ("wrong", Some(3)), "{action}");
        assert!(advice.contains("backend.opencl.device"), "{advice}");
    }
}

#[test]
fn a_driver_entry_that_names_nothing_of_use_is_wrong() {
    let folder = TempDir::new().unwrap();
    let entry = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    let pocl = fs::read_to_string("/etc/OpenCL/vendors/pocl.icd").unwrap();
    entry("pocl.icd", &pocl);
    entry("gone.icd", "/opt/vendor/libgone.so.1\n");
    entry("text.icd", &format!("{}\n", text(&folder.path().join("empty.icd"))));
    entry("empty.icd", "");
    let program = lookalike().env("OCL_ICD_VENDORS", text(folder.path()));
    let (page, code) = examined(program, &OPENCL);
    assert_eq!(code, Some(3));
    assert_eq!(told(&page, "gone.icd (names /opt/vendor/libgone.so.1) is of no use: ").0, "wrong");
    assert_eq!(told(&page, "text.icd").0, "wrong");
    assert!(told(&page, "empty.icd is of no use: it names no library").1.contains("remove the file"));
    // The others are used all the same.
    assert_eq!(page["taken"], true);
}

#[test]
fn a_cache_that_cannot_be_written_is_told() {
    let set: Vec<&str> = OPENCL.iter().copied().chain(["backend.opencl.cache_dir=/proc"]).collect();
    let (page, code) = examined(lookalike(), &set);
    assert_eq!(
        (told(&page, "compiled kernels cannot be kept in /proc").0.as_str(), code),
        ("wrong", Some(3))
    );
}

#[test]
fn the_page_holds_what_was_measured() {
    let set = OPENCL.iter().flat_map(|flag| ["--set", flag]);
    let run = lookalike().args(["doctor"]).args(set).run();
    let page = run.ok();
    for line in
        ["loader", "driver entries", "platform", "device 0:0", "cpu scans", "opencl scans", "memory", "GB/s"]
    {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(page.ends_with("nothing stands in the way of backend.kind: opencl\n"), "{page}");
}

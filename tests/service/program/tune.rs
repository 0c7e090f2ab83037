//! `lookalike tune`, and what serves after it.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{OPENCL, lookalike};

/// Runs it with OpenCL on PoCL, and what is kept of devices in a folder.
fn run(cache: &TempDir, args: &str) -> crate::support::Run {
    let cache = format!("backend.opencl.cache_dir={}", cache.path().display());
    lookalike().args(args.split(' ')).args(["--set", OPENCL[2], "--set", &cache]).run()
}

#[test]
fn tune_measures_tells_and_keeps_the_best() {
    let cache = TempDir::new().unwrap();
    let kernels = |run: crate::support::Run| {
        let told: Value = run.json();
        let chosen = told["chosen"][0].as_u64().unwrap() as usize;
        told["devices"][chosen]["kernels"].clone()
    };
    let before = kernels(run(&cache, "devices --format json"));
    assert_eq!(before["tuned"], false, "{before}");
    let made = "--quick --rows 2003 --probes-count 7 --dim 24 --top-k 8 --repeat 1";
    let report = run(&cache, &format!("tune {made} --seconds 12 --format json")).json();
    let counts = ["rows", "rows_asked", "probes", "dim", "top_k", "list", "repeats"];
    assert_eq!(counts.map(|key| report[key].as_u64()), [2003, 2003, 7, 24, 8, 8, 1].map(Some), "{report}");
    assert_eq!(report["kind"], "cpu");
    let names: Vec<&str> = report["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| table["experiment"].as_str().unwrap())
        .collect();
    let named = [
        "lanes per probe",
        "stages",
        "vector width",
        "accumulators",
        "register pressure",
        "top-k strategy",
        "top-k size",
        "probes interleaved",
        "rows x probes a work-item",
        "blocks that take turns",
    ];
    assert_eq!(names, named);
    let winner = &report["winner"];
    assert_eq!(winner["verdict"], "right");
    // A line's two rates are of the same work: each comparison is 24 products and 24 sums.
    let of = |key: &str| winner[key].as_f64().unwrap();
    assert!((of("gops") - of("mvectors_per_s") * 0.048).abs() < 1e-9 * of("gops"), "{winner}");
    let after = kernels(run(&cache, "devices --format json"));
    assert_eq!((&after["tuned"], &after["many"]), (&Value::Bool(true), &winner["variant"]));
    assert_eq!(after["few"], before["few"]);
}

#[test]
fn tune_out_of_time_says_so() {
    let cache = TempDir::new().unwrap();
    let run = run(&cache, "tune --rows 500 --probes-count 2 --dim 8 --top-k 3 --seconds 1");
    let text = run.ok();
    assert!(text.contains("lanes per probe") && text.contains("not measured: out of time"), "{text}");
}

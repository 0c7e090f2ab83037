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

use lookalike::backend::opencl::{self, OpenClBackend};
use lookalike::backend::{Ask, Backend, Coverage, RowSet, ScreenJob, Screened};
use lookalike::config::{self, CacheDir, DeviceChoice, OpenClScan, OpenClSettings, Sources};
use lookalike::domain::Matrix;

/// The test that a child process runs, and the variable that tells it that it is one.
const CHILD_TEST: &str = "oclgrind_finds_no_fault_in_the_kernels";
const CHILD: &str = "LOOKALIKE_TEST_CHILD";
const KERNEL_DIR: &str = "LOOKALIKE_TEST_KERNEL_DIR";

/// Places of the kernels, and a fault for each.
const PLANTED: [(&str, Fault); 3] = [
    (
        "a place never written",
        Fault {
            file: "lists.cl",
            sound: "for (uint place = state->held; place < TOPK; ++place) {",
            wrong: "for (uint place = state->held; place + 1 < TOPK; ++place) {",
            report: "Uninitialized value",
        },
    ),
    (
        "a write beyond the list",
        Fault {
            file: "lists.cl",
            sound: "for (uint place = state->held; place < TOPK; ++place) {",
            wrong: "for (uint place = state->held; place <= TOPK; ++place) {",
            report: "data race",
        },
    ),
    (
        "lanes that share a list",
        Fault {
            file: "lanes.cl",
            sound: "((size_t)segment * LANES_PER_QUERY + lane) * TOPK;",
            wrong: "((size_t)segment * LANES_PER_QUERY) * TOPK;",
            report: "data race",
        },
    ),
];

/// What a file has, what stands there instead, and what oclgrind says of that.
struct Fault {
    file: &'static str,
    sound: &'static str,
    wrong: &'static str,
    report: &'static str,
}

/// Kernels of the family as `lookalike tune` keeps them: the first is what a GPU would be given.
const VARIANTS: [&str; 4] = [
    r#"{"lanes": 8, "strategy": "threshold_min_replace", "dot": {"single":
        {"width": "both_four", "accumulators": 4, "unroll": 1, "probe": "in_memory", "tile": 16}}}"#,
    r#"{"lanes": 4, "strategy": "sorted_insertion", "dot": {"single":
        {"width": "rows_four", "accumulators": 1, "unroll": 2, "probe": "private", "tile": 1}}}"#,
    r#"{"lanes": 1, "strategy": "min_replace", "dot": {"single":
        {"width": "both_eight", "accumulators": 4, "unroll": 4, "probe": "in_memory", "tile": 16}}}"#,
    r#"{"lanes": 2, "strategy": "min_replace", "dot": {"block": {"rows": 2, "probes": 4, "turns": 4}}}"#,
];

fn library() -> PathBuf {
    ["/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/local/lib/oclgrind/liboclgrind-rt-icd.so"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .expect("oclgrind's driver liboclgrind-rt-icd.so (apt-get install oclgrind)")
}

/// A folder with the kernels, one of them faulty.
fn kernels_with(folder: &Path, fault: &Fault) {
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let path = folder.join(fault.file);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(fault.sound).count(), 1, "{}", fault.sound);
    fs::write(path, text.replace(fault.sound, fault.wrong)).unwrap();
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
    for (name, fault) in &PLANTED {
        let folder = tempfile::tempdir().unwrap();
        kernels_with(folder.path(), fault);
        let (_, printed, log) = scan_under_oclgrind(Some(folder.path()));
        assert!(log.contains(fault.report), "{name}: {log}\n{printed}");
    }
}

/// A unit vector with no pattern that a fault could hide in; others of other seeds.
fn row(seed: usize, dim: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    // The first few hardly depend on the seed.
    (0..3).for_each(|_| _ = next());
    let values: Vec<f64> = (0..dim).map(|_| next()).collect();
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    values.iter().map(|value| (value / norm) as f32).collect()
}

fn matrix(rows: usize, dim: usize, seed: usize) -> Matrix {
    let rows: Vec<Vec<f32>> = (0..rows).map(|place| row(seed + place, dim)).collect();
    Matrix::from_rows(dim, rows.iter().map(Vec::as_slice))
}

/// What the child process does: with the kernels of the device's kind and then with others, or with the first of those alone where
/// they come from a folder.
fn scan() {
    let kernel_dir = std::env::var_os(KERNEL_DIR).map(PathBuf::from);
    if kernel_dir.is_none() {
        scan_with(None, None);
        scan_tiles();
    }
    let count = if kernel_dir.is_some() { 1 } else { VARIANTS.len() };
    for variant in &VARIANTS[..count] {
        scan_with(kernel_dir.as_deref(), Some(variant));
    }
}

fn scan_with(kernel_dir: Option<&Path>, variant: Option<&str>) {
    let cache = tempfile::tempdir().unwrap();
    let settings = OpenClSettings {
        device: DeviceChoice::Named("oclgrind".to_owned()),
        chunk_rows: 40,
        kernel_dir: kernel_dir.map(Path::to_owned),
        cache_dir: CacheDir::Folder(cache.path().to_owned()),
        ..config::load(&Sources::default()).unwrap().backend.opencl
    };
    if let Some(variant) = variant {
        tune(&settings, cache.path(), variant);
    }
    let mut backend = OpenClBackend::open(&settings).unwrap();
    let (rows, probes) = (Arc::new(matrix(93, 13, 0)), matrix(5, 13, 500));
    let skips: Vec<RowSet> = (0..5).map(|probe| RowSet::from_ranges(vec![(probe, 2 * probe)])).collect();
    let mut loaded = backend.load(&rows).unwrap();
    let asks = |k| skips.iter().map(|skip| Ask { k, skip }).collect::<Vec<_>>();
    let mut found = Screened::default();
    loaded.screen(&ScreenJob { probes: &probes, asks: &asks(3), attempt: 0 }, &mut found).unwrap();
    assert!(found.probes.iter().all(|probe| matches!(probe.coverage, Coverage::AtMost(_))), "{found:?}");
    // Few probes have a kernel of their own.
    let few = matrix(2, 13, 700);
    loaded.screen(&ScreenJob { probes: &few, asks: &asks(3)[..2], attempt: 0 }, &mut found).unwrap();
    assert!(found.probes.iter().all(|probe| matches!(probe.coverage, Coverage::AtMost(_))), "{found:?}");
    // More than a list holds: every score.
    let mut loaded = backend.load(&Arc::new(matrix(261, 13, 0))).unwrap();
    loaded.screen(&ScreenJob { probes: &few, asks: &asks(261)[..2], attempt: 0 }, &mut found).unwrap();
    assert!(found.probes.iter().all(|probe| probe.coverage == Coverage::All), "{found:?}");
}

/// The tiled scans: of few rows, of more equal ones than an answer holds, and, in bytes, of so many that a sample is scored first.
fn scan_tiles() {
    for scan in [OpenClScan::Bytes, OpenClScan::Floats] {
        let settings = OpenClSettings {
            device: DeviceChoice::Named("oclgrind".to_owned()),
            scan,
            cache_dir: CacheDir::Off,
            ..config::load(&Sources::default()).unwrap().backend.opencl
        };
        let mut backend = OpenClBackend::open(&settings).unwrap();
        // Floats are for many probes only.
        let probes = matrix(if scan == OpenClScan::Floats { 33 } else { 3 }, 13, 500);
        let skips: Vec<RowSet> =
            (0..probes.rows() as u32).map(|probe| RowSet::from_ranges(vec![(probe, 2 * probe)])).collect();
        let asks = skips.iter().map(|skip| Ask { k: 3, skip }).collect::<Vec<_>>();
        let equal = Matrix::from_rows(13, vec![&*row(0, 13); 93]);
        let mut cases = vec![(equal, Coverage::Unknown), (matrix(93, 13, 0), Coverage::Exact)];
        if scan == OpenClScan::Bytes {
            // Of floats, so many rows times so many probes would take minutes.
            cases.push((matrix(4097, 13, 0), Coverage::Exact));
        }
        for (rows, coverage) in cases {
            let mut loaded = backend.load(&Arc::new(rows)).unwrap();
            let mut found = Screened::default();
            loaded.screen(&ScreenJob { probes: &probes, asks: &asks, attempt: 0 }, &mut found).unwrap();
            assert!(found.probes.iter().all(|probe| probe.coverage == coverage), "{scan:?}: {found:?}");
        }
    }
}

/// Writes what `lookalike tune` would, had it found `variant` fastest, and sees that it is taken.
fn tune(settings: &OpenClSettings, folder: &Path, variant: &str) {
    let survey = opencl::devices(settings);
    let device = survey.taken().unwrap()[0];
    let plain = |text: &str| text.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '.'), "-");
    let [platform, name, driver] = [&device.platform, &device.name, &device.driver];
    let text = format!(
        r#"{{"format": 1, "platform": {platform:?}, "device": {name:?}, "driver": {driver:?},
            "variants": {{"few": {variant}, "many": {variant}}}}}"#
    );
    let file = format!("tuned_{}_{}_{}.json", plain(platform), plain(name), plain(driver));
    fs::write(folder.join(file), text).unwrap();
    let kernels = opencl::kernels(settings, device);
    assert!(kernels.tuned && kernels.few == kernels.many, "{kernels:?}");
}

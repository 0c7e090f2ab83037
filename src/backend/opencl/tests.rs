//! The backend on a real driver, PoCL, against a plain `f64` reference. They fail where PoCL is missing.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use crate::backend::{Ask, Backend, BackendError, Coverage, Loaded, RowSet, ScreenJob, Screened};
use crate::config::{self, CacheDir, DeviceChoice, OpenClSettings, Sources};
use crate::domain::Matrix;

use super::lanes::Tuning;
use super::tune::{check_candidates, exact_scores};
use super::{DeviceKind, NoDeviceReason, OpenClBackend, Share, devices};

pub(super) fn settings() -> OpenClSettings {
    OpenClSettings {
        device: DeviceChoice::Named("Portable Computing Language".to_owned()),
        cache_dir: CacheDir::Off,
        ..config::load(&Sources::default()).unwrap().backend.opencl
    }
}

pub(super) fn open(settings: &OpenClSettings) -> OpenClBackend {
    OpenClBackend::open(settings).unwrap_or_else(|error| {
        panic!("these tests need PoCL (apt-get install pocl-opencl-icd): {error}; {:#?}", devices(settings))
    })
}

/// `rows` unit vectors; every fifth repeats the one before it.
pub(super) fn unit_rows(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut matrix = Matrix::with_capacity(rows, dim);
    let mut row = vec![0.0_f32; dim];
    for place in 0..rows {
        if place % 5 != 4 {
            let values: Vec<f64> = (0..dim).map(|_| StandardNormal.sample(&mut random)).collect();
            let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            row = values.iter().map(|value| (value / norm) as f32).collect();
        }
        matrix.push(&row);
    }
    matrix
}

struct Case<'a> {
    rows: &'a Matrix,
    probes: &'a Matrix,
    skips: &'a [RowSet],
    k: usize,
    attempt: u32,
}

impl Case<'_> {
    fn asks(&self) -> Vec<Ask<'_>> {
        ask_each(self.skips, self.k)
    }

    fn screen(&self, loaded: &mut dyn Loaded) -> Result<Screened, BackendError> {
        screen(loaded, self.probes, &self.asks(), self.attempt)
    }

    /// Screens and checks all that was promised.
    fn check(&self, loaded: &mut dyn Loaded) -> Screened {
        let screened = self.screen(loaded).unwrap();
        check(self.rows, self.probes, &self.asks(), &screened);
        screened
    }
}

fn screen(
    loaded: &mut dyn Loaded,
    probes: &Matrix,
    asks: &[Ask<'_>],
    attempt: u32,
) -> Result<Screened, BackendError> {
    let mut screened = Screened::default();
    loaded.screen(&ScreenJob { probes, asks, attempt }, &mut screened)?;
    Ok(screened)
}

fn check(rows: &Matrix, probes: &Matrix, asks: &[Ask<'_>], screened: &Screened) {
    assert_eq!(screened.probes.len(), probes.rows());
    assert_eq!(screened.invalid_indices, 0);
    for (place, (found, ask)) in screened.probes.iter().zip(asks).enumerate() {
        let exact = exact_scores(probes.row(place), rows);
        check_candidates(found, &exact, *ask).unwrap_or_else(|wrong| panic!("probe {place}: {wrong}"));
    }
}

pub(super) fn no_skips(probes: usize) -> Vec<RowSet> {
    vec![RowSet::default(); probes]
}

/// Every third probe skips nothing, the others ranges here and there, one of them everything.
pub(super) fn some_skips(probes: usize, rows: usize) -> Vec<RowSet> {
    let rows = rows as u32;
    (0..probes as u32)
        .map(|probe| match probe % 3 {
            0 if probe == 3 => RowSet::from_ranges(vec![(0, rows)]),
            0 => RowSet::default(),
            1 => RowSet::from_ranges(vec![(probe % rows, rows.min(probe % rows + 5))]),
            _ => RowSet::from_ranges(
                (0..rows).step_by(7).map(|row| (row, rows.min(row + 1 + probe % 4))).collect(),
            ),
        })
        .collect()
}

#[test]
fn odd_sizes_agree_with_the_reference() {
    check_odd_sizes(Tuning::NARROW);
}

#[test]
fn odd_sizes_agree_with_the_reference_when_laid_out_for_a_gpu() {
    check_odd_sizes(Tuning::WIDE);
}

fn check_odd_sizes(tuning: Tuning) {
    let mut backend = open(&settings());
    backend.engine.borrow_mut().tuning = tuning;
    for (rows, probes, dim, k) in [
        (1, 1, 1, 1),
        (7, 7, 93, 1),
        (93, 1, 7, 7),
        (144, 93, 144, 5),
        (997, 17, 128, 32),
        (4099, 7, 93, 100),
        (4096, 257, 16, 1),
        (1009, 5, 16, 300),
        (997, 5, 93, 93),
        (1009, 3, 7, 144),
        (93, 4096, 7, 3),
        (5003, 3, 16, 4096),
    ] {
        let matrix = Arc::new(unit_rows(rows, dim, rows as u64));
        let probes = unit_rows(probes, dim, 1_000_000);
        let mut loaded = backend.load(&matrix).unwrap();
        for skips in [no_skips(probes.rows()), some_skips(probes.rows(), rows)] {
            let case = Case { rows: &matrix, probes: &probes, skips: &skips, k, attempt: 0 };
            case.check(&mut *loaded);
        }
    }
}

#[test]
fn k_beyond_the_rows_gives_all_of_them() {
    let mut backend = open(&settings());
    for rows in [7, 93, 600] {
        let matrix = Arc::new(unit_rows(rows, 93, 5));
        let mut loaded = backend.load(&matrix).unwrap();
        let skips = some_skips(7, rows);
        let case =
            Case { rows: &matrix, probes: &unit_rows(7, 93, 6), skips: &skips, k: rows + 7, attempt: 0 };
        let screened = case.check(&mut *loaded);
        assert!(screened.probes.iter().all(|found| found.coverage == Coverage::All), "{rows} rows");
    }
}

#[test]
fn lists_beyond_the_devices_are_chosen_on_the_host() {
    let mut backend = open(&settings());
    let matrix = Arc::new(unit_rows(4099, 144, 7));
    let mut loaded = backend.load(&matrix).unwrap();
    let skips = some_skips(7, 4099);
    let case = Case { rows: &matrix, probes: &unit_rows(7, 144, 8), skips: &skips, k: 300, attempt: 0 };
    case.check(&mut *loaded);
}

#[test]
fn scores_beyond_one_launch_are_all_seen() {
    let mut backend = open(&settings());
    // 256 probes leave room for 8192 rows a launch.
    let matrix = Arc::new(unit_rows(8209, 16, 24));
    let mut loaded = backend.load(&matrix).unwrap();
    let skips = some_skips(256, 8209);
    let case = Case { rows: &matrix, probes: &unit_rows(256, 16, 25), skips: &skips, k: 300, attempt: 0 };
    case.check(&mut *loaded);
}

#[test]
fn each_probe_gets_what_its_own_k_asks_for() {
    let mut backend = open(&settings());
    let matrix = Arc::new(unit_rows(1009, 16, 27));
    let mut loaded = backend.load(&matrix).unwrap();
    let (probes, skips) = (unit_rows(4, 16, 28), some_skips(4, 1009));
    // Lists on the device; then, as one wants more than a list holds, every score.
    for (ks, counts) in [([1, 100, 20, 5], [16, 128, 32, 0]), ([1, 300, 20, 5], [16, 375, 32, 0])] {
        let asks: Vec<Ask<'_>> = ks.iter().zip(&skips).map(|(&k, skip)| Ask { k, skip }).collect();
        let screened = screen(&mut *loaded, &probes, &asks, 0).unwrap();
        check(&matrix, &probes, &asks, &screened);
        let found: Vec<usize> = screened.probes.iter().map(|found| found.rows.len()).collect();
        assert_eq!(found, counts, "k {ks:?}");
    }
}

#[test]
fn a_further_attempt_returns_more() {
    let mut backend = open(&settings());
    let matrix = Arc::new(unit_rows(1009, 16, 9));
    let mut loaded = backend.load(&matrix).unwrap();
    let (probes, skips) = (unit_rows(4, 16, 10), no_skips(4));
    let mut counts = Vec::new();
    for attempt in 0..4 {
        let case = Case { rows: &matrix, probes: &probes, skips: &skips, k: 10, attempt };
        let screened = case.check(&mut *loaded);
        counts.push(screened.probes[0].rows.len());
    }
    assert_eq!(counts, [32, 128, 288, 1009]);
}

#[test]
fn chunks_of_any_size_shared_resident_or_streamed_agree_with_the_reference() {
    let matrix = Arc::new(unit_rows(144, 93, 11));
    let row_bytes = matrix.bytes() as u64 / 144;
    let (probes, skips) = (unit_rows(17, 93, 12), some_skips(17, 144));
    for chunk_rows in [1, 7, 50, 144, 1000] {
        // PoCL's devices have the host's memory. Streamed, two chunks are to fit.
        for (zero_copy, memory_limit_bytes, expected_bytes) in [
            (true, None, 0),
            (false, None, 144 * row_bytes),
            (false, Some(50 * row_bytes), 2 * chunk_rows.min(25) as u64 * row_bytes),
        ] {
            let settings = OpenClSettings { chunk_rows, zero_copy, memory_limit_bytes, ..settings() };
            let mut backend = open(&settings);
            let scratch_bytes = backend.engine.borrow().working_bytes();
            let mut loaded = backend.load(&matrix).unwrap();
            assert_eq!(loaded.device_bytes(), expected_bytes + scratch_bytes, "{chunk_rows} rows a chunk");
            // The second scan finds the buffers as the first left them.
            for k in [5, 5, 130, 130] {
                let case = Case { rows: &matrix, probes: &probes, skips: &skips, k, attempt: 0 };
                case.check(&mut *loaded);
            }
        }
    }
}

#[test]
fn a_share_of_the_rows_is_answered_by_the_gallery_s_numbers() {
    let matrix = Arc::new(unit_rows(997, 16, 17));
    let (probes, skips) = (unit_rows(7, 16, 18), some_skips(7, 997));
    let settings = settings();
    let survey = devices(&settings);
    for (place, rows) in [(0, 0..332_u32), (1, 332..664), (2, 664..997)] {
        let share = Share { place, of: 3 };
        let mut backend = OpenClBackend::open_device(&settings, survey.taken().unwrap()[0], share).unwrap();
        let mut loaded = backend.load(&matrix).unwrap();
        // What another device holds is left out here, and what a probe leaves out there does not matter.
        let elsewhere = [(0, rows.start), (rows.end, 997)];
        let own: Vec<RowSet> =
            skips.iter().map(|skip| RowSet::from_ranges([skip.ranges(), &elsewhere].concat())).collect();
        for k in [5, 400] {
            let screened = screen(&mut *loaded, &probes, &ask_each(&skips, k), 0).unwrap();
            check(&matrix, &probes, &ask_each(&own, k), &screened);
        }
    }
}

fn ask_each(skips: &[RowSet], k: usize) -> Vec<Ask<'_>> {
    skips.iter().map(|skip| Ask { k, skip }).collect()
}

#[test]
fn scores_of_streamed_chunks_are_chosen_on_the_host() {
    let matrix = Arc::new(unit_rows(997, 16, 13));
    let limit = matrix.bytes() as u64 / 2;
    let memory_limit_bytes = Some(limit);
    let mut backend =
        open(&OpenClSettings { chunk_rows: 93, zero_copy: false, memory_limit_bytes, ..settings() });
    let mut loaded = backend.load(&matrix).unwrap();
    let skips = some_skips(7, 997);
    let case = Case { rows: &matrix, probes: &unit_rows(7, 16, 14), skips: &skips, k: 400, attempt: 0 };
    case.check(&mut *loaded);
}

#[test]
fn rows_become_resident_once_another_gallery_gives_its_memory_back() {
    let matrix = Arc::new(unit_rows(144, 16, 15));
    let bytes = matrix.bytes() as u64;
    let memory_limit_bytes = Some(bytes + bytes / 2);
    let mut backend =
        open(&OpenClSettings { chunk_rows: 48, zero_copy: false, memory_limit_bytes, ..settings() });
    let first = backend.load(&matrix).unwrap();
    let mut second = backend.load(&matrix).unwrap();
    let (probes, skips) = (unit_rows(1, 16, 16), no_skips(1));
    let case = Case { rows: &matrix, probes: &probes, skips: &skips, k: 3, attempt: 0 };
    let rows_bytes = |backend: &OpenClBackend, bytes: u64| bytes - backend.engine.borrow().working_bytes();
    case.check(&mut *second);
    assert_eq!(rows_bytes(&backend, second.device_bytes()), 2 * bytes / 3);
    drop(first);
    case.check(&mut *second);
    assert_eq!(rows_bytes(&backend, second.device_bytes()), bytes);
}

#[test]
fn an_empty_gallery_answers_nothing() {
    let mut backend = open(&settings());
    let mut loaded = backend.load(&Arc::new(Matrix::with_capacity(0, 128))).unwrap();
    let skips = no_skips(2);
    let probes = unit_rows(2, 128, 17);
    let asks = [Ask { k: 5, skip: &skips[0] }; 2];
    for found in screen(&mut *loaded, &probes, &asks, 0).unwrap().probes {
        assert_eq!((found.rows, found.coverage), (Vec::new(), Coverage::All));
    }
}

#[test]
fn a_score_that_is_no_number_makes_the_coverage_unknown() {
    let mut backend = open(&settings());
    let mut matrix = unit_rows(20, 16, 18);
    matrix.push(&[f32::INFINITY; 16]);
    let mut loaded = backend.load(&Arc::new(matrix)).unwrap();
    let (probes, skips) = (unit_rows(1, 16, 19), no_skips(1));
    let screened = screen(&mut *loaded, &probes, &[Ask { k: 1000, skip: &skips[0] }], 0).unwrap();
    assert_eq!(screened.probes[0].coverage, Coverage::Unknown);
}

#[test]
fn time_is_told_by_stage() {
    let mut backend = open(&OpenClSettings { profiling: true, ..settings() });
    let matrix = Arc::new(unit_rows(4099, 128, 20));
    let mut loaded = backend.load(&matrix).unwrap();
    let (probes, skips) = (unit_rows(16, 128, 21), no_skips(16));
    let asks: Vec<Ask<'_>> = skips.iter().map(|skip| Ask { k: 32, skip }).collect();
    screen(&mut *loaded, &probes, &asks, 0).unwrap();
    let started = Instant::now();
    let timing = screen(&mut *loaded, &probes, &asks, 0).unwrap().timing;
    let total_ns = started.elapsed().as_nanos() as u64;
    assert!(timing.scan_ns > 0 && timing.device_merge_ns > 0 && timing.host_merge_ns > 0, "{timing:?}");
    assert!(
        timing.scan_ns + timing.device_merge_ns + timing.host_merge_ns <= total_ns,
        "{timing:?}, {total_ns}"
    );
}

/// A folder with the kernels, and settings that use it.
pub(super) fn own_kernels() -> (tempfile::TempDir, OpenClSettings) {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let settings = OpenClSettings { kernel_dir: Some(folder.path().to_owned()), ..settings() };
    (folder, settings)
}

#[test]
fn kernels_come_from_a_folder_and_a_bad_one_is_named_with_its_build_log() {
    let (folder, own) = own_kernels();
    let matrix = Arc::new(unit_rows(93, 16, 22));
    let (probes, skips) = (unit_rows(1, 16, 23), no_skips(1));
    let case = Case { rows: &matrix, probes: &probes, skips: &skips, k: 3, attempt: 0 };
    case.check(&mut *open(&own).load(&matrix).unwrap());

    fs::write(folder.path().join("lanes.cl"), "\nthis is no kernel;\n").unwrap();
    let error = case.screen(&mut *open(&own).load(&matrix).unwrap()).unwrap_err();
    let BackendError::Kernel { kernel, reason } = error else { panic!("{error}") };
    assert_eq!(kernel, "lanes.cl");
    assert!(reason.contains("lanes.cl:2") && reason.contains("-D DIM=16"), "{reason}");
}

#[test]
fn a_device_that_returns_rows_that_do_not_exist_is_found_out() {
    let (folder, own) = own_kernels();
    let path = folder.path().join("lanes.cl");
    let text = fs::read_to_string(&path).unwrap();
    let sound = "&states[p], score, number);";
    assert_eq!(text.matches(sound).count(), 1);
    // Row 5 is called row 1000.
    let wrong = "&states[p], score, number == 5 ? 1000 : number);";
    fs::write(&path, text.replace(sound, wrong)).unwrap();

    let matrix = Arc::new(unit_rows(93, 16, 26));
    let probe = Matrix::from_rows(16, [matrix.row(5), matrix.row(40)]);
    let skips = [RowSet::default(), RowSet::from_ranges(vec![(5, 6)])];
    let mut loaded = open(&own).load(&matrix).unwrap();
    let asks: Vec<Ask<'_>> = skips.iter().map(|skip| Ask { k: 3, skip }).collect();
    let screened = screen(&mut *loaded, &probe, &asks, 0).unwrap();
    assert_eq!(screened.invalid_indices, 1);
    assert_eq!(screened.probes[0].coverage, Coverage::Unknown);
    assert!(screened.probes[0].rows.iter().all(|candidate| candidate.row < 93));
    assert!(matches!(screened.probes[1].coverage, Coverage::AtMost(_)), "{:?}", screened.probes[1]);
}

#[test]
fn pocl_is_a_cpu_and_auto_takes_it_only_where_allowed() {
    let auto = OpenClSettings { device: DeviceChoice::Auto, ..settings() };
    let survey = devices(&auto);
    let pocl = survey.devices.iter().find(|device| device.platform == "Portable Computing Language");
    let pocl =
        pocl.unwrap_or_else(|| panic!("PoCL is missing (apt-get install pocl-opencl-icd): {survey:#?}"));
    assert_eq!(pocl.kind, DeviceKind::Cpu);
    assert!(
        pocl.global_memory_bytes > 0 && pocl.max_allocation_bytes > 0 && !pocl.driver.is_empty(),
        "{pocl:?}"
    );
    if survey.devices.iter().all(|device| device.kind == DeviceKind::Cpu) {
        assert_eq!(survey.chosen.unwrap_err().reason, NoDeviceReason::NoGpu);
        assert!(matches!(OpenClBackend::open(&auto), Err(BackendError::NoDevice(_))));
        let allowed = devices(&OpenClSettings { allow_cpu_devices: true, ..auto });
        assert!(allowed.chosen.is_ok(), "{allowed:#?}");
    }
    let numbered = DeviceChoice::Numbered { platform: pocl.platform_index, device: pocl.device_index };
    let backend = open(&OpenClSettings { device: numbered, ..settings() });
    assert!(backend.description().device.contains(&pocl.name), "{:?}", backend.description());
}

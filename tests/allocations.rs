//! A screen on the CPU allocates nothing once it has seen its like: counted by the allocator itself, so in a program of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lookalike::backend::cpu::CpuBackend;
use lookalike::backend::{Ask, Backend, RowSet, ScreenJob, Screened};
use lookalike::config::CpuSettings;
use lookalike::domain::Matrix;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
struct Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by nature")]
// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Unit vectors all over the sphere.
fn matrix(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut state = seed;
    let mut values = vec![0.0_f32; dim];
    let mut matrix = Matrix::with_capacity(rows, dim);
    for _ in 0..rows {
        for value in &mut values {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        }
        let norm = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        for value in &mut values {
            *value = (f64::from(*value) / norm) as f32;
        }
        matrix.push(&values);
    }
    matrix
}

/// Unit vectors near a plane of a few dimensions, for which long rows have an outline.
fn flat(rows: usize, dim: usize) -> Matrix {
    let (along, beside) = (matrix(rows, 12, 3), matrix(rows, dim, 4));
    let axes = matrix(12, dim, 5);
    let mut flat = Matrix::with_capacity(rows, dim);
    for row in 0..rows {
        let mut values: Vec<f32> = beside.row(row).iter().map(|value| 0.2 * value).collect();
        for axis in 0..12 {
            let along = along.row(row)[axis];
            values.iter_mut().zip(axes.row(axis)).for_each(|(value, axis)| *value += along * axis);
        }
        let norm = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        for value in &mut values {
            *value = (f64::from(*value) / norm) as f32;
        }
        flat.push(&values);
    }
    flat
}

/// In one test, since other threads' allocations would be counted too.
#[test]
fn a_screen_allocates_nothing_in_steady_state() {
    let threads = 2;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let settings = CpuSettings { threads, instructions: None };
    let mut backend = CpuBackend::new(Arc::new(pool), &settings).unwrap();
    let skip = RowSet::default();
    let mut screened = Screened::default();
    // In bytes, in outline first, and in `f32`, since so many rows are wanted that bytes would keep most.
    let galleries = [(matrix(40_000, 64, 1), 10), (flat(12_000, 256), 10), (matrix(4_000, 64, 1), 300)];
    for (rows, k) in galleries {
        let rows = Arc::new(rows);
        let mut loaded = backend.load(&rows).unwrap();
        for probes in [1, 40] {
            let probes = Matrix::from_rows(rows.dim(), (0..probes).map(|probe| rows.row(97 * probe)));
            let asks = vec![Ask { k, skip: &skip }; probes.rows()];
            let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
            // Which thread keeps which rows differs from scan to scan, so that lists grow for a while.
            for _ in 0..200 {
                loaded.screen(&job, &mut screened).unwrap();
            }
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let scans = 100;
            for _ in 0..scans {
                loaded.screen(&job, &mut screened).unwrap();
            }
            let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
            // The thread pool's own: handing work to each thread takes it a few, for each of the steps of a scan. The matrix crate
            // takes two for each block of rows, unless there is a single probe.
            let products = if k > 100 && probes.rows() > 1 { 2 * rows.rows().div_ceil(256) } else { 0 };
            assert!(
                allocated <= scans * (3 * (threads + 1) + products),
                "{allocated} in {scans} scans of {} probes, dim {}, k {k}",
                probes.rows(),
                rows.dim()
            );
        }
    }
}

//! Which of two backends scans a batch: the one that was faster for its size when the gallery was loaded.
//!
//! A device is slow to be asked and fast to answer: on many machines it wins large batches and loses small ones, and by how much depends on
//! the gallery. So both are timed at a few sizes, on probes made of the gallery's own rows; times in between are interpolated. A large
//! gallery is timed on the CPU by a part of its rows, whose time grows with their number.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::cpu::CpuBackend;
use crate::backend::{Ask, Backend, BackendError, Loaded, RowSet, ScreenJob, Screened};
use crate::domain::Matrix;
use crate::telemetry::{BackendName, Label};

/// Probes of the batches that are timed.
const SIZES: [usize; 4] = [1, 8, 64, 256];

/// Rows that a probe asks for when it is timed: as `lookalike bench` does.
const TOP_K: usize = 32;

/// Most rows that the CPU is timed on: beyond a processor's caches, and quantised in a second.
const SAMPLE_ROWS: usize = 200_000;

/// A size is timed so often, or for so long, whichever ends first; once at least.
const REPEATS: usize = 5;
const REPEAT_FOR: Duration = Duration::from_millis(200);

/// A gallery that has not grown or shrunk by more than this part since it was timed is not timed again.
const SAME_WITHIN: f64 = 0.25;

/// A size of batch, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTiming {
    /// Probes of the batch.
    pub probes: usize,
    /// Nanoseconds on the CPU.
    pub cpu_ns: u64,
    /// Nanoseconds on the device.
    pub device_ns: u64,
}

/// What was measured of a gallery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossover {
    /// By size, at least one.
    timings: Vec<BatchTiming>,
    /// Rows of the gallery.
    rows: usize,
    /// Most probes of a batch.
    most: usize,
}

/// What measuring gave.
pub(super) struct Measured {
    pub(super) crossover: Crossover,
    /// The gallery on the CPU, where all of it was got ready for measuring.
    pub(super) on_cpu: Option<Box<dyn Loaded>>,
}

impl Crossover {
    /// Times `device`, which holds the rows of `matrix`, against `cpu`, in batches of at most `most` probes. A gallery without rows has
    /// nothing to measure.
    pub(super) fn measure(
        device: &mut dyn Loaded,
        cpu: &mut CpuBackend,
        matrix: &Arc<Matrix>,
        most: usize,
    ) -> Result<Option<Measured>, BackendError> {
        let rows = matrix.rows();
        if rows == 0 {
            return Ok(None);
        }
        let sampled = if rows <= SAMPLE_ROWS { Arc::clone(matrix) } else { Arc::new(first(matrix)) };
        let mut on_cpu = cpu.load(&sampled)?;
        let sizes = SIZES.iter().filter(|size| **size <= most).copied();
        let mut timings = Vec::new();
        for probes in sizes {
            let asked = between(matrix, probes);
            let sample_ns = time(&mut *on_cpu, &asked)?;
            let cpu_ns = (u128::from(sample_ns) * rows as u128 / sampled.rows() as u128) as u64;
            timings.push(BatchTiming { probes, cpu_ns, device_ns: time(device, &asked)? });
        }
        let on_cpu = (sampled.rows() == rows).then_some(on_cpu);
        Ok(Some(Measured { crossover: Self { timings, rows, most }, on_cpu }))
    }

    /// Whether it holds for so many rows too.
    pub(super) fn holds_for(&self, rows: usize) -> bool {
        rows.abs_diff(self.rows) as f64 <= SAME_WITHIN * self.rows as f64
    }

    /// What would be measured of so many rows, if all times grow with their number: for a gallery that comes while others are
    /// served, who would have to wait for a measurement.
    pub(super) fn scaled(&self, rows: usize) -> Self {
        let scale = |ns: u64| (u128::from(ns) * rows as u128 / self.rows.max(1) as u128) as u64;
        let timing = |timing: &BatchTiming| BatchTiming {
            probes: timing.probes,
            cpu_ns: scale(timing.cpu_ns),
            device_ns: scale(timing.device_ns),
        };
        Self { timings: self.timings.iter().map(timing).collect(), rows, most: self.most }
    }

    /// By how many rows it differs.
    pub(super) fn distance(&self, rows: usize) -> usize {
        self.rows.abs_diff(rows)
    }

    /// Which backend scans a batch of so many probes.
    pub fn faster(&self, probes: usize) -> BackendName {
        let cpu = self.estimate(probes, |timing| timing.cpu_ns);
        let device = self.estimate(probes, |timing| timing.device_ns);
        if cpu < device { BackendName::Cpu } else { BackendName::OpenCl }
    }

    /// What was measured.
    pub fn timings(&self) -> &[BatchTiming] {
        &self.timings
    }

    /// Which batches, from one probe to the most there may be, are scanned by which backend.
    pub fn ranges(&self) -> Vec<(RangeInclusive<usize>, BackendName)> {
        let mut ranges: Vec<(RangeInclusive<usize>, BackendName)> = Vec::new();
        for probes in 1..=self.most {
            let backend = self.faster(probes);
            match ranges.last_mut() {
                Some((range, last)) if *last == backend => *range = *range.start()..=probes,
                Some(_) | None => ranges.push((probes..=probes, backend)),
            }
        }
        ranges
    }

    /// The backend that scans all batches, if one does.
    pub(super) fn always(&self) -> Option<BackendName> {
        match &*self.ranges() {
            [(_, backend)] => Some(*backend),
            _ => None,
        }
    }

    /// [`Self::ranges`] as a sentence.
    pub fn sentence(&self) -> String {
        let part =
            |(range, backend): &(RangeInclusive<usize>, BackendName)| match (range.start(), range.end()) {
                (1, 1) => format!("{} for 1 probe", backend.as_str()),
                (start, end) if start == end => format!("{} for {start} probes", backend.as_str()),
                (start, end) => format!("{} for {start} to {end} probes", backend.as_str()),
            };
        let parts: Vec<String> = self.ranges().iter().map(part).collect();
        format!("the faster one by measurement: {}", parts.join(", "))
    }

    /// How long a batch of so many probes takes, in nanoseconds: on the line between the sizes around it; beyond the last, as long a probe as
    /// that.
    fn estimate(&self, probes: usize, time: impl Fn(&BatchTiming) -> u64) -> f64 {
        let probes = probes as f64;
        let point = |timing: &BatchTiming| (timing.probes as f64, time(timing) as f64);
        let (mut size, mut ns) = (0.0, 0.0);
        for (next, (next_size, next_ns)) in self.timings.iter().map(point).enumerate() {
            if probes <= next_size {
                // Below the first there is nothing to go by.
                return if next == 0 {
                    next_ns
                } else {
                    ns + (next_ns - ns) * (probes - size) / (next_size - size)
                };
            }
            (size, ns) = (next_size, next_ns);
        }
        ns * probes / size
    }
}

fn first(matrix: &Matrix) -> Matrix {
    Matrix::from_rows(matrix.dim(), (0..SAMPLE_ROWS).map(|row| matrix.row(row)))
}

/// Probes that lie between two rows each, as strangers' faces and new pictures do: a row itself would be found too easily.
fn between(matrix: &Matrix, count: usize) -> Matrix {
    let rows = matrix.rows();
    let mut probes = Matrix::with_capacity(count, matrix.dim());
    let mut sum = vec![0.0_f32; matrix.dim()];
    for place in 0..count {
        let (one, other) = (place * rows / count, (place * rows / count + rows / 2 + place) % rows);
        for ((sum, a), b) in sum.iter_mut().zip(matrix.row(one)).zip(matrix.row(other)) {
            *sum = a + 0.5 * b;
        }
        // At least a half, even of rows that are opposite to one another.
        let norm = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        for value in &mut sum {
            *value /= norm;
        }
        probes.push(&sum);
    }
    probes
}

/// The median time of a scan for `probes`, in nanoseconds, after one to warm up.
fn time(rows: &mut dyn Loaded, probes: &Matrix) -> Result<u64, BackendError> {
    let none = RowSet::default();
    let asks = vec![Ask { k: TOP_K, skip: &none }; probes.rows()];
    let job = ScreenJob { probes, asks: &asks, attempt: 0 };
    let mut screened = Screened::default();
    rows.screen(&job, &mut screened)?;
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < REPEATS && (times.is_empty() || began.elapsed() < REPEAT_FOR) {
        let started = Instant::now();
        rows.screen(&job, &mut screened)?;
        times.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossover(timings: &[(usize, u64, u64)]) -> Crossover {
        let timings =
            timings.iter().map(|&(probes, cpu_ns, device_ns)| BatchTiming { probes, cpu_ns, device_ns });
        Crossover { timings: timings.collect(), rows: 1000, most: 256 }
    }

    #[test]
    fn batches_go_where_they_took_less() {
        // On the CPU 10 ns a probe; on the device 100 ns, and 1 ns a probe more.
        let both = crossover(&[(1, 10, 101), (16, 160, 116), (256, 2560, 356)]);
        let faster: Vec<_> = [1, 11, 12, 16, 256].map(|probes| both.faster(probes)).into();
        let (cpu, device) = (BackendName::Cpu, BackendName::OpenCl);
        assert_eq!(faster, [cpu, cpu, device, device, device]);
        assert_eq!(both.ranges(), [(1..=11, cpu), (12..=256, device)]);
        assert_eq!(
            both.sentence(),
            "the faster one by measurement: cpu for 1 to 11 probes, opencl for 12 to 256 probes"
        );
        assert_eq!(both.always(), None);
        // Beyond what was measured, in proportion.
        assert_eq!(both.faster(10_000), device);
        assert_eq!(crossover(&[(1, 10, 9)]).always(), Some(device));
        assert_eq!(crossover(&[(1, 9, 10), (8, 80, 90)]).always(), Some(cpu));
    }

    #[test]
    fn what_was_measured_holds_for_about_as_many_rows() {
        let measured = crossover(&[(1, 10, 9)]);
        assert!(measured.holds_for(751) && measured.holds_for(1250));
        assert!(!measured.holds_for(749) && !measured.holds_for(1251));
    }

    #[test]
    fn probes_for_measuring_are_unit_vectors() {
        let matrix = Matrix::from_rows(2, [&[1.0, 0.0][..], &[-1.0, 0.0], &[0.6, 0.8]]);
        for count in [1, 2, 7] {
            let probes = between(&matrix, count);
            assert_eq!(probes.rows(), count);
            for probe in 0..count {
                let norm = probes.row(probe).iter().map(|value| value * value).sum::<f32>();
                assert!((norm - 1.0).abs() < 1e-6, "{norm}");
            }
        }
    }
}

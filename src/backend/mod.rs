//! What scans a gallery: the trait, its job, its answer, its error.
//!
//! A backend scans fast and approximately; the engine verifies. For each probe it returns candidates with raw scores, and says
//! what it knows of the rows it left out ([`Coverage`]). Order of candidates is free, ties are free, and `raw` may differ from the
//! real dot product by at most [`Candidates::bound`]. One thread owns a backend and all it loaded; nothing here is `Send`.

pub mod cpu;
pub mod guard;
pub mod joined;
mod loading;
pub mod opencl;
pub mod reference;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::domain::Matrix;
use crate::telemetry::BackendName;

pub use loading::{Former, Loading, Ready};

/// What a backend is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Which it is.
    pub backend: BackendName,
    /// The processor or device.
    pub device: String,
    /// The device's driver version, or the code path in use.
    pub driver: String,
}

/// A way to scan.
pub trait Backend {
    /// What this is.
    fn description(&self) -> &Description;

    /// Makes a gallery's rows ready for scanning, wherever this backend wants them. Dropping the answer releases them.
    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError>;

    /// As [`Self::load`], a little at a time, while what was loaded before is scanned. A backend may take what it has of the
    /// `former` generation from there.
    fn begin(
        &mut self,
        rows: &Arc<Matrix>,
        _former: Option<Former<'_>>,
    ) -> Result<Box<dyn Loading>, BackendError> {
        Ok(Box::new(Ready::new(self.load(rows)?)))
    }
}

/// Rows made ready for scanning.
pub trait Loaded: Any {
    /// Finds candidates for every probe. Each probe's candidates hold distinct rows, none of which the probe skips.
    ///
    /// What was found before is overwritten in `into`, which is handed in again and again so that its memory is. After an error
    /// it holds nothing of use.
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError>;

    /// Probes are scanned together if this is the same for their k. All are, where each costs what its own k does; a backend that
    /// scans all probes of a job as widely as the one that asks for most keeps them apart by that.
    fn k_class(&self, _k: usize) -> usize {
        0
    }

    /// Bytes of device memory held; 0 where rows are scanned in place.
    fn device_bytes(&self) -> u64 {
        0
    }
}

/// What to scan for.
#[derive(Clone, Copy, Debug)]
pub struct ScreenJob<'a> {
    /// `f32[probes, dim]`, of the loaded rows' dim; at least one probe.
    pub probes: &'a Matrix,
    /// For each probe what is asked of it.
    pub asks: &'a [Ask<'a>],
    /// 0 at first; each time a certificate failed, one more: return more candidates.
    pub attempt: u32,
}

/// What one probe asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// How many of the first places the candidates must be able to fill; at least 1, may exceed the rows.
    pub k: usize,
    /// The rows to leave out.
    pub skip: &'a RowSet,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Screened {
    /// For each probe of the job, in its order.
    pub probes: Vec<Candidates>,
    /// Where the time went.
    pub timing: ScreenTiming,
    /// Row numbers that the device returned and that do not exist; the probes concerned are [`Coverage::Unknown`].
    pub invalid_indices: u64,
    /// Lists that a larger job used: the next one of that size finds their memory again.
    spare: Vec<Candidates>,
}

impl Screened {
    /// Most candidates of a probe whose memory is kept for the next job.
    const KEPT_CANDIDATES: usize = 4096;

    /// Makes room for a job of so many probes: as many emptied [`Candidates`], each with the memory it had; times and counts are 0.
    pub fn begin(&mut self, probes: usize) {
        while self.probes.len() > probes {
            self.spare.extend(self.probes.pop());
        }
        while self.probes.len() < probes {
            self.probes.push(self.spare.pop().unwrap_or_default());
        }
        for found in &mut self.probes {
            found.rows.clear();
            // One request for very many rows shall not hold its memory for ever.
            found.rows.shrink_to(Self::KEPT_CANDIDATES);
            found.coverage = Coverage::default();
            found.bound = 0.0;
        }
        self.timing = ScreenTiming::default();
        self.invalid_indices = 0;
    }
}

/// What a scan found for one probe.
#[derive(Debug, Default, PartialEq)]
pub struct Candidates {
    /// Physical rows with their raw scores.
    pub rows: Vec<Candidate>,
    /// What is known of the rows that are not among them.
    pub coverage: Coverage,
    /// How far a raw score in here may lie from the real dot product of probe and row.
    pub bound: f32,
}

/// One row that may belong to the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The physical row.
    pub row: u32,
    /// Its score as this backend computed it.
    pub raw: f32,
}

/// What is known of the rows that are neither candidates nor skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Coverage {
    /// There are none.
    All,
    /// Their real scores are at most this: the dot products of probe and row as real numbers, not as this backend computed them.
    AtMost(f32),
    /// Raw scores are canonical scores, and every row left out scores less than the k-th candidate.
    Exact,
    /// Nothing: the scan of this probe went wrong, or was not made.
    #[default]
    Unknown,
}

impl Coverage {
    /// Of a screen whose raw scores lie within `bound` of the real ones, and that left out rows of a raw score of at most `raw`.
    pub fn below_raw(raw: f32, bound: f32) -> Self {
        // The sum is exact, or its neighbour above is an upper bound; so is what that becomes in `f32`, or the next number.
        let sum = (f64::from(raw) + f64::from(bound)).next_up();
        let near = sum as f32;
        Self::AtMost(if f64::from(near) < sum { near.next_up() } else { near })
    }
}

/// Where the time of a scan went, in nanoseconds; what a backend does not do is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScreenTiming {
    /// Dot products and first choice.
    pub scan_ns: u64,
    /// Merging on the device, where the device is asked how long it takes; else it counts as scanning.
    pub device_merge_ns: u64,
    /// Merging on the host.
    pub host_merge_ns: u64,
}

impl ScreenTiming {
    /// Adds the times of a further scan.
    pub fn add(&mut self, further: Self) {
        self.scan_ns += further.scan_ns;
        self.device_merge_ns += further.device_merge_ns;
        self.host_merge_ns += further.host_merge_ns;
    }
}

/// A set of physical rows as sorted, disjoint, non-empty half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSet(Vec<(u32, u32)>);

impl RowSet {
    /// The union of the given half-open ranges, in any order; empty ones are dropped.
    pub fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                Some(_) | None => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether `row` is in the set.
    pub fn contains(&self, row: u32) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= row);
        after > 0 && row < self.0[after - 1].1
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(start, end)| (end - start) as usize).sum()
    }

    /// Whether no row is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl BackendError {
    /// Whether it concerns the device as a whole for certain; another may concern one gallery or one kernel alone.
    pub fn is_of_device(&self) -> bool {
        match self {
            Self::NoDevice(_)
            | Self::Device { .. }
            | Self::TimedOut { .. }
            | Self::Ended { .. }
            | Self::Wrong { .. } => true,
            Self::Kernel { .. } | Self::OutOfMemory { .. } => false,
        }
    }
}

/// Why a backend could not be had or could not scan.
#[derive(Clone, Debug, Error)]
pub enum BackendError {
    /// No device that the configuration allows; the text says what was found.
    #[error("no usable OpenCL device: {}", .0.text)]
    NoDevice(opencl::NoDevice),
    /// A kernel file that is missing, unreadable or does not compile; the text holds the build log.
    #[error("OpenCL kernel {kernel}: {reason}")]
    Kernel {
        /// Which file.
        kernel: String,
        /// What is wrong.
        reason: String,
    },
    /// The driver reported an error.
    #[error("OpenCL device {device}: {reason}")]
    Device {
        /// Which device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// The device, or its driver, did not answer in time. It is lost: whatever it is asked fails from now on.
    #[error("OpenCL device {device}: no answer within {limit:?} (backend.opencl.timeout)")]
    TimedOut {
        /// Which device.
        device: String,
        /// How long it had.
        limit: Duration,
    },
    /// The thread that owned the device has ended, which only a fault of ours can do. It is lost.
    #[error("OpenCL device {device}: its thread has ended")]
    Ended {
        /// Which device.
        device: String,
    },
    /// The device computes wrongly.
    #[error("OpenCL device {device} computes wrongly: {what}")]
    Wrong {
        /// Which device.
        device: String,
        /// What gave it away.
        what: String,
    },
    /// More than the device can hold.
    #[error("{what}: needs {needed} bytes, the device has {available}")]
    OutOfMemory {
        /// What did not fit.
        what: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        available: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_begins_empty_and_keeps_its_memory() {
        let mut screened = Screened::default();
        screened.begin(3);
        for found in &mut screened.probes {
            found.rows.extend([Candidate { row: 1, raw: 0.5 }; 100]);
            (found.coverage, found.bound) = (Coverage::All, 0.1);
        }
        screened.probes[0].rows.reserve(10 * Screened::KEPT_CANDIDATES);
        screened.timing.scan_ns = 7;
        screened.invalid_indices = 2;
        screened.begin(1);
        assert_eq!(screened.probes, [Candidates::default()]);
        assert_eq!((screened.timing, screened.invalid_indices), (ScreenTiming::default(), 0));
        assert!((100..=Screened::KEPT_CANDIDATES).contains(&screened.probes[0].rows.capacity()));
        screened.begin(3);
        assert!(screened.probes.iter().all(|found| found.rows.capacity() >= 100 && found.rows.is_empty()));
    }

    #[test]
    fn real_scores_below_a_raw_one_are_bounded_from_above() {
        for (raw, bound) in [(0.7_f32, 1e-5_f32), (-0.7, 1e-5), (1e-9, 7.7e-6), (0.25, 0.0), (0.0, 0.0)] {
            let Coverage::AtMost(most) = Coverage::below_raw(raw, bound) else { panic!("{raw}") };
            let sum = f64::from(raw) + f64::from(bound);
            assert!(
                f64::from(most) >= sum && f64::from(most.next_down().next_down()) < sum,
                "{raw}, {bound}"
            );
        }
    }

    #[test]
    fn a_row_set_merges_what_touches_or_overlaps() {
        let set = RowSet::from_ranges(vec![(5, 7), (1, 3), (3, 4), (6, 9), (2, 2)]);
        assert_eq!(set.ranges(), [(1, 4), (5, 9)]);
        assert_eq!(set.len(), 7);
        let held: Vec<u32> = (0..11).filter(|row| set.contains(*row)).collect();
        assert_eq!(held, [1, 2, 3, 5, 6, 7, 8]);
    }
}

//! One kernel of the family run by itself, for measuring: whatever the tuning says, as far as a [`Stage`], timed by the device.
//!
//! Nothing that serves comes by here.

use std::time::Instant;

use crate::backend::opencl::rows::Rows;
use crate::backend::{Ask, BackendError, Candidates};
use crate::domain::Matrix;

use super::collect::{Collector, Scanned};
use super::kernels::{MAX_QUERY_COUNT, Parameters, Role, Stage};
use super::range::ScanShape;
use super::variant::Variant;
use super::{Engine, ListPass, nanoseconds, work_limits};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::opencl) struct Trial {
    /// The kernel.
    pub(in crate::backend::opencl) variant: Variant,
    /// How far.
    pub(in crate::backend::opencl) stage: Stage,
    /// Rows of a list.
    pub(in crate::backend::opencl) list: usize,
}

/// What came of it.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Measured {
    /// Time of the scanning kernel over all chunks, by the device's own clock where it has one.
    pub(in crate::backend::opencl) scan_ns: u64,
    /// Time of merging; 0 short of [`Stage::Full`].
    pub(in crate::backend::opencl) merge_ns: u64,
    /// For each probe what was found.
    pub(in crate::backend::opencl) found: Vec<Found>,
    /// How far a raw score may be off.
    pub(in crate::backend::opencl) bound: f32,
}

/// What a stage finds for a probe.
#[derive(Debug)]
pub(in crate::backend::opencl) enum Found {
    /// The sum of all scores.
    Sum(f64),
    /// The highest score.
    Highest(f32),
    /// The highest scores, descending; as many as a list has places, of each chunk.
    Scores(Vec<Vec<f32>>),
    /// Rows and what is known of the others.
    Candidates(Candidates),
}

/// Runs `trial` once over all rows, for at most as many probes as a launch takes.
pub(in crate::backend::opencl) fn measure(
    engine: &mut Engine,
    rows: &Rows,
    probes: &Matrix,
    asks: &[Ask<'_>],
    trial: Trial,
) -> Result<Measured, BackendError> {
    let Trial { variant, stage, list } = trial;
    let Engine { device, tuning, programs, scratch, .. } = engine;
    let (count, stride) = (probes.rows().min(MAX_QUERY_COUNT), rows.matrix().stride());
    let asks = &asks[..count];
    let parameters = Parameters { variant, stride, list, probes: count };
    let scan = programs.kernel(device, parameters.recipe(Role::Measure(stage)))?;
    let merge = programs.kernel(device, parameters.recipe(Role::MergeLists))?;
    let limits = work_limits(device, &scan, *tuning, variant);
    let shape = ScanShape::new(count, rows.chunk_rows(), list, limits);
    scratch.put_probes(device, probes, 0..count, parameters.layout())?;
    scratch.put_skips(device, asks)?;
    scratch.size_lists(device, shape.lists * count * list, count * list)?;
    let pass = ListPass { device, scan: &scan, merge: &merge, rows, shape, probes: count, list };

    let mut gathered: Vec<Gathered<'_>> = asks.iter().map(|ask| Gathered::new(stage, ask, list)).collect();
    let (mut scan_ns, mut merge_ns) = (0, 0);
    for (place, chunk) in rows.chunks().into_iter().enumerate() {
        let started = Instant::now();
        let scanned = pass.scan(scratch, place, &chunk)?;
        let full = stage == Stage::Full;
        let merged = if full { Some(pass.merge(scratch, 0)?) } else { None };
        let entries = if full { list } else { shape.lists * list };
        let (scores, indices) = if full {
            scratch.read_merged(device, count * entries)?
        } else {
            scratch.read_lists(device, count * entries)?
        };
        // A driver may have no clock.
        match scanned.elapsed_ns() {
            0 => scan_ns += nanoseconds(started),
            elapsed_ns => scan_ns += elapsed_ns,
        }
        merge_ns += merged.map_or(0, |merged| merged.elapsed_ns());
        let lists = scores.chunks_exact(entries).zip(indices.chunks_exact(entries));
        for (gathered, (scores, indices)) in gathered.iter_mut().zip(lists) {
            gathered.take(chunk.start as u32..chunk.end as u32, list, (scores, indices));
        }
    }
    let scanned = Scanned::all_of(rows);
    let found = gathered.into_iter().map(|gathered| gathered.finish(&scanned)).collect();
    Ok(Measured { scan_ns, merge_ns, found, bound: scanned.bound })
}

/// What was found for a probe so far.
enum Gathered<'a> {
    Sum(f64),
    Highest(f32),
    Scores(Vec<Vec<f32>>),
    Rows(Collector<'a>),
}

impl<'a> Gathered<'a> {
    fn new(stage: Stage, ask: &Ask<'a>, list: usize) -> Self {
        match stage {
            Stage::Dot => Self::Sum(0.0),
            Stage::Threshold => Self::Highest(f32::NEG_INFINITY),
            Stage::Scores => Self::Scores(Vec::new()),
            Stage::Indices | Stage::Full => Self::Rows(Collector::new(ask.skip, list)),
        }
    }

    /// Takes a probe's lists of a chunk; those that only measure begin each list with what they found.
    fn take(&mut self, chunk: std::ops::Range<u32>, list: usize, (scores, indices): (&[f32], &[u32])) {
        let firsts = || scores.iter().step_by(list);
        match self {
            Self::Sum(sum) => *sum += firsts().map(|score| f64::from(*score)).sum::<f64>(),
            Self::Highest(highest) => *highest = firsts().fold(*highest, |a, b| a.max(*b)),
            Self::Scores(chunks) => {
                let mut best: Vec<f32> = scores.iter().copied().filter(|score| *score > f32::MIN).collect();
                best.sort_by(|a, b| b.total_cmp(a));
                best.truncate(list);
                chunks.push(best);
            }
            Self::Rows(collector) => {
                let mut best: Vec<(f32, u32)> = scores.iter().copied().zip(indices.iter().copied()).collect();
                best.sort_by(|a, b| b.0.total_cmp(&a.0));
                best.truncate(list);
                let (scores, indices): (Vec<f32>, Vec<u32>) = best.into_iter().unzip();
                collector.take_list(chunk, &scores, &indices);
            }
        }
    }

    fn finish(self, scanned: &Scanned) -> Found {
        match self {
            Self::Sum(sum) => Found::Sum(sum),
            Self::Highest(highest) => Found::Highest(highest),
            Self::Scores(scores) => Found::Scores(scores),
            Self::Rows(collector) => {
                let mut found = Candidates::default();
                collector.finish(scanned, &mut found);
                Found::Candidates(found)
            }
        }
    }
}

//! The scan of few probes or on any device: probes in tiles, rows in chunks, lists on the device, the last choice on the host.
//!
//! Two ways, by how many candidates are wanted. Up to 256 a probe, each work-item keeps a list and the device merges the lists
//! of a chunk to one a probe (`lanes.cl`, `merge.cl`). Beyond that the device writes every score and the host chooses
//! (`scores.cl`), a bounded piece at a time.
//!
//! More candidates than k are returned, so that the certificate of the k-th place rarely fails; each attempt asks for four times
//! as many as the one before.

mod bound;
mod collect;
mod kernels;
mod measure;
mod range;
mod scratch;
#[cfg(test)]
mod tests;
mod tuning;
mod variant;

use std::ops::Range;
use std::time::Instant;

use crate::backend::{Ask, BackendError, ScreenJob, ScreenTiming, Screened};
use crate::domain::Matrix;

use super::driver::device::{Arg, Device, Event, Kernel};
use super::loaded::Engine;
use super::program::Recipe;
use super::rows::Rows;

use collect::{Collector, Scanned};
use kernels::{Parameters, Role, recipes_of_lists};
use range::{ScanShape, WorkLimits, merge_range, score_range};

pub(super) use bound::error_bound;
pub(super) use kernels::{MAX_QUERY_COUNT, Stage, list_size};
pub(super) use measure::{Found, Measured, Trial, measure};
pub(super) use scratch::Scratch;
pub(super) use tuning::{FEW_PROBES, Tuning};
pub(super) use variant::{
    Block, BlockProbes, BlockRows, Dot, Lanes, ProbePlace, ProbeTile, SUMS, Single, Strategy, Turns, Variant,
    Width,
};

/// Bytes of merged lists that are left on the device before they are read: enough that reading does not stall it.
const MERGED_BYTES: usize = 8 << 20;

/// Most chunks whose merged lists are left on the device before they are read.
const MAX_PENDING_CHUNKS: usize = 64;

/// Lists up to this size cost within a tenth of one another: 8, 16, 32 and 64 rows ran at 74, 85, 83 and 79 million vectors a second
/// on a Mali-G610.
const CHEAP_LIST: usize = 64;

/// Bytes of raw scores that one launch writes.
const SCORE_BYTES: usize = 8 << 20;

/// The kernels that this scan needs for the first `top_k` of `rows`: for any number of probes, at the first attempt, and in company of
/// those who want as many as costs nothing.
pub(super) fn recipes(rows: &Rows, top_k: usize, tuning: Tuning) -> Vec<Recipe> {
    if rows.is_empty() {
        return Vec::new();
    }
    let wanted = [top_k, 1].map(|k| list_size(wanted(k, 0, rows.len())));
    let mut lists: Vec<usize> = wanted.into_iter().flatten().collect();
    lists.sort_unstable();
    lists.dedup();
    recipes_of_lists(rows.matrix().stride(), &lists, tuning)
}

/// Finds candidates for every probe of `job`, into `into`, which has begun.
pub(super) fn screen(
    engine: &mut Engine,
    rows: &Rows,
    job: &ScreenJob<'_>,
    into: &mut Screened,
) -> Result<(), BackendError> {
    let scanned = Scanned::all_of(rows);
    for first in (0..job.probes.rows()).step_by(MAX_QUERY_COUNT) {
        let range = first..job.probes.rows().min(first + MAX_QUERY_COUNT);
        let asks = &job.asks[range.clone()];
        let wanted = asks.iter().map(|ask| wanted(ask.k, job.attempt, rows.len())).collect();
        let tile = Tile { probes: job.probes, range: range.clone(), asks, wanted };
        let collectors = match list_size(tile.most_wanted()) {
            // Nothing to scan: no kernel need be compiled to say so.
            _ if rows.is_empty() => tile.collectors(),
            Some(list) => scan_lists(engine, rows, &tile, list, &mut into.timing)?,
            None => scan_scores(engine, rows, &tile, &mut into.timing)?,
        };
        let merging = Instant::now();
        for (collector, found) in collectors.into_iter().zip(&mut into.probes[range]) {
            into.invalid_indices += collector.finish(&scanned, found);
        }
        into.timing.host_merge_ns += nanoseconds(merging);
    }
    Ok(())
}

/// By the list that serves k: up to the middle ones lists cost nearly the same, so their probes share a pass; so do those for which
/// every score is read.
pub(super) fn k_class(k: usize, rows: usize) -> usize {
    list_size(wanted(k, 0, rows)).map_or(usize::MAX, |list| list.max(CHEAP_LIST))
}

/// Probes of one pass over the rows.
struct Tile<'a> {
    probes: &'a Matrix,
    range: Range<usize>,
    asks: &'a [Ask<'a>],
    /// For each probe how many candidates it is to have.
    wanted: Vec<usize>,
}

impl<'a> Tile<'a> {
    fn len(&self) -> usize {
        self.range.len()
    }

    /// One pass serves all its probes: it is as wide as the one that wants most.
    fn most_wanted(&self) -> usize {
        self.wanted.iter().copied().max().unwrap_or(1)
    }

    /// Each keeps what its own probe wants, as if it were alone: rounded up to what a list holds, since that costs nothing.
    fn collectors(&self) -> Vec<Collector<'a>> {
        let of_probe = |(ask, &wanted): (&Ask<'a>, &usize)| {
            Collector::new(ask.skip, list_size(wanted).unwrap_or(wanted))
        };
        self.asks.iter().zip(&self.wanted).map(of_probe).collect()
    }
}

/// How many candidates a probe is to have: k, a quarter more but at least 8, four times as many at each further attempt.
fn wanted(k: usize, attempt: u32, rows: usize) -> usize {
    let first = k.saturating_add((k / 4).max(8));
    first.saturating_mul(4_usize.saturating_pow(attempt)).min(rows).max(1)
}

fn scan_lists<'a>(
    engine: &mut Engine,
    rows: &Rows,
    tile: &Tile<'a>,
    list: usize,
    timing: &mut ScreenTiming,
) -> Result<Vec<Collector<'a>>, BackendError> {
    let Engine { device, tuning, programs, scratch, .. } = engine;
    let started = Instant::now();
    let probes = tile.len();
    let stride = rows.matrix().stride();
    let parameters = Parameters { variant: tuning.variant(probes), stride, list, probes };
    let scan = programs.kernel(device, parameters.recipe(Role::ScanLanes))?;
    let merge = programs.kernel(device, parameters.recipe(Role::MergeLists))?;
    let limits = work_limits(device, &scan, *tuning, parameters.variant);
    let shape = ScanShape::new(probes, rows.chunk_rows(), list, limits);
    let chunks = rows.chunks();
    let merged_bytes = probes * list * 2 * size_of::<f32>();
    let pending = (MERGED_BYTES / merged_bytes).clamp(1, MAX_PENDING_CHUNKS).min(chunks.len().max(1));

    scratch.put_probes(device, tile.probes, tile.range.clone(), parameters.layout())?;
    scratch.put_skips(device, tile.asks)?;
    scratch.size_lists(device, shape.lists * probes * list, pending * probes * list)?;
    let pass = ListPass { device, scan: &scan, merge: &merge, rows, shape, probes, list };
    let mut collectors = tile.collectors();
    let (mut waited_ns, mut merged_ns) = (nanoseconds(started), 0);
    for (first, group) in (0..).step_by(pending).zip(chunks.chunks(pending)) {
        let started = Instant::now();
        let merges = pass.launch(scratch, first, group)?;
        let (scores, indices) = scratch.read_merged(device, group.len() * probes * list)?;
        waited_ns += nanoseconds(started);
        merged_ns += merges.iter().map(Event::elapsed_ns).sum::<u64>();

        let merging = Instant::now();
        let lists = scores.chunks_exact(list).zip(indices.chunks_exact(list));
        let owners = group.iter().flat_map(|chunk| (0..probes).map(move |probe| (chunk, probe)));
        for ((chunk, probe), (scores, indices)) in owners.zip(lists) {
            collectors[probe].take_list(chunk.start as u32..chunk.end as u32, scores, indices);
        }
        timing.host_merge_ns += nanoseconds(merging);
    }
    timing.scan_ns += waited_ns.saturating_sub(merged_ns);
    timing.device_merge_ns += merged_ns;
    Ok(collectors)
}

/// What stays the same from chunk to chunk.
struct ListPass<'a> {
    device: &'a Device,
    scan: &'a Kernel,
    merge: &'a Kernel,
    rows: &'a Rows,
    shape: ScanShape,
    probes: usize,
    list: usize,
}

impl ListPass<'_> {
    /// Scans and merges some chunks, the first of which is chunk `first`; their merged lists follow one another in the scratch memory.
    fn launch(
        &self,
        scratch: &Scratch,
        first: usize,
        chunks: &[Range<usize>],
    ) -> Result<Vec<Event>, BackendError> {
        let mut merges = Vec::with_capacity(chunks.len());
        let mut before = None;
        for (place, chunk) in chunks.iter().enumerate() {
            let scanned = self.scan(scratch, first + place, chunk)?;
            merges.push(self.merge(scratch, place)?);
            self.rows.prepare_next(self.device, first + place, before.as_ref())?;
            before = Some(scanned);
        }
        Ok(merges)
    }

    /// Scans a chunk into lists.
    fn scan(&self, scratch: &Scratch, place: usize, chunk: &Range<usize>) -> Result<Event, BackendError> {
        let rows = self.rows.arrive(self.device, place)?;
        let args = [
            rows.arg(),
            scratch.probes.arg(),
            scratch.skip_offsets.arg(),
            scratch.skip_ranges.arg(),
            scratch.list_scores.arg(),
            scratch.list_indices.arg(),
            Arg::U32(chunk.len() as u32),
            Arg::U32(self.probes as u32),
            Arg::U32(self.shape.segment_rows as u32),
            Arg::U32(chunk.start as u32),
        ];
        self.device.launch(self.scan, &args, self.shape.range)
    }

    /// Merges the lists of the chunk that was scanned last, to place `place` of the merged ones.
    fn merge(&self, scratch: &Scratch, place: usize) -> Result<Event, BackendError> {
        let args = [
            scratch.list_scores.arg(),
            scratch.list_indices.arg(),
            scratch.merged_scores.arg(),
            scratch.merged_indices.arg(),
            Arg::U32((self.shape.lists * self.list) as u32),
            Arg::U32((place * self.probes * self.list) as u32),
        ];
        self.device.launch(self.merge, &args, merge_range(self.probes))
    }
}

fn scan_scores<'a>(
    engine: &mut Engine,
    rows: &Rows,
    tile: &Tile<'a>,
    timing: &mut ScreenTiming,
) -> Result<Vec<Collector<'a>>, BackendError> {
    let Engine { device, tuning, programs, scratch, .. } = engine;
    let started = Instant::now();
    let probes = tile.len();
    // No list is kept on the device: any size will do, so that one kernel serves all.
    let (stride, list) = (rows.matrix().stride(), 1);
    let parameters = Parameters { variant: tuning.variant(probes), stride, list, probes };
    let kernel = programs.kernel(device, parameters.recipe(Role::ScoreRows))?;
    let limits = work_limits(device, &kernel, *tuning, parameters.variant);
    let launch_rows = (SCORE_BYTES / (probes * size_of::<f32>())).clamp(1, rows.chunk_rows());
    scratch.put_probes(device, tile.probes, tile.range.clone(), parameters.layout())?;
    scratch.size_scores(device, launch_rows * probes)?;
    let mut collectors = tile.collectors();
    timing.scan_ns += nanoseconds(started);
    for (place, chunk) in rows.chunks().into_iter().enumerate() {
        let started = Instant::now();
        let on_device = rows.arrive(device, place)?;
        // Of the chunk before every score has been read.
        rows.prepare_next(device, place, None)?;
        timing.scan_ns += nanoseconds(started);
        for first in chunk.clone().step_by(launch_rows) {
            let started = Instant::now();
            let count = launch_rows.min(chunk.end - first);
            let args = [
                on_device.arg(),
                scratch.probes.arg(),
                scratch.scores.arg(),
                Arg::U32((first - chunk.start) as u32),
                Arg::U32(count as u32),
                Arg::U32(probes as u32),
            ];
            device.launch(&kernel, &args, score_range(probes, count, limits))?;
            let scores = scratch.read_scores(device, count * probes)?;
            timing.scan_ns += nanoseconds(started);

            let merging = Instant::now();
            for (row, of_row) in (first as u32..).zip(scores.chunks_exact(probes)) {
                for (collector, raw) in collectors.iter_mut().zip(of_row) {
                    collector.take_score(row, *raw);
                }
            }
            timing.host_merge_ns += nanoseconds(merging);
        }
    }
    Ok(collectors)
}

fn work_limits(device: &Device, kernel: &Kernel, tuning: Tuning, variant: Variant) -> WorkLimits {
    let (group_items, compute_units) = (kernel.group_limit(), device.compute_units());
    WorkLimits { group_items, compute_units, tuning, variant }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

//! The scan of many probes at once, answered on the device.
//!
//! 1. Some rows are scored first; the k-th best of them is a cut that the k-th best of all reaches for certain (`sample_...`,
//!    `set_cuts`).
//! 2. All rows are scored, and those that may reach the cut are noted (`collect_...`): in bytes on matrix units (`bytes.cl`), or in
//!    `f32` (`floats.cl`). Either way the error of a score is bounded, and the cut makes room for it.
//! 3. The canonical scores of those are computed in `f64`, and the first k are the answer (`choose`): see [`Coverage::Exact`].
//!
//! A probe for which too many rows are noted (rows alike, as far as the scores can tell) is left to the other scan. So are jobs that
//! want more rows than fit.

mod bytes;
mod kernels;
mod memory;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::time::Instant;

use crate::backend::{BackendError, Candidate, Candidates, Coverage, RowSet, ScreenJob, Screened};

use super::driver::device::{Arg, Event, Kernel};
use super::lanes::error_bound;
use super::loaded::Engine;
use super::rows::Rows;

use kernels::{CAPACITY, Parameters, Role, Sample, Shape, TILE, Work, plain_range, probe_range, rank_range};

pub(super) use bytes::ByteRows;
pub(super) use kernels::Arithmetic;
pub(super) use memory::Memory;

/// Most rows wanted of a probe.
pub(super) const MAX_K: usize = 512;

/// Rows that equal the k-th may be as many for the answer to hold them.
const TIES: usize = 16;

/// Most probes of a launch: their lists take 32 MiB.
const MAX_PROBES: usize = 1024;

/// Fewer probes leave most of a tile of floats empty.
const FLOATS_PROBES: usize = 32;

/// Half a unit in the last place of a cut, and more: what subtracting a bound from it may lose.
const CUT_ROUNDING: f32 = 1e-6;

/// In place of an answer's length: it is not whole, as in `choose.cl`.
const NOT_WHOLE: u64 = 0xFFFF_FFFF;

/// Whether this scan can answer `job`, and is worth it.
pub(super) fn takes(
    arithmetic: Arithmetic,
    (rows, bytes): (&Rows, Option<&ByteRows>),
    job: &ScreenJob<'_>,
) -> bool {
    // A probe comes back that this scan could not answer: the other one can.
    job.attempt == 0
        && rows.matrix().rows() > 0
        && job.asks.iter().all(|ask| ask.k <= MAX_K)
        && match arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => bytes.is_some(),
            Arithmetic::Floats => job.probes.rows() >= FLOATS_PROBES,
        }
}

/// Answers every probe of `job`, into `into`, which has begun; none wants more than [`MAX_K`] rows. `bytes` are there where
/// `arithmetic` wants them.
pub(super) fn screen(
    engine: &mut Engine,
    (rows, bytes): (&Rows, Option<&ByteRows>),
    arithmetic: Arithmetic,
    job: &ScreenJob<'_>,
    into: &mut Screened,
) -> Result<(), BackendError> {
    for first in (0..job.probes.rows()).step_by(MAX_PROBES) {
        let range = first..job.probes.rows().min(first + MAX_PROBES);
        let started = Instant::now();
        let asks = &job.asks[range.clone()];
        engine.memory.put_probes(&engine.device, job.probes, &range, asks)?;
        let k = asks.iter().map(|ask| ask.k).max().unwrap_or(1);
        let norm = match bytes {
            Some(bytes) => bytes.norm_above(range.clone().map(|probe| job.probes.row(probe))),
            None => error_bound(rows.matrix().stride()) + CUT_ROUNDING,
        };
        let pass = Pass::new(engine, rows, bytes, Ask { arithmetic, probes: range.len(), k, norm })?;
        pass.begin(engine)?;
        let mut chosen_ns = 0;
        for place in 0..rows.chunks().len() {
            let choice = pass.chunk(engine, place)?;
            let words = pass.parameters.answers + 1;
            let answers = engine.memory.read_answers(&engine.device, range.len() * words)?;
            chosen_ns += choice.elapsed_ns();
            let parsing = Instant::now();
            let lists = answers.chunks_exact(words).zip(&mut into.probes[range.clone()]).zip(asks);
            for ((answer, found), ask) in lists {
                into.invalid_indices += take(answer, ask.skip, &rows.chunks()[place], found);
            }
            into.timing.host_merge_ns += nanoseconds(parsing);
        }
        into.timing.device_merge_ns += chosen_ns;
        into.timing.scan_ns += nanoseconds(started).saturating_sub(chosen_ns);
    }
    Ok(())
}

/// What a launch is asked for.
#[derive(Clone, Copy, Debug)]
struct Ask {
    arithmetic: Arithmetic,
    probes: usize,
    k: usize,
    /// At least the norm of every probe less the centre; for floats, the bound on a score's error.
    norm: f32,
}

/// One pass of some probes over all rows.
struct Pass<'a> {
    rows: &'a Rows,
    bytes: Option<&'a ByteRows>,
    ask: Ask,
    parameters: Parameters,
    sample: Rc<Kernel>,
    set_cuts: Rc<Kernel>,
    collect: Rc<Kernel>,
    choose: Rc<Kernel>,
}

impl<'a> Pass<'a> {
    fn new(
        engine: &mut Engine,
        rows: &'a Rows,
        bytes: Option<&'a ByteRows>,
        ask: Ask,
    ) -> Result<Self, BackendError> {
        let answers = (ask.k + TIES).next_power_of_two();
        let shape = Shape::new(ask.probes);
        let stride = rows.matrix().stride();
        let parameters = Parameters { arithmetic: ask.arithmetic, stride, shape, answers };
        let Engine { device, programs, memory, .. } = engine;
        let mut kernel = |role| programs.kernel(device, parameters.recipe(role));
        let sample = kernel(Role::Sample)?;
        let set_cuts = kernel(Role::SetCuts)?;
        let collect = kernel(Role::Collect)?;
        let choose = kernel(Role::Choose)?;
        let probes = ask.probes;
        memory.cuts.size(device, probes)?;
        memory.counts.size(device, probes)?;
        memory.found.size(device, probes * CAPACITY)?;
        memory.maxima.size(device, probes * CAPACITY)?;
        memory.answers.size(device, probes * (answers + 1))?;
        // Whole groups are read, whatever the number of probes.
        let padded = probes.next_multiple_of(shape.probes());
        memory
            .probe_codes
            .size(device, padded * stride.next_multiple_of(kernels::STEP) / size_of::<u32>())?;
        memory.probe_numbers.size(device, padded * 4)?;
        Ok(Self { rows, bytes, ask, parameters, sample, set_cuts, collect, choose })
    }

    /// Readies the probes and forgets what was found before.
    fn begin(&self, engine: &mut Engine) -> Result<(), BackendError> {
        let Engine { device, programs, memory, .. } = engine;
        let begin = programs.kernel(device, self.parameters.recipe(Role::BeginScan))?;
        let probes = Arg::U32(self.ask.probes as u32);
        device.launch(
            &begin,
            &[memory.counts.arg(), memory.cuts.arg(), probes],
            plain_range(self.ask.probes),
        )?;
        if let Some(bytes) = self.bytes {
            let quantize = programs.kernel(device, self.parameters.recipe(Role::QuantizeProbes))?;
            let args = [
                memory.probes.arg(),
                bytes.centre_on_device.arg(),
                bytes.reach.arg(),
                memory.probe_codes.arg(),
                memory.probe_numbers.arg(),
                Arg::F32(slack(self.parameters.stride)),
                Arg::U32(self.ask.probes as u32),
            ];
            let padded = self.ask.probes.next_multiple_of(self.parameters.shape.probes());
            debug_assert!(padded.is_multiple_of(TILE));
            device.launch(&quantize, &args, probe_range(padded))?;
        }
        Ok(())
    }

    /// Scans one chunk of the rows; the answers are there when the event is over.
    fn chunk(&self, engine: &mut Engine, place: usize) -> Result<Event, BackendError> {
        let Engine { device, memory, .. } = engine;
        let chunk = &self.rows.chunks()[place];
        let work = Work {
            arithmetic: self.ask.arithmetic,
            shape: self.parameters.shape,
            rows: chunk.len(),
            probes: self.ask.probes,
            units: device.compute_units(),
        };
        let values = self.rows.on_device(device, chunk)?;
        let bytes = self.bytes.map(|bytes| bytes.chunk(place));
        let (norm, probes) = (Arg::F32(self.ask.norm), Arg::U32(self.ask.probes as u32));
        let first_row = Arg::U32(chunk.start as u32);
        // What is scanned, and how much of it.
        let (scanned, count) = match bytes {
            Some(bytes) => (
                vec![
                    bytes.codes.arg(),
                    bytes.numbers.arg(),
                    memory.probe_codes.arg(),
                    memory.probe_numbers.arg(),
                ],
                Arg::U32(bytes.panels as u32),
            ),
            None => (vec![values.arg(), memory.probes.arg()], Arg::U32(chunk.len() as u32)),
        };
        let skips = [memory.skip_offsets.arg(), memory.skip_ranges.arg()];
        if let Some(Sample { stride, rounds, range, maxima }) = work.sample(self.ask.k) {
            let mut args = scanned.clone();
            args.extend(skips);
            args.extend([memory.maxima.arg(), norm, count, probes, first_row]);
            args.extend([Arg::U32(stride as u32), Arg::U32(rounds as u32)]);
            device.launch(&self.sample, &args, range)?;
            let args = [
                memory.maxima.arg(),
                memory.probe_numbers.arg(),
                memory.cuts.arg(),
                Arg::U32(maxima as u32),
                Arg::U32(self.ask.k as u32),
            ];
            device.launch(&self.set_cuts, &args, rank_range(self.ask.probes))?;
        }
        let mut args = scanned;
        args.push(memory.cuts.arg());
        args.extend(skips);
        args.extend([memory.counts.arg(), memory.found.arg(), norm, count, probes, first_row]);
        device.launch(&self.collect, &args, work.collect_range())?;
        let args = [
            values.arg(),
            memory.probes.arg(),
            bytes.map_or(memory.probe_numbers.arg(), |bytes| bytes.numbers.arg()),
            memory.probe_numbers.arg(),
            memory.counts.arg(),
            memory.found.arg(),
            memory.cuts.arg(),
            memory.answers.arg(),
            norm,
            Arg::U32(self.ask.k as u32),
            first_row,
        ];
        device.launch(&self.choose, &args, rank_range(self.ask.probes))
    }
}

/// What the roundings of a score in bytes may add up to: those of the few operations around the products, of numbers that are at
/// most 4, and of the row's part `<x - m, m>`, a sum of `stride` products.
fn slack(stride: usize) -> f32 {
    const STEP: f32 = 1.0 / (1 << 23) as f32;
    1e-5 + (stride + 16) as f32 * STEP * 2.1
}

/// Adds one chunk's answer for one probe to what was found; how many row numbers in it do not exist.
fn take(answer: &[u64], skip: &RowSet, chunk: &std::ops::Range<usize>, found: &mut Candidates) -> u64 {
    let mut invalid = 0;
    let whole = answer[0] != NOT_WHOLE && answer[0] < answer.len() as u64;
    let mut sound = whole;
    let count = if whole { answer[0] as usize } else { 0 };
    let mut before = u64::MAX;
    for &entry in &answer[1..=count] {
        let (row, raw) = (!(entry as u32), score_of((entry >> 32) as u32));
        if !chunk.contains(&(row as usize)) {
            invalid += 1;
            sound = false;
        } else if skip.contains(row) || entry >= before || !raw.is_finite() {
            sound = false;
        } else {
            found.rows.push(Candidate { row, raw });
        }
        before = entry;
    }
    // Each chunk makes its own claim; the first one's stands where all make it.
    let first = chunk.start == 0;
    let claimed = first || found.coverage == Coverage::Exact;
    found.coverage = if sound && claimed { Coverage::Exact } else { Coverage::Unknown };
    invalid
}

/// The score of a key, as `rank.cl` makes them.
fn score_of(key: u32) -> f32 {
    f32::from_bits(if key & 0x8000_0000 == 0 { !key } else { key & 0x7FFF_FFFF })
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

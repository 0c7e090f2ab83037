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

use std::collections::HashSet;
use std::time::Instant;

use crate::backend::{BackendError, Candidate, Candidates, Coverage, RowSet, ScreenJob, Screened};

use super::driver::device::{Arg, Device, Event, Range};
use super::lanes::error_bound;
use super::loaded::Engine;
use super::program::{Programs, Recipe};
use super::rows::Rows;

use kernels::{CAPACITY, Parameters, Role, STEP, Sample, Shape, Work, plain_range, probe_range, rank_range};

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

/// How often a chunk is scanned where a list was too short: each time the cut is higher.
const RESCANS: usize = 3;

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
        && !rows.is_empty()
        && job.asks.iter().all(|ask| ask.k <= MAX_K)
        && match arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => bytes.is_some(),
            Arithmetic::Floats => job.probes.rows() >= FLOATS_PROBES,
        }
}

/// The kernels that this scan needs for the first `top_k` of `rows`, for any number of probes.
pub(super) fn recipes(rows: &Rows, top_k: usize, arithmetic: Arithmetic) -> Vec<Recipe> {
    if rows.is_empty() || top_k > MAX_K {
        return Vec::new();
    }
    let mut recipes = Vec::new();
    for shape in Shape::ALL {
        let parameters = Parameters { arithmetic, stride: rows.matrix().stride(), shape };
        recipes.extend(Role::ALL.map(|role| parameters.recipe(role)));
    }
    // Most do not depend on the shape.
    let mut seen = HashSet::new();
    recipes.retain(|recipe| seen.insert(recipe.clone()));
    recipes
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
        let mut pass = Pass::new(engine, rows, bytes, Question { arithmetic, probes: range.len(), k })?;
        pass.begin(engine)?;
        engine.device.flush()?;
        let words = pass.answers + 1;
        let mut parsed_ns = 0;
        for (place, chunk) in rows.chunks().iter().enumerate() {
            rows.arrive(&engine.device, place)?;
            pass.cut(engine, place)?;
            for left in (0..RESCANS).rev() {
                pass.collect(engine, place)?;
                // What was found in the chunk before has been read.
                rows.prepare_next(&engine.device, place, None)?;
                let answers = engine.memory.answers.get(&engine.device, range.len() * words)?;
                if left > 0 && answers.chunks_exact(words).any(|answer| answer[0] == NOT_WHOLE) {
                    continue;
                }
                let parsing = Instant::now();
                let lists = answers.chunks_exact(words).zip(&mut into.probes[range.clone()]).zip(asks);
                for ((answer, found), ask) in lists {
                    into.invalid_indices += take(answer, ask.skip, (chunk, place), found);
                }
                parsed_ns += nanoseconds(parsing);
                break;
            }
        }
        let chosen_ns = pass.chosen_ns();
        into.timing.host_merge_ns += parsed_ns;
        into.timing.device_merge_ns += chosen_ns;
        into.timing.scan_ns += nanoseconds(started).saturating_sub(chosen_ns + parsed_ns);
    }
    Ok(())
}

/// What a pass is asked for.
#[derive(Clone, Copy, Debug)]
struct Question {
    arithmetic: Arithmetic,
    probes: usize,
    k: usize,
}

/// One pass of some probes over all rows.
struct Pass<'a> {
    rows: &'a Rows,
    bytes: Option<&'a ByteRows>,
    question: Question,
    parameters: Parameters,
    /// Rows of an answer, at most.
    answers: usize,
    /// On the error of a score in `f32`.
    bound: f32,
    launched: Vec<(Role, Event)>,
}

impl<'a> Pass<'a> {
    fn new(
        engine: &mut Engine,
        rows: &'a Rows,
        bytes: Option<&'a ByteRows>,
        question: Question,
    ) -> Result<Self, BackendError> {
        let Question { arithmetic, probes, k } = question;
        let answers = k + TIES;
        let shape = Shape::new(probes);
        let stride = rows.matrix().stride();
        let Engine { device, memory, .. } = engine;
        memory.cuts.size(device, probes * 2)?;
        memory.counts.size(device, probes)?;
        memory.found.size(device, probes * CAPACITY)?;
        memory.maxima.size(device, probes * CAPACITY)?;
        memory.answers.size(device, probes * (answers + 1))?;
        // Whole groups are read, whatever the number of probes.
        let padded = probes.next_multiple_of(shape.probes());
        memory.probe_codes.size(device, padded * stride.next_multiple_of(STEP) / size_of::<u32>())?;
        memory.probe_numbers.size(device, padded * 4)?;
        let parameters = Parameters { arithmetic, stride, shape };
        let bound = error_bound(stride) + CUT_ROUNDING;
        Ok(Self { rows, bytes, question, parameters, answers, bound, launched: Vec::new() })
    }

    /// Readies the probes and forgets what was found before.
    fn begin(&mut self, engine: &mut Engine) -> Result<(), BackendError> {
        let probes = self.question.probes;
        let memory = &engine.memory;
        let Some(bytes) = self.bytes else {
            let args = [memory.counts.arg(), memory.cuts.arg(), Arg::U32(probes as u32)];
            let range = plain_range(probes);
            return self.launch((&engine.device, &mut engine.programs), Role::BeginScan, &args, range);
        };
        let args = [
            memory.probes.arg(),
            bytes.centre_on_device.arg(),
            bytes.reach.arg(),
            memory.probe_codes.arg(),
            memory.probe_numbers.arg(),
            memory.counts.arg(),
            memory.cuts.arg(),
            Arg::F32(slack(self.parameters.stride)),
            Arg::U32(probes as u32),
        ];
        let padded = probes.next_multiple_of(self.parameters.shape.probes());
        self.launch((&engine.device, &mut engine.programs), Role::QuantizeProbes, &args, probe_range(padded))
    }

    /// Raises the cuts by a sample of a chunk, where that is worth it.
    fn cut(&mut self, engine: &mut Engine, place: usize) -> Result<(), BackendError> {
        let k = self.question.k;
        let Some(Sample { stride, rounds, range, maxima, guess }) =
            self.work(&engine.device, place).sample(k)
        else {
            return Ok(());
        };
        let memory = &engine.memory;
        let mut args = scanned((self.rows, self.bytes), memory, place);
        args.extend([memory.skip_offsets.arg(), memory.skip_ranges.arg(), memory.maxima.arg()]);
        self.extend(&mut args, place);
        args.extend([Arg::U32(stride as u32), Arg::U32(rounds as u32)]);
        self.launch((&engine.device, &mut engine.programs), Role::Sample, &args, range)?;
        let args = [
            memory.maxima.arg(),
            memory.probe_numbers.arg(),
            memory.cuts.arg(),
            Arg::U32(maxima as u32),
            Arg::U32(k as u32),
            // Rows of other chunks have been scanned before: what they prove is no guess.
            Arg::U32(if place == 0 { guess } else { k } as u32),
        ];
        let range = rank_range(self.question.probes);
        self.launch((&engine.device, &mut engine.programs), Role::SetCuts, &args, range)
    }

    /// Scans a chunk and chooses among what it found.
    fn collect(&mut self, engine: &mut Engine, place: usize) -> Result<(), BackendError> {
        let range = self.work(&engine.device, place).collect_range();
        let memory = &engine.memory;
        let mut args = scanned((self.rows, self.bytes), memory, place);
        args.extend([memory.cuts.arg(), memory.skip_offsets.arg(), memory.skip_ranges.arg()]);
        args.extend([memory.counts.arg(), memory.found.arg()]);
        self.extend(&mut args, place);
        self.launch((&engine.device, &mut engine.programs), Role::Collect, &args, range)?;
        let chunk = &self.rows.chunks()[place];
        let numbers = self.bytes.map_or(memory.probe_numbers.arg(), |bytes| bytes.chunk(place).numbers.arg());
        let args = [
            self.rows.arrived(place).arg(),
            memory.probes.arg(),
            numbers,
            memory.probe_numbers.arg(),
            memory.counts.arg(),
            memory.found.arg(),
            memory.cuts.arg(),
            memory.answers.arg(),
            Arg::F32(self.bound),
            Arg::U32(self.question.k as u32),
            Arg::U32(self.answers as u32),
            Arg::U32(chunk.start as u32),
        ];
        let range = rank_range(self.question.probes);
        self.launch((&engine.device, &mut engine.programs), Role::Choose, &args, range)
    }

    fn work(&self, device: &Device, place: usize) -> Work {
        Work {
            arithmetic: self.question.arithmetic,
            shape: self.parameters.shape,
            rows: self.rows.chunks()[place].len(),
            probes: self.question.probes,
            units: device.compute_units(),
        }
    }

    /// How far scores in `f32` may be off, how many panels or rows and probes there are, and where the rows begin.
    fn extend(&self, args: &mut Vec<Arg<'_>>, place: usize) {
        let chunk = &self.rows.chunks()[place];
        if self.bytes.is_none() {
            args.push(Arg::F32(self.bound));
        }
        let count = self.bytes.map_or(chunk.len(), |bytes| bytes.chunk(place).panels);
        args.extend([count, self.question.probes, chunk.start].map(|number| Arg::U32(number as u32)));
    }

    fn launch(
        &mut self,
        (device, programs): (&Device, &mut Programs),
        role: Role,
        args: &[Arg<'_>],
        range: Range,
    ) -> Result<(), BackendError> {
        let kernel = programs.kernel(device, self.parameters.recipe(role))?;
        self.launched.push((role, device.launch(&kernel, args, range)?));
        Ok(())
    }

    /// How long choosing took on the device. All that was launched is over.
    fn chosen_ns(&self) -> u64 {
        if tracing::enabled!(tracing::Level::TRACE) {
            let first = self.launched.first().map_or(0, |(_, event)| event.times_ns()[0]);
            let micros = |(role, event): &(Role, Event)| {
                let [queued, begun, over] = event.times_ns().map(|time| time.saturating_sub(first) / 1000);
                format!("{role:?} {queued}/{begun}-{over}")
            };
            let launched: Vec<String> = self.launched.iter().map(micros).collect();
            let probes = self.question.probes;
            tracing::trace!(probes, microseconds = launched.join(", "), "tiled scan: queued/begun-over");
        }
        let choosing = |(role, _): &&(Role, Event)| matches!(role, Role::SetCuts | Role::Choose);
        self.launched.iter().filter(choosing).map(|(_, event)| event.elapsed_ns()).sum()
    }
}

/// The rows and probes that are multiplied, as a kernel's first arguments.
fn scanned<'b>(
    (rows, bytes): (&'b Rows, Option<&'b ByteRows>),
    memory: &'b Memory,
    place: usize,
) -> Vec<Arg<'b>> {
    match bytes.map(|bytes| bytes.chunk(place)) {
        Some(bytes) => {
            vec![bytes.codes.arg(), bytes.numbers.arg(), memory.probe_codes.arg(), memory.probe_numbers.arg()]
        }
        None => vec![rows.arrived(place).arg(), memory.probes.arg()],
    }
}

/// What the roundings of a score in bytes may add up to: those of the few operations around the products, of numbers that are at
/// most 4, and of the row's part `<x - m, m>`, a sum of `stride` products.
///
/// Every operation counts twice what a device that rounds to nearest can lose. What is left over, 5e-6 at the least, is far more than a
/// step of `f32` near 1: so a row that is left out does not even tie with the k-th when both scores are rounded to `f32`.
fn slack(stride: usize) -> f32 {
    const OPERATION_ERROR: f32 = 1.0 / (1 << 23) as f32;
    1e-5 + (stride + 16) as f32 * OPERATION_ERROR * 2.1
}

/// Adds the answer of one chunk, at its place among them, for one probe to what was found; how many row numbers in it do not exist.
fn take(
    answer: &[u64],
    skip: &RowSet,
    (chunk, place): (&std::ops::Range<usize>, usize),
    found: &mut Candidates,
) -> u64 {
    let whole = answer[0] != NOT_WHOLE && answer[0] < answer.len() as u64;
    let entries = if whole { &answer[1..=answer[0] as usize] } else { &[] };
    let held = found.rows.len();
    let (mut invalid, mut sound, mut before) = (0, whole, u64::MAX);
    found.rows.extend(entries.iter().map(|&entry| {
        let one = Candidate { row: !(entry as u32), raw: score_of((entry >> 32) as u32) };
        invalid += u64::from(!chunk.contains(&(one.row as usize)));
        sound &= entry < before && one.raw.is_finite() && (skip.is_empty() || !skip.contains(one.row));
        before = entry;
        one
    }));
    sound &= invalid == 0;
    if !sound {
        found.rows.truncate(held);
    }
    // Each chunk makes its own claim; the first one's stands where all make it.
    let claimed = place == 0 || found.coverage == Coverage::Exact;
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

//! One batch from its probes to its answers: screen, verify, widen what is not certified, at last scan it at full precision.
//!
//! A request is answered as soon as its last probe is, whatever others in the batch still need. Its times are those of the
//! passes that it took part in; what is left of its time it waited. All working memory is kept from batch to batch; only what leaves
//! with an answer is new.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPool;
use rayon::prelude::*;
use tokio::sync::oneshot;

use super::batch::{Slice, Turn};
use super::full;
use super::residents::Scanner;
use super::verify::{self, Question, Verdict};
use super::worker::Group;
use super::{EngineError, Ranked, RawCheck, ScanAnswer, ScanReport, ScanRequest};
use crate::backend::{Ask, BackendError, ScreenJob, ScreenTiming, Screened};
use crate::domain::Matrix;
use crate::gallery::Snapshot;
use crate::telemetry::BackendName;

/// How often a backend is asked for candidates before a probe is scanned at full precision.
const ATTEMPTS: u32 = 2;

/// Fewer canonical scores than this are computed sooner than another thread could help.
const SCORES_ALONE: usize = 512;

/// Where an answer goes.
pub(super) type Reply = oneshot::Sender<Result<ScanAnswer, EngineError>>;

/// A request on its way.
pub(super) struct Pending {
    request: ScanRequest,
    queued: Instant,
    /// `None` once answered.
    reply: Option<Reply>,
    /// Of a probe that is open: what was found so far, proven or not.
    answers: Vec<Vec<Ranked>>,
    checks: Vec<RawCheck>,
    report: ScanReport,
}

impl Pending {
    pub(super) fn new(request: ScanRequest, queued: Instant, reply: Reply) -> Self {
        let answers = vec![Vec::new(); request.probes.rows()];
        let checks = vec![RawCheck::default(); request.probes.rows()];
        let report = ScanReport::of(BackendName::Cpu, None);
        Self { request, queued, reply: Some(reply), answers, checks, report }
    }

    /// Whether nobody waits for the answer.
    pub(super) fn is_gone(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Answers with an error, unless it is answered.
    pub(super) fn fail(&mut self, error: EngineError) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(error));
        }
    }

    fn answer(&mut self, scanner: &Scanner<'_>) {
        let Some(reply) = self.reply.take() else { return };
        let mut report = self.report.clone();
        (report.backend, report.fallback) = (scanner.backend, scanner.fallback.cloned());
        report.queue_ns = since(self.queued).saturating_sub(report.scan_ns + report.verify_ns);
        let (probes, checks) = (std::mem::take(&mut self.answers), std::mem::take(&mut self.checks));
        let _ = reply.send(Ok(ScanAnswer { probes, checks, report }));
    }

    fn question(&self, probe: usize) -> Question<'_> {
        Question {
            probe: self.request.probes.row(probe),
            skip: &self.request.skips[probe],
            k: self.request.k,
        }
    }
}

/// One probe of a batch.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Which slice it belongs to.
    slice: usize,
    /// Which probe of the slice's request it is.
    probe: usize,
}

/// What a pass over the rows cost, and what the backend said of it.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    scan_ns: u64,
    verify_ns: u64,
    phases: ScreenTiming,
    invalid_indices: u64,
}

/// Answers batches, one after another.
pub(super) struct Pass {
    pool: Arc<ThreadPool>,
    /// Probes that have no answer yet.
    open: Vec<Member>,
    /// How many of them each slice has.
    open_of: Vec<usize>,
    probes: Matrix,
    asks: Vec<Ask<'static>>,
    screened: Screened,
    verdicts: Vec<Verdict>,
    /// Of the batch at hand: raw scores beyond their bound, and row numbers that do not exist.
    wrong: (u64, u64),
}

impl Pass {
    pub(super) fn new(pool: Arc<ThreadPool>) -> Self {
        Self {
            pool,
            open: Vec::new(),
            open_of: Vec::new(),
            probes: Matrix::with_capacity(0, 1),
            asks: Vec::new(),
            screened: Screened::default(),
            verdicts: Vec::new(),
            wrong: (0, 0),
        }
    }

    /// What shows that the backend computed wrongly for the batch at hand, if it did.
    pub(super) fn wrong(&self) -> Option<String> {
        let (scores, rows) = self.wrong;
        (scores + rows > 0)
            .then(|| format!("{scores} scores beyond its error bound, {rows} rows that do not exist"))
    }

    /// Begins a batch: none of its probes has an answer.
    pub(super) fn begin(&mut self, slices: &[Slice]) {
        self.open.clear();
        self.open_of.clear();
        self.wrong = (0, 0);
        for (slice, part) in slices.iter().enumerate() {
            self.open.extend(part.probes.clone().map(|probe| Member { slice, probe }));
            self.open_of.push(part.probes.len());
        }
    }

    /// Answers what is open of the batch. After an error it may be called again, with another backend.
    pub(super) fn run(
        &mut self,
        turn: &mut Turn<'_, Group, Pending>,
        slices: &[Slice],
        scanner: &mut Scanner<'_>,
    ) -> Result<(), BackendError> {
        for attempt in 0..ATTEMPTS {
            if self.open.is_empty() {
                return Ok(());
            }
            let started = Instant::now();
            self.screen(turn, slices, (scanner, attempt))?;
            let screened = Instant::now();
            self.verify(turn, slices);
            let cost = Cost {
                scan_ns: nanoseconds(started, screened),
                verify_ns: since(screened),
                phases: self.screened.timing,
                invalid_indices: self.screened.invalid_indices,
            };
            self.wrong.1 += cost.invalid_indices;
            self.charge(turn, slices, cost);
            self.settle_certified(turn, slices);
            self.reply(turn, slices, scanner);
        }
        self.open.retain(|member| {
            let gone = turn.item(&slices[member.slice]).is_gone();
            self.open_of[member.slice] -= usize::from(gone);
            !gone
        });
        if !self.open.is_empty() {
            let started = Instant::now();
            self.scan_fully(turn, slices);
            self.charge(turn, slices, Cost { verify_ns: since(started), ..Cost::default() });
            self.open.drain(..).for_each(|member| self.open_of[member.slice] -= 1);
            self.reply(turn, slices, scanner);
        }
        Ok(())
    }

    fn screen(
        &mut self,
        turn: &Turn<'_, Group, Pending>,
        slices: &[Slice],
        (scanner, attempt): (&mut Scanner<'_>, u32),
    ) -> Result<(), BackendError> {
        self.probes.reset(turn.key().snapshot.matrix().dim());
        let mut asks = recycled(std::mem::take(&mut self.asks));
        for member in &self.open {
            let question = turn.item(&slices[member.slice]).question(member.probe);
            self.probes.push(question.probe);
            asks.push(Ask { k: question.k, skip: question.skip });
        }
        let job = ScreenJob { probes: &self.probes, asks: &asks, attempt };
        let result = scanner.rows.screen(&job, &mut self.screened);
        self.asks = recycled(asks);
        result
    }

    /// Judges the candidates of every open probe, in the order of `open`.
    fn verify(&mut self, turn: &Turn<'_, Group, Pending>, slices: &[Slice]) {
        let snapshot: &Snapshot = &turn.key().snapshot;
        let found = &mut self.screened.probes;
        if self.verdicts.len() < found.len() {
            self.verdicts.resize_with(found.len(), Verdict::default);
        }
        let verdicts = &mut self.verdicts[..found.len()];
        let question = |member: &Member| turn.item(&slices[member.slice]).question(member.probe);
        if found.iter().map(verify::scores).sum::<usize>() < SCORES_ALONE {
            for ((member, found), verdict) in self.open.iter().zip(found).zip(verdicts) {
                verify::verify(snapshot, question(member), found, verdict);
            }
            return;
        }
        self.pool.install(|| {
            let work = self.open.par_iter().zip(found).zip(verdicts);
            work.for_each(|((member, found), verdict)| {
                verify::verify(snapshot, question(member), found, verdict);
            });
        });
    }

    /// Books a pass on every request that took part in it.
    fn charge(&self, turn: &mut Turn<'_, Group, Pending>, slices: &[Slice], cost: Cost) {
        for (slice, _) in slices.iter().zip(&self.open_of).filter(|(_, open)| **open > 0) {
            let report = &mut turn.item_mut(slice).report;
            report.scan_ns += cost.scan_ns;
            report.verify_ns += cost.verify_ns;
            report.phases.add(cost.phases);
            report.invalid_indices += cost.invalid_indices;
        }
    }

    /// Takes the answers that are proven; the other probes stay open.
    fn settle_certified(&mut self, turn: &mut Turn<'_, Group, Pending>, slices: &[Slice]) {
        let mut verdicts = self.verdicts.iter_mut();
        self.open.retain(|member| {
            let pending = turn.item_mut(&slices[member.slice]);
            let Some(verdict) = verdicts.next() else { return true };
            pending.report.bound_violations += verdict.check.violations;
            self.wrong.0 += verdict.check.violations;
            pending.checks[member.probe].add(verdict.check);
            pending.answers[member.probe] = std::mem::take(&mut verdict.ranked);
            if verdict.certified {
                self.open_of[member.slice] -= 1;
            } else {
                pending.report.uncertified += 1;
            }
            !verdict.certified
        });
    }

    /// Ranks the open probes by the canonical scores of all rows.
    fn scan_fully(&mut self, turn: &mut Turn<'_, Group, Pending>, slices: &[Slice]) {
        let question = |member: &Member| turn.item(&slices[member.slice]).question(member.probe);
        let questions: Vec<Question<'_>> = self.open.iter().map(question).collect();
        let snapshot: &Snapshot = &turn.key().snapshot;
        let answers = self.pool.install(|| full::scan(snapshot, &questions));
        for (member, mut ranked) in self.open.iter().zip(answers) {
            let answer = &mut turn.item_mut(&slices[member.slice]).answers[member.probe];
            keep_raw_scores(&mut ranked, answer);
            *answer = ranked;
        }
    }

    /// Answers the requests whose last probe has its answer.
    fn reply(&self, turn: &mut Turn<'_, Group, Pending>, slices: &[Slice], scanner: &Scanner<'_>) {
        for (slice, _) in slices.iter().zip(&self.open_of).filter(|(_, open)| **open == 0) {
            if turn.is_last(slice) {
                turn.item_mut(slice).answer(scanner);
            }
        }
    }
}

/// What the backend computed for rows that it offered stays with them: a comparison of backends wants to see it.
fn keep_raw_scores(ranked: &mut [Ranked], offered: &[Ranked]) {
    let offered: HashMap<u32, Option<f32>> = offered.iter().map(|one| (one.row, one.raw)).collect();
    for one in ranked {
        one.raw = offered.get(&one.row).copied().flatten();
    }
}

/// An empty list in the memory of another, whose entries borrowed from elsewhere.
fn recycled<'b>(mut asks: Vec<Ask<'_>>) -> Vec<Ask<'b>> {
    asks.clear();
    asks.into_iter().map_while(|_| None).collect()
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    (to - from).as_nanos() as u64
}

fn since(from: Instant) -> u64 {
    nanoseconds(from, Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::RowSet;

    #[test]
    fn what_a_backend_computed_stays_with_the_rows_that_it_offered() {
        let row = |row, raw| Ranked { row, score: 0.5, raw };
        let mut full = [row(7, None), row(1, None), row(3, None)];
        keep_raw_scores(&mut full, &[row(3, Some(0.25)), row(7, Some(0.75)), row(9, Some(0.1))]);
        assert_eq!(full.map(|one| one.raw), [Some(0.75), None, Some(0.25)]);
    }

    #[test]
    fn a_recycled_list_keeps_its_memory() {
        let skip = RowSet::default();
        let asks = vec![Ask { k: 1, skip: &skip }; 100];
        let (capacity, at) = (asks.capacity(), asks.as_ptr() as usize);
        let recycled: Vec<Ask<'static>> = recycled(asks);
        assert!(recycled.is_empty());
        assert_eq!((recycled.capacity(), recycled.as_ptr() as usize), (capacity, at));
    }
}

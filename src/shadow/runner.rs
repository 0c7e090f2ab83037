//! The shadow's thread: asks the other seat, compares, publishes.
//!
//! First it has the shadow's backend opened ([`Opener`]). It waits for the shadow's answer for `shadow.timeout_ms` and never for anything else that may hang: a scan that nobody waits for any
//! more is dropped by its engine, and a shadow that fails again and again is left alone for a while ([`Breaker`]).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, mem};

use super::breaker::Breaker;
use super::compare::{Comparison, Said, compare, is_disagreement, is_hard};
use super::journal::Journal;
use super::ledger::{Again, Kept};
use super::observed::{Answer, Observed};
use super::opening::Opener;
use super::record::{Machine, Record, SideRecord, kind_names};
use super::rollout::Demotion;
use super::shared::Shared;
use super::{Force, Sides, TARGET, now_ms};
use crate::domain::widened;
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{self, DropReason, ShadowKind};

/// How often the thread looks after itself while nothing comes.
const TICK: Duration = Duration::from_millis(50);

/// How often the gate is judged.
const JUDGING: Duration = Duration::from_millis(500);

/// How often the state is written while it changes.
const SAVING: Duration = Duration::from_secs(5);

/// Owned by the thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    journal: Option<Journal>,
    /// Until the shadow's backend is open.
    opener: Option<Opener>,
    runtime: tokio::runtime::Runtime,
    breaker: Breaker,
    judged: Instant,
    saved: Instant,
    /// Whether anything happened since the state was written.
    changed: bool,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        journal: Option<Journal>,
        opener: Option<Opener>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let now = Instant::now();
        let breaker = Breaker::default();
        Ok(Self { shared, journal, opener, runtime, breaker, judged: now, saved: now, changed: false })
    }

    pub(super) fn run(mut self, jobs: &Receiver<Observed>) {
        self.see_to_the_opening(Instant::now());
        while !self.shared.stopping.load(Ordering::Acquire) {
            match jobs.recv_timeout(TICK) {
                Ok(observed) => self.take(&observed),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look_after(Instant::now());
        }
        self.save();
    }

    fn take(&mut self, observed: &Observed) {
        let probes = observed.question.probes().len();
        self.shared.give_room(probes);
        telemetry::shadow_queue_depth(self.shared.waiting.load(Ordering::Relaxed));
        if self.breaker.is_open(Instant::now()) {
            self.shared.drop_probes(probes, DropReason::BreakerOpen);
            return;
        }
        self.changed = true;
        let answered = std::panic::catch_unwind(AssertUnwindSafe(|| self.answer(observed)));
        if answered.is_err() {
            self.fail(observed, ShadowKind::Error, "the comparison panicked".to_owned());
        }
    }

    fn answer(&mut self, observed: &Observed) {
        let (recognizer, limit) = (Arc::clone(&self.shared.recognizer), self.shared.settings.timeout);
        let seat = observed.by.other();
        let ask = async { tokio::time::timeout(limit, observed.question.ask(&recognizer, seat)).await };
        match self.runtime.block_on(ask) {
            Err(_) => self.fail(observed, ShadowKind::Timeout, format!("no answer within {limit:?}")),
            Ok(Err(error)) => self.fail(observed, ShadowKind::Error, error.to_string()),
            Ok(Ok(answer)) => match stood_in(&recognizer, seat, &answer) {
                Some(why) => self.fail(observed, ShadowKind::Error, why),
                None => self.compare(observed, &answer),
            },
        }
    }

    fn fail(&mut self, observed: &Observed, kind: ShadowKind, error: String) {
        self.breaker.failed(Instant::now());
        let machines = self.machines(observed);
        let said = observed.answer.said(observed.question.snapshot(), 0);
        let primary = SideRecord::of(&machines.primary, observed.question.snapshot(), &said, false.into());
        let sides = Sides { primary, shadow: SideRecord::silent(&machines.shadow) };
        self.publish(observed, Found { probe: None, kinds: vec![kind], error, sides });
        let probes = observed.question.probes().len() as u64;
        telemetry::shadow_compared(kind, probes);
        let mut ledger = self.shared.ledger();
        if observed.by == ledger.answering() {
            ledger.count(kind, probes);
        }
    }

    /// Who the primary and the shadow were when this was answered.
    fn machines(&self, observed: &Observed) -> Sides<Machine> {
        self.shared.ledger().machines.sides(observed.by).map(Machine::clone)
    }

    /// What is counted can be listed already.
    fn compare(&mut self, observed: &Observed, answer: &Answer) {
        self.breaker.succeeded();
        let snapshot = observed.question.snapshot();
        let tolerance = self.shared.settings.score_tolerance;
        let machines = self.machines(observed);
        let mut compared = Vec::with_capacity(observed.question.probes().len());
        for probe in 0..observed.question.probes().len() {
            let said =
                Sides { primary: &observed.answer, shadow: answer }.map(|one| one.said(snapshot, probe));
            let comparison = compare(Sides { primary: &said.primary, shadow: &said.shadow }, tolerance);
            compared.push((comparison.worst(), comparison.score_error, comparison.overlap));
            if is_disagreement(comparison.worst()) {
                self.disagree(observed, &machines, (probe, said, comparison));
            }
        }
        let took = Sides { primary: observed.answer.took_ns(), shadow: answer.took_ns() };
        if took.primary > 0 {
            telemetry::shadow_latency_ratio(took.shadow as f64 / took.primary as f64);
        }
        for (kind, score_error, overlap) in &compared {
            telemetry::shadow_compared(*kind, 1);
            telemetry::shadow_probe(*score_error, *overlap);
        }
        let mut ledger = self.shared.ledger();
        // Since the roles changed, what was answered before is no evidence about those of now.
        if observed.by == ledger.answering() {
            ledger.evidence.latency_ns.primary.record(took.primary as f64);
            ledger.evidence.latency_ns.shadow.record(took.shadow as f64);
            for (kind, score_error, _) in compared {
                ledger.count(kind, 1);
                ledger.evidence.score_error.record(f64::from(score_error));
            }
        }
    }

    fn disagree(
        &mut self,
        observed: &Observed,
        machines: &Sides<Machine>,
        (probe, said, comparison): (usize, Sides<Said>, Comparison),
    ) {
        let snapshot = observed.question.snapshot();
        let Sides { primary, shadow } = comparison.wrong_scores;
        let sides = Sides {
            primary: SideRecord::of(&machines.primary, snapshot, &said.primary, primary.into()),
            shadow: SideRecord::of(&machines.shadow, snapshot, &said.shadow, shadow.into()),
        };
        if comparison.kinds.iter().any(|kind| is_hard(*kind)) {
            let what = format!("a hard disagreement in request {}", observed.request_id);
            self.shared.demote(Demotion::Disagreement(what));
        }
        self.publish(
            observed,
            Found { probe: Some(probe), kinds: comparison.kinds, error: String::new(), sides },
        );
    }

    /// Log, file, memory, watchers.
    fn publish(&mut self, observed: &Observed, found: Found) {
        let snapshot = observed.question.snapshot();
        let profile = snapshot.profile();
        let place = found.probe.unwrap_or(0);
        let embedding = observed.question.probes().get(place).map(|probe| probe.embedding.clone());
        let keep = self.shared.settings.record.embeddings;
        let record = Record {
            id: uuid::Uuid::now_v7().to_string(),
            at_ms: now_ms(),
            request_id: observed.request_id.to_string(),
            probe: found.probe,
            gallery: profile.name.clone(),
            generation: profile.generation,
            kinds: kind_names(&found.kinds),
            error: found.error,
            asked: observed.question.record(place),
            sides: found.sides,
            embedding: embedding.as_ref().filter(|_| keep).map(|embedding| embedding.as_slice().to_vec()),
        };
        let Sides { primary, shadow } = &record.sides;
        tracing::warn!(
            target: TARGET,
            id = record.id,
            request_id = record.request_id,
            probe = record.probe,
            gallery = record.gallery,
            generation = record.generation,
            kinds = record.kinds.join(","),
            error = record.error,
            primary = primary.backend,
            primary_decision = primary.decision,
            primary_wrong_scores = primary.wrong_scores,
            shadow = shadow.backend,
            shadow_decision = shadow.decision,
            shadow_wrong_scores = shadow.wrong_scores,
            shadow_device = shadow.device,
            shadow_driver = shadow.driver,
            shadow_score_error = widened(shadow.score_error),
            "the shadow disagrees"
        );
        if let Some(journal) = &mut self.journal {
            journal.append(&record);
        }
        let record = Arc::new(record);
        let again = embedding.map(|embedding| Again { embedding, snapshot: Arc::downgrade(snapshot) });
        self.shared.ledger().keep(Kept { record: Arc::clone(&record), again });
        // Nobody may be watching.
        let _ = self.shared.watchers.send(record);
    }

    /// Begins to open the shadow's backend, tries again, or takes it into its seat.
    fn see_to_the_opening(&mut self, now: Instant) {
        let Some(opener) = &mut self.opener else { return };
        let shared = &self.shared;
        match opener.look(now, || shared.recognizer.galleries().collect()) {
            None => shared.stands(opener.seen()),
            Some(Err(why)) => {
                shared.stands(opener.seen());
                shared.not_opened(&why);
            }
            Some(Ok(opened)) => {
                shared.opened(opened);
                self.opener = None;
                // Its machine is on disk from now on.
                self.changed = true;
            }
        }
    }

    fn look_after(&mut self, now: Instant) {
        self.see_to_the_opening(now);
        let open = self.breaker.is_open(now);
        if self.shared.breaker_open.swap(open, Ordering::Relaxed) != open {
            telemetry::shadow_breaker(open);
            tracing::warn!(target: TARGET, open, "the shadow's breaker");
        }
        if now.duration_since(self.judged) >= JUDGING {
            self.judged = now;
            self.judge();
        }
        let urgent = mem::take(&mut self.shared.ledger().urgent);
        if urgent || (self.changed && now.duration_since(self.saved) >= SAVING) {
            self.save();
        }
    }

    fn judge(&self) {
        let ledger = self.shared.ledger();
        let conditions = ledger.judge(&self.shared.settings);
        let due = ledger.is_due(&conditions, self.shared.settings.promote);
        drop(ledger);
        if due {
            // What has come to light since is judged again.
            let _ = self.shared.promote("every condition of the gate is met", Force::No);
        }
    }

    fn save(&mut self) {
        (self.saved, self.changed) = (Instant::now(), false);
        if let Some(journal) = &mut self.journal {
            let state = self.shared.ledger().state(now_ms());
            journal.save(&state);
        }
    }
}

/// What is published of a disagreement, beside the request.
struct Found {
    probe: Option<usize>,
    kinds: Vec<ShadowKind>,
    error: String,
    sides: Sides<SideRecord>,
}

/// Why another backend answered than the one seated, if one did.
fn stood_in(recognizer: &Recognizer, seat: Seat, answer: &Answer) -> Option<String> {
    let seated = recognizer.engine_of(seat).ok()?.choice().active().backend;
    let report = answer.report();
    (report.backend != seated).then(|| {
        report
            .fallback
            .as_ref()
            .map_or_else(|| "another backend answered".to_owned(), |why| why.sentence.clone())
    })
}

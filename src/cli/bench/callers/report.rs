//! What is written down of calling.

use comfy_table::Table;
use serde::Serialize;

use super::{Called, Plan, Round};
use crate::cli::bench::report::{median, percentile};
use crate::cli::output::table;

/// What was served.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Served {
    pub(super) rows: usize,
    pub(super) dim: usize,
    /// Different probes that were asked about, one a request.
    pub(super) probes: usize,
    /// Threads that scan.
    pub(super) threads: usize,
}

/// The replies of all rounds of one kind.
#[derive(Debug, Default)]
pub(super) struct Tally {
    per_s: Vec<f64>,
    latencies_ms: Vec<f64>,
}

impl Tally {
    pub(super) fn add(&mut self, round: Round) {
        self.per_s.push(round.latencies_ms.len() as f64 / round.took.as_secs_f64());
        self.latencies_ms.extend(round.latencies_ms);
    }

    /// Of at least one round with at least one reply.
    fn figures(&self) -> Figures {
        let mut sorted = self.latencies_ms.clone();
        sorted.sort_by(f64::total_cmp);
        Figures {
            requests: sorted.len(),
            round_per_s: self.per_s.clone(),
            per_s: median(self.per_s.clone()),
            p50_ms: percentile(&sorted, 50),
            p99_ms: percentile(&sorted, 99),
        }
    }
}

/// How fast replies came.
#[derive(Debug, Serialize)]
struct Figures {
    requests: usize,
    /// Replies a second, of each round, and their median.
    round_per_s: Vec<f64>,
    per_s: f64,
    /// What half and what all but a hundredth of all replies did not exceed.
    p50_ms: f64,
    p99_ms: f64,
}

/// What was measured of callers.
#[derive(Debug, Serialize)]
pub(in crate::cli::bench) struct CallersReport {
    backend: String,
    device: String,
    driver: String,
    #[serde(flatten)]
    served: Served,
    max_candidates: usize,
    callers: usize,
    connections: usize,
    rounds: usize,
    round_ms: u64,
    one: Figures,
    many: Figures,
    /// Throughput of many by that of one.
    ratio: f64,
    /// Of many.
    p99_by_p50: f64,
    /// Probes whose answer was another among many callers than alone.
    differing: usize,
}

impl CallersReport {
    pub(super) fn of(plan: &Plan, called: &Called, served: Served) -> Self {
        let (one, many) = (called.one.figures(), called.many.figures());
        let backend = called.backend.clone();
        Self {
            backend: backend.name,
            device: backend.device,
            driver: backend.driver,
            served,
            max_candidates: plan.max_candidates,
            callers: plan.callers,
            connections: called.connections,
            rounds: plan.rounds,
            round_ms: plan.round.as_millis() as u64,
            ratio: many.per_s / one.per_s,
            p99_by_p50: many.p99_ms / many.p50_ms,
            one,
            many,
            differing: called.differing,
        }
    }

    /// Probes whose answer depended on who else asked.
    pub(in crate::cli::bench) fn differing(&self) -> usize {
        self.differing
    }

    pub(in crate::cli::bench) fn as_table(&self) -> Table {
        let mut table = table(["", "value"]);
        let Self { backend, device, driver, served, callers, .. } = self;
        table.add_row(["backend", &format!("{backend}: {device} ({driver}), {} threads", served.threads)]);
        let work = format!("Recognize of 1 probe, {} rows, dim {}", served.rows, served.dim);
        table.add_row(["work", &work]);
        let rounds =
            format!("{} of {} ms each, over {} connections", self.rounds, self.round_ms, self.connections);
        table.add_row(["rounds", &rounds]);
        for (who, figures) in
            [("one caller".to_owned(), &self.one), (format!("{callers} callers"), &self.many)]
        {
            let Figures { requests, per_s, p50_ms, p99_ms, .. } = figures;
            let text =
                format!("{per_s:.1} replies/s, p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms, {requests} replies");
            table.add_row([who, text]);
        }
        table.add_row([
            "ratio",
            &format!("{:.2} x the throughput; p99 is {:.2} x p50", self.ratio, self.p99_by_p50),
        ]);
        let trust = format!("{} of {} answers differ from those to one alone", self.differing, served.probes);
        table.add_row(["trust", &trust]);
        table
    }
}

//! From probes to answers: scans as many as exactness takes.
//!
//! Identities are ranked by the order in which their rows first appear in the total order of rows, so the first k rows rank
//! all identities that occur in them. Where they hold too few identities (one person's prototypes may fill the first k), the rows of
//! the identities already ranked are left out and the rest is scanned again: what comes first there comes next.

use std::sync::Arc;
use std::time::Instant;

use super::decision::{self, Contender, Cut, Verdict};
use super::{Probe, Recognition, RecognizeAnswer, RecognizeQuery, Recognizer, SearchAnswer, SearchQuery};
use crate::backend::RowSet;
use crate::domain::Matrix;
use crate::engine::{EngineError, Ranked, ScanReport, ScanRequest};
use crate::gallery::Snapshot;

/// Least and most rows of a first scan for [`Recognizer::recognize`], and most of any.
const FIRST_ROWS: (usize, usize) = (32, 512);
const MOST_ROWS: usize = 4096;

impl Recognizer {
    /// The nearest prototypes of every probe.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchAnswer, EngineError> {
        if query.snapshot.is_empty() {
            let probes = vec![Vec::new(); query.probes.len()];
            return Ok(SearchAnswer { probes, report: self.idle_report() });
        }
        let request = ScanRequest {
            probes: Arc::new(matrix_of(&query.probes, &query.snapshot)),
            skips: skips_of(&query.probes, &query.snapshot),
            k: query.top_k.get().min(query.snapshot.row_count()),
            snapshot: query.snapshot,
        };
        let answer = self.engine.scan(request).await?;
        Ok(SearchAnswer { probes: answer.probes, report: answer.report })
    }

    /// Who each probe is.
    pub async fn recognize(&self, query: RecognizeQuery) -> Result<RecognizeAnswer, EngineError> {
        let (rankings, report) = self.rank_identities(&query).await?;
        let started = Instant::now();
        let mut verdicts: Vec<Verdict> =
            rankings.iter().map(|ranking| self.decide(&query, ranking)).collect();
        if query.unique_in_group {
            let contenders: Vec<Contender<'_>> = query
                .probes
                .iter()
                .zip(&rankings)
                .map(|(probe, ranking)| Contender {
                    group: &probe.group,
                    identity: ranking.first().map(|best| query.snapshot.identity_of(best.row as usize)),
                })
                .collect();
            decision::displace(&mut verdicts, &contenders);
        }
        let recognitions = verdicts
            .into_iter()
            .zip(rankings)
            .map(|(verdict, mut candidates)| {
                candidates.truncate(query.max_candidates);
                Recognition { verdict, candidates }
            })
            .collect();
        Ok(RecognizeAnswer { recognitions, report, decide_ns: started.elapsed().as_nanos() as u64 })
    }

    fn decide(&self, query: &RecognizeQuery, ranking: &[Ranked]) -> Verdict {
        let snapshot = &query.snapshot;
        let best = ranking.first().map(|best| snapshot.identity(snapshot.identity_of(best.row as usize)));
        let (threshold, min_margin) = self.defaults_of(snapshot);
        let cut = Cut {
            threshold: query.threshold.or(best.as_ref().and_then(|best| best.threshold)).unwrap_or(threshold),
            min_margin: query
                .min_margin
                .or(best.as_ref().and_then(|best| best.min_margin))
                .unwrap_or(min_margin),
        };
        let score = |place: usize| ranking.get(place).map(|ranked| ranked.score);
        decision::decide(score(0), score(1), cut)
    }

    /// For each probe the leading identities by their best rows: as many as the query lists, and two for the margin.
    async fn rank_identities(
        &self,
        query: &RecognizeQuery,
    ) -> Result<(Vec<Vec<Ranked>>, ScanReport), EngineError> {
        let snapshot = &query.snapshot;
        let wanted = query.max_candidates.max(2).min(snapshot.identity_count());
        let mut rankings: Vec<Ranking> =
            skips_of(&query.probes, snapshot).into_iter().map(Ranking::new).collect();
        let mut report = self.idle_report();
        let mut k = first_rows(snapshot, wanted);
        loop {
            let open: Vec<usize> = (0..rankings.len())
                .filter(|&probe| rankings[probe].leading.len() < wanted && rankings[probe].has_more(snapshot))
                .collect();
            if open.is_empty() {
                break;
            }
            let rows = open.iter().map(|&probe| query.probes[probe].embedding.as_slice());
            let request = ScanRequest {
                snapshot: Arc::clone(snapshot),
                probes: Arc::new(Matrix::from_rows(snapshot.profile().dim, rows)),
                skips: open.iter().map(|&probe| rankings[probe].skip.clone()).collect(),
                k: k.min(snapshot.row_count()),
            };
            let answer = self.engine.scan(request).await?;
            report.add(&answer.report);
            for (probe, ranked) in open.into_iter().zip(answer.probes) {
                rankings[probe].extend(snapshot, &ranked);
            }
            k = (2 * k).min(MOST_ROWS);
        }
        Ok((rankings.into_iter().map(|ranking| ranking.leading).collect(), report))
    }

    /// The report of a request that needs no scan.
    fn idle_report(&self) -> ScanReport {
        let choice = self.engine.choice();
        ScanReport::of(choice.active().backend, choice.fallback.clone())
    }
}

/// The identities of one probe ranked so far.
struct Ranking {
    /// Each identity's best row, in the total order.
    leading: Vec<Ranked>,
    /// Rows that need no more scanning: left out by the probe, or of an identity that is ranked.
    skip: RowSet,
}

impl Ranking {
    fn new(skip: RowSet) -> Self {
        Self { leading: Vec::new(), skip }
    }

    fn has_more(&self, snapshot: &Snapshot) -> bool {
        self.skip.len() < snapshot.row_count()
    }

    /// Takes the first rows of those not skipped.
    fn extend(&mut self, snapshot: &Snapshot, ranked: &[Ranked]) {
        let mut ranges = self.skip.ranges().to_vec();
        let mut seen = std::collections::HashSet::new();
        for row in ranked {
            let identity = snapshot.identity_of(row.row as usize);
            if seen.insert(identity) {
                self.leading.push(*row);
                let rows = snapshot.rows_of(identity);
                ranges.push((rows.start as u32, rows.end as u32));
            }
        }
        self.skip = RowSet::from_ranges(ranges);
    }
}

/// Rows of a first scan that will mostly hold `identities` identities: that many of average size, and as much again.
fn first_rows(snapshot: &Snapshot, identities: usize) -> usize {
    let average = snapshot.row_count().div_ceil(snapshot.identity_count().max(1));
    (2 * identities * average).clamp(FIRST_ROWS.0, FIRST_ROWS.1)
}

fn matrix_of(probes: &[Probe], snapshot: &Snapshot) -> Matrix {
    Matrix::from_rows(snapshot.profile().dim, probes.iter().map(|probe| probe.embedding.as_slice()))
}

fn skips_of(probes: &[Probe], snapshot: &Snapshot) -> Vec<RowSet> {
    probes.iter().map(|probe| probe.exclude.rows(snapshot)).collect()
}

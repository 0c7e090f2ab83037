//! From probes to answers: scans as many as exactness takes ([`identities`](super::identities) says how many).

use std::sync::Arc;
use std::time::Instant;

use super::decision::{self, Contender, Verdict};
use super::identities::Ranker;
use super::{Probe, Recognition, RecognizeAnswer, RecognizeQuery, Recognizer, SearchAnswer, SearchQuery};
use crate::backend::RowSet;
use crate::domain::Matrix;
use crate::engine::{EngineError, Ranked, ScanReport, ScanRequest};
use crate::gallery::Snapshot;

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
        let best = ranking.first().map(|best| snapshot.identity_of(best.row as usize));
        let cut = self.cut(snapshot, best, (query.threshold, query.min_margin));
        let score = |place: usize| ranking.get(place).map(|ranked| ranked.score);
        decision::decide(score(0), score(1), cut)
    }

    /// For each probe the leading identities by their best rows: as many as the query lists, and two for the margin.
    async fn rank_identities(
        &self,
        query: &RecognizeQuery,
    ) -> Result<(Vec<Vec<Ranked>>, ScanReport), EngineError> {
        let mut ranker = Ranker::new(query);
        let mut report = self.idle_report();
        while let Some(request) = ranker.next_scan() {
            let answer = self.engine.scan(request).await?;
            report.add(&answer.report);
            ranker.take(&answer.probes);
        }
        Ok((ranker.finish(), report))
    }

    /// The report of a request that needs no scan.
    fn idle_report(&self) -> ScanReport {
        let choice = self.engine.choice();
        ScanReport::of(choice.active().backend, choice.fallback.clone())
    }
}

fn matrix_of(probes: &[Probe], snapshot: &Snapshot) -> Matrix {
    Matrix::from_rows(snapshot.profile().dim, probes.iter().map(|probe| probe.embedding.as_slice()))
}

pub(super) fn skips_of(probes: &[Probe], snapshot: &Snapshot) -> Vec<RowSet> {
    probes.iter().map(|probe| probe.exclude.rows(snapshot)).collect()
}

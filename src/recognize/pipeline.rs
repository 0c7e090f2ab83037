//! From probes to answers: scans as many as exactness takes ([`identities`](super::identities) says how many).

use std::sync::Arc;
use std::time::Instant;

use super::decision::{self, Contender, Verdict};
use super::identities::Ranker;
use super::{
    Probe, Recognition, RecognizeAnswer, RecognizeQuery, Recognizer, SearchAnswer, SearchQuery, Seat,
};
use crate::backend::RowSet;
use crate::domain::Matrix;
use crate::engine::{EngineError, Ranked, RawCheck, ScanReport, ScanRequest};
use crate::gallery::Snapshot;

impl Recognizer {
    /// The nearest prototypes of every probe, by the engine that answers.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchAnswer, EngineError> {
        self.search_by(self.answering(), &query).await
    }

    /// As [`Self::search`], by the engine of this seat.
    pub async fn search_by(&self, seat: Seat, query: &SearchQuery) -> Result<SearchAnswer, EngineError> {
        if query.snapshot.is_empty() {
            let checks = vec![RawCheck::default(); query.probes.len()];
            let probes = vec![Vec::new(); query.probes.len()];
            return Ok(SearchAnswer { probes, checks, report: self.idle_report(seat)? });
        }
        let request = ScanRequest {
            probes: Arc::new(matrix_of(&query.probes, &query.snapshot)),
            skips: skips_of(&query.probes, &query.snapshot),
            k: query.top_k.get().min(query.snapshot.row_count()),
            snapshot: Arc::clone(&query.snapshot),
        };
        let answer = self.engine_of(seat)?.scan(request).await?;
        Ok(SearchAnswer { probes: answer.probes, checks: answer.checks, report: answer.report })
    }

    /// Who each probe is, by the engine that answers.
    pub async fn recognize(&self, query: RecognizeQuery) -> Result<RecognizeAnswer, EngineError> {
        self.recognize_by(self.answering(), &query).await
    }

    /// As [`Self::recognize`], by the engine of this seat.
    pub async fn recognize_by(
        &self,
        seat: Seat,
        query: &RecognizeQuery,
    ) -> Result<RecognizeAnswer, EngineError> {
        let (rankings, checks, report) = self.rank_identities(seat, query).await?;
        let started = Instant::now();
        let mut verdicts: Vec<Verdict> = rankings.iter().map(|ranking| self.decide(query, ranking)).collect();
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
        let decide_ns = started.elapsed().as_nanos() as u64;
        Ok(RecognizeAnswer { recognitions, checks, report, decide_ns })
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
        seat: Seat,
        query: &RecognizeQuery,
    ) -> Result<(Vec<Vec<Ranked>>, Vec<RawCheck>, ScanReport), EngineError> {
        let mut ranker = Ranker::new(query);
        let mut report = self.idle_report(seat)?;
        while let Some(request) = ranker.next_scan() {
            let answer = self.engine_of(seat)?.scan(request).await?;
            report.add(&answer.report);
            ranker.take(&answer);
        }
        let (rankings, checks) = ranker.finish();
        Ok((rankings, checks, report))
    }

    /// The report of a request that needs no scan.
    fn idle_report(&self, seat: Seat) -> Result<ScanReport, EngineError> {
        let choice = self.engine_of(seat)?.choice();
        Ok(ScanReport::of(choice.active().backend, choice.fallback.clone()))
    }
}

fn matrix_of(probes: &[Probe], snapshot: &Snapshot) -> Matrix {
    Matrix::from_rows(snapshot.profile().dim, probes.iter().map(|probe| probe.embedding.as_slice()))
}

pub(super) fn skips_of(probes: &[Probe], snapshot: &Snapshot) -> Vec<RowSet> {
    probes.iter().map(|probe| probe.exclude.rows(snapshot)).collect()
}

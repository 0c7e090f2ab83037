//! One question to the engine, asked again and again: vectors in memory to sorted answers in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::compare::identical;
use super::{Ask, BenchArgs, TOP_K};
use crate::backend::RowSet;
use crate::config::{BackendKind, Settings};
use crate::domain::{Embedding, Matrix};
use crate::engine::{Engine, Ranked, ScanReport, ScanRequest};
use crate::gallery::{Snapshot, formats};
use crate::recognize::{Exclusions, Probe, RecognizeQuery, Recognizer};

/// How long the question is asked before it is timed, once at least: a fast device takes some time to come up to speed.
const WARM_UP: Duration = Duration::from_millis(50);

/// What is asked.
pub(super) enum Work {
    /// The nearest rows.
    Search(ScanRequest),
    /// The nearest identities, as the service's `Recognize` finds them.
    Recognize(RecognizeQuery),
}

/// What came of it.
pub(super) struct Measured {
    pub(super) times_ms: Vec<f64>,
    pub(super) reports: Vec<ScanReport>,
    /// The last answer: the ranked rows of every probe; of a recognition each identity's best.
    pub(super) answer: Vec<Vec<Ranked>>,
}

/// How many positions of an answer were compared with the plain `f64` backend's, and how many hold the same row with the same bits.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Checked {
    pub(super) probes: usize,
    pub(super) positions: usize,
    pub(super) equal: usize,
}

impl Work {
    /// What the arguments ask for.
    pub(super) fn of(args: &BenchArgs, snapshot: Arc<Snapshot>, probes: &[Embedding]) -> Self {
        match args.ask {
            Ask::Search => Self::search(snapshot, probes, args.top_k.unwrap_or(TOP_K)),
            Ask::Recognize => Self::recognize(snapshot, probes, args.max_candidates()),
        }
    }

    fn search(snapshot: Arc<Snapshot>, probes: &[Embedding], k: usize) -> Self {
        let dim = snapshot.profile().dim;
        Self::Search(ScanRequest {
            k: k.min(snapshot.row_count()),
            probes: Arc::new(Matrix::from_rows(dim, probes.iter().map(Embedding::as_slice))),
            skips: vec![RowSet::default(); probes.len()],
            snapshot,
        })
    }

    fn recognize(snapshot: Arc<Snapshot>, probes: &[Embedding], max_candidates: usize) -> Self {
        let probe = |embedding: &Embedding| Probe {
            embedding: embedding.clone(),
            group: String::new(),
            exclude: Exclusions::default(),
        };
        Self::Recognize(RecognizeQuery {
            snapshot,
            probes: probes.iter().map(probe).collect(),
            threshold: None,
            min_margin: None,
            max_candidates,
            unique_in_group: false,
        })
    }

    pub(super) fn ask(&self) -> Ask {
        match self {
            Self::Search(_) => Ask::Search,
            Self::Recognize(_) => Ask::Recognize,
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        match self {
            Self::Search(request) => &request.snapshot,
            Self::Recognize(query) => &query.snapshot,
        }
    }

    pub(super) fn probes(&self) -> usize {
        match self {
            Self::Search(request) => request.probes.rows(),
            Self::Recognize(query) => query.probes.len(),
        }
    }

    /// Neighbors or identities that a probe gets.
    pub(super) fn places(&self) -> usize {
        match self {
            Self::Search(request) => request.k,
            Self::Recognize(query) => query.max_candidates.min(query.snapshot.identities().len()),
        }
    }

    /// A warm-up of one question at least, then as many timed ones as asked.
    pub(super) fn measure(&self, recognizer: &Recognizer, repeat: usize) -> anyhow::Result<Measured> {
        let runtime = waiting_runtime()?;
        let warming = Instant::now();
        loop {
            self.once(recognizer, &runtime)?;
            if warming.elapsed() >= WARM_UP {
                break;
            }
        }
        let mut measured = Measured { times_ms: Vec::new(), reports: Vec::new(), answer: Vec::new() };
        for _ in 0..repeat {
            let (ms, answer, report) = self.once(recognizer, &runtime)?;
            measured.times_ms.push(ms);
            measured.answer = answer;
            measured.reports.push(report);
        }
        Ok(measured)
    }

    /// Time in milliseconds, ranked rows, report.
    fn once(
        &self,
        recognizer: &Recognizer,
        runtime: &tokio::runtime::Runtime,
    ) -> anyhow::Result<(f64, Vec<Vec<Ranked>>, ScanReport)> {
        match self {
            Self::Search(request) => {
                let request = request.clone();
                let started = Instant::now();
                let answer = recognizer.engine().scan_blocking(request)?;
                Ok((milliseconds_since(started), answer.probes, answer.report))
            }
            Self::Recognize(query) => {
                let query = query.clone();
                let started = Instant::now();
                let answer = runtime.block_on(recognizer.recognize(query))?;
                let ms = milliseconds_since(started);
                let ranked = answer.recognitions.into_iter().map(|one| one.candidates).collect();
                Ok((ms, ranked, answer.report))
            }
        }
    }

    /// The same question for no more than so many of the probes.
    fn first(&self, probes: usize) -> Self {
        match self {
            Self::Search(request) => {
                let rows = (0..request.probes.rows().min(probes)).map(|probe| request.probes.row(probe));
                let probes = Matrix::from_rows(request.probes.dim(), rows);
                let skips = vec![RowSet::default(); probes.rows()];
                Self::Search(ScanRequest { probes: Arc::new(probes), skips, ..request.clone() })
            }
            Self::Recognize(query) => {
                let mut query = query.clone();
                query.probes.truncate(probes);
                Self::Recognize(query)
            }
        }
    }

    /// Compares the answer for the first probes with the plain `f64` backend's.
    pub(super) fn check(
        &self,
        answer: &[Vec<Ranked>],
        settings: &Settings,
        probes: usize,
    ) -> anyhow::Result<Checked> {
        let mut backend = settings.backend.clone();
        backend.kind = BackendKind::Reference;
        // The question brings its gallery along.
        let reference = Recognizer::load(Engine::start(&backend, 1)?, Vec::new(), settings.recognition)?;
        let first = self.first(probes);
        let (_, expected, _) = first.once(&reference, &waiting_runtime()?)?;
        let (positions, equal) = identical(&expected, answer);
        Ok(Checked { probes: expected.len(), positions, equal })
    }

    /// Writes the indices and scores of a search to the files that the arguments name.
    pub(super) fn write(&self, args: &BenchArgs, answer: &[Vec<Ranked>]) -> anyhow::Result<()> {
        let (snapshot, k) = (self.snapshot(), self.places());
        let flat = || answer.iter().flatten();
        if let Some(path) = &args.write_indices {
            let indices: Vec<i64> = flat().map(|ranked| snapshot.index(ranked.row as usize) as i64).collect();
            formats::npy::write_i64(path, k, indices.chunks_exact(k))?;
        }
        if let Some(path) = &args.write_scores {
            let scores: Vec<f32> = flat().map(|ranked| ranked.score).collect();
            formats::npy::write_f32(path, k, scores.chunks_exact(k))?;
        }
        Ok(())
    }
}

/// A runtime that does no more than wait for the engine.
fn waiting_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().build()
}

fn milliseconds_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

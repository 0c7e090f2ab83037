//! `lookalike.v1.Recognition`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status};

use super::envelope::RequestId;
use super::proto::recognition_server::Recognition;
use super::select::Asked;
use super::serving::Serving;
use super::{proto, reply, request};
use crate::engine::{EngineError, ScanReport};
use crate::gallery::Snapshot;
use crate::recognize::{RecognizeAnswer, Recognizer, Seat, Served};
use crate::shadow::{Answer, Observed, Question};
use crate::telemetry::{self, Bound, Label, Stage};

/// Work on more values than this (about half a millisecond of it) leaves the runtime's threads.
const INLINE_VALUES: usize = 65_536;

/// Names a neighbor costs as many values as this to write.
const VALUES_A_NEIGHBOR: usize = 64;

/// The service.
#[derive(Clone, Debug)]
pub struct RecognitionService {
    serving: Arc<Serving>,
}

impl RecognitionService {
    /// Answers from the galleries of `serving`.
    pub fn new(serving: Arc<Serving>) -> Self {
        Self { serving }
    }

    /// Lets a request in: gives it a place, and finds the gallery that it names.
    fn admit(&self, gallery: &str, model_id: &str) -> Result<Admitted, Status> {
        let place = self.serving.enter()?;
        let recognizer = self.serving.recognizer()?;
        request::check_target(gallery, model_id)?;
        let snapshot = recognizer.gallery(gallery)?;
        Ok(Admitted { _place: place, recognizer, snapshot })
    }

    /// Lets the shadow know what was answered, where there is one. Never waits.
    fn hand_over(
        &self,
        id: Option<RequestId>,
        question: Question,
        (answer, by): (Answer, Seat),
        failed: Option<EngineError>,
    ) {
        let Some(shadow) = self.serving.shadow_if_any() else { return };
        if let Some(error) = failed {
            shadow.primary_failed(&error);
        }
        let request_id = id.map_or_else(|| "".into(), |id| id.0);
        shadow.offer(Observed { request_id, question, answer, by });
    }
}

/// What a request that was let in holds.
struct Admitted {
    _place: OwnedSemaphorePermit,
    recognizer: Arc<Recognizer>,
    snapshot: Arc<Snapshot>,
}

#[tonic::async_trait]
impl Recognition for RecognitionService {
    async fn search(
        &self,
        request: Request<proto::SearchRequest>,
    ) -> Result<Response<proto::SearchResponse>, Status> {
        let (id, message) = unwrap(request);
        let Admitted { _place, recognizer, snapshot } = self.admit(&message.gallery, &message.model_id)?;
        let (limits, values) = (*self.serving.limits(), request::values_in(&message.probes));
        let asked = off_runtime(values, move || request::search(message, snapshot, &limits)).await??;
        let snapshot = Arc::clone(&asked.query.snapshot);
        let query = asked.query;
        let Served { answer, by, failed } = recognizer.ask(|seat| recognizer.search_by(seat, &query)).await?;
        observe(&recognizer, &answer.report);
        let neighbors: usize = answer.probes.iter().map(Vec::len).sum();
        let named = id.clone();
        let reply = off_runtime(neighbors * VALUES_A_NEIGHBOR, move || {
            let meta = reply::meta(&snapshot, (&answer.report, failed.as_ref()), named.as_ref());
            (reply::search(&snapshot, asked.wanted, &answer, meta), answer, failed)
        });
        let (reply, answer, failed) = reply.await?;
        self.hand_over(id, Question::Search(query), (Answer::Search(answer), by), failed);
        Ok(Response::new(reply))
    }

    async fn recognize(
        &self,
        request: Request<proto::RecognizeRequest>,
    ) -> Result<Response<proto::RecognizeResponse>, Status> {
        let (id, message) = unwrap(request);
        let Admitted { _place, recognizer, snapshot } = self.admit(&message.gallery, &message.model_id)?;
        let (limits, values) = (*self.serving.limits(), request::values_in(&message.probes));
        let asked = off_runtime(values, move || request::recognize(message, snapshot, &limits)).await??;
        let snapshot = Arc::clone(&asked.query.snapshot);
        let query = asked.query;
        let Served { answer, by, failed } =
            recognizer.ask(|seat| recognizer.recognize_by(seat, &query)).await?;
        observe(&recognizer, &answer.report);
        observe_decisions(&answer);
        let candidates: usize = answer.recognitions.iter().map(|r| r.candidates.len()).sum();
        let named = id.clone();
        let reply = off_runtime(candidates * VALUES_A_NEIGHBOR, move || {
            let meta = reply::meta(&snapshot, (&answer.report, failed.as_ref()), named.as_ref());
            (reply::recognize(&snapshot, asked.probe_ids, &answer, meta), answer, failed)
        });
        let (reply, answer, failed) = reply.await?;
        self.hand_over(id, Question::Recognize(query), (Answer::Recognize(answer), by), failed);
        Ok(Response::new(reply))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainResponse>, Status> {
        let (id, message) = unwrap(request);
        let Admitted { _place, recognizer, snapshot } = self.admit(&message.gallery, &message.model_id)?;
        let asked = request::explain(message, snapshot, self.serving.limits())?;
        let query = asked.query;
        let (threshold, min_margin) = (query.threshold, query.min_margin);
        let snapshot = Arc::clone(&query.snapshot);
        let Served { answer, failed, .. } =
            recognizer.ask(|seat| recognizer.recognize_by(seat, &query)).await?;
        observe(&recognizer, &answer.report);
        let cut = |place| recognizer.cut(&snapshot, Some(place), (threshold, min_margin));
        let meta = reply::meta(&snapshot, (&answer.report, failed.as_ref()), id.as_ref());
        Ok(Response::new(reply::explain(&snapshot, (asked.probe_ids, &answer), cut, meta)))
    }

    async fn select_prototypes(
        &self,
        request: Request<proto::SelectPrototypesRequest>,
    ) -> Result<Response<proto::SelectPrototypesResponse>, Status> {
        let (_, message) = unwrap(request);
        let Admitted { _place: place, recognizer, snapshot } = self.admit(&message.gallery, "")?;
        let asked = Asked::parse(&message, &snapshot, self.serving.limits())?;
        let runtime = tokio::runtime::Handle::current();
        // What is computed between scans may take long, so none of it is done on a thread of the runtime.
        let work = move || {
            let _place = place;
            runtime.block_on(asked.answer(&recognizer, &snapshot))
        };
        Ok(Response::new(off_runtime(usize::MAX, work).await??))
    }
}

fn unwrap<T>(request: Request<T>) -> (Option<RequestId>, T) {
    (request.extensions().get::<RequestId>().cloned(), request.into_inner())
}

/// Does small work here and large work on a thread that may be kept busy.
async fn off_runtime<T: Send + 'static>(
    values: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    if values <= INLINE_VALUES {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "reading or writing a message failed");
        Status::internal("reading or writing the message failed; the server's log says why")
    })
}

fn observe(recognizer: &Recognizer, report: &ScanReport) {
    for (stage, ns) in
        [(Stage::Queue, report.queue_ns), (Stage::Scan, report.scan_ns), (Stage::Verify, report.verify_ns)]
    {
        telemetry::stage_done(stage, Duration::from_nanos(ns));
    }
    telemetry::queue_depth(recognizer.engine().waiting());
    telemetry::uncertified_scans(report.backend, report.uncertified);
    telemetry::score_bound_violations(report.backend, report.bound_violations);
    // What was chosen at the start was counted then; this is a backend that failed since.
    match &report.fallback {
        Some(fallback) if report.backend != recognizer.engine().choice().active().backend => {
            telemetry::fell_back(fallback.reason);
        }
        Some(_) | None => (),
    }
    tracing::debug!(
        backend = report.backend.as_str(),
        queue_ns = report.queue_ns,
        scan_ns = report.scan_ns,
        verify_ns = report.verify_ns,
        uncertified = report.uncertified,
        "scanned"
    );
}

fn observe_decisions(answer: &RecognizeAnswer) {
    telemetry::stage_done(Stage::Decide, Duration::from_nanos(answer.decide_ns));
    for recognition in &answer.recognitions {
        let verdict = &recognition.verdict;
        telemetry::decision_made(verdict.decision.into());
        for (bound, headroom) in
            [(Bound::Threshold, verdict.threshold_headroom()), (Bound::Margin, verdict.margin_headroom())]
        {
            if let Some(headroom) = headroom {
                telemetry::headroom(bound, headroom);
            }
        }
    }
}

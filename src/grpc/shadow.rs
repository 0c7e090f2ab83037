//! `lookalike.v1.Shadow`.

use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::proto::shadow_server::Shadow as Service;
use super::serving::Serving;
use super::status::{Violations, invalid};
use super::{proto, reply};
use crate::domain::unprintable;
use crate::shadow::rollout::{MAX_REASON, by_hand};
use crate::shadow::{Force, Shadow};
use crate::telemetry::{Label, ShadowKind};

/// Disagreements that are listed where nobody says.
const LISTED: usize = 20;

/// Most that are.
const MAX_LISTED: usize = 256;

/// The service.
#[derive(Clone, Debug)]
pub struct ShadowService {
    serving: Arc<Serving>,
}

impl ShadowService {
    /// Tells of the shadow of `serving`.
    pub fn new(serving: Arc<Serving>) -> Self {
        Self { serving }
    }

    fn shadow(&self) -> Result<Arc<Shadow>, Status> {
        // While loading, nobody knows yet.
        self.serving.recognizer()?;
        self.serving.shadow()
    }
}

#[tonic::async_trait]
impl Service for ShadowService {
    async fn get_report(
        &self,
        _: Request<proto::GetReportRequest>,
    ) -> Result<Response<proto::GetReportResponse>, Status> {
        let shadow = self.shadow()?;
        // Bounds of very many trials take a moment.
        let report = tokio::task::spawn_blocking(move || reply::report(&shadow.report())).await;
        report.map(Response::new).map_err(|error| {
            tracing::error!(%error, "the shadow's report failed");
            Status::internal("the report failed; the server's log says why")
        })
    }

    async fn list_disagreements(
        &self,
        request: Request<proto::ListDisagreementsRequest>,
    ) -> Result<Response<proto::ListDisagreementsResponse>, Status> {
        let proto::ListDisagreementsRequest { limit, kinds } = request.into_inner();
        let mut violations = Violations::default();
        if limit as usize > MAX_LISTED {
            violations.push("limit", format!("expected 0 to {MAX_LISTED}, got {limit}"));
        }
        let mut wanted = Vec::new();
        for (place, name) in kinds.iter().enumerate() {
            match ShadowKind::ALL.iter().find(|kind| kind.as_str() == name) {
                Some(kind) => wanted.push(*kind),
                None => violations.push(format!("kinds[{place}]"), unknown_kind(name)),
            }
        }
        if !violations.is_empty() {
            return Err(violations.into());
        }
        let count = if limit == 0 { LISTED } else { limit as usize };
        let latest = self.shadow()?.latest(count, &wanted);
        let disagreements = latest.iter().map(|record| reply::disagreement(record)).collect();
        Ok(Response::new(proto::ListDisagreementsResponse { disagreements }))
    }

    type WatchDisagreementsStream =
        Pin<Box<dyn Stream<Item = Result<proto::WatchDisagreementsResponse, Status>> + Send>>;

    async fn watch_disagreements(
        &self,
        _: Request<proto::WatchDisagreementsRequest>,
    ) -> Result<Response<Self::WatchDisagreementsStream>, Status> {
        let found = BroadcastStream::new(self.shadow()?.watch());
        let news = found.map(|one| {
            Ok(match one {
                Ok(record) => proto::WatchDisagreementsResponse {
                    disagreement: Some(reply::disagreement(&record)),
                    missed: 0,
                },
                Err(BroadcastStreamRecvError::Lagged(missed)) => {
                    proto::WatchDisagreementsResponse { disagreement: None, missed }
                }
            })
        });
        Ok(Response::new(Box::pin(news)))
    }

    async fn replay(
        &self,
        request: Request<proto::ReplayRequest>,
    ) -> Result<Response<proto::ReplayResponse>, Status> {
        let id = request.into_inner().id;
        if id.is_empty() {
            return Err(invalid("id", "expected a disagreement's id, got an empty one"));
        }
        let shadow = self.shadow()?;
        Ok(Response::new(reply::replayed(&shadow.replay(&id).await?)))
    }

    async fn set_sampling(
        &self,
        request: Request<proto::SetSamplingRequest>,
    ) -> Result<Response<proto::SetSamplingResponse>, Status> {
        self.serving.admit_admin(&request, "Shadow/SetSampling")?;
        let sampling = request.into_inner().sampling;
        if !(0.0..=1.0).contains(&sampling) {
            return Err(invalid("sampling", format!("expected 0 to 1, got {sampling}")));
        }
        let sampling = self.shadow()?.set_sampling(sampling);
        Ok(Response::new(proto::SetSamplingResponse { sampling }))
    }

    async fn promote(
        &self,
        request: Request<proto::PromoteRequest>,
    ) -> Result<Response<proto::PromoteResponse>, Status> {
        let who = self.serving.admit_admin(&request, "Shadow/Promote")?;
        let proto::PromoteRequest { force, reason } = request.into_inner();
        let reason = by_hand(&who, checked(&reason)?);
        let force = if force { Force::Yes } else { Force::No };
        let changed = self.shadow()?.promote(&reason, force)?;
        Ok(Response::new(proto::PromoteResponse { changed }))
    }

    async fn demote(
        &self,
        request: Request<proto::DemoteRequest>,
    ) -> Result<Response<proto::DemoteResponse>, Status> {
        let who = self.serving.admit_admin(&request, "Shadow/Demote")?;
        let reason = by_hand(&who, checked(&request.into_inner().reason)?);
        let changed = self.shadow()?.demote(&reason);
        Ok(Response::new(proto::DemoteResponse { changed }))
    }
}

fn unknown_kind(name: &str) -> String {
    let kinds: Vec<&str> = ShadowKind::ALL.iter().map(|kind| kind.as_str()).collect();
    format!("expected one of {}, got {name:?}", kinds.join(", "))
}

fn checked(reason: &str) -> Result<&str, Status> {
    if reason.len() > MAX_REASON {
        return Err(invalid("reason", format!("expected at most {MAX_REASON} bytes, got {}", reason.len())));
    }
    if let Some(found) = unprintable(reason) {
        return Err(invalid(
            "reason",
            format!("expected text that can be printed on one line, got {found:?} in it"),
        ));
    }
    Ok(reason)
}

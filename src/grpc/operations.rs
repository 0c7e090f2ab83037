//! `lookalike.v1.Operations`.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::proto;
use super::proto::operations_server::Operations;
use super::serving::Serving;
use crate::backend::opencl::DeviceRecord;
use crate::engine::Crossover;
use crate::gallery::Snapshot;
use crate::recognize::{BackendAccount, Part, Recognizer, Reloaded};
use crate::shadow::{Report, Shadow};
use crate::telemetry::Label;

/// The service.
#[derive(Clone, Debug)]
pub struct OperationsService {
    serving: Arc<Serving>,
}

impl OperationsService {
    /// Tells of `serving`.
    pub fn new(serving: Arc<Serving>) -> Self {
        Self { serving }
    }
}

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn get_info(
        &self,
        _: Request<proto::GetInfoRequest>,
    ) -> Result<Response<proto::GetInfoResponse>, Status> {
        let recognizer = self.serving.recognizer()?;
        let account = recognizer.account();
        let limits = self.serving.limits();
        Ok(Response::new(proto::GetInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.serving.started().elapsed().as_secs(),
            galleries: recognizer.galleries().map(|snapshot| gallery(&recognizer, &snapshot)).collect(),
            backends: account.backends.iter().map(backend).collect(),
            devices: recognizer.survey().iter().flat_map(|survey| &survey.devices).map(device).collect(),
            backend_reason: account.sentence,
            limits: Some(proto::Limits {
                max_probes: limits.max_probes as u32,
                max_top_k: limits.max_top_k as u32,
                max_candidates: limits.max_candidates as u32,
                max_message_bytes: limits.max_message_bytes as u64,
                max_neighbors: limits.max_neighbors as u32,
            }),
            shadow: self.serving.shadow_if_any().map(|shadow| shadow_info(&shadow)),
        }))
    }

    async fn reload(
        &self,
        request: Request<proto::ReloadRequest>,
    ) -> Result<Response<proto::ReloadResponse>, Status> {
        self.serving.admit_admin(&request, "Operations/Reload")?;
        let (serving, recognizer) = (Arc::clone(&self.serving), self.serving.recognizer()?);
        let reloaded = tokio::task::spawn_blocking(move || serving.reload(&recognizer)).await;
        let Reloaded { loaded, unchanged, withdrawn } = reloaded.map_err(|error| {
            tracing::error!(%error, "reloading panicked");
            Status::internal("reloading failed; the server's log says why")
        })??;
        let loaded = loaded.into_iter().map(|(name, generation)| proto::ReloadedGallery { name, generation });
        Ok(Response::new(proto::ReloadResponse { loaded: loaded.collect(), unchanged, withdrawn }))
    }
}

fn shadow_info(shadow: &Shadow) -> proto::ShadowInfo {
    let Report { machines, rollout, sampling, opening, .. } = shadow.report();
    proto::ShadowInfo {
        backend: machines.shadow.backend,
        device: machines.shadow.device,
        promoted: rollout.promoted && opening.is_none(),
        changed_ms: rollout.changed_ms,
        changed_because: rollout.because,
        sampling,
        opening: opening.map(|(_, told)| told).unwrap_or_default(),
    }
}

fn gallery(recognizer: &Recognizer, snapshot: &Snapshot) -> proto::GalleryInfo {
    let profile = snapshot.profile();
    let (threshold, min_margin) = recognizer.defaults_of(snapshot);
    let crossover = recognizer.engine().crossover(&profile.name);
    proto::GalleryInfo {
        name: profile.name.clone(),
        dim: profile.dim as u32,
        model_id: profile.model_id.clone(),
        generation: profile.generation,
        prototypes: snapshot.row_count() as u64,
        identities: snapshot.identity_count() as u64,
        threshold: threshold.get(),
        min_margin: min_margin.get(),
        batch_timings: crossover.iter().flat_map(|measured| batch_timings(measured)).collect(),
        batch_choice: crossover.map(|measured| measured.sentence()).unwrap_or_default(),
    }
}

fn batch_timings(measured: &Crossover) -> impl Iterator<Item = proto::BatchTiming> {
    measured.timings().iter().map(|timing| proto::BatchTiming {
        probes: timing.probes as u32,
        cpu_ns: timing.cpu_ns,
        opencl_ns: timing.device_ns,
        backend: measured.faster(timing.probes).as_str().to_owned(),
    })
}

fn backend(told: &BackendAccount) -> proto::BackendInfo {
    let BackendAccount { description, part, up } = told;
    proto::BackendInfo {
        name: description.backend.as_str().to_owned(),
        device: description.device.clone(),
        driver: description.driver.clone(),
        active: *part == Part::Primary,
        up: *up,
        role: part.as_str().to_owned(),
    }
}

fn device(device: &DeviceRecord) -> proto::DeviceInfo {
    proto::DeviceInfo {
        platform_index: device.platform_index as u32,
        device_index: device.device_index as u32,
        platform: device.platform.clone(),
        name: device.name.clone(),
        kind: device.kind.as_str().to_owned(),
        driver: device.driver.clone(),
        memory_bytes: device.global_memory_bytes,
        usable: device.usable,
        reason: device.reason.clone(),
    }
}

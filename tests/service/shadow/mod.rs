//! Shadow mode: what it finds, what it costs, and where it leads.

mod found;
mod harmless;
mod healthy;
mod opening;
mod rollout;
mod service;

use std::path::Path;
use std::sync::Arc;

use lookalike::backend::opencl::OpenClBackend;
use lookalike::config::Settings;
use lookalike::engine::Engine;
use lookalike::grpc::proto::recognition_server::Recognition;
use lookalike::grpc::proto::{
    Probe, RecognizeRequest, RecognizeResult, ResponseMeta, SearchRequest, SearchResult,
};
use lookalike::grpc::{RecognitionService, Serving};
use lookalike::recognize::Recognizer;
use lookalike::server;
use lookalike::shadow::{Open, Shadow};
use tonic::Request;

use super::support::{Face, Fault, Faulty, Random, Switch, probe, sample_faces, settings, until};

/// The CPU answers, PoCL is compared with it, always.
const FLAGS: [&str; 8] = [
    "backend.kind=cpu",
    "backend.opencl.allow_cpu_devices=true",
    "shadow.enabled=true",
    "shadow.backend=opencl",
    "shadow.sampling=1",
    "shadow.queue=100000",
    "shadow.timeout_ms=60000",
    "shadow.record.path=off",
];

fn shadowed(data: &Path, more: &[&str]) -> Settings {
    settings(data, &FLAGS.iter().chain(more).copied().collect::<Vec<_>>())
}

/// Opens the shadow's device with this fault in it.
fn faulty(fault: Fault, switch: Switch) -> Open {
    Arc::new(move |backend| {
        let (opencl, switch) = (backend.opencl.clone(), switch.clone());
        Engine::start_on(backend, 64, move || Ok(Faulty::new(OpenClBackend::open(&opencl)?, fault, switch)))
    })
}

/// Sixteen persons of one row each before the sample's, who have several: rows 0 to 15.
fn faces() -> Vec<Face> {
    let mut random = Random::new(12);
    let lone = (0..16).map(|number| Face::new(&format!("lone {number}"), "1", random.vector(128)));
    lone.chain(sample_faces()).collect()
}

/// A probe of each row: it is nearest to itself.
fn probes_of(faces: &[Face]) -> Vec<Probe> {
    faces.iter().enumerate().map(|(row, face)| probe(&format!("row {row}"), &face.vector)).collect()
}

/// The service with no network around it.
struct InProcess {
    service: RecognitionService,
    serving: Arc<Serving>,
    recognizer: Arc<Recognizer>,
    shadow: Option<Arc<Shadow>>,
}

impl InProcess {
    /// With a shadow's backend opened like this, once it is.
    async fn start(settings: Settings, open: Open) -> Self {
        let service = Self::start_at_once(settings, open).await;
        if let Some(shadow) = &service.shadow {
            let open = async || shadow.report().opening.is_none().then_some(());
            until("the shadow's backend is open", open).await;
        }
        service
    }

    /// As [`Self::start`], whether or not the shadow's backend is open.
    async fn start_at_once(settings: Settings, open: Open) -> Self {
        let limits = settings.server.limits;
        let loading = tokio::task::spawn_blocking(move || {
            let recognizer = Arc::new(server::load(&settings).unwrap());
            let shadow = server::cast_shadow(&settings, &recognizer, open).unwrap();
            (recognizer, shadow)
        });
        let (recognizer, shadow) = loading.await.unwrap();
        let serving = Arc::new(Serving::new(limits));
        serving.serve(Some(Arc::clone(&recognizer)));
        serving.cast_shadow(shadow);
        let shadow = serving.shadow_if_any();
        Self { service: RecognitionService::new(Arc::clone(&serving)), serving, recognizer, shadow }
    }

    fn shadow(&self) -> &Arc<Shadow> {
        self.shadow.as_ref().unwrap()
    }

    async fn recognize(&self, probes: &[Probe]) -> (Vec<RecognizeResult>, ResponseMeta) {
        let request = RecognizeRequest {
            probes: probes.to_vec(),
            threshold: Some(0.942),
            min_margin: Some(0.04),
            ..Default::default()
        };
        let reply = self.service.recognize(Request::new(request)).await.unwrap().into_inner();
        (reply.recognitions, reply.meta.unwrap())
    }

    async fn search(&self, probes: &[Probe], top_k: u32) -> (Vec<SearchResult>, ResponseMeta) {
        let request = SearchRequest { probes: probes.to_vec(), top_k, ..Default::default() };
        let reply = self.service.search(Request::new(request)).await.unwrap().into_inner();
        (reply.results, reply.meta.unwrap())
    }

    /// Waits until so many probes were compared, or came to nothing.
    async fn until_sampled(&self, probes: u64) {
        let started = std::time::Instant::now();
        until("all was compared", async || {
            let report = self.shadow().report();
            assert!(started.elapsed().as_secs() < 50, "{probes} probes: {report:?}");
            (report.evidence.sampled() >= probes).then_some(())
        })
        .await;
    }

    /// Stops it all and waits for it.
    async fn stop(self) {
        let Self { service, serving, recognizer, shadow } = self;
        let ended = move || {
            if let Some(shadow) = shadow {
                shadow.stop(std::time::Duration::from_secs(30));
            }
            drop((service, serving, recognizer));
        };
        tokio::task::spawn_blocking(ended).await.unwrap();
    }
}

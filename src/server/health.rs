//! Health as load balancers and people ask for it: `grpc.health.v1` for each service and the whole (an empty name), and
//! whether the server is ready, for HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Every name that health can be asked of.
const SERVICES: [&str; 4] =
    ["", "lookalike.v1.Recognition", "lookalike.v1.Operations", "lookalike.v1.Shadow"];

/// Sets what the health service says.
#[derive(Clone, Debug)]
pub(super) struct Health {
    reporter: HealthReporter,
    ready: Arc<AtomicBool>,
}

impl Health {
    /// With the service that says it.
    pub(super) fn new() -> (Self, Routes) {
        let (reporter, service) = tonic_health::server::health_reporter();
        let health = Self { reporter, ready: Arc::new(AtomicBool::new(false)) };
        (health, Routes::new(service))
    }

    /// Whether requests will be answered.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(super) async fn loading(&self) {
        self.say(ServingStatus::NotServing).await;
    }

    pub(super) async fn serving(&self) {
        self.ready.store(true, Ordering::Release);
        self.say(ServingStatus::Serving).await;
    }

    /// Nothing is answered any more.
    pub(super) async fn failed(&self) {
        self.ready.store(false, Ordering::Release);
        self.say(ServingStatus::NotServing).await;
    }

    /// Says `NOT_SERVING` and ends the streams of those who watch, which would hold the server otherwise.
    pub(super) async fn draining(&self) {
        self.failed().await;
        let mut reporter = self.reporter.clone();
        for service in SERVICES {
            reporter.clear_service_status(service).await;
        }
    }

    async fn say(&self, status: ServingStatus) {
        for service in SERVICES {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

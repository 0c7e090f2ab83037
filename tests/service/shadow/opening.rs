//! The shadow's backend takes its time, or cannot be opened: callers are served at once, and whoever asks learns how it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lookalike::backend::BackendError;
use lookalike::engine::EngineError;
use lookalike::grpc::proto::{
    GetInfoRequest, GetReportRequest, PromoteRequest, RecognizeRequest, ReplayRequest, SetSamplingRequest,
};
use lookalike::shadow::{Force, Open};
use lookalike::telemetry::{self, ShadowKind};
use tempfile::TempDir;
use tonic::Code;

use super::super::support::{Fault, Server, Switch, data_folder, http_get, lookalike, until};
use super::{InProcess, faces, faulty, probes_of, shadowed};

fn sound() -> Open {
    faulty(Fault::Errs, Switch::default())
}

/// Opens once the switch is off.
fn slow(switch: Switch) -> Open {
    Arc::new(move |backend| {
        switch.wait_for_off();
        sound()(backend)
    })
}

fn lost() -> EngineError {
    EngineError::Backend(BackendError::Device { device: "made".to_owned(), reason: "lost".to_owned() })
}

fn request() -> RecognizeRequest {
    RecognizeRequest { probes: probes_of(&faces()), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_takes_its_time_keeps_nobody_waiting() {
    let (data, switch) = (data_folder(&faces()), Switch::on());
    let server = Server::spawn_with(shadowed(data.path(), &[]), slow(switch.clone())).await;
    server.until_serving().await;
    let meta = server.recognition().recognize(request()).await.unwrap().into_inner().meta.unwrap();
    assert_eq!((meta.backend.as_str(), meta.fallback_reason.as_str()), ("cpu", ""));

    let report = server.shadow().get_report(GetReportRequest {}).await.unwrap().into_inner();
    let told = report.opening.unwrap().sentence;
    assert!(told.starts_with("opencl has been opening since "), "{told}");
    assert!(!report.gate_met && report.shadow.unwrap().backend == "opencl");
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (info.shadow.unwrap().opening, info.backend_reason.as_str()),
        (told.clone(), "backend.kind is cpu")
    );
    let at = server.grpc.to_string();
    let page = lookalike().args(["shadow", "report", "--server", &at]).run();
    assert_eq!(page.code, Some(3), "{}", page.stderr);
    assert!(page.stdout.starts_with("opening: cpu (") && page.stdout.contains(&told), "{}", page.stdout);
    let (_, page) = http_get(server.http, "/console").await;
    assert!(page.contains(&told), "{page}");
    let (_, metrics) = http_get(server.http, "/metrics").await;
    assert!(metrics.contains("lookalike_shadow_open 0\n"), "{metrics}");

    // What needs it is refused, what does not is done.
    let forced = PromoteRequest { force: true, reason: String::new() };
    let refused = server.shadow().promote(forced).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, told.as_str()));
    let unknown = server.shadow().replay(ReplayRequest { id: "none".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    server.shadow().set_sampling(SetSamplingRequest { sampling: 0.5 }).await.unwrap();
    server.shadow().set_sampling(SetSamplingRequest { sampling: 1.0 }).await.unwrap();

    switch.set(false);
    let compared = until("it is compared", async || {
        server.recognition().recognize(request()).await.unwrap();
        let report = server.shadow().get_report(GetReportRequest {}).await.unwrap().into_inner();
        (report.compared > 0).then_some(report)
    })
    .await;
    assert!(compared.opening.is_none());
    let (_, metrics) = http_get(server.http, "/metrics").await;
    assert!(metrics.contains("lookalike_shadow_open 1\n"), "{metrics}");
    assert!(metrics.contains("lookalike_backend_up{backend=\"opencl\",role=\"shadow\"} 1\n"), "{metrics}");
    assert!(metrics.contains("lookalike_backend_up{backend=\"cpu\",role=\"primary\"} 1\n"), "{metrics}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_never_opens_holds_no_server() {
    let (data, switch) = (data_folder(&faces()), Switch::on());
    let server = Server::spawn_with(shadowed(data.path(), &[]), slow(switch.clone())).await;
    server.until_serving().await;
    server.recognition().recognize(request()).await.unwrap();
    // It hangs still.
    server.stop().await.unwrap();
    switch.set(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_cannot_be_opened_is_tried_again() {
    let metrics = telemetry::install();
    let (data, tries) = (data_folder(&faces()), Arc::new(AtomicUsize::new(0)));
    let tried = Arc::clone(&tries);
    let open: Open =
        Arc::new(
            move |backend| {
                if tried.fetch_add(1, Ordering::Relaxed) < 2 { Err(lost()) } else { sound()(backend) }
            },
        );
    let service = InProcess::start_at_once(shadowed(data.path(), &[]), open).await;
    let probes = probes_of(&faces());
    let mut seen = Vec::new();
    until("it is open", async || {
        assert_eq!(service.recognize(&probes).await.1.backend, "cpu");
        let opening = service.shadow().report().opening;
        seen.extend(opening.as_ref().map(|(opening, _)| opening.failures));
        opening.is_none().then_some(())
    })
    .await;
    seen.dedup();
    assert_eq!((seen, tries.load(Ordering::Relaxed)), (vec![0, 1, 2], 3));
    let told = metrics.render();
    let failures = told.lines().find_map(|line| line.strip_prefix("lookalike_shadow_open_failures_total "));
    assert!(failures.unwrap().parse::<u64>().unwrap() >= 2, "{told}");
    let before = service.shadow().report().evidence.sampled();
    service.recognize(&probes).await;
    service.until_sampled(before + probes.len() as u64).await;
    assert!(service.shadow().report().evidence.of(ShadowKind::Agree) > 0);
    service.stop().await;
}

/// It was promoted before a restart: until it is open the configured backend answers, and where it cannot be opened it is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_shadow_answers_once_it_is_open() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let path = format!("shadow.record.path={}", record.path().display());
    let settings = || shadowed(data.path(), &[&path]);
    let probes = probes_of(&faces());
    let service = InProcess::start(settings(), sound()).await;
    service.shadow().promote("tried", Force::Yes).unwrap();
    assert_eq!(service.recognizer.account().sentence, "opencl was promoted over cpu (tried)");
    service.stop().await;

    let switch = Switch::on();
    let service = InProcess::start_at_once(settings(), slow(switch.clone())).await;
    assert_eq!(service.recognize(&probes).await.1.backend, "cpu");
    let told = service.shadow().report().opening.unwrap().1;
    assert!(told.ends_with("; it was promoted, and answers once it is open"), "{told}");
    switch.set(false);
    until("it is open", async || service.shadow().report().opening.is_none().then_some(())).await;
    assert_eq!(service.recognize(&probes).await.1.backend, "opencl");
    let account = service.recognizer.account();
    assert_eq!(account.sentence, "opencl was promoted over cpu (tried)");
    assert_eq!(service.shadow().report().backend_reason, account.sentence);
    service.stop().await;

    let service = InProcess::start_at_once(settings(), Arc::new(|_| Err(lost()))).await;
    let rollout = until("it is taken back", async || {
        Some(service.shadow().report().rollout).filter(|rollout| !rollout.promoted)
    })
    .await;
    assert!(rollout.because.starts_with("opencl could not be opened: ") && !rollout.held, "{rollout:?}");
    assert_eq!(service.recognize(&probes).await.1.backend, "cpu");
    service.stop().await;
}

//! From shadowing to promotion and back, and what survives a restart.

use std::path::Path;

use lookalike::grpc::proto::Probe;
use lookalike::recognize::Seat;
use lookalike::shadow::{Force, Next};
use lookalike::telemetry::{GateCondition, ShadowKind};
use tempfile::TempDir;

use super::super::support::{Fault, Server, Switch, data_folder, until};
use super::{InProcess, faces, faulty, probes_of, shadowed};

/// A gate that a few requests of two sound backends meet.
const EASY: [&str; 4] = [
    "shadow.gate.min_comparisons=100",
    "shadow.gate.max_hard_rate=0.05",
    "shadow.gate.max_latency_ratio=1000",
    "shadow.gate.max_drop_ratio=1",
];

fn probes() -> Vec<Probe> {
    probes_of(&faces())
}

/// Serves from `data` with its record in `record`, and a fault that is off.
async fn start(data: &Path, record: &Path, more: &[&str], fault: Fault) -> (InProcess, Switch) {
    let path = format!("shadow.record.path={}", record.display());
    let flags: Vec<&str> = EASY.iter().chain(more).copied().chain([path.as_str()]).collect();
    let (settings, switch) = (shadowed(data, &flags), Switch::default());
    let planted = switch.clone();
    (InProcess::start(settings, faulty(fault, planted)).await, switch)
}

/// Asks until the gate's conditions are such.
async fn ask_until(service: &InProcess, what: &str, condition: impl Fn(&lookalike::shadow::Report) -> bool) {
    let probes = probes();
    let started = std::time::Instant::now();
    until(what, async || {
        service.recognize(&probes).await;
        let report = service.shadow().report();
        assert!(started.elapsed().as_secs() < 50, "{what}: {report:?}");
        condition(&report).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_promotes_itself_on_evidence_and_is_taken_back_by_one_disagreement() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let automatic = ["shadow.promote=automatic"];
    let (service, switch) = start(data.path(), record.path(), &automatic, Fault::Skipped(15)).await;
    let (sound, meta) = service.recognize(&probes()).await;
    assert_eq!(meta.backend, "cpu");
    ask_until(&service, "it is promoted", |report| report.rollout.promoted).await;
    assert_eq!(service.recognizer.answering(), Seat::Candidate);
    let (told, meta) = service.recognize(&probes()).await;
    assert_eq!((told, meta.backend.as_str()), (sound.clone(), "opencl"));
    let report = service.shadow().report();
    assert_eq!(
        (report.machines.primary.backend.as_str(), report.machines.shadow.backend.as_str()),
        ("opencl", "cpu")
    );
    assert_eq!(report.rollout.because, "every condition of the gate is met");

    // Requests that the CPU answered are compared by now, and the last one is the device's.
    until("all was taken", async || (service.shadow().report().queued == 0).then_some(())).await;
    // It skips a row now: what is nearest is another person.
    switch.set(true);
    ask_until(&service, "it is taken back", |report| !report.rollout.promoted).await;
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    let rollout = service.shadow().report().rollout;
    assert!(rollout.held && rollout.because.starts_with("a hard disagreement in request"), "{rollout:?}");
    // Sound again, and compared for long enough since an operator looked into it: but an operator must promote it.
    switch.set(false);
    // Once the last of these is taken, whatever came before it is compared.
    for _ in 0..2 {
        service.recognize(&probes()).await;
    }
    until("all was taken", async || (service.shadow().report().queued == 0).then_some(())).await;
    service.shadow().promote("looked into", Force::Yes).unwrap();
    service.shadow().demote("and wait");
    ask_until(&service, "the gate is met again", |report| report.conditions.iter().all(|one| one.met)).await;
    for _ in 0..3 {
        assert_eq!(service.recognize(&probes()).await.0, sound);
    }
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(service.recognizer.answering(), Seat::Standing, "it is held");

    // So it stays after a restart.
    let before = service.shadow().report();
    service.stop().await;
    let (service, _) = start(data.path(), record.path(), &automatic, Fault::Skipped(15)).await;
    let after = service.shadow().report();
    assert_eq!(after.rollout, before.rollout);
    assert!(
        after.evidence.compared() >= before.evidence.compared()
            && after.evidence.since_ms == before.evidence.since_ms
    );
    // Read from the file, without its probe.
    let latest = service.shadow().latest(256, &[ShadowKind::Identity]);
    assert!(latest.iter().any(|record| record.sides.primary.backend == "opencl"));
    let latest = &latest[0];
    let refused = service.shadow().replay(&latest.id).await.unwrap_err();
    assert!(refused.to_string().contains("shadow.record.embeddings"), "{refused}");
    assert!(service.shadow().promote("by hand", Force::No).unwrap(), "the gate is met");
    assert!(!service.shadow().promote("by hand", Force::No).unwrap(), "it is promoted");
    service.stop().await;
    // Promoted it stays, too.
    let (service, _) = start(data.path(), record.path(), &[], Fault::Skipped(15)).await;
    assert_eq!(service.recognize(&probes()).await.1.backend, "opencl");
    assert!(service.shadow().demote("enough"));
    assert_eq!(service.recognize(&probes()).await.1.backend, "cpu");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_needs_force_where_the_gate_is_not_met() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let (service, _) = start(data.path(), record.path(), &[], Fault::Errs).await;
    let unmet = service.shadow().promote("too early", Force::No).unwrap_err().unmet;
    assert!(unmet.iter().any(|one| one.condition == GateCondition::Comparisons), "{unmet:?}");
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    assert!(service.shadow().promote("all the same", Force::Yes).unwrap());
    assert_eq!(service.recognizer.answering(), Seat::Candidate);
    assert!(service.shadow().demote("enough") && !service.shadow().demote("enough"));
    let rollout = service.shadow().report().rollout;
    assert!(rollout.held && rollout.because == "enough", "{rollout:?}");
    service.stop().await;
}

/// Computing wrongly is a failure of the device, and is seen in every request, sampled or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_device_that_computes_wrongly_is_taken_back_unsampled() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let (service, switch) =
        start(data.path(), record.path(), &["shadow.sampling=0"], Fault::Scaled(1.001)).await;
    let sound = service.recognize(&probes()).await.0;
    service.shadow().promote("tried", Force::Yes).unwrap();
    switch.set(true);
    let (told, meta) = service.recognize(&probes()).await;
    assert_eq!((told, meta.backend.as_str()), (sound, "opencl"), "verification mends it");
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    let rollout = service.shadow().report().rollout;
    assert!(rollout.because.contains("computed wrongly"), "{rollout:?}");
    assert_eq!(service.shadow().report().evidence.sampled(), 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sampling_is_changed_live_and_kept() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let (service, _) = start(data.path(), record.path(), &[], Fault::Errs).await;
    let one = &probes()[..1];
    service.shadow().set_sampling(0.0);
    for _ in 0..50 {
        service.recognize(one).await;
    }
    assert_eq!(service.shadow().report().evidence.sampled(), 0);
    service.shadow().set_sampling(0.25);
    for _ in 0..400 {
        service.recognize(one).await;
    }
    let sampled = async || {
        let report = service.shadow().report();
        (report.queued == 0).then_some(report.evidence.sampled())
    };
    let sampled = until("the queue is empty", sampled).await;
    assert!((60..=140).contains(&sampled), "{sampled} of 400");
    service.stop().await;
    let (service, _) = start(data.path(), record.path(), &[], Fault::Errs).await;
    assert!((service.shadow().report().sampling - 0.25).abs() < 1e-12, "it survives a restart");
    service.stop().await;
    let (service, _) = start(data.path(), record.path(), &["shadow.sampling=0.5"], Fault::Errs).await;
    assert!((service.shadow().report().sampling - 0.5).abs() < 1e-12, "the configuration has changed since");
    service.stop().await;
}

/// With embeddings on disk a disagreement can be replayed after a restart, on the machines and the generation of then.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_whole_is_replayed_after_a_restart() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let whole = ["shadow.record.embeddings=true"];
    let (service, switch) = start(data.path(), record.path(), &whole, Fault::Swapped(3, 40)).await;
    switch.set(true);
    service.recognize(&probes()).await;
    service.until_sampled(probes().len() as u64).await;
    service.stop().await;
    // The device is sound again: what was said then gives it away.
    let (service, _) = start(data.path(), record.path(), &whole, Fault::Errs).await;
    let latest = service.shadow().latest(1, &[]).pop().unwrap();
    assert_eq!(latest.embedding.as_ref().map(Vec::len), Some(128));
    let replayed = service.shadow().replay(&latest.id).await.unwrap();
    assert_eq!(replayed.guilty, lookalike::shadow::Guilty::Shadow);
    assert_eq!(replayed.sides.shadow.kinds, ["agree"]);
    assert_eq!(replayed.sides.shadow.recorded_kinds, ["score"]);
    assert!(service.shadow().replay("nothing").await.is_err());
    service.stop().await;
}

/// Evidence is about machines: on others it begins anew, and nobody is promoted on it.
#[tokio::test(flavor = "multi_thread")]
async fn other_machines_begin_anew() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let (service, _) = start(data.path(), record.path(), &[], Fault::Errs).await;
    service.recognize(&probes()).await;
    service.until_sampled(probes().len() as u64).await;
    service.shadow().promote("tried", Force::Yes).unwrap();
    service.stop().await;
    let path = format!("shadow.record.path={}", record.path().display());
    let settings = shadowed(data.path(), &["shadow.backend=reference", &path]);
    let service = InProcess::start(settings, lookalike::server::opener()).await;
    let report = service.shadow().report();
    assert_eq!((report.evidence.sampled(), report.rollout.promoted), (0, false));
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    service.stop().await;
}

/// Another driver is no reason to sample otherwise, and every reason to gather evidence anew.
#[tokio::test(flavor = "multi_thread")]
async fn another_driver_begins_anew_and_keeps_the_sampling() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let automatic = ["shadow.promote=automatic"];
    let (service, _) = start(data.path(), record.path(), &automatic, Fault::Errs).await;
    service.shadow().set_sampling(0.25);
    service.shadow().promote("tried", Force::Yes).unwrap();
    service.stop().await;
    let driver_before = |text: &str| {
        let path = record.path().join("state.json");
        let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        state["machines"]["candidate"]["driver"] = text.into();
        std::fs::write(&path, state.to_string()).unwrap();
    };
    driver_before("an older one");
    let (service, _) = start(data.path(), record.path(), &automatic, Fault::Errs).await;
    let report = service.shadow().report();
    assert!((report.sampling - 0.25).abs() < 1e-12, "{report:?}");
    assert_eq!((report.evidence.sampled(), report.rollout.promoted), (0, false));
    assert!(report.rollout.because.contains("is not the machine that it was promoted on"), "{report:?}");
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    // What an operator said stays said: the gate does not promote behind his back.
    service.shadow().promote("tried again", Force::Yes).unwrap();
    service.shadow().demote("enough");
    service.stop().await;
    driver_before("an older one");
    let (service, _) = start(data.path(), record.path(), &automatic, Fault::Errs).await;
    let rollout = service.shadow().report().rollout;
    assert!(rollout.held && rollout.because == "enough", "{rollout:?}");
    service.stop().await;
}

/// The device is not there: callers are served, and those who ask learn why nothing is compared.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_cannot_be_opened_keeps_nobody_from_being_served() {
    let data = data_folder(&faces());
    let settings = shadowed(data.path(), &["backend.opencl.device=no such device"]);
    let service = InProcess::start_at_once(settings, lookalike::server::opener()).await;
    assert_eq!(service.recognize(&probes()).await.1.backend, "cpu");
    let why = until("it was tried", async || {
        let (opening, told) = service.shadow().report().opening.unwrap();
        (opening.failures > 0).then_some(told)
    })
    .await;
    assert!(why.starts_with("opencl could not be opened (once): no usable OpenCL device: "), "{why}");
    assert!(why.contains("; it is tried again at ") || why.contains("; it is being opened again"), "{why}");
    let refused = service.shadow().promote("all the same", Force::Yes).unwrap_err();
    assert!(refused.to_string().starts_with("opencl could not be opened"), "{refused}");
    assert_eq!(service.shadow().report().evidence.sampled(), 0, "nothing is sampled until it is open");
    service.stop().await;

    // The CPU stands in for a device that is not there: it is not compared with itself, and never will be.
    let more = [
        "backend.kind=opencl",
        "backend.fallback=cpu",
        "backend.opencl.device=no such device",
        "shadow.backend=cpu",
    ];
    let service = InProcess::start_at_once(shadowed(data.path(), &more), lookalike::server::opener()).await;
    let (opening, told) = service.shadow().report().opening.unwrap();
    assert_eq!(opening.next, Next::Never);
    assert_eq!(
        told,
        "cpu cannot be compared: cpu stands in for backend.kind, and would be compared with itself"
    );
    assert_eq!(service.recognize(&probes()).await.1.backend, "cpu");
    service.stop().await;

    // A record that cannot be kept is a fault of the configuration.
    let blocked = data.path().join("lookalike.db");
    let path = format!("shadow.record.path={}", blocked.display());
    let server = Server::spawn_with(shadowed(data.path(), &[&path]), lookalike::server::opener()).await;
    let refused = server.ended().await.unwrap_err();
    assert!(refused.to_string().starts_with("shadow.record.path: "), "{refused}");
}

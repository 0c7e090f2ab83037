//! A shadow that does whatever it likes: callers get the same bytes, at once.

use std::sync::Arc;
use std::time::Instant;

use lookalike::grpc::proto::{Probe, RecognizeResult, SearchResult};
use lookalike::shadow::{Force, Guilty};
use lookalike::telemetry::{Label, ShadowKind};
use prost::Message;

use super::super::support::{
    CPU, Fault, PLANTED, Switch, data_folder, probe, sample_faces, sample_probes, settings, until,
};
use super::{InProcess, faulty, shadowed};

fn probes() -> Vec<Probe> {
    sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect()
}

/// Replies without what differs from call to call: times and the request's id.
async fn bytes(service: &InProcess, probes: &[Probe]) -> Vec<Vec<u8>> {
    let (recognitions, meta) = service.recognize(probes).await;
    let (results, _) = service.search(probes, 7).await;
    assert_eq!((meta.backend.as_str(), meta.fallback_reason.as_str()), ("cpu", ""));
    let recognitions = recognitions.iter().map(RecognizeResult::encode_to_vec);
    recognitions.chain(results.iter().map(SearchResult::encode_to_vec)).collect()
}

async fn truth(probes: &[Probe]) -> Vec<Vec<u8>> {
    let data = data_folder(&sample_faces());
    let service = InProcess::start(settings(data.path(), &CPU), lookalike::server::opener()).await;
    assert!(service.shadow.is_none());
    let truth = bytes(&service, probes).await;
    service.stop().await;
    truth
}

/// The kinds that a shadow with this fault comes to, after a few requests.
async fn kinds(fault: Fault, more: &[&str]) -> Vec<ShadowKind> {
    let data = data_folder(&sample_faces());
    let (settings, switch) = (shadowed(data.path(), more), Switch::on());
    let planted = switch.clone();
    let service = InProcess::start(settings, faulty(fault, planted)).await;
    let probes = probes();
    let truth = truth(&probes).await;
    for _ in 0..10 {
        assert_eq!(bytes(&service, &probes).await, truth, "{fault:?}");
    }
    service.until_sampled(20 * probes.len() as u64).await;
    let evidence = service.shadow().report().evidence;
    switch.set(false);
    service.stop().await;
    ShadowKind::ALL.iter().copied().filter(|kind| evidence.of(*kind) > 0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_errs_is_left_alone_after_a_while() {
    assert_eq!(kinds(Fault::Errs, &[]).await, [ShadowKind::Error, ShadowKind::Dropped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_panics_is_left_alone_after_a_while() {
    assert_eq!(kinds(Fault::Panics, &[]).await, [ShadowKind::Error, ShadowKind::Dropped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_hangs_times_out() {
    let told = kinds(Fault::Hangs, &["shadow.timeout_ms=20"]).await;
    assert_eq!(told, [ShadowKind::Timeout, ShadowKind::Dropped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_is_slow_drops_what_does_not_fit() {
    let told = kinds(Fault::Slow(100), &["shadow.queue=30"]).await;
    assert_eq!(told, [ShadowKind::Agree, ShadowKind::Dropped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_finds_wrong_rows_is_found_out() {
    let told = kinds(Fault::WrongRows, &[]).await;
    assert!(told.contains(&ShadowKind::Score), "{told:?}");
}

/// What it holds of requests that were answered is bounded by its queue, however many come, and what does not fit is counted by reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_hangs_holds_no_more_than_its_queue() {
    const QUEUE: usize = 48;
    let metrics = lookalike::telemetry::install();
    let data = data_folder(&sample_faces());
    let (more, switch) = (["shadow.timeout_ms=600000", "shadow.queue=48"], Switch::on());
    let service = InProcess::start(shadowed(data.path(), &more), faulty(Fault::Hangs, switch.clone())).await;
    let (probes, snapshot) = (probes(), service.recognizer.gallery("").unwrap());
    let count = probes.len();
    // Each request that is held holds its generation, and so does each engine while it is at one.
    let most = 2 * (QUEUE / count + 1) + 16;
    for requests in [50, 500] {
        for _ in 0..requests {
            service.recognize(&probes).await;
        }
        until("one request is with the shadow, the others wait or were dropped", async || {
            let report = service.shadow().report();
            assert!(report.queued <= QUEUE, "{report:?}");
            (report.queued == QUEUE).then_some(())
        })
        .await;
        let held = Arc::strong_count(&snapshot);
        assert!(held <= most, "{requests} requests, {held} held, expected at most {most}");
    }
    let evidence = service.shadow().report().evidence;
    assert_eq!(evidence.sampled(), (550 * count - QUEUE - count) as u64);
    assert_eq!(evidence.of(ShadowKind::Dropped), evidence.sampled());
    service.shadow().show_queue();
    let told = metrics.render();
    assert!(told.contains(&format!("lookalike_shadow_queue_depth {QUEUE}\n")), "{told}");
    let dropped = told
        .lines()
        .find_map(|line| line.strip_prefix("lookalike_shadow_drops_total{reason=\"queue_full\"} "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() >= evidence.sampled(), "{told}");
    switch.set(false);
    service.stop().await;
}

/// The breaker closes by itself once the shadow answers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_has_recovered_is_compared_again() {
    let data = data_folder(&sample_faces());
    let (settings, switch) = (shadowed(data.path(), &[]), Switch::on());
    let planted = switch.clone();
    let service = InProcess::start(settings, faulty(Fault::Errs, planted)).await;
    let probes = probes();
    until("the breaker is open", async || {
        service.recognize(&probes).await;
        service.shadow().report().breaker_open.then_some(())
    })
    .await;
    let failed = service.shadow().report().evidence.of(ShadowKind::Error);
    switch.set(false);
    until("it agrees", async || {
        service.recognize(&probes).await;
        (service.shadow().report().evidence.of(ShadowKind::Agree) > 0).then_some(())
    })
    .await;
    let report = service.shadow().report();
    assert!(!report.breaker_open || report.evidence.of(ShadowKind::Error) > failed);
    assert!(report.evidence.of(ShadowKind::Dropped) > 0, "what came meanwhile was dropped");
    // What failed then is sound now: the record says who it was.
    let record = service.shadow().latest(1, &[ShadowKind::Error]).pop().unwrap();
    assert!(record.error.contains("lost") && record.probe.is_none(), "{record:?}");
    assert_eq!(service.shadow().replay(&record.id).await.unwrap().guilty, Guilty::Shadow);
    service.stop().await;
}

/// Promoted, and then its device fails in the middle of requests: the CPU answers them, and goes on to.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_device_that_fails_costs_no_request() {
    for fault in [Fault::Errs, Fault::Panics] {
        let data = data_folder(&sample_faces());
        let (settings, switch) = (shadowed(data.path(), &[]), Switch::default());
        let planted = switch.clone();
        let service = InProcess::start(settings, faulty(fault, planted)).await;
        let probes = probes();
        service.shadow().promote("tried", Force::Yes).unwrap();
        let (told, meta) = service.recognize(&probes).await;
        assert_eq!(meta.backend, "opencl");
        switch.set(true);
        let (mended, meta) = service.recognize(&probes).await;
        assert_eq!(mended, told);
        assert_eq!(meta.backend, "cpu");
        assert!(
            meta.fallback_reason.starts_with("the promoted backend failed: "),
            "{}",
            meta.fallback_reason
        );
        let rollout = service.shadow().report().rollout;
        assert!(!rollout.promoted && !rollout.held, "{rollout:?}");
        let (_, meta) = service.recognize(&probes).await;
        assert_eq!((meta.backend.as_str(), meta.fallback_reason.as_str()), ("cpu", ""));
        service.stop().await;
    }
}

/// The 99th percentile of 6400 requests of 64 callers, in microseconds.
async fn p99(service: &Arc<InProcess>, probes: &[Probe]) -> u64 {
    let mut callers = Vec::new();
    for caller in 0..64 {
        let (service, probe) = (Arc::clone(service), vec![probes[caller % probes.len()].clone()]);
        callers.push(tokio::spawn(async move {
            let mut times = Vec::with_capacity(100);
            for _ in 0..100 {
                let started = Instant::now();
                service.recognize(&probe).await;
                times.push(started.elapsed().as_micros() as u64);
            }
            times
        }));
    }
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.unwrap());
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Most that the 99th percentile may be with a bad shadow, by that without one.
const MOST: f64 = 1.1;

/// The shadow uses no processor: what is measured is what handing over costs. Both are measured in turns, so that what else the
/// machine does hits both. A machine that is busy may need several goes.
async fn cost_of(fault: Fault, plain: &Arc<InProcess>) -> Vec<f64> {
    const GOES: usize = 8;
    const ROUNDS: usize = 11;
    let (data, switch) = (data_folder(&sample_faces()), Switch::on());
    let more = ["shadow.timeout_ms=600000", "shadow.queue=512"];
    let open = faulty(fault, switch.clone());
    let shadowed = Arc::new(InProcess::start(shadowed(data.path(), &more), open).await);
    let probes = probes();
    let mut ratios = Vec::new();
    for _ in 0..GOES {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            off.push(p99(plain, &probes).await);
            on.push(p99(&shadowed, &probes).await);
        }
        ratios.push(median(on) as f64 / median(off) as f64);
        if ratios.last().is_some_and(|ratio| *ratio <= MOST) {
            break;
        }
    }
    let report = shadowed.shadow().report();
    assert!(report.evidence.of(ShadowKind::Dropped) > 0, "it was asked: {report:?}");
    assert_eq!(report.evidence.of(ShadowKind::Agree), 0, "it answered nothing: {report:?}");
    switch.set(false);
    ratios
}

#[tokio::test(flavor = "multi_thread")]
async fn handing_over_costs_no_time() {
    // A backtrace of a planted panic would take seconds of a processor.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some(PLANTED) {
            told(panic);
        }
    }));
    let data = data_folder(&sample_faces());
    let plain = InProcess::start(settings(data.path(), &CPU), lookalike::server::opener()).await;
    let plain = Arc::new(plain);
    for fault in [Fault::Hangs, Fault::Errs, Fault::Panics] {
        let ratios = cost_of(fault, &plain).await;
        println!("p99 of 64 callers with a shadow ({fault:?}), by that without: {ratios:.3?}");
        assert!(ratios.last().is_some_and(|ratio| *ratio <= MOST), "{fault:?}: {ratios:?}");
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

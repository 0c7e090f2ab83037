//! Every planted fault is found, called what it is, and `Replay` names the guilty side; both ways round.

use lookalike::gallery::store::{Import, ImportOptions, Store};
use lookalike::recognize::Seat;
use lookalike::shadow::{Force, Guilty};
use lookalike::telemetry::ShadowKind;

use super::super::support::{Fault, Switch, data_folder};
use super::healthy::record;
use super::{InProcess, faces, faulty, probes_of, shadowed};

/// What a fault is found as: how many probes' most serious difference was of each kind.
struct Findings {
    counts: Vec<(ShadowKind, u64)>,
    hard: u64,
}

async fn plant(fault: Fault, more: &[&str], guilty: Guilty) -> Findings {
    let data = data_folder(&faces());
    let (settings, switch) = (shadowed(data.path(), more), Switch::default());
    let planted = switch.clone();
    let service = InProcess::start(settings, faulty(fault, planted)).await;
    let probes = probes_of(&faces());
    let count = probes.len() as u64;

    // Nothing is wrong yet.
    let sound = service.recognize(&probes).await.0;
    service.search(&probes, 10).await;
    service.until_sampled(2 * count).await;
    let evidence = service.shadow().report().evidence;
    assert_eq!(evidence.of(ShadowKind::Agree), 2 * count, "{fault:?}: {evidence:?}");

    switch.set(true);
    if guilty == Guilty::Primary {
        service.shadow().promote("to see it go wrong", Force::Yes).unwrap();
    }
    // What callers get is right all the same, unless the wrong side answers.
    let told = service.recognize(&probes).await.0;
    service.search(&probes, 10).await;
    if guilty == Guilty::Shadow {
        assert_eq!(told, sound, "{fault:?}");
        service.until_sampled(4 * count).await;
    }
    let latest = super::super::support::until("it is found", async || {
        service.shadow().latest(1, &[]).first().cloned()
    })
    .await;
    let replayed = service.shadow().replay(&latest.id).await.unwrap();
    assert_eq!(replayed.guilty, guilty, "{fault:?}: {replayed:#?}");
    assert!(replayed.same_generation);
    assert!(latest.embedding.is_none(), "embeddings are kept where the configuration wants it alone");

    let evidence = service.shadow().report().evidence;
    let kinds = [ShadowKind::Decision, ShadowKind::Identity, ShadowKind::Order, ShadowKind::Score];
    let counts =
        kinds.iter().map(|kind| (*kind, evidence.of(*kind))).filter(|(_, count)| *count > 0).collect();
    let hard = evidence.hard();
    service.stop().await;
    Findings { counts, hard }
}

fn count(findings: &Findings, kind: ShadowKind) -> u64 {
    findings.counts.iter().find(|(one, _)| *one == kind).map_or(0, |(_, count)| *count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_a_wrong_score() {
    // The lowest bit of the exponent: a component becomes twice or half as large.
    let findings = plant(Fault::Flipped { row: 17, component: 5, bit: 23 }, &[], Guilty::Shadow).await;
    assert!(count(&findings, ShadowKind::Score) > 0, "{:?}", findings.counts);
    assert_eq!(findings.hard, 0, "verification mends it: {:?}", findings.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_rows_are_wrong_scores() {
    let findings = plant(Fault::Swapped(3, 40), &[], Guilty::Shadow).await;
    assert!(count(&findings, ShadowKind::Score) >= 2, "{:?}", findings.counts);
    assert_eq!(findings.hard, 0, "{:?}", findings.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn scaled_scores_are_wrong_scores() {
    let findings = plant(Fault::Scaled(1.001), &[], Guilty::Shadow).await;
    let all = 2 * faces().len() as u64;
    assert_eq!(findings.counts, [(ShadowKind::Score, all)]);
}

/// The gallery has several chunks on the device, and the row is the last of one.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_skipped_at_a_chunks_edge_is_another_identity() {
    let more = ["backend.opencl.chunk_rows=16"];
    let findings = plant(Fault::Skipped(15), &more, Guilty::Shadow).await;
    // The probe that is that row is told another person, asked either way.
    assert_eq!(findings.hard, 2, "{:?}", findings.counts);
}

/// A person who has others is still nearest: what stands behind is not what it should be, and now and then the decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_skipped_of_several_is_another_order() {
    let findings = plant(Fault::Skipped(30), &[], Guilty::Shadow).await;
    assert_eq!(count(&findings, ShadowKind::Identity), 0, "{:?}", findings.counts);
    assert!(count(&findings, ShadowKind::Order) > 0, "{:?}", findings.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_rows_are_wrong_scores() {
    let findings = plant(Fault::WrongRows, &[], Guilty::Shadow).await;
    assert!(count(&findings, ShadowKind::Score) > 0, "{:?}", findings.counts);
}

/// Once promoted, the faulty device is the primary, and the CPU is what it is compared with.
#[tokio::test(flavor = "multi_thread")]
async fn a_guilty_primary_is_named_and_taken_back() {
    for fault in [Fault::Scaled(1.001), Fault::Skipped(15)] {
        plant(fault, &[], Guilty::Primary).await;
    }
}

/// The device goes on with the generation before.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_generation_is_found() {
    let mut faces = faces();
    let data = data_folder(&faces);
    let (settings, switch) = (shadowed(data.path(), &[]), Switch::on());
    let service = InProcess::start(settings, faulty(Fault::Stale, switch)).await;
    let probes = probes_of(&faces);
    service.recognize(&probes).await;
    service.until_sampled(probes.len() as u64).await;
    assert_eq!(service.shadow().report().evidence.of(ShadowKind::Agree), probes.len() as u64);

    // As many rows as before, in another order.
    faces.reverse();
    let other = data_folder(&faces[1..]);
    let mut store = Store::open(other.path()).unwrap();
    let records = vec![record(&faces[0])];
    store
        .import(Import { gallery: "default", options: ImportOptions::default(), records }, &mut |_| ())
        .unwrap();
    let snapshot = store.snapshot("default").unwrap();
    let recognizer = std::sync::Arc::clone(&service.recognizer);
    tokio::task::spawn_blocking(move || recognizer.replace(snapshot)).await.unwrap().unwrap();
    service.recognize(&probes).await;
    service.until_sampled(2 * probes.len() as u64).await;
    let evidence = service.shadow().report().evidence;
    assert!(evidence.of(ShadowKind::Score) > 0, "{evidence:?}");
    let latest = &service.shadow().latest(1, &[ShadowKind::Score])[0];
    assert!(latest.sides.shadow.wrong_scores && !latest.sides.primary.wrong_scores, "{latest:#?}");
    assert_eq!(service.shadow().replay(&latest.id).await.unwrap().guilty, Guilty::Shadow);
    assert_eq!(service.recognizer.answering(), Seat::Standing);
    service.stop().await;
}

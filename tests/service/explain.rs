//! `Explain` says what `Recognize` says, why, and what would turn it: asked again under that threshold and margin, the server decides so.

use lookalike::domain::{Margin, Threshold};
use lookalike::gallery::store::ImportOptions;
use lookalike::grpc::proto::{Decision, ExplainRequest, RecognizeRequest};
use tonic::Code;
use tonic_types::StatusExt;

use super::support::{CPU, Server, data_folder_as, probe, sample_faces, sample_probes};

async fn server() -> (tempfile::TempDir, Server) {
    let options = ImportOptions {
        threshold: Some(Threshold::parse(0.942).unwrap()),
        min_margin: Some(Margin::parse(0.04).unwrap()),
        ..Default::default()
    };
    let folder = data_folder_as(options, &sample_faces());
    let server = Server::start(folder.path(), &CPU).await;
    (folder, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_turns_a_decision_turns_it() {
    let (_folder, server) = server().await;
    let mut turned = Vec::new();
    for (id, vector) in sample_probes() {
        let request =
            ExplainRequest { probe: Some(probe(&id, &vector)), max_candidates: 3, ..Default::default() };
        let explained = server.recognition().explain(request).await.unwrap().into_inner();
        let one = explained.recognition.unwrap();
        let recognize = async |threshold, min_margin| {
            let probes = vec![probe(&id, &vector)];
            let request =
                RecognizeRequest { probes, threshold, min_margin, max_candidates: 3, ..Default::default() };
            server.recognition().recognize(request).await.unwrap().into_inner().recognitions.remove(0)
        };
        assert_eq!(one, recognize(None, None).await);
        let listed: Vec<_> = explained.leading.iter().map(|one| one.candidate.clone().unwrap()).collect();
        assert_eq!(listed, one.candidates);
        assert_eq!(explained.leading[0].lead, one.margin);
        assert_eq!(Some(explained.leading[0].threshold_headroom), one.threshold_headroom);
        assert!(explained.leading[1].lead.unwrap() < 0.0);
        for candidate in &explained.leading {
            assert_eq!((candidate.origin.as_str(), candidate.threshold), ("import", 0.942));
            assert!((4..=6).contains(&candidate.prototypes), "{candidate:?}");
        }
        assert!(!explained.turns.is_empty());
        for turn in &explained.turns {
            let under = recognize(Some(turn.threshold), Some(turn.min_margin)).await;
            assert_eq!(under.decision, turn.decision, "{id}: {turn:?}");
            assert_ne!(turn.decision, one.decision);
            turned.push((one.decision(), turn.decision()));
        }
        // Least turned first: of a probe below the threshold that is its own score.
        if one.decision() == Decision::BelowThreshold {
            assert_eq!(Some(explained.turns[0].threshold), one.score);
        }
    }
    for pair in [
        (Decision::Recognized, Decision::BelowThreshold),
        (Decision::Recognized, Decision::Ambiguous),
        (Decision::Ambiguous, Decision::Recognized),
        (Decision::BelowThreshold, Decision::Ambiguous),
    ] {
        assert!(turned.contains(&pair), "{pair:?} of {turned:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_named_by_their_fields() {
    let (_folder, server) = server().await;
    let refused = async |request| server.recognition().explain(request).await.unwrap_err();
    let status = refused(ExplainRequest {
        probe: Some(probe("p", &[1.0, 0.0])),
        threshold: Some(1.5),
        max_candidates: 1_000_000,
        ..Default::default()
    })
    .await;
    assert_eq!(status.code(), Code::InvalidArgument);
    let faults = status.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, ["threshold", "max_candidates", "probe.embedding"]);
    assert_eq!(refused(ExplainRequest::default()).await.code(), Code::InvalidArgument);
    let unknown = ExplainRequest { gallery: "nobody's".to_owned(), ..Default::default() };
    assert_eq!(refused(unknown).await.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_everybody_left_out_there_is_nothing_to_turn() {
    let (_folder, server) = server().await;
    let (id, vector) = sample_probes().remove(0);
    let mut asked = probe(&id, &vector);
    asked.exclude_identities = (1..=12).map(|number| format!("person_{number:03}")).collect();
    let request = ExplainRequest { probe: Some(asked), ..Default::default() };
    let explained = server.recognition().explain(request).await.unwrap().into_inner();
    assert_eq!(explained.recognition.unwrap().decision(), Decision::NoCandidate);
    assert_eq!((explained.leading.len(), explained.turns.len()), (0, 0));
}

//! What is refused: each fault by its field path, what was expected and what came; and the server goes on.

use lookalike::domain::NormPolicy;
use lookalike::gallery::store::ImportOptions;
use lookalike::grpc::proto::{Decision, Probe, RecognizeRequest, SearchRequest};
use prost::Message;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::support::{
    CPU, Face, Server, call, data_folder_as, packed, probe, sample_faces, sample_probes, values,
};

const SEARCH: &str = "/lookalike.v1.Recognition/Search";

/// The sample gallery, with a model and limits that a test can reach.
async fn server() -> (tempfile::TempDir, Server) {
    let options = ImportOptions { model_id: Some("model-a".to_owned()), ..Default::default() };
    let folder = data_folder_as(options, &sample_faces());
    let flags = [CPU[0], "server.limits.max_message_bytes=400000", "server.limits.max_probes=300"];
    let server = Server::start(folder.path(), &flags).await;
    (folder, server)
}

fn good() -> Vec<f32> {
    sample_probes().remove(0).1
}

/// The sample's first probe with something done to it.
fn spoilt(spoil: impl FnOnce(&mut Vec<f32>)) -> Probe {
    let mut vector = good();
    spoil(&mut vector);
    probe("p", &vector)
}

fn search(probes: Vec<Probe>) -> SearchRequest {
    SearchRequest { probes, top_k: 3, ..Default::default() }
}

fn recognize(probes: Vec<Probe>) -> RecognizeRequest {
    RecognizeRequest { probes, ..Default::default() }
}

/// The faults that a status lists: path and description.
fn faults(status: &Status) -> Vec<(String, String)> {
    let listed = status.get_details_bad_request().unwrap_or_else(|| panic!("{status:?} lists nothing"));
    listed.field_violations.into_iter().map(|fault| (fault.field, fault.description)).collect()
}

fn assert_faults(status: &Status, expected: &[(&str, &str)]) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let expected: Vec<(String, String)> =
        expected.iter().map(|(field, text)| ((*field).to_owned(), (*text).to_owned())).collect();
    assert_eq!(faults(status), expected);
    let (field, description) = &expected[0];
    assert!(status.message().starts_with(&format!("{field}: {description}")), "{}", status.message());
}

/// The server still answers.
async fn assert_goes_on(server: &Server) {
    let answer = server.recognition().search(search(vec![probe("p", &good())])).await.unwrap().into_inner();
    assert_eq!(answer.results[0].neighbors.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_that_is_no_embedding_is_named() {
    let (_folder, server) = server().await;
    let embedding = |embedding| Probe { embedding, ..Probe::default() };
    let both = lookalike::grpc::proto::Embedding { values: good(), ..packed(&good()) };
    let mut uneven = packed(&good());
    uneven.packed = uneven.packed[..511].to_vec().into();
    let path = "probes[0].embedding";
    for (probe, field, text) in [
        (spoilt(|v| v.truncate(3)), path, "expected 128 components, got 3"),
        (spoilt(|v| v.push(0.0)), path, "expected 128 components, got 129"),
        (spoilt(|v| v[5] = f32::NAN), path, "expected finite components, got NaN at component 5"),
        (spoilt(|v| v[127] = f32::INFINITY), path, "expected finite components, got inf at component 127"),
        (spoilt(|v| v[0] = f32::NEG_INFINITY), path, "expected finite components, got -inf at component 0"),
        (spoilt(|v| v.fill(0.0)), path, "expected a direction, got the zero vector"),
        (embedding(None), path, "expected 128 components in values or packed, got none"),
        (embedding(Some(values(&[]))), path, "expected 128 components in values or packed, got none"),
        (embedding(Some(values(&[1.0; 7]))), path, "expected 128 components, got 7"),
        (embedding(Some(both)), path, "expected either values or packed, got both"),
        (
            embedding(Some(uneven)),
            "probes[0].embedding.packed",
            "expected 512 bytes (4 a component), got 511",
        ),
    ] {
        let refused = server.recognition().search(search(vec![probe.clone()])).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
        let refused = server.recognition().recognize(recognize(vec![probe])).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
        assert_goes_on(&server).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_out_of_its_range_is_named() {
    let (_folder, server) = server().await;
    let probes = || vec![probe("p", &good())];
    for (request, field, text) in [
        (SearchRequest { top_k: 0, ..search(probes()) }, "top_k", "expected 1 to 16384, got 0"),
        (SearchRequest { top_k: 16_385, ..search(probes()) }, "top_k", "expected 1 to 16384, got 16385"),
        (
            SearchRequest { top_k: u32::MAX, ..search(probes()) },
            "top_k",
            "expected 1 to 16384, got 4294967295",
        ),
        (
            SearchRequest { min_score: Some(f32::NAN), ..search(probes()) },
            "min_score",
            "expected a number from -1 to 1, got NaN",
        ),
        (
            SearchRequest { min_score: Some(-1.5), ..search(probes()) },
            "min_score",
            "expected a number from -1 to 1, got -1.5",
        ),
    ] {
        let refused = server.recognition().search(request).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
    }
    for (request, field, text) in [
        (
            RecognizeRequest { threshold: Some(1.5), ..recognize(probes()) },
            "threshold",
            "expected a number from -1 to 1, got 1.5",
        ),
        (
            RecognizeRequest { threshold: Some(f32::INFINITY), ..recognize(probes()) },
            "threshold",
            "expected a number from -1 to 1, got inf",
        ),
        (
            RecognizeRequest { min_margin: Some(-1.0), ..recognize(probes()) },
            "min_margin",
            "expected a number from 0 to 2, got -1",
        ),
        (
            RecognizeRequest { max_candidates: 1001, ..recognize(probes()) },
            "max_candidates",
            "expected 0 to 1000, got 1001",
        ),
    ] {
        let refused = server.recognition().recognize(request).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
    }
    assert_goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_or_too_many_of_anything_is_named() {
    let (_folder, server) = server().await;
    let small = Probe::default();
    let names = |count: usize| vec!["x".to_owned(); count];
    let one = probe("p", &good());
    for (probes, field, text) in [
        (vec![], "probes", "expected 1 to 300 probes, got 0"),
        (vec![small; 301], "probes", "expected 1 to 300 probes, got 301"),
        (
            vec![Probe { exclude_identities: names(1001), ..one.clone() }],
            "probes[0].exclude_identities",
            "expected at most 1000 names, got 1001",
        ),
        (
            vec![one.clone(), Probe { exclude_prototypes: names(1002), ..one.clone() }],
            "probes[1].exclude_prototypes",
            "expected at most 1000 names, got 1002",
        ),
        (
            vec![Probe { exclude_sources: names(1001), ..one.clone() }],
            "probes[0].exclude_sources",
            "expected at most 1000 names, got 1001",
        ),
        (
            vec![Probe { id: "x".repeat(257), ..one.clone() }],
            "probes[0].id",
            "expected at most 256 bytes, got 257",
        ),
        (
            vec![Probe { group: "é".repeat(129), ..one.clone() }],
            "probes[0].group",
            "expected at most 256 bytes, got 258",
        ),
    ] {
        let refused = server.recognition().search(search(probes.clone())).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
        let refused = server.recognition().recognize(recognize(probes)).await.unwrap_err();
        assert_faults(&refused, &[(field, text)]);
    }
    let at_the_limit = Probe { id: "x".repeat(256), exclude_sources: names(1000), ..one };
    server.recognition().search(search(vec![at_the_limit])).await.unwrap();
    assert_goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_too_large_is_refused_before_it_is_made() {
    let folder = data_folder_as(ImportOptions::default(), &sample_faces());
    let flags = [CPU[0], "server.limits.max_neighbors=100", "server.limits.max_message_bytes=20000"];
    let server = Server::start(folder.path(), &flags).await;
    let ask = async |probes: usize, top_k, include_embeddings| {
        let probes = vec![probe("p", &good()); probes];
        let request = SearchRequest { probes, top_k, include_embeddings, ..Default::default() };
        server.recognition().search(request).await
    };
    // 60 rows: two probes can have no more than 120 neighbors, whatever their k.
    let text = "expected at most 100 neighbors in a reply (server.limits.max_neighbors), got 2 probes of 60";
    assert_faults(&ask(2, 16_384, false).await.unwrap_err(), &[("top_k", text)]);
    let text =
        "expected at most 20000 bytes of embeddings in a reply (server.limits.max_message_bytes), got 20480";
    assert_faults(&ask(1, 40, true).await.unwrap_err(), &[("include_embeddings", text)]);
    let answer = ask(1, 39, true).await.unwrap().into_inner();
    let neighbors = &answer.results[0].neighbors;
    assert_eq!((neighbors.len(), ask(2, 50, false).await.unwrap().into_inner().results.len()), (39, 2));
    let faces = sample_faces();
    for neighbor in neighbors {
        assert_eq!(neighbor.embedding.as_ref().unwrap().values, faces[neighbor.index as usize].vector);
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_faults_are_listed_together() {
    let (_folder, server) = server().await;
    let request = RecognizeRequest {
        probes: vec![
            spoilt(|v| v.truncate(2)),
            probe("good", &good()),
            Probe { id: "x".repeat(300), ..spoilt(|v| v.fill(0.0)) },
        ],
        threshold: Some(-2.0),
        min_margin: Some(f32::NAN),
        max_candidates: 5000,
        ..Default::default()
    };
    let refused = server.recognition().recognize(request).await.unwrap_err();
    assert_faults(
        &refused,
        &[
            ("threshold", "expected a number from -1 to 1, got -2"),
            ("min_margin", "expected a number from 0 to 2, got NaN"),
            ("max_candidates", "expected 0 to 1000, got 5000"),
            ("probes[0].embedding", "expected 128 components, got 2"),
            ("probes[2].id", "expected at most 256 bytes, got 300"),
            ("probes[2].embedding", "expected a direction, got the zero vector"),
        ],
    );
    assert!(refused.message().ends_with("(and 5 more)"), "{}", refused.message());
    // A request that is wrong throughout is answered with a bounded list.
    let request = SearchRequest { probes: vec![Probe::default(); 300], ..Default::default() };
    let refused = server.recognition().search(request).await.unwrap_err();
    let listed = faults(&refused);
    assert_eq!(
        (listed.len(), listed[0].0.as_str(), listed[31].0.as_str()),
        (32, "top_k", "probes[30].embedding")
    );
    assert_goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gallery_or_model_is_told_from_a_bad_request() {
    let (_folder, server) = server().await;
    let request = SearchRequest { gallery: "friends".to_owned(), ..search(vec![probe("p", &good())]) };
    let refused = server.recognition().search(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(refused.message(), "gallery: no gallery \"friends\"; served: default");
    let resource = refused.get_details_resource_info().unwrap();
    assert_eq!((resource.resource_type.as_str(), resource.resource_name.as_str()), ("gallery", "friends"));

    let request = RecognizeRequest { model_id: "model-b".to_owned(), ..recognize(vec![probe("p", &good())]) };
    let refused = server.recognition().recognize(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "model_id: expected \"model-a\", the gallery's model, got \"model-b\"");
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.reason, "WRONG_MODEL");
    assert_eq!((info.metadata["expected"].as_str(), info.metadata["got"].as_str()), ("model-a", "model-b"));
    let right = RecognizeRequest { model_id: "model-a".to_owned(), gallery: "default".to_owned(), ..request };
    let answer = server.recognition().recognize(right).await.unwrap().into_inner();
    assert_eq!(answer.meta.unwrap().model_id, "model-a");
    assert_goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_or_of_other_bytes_is_refused_in_our_words() {
    let (_folder, server) = server().await;
    let long = search(
        vec![probe("p", &vec![0.5; 128]); 300]
            .into_iter()
            .map(|mut probe| {
                probe.exclude_sources = vec!["x".repeat(1000)];
                probe
            })
            .collect(),
    );
    let bytes = long.encoded_len();
    assert!(bytes > 400_000);
    let text = format!("expected at most 400000 bytes (server.limits.max_message_bytes), got {bytes}");
    let refused = server.recognition().search(long.clone()).await.unwrap_err();
    assert_faults(&refused, &[("(message)", &text)]);
    assert_goes_on(&server).await;

    for bytes in [&b"\xff\xff\xff\xff"[..], b"{\"probes\": []}"] {
        let refused = call(server.grpc, SEARCH, &[], bytes).await.status;
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        let [(field, text)] = &faults(&refused)[..] else { panic!("{refused:?}") };
        assert_eq!(field, "(message)");
        assert!(text.starts_with("expected a message of this method, got bytes that are none"), "{text}");
    }
    let good = search(vec![probe("p", &good())]).encode_to_vec();
    assert_eq!(call(server.grpc, SEARCH, &[], &good).await.status.code(), Code::Ok);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_or_service_is_unimplemented() {
    let (_folder, server) = server().await;
    for path in ["/lookalike.v1.Recognition/Guess", "/lookalike.v2.Recognition/Search", "/x"] {
        let ended = call(server.grpc, path, &[("x-request-id", "r-1")], &[]).await;
        assert_eq!(ended.status.code(), Code::Unimplemented, "{path}");
        assert_eq!(ended.headers["x-request-id"], "r-1");
    }
    assert_goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gallery_of_unit_vectors_takes_no_other() {
    let options = ImportOptions { norm: Some(NormPolicy::RequireUnit), ..Default::default() };
    let folder = data_folder_as(options, &[Face::new("ann", "1", vec![0.6, 0.8])]);
    let server = Server::start(folder.path(), &CPU).await;
    let ask =
        async |vector: &[f32]| server.recognition().recognize(recognize(vec![probe("p", vector)])).await;
    let refused = ask(&[1.01, 0.0]).await.unwrap_err();
    let [(field, text)] = &faults(&refused)[..] else { panic!("{refused:?}") };
    assert_eq!(field, "probes[0].embedding");
    assert!(text.starts_with("expected a unit vector (norm within 1e-3 of 1), got norm 1.00999"), "{text}");
    assert!(ask(&[0.998, 0.0]).await.is_err());
    let near = ask(&[0.6 * 1.0005, 0.8 * 1.0005]).await.unwrap().into_inner().recognitions.remove(0);
    assert_eq!(near.decision(), Decision::Recognized);
    assert!((near.score.unwrap() - 1.0).abs() < 1e-6, "normalised, not scaled");
    server.stop().await.unwrap();
}

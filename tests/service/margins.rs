//! The margin is the real one or absent; what a probe leaves out is left out; what applies is what was said nearest.

use lookalike::domain::{Margin, Threshold};
use lookalike::gallery::store::ImportOptions;
use lookalike::gallery::{DEFAULT_GALLERY, GalleryProfile, Identity};
use lookalike::grpc::proto::{Decision, Probe, RecognizeRequest, RecognizeResult};
use lookalike::recognize::decision::Decision as Concluded;
use lookalike::recognize::{Exclusions, Probe as Asked, Recognition, RecognizeQuery, Recognizer};

use super::support::{
    BACKENDS, CPU, Face, OPENCL, REFERENCE, Random, Server, data_folder, data_folder_as, probe, recognizer,
    sample_faces, sample_probes, snapshot, snapshot_of, unit,
};

async fn recognize(server: &Server, request: RecognizeRequest) -> Vec<RecognizeResult> {
    server.recognition().recognize(request).await.unwrap().into_inner().recognitions
}

async fn recognize_one(server: &Server, probe: Probe) -> RecognizeResult {
    let request = RecognizeRequest { probes: vec![probe], threshold: Some(0.5), ..Default::default() };
    recognize(server, request).await.remove(0)
}

/// One person with `crowd` prototypes right at the probe, a second further off, a third behind; and the probe.
fn crowded(crowd: usize, dim: usize) -> (Vec<Face>, Vec<f32>) {
    let mut random = Random::new(crowd as u64);
    let probe = random.vector(dim);
    let mut faces: Vec<Face> =
        (0..crowd).map(|row| Face::new("crowd", &row.to_string(), random.near(&probe, 0.05))).collect();
    faces.insert(crowd / 2, Face::new("second", "far", random.near(&probe, 1.0)));
    faces.insert(0, Face::new("second", "near", random.near(&probe, 0.4)));
    faces.push(Face::new("third", "a", random.near(&probe, 1.5)));
    (faces, probe)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_persons_forty_prototypes_do_not_hide_the_second_person() {
    let (faces, vector) = crowded(40, 128);
    let folder = data_folder(&faces);
    let reference = Server::start(folder.path(), &REFERENCE).await;
    for (_, flags) in BACKENDS {
        let server = Server::start(folder.path(), flags).await;
        for max_candidates in [1, 2, 5] {
            let request = RecognizeRequest {
                probes: vec![probe("p", &vector)],
                threshold: Some(0.5),
                min_margin: Some(0.01),
                max_candidates,
                ..Default::default()
            };
            let got = recognize(&server, request.clone()).await;
            assert_eq!(got, recognize(&reference, request).await, "{flags:?}");
            let one = &got[0];
            assert_eq!((one.decision(), one.identity.as_str()), (Decision::Recognized, "crowd"));
            assert_eq!(one.candidates.len(), 3.min(max_candidates as usize));
            // What a search of the whole gallery says of the second person.
            let search = lookalike::grpc::proto::SearchRequest {
                probes: vec![probe("p", &vector)],
                top_k: 100,
                ..Default::default()
            };
            let neighbors = reference
                .recognition()
                .search(search)
                .await
                .unwrap()
                .into_inner()
                .results
                .remove(0)
                .neighbors;
            assert!(neighbors[..5].iter().all(|neighbor| neighbor.identity == "crowd"));
            let second = neighbors.iter().find(|neighbor| neighbor.identity != "crowd").unwrap();
            let margin = (f64::from(neighbors[0].score) - f64::from(second.score)) as f32;
            assert_eq!((second.prototype_id.as_str(), one.margin), ("near", Some(margin)));
        }
        server.stop().await.unwrap();
    }
    reference.stop().await.unwrap();
}

/// Asks a recognizer about one probe.
fn ask(recognizer: &Recognizer, vector: &[f32], exclude: Exclusions, max_candidates: usize) -> Recognition {
    let probe = Asked { embedding: unit(vector), group: String::new(), exclude };
    let query = RecognizeQuery {
        snapshot: recognizer.gallery("").unwrap().clone(),
        probes: vec![probe],
        threshold: None,
        min_margin: None,
        max_candidates,
        unique_in_group: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(recognizer.recognize(query)).unwrap().recognitions.remove(0)
}

/// More prototypes of one person than any scan takes rows: the second is found by leaving that person out.
#[test]
fn one_persons_six_thousand_prototypes_do_not_hide_the_second_person() {
    let (faces, vector) = crowded(6000, 32);
    let of = |flags: &[&str], max_candidates| {
        let recognizer = recognizer(snapshot(32, &faces), flags);
        ask(&recognizer, &vector, Exclusions::default(), max_candidates)
    };
    for max_candidates in [1, 3] {
        let reference = of(&REFERENCE, max_candidates);
        assert_eq!(reference.verdict.decision, Concluded::Recognized);
        for flags in [&CPU[..], &OPENCL] {
            let got = of(flags, max_candidates);
            assert_eq!(got.verdict, reference.verdict, "{flags:?}");
            let ranked = |one: &Recognition| -> Vec<(u32, u32)> {
                one.candidates.iter().map(|ranked| (ranked.row, ranked.score.to_bits())).collect()
            };
            assert_eq!(ranked(&got), ranked(&reference), "{flags:?}");
        }
        assert_eq!(reference.candidates.len(), max_candidates);
        assert!(reference.verdict.margin.unwrap() > 0.0);
    }
}

#[test]
fn a_gallery_of_one_person_has_no_margin() {
    let mut random = Random::new(9);
    let centre = random.vector(16);
    let faces: Vec<Face> =
        (0..70).map(|row| Face::new("only", &row.to_string(), random.near(&centre, 0.3))).collect();
    for flags in [&REFERENCE[..], &CPU, &OPENCL] {
        let recognizer = recognizer(snapshot(16, &faces), flags);
        let one = ask(&recognizer, &centre, Exclusions::default(), 5);
        // However large the least margin is, there is nobody to be ahead of.
        assert_eq!(one.verdict.decision, Concluded::Recognized);
        assert_eq!((one.verdict.margin, one.verdict.margin_headroom()), (None, None));
        assert_eq!(one.candidates.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_probe_leaves_out_is_left_out() {
    let faces = [
        Face::new("ann", "1", vec![1.0, 0.0, 0.0]),
        Face::new("ann", "2", vec![0.8, 0.6, 0.0]),
        Face::new("bob", "1", vec![0.6, 0.8, 0.0]),
        Face::new("bob", "2", vec![0.0, 1.0, 0.0]),
        Face { source: "party.jpg".to_owned(), ..Face::new("cid", "x", vec![0.28, 0.96, 0.0]) },
        Face { source: "party.jpg".to_owned(), ..Face::new("ann", "3", vec![0.96, 0.28, 0.0]) },
    ];
    let folder = data_folder(&faces);
    let server = Server::start(folder.path(), &CPU).await;
    let leave = |identities: &[&str], prototypes: &[&str], sources: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Probe {
            exclude_identities: names(identities),
            exclude_prototypes: names(prototypes),
            exclude_sources: names(sources),
            ..probe("p", &[1.0, 0.0, 0.0])
        }
    };
    // What is left out, the best prototype's index that is left, and the runner-up's.
    for (probe, best, second) in [
        (leave(&[], &[], &[]), Some(0), Some(2)),
        (leave(&[], &["ann/1"], &[]), Some(5), Some(2)),
        (leave(&[], &["1"], &[]), Some(5), Some(4)),
        (leave(&[], &["ann/1", "ann/3"], &[]), Some(1), Some(2)),
        (leave(&[], &[], &["party.jpg"]), Some(0), Some(2)),
        (leave(&[], &["1"], &["party.jpg"]), Some(1), Some(3)),
        (leave(&["ann"], &[], &[]), Some(2), Some(4)),
        (leave(&["ann", "cid"], &[], &[]), Some(2), None),
        (leave(&["ann", "cid"], &["1"], &[]), Some(3), None),
        (leave(&["nobody", ""], &["ann/9", "/", "9"], &["no.jpg", ""]), Some(0), Some(2)),
        (leave(&["ann", "bob", "cid"], &[], &[]), None, None),
        (leave(&["bob"], &["ann/1", "2"], &["party.jpg"]), None, None),
    ] {
        let one = recognize_one(&server, probe.clone()).await;
        let found: Vec<u64> = one.candidates.iter().map(|candidate| candidate.index).collect();
        assert_eq!((found.first(), found.get(1)), (best.as_ref(), second.as_ref()), "{probe:?}");
        assert_eq!(one.margin.is_some(), second.is_some());
        if best.is_none() {
            assert_eq!(one.decision(), Decision::NoCandidate);
            assert_eq!((one.score, one.nearest, one.threshold_headroom), (None, None, None));
            assert_eq!((one.identity.as_str(), one.margin_headroom), ("", None));
            assert!(one.threshold > 0.0, "what would have applied is told all the same");
        }
    }
    server.stop().await.unwrap();
}

/// Each gallery row as a probe, itself left out, whichever way it is named: the answer is that of a gallery without it.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_one_out_is_as_if_it_were_not_there() {
    let faces = sample_faces();
    let folder = data_folder(&faces);
    let server = Server::start(folder.path(), &CPU).await;
    for left in [0, 17, 59] {
        let face = &faces[left];
        let rest: Vec<Face> = faces.iter().filter(|one| one.source != face.source).cloned().collect();
        let without = data_folder(&rest);
        let smaller = Server::start(without.path(), &REFERENCE).await;
        let expected = recognize_one(&smaller, probe("p", &face.vector)).await;
        let by_prototype = format!("{}/{}", face.identity, face.id);
        for (prototypes, sources) in [(vec![by_prototype], vec![]), (vec![], vec![face.source.clone()])] {
            let probe = Probe {
                exclude_prototypes: prototypes,
                exclude_sources: sources,
                ..probe("p", &face.vector)
            };
            let got = recognize_one(&server, probe).await;
            assert_eq!(
                (got.score, got.margin, got.decision()),
                (expected.score, expected.margin, expected.decision())
            );
            let names = |one: &RecognizeResult| -> Vec<(String, String)> {
                one.candidates.iter().map(|c| (c.identity.clone(), c.prototype_id.clone())).collect()
            };
            assert_eq!(names(&got), names(&expected));
            assert!(got.candidates.iter().all(|candidate| candidate.index != left as u64));
        }
        smaller.stop().await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_photo_has_one_of_each_person() {
    use Decision::{Displaced, Recognized};

    let faces = [Face::new("ann", "1", vec![1.0, 0.0]), Face::new("bob", "1", vec![0.0, 1.0])];
    let folder = data_folder(&faces);
    let server = Server::start(folder.path(), &CPU).await;
    let face = |group: &str, vector: [f32; 2]| Probe { group: group.to_owned(), ..probe("", &vector) };
    let probes = vec![
        face("photo", [1.0, 0.2]),
        face("photo", [1.0, 0.1]),
        face("photo", [1.0, 0.1]),
        face("photo", [0.1, 1.0]),
        face("other", [1.0, 0.2]),
        face("", [1.0, 0.2]),
        face("", [1.0, 0.2]),
    ];
    let request =
        RecognizeRequest { probes, threshold: Some(0.9), min_margin: Some(0.1), ..Default::default() };
    let free = recognize(&server, request.clone()).await;
    assert!(free.iter().all(|one| one.decision() == Decision::Recognized));
    let unique = recognize(&server, RecognizeRequest { unique_in_group: true, ..request }).await;
    let decisions: Vec<Decision> = unique.iter().map(RecognizeResult::decision).collect();
    assert_eq!(decisions, [Displaced, Recognized, Displaced, Recognized, Recognized, Recognized, Recognized]);
    for (one, free) in unique.iter().zip(&free) {
        let displaced = one.decision() == Displaced;
        assert_eq!(one.identity, if displaced { "" } else { free.identity.as_str() });
        assert_eq!((&one.nearest, one.score, one.margin), (&free.nearest, free.score, free.margin));
    }
    server.stop().await.unwrap();
}

/// Request over identity over gallery over configuration, for threshold and margin each by itself.
#[test]
fn the_cut_is_the_requests_else_the_identitys_else_the_gallerys_else_the_configurations() {
    let threshold = |value| Threshold::parse(value).unwrap();
    let margin = |value| Margin::parse(value).unwrap();
    let faces = [Face::new("ann", "1", vec![1.0, 0.0]), Face::new("bob", "1", vec![0.0, 1.0])];
    let strict = |own: Option<f32>, lead: Option<f32>| Identity {
        name: "ann".to_owned(),
        threshold: own.map(threshold),
        min_margin: lead.map(margin),
    };
    let table = [
        ((None, None), (None, None), (None, None), (0.25, 0.125)),
        ((None, None), (None, None), (Some(0.5), Some(0.25)), (0.5, 0.25)),
        ((None, None), (Some(0.75), None), (Some(0.5), Some(0.25)), (0.75, 0.25)),
        ((None, None), (None, Some(0.75)), (Some(0.5), Some(0.25)), (0.5, 0.75)),
        ((Some(0.0), None), (Some(0.75), Some(0.75)), (Some(0.5), Some(0.25)), (0.0, 0.75)),
        ((Some(-1.0), Some(0.0)), (Some(0.75), Some(0.75)), (Some(0.5), Some(0.25)), (-1.0, 0.0)),
    ];
    for (request, identity, gallery, expected) in table {
        let profile = GalleryProfile {
            threshold: gallery.0.map(threshold),
            min_margin: gallery.1.map(margin),
            ..GalleryProfile::named(DEFAULT_GALLERY, 2)
        };
        let made = snapshot_of(profile, vec![strict(identity.0, identity.1)], &faces);
        let flags = ["backend.kind=cpu", "recognition.threshold=0.25", "recognition.margin=0.125"];
        let recognizer = recognizer(made, &flags);
        let query = RecognizeQuery {
            snapshot: recognizer.gallery("").unwrap().clone(),
            probes: vec![Asked {
                embedding: unit(&[1.0, 0.1]),
                group: String::new(),
                exclude: Exclusions::default(),
            }],
            threshold: request.0.map(threshold),
            min_margin: request.1.map(margin),
            max_candidates: 1,
            unique_in_group: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let verdict = runtime.block_on(recognizer.recognize(query)).unwrap().recognitions[0].verdict;
        assert_eq!((verdict.cut.threshold.get(), verdict.cut.min_margin.get()), expected);
    }
}

/// A threshold equal to the score recognises; the next number above does not. The margin likewise.
#[tokio::test(flavor = "multi_thread")]
async fn threshold_and_margin_are_inclusive() {
    let options = ImportOptions {
        threshold: Some(Threshold::parse(0.942).unwrap()),
        min_margin: Some(Margin::parse(0.04).unwrap()),
        ..Default::default()
    };
    let folder = data_folder_as(options, &sample_faces());
    let server = Server::start(folder.path(), &CPU).await;
    let (id, vector) = sample_probes().remove(0);
    let ask = async |threshold, min_margin| {
        let probes = vec![probe(&id, &vector)];
        recognize(&server, RecognizeRequest { probes, threshold, min_margin, ..Default::default() })
            .await
            .remove(0)
    };
    let own = ask(None, None).await;
    assert_eq!((own.threshold, own.min_margin, own.decision()), (0.942, 0.04, Decision::Recognized));
    let (score, margin) = (own.score.unwrap(), own.margin.unwrap());
    let equal = ask(Some(score), Some(margin)).await;
    assert_eq!((equal.decision(), equal.identity.as_str()), (Decision::Recognized, "person_001"));
    assert_eq!((equal.threshold_headroom, equal.margin_headroom), (Some(0.0), Some(0.0)));
    let above = ask(Some(score.next_up()), Some(margin)).await;
    assert_eq!((above.decision(), above.identity.as_str()), (Decision::BelowThreshold, ""));
    assert_eq!(above.nearest.unwrap().identity, "person_001");
    assert!(above.threshold_headroom.unwrap() < 0.0);
    let above = ask(Some(score), Some(margin.next_up())).await;
    assert_eq!((above.decision(), above.identity.as_str()), (Decision::Ambiguous, ""));
    assert!(above.margin_headroom.unwrap() < 0.0);
    server.stop().await.unwrap();
}

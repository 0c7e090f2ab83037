//! One answer, whatever computed it: every backend over gRPC against the plain `f64` reference, bit for bit, and the reference
//! against NumPy.

use lookalike::grpc::proto::{
    Decision, Probe, RecognizeRequest, RecognizeResult, SearchRequest, SearchResult,
};
use prost::Message;
use tempfile::TempDir;

use super::support::{
    BACKENDS, Face, REFERENCE, Random, Server, data_folder, expected, probe, sample_faces, sample_probes,
};

/// The cut that suits the sample (its README).
const THRESHOLD: f32 = 0.942;
const MIN_MARGIN: f32 = 0.04;

/// Probes of the largest batch.
const BATCH: usize = 256;

/// The sample with rows planted twice: under another person, and twice under the same.
fn gallery() -> (TempDir, Vec<Face>) {
    let mut faces = sample_faces();
    for (row, identity, id) in [
        (0, "twin_a", "copy"),
        (13, "twin_b", "copy"),
        (13, "twin_c", "copy"),
        (5, "person_006", "copy"),
        (59, "twin_a", "other"),
        (36, "twin_b", "img_04"),
    ] {
        let vector = faces[row].vector.clone();
        faces.push(Face::new(identity, id, vector));
    }
    (data_folder(&faces), faces)
}

/// The sample's probes, every row of the gallery, and rows with noise up to a whole batch.
fn probes(faces: &[Face]) -> Vec<Probe> {
    let mut random = Random::new(1);
    let mut probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    probes.extend(faces.iter().enumerate().map(|(row, face)| probe(&format!("row {row}"), &face.vector)));
    while probes.len() < BATCH {
        let centre = &faces[random.below(faces.len())].vector;
        let spread = [1e-7, 1e-3, 0.02, 0.1][random.below(4)];
        let vector = random.near(centre, spread);
        probes.push(probe(&format!("noisy {}", probes.len()), &vector));
    }
    for (place, probe) in probes.iter_mut().enumerate() {
        match place % 5 {
            1 => probe.exclude_identities = vec!["person_001".to_owned(), "twin_b".to_owned()],
            2 => probe.exclude_prototypes = vec!["img_01".to_owned(), "twin_a/copy".to_owned()],
            3 => probe.exclude_sources = vec!["person_009/img_02.pgm".to_owned()],
            _ => (),
        }
        probe.group = format!("photo {}", place / 9);
    }
    probes
}

async fn search(server: &Server, probes: &[Probe], top_k: usize) -> Vec<SearchResult> {
    let request = SearchRequest { probes: probes.to_vec(), top_k: top_k as u32, ..Default::default() };
    server.recognition().search(request).await.unwrap().into_inner().results
}

async fn recognize(server: &Server, probes: &[Probe], max_candidates: usize) -> Vec<RecognizeResult> {
    let request = RecognizeRequest {
        probes: probes.to_vec(),
        threshold: Some(THRESHOLD),
        min_margin: Some(MIN_MARGIN),
        max_candidates: max_candidates as u32,
        ..Default::default()
    };
    server.recognition().recognize(request).await.unwrap().into_inner().recognitions
}

/// Two answers have the same fields, floats to the bit.
fn assert_same<M: Message + PartialEq + std::fmt::Debug>(got: &[M], expected: &[M], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert_eq!(got, expected, "{what}");
        assert_eq!(got.encode_to_vec(), expected.encode_to_vec(), "{what}: {got:?}");
    }
}

/// Batches of one, of seven, and the whole. Batches of one take every sixth probe.
fn batches(count: usize) -> Vec<std::ops::Range<usize>> {
    let ones = (0..count).step_by(6).map(|first| first..first + 1);
    let sevens = (0..count).step_by(7).map(|first| first..count.min(first + 7));
    ones.chain(sevens).chain(std::iter::once(0..count)).collect()
}

/// Search and Recognize of one backend against the reference's answers.
async fn agrees(backend: usize) {
    let (name, flags) = BACKENDS[backend];
    let (folder, faces) = gallery();
    let probes = probes(&faces);
    let reference = Server::start(folder.path(), &REFERENCE).await;
    let server = Server::start(folder.path(), flags).await;
    for k in [1, 5, 32, 100, faces.len() + 7] {
        let neighbors = search(&reference, &probes, k).await;
        assert!(neighbors.iter().all(|result| result.neighbors.len() <= k.min(faces.len())));
        let candidates = 1 + k % 40;
        let recognitions = recognize(&reference, &probes, candidates).await;
        for batch in batches(probes.len()) {
            let what = format!("{flags:?}, k {k}, probes {batch:?}");
            let asked = &probes[batch.clone()];
            assert_same(&search(&server, asked, k).await, &neighbors[batch.clone()], &what);
            let got = recognize(&server, asked, candidates).await;
            assert_same(&got, &recognitions[batch], &what);
        }
    }
    let request = SearchRequest { probes: probes[..1].to_vec(), top_k: 1, ..Default::default() };
    let meta = server.recognition().search(request).await.unwrap().into_inner().meta.unwrap();
    assert_eq!((meta.backend.as_str(), meta.fallback_reason.as_str()), (name, ""));
    server.stop().await.unwrap();
    reference.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cpu_thread_agrees_with_the_reference_to_the_bit() {
    agrees(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cpu_threads_agree_with_the_reference_to_the_bit() {
    agrees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opencl_device_agrees_with_the_reference_to_the_bit() {
    agrees(2).await;
}

/// Requests that are answered at once do not mix.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_callers_gets_its_own_answer() {
    let (folder, faces) = gallery();
    let probes = probes(&faces);
    let server = Server::start(folder.path(), &["backend.kind=cpu"]).await;
    let alone = search(&server, &probes, 9).await;
    let callers = (0..60).map(|caller| {
        let mut client = server.recognition();
        let batch = caller * 4..caller * 4 + 1 + caller % 16;
        let request =
            SearchRequest { probes: probes[batch.clone()].to_vec(), top_k: 9, ..Default::default() };
        tokio::spawn(async move { (batch, client.search(request).await.unwrap().into_inner().results) })
    });
    for caller in callers.collect::<Vec<_>>() {
        let (batch, results) = caller.await.unwrap();
        assert_same(&results, &alone[batch.clone()], &format!("probes {batch:?}"));
    }
    server.stop().await.unwrap();
}

/// Equal scores stand by index, and a probe that is a row finds that row (and its copies) first.
#[tokio::test(flavor = "multi_thread")]
async fn ties_stand_by_index() {
    let (folder, faces) = gallery();
    for (_, flags) in BACKENDS {
        let server = Server::start(folder.path(), flags).await;
        let whole: Vec<Probe> = faces.iter().map(|face| probe("", &face.vector)).collect();
        for (row, result) in search(&server, &whole, 3).await.iter().enumerate() {
            let copies: Vec<u64> = (0..faces.len())
                .filter(|other| faces[*other].vector == faces[row].vector)
                .map(|i| i as u64)
                .collect();
            let found: Vec<u64> = result.neighbors.iter().map(|neighbor| neighbor.index).collect();
            assert_eq!(found[..copies.len()], copies, "{flags:?}, row {row}");
            let score = result.neighbors[0].score;
            assert!((score - 1.0).abs() < 2.5e-5, "{score}");
            for neighbor in &result.neighbors {
                let face = &faces[neighbor.index as usize];
                assert_eq!(
                    (&neighbor.identity, &neighbor.prototype_id, &neighbor.source),
                    (&face.identity, &face.id, &face.source)
                );
            }
        }
        // The copy of person_001's row is another person with the same score: no lead at all.
        let [twins] = &recognize(&server, &whole[..1], 2).await[..] else { panic!("one probe, one answer") };
        assert_eq!(twins.decision(), Decision::Ambiguous);
        assert_eq!((twins.margin, twins.margin_headroom), (Some(0.0), Some(-MIN_MARGIN)));
        let names: Vec<&str> = twins.candidates.iter().map(|candidate| candidate.identity.as_str()).collect();
        assert_eq!(names, ["person_001", "twin_a"]);
        assert_eq!(twins.nearest.as_ref(), twins.candidates.first());
        assert_eq!(twins.identity, "");
        server.stop().await.unwrap();
    }
}

/// The reference is not its own judge: NumPy, in float64, knows nothing of this program.
#[tokio::test(flavor = "multi_thread")]
async fn the_reference_agrees_with_numpy() {
    let folder = data_folder(&sample_faces());
    let server = Server::start(folder.path(), &REFERENCE).await;
    let probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    let expected = expected();
    let searched = search(&server, &probes, 5).await;
    let recognized = recognize(&server, &probes, 2).await;
    let told = expected["probes"].as_array().unwrap();
    assert_eq!((told.len(), searched.len(), recognized.len()), (12, 12, 12));
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    for ((told, searched), recognized) in told.iter().zip(&searched).zip(&recognized) {
        let id = told["probe_id"].as_str().unwrap();
        assert_eq!((searched.probe_id.as_str(), recognized.probe_id.as_str()), (id, id));
        let top = told["top"].as_array().unwrap();
        let expected: Vec<(u64, u32)> = top
            .iter()
            .map(|one| (one["index"].as_u64().unwrap(), (number(&one["score"]) as f32).to_bits()))
            .collect();
        let got: Vec<(u64, u32)> =
            searched.neighbors.iter().map(|neighbor| (neighbor.index, neighbor.score.to_bits())).collect();
        assert_eq!(got, expected, "{id}");
        assert_eq!(
            recognized.decision().as_str_name(),
            format!("DECISION_{}", told["decision"].as_str().unwrap())
        );
        let names = [&told["nearest"], &told["runner_up"]].map(|name| name.as_str().unwrap());
        let found: Vec<&str> = recognized.candidates.iter().map(|one| one.identity.as_str()).collect();
        assert_eq!(found, names);
        assert_eq!(recognized.score.map(f32::to_bits), Some((number(&told["score"]) as f32).to_bits()));
        // The margin is the difference of two scores that were rounded to f32 first.
        assert!((f64::from(recognized.margin.unwrap()) - number(&told["margin"])).abs() < 1.2e-7, "{id}");
        let named = recognized.decision() == Decision::Recognized;
        assert_eq!(recognized.identity, if named { names[0] } else { "" });
    }
    server.stop().await.unwrap();
}

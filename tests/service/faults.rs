//! A device that fails or computes wrongly: the answer is right all the same, and the fault shows.

use std::fs;
use std::path::Path;

use lookalike::grpc::proto::{GetInfoRequest, Probe, SearchRequest, SearchResponse};
use tempfile::TempDir;

use super::support::{
    Face, OPENCL, REFERENCE, Random, Server, data_folder, lookalike, probe, sample_faces, sample_probes,
};

/// The kernels with one text of one file turned into another.
fn kernels(file: &str, from: &str, to: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")).unwrap() {
        let path = entry.unwrap().path();
        let mut text = fs::read_to_string(&path).unwrap();
        if path.ends_with(file) {
            assert!(text.contains(from), "{file} holds {from}");
            text = text.replace(from, to);
        }
        fs::write(folder.path().join(path.file_name().unwrap()), text).unwrap();
    }
    folder
}

/// The flags that choose this machine's OpenCL device with these kernels.
fn flags(kernels: &TempDir, fallback: &str) -> Vec<String> {
    let own = [
        format!("backend.opencl.kernel_dir={}", kernels.path().display()),
        format!("backend.fallback={fallback}"),
    ];
    OPENCL.iter().map(|flag| (*flag).to_owned()).chain(own).collect()
}

fn request() -> SearchRequest {
    let probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    SearchRequest { probes, top_k: 5, ..Default::default() }
}

/// What the reference says.
async fn truth() -> SearchResponse {
    let folder = data_folder(&sample_faces());
    let server = Server::start(folder.path(), &REFERENCE).await;
    let answer = server.recognition().search(request()).await.unwrap().into_inner();
    server.stop().await.unwrap();
    answer
}

/// Where a row's score goes into the lists.
const SCORE: &str = "const float score = PART(found, p);";

const BROKEN: (&str, &str, &str) = ("lanes.cl", SCORE, "const float score = no_such_name + PART(found, p);");

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_answers_where_a_kernel_does_not_compile() {
    let kernels = kernels(BROKEN.0, BROKEN.1, BROKEN.2);
    let (data, flags) = (data_folder(&sample_faces()), flags(&kernels, "cpu"));
    let server = lookalike().serve(data.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let answer = server.recognition().search(request()).await.unwrap().into_inner();
    assert_eq!(answer.results, truth().await.results);
    let meta = answer.meta.unwrap();
    assert_eq!(meta.backend, "cpu");
    let why = &meta.fallback_reason;
    assert!(why.starts_with("backend.kind is opencl, but no usable OpenCL device: "), "{why}");
    assert!(why.contains("does not compile") && !why.contains('\n'), "{why}");
    let fallbacks = server.metric("lookalike_backend_fallback_total{reason=\"self_test\"}").await;
    assert!((fallbacks - 1.0).abs() < f64::EPSILON);
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    let told: Vec<(&str, bool, bool)> =
        info.backends.iter().map(|one| (one.name.as_str(), one.active, one.up)).collect();
    assert_eq!(told, [("cpu", true, true)]);
    assert!(!info.devices[0].usable && info.devices[0].reason.contains("does not compile"), "{info:?}");
    assert!(
        server.metric("lookalike_backend_up{backend=\"opencl\",role=\"primary\"}").await.abs() < f64::EPSILON
    );
    server.terminate();
    let (status, stdout, lines) = server.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
    let warned = lines.iter().find(|line| line["message"] == "an OpenCL device failed its test").unwrap();
    // The compiler's own words, which name what is wrong.
    assert!(warned["reason"].as_str().unwrap().contains("no_such_name"), "{warned}");
}

#[test]
fn where_nothing_may_answer_instead_it_does_not_start() {
    let kernels = kernels(BROKEN.0, BROKEN.1, BROKEN.2);
    let data = data_folder(&sample_faces());
    let own = ["serve", "--data", data.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let set = flags(&kernels, "fail").into_iter().flat_map(|flag| ["--set".to_owned(), flag]);
    let run = lookalike().args(own).args(["--metrics-listen", "off"]).args(set).run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.contains("error: backend: no usable OpenCL device: "), "{}", run.stderr);
}

/// In this process nobody tests the device beforehand; it is found out when scans are rehearsed, before anybody asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_computes_wrongly_is_found_out_and_the_answer_is_right() {
    let truth = truth().await;
    for wrong in ["1.001f *", "0.5f -"] {
        let spoilt = SCORE.replace("= ", &format!("= {wrong} "));
        let kernels = kernels("lanes.cl", SCORE, &spoilt);
        let (data, flags) = (data_folder(&sample_faces()), flags(&kernels, "cpu"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start(data.path(), &flags).await;
        for _ in 0..2 {
            let answer = server.recognition().search(request()).await.unwrap().into_inner();
            assert_eq!(answer.results, truth.results, "{wrong}");
            let meta = answer.meta.unwrap();
            assert_eq!(meta.backend, "cpu", "{wrong}");
            assert!(meta.fallback_reason.contains("computes wrongly"), "{wrong}: {}", meta.fallback_reason);
        }
        server.stop().await.unwrap();
    }
}

/// More rows alike than a list holds cannot be told apart by any list: that is counted, and the answer is right.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_proves_nothing_is_counted() {
    let vector = Random::new(5).vector(16);
    let faces: Vec<Face> = (0..3000)
        .map(|row| Face::new(&format!("person {}", row % 7), &row.to_string(), vector.clone()))
        .collect();
    let data = data_folder(&faces);
    let server = lookalike().serve(data.path(), &OPENCL).await;
    let request = SearchRequest { probes: vec![probe("p", &vector)], top_k: 5, ..Default::default() };
    let answer = server.recognition().search(request).await.unwrap().into_inner();
    let found: Vec<u64> = answer.results[0].neighbors.iter().map(|neighbor| neighbor.index).collect();
    assert_eq!(found, [0, 1, 2, 3, 4]);
    assert!(server.metric("lookalike_uncertified_scans_total{backend=\"opencl\"}").await >= 1.0);
    let violations = server.metric("lookalike_score_bound_violations_total{backend=\"opencl\"}").await;
    assert!(violations.abs() < f64::EPSILON, "the device computes rightly");
}

//! A device that fails or computes wrongly: the answer is right all the same, and the fault shows.

use std::fs;
use std::path::Path;

use lookalike::grpc::proto::{GetInfoRequest, Probe, SearchRequest, SearchResponse};
use tempfile::TempDir;
use tonic::{Code, Request, Status};

use super::support::{
    Face, OPENCL, REFERENCE, Random, Served, Server, data_folder, lookalike, probe, sample_faces,
    sample_probes,
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

/// A process that serves the sample from an OpenCL device with these kernels.
async fn serve(kernels: &TempDir, fallback: &str) -> (TempDir, Served) {
    let data = data_folder(&sample_faces());
    let own = [
        format!("backend.opencl.kernel_dir={}", kernels.path().display()),
        format!("backend.fallback={fallback}"),
    ];
    let flags: Vec<&str> = OPENCL.iter().copied().chain(own.iter().map(String::as_str)).collect();
    let served = lookalike().serve(data.path(), &flags).await;
    (data, served)
}

fn request() -> SearchRequest {
    let probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    SearchRequest { probes, top_k: 5, ..Default::default() }
}

async fn search(server: &Served) -> Result<SearchResponse, Status> {
    let mut request = Request::new(request());
    request.metadata_mut().insert("x-request-id", "r-17".parse().unwrap());
    server.recognition().search(request).await.map(tonic::Response::into_inner)
}

/// What the reference says.
async fn truth() -> SearchResponse {
    let folder = data_folder(&sample_faces());
    let server = Server::start(folder.path(), &REFERENCE).await;
    let answer = server.recognition().search(request()).await.unwrap().into_inner();
    server.stop().await.unwrap();
    answer
}

/// The server says that its OpenCL backend cannot answer, and that the CPU can where there is one to fall back on.
async fn assert_down(server: &Served) {
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    let told: Vec<(&str, bool, bool)> =
        info.backends.iter().map(|one| (one.name.as_str(), one.active, one.up)).collect();
    assert_eq!(told[0], ("opencl", true, false));
    assert!(told[1..].iter().all(|one| *one == ("cpu", false, true)), "{told:?}");
    assert!(server.metric("lookalike_backend_up{backend=\"opencl\"}").await.abs() < f64::EPSILON);
}

const BROKEN: (&str, &str, &str) = ("dot.cl", "return (sum.x", "return no_such_name + (sum.x");

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_answers_where_a_kernel_does_not_compile() {
    let kernels = kernels(BROKEN.0, BROKEN.1, BROKEN.2);
    let (_data, server) = serve(&kernels, "cpu").await;
    let answer = search(&server).await.unwrap();
    assert_eq!(answer.results, truth().await.results);
    let meta = answer.meta.unwrap();
    assert_eq!(meta.backend, "cpu");
    assert!(meta.fallback_reason.starts_with("OpenCL kernel "), "{}", meta.fallback_reason);
    let fallbacks = server.metric("lookalike_backend_fallback_total{reason=\"kernel_error\"}").await;
    assert!((fallbacks - 1.0).abs() < f64::EPSILON);
    assert_down(&server).await;
    server.terminate();
    let (status, stdout, lines) = server.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
    let warned = lines.iter().find(|line| line["message"] == "the backend failed; the CPU answers").unwrap();
    // The compiler's own words, which name what is wrong.
    assert!(warned["error"].as_str().unwrap().contains("no_such_name"), "{warned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_may_answer_instead_the_request_fails_and_the_server_goes_on() {
    let kernels = kernels(BROKEN.0, BROKEN.1, BROKEN.2);
    let (_data, server) = serve(&kernels, "fail").await;
    for _ in 0..2 {
        let refused = search(&server).await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
        // What the driver said stays inside.
        assert_eq!(refused.message(), "the backend failed; the server's log says why");
    }
    assert_down(&server).await;
    server.terminate();
    let (_, _, lines) = server.end();
    let told = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
    assert!(told["error"].as_str().unwrap().contains("no_such_name"), "{told}");
    // The log line stands in the span of its request.
    assert_eq!(
        (&told["span"]["id"], &told["span"]["method"]),
        (&"r-17".into(), &"Recognition/Search".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_computes_wrongly_is_found_out_and_the_answer_is_right() {
    let truth = truth().await;
    for wrong in ["return 1.001f * (sum.x", "return 0.5f - (sum.x", "return NAN * (sum.x"] {
        let kernels = kernels("dot.cl", "return (sum.x", wrong);
        let (_data, server) = serve(&kernels, "fail").await;
        let answer = search(&server).await.unwrap();
        assert_eq!(answer.results, truth.results, "{wrong}");
        assert_eq!(answer.meta.unwrap().backend, "opencl");
        let uncertified = server.metric("lookalike_uncertified_scans_total{backend=\"opencl\"}").await;
        assert!(uncertified >= 12.0, "{wrong}: {uncertified}");
        if !wrong.contains("NAN") {
            let violations =
                server.metric("lookalike_score_bound_violations_total{backend=\"opencl\"}").await;
            assert!(violations >= 12.0, "{wrong}: {violations}");
        }
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

//! Drivers that are broken: the right answer arrives, from the CPU where need be, and the metrics tell.

use std::collections::BTreeMap;
use std::time::Duration;

use lookalike::grpc::proto::{
    GetInfoRequest, GetInfoResponse, Probe, SearchRequest, SearchResponse, SearchResult,
};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tonic::{Code, Status};

use super::support::{
    Fake, OPENCL, Program, REFERENCE, Served, Server, data_folder, lookalike, probe, sample_faces,
    sample_probes, until,
};

/// Serves the sample from an OpenCL device, and what is configured besides.
async fn serve(program: Program, more: &[&str]) -> (TempDir, Served) {
    let data = data_folder(&sample_faces());
    let flags: Vec<&str> = OPENCL.iter().chain(&["backend.fallback=cpu"]).chain(more).copied().collect();
    let served = program.serve(data.path(), &flags).await;
    (data, served)
}

fn request(top_k: u32) -> SearchRequest {
    let probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    SearchRequest { probes, top_k, ..Default::default() }
}

async fn search(server: &Served, top_k: u32) -> Result<SearchResponse, Status> {
    server.recognition().search(request(top_k)).await.map(tonic::Response::into_inner)
}

/// What the reference says: asked once, since some tests ask again and again.
async fn truth(top_k: u32) -> Vec<SearchResult> {
    static TOLD: Mutex<BTreeMap<u32, Vec<SearchResult>>> = Mutex::const_new(BTreeMap::new());
    let mut told = TOLD.lock().await;
    if let Some(results) = told.get(&top_k) {
        return results.clone();
    }
    let folder = data_folder(&sample_faces());
    let server = Server::start(folder.path(), &REFERENCE).await;
    let answer = server.recognition().search(request(top_k)).await.unwrap().into_inner();
    server.stop().await.unwrap();
    told.entry(top_k).or_insert(answer.results).clone()
}

/// The right answer, and who gave it.
async fn right_answer(server: &Served, top_k: u32) -> (String, String) {
    let answer = search(server, top_k).await.unwrap();
    assert_eq!(answer.results, truth(top_k).await);
    let meta = answer.meta.unwrap();
    (meta.backend, meta.fallback_reason)
}

async fn info(server: &Served) -> GetInfoResponse {
    server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner()
}

async fn assert_metric(server: &Served, series: &str, value: f64) {
    let told = server.metric(series).await;
    assert!((told - value).abs() < f64::EPSILON, "{series}: {told}, expected {value}");
}

/// Served by the device, then by the CPU for this reason, then by the device again.
async fn fails_and_recovers(told: &[(&str, &str)], reason: &str, text: &str) {
    let fake = Fake::new();
    let (_data, server) = serve(fake.at_times(lookalike(), told), &["backend.opencl.timeout=5s"]).await;
    assert_eq!(right_answer(&server, 5).await, ("opencl".to_owned(), String::new()));
    assert!(server.metric("lookalike_device_memory_bytes{role=\"primary\"}").await > 0.0);
    fake.begin();
    let (backend, why) = right_answer(&server, 5).await;
    // What a device got wrong was mended, and is what takes it out; the next answer comes from the CPU.
    let (backend, why) = if backend == "opencl" { right_answer(&server, 5).await } else { (backend, why) };
    assert_eq!(backend, "cpu");
    assert!(why.contains(text), "{why}");
    assert_metric(
        &server,
        &format!("lookalike_backend_failures_total{{reason=\"{reason}\",role=\"primary\"}}"),
        1.0,
    )
    .await;
    assert_metric(&server, &format!("lookalike_backend_fallback_total{{reason=\"{reason}\"}}"), 1.0).await;
    assert_metric(&server, "lookalike_backend_up{backend=\"opencl\",role=\"primary\"}", 0.0).await;
    assert_metric(&server, "lookalike_device_memory_bytes{role=\"primary\"}", 0.0).await;
    assert!(!info(&server).await.backends[0].up);
    fake.end();
    until("the device is back", async || (right_answer(&server, 5).await.0 == "opencl").then_some(())).await;
    assert_metric(&server, "lookalike_backend_up{backend=\"opencl\",role=\"primary\"}", 1.0).await;
    assert!(server.metric("lookalike_device_memory_bytes{role=\"primary\"}").await > 0.0);
    server.terminate();
    assert_eq!(server.end().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_lost_is_replaced_by_the_cpu_until_it_is_back() {
    let told = [("ACTION", "error"), ("FUNCTION", "clEnqueueNDRangeKernel")];
    fails_and_recovers(&told, "device_error", "CL_OUT_OF_RESOURCES").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_hangs_is_left_behind() {
    let told = [("ACTION", "hang"), ("FUNCTION", "clEnqueueReadBuffer"), ("ROLE", "serve")];
    fails_and_recovers(&told, "device_timed_out", "no answer within 5s (backend.opencl.timeout)").await;
}

/// The thread that owns the device is killed in the middle of a request, as nothing in Rust could: no unwinding, no word.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_whose_thread_is_killed_is_left_behind() {
    let told = [("ACTION", "die"), ("FUNCTION", "clEnqueueNDRangeKernel"), ("ROLE", "serve")];
    fails_and_recovers(&told, "device_timed_out", "no answer within 5s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_whose_scores_are_wrong_is_taken_out_of_service() {
    fails_and_recovers(&[("ACTION", "scores")], "device_wrong", "scores beyond its error bound").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_whose_rows_do_not_exist_is_taken_out_of_service() {
    fails_and_recovers(&[("ACTION", "rows")], "device_wrong", "rows that do not exist").await;
}

/// A device that goes on computing wrongly does not pass its test, and stays out.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_stays_wrong_stays_out() {
    let fake = Fake::new();
    let (_data, server) = serve(fake.at_times(lookalike(), &[("ACTION", "scores")]), &[]).await;
    fake.begin();
    until("the CPU answers", async || (right_answer(&server, 5).await.0 == "cpu").then_some(())).await;
    let violations = "lookalike_score_bound_violations_total{backend=\"opencl\"}";
    assert!(server.metric(violations).await >= 1.0);
    // Tried again after a second, it fails its test.
    until("it was tried", async || {
        assert_eq!(right_answer(&server, 5).await.0, "cpu");
        let failed =
            server.metric("lookalike_backend_failures_total{reason=\"self_test\",role=\"primary\"}").await;
        (failed >= 1.0).then_some(())
    })
    .await;
    server.terminate();
    let lines = server.end().2;
    let told = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
    assert_eq!(told("the device is taken out of service"), 1);
    assert_eq!(told("the device is back in service"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_may_answer_instead_requests_fail_until_the_device_is_back() {
    let fake = Fake::new();
    let program = fake.at_times(lookalike(), &[("ACTION", "error"), ("FUNCTION", "clEnqueueReadBuffer")]);
    let (_data, server) = serve(program, &["backend.fallback=fail"]).await;
    assert_eq!(right_answer(&server, 5).await.0, "opencl");
    fake.begin();
    for _ in 0..2 {
        let refused = search(&server, 5).await.unwrap_err();
        // What the driver said stays inside.
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Internal, "the backend failed; the server's log says why")
        );
    }
    assert_metric(&server, "lookalike_backend_failures_total{reason=\"device_error\",role=\"primary\"}", 1.0)
        .await;
    fake.end();
    until("the device is back", async || search(&server, 5).await.ok()).await;
    assert_eq!(right_answer(&server, 5).await.0, "opencl");
}

/// A size of list that was not compiled for when the server started, and cannot be now.
#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_does_not_compile_while_serving_costs_the_gallery_its_device_for_a_while() {
    let fake = Fake::new();
    let told = [("ACTION", "error"), ("FUNCTION", "clBuildProgram")];
    let (_data, server) = serve(fake.at_times(lookalike(), &told), &[]).await;
    fake.begin();
    assert_eq!(right_answer(&server, 5).await.0, "opencl");
    let (backend, why) = right_answer(&server, 36).await;
    assert_eq!(backend, "cpu");
    assert!(why.contains("OpenCL kernel lanes.cl: cannot be built"), "{why}");
    assert_metric(&server, "lookalike_backend_failures_total{reason=\"kernel_error\",role=\"primary\"}", 1.0)
        .await;
    assert_metric(&server, "lookalike_backend_fallback_total{reason=\"kernel_error\"}", 1.0).await;
    fake.end();
    until("the device is back", async || (right_answer(&server, 36).await.0 == "opencl").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_from_any_call_on_never_reach_a_caller() {
    let fake = Fake::new();
    for from in ["1", "5", "12", "40", "90", "200"] {
        let told = [("ACTION", "error"), ("FROM", from), ("ROLE", "serve")];
        let (_data, server) = serve(fake.always(lookalike(), &told), &[]).await;
        until("the CPU answers", async || (right_answer(&server, 5).await.0 == "cpu").then_some(())).await;
        let fallbacks = server.metric("lookalike_backend_fallback_total{reason=\"device_error\"}").await
            + server.metric("lookalike_backend_fallback_total{reason=\"kernel_error\"}").await
            + server.metric("lookalike_backend_fallback_total{reason=\"out_of_memory\"}").await;
        assert!(fallbacks >= 1.0, "from call {from} on");
    }
}

/// What a device did when it was tried: served by the CPU, and told by everything.
async fn is_not_used(told: &[(&str, &str)], reason: &str, text: &str) {
    let fake = Fake::new();
    let told: Vec<_> = told.iter().copied().chain([("ROLE", "probe-opencl")]).collect();
    // Long enough to compile in; who hangs does so before that.
    let limit = if told.contains(&("ACTION", "hang")) { "3s" } else { "5m" };
    let limit = format!("backend.opencl.probe_timeout={limit}");
    let (_data, server) = serve(fake.always(lookalike(), &told), &[&limit]).await;
    let (backend, why) = right_answer(&server, 5).await;
    assert_eq!(backend, "cpu");
    assert!(why.contains(text), "{why}");
    assert_eq!(info(&server).await.backend_reason, why);
    assert_metric(&server, &format!("lookalike_backend_fallback_total{{reason=\"{reason}\"}}"), 1.0).await;
    let choice = format!("lookalike_backend_choice{{backend=\"cpu\",reason=\"{reason}\"}}");
    assert_metric(&server, &choice, 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_crashes_when_asked_for_its_platforms_is_not_used() {
    let told = [("ACTION", "segv"), ("FUNCTION", "clGetPlatformIDs")];
    is_not_used(&told, "probe_crashed", "crashed with signal 11 (SIGSEGV) in the OpenCL loader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_when_asked_for_its_devices_is_not_used() {
    let told = [("ACTION", "hang"), ("FUNCTION", "clGetDeviceIDs")];
    let text =
        "gave no answer within 3s (backend.opencl.probe_timeout) at platform 0 (Portable Computing Language)";
    is_not_used(&told, "probe_timed_out", text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_crashes_in_its_test_is_not_used() {
    let told = [("ACTION", "abort"), ("FUNCTION", "clEnqueueNDRangeKernel")];
    is_not_used(&told, "probe_crashed", "crashed with signal 6 (SIGABRT) during its self-test").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_computes_wrongly_in_its_test_is_not_used() {
    is_not_used(&[("ACTION", "scores")], "self_test", "self-test: one row: probe 0: the score of row 0")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_cannot_compile_is_not_used() {
    let told = [("ACTION", "error"), ("FUNCTION", "clBuildProgram")];
    is_not_used(&told, "self_test", "self-test: one row: OpenCL kernel lanes.cl: cannot be built").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_platform_costs_no_other() {
    let fake = Fake::new();
    // The first compiles what the second then finds compiled, in less time than it is given.
    for (action, limit, kind) in
        [("segv", "1m", "crashed with signal 11"), ("hang", "10s", "gave no answer within 10s")]
    {
        let told = [("PLATFORM", "1"), ("ACTION", action), ("FUNCTION", "none"), ("ROLE", "probe-opencl")];
        let args = ["devices", "--format", "json", "--set", "backend.opencl.allow_cpu_devices=true"];
        let limit = format!("backend.opencl.probe_timeout={limit}");
        let listed = fake.always(lookalike(), &told).args(args).args(["--set", &limit]).run().json();
        assert_eq!(listed["platforms"][0]["name"], "Bad Platform");
        let why = listed["platforms"][0]["fault"].as_str().unwrap();
        assert!(why.starts_with(kind) && why.ends_with("at platform 0 (Bad Platform)"), "{why}");
        assert_eq!((&listed["chosen"][0], &listed["devices"][0]["platform_index"]), (&0.into(), &1.into()));
    }
    let told = [("PLATFORM", "1"), ("ACTION", "segv"), ("FUNCTION", "none")];
    // The server itself never asks it anything.
    let (_data, server) = serve(fake.always(lookalike(), &told), &[]).await;
    assert_eq!(right_answer(&server, 5).await.0, "opencl");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_driver_prints_spoils_nothing() {
    let fake = Fake::new();
    let printing = || fake.always(lookalike(), &[("PRINT", "1")]);
    let set = OPENCL.iter().flat_map(|flag| ["--set", flag]);
    let listed = printing().args(["devices", "--format", "json"]).args(set.clone()).run();
    assert!(listed.stderr.contains("arm_release_ver of this fake: clGetPlatformIDs"), "{}", listed.stderr);
    // The child's answers were not spoilt either.
    assert!(listed.stderr.contains("arm_release_ver of this fake: clEnqueueReadBuffer"));
    assert_eq!(listed.json()["chosen"][0], 0);
    let data = data_folder(&sample_faces());
    let probes = super::support::sample_file("probes.jsonl");
    let args = ["search", "--format", "json", "--data", data.path().to_str().unwrap(), "--probes"];
    let found = printing().args(args).args([probes.to_str().unwrap()]).args(set).run();
    assert!(found.stderr.contains("arm_release_ver"), "{}", found.stderr);
    assert_eq!(found.json()["meta"]["backend"], "opencl");
    let (_data, server) = serve(printing(), &[]).await;
    assert_eq!(right_answer(&server, 5).await.0, "opencl");
    server.terminate();
    let (status, stdout, _) = server.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
}

/// A server whose device hangs ends when it is told to.
#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_device_does_not_hold_up_the_end() {
    let fake = Fake::new();
    let told = [("ACTION", "hang"), ("FUNCTION", "clEnqueueReadBuffer"), ("ROLE", "serve")];
    let (_data, server) = serve(fake.at_times(lookalike(), &told), &["backend.opencl.timeout=5s"]).await;
    fake.begin();
    assert_eq!(right_answer(&server, 5).await.0, "cpu");
    let asked = std::time::Instant::now();
    server.terminate();
    assert_eq!(server.end().0.code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

//! From loading to the end: health, metrics, what the server says of itself, and that a restart serves what was imported.

use std::path::Path;
use std::sync::mpsc;

use lookalike::domain::{Margin, Threshold};
use lookalike::gallery::store::{ImportOptions, Selection, Store};
use lookalike::grpc::proto::{
    GetInfoRequest, Probe, RecognizeRequest, RecognizeResponse, ReloadRequest, SearchRequest,
};
use lookalike::server::{self, Listeners, LoadError, ServerError};
use tempfile::TempDir;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt;

use super::support::{
    CPU, Server, data_folder, data_folder_as, http_get, lookalike, probe, sample_faces, sample_probes,
    settings,
};

const SERVICES: [&str; 3] = ["", "lookalike.v1.Recognition", "lookalike.v1.Operations"];

fn sample() -> TempDir {
    data_folder(&sample_faces())
}

fn probes() -> Vec<Probe> {
    sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect()
}

async fn health(server: &Server, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    server.health().check(request).await.unwrap().into_inner().status()
}

/// A runtime whose only blocking thread, which loading needs, is taken until the sender is used or dropped.
async fn hold_loading() -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (let_go, held) = mpsc::channel::<()>();
    let (taken, was_taken) = tokio::sync::oneshot::channel();
    let holding = tokio::task::spawn_blocking(move || {
        let _ = taken.send(());
        let _ = held.recv();
    });
    was_taken.await.unwrap();
    (let_go, holding)
}

fn one_blocking_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().max_blocking_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_server_that_is_loading_stops_without_waiting_for_it() {
    one_blocking_thread().block_on(async {
        let (let_go, holding) = hold_loading().await;
        let folder = sample();
        let server = Server::spawn(settings(folder.path(), &CPU)).await;
        server.stop().await.unwrap();
        let_go.send(()).unwrap();
        holding.await.unwrap();
    });
}

#[test]
fn a_server_that_is_loading_says_so_and_answers_nothing_else() {
    one_blocking_thread().block_on(async {
        let (let_go, holding) = hold_loading().await;
        let folder = sample();
        let server = Server::spawn(settings(folder.path(), &CPU)).await;
        for service in SERVICES {
            assert_eq!(health(&server, service).await, ServingStatus::NotServing, "{service:?}");
        }
        assert_eq!(http_get(server.http, "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(http_get(server.http, "/readyz").await, (503, "loading, draining or failed\n".to_owned()));
        assert_eq!(http_get(server.http, "/metrics").await.0, 200);
        let request = SearchRequest { probes: probes(), top_k: 1, ..Default::default() };
        let refused = server.recognition().search(request).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Unavailable, "the galleries are still being loaded, or the server is stopping")
        );
        assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());
        let refused = server.operations().get_info(GetInfoRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);

        let mut watch = server.watch("lookalike.v1.Recognition").await;
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        let_go.send(()).unwrap();
        holding.await.unwrap();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.stop().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_serving_until_the_server_stops_and_then_watching_ends() {
    let folder = sample();
    let server = Server::start(folder.path(), &CPU).await;
    for service in SERVICES {
        assert_eq!(health(&server, service).await, ServingStatus::Serving, "{service:?}");
    }
    let unknown = HealthCheckRequest { service: "lookalike.v1.Guess".to_owned() };
    assert_eq!(server.health().check(unknown).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(http_get(server.http, "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(http_get(server.http, "/nothing").await.0, 404);

    let mut watches = Vec::new();
    for service in SERVICES {
        let mut watch = server.watch(service).await;
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        watches.push(watch);
    }
    let (grpc, ended) = (server.grpc, server.ask_to_stop());
    for mut watch in watches {
        // The end may come so fast upon the news that the news is skipped, but never the other way round.
        while let Some(news) = watch.message().await.unwrap() {
            assert_ne!(news.status(), ServingStatus::Serving);
        }
    }
    ended.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(grpc).await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_serves_what_was_imported() {
    let folder = sample();
    let ask = async |server: &Server| -> RecognizeResponse {
        let request = RecognizeRequest { probes: probes(), ..Default::default() };
        server.recognition().recognize(request).await.unwrap().into_inner()
    };
    let server = Server::start(folder.path(), &CPU).await;
    let before = ask(&server).await;
    server.stop().await.unwrap();
    let server = Server::start(folder.path(), &CPU).await;
    let after = ask(&server).await;
    server.stop().await.unwrap();
    assert_eq!(before.recognitions, after.recognitions);
    let generation = |answer: &RecognizeResponse| answer.meta.as_ref().unwrap().generation;
    assert_eq!((generation(&before), generation(&after)), (1, 1));
}

/// An error with its causes, as the command line tells it.
fn told(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_nothing_to_serve_does_not_start() {
    let folder = TempDir::new().unwrap();
    let settings = settings(&folder.path().join("none"), &CPU);
    let listeners = Listeners::bind(&settings).await.unwrap();
    let metrics = lookalike::telemetry::install();
    let error = server::run(settings, listeners, metrics, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ServerError::Load(LoadError::Store(_))), "{error:?}");
    let told = told(error);
    assert!(told.starts_with("storage.path: no data folder at "), "{told}");
}

/// Galleries come and go; whoever brings the first again must be let through, so that the server stays ready, and says what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_tells_what_changed_and_that_nothing_is_left() {
    let folder = sample();
    let import = |gallery: &str| {
        let file = folder.path().join("ann.jsonl");
        std::fs::write(&file, "{\"identity\":\"ann\",\"id\":\"1\",\"embedding\":[1.0]}").unwrap();
        let (data, file) = (folder.path().to_str().unwrap(), file.to_str().unwrap());
        lookalike().args(["gallery", "import", "--data", data, "--gallery", gallery, file]).run().ok();
    };
    let remove = |gallery: &str| {
        Store::open(folder.path()).unwrap().remove(gallery, &Selection::Everything).unwrap();
    };
    let server = lookalike().serve(folder.path(), &CPU).await;
    import("other");
    server.operations().reload(ReloadRequest {}).await.unwrap();
    assert_eq!(http_get(server.http, "/readyz").await, (200, "ready\n".to_owned()));
    remove("default");
    remove("other");
    server.operations().reload(ReloadRequest {}).await.unwrap();
    assert_eq!(http_get(server.http, "/readyz").await, (200, "ready, but no gallery is served\n".to_owned()));
    server.terminate();
    let (_, _, lines) = server.end();
    let told: Vec<(&str, Option<&str>)> = lines
        .iter()
        .filter_map(|line| Some((line["message"].as_str()?, line["gallery"].as_str())))
        .filter(|(message, _)| message.contains("gallery"))
        .collect();
    let empty =
        "no gallery is served: every question is answered NOT_FOUND until one is imported and reloaded";
    assert_eq!(
        told,
        [
            ("gallery served", Some("default")),
            ("gallery served", Some("other")),
            ("gallery withdrawn", Some("default")),
            ("gallery withdrawn", Some("other")),
            (empty, None),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_named_with_its_key() {
    let folder = sample();
    let server = Server::start(folder.path(), &CPU).await;
    let listen = format!("server.listen={}", server.grpc);
    let taken = settings(folder.path(), &[CPU[0], &listen]);
    let error = Listeners::bind(&taken).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("server.listen: cannot listen on {}", server.grpc)), "{error}");
    let listen = format!("metrics.listen={}", server.http);
    let taken = settings(folder.path(), &[CPU[0], &listen]);
    let error = Listeners::bind(&taken).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("metrics.listen: cannot listen on {}", server.http)), "{error}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn get_info_tells_what_is_served_by_what_and_within_which_bounds() {
    let options = ImportOptions {
        model_id: Some("dlib_resnet_v1".to_owned()),
        threshold: Some(Threshold::parse(0.942).unwrap()),
        ..Default::default()
    };
    let folder = data_folder_as(options, &sample_faces());
    let flags = [CPU[0], "server.limits.max_probes=17", "recognition.margin=0.25"];
    let server = Server::start(folder.path(), &flags).await;
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert!(info.uptime_s < 600);
    let [gallery] = &info.galleries[..] else { panic!("{info:?}") };
    assert_eq!(
        (gallery.name.as_str(), gallery.dim, gallery.model_id.as_str()),
        ("default", 128, "dlib_resnet_v1")
    );
    assert_eq!((gallery.generation, gallery.prototypes, gallery.identities), (1, 60, 12));
    assert_eq!((gallery.threshold, gallery.min_margin), (0.942, 0.25));
    let [backend] = &info.backends[..] else { panic!("{info:?}") };
    assert_eq!((backend.name.as_str(), backend.active, backend.up), ("cpu", true, true));
    assert_eq!(backend.role, "primary");
    assert!(!backend.device.is_empty() && !backend.driver.is_empty());
    assert_eq!(info.backend_reason, "backend.kind is cpu");
    assert!(info.devices.is_empty(), "nobody looked for devices");
    let limits = info.limits.unwrap();
    assert_eq!((limits.max_probes, limits.max_top_k, limits.max_candidates), (17, 16_384, 1000));
    assert_eq!((limits.max_message_bytes, limits.max_neighbors), (16_777_216, 1_000_000));
    server.stop().await.unwrap();
}

/// The machine that runs the tests has PoCL, whose device is a CPU: `auto` must not take it unasked, and must say so.
#[tokio::test(flavor = "multi_thread")]
async fn auto_says_why_it_chose_as_it_did() {
    let folder = sample();
    let server = Server::start(folder.path(), &["backend.kind=auto"]).await;
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    let pocl = info.devices.iter().find(|device| device.platform == "Portable Computing Language");
    let pocl = pocl.unwrap_or_else(|| panic!("these tests want PoCL installed: {:?}", info.devices));
    assert_eq!((pocl.kind.as_str(), pocl.usable), ("cpu", false));
    assert!(pocl.reason.contains("backend.opencl.allow_cpu_devices"), "{}", pocl.reason);
    assert!(
        info.backend_reason.starts_with("backend.kind is auto, but no usable OpenCL device: "),
        "{info:?}"
    );
    assert_eq!(info.backends[0].name, "cpu");
    let request = RecognizeRequest { probes: probes(), ..Default::default() };
    let meta = server.recognition().recognize(request).await.unwrap().into_inner().meta.unwrap();
    assert_eq!((meta.backend.as_str(), meta.fallback_reason), ("cpu", info.backend_reason));
    server.stop().await.unwrap();

    let server = Server::start(folder.path(), &["backend.opencl.allow_cpu_devices=true"]).await;
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    let opencl = info.backends.iter().find(|one| one.name == "opencl").unwrap();
    assert!(opencl.device.contains("Portable Computing Language"), "{info:?}");
    // So few rows are scanned by the CPU before a device was asked; where they are not, what is said is that.
    let only_cpu = info.galleries[0].batch_timings.iter().all(|timing| timing.backend == "cpu");
    let (expected, why) = if only_cpu {
        let why = "is usable, but the CPU was faster for batches of every size";
        ([("cpu", true, "primary"), ("opencl", false, "idle")], why)
    } else {
        let why = "is usable; each gallery says which batches it scans";
        ([("opencl", true, "primary"), ("cpu", false, "fallback")], why)
    };
    let told = info.backends.iter().map(|one| (one.name.as_str(), one.active, one.role.as_str()));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(info.backend_reason, format!("backend.kind is auto and {} {why}", opencl.device));
    let console = http_get(server.http, "/console").await.1;
    assert_eq!(console.contains("scans nothing: the first was faster for every batch"), only_cpu);
    // Each batch goes to the faster one, and the times say which that is.
    let gallery = &info.galleries[0];
    let sizes: Vec<u32> = gallery.batch_timings.iter().map(|timing| timing.probes).collect();
    assert_eq!(sizes, [1, 8, 64, 256]);
    for timing in &gallery.batch_timings {
        let faster = if timing.cpu_ns < timing.opencl_ns { "cpu" } else { "opencl" };
        assert!(timing.cpu_ns > 0 && timing.opencl_ns > 0 && timing.backend == faster, "{timing:?}");
    }
    assert!(gallery.batch_choice.starts_with("the faster one by measurement: "), "{gallery:?}");
    let request = RecognizeRequest { probes: vec![probes().remove(0)], ..Default::default() };
    let meta = server.recognition().recognize(request).await.unwrap().into_inner().meta.unwrap();
    assert_eq!((&meta.backend, meta.fallback_reason.as_str()), (&gallery.batch_timings[0].backend, ""));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_keeps_its_id_or_is_given_one() {
    let folder = sample();
    let server = Server::start(folder.path(), &CPU).await;
    let ask = async |id: Option<&'static str>| {
        let mut request = Request::new(SearchRequest { probes: probes(), top_k: 1, ..Default::default() });
        if let Some(id) = id {
            request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        }
        let answer = server.recognition().search(request).await.unwrap();
        let echoed = answer.metadata().get("x-request-id").unwrap().to_str().unwrap().to_owned();
        assert_eq!(answer.into_inner().meta.unwrap().request_id, echoed);
        echoed
    };
    assert_eq!(ask(Some("photo-7/face-1")).await, "photo-7/face-1");
    let made = [ask(None).await, ask(None).await, ask(Some("two words")).await];
    assert!(made.iter().all(|id| id.len() == 36), "{made:?}");
    assert!(made[0] != made[1] && made[1] != made[2]);
    let mut bad = Request::new(SearchRequest::default());
    bad.metadata_mut().insert("x-request-id", "r-2".parse().unwrap());
    let refused = server.recognition().search(bad).await.unwrap_err();
    assert_eq!(refused.metadata().get("x-request-id").unwrap(), "r-2");
    server.stop().await.unwrap();
}

/// The services that reflection lists, and the files that hold one of ours; for either version of the protocol.
macro_rules! reflected {
    ($server:expr, $version:ident) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let ask = |what: MessageRequest| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(what),
        };
        let questions = tokio_stream::iter([
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol("lookalike.v1.Recognition".to_owned())),
        ]);
        let mut client = ServerReflectionClient::new($server.channel.clone());
        let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
        let first = answers.message().await.unwrap().unwrap().message_response.unwrap();
        let MessageResponse::ListServicesResponse(list) = first else { panic!("{first:?}") };
        let second = answers.message().await.unwrap().unwrap().message_response.unwrap();
        let MessageResponse::FileDescriptorResponse(files) = second else { panic!("{second:?}") };
        let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
        (names, files.file_descriptor_proto)
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_of_both_versions_lists_the_services() {
    use prost::Message;

    let folder = sample();
    let server = Server::start(folder.path(), &CPU).await;
    for (names, files) in [reflected!(server, v1), reflected!(server, v1alpha)] {
        for service in ["lookalike.v1.Recognition", "lookalike.v1.Operations", "grpc.health.v1.Health"] {
            assert!(names.iter().any(|name| name == service), "{service} in {names:?}");
        }
        let file = prost_types::FileDescriptorProto::decode(&files[0][..]).unwrap();
        assert_eq!(file.package(), "lookalike.v1");
        let methods: Vec<&str> =
            file.service[0].method.iter().map(prost_types::MethodDescriptorProto::name).collect();
        assert_eq!(methods, ["Search", "Recognize", "Explain", "SelectPrototypes"]);
    }
    server.stop().await.unwrap();
}

/// A process of its own, since metrics are a process's.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_was_answered() {
    let options = ImportOptions {
        threshold: Some(Threshold::parse(0.942).unwrap()),
        min_margin: Some(Margin::parse(0.04).unwrap()),
        ..Default::default()
    };
    let folder = data_folder_as(options, &sample_faces());
    let server = lookalike().serve(folder.path(), &CPU).await;
    let requests =
        |method: &str, code: &str| format!("lookalike_requests_total{{method=\"{method}\",code=\"{code}\"}}");
    let decisions = |decision: &str| format!("lookalike_decisions_total{{decision=\"{decision}\"}}");
    let mut nobody = probe("nobody", &sample_probes()[0].1);
    nobody.exclude_identities = (1..=12).map(|person| format!("person_{person:03}")).collect();
    let recognize = RecognizeRequest { probes: [probes(), vec![nobody]].concat(), ..Default::default() };
    server.recognition().recognize(recognize).await.unwrap();
    for top_k in [1, 0, 0] {
        let search = SearchRequest { probes: probes(), top_k, ..Default::default() };
        assert_eq!(server.recognition().search(search).await.is_ok(), top_k == 1);
    }
    let elsewhere = SearchRequest { gallery: "none".to_owned(), ..Default::default() };
    server.recognition().search(elsewhere).await.unwrap_err();
    server.operations().get_info(GetInfoRequest {}).await.unwrap();
    for (series, value) in [
        (requests("Recognition/Recognize", "ok"), 1.0),
        (requests("Recognition/Search", "ok"), 1.0),
        (requests("Recognition/Search", "invalid_argument"), 2.0),
        (requests("Recognition/Search", "not_found"), 1.0),
        (requests("Operations/GetInfo", "ok"), 1.0),
        (requests("Health/Watch", "ok"), 1.0),
        (decisions("recognized"), 5.0),
        (decisions("ambiguous"), 2.0),
        (decisions("below_threshold"), 5.0),
        (decisions("no_candidate"), 1.0),
        (decisions("displaced"), 0.0),
        ("lookalike_gallery_prototypes".to_owned(), 60.0),
        ("lookalike_gallery_identities".to_owned(), 12.0),
        ("lookalike_gallery_generation".to_owned(), 1.0),
        ("lookalike_inflight_requests".to_owned(), 0.0),
        ("lookalike_queue_depth".to_owned(), 0.0),
        ("lookalike_backend_up{backend=\"cpu\",role=\"primary\"}".to_owned(), 1.0),
        ("lookalike_backend_choice{backend=\"cpu\",reason=\"configured\"}".to_owned(), 1.0),
        ("lookalike_uncertified_scans_total{backend=\"cpu\"}".to_owned(), 0.0),
        ("lookalike_score_bound_violations_total{backend=\"cpu\"}".to_owned(), 0.0),
        ("lookalike_request_duration_seconds_count{method=\"Recognition/Search\"}".to_owned(), 4.0),
        ("lookalike_stage_duration_seconds_count{stage=\"scan\"}".to_owned(), 2.0),
        ("lookalike_stage_duration_seconds_count{stage=\"decide\"}".to_owned(), 1.0),
        // Refused requests scan nothing, nor does a probe that leaves out every row.
        ("lookalike_batch_probes_count{role=\"primary\"}".to_owned(), 2.0),
        ("lookalike_batch_probes_sum{role=\"primary\"}".to_owned(), 24.0),
        ("lookalike_decision_headroom_count{bound=\"threshold\"}".to_owned(), 12.0),
    ] {
        let got = server.metric(&series).await;
        assert!((got - value).abs() < f64::EPSILON, "{series}: expected {value}, got {got}");
    }
    let text = server.metrics().await;
    assert!(!text.contains("person_"), "no identity is ever a label");
    server.terminate();
    assert!(server.end().0.success());
}

/// Where galleries may be told apart in metrics, they are.
#[tokio::test(flavor = "multi_thread")]
async fn galleries_are_labels_only_where_the_operator_says_so() {
    let folder = sample();
    let server = lookalike().serve(folder.path(), &[CPU[0], "metrics.gallery_label=true"]).await;
    let prototypes = server.metric("lookalike_gallery_prototypes{gallery=\"default\"}").await;
    assert!((prototypes - 60.0).abs() < f64::EPSILON);
}

#[test]
fn a_data_folder_is_told_from_none() {
    let error = server::load(&settings(Path::new("/nonexistent"), &CPU)).unwrap_err();
    assert_eq!(
        told(error),
        "storage.path: no data folder at /nonexistent: lookalike gallery import --data makes one"
    );
}

//! Where there is no OpenCL, and where there is one that may not be taken.

use std::time::{Duration, Instant};

use lookalike::grpc::proto::{GetInfoRequest, RecognizeRequest};
use serde_json::json;

use super::text;
use crate::support::{data_folder, lookalike, probe, sample_faces, sample_probes};

#[test]
fn devices_says_at_once_that_there_is_no_opencl() {
    let started = Instant::now();
    let run = lookalike().without_opencl().args(["devices"]).run();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(run.ok(), "no device is taken: no OpenCL loader (libOpenCL.so.1) on this machine\n");
    let told = lookalike().without_opencl().args(["devices", "--format", "json"]).run().json();
    assert_eq!((&told["devices"], &told["chosen"]), (&json!([]), &json!([])));
}

#[test]
fn devices_lists_pocl_and_whether_it_is_taken() {
    let of = |allow: &str| {
        let key = "LOOKALIKE__BACKEND__OPENCL__ALLOW_CPU_DEVICES";
        lookalike().args(["devices", "--format", "json"]).env(key, allow).run().json()
    };
    let told = of("false");
    assert_eq!(told["chosen"], json!([]));
    let pocl = &told["devices"][0];
    assert_eq!((&pocl["platform"], &pocl["kind"]), (&json!("Portable Computing Language"), &json!("cpu")));
    assert_eq!(pocl["usable"], false);
    let told = of("true");
    assert_eq!((&told["chosen"], &told["devices"][0]["usable"]), (&json!([0]), &json!(true)));
    assert!(told["conclusion"].as_str().unwrap().ends_with(" is taken"), "{told}");
}

/// PoCL makes two devices of the processor; each holds half of the rows.
#[test]
fn all_devices_share_the_rows_and_give_one_answer() {
    let two = || {
        lookalike()
            .env("POCL_DEVICES", "pthread pthread")
            .env("LOOKALIKE__BACKEND__OPENCL__ALLOW_CPU_DEVICES", "true")
            .env("LOOKALIKE__BACKEND__OPENCL__DEVICE", "all")
    };
    let told = two().args(["devices", "--format", "json"]).run().json();
    assert_eq!(told["chosen"], json!([0, 1]), "{told}");
    assert!(told["conclusion"].as_str().unwrap().ends_with(" are taken"), "{told}");
    // One row each, none for one of them, and more than a chunk.
    for rows in ["2", "1", "1501"] {
        let bench = ["bench", "--backend", "opencl", "--rows", rows, "--probes-count", "9", "--dim", "24"];
        let check = ["--check", "9", "--repeat", "1", "--format", "json"];
        let report = two().args(bench).args(check).run().json();
        assert!(report["device"].as_str().unwrap().starts_with("2 x "), "{report}");
        let (checked, positions) = (&report["checked"], 9 * rows.parse::<usize>().unwrap().min(32));
        assert_eq!((&checked["positions"], &checked["equal"]), (&json!(positions), &json!(positions)));
        assert_eq!((&report["uncertified"], &report["invalid_indices"]), (&json!(0), &json!(0)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_where_there_is_no_opencl_and_says_why() {
    let folder = data_folder(&sample_faces());
    for kind in ["auto", "opencl"] {
        let flag = format!("backend.kind={kind}");
        let server = lookalike().without_opencl().serve(folder.path(), &[&flag]).await;
        let reason = format!(
            "backend.kind is {kind}, but no usable OpenCL device: no OpenCL loader (libOpenCL.so.1) on this machine"
        );
        let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
        assert_eq!(info.backend_reason, reason);
        assert_eq!((info.backends[0].name.as_str(), info.backends[0].active), ("cpu", true));
        let (id, vector) = sample_probes().remove(0);
        let request = RecognizeRequest { probes: vec![probe(&id, &vector)], ..Default::default() };
        let answer = server.recognition().recognize(request).await.unwrap().into_inner();
        let meta = answer.meta.unwrap();
        assert_eq!((meta.backend.as_str(), meta.fallback_reason), ("cpu", reason.clone()));
        assert_eq!(answer.recognitions[0].identity, "person_001");
        server.until_metric("lookalike_backend_choice{backend=\"cpu\",reason=\"no_loader\"}", 1.0).await;
        server.until_metric("lookalike_backend_fallback_total{reason=\"no_loader\"}", 1.0).await;
        server.terminate();
        let (status, stdout, lines) = server.end();
        assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
        let chosen = lines.iter().find(|line| line["message"] == "backend chosen").unwrap();
        assert_eq!(chosen["reason"], reason);
    }
}

#[test]
fn opencl_or_nothing_does_not_start_where_there_is_none() {
    let folder = data_folder(&sample_faces());
    let set = ["--set", "backend.kind=opencl", "--set", "backend.fallback=fail"];
    let listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "off"];
    let run = lookalike()
        .without_opencl()
        .args(["serve", "--data", text(folder.path())])
        .args(listen)
        .args(set)
        .run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    let last = run.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: backend: no usable OpenCL device: no OpenCL loader"), "{last}");
}

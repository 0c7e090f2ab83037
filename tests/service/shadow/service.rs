//! `lookalike.v1.Shadow` and `lookalike shadow`, on the real server.

use lookalike::grpc::TURN_ON;
use lookalike::grpc::proto::{
    DemoteRequest, GetInfoRequest, GetReportRequest, Guilty, ListDisagreementsRequest, PromoteRequest,
    RecognizeRequest, ReplayRequest, SetSamplingRequest, WatchDisagreementsRequest,
};
use lookalike::server;
use serde_json::Value;
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::super::support::{CPU, Fault, Server, Switch, data_folder, http_get, lookalike, settings, until};
use super::{faces, faulty, probes_of, shadowed};

fn request() -> RecognizeRequest {
    RecognizeRequest { probes: probes_of(&faces()), ..Default::default() }
}

fn run(server: &Server, args: &[&str]) -> super::super::support::Run {
    let at = server.grpc.to_string();
    lookalike().args(["shadow"]).args(args).args(["--server", &at]).run()
}

/// `GetInfo`, the report, the console and the metrics agree on which backend answers and why.
async fn one_account(server: &Server, backend: &str, why: &str) {
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    let first = &info.backends[0];
    assert_eq!((first.name.as_str(), first.active, first.role.as_str()), (backend, true, "primary"));
    assert_eq!(info.backends.iter().filter(|one| one.active).count(), 1);
    assert!(info.backends.iter().any(|one| one.role == "shadow" && one.name != backend), "{info:?}");
    assert_eq!(info.backend_reason, why);
    let report = server.shadow().get_report(GetReportRequest {}).await.unwrap().into_inner();
    assert_eq!((report.backend_reason.as_str(), report.primary.unwrap().backend.as_str()), (why, backend));
    assert!(run(server, &["report"]).stdout.contains(why));
    let (_, page) = http_get(server.http, "/console").await;
    assert!(page.contains(why), "{page}");
    let (_, metrics) = http_get(server.http, "/metrics").await;
    let reason = if backend == "cpu" { "configured" } else { "promoted" };
    let other = if backend == "cpu" { "opencl" } else { "cpu" };
    for line in [
        format!("lookalike_backend_choice{{backend=\"{backend}\",reason=\"{reason}\"}} 1"),
        format!("lookalike_backend_up{{backend=\"{backend}\",role=\"primary\"}} 1"),
        format!("lookalike_backend_up{{backend=\"{other}\",role=\"shadow\"}} 1"),
        format!("lookalike_backend_up{{backend=\"{other}\",role=\"primary\"}} NaN"),
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line} stands in\n{metrics}");
    }
}

/// What the command line says of a shadow that told other persons, and does with it.
async fn command_line(server: &Server) {
    let told = run(server, &["report"]);
    assert_eq!(told.code, Some(3), "{}", told.stderr);
    assert!(
        told.stdout.contains("identity") && told.stdout.contains("the gate is not met"),
        "{}",
        told.stdout
    );
    let told = run(server, &["list", "--kind", "identity", "--format", "json"]).json();
    assert!(
        told["disagreements"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["kinds"].to_string().contains("identity"))
    );
    let id = told["disagreements"][0]["id"].as_str().unwrap().to_owned();
    let told = run(server, &["replay", &id]);
    assert_eq!(told.code, Some(3), "{}", told.stderr);
    assert!(told.stdout.contains("guilty: shadow"), "{}", told.stdout);
    let told = run(server, &["replay", &id, "--format", "json"]);
    assert!(told.stdout.contains("GUILTY_SHADOW"), "{}", told.stdout);
    let told = run(server, &["promote"]);
    assert_eq!(told.code, Some(1));
    assert!(told.stderr.contains("FailedPrecondition: the gate is not met"), "{}", told.stderr);
    assert_eq!(run(server, &["promote", "--force", "--reason", "to see"]).ok(), "promoted\n");
    one_account(server, "opencl", "opencl was promoted over cpu (by an operator: to see)").await;
    assert_eq!(run(server, &["demote", "--reason", "seen"]).ok(), "demoted\n");
    let why = "backend.kind is cpu; opencl was taken back (by an operator: seen)";
    one_account(server, "cpu", why).await;
    let told = run(server, &["report"]).stdout;
    assert!(told.contains("(by an operator: seen)") && !told.contains("operator promotes"), "{told}");
    assert_eq!(run(server, &["demote"]).ok(), "it was not promoted\n");
    assert_eq!(run(server, &["sampling", "12.5%"]).ok(), "12.5 % of requests are compared\n");
    assert_eq!(run(server, &["sampling", " -0"]).ok(), "0 % of requests are compared\n");
    assert_eq!(run(server, &["sampling", "12.5%"]).ok(), "12.5 % of requests are compared\n");
    assert_eq!(run(server, &["sampling", "150%"]).code, Some(2));
    let (_, metrics) = http_get(server.http, "/metrics").await;
    assert!(metrics.contains("lookalike_shadow_sampling_ratio 0.125"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_is_told() {
    let (data, record) = (data_folder(&faces()), TempDir::new().unwrap());
    let path = format!("shadow.record.path={}", record.path().display());
    let switch = Switch::default();
    let planted = switch.clone();
    let load = faulty(Fault::Skipped(15), planted);
    let server = Server::start_with(shadowed(data.path(), &[&path]), load).await;
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner().shadow.unwrap();
    assert_eq!((info.backend.as_str(), info.promoted), ("opencl", false));

    let mut watch =
        server.shadow().watch_disagreements(WatchDisagreementsRequest {}).await.unwrap().into_inner();
    switch.set(true);
    server.recognition().recognize(request()).await.unwrap();
    let news = watch.message().await.unwrap().unwrap().disagreement.unwrap();
    assert_eq!(news.method, "recognize");
    let probes = request().probes.len() as u64;
    let report = until("all was compared", async || {
        let report = server.shadow().get_report(GetReportRequest {}).await.unwrap().into_inner();
        (report.compared == probes).then_some(report)
    })
    .await;
    let rate = |kind: &str| report.kinds.iter().find(|one| one.kind == kind).unwrap();
    let hard = rate("identity").count + rate("decision").count;
    assert!(hard > 0 && !report.gate_met && report.gate.len() == 7);
    let agree = rate("agree");
    assert!(agree.rate_low < agree.rate && agree.rate < agree.rate_high);
    assert!(report.score_error.unwrap().count == probes && report.primary_latency_ns.unwrap().p99 > 0.0);
    until("the gate shows", async || {
        let (_, metrics) = http_get(server.http, "/metrics").await;
        assert!(metrics.contains("lookalike_shadow_comparisons_total{kind=\"identity\"}"));
        metrics.contains("lookalike_shadow_gate{condition=\"hard\"} 0").then_some(())
    })
    .await;

    // In the file, one line each, as in memory.
    let listed =
        server.shadow().list_disagreements(ListDisagreementsRequest { limit: 256, kinds: Vec::new() }).await;
    let listed = listed.unwrap().into_inner().disagreements;
    let lines = std::fs::read_to_string(record.path().join("disagreements.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<&str> = lines.iter().rev().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ids);
    assert!(
        lines.iter().all(|line| line.get("embedding").is_none() && line["sides"]["shadow"]["program"] != "")
    );

    command_line(&server).await;

    // Whoever watches is let go, and nothing holds the server.
    server.stop().await.unwrap();
    while watch.message().await.is_ok_and(|news| news.is_some()) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_from_the_command_line_ends_when_told() {
    let data = data_folder(&faces());
    let switch = Switch::on();
    let load = faulty(Fault::Scaled(1.001), switch);
    let server = Server::start_with(shadowed(data.path(), &[]), load).await;
    let at = server.grpc.to_string();
    let watching = tokio::task::spawn_blocking(move || {
        lookalike().args(["shadow", "watch", "--count", "3", "--server", &at]).run()
    });
    let mut watching = std::pin::pin!(watching);
    let told = until("three came", async || {
        server.recognition().recognize(request()).await.unwrap();
        let turn = std::time::Duration::from_millis(1);
        tokio::time::timeout(turn, &mut watching).await.ok()
    })
    .await;
    let lines: Vec<Value> =
        told.unwrap().ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line["shadow"]["wrongScores"] == true), "{lines:?}");
    server.stop().await.unwrap();
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_values_and_missing_things_are_named() {
    let data = data_folder(&faces());
    let server = Server::start_with(shadowed(data.path(), &[]), server::opener()).await;
    let mut client = server.shadow();
    for sampling in [-0.1, 1.1, f64::NAN] {
        let refused = client.set_sampling(SetSamplingRequest { sampling }).await.unwrap_err();
        assert!(refused.message().starts_with("sampling: expected 0 to 1, got "), "{refused:?}");
    }
    let refused = client
        .list_disagreements(ListDisagreementsRequest {
            limit: 257,
            kinds: vec!["agree".to_owned(), "wrong".to_owned()],
        })
        .await
        .unwrap_err();
    let fields: Vec<String> = refused
        .get_details_bad_request()
        .unwrap()
        .field_violations
        .into_iter()
        .map(|one| one.field)
        .collect();
    assert_eq!(fields, ["limit", "kinds[1]"]);
    assert_eq!(code(client.replay(ReplayRequest { id: String::new() }).await), Code::InvalidArgument);
    assert_eq!(code(client.replay(ReplayRequest { id: "none".to_owned() }).await), Code::NotFound);
    let long = "x".repeat(1025);
    assert_eq!(code(client.demote(DemoteRequest { reason: long.clone() }).await), Code::InvalidArgument);
    let escape = DemoteRequest { reason: "seen\u{1b}[31m\nby root".to_owned() };
    assert_eq!(code(client.demote(escape).await), Code::InvalidArgument, "it is printed on terminals");
    assert_eq!(
        code(client.promote(PromoteRequest { force: true, reason: long }).await),
        Code::InvalidArgument
    );
    let refused = client.promote(PromoteRequest::default()).await.unwrap_err();
    let violations = refused.get_details_precondition_failure().unwrap().violations;
    assert!(
        violations.iter().any(|one| one.subject == "comparisons" && one.description == "limit 100000, got 0")
    );
    assert_eq!(Guilty::try_from(0), Ok(Guilty::Unspecified));
    server.stop().await.unwrap();

    let server = Server::start(data.path(), &CPU).await;
    let refused = server.shadow().get_report(GetReportRequest {}).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, format!("shadow mode is off: {TURN_ON}").as_str())
    );
    let info = server.operations().get_info(GetInfoRequest {}).await.unwrap().into_inner();
    assert!(info.shadow.is_none() && !settings(data.path(), &CPU).shadow.enabled);
    server.stop().await.unwrap();
}

/// SHA-256 of "secret".
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_the_server_asks_for_a_token() {
    let (data, folder) = (data_folder(&faces()), TempDir::new().unwrap());
    let (tokens, token) = (folder.path().join("tokens"), folder.path().join("token"));
    std::fs::write(&tokens, format!("admin {HASH} anna\n")).unwrap();
    std::fs::write(&token, "secret\n").unwrap();
    let guarded = format!("server.tokens={}", tokens.display());
    let server = Server::start_with(shadowed(data.path(), &[&guarded]), server::opener()).await;
    let mut client = server.shadow();
    client.get_report(GetReportRequest {}).await.unwrap();
    let refused = [
        code(client.set_sampling(SetSamplingRequest { sampling: 0.5 }).await),
        code(client.promote(PromoteRequest { force: true, ..Default::default() }).await),
        code(client.demote(DemoteRequest::default()).await),
        code(server.operations().reload(lookalike::grpc::proto::ReloadRequest {}).await),
    ];
    assert_eq!(refused, [Code::Unauthenticated; 4]);
    let mut request = tonic::Request::new(SetSamplingRequest { sampling: 0.5 });
    request.metadata_mut().insert("authorization", "Bearer wrong".parse().unwrap());
    assert_eq!(code(client.set_sampling(request).await), Code::Unauthenticated);
    let told = run(&server, &["sampling", "0.5"]).stderr;
    assert!(
        told.contains("Unauthenticated") && told.contains("--token-file FILE or LOOKALIKE_TOKEN"),
        "{told}"
    );
    let told = run(&server, &["sampling", "0.5", "--token-file", token.to_str().unwrap()]).ok();
    assert_eq!(told, "50 % of requests are compared\n");
    let at = server.grpc.to_string();
    let by_environment = lookalike().env("LOOKALIKE_TOKEN", "secret");
    assert_eq!(
        by_environment.args(["shadow", "promote", "--force", "--server", &at]).run().ok(),
        "promoted\n"
    );
    let report = client.get_report(GetReportRequest {}).await.unwrap().into_inner();
    assert_eq!(report.changed_because, "by anna");
    server.stop().await.unwrap();

    // A file that cannot be read refuses the start.
    std::fs::write(&tokens, "admin secret anna").unwrap();
    let data = data.path().to_str().unwrap();
    let told =
        lookalike().args(["serve", "--data", data, "--listen", "127.0.0.1:0", "--set", &guarded]).run();
    assert_eq!(told.code, Some(1));
    assert!(
        told.stderr.contains("tokens: line 1: expected") && !told.stderr.contains("secret"),
        "{}",
        told.stderr
    );
}

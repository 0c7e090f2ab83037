//! What stands on stdout, and with which code the program ends.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{import, run, text, write};
use crate::support::{CPU, OPENCL, data_folder, expected, lookalike, sample_faces, sample_file};

#[test]
fn the_demo_does_the_main_job_and_ends() {
    for program in [lookalike(), lookalike().without_opencl()] {
        let shown = program.args(["demo"]).run().ok();
        for probe in expected()["probes"].as_array().unwrap() {
            let id = probe["probe_id"].as_str().unwrap();
            let row =
                shown.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} in\n{shown}"));
            let cells: Vec<&str> =
                row.split(['│', '┆', '|']).map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let decision = probe["decision"].as_str().unwrap();
            let nearest = probe["nearest"].as_str().unwrap();
            let named = if decision == "RECOGNIZED" { nearest } else { "-" };
            // As rounded to f32; the margin is a difference of two such numbers.
            let score = format!("{:.6}", probe["score"].as_f64().unwrap() as f32);
            let margin: f64 = cells[4].parse().unwrap();
            assert!((margin - probe["margin"].as_f64().unwrap()).abs() < 1e-6, "{id}: {margin}");
            let runner_up = probe["runner_up"].as_str().unwrap();
            assert_eq!(cells, [id, decision, named, &score, cells[4], nearest, runner_up]);
        }
        let command = shown.lines().find(|line| line.starts_with("grpcurl ")).unwrap();
        assert!(command.ends_with(" lookalike.v1.Recognition/Recognize"), "{command}");
        assert!(shown.contains("Metrics: http://127.0.0.1:"), "{shown}");
    }
}

/// Nobody reads the log, or its disk is full: what was asked for is done all the same, and fails only as it would anyway.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_lookalike"))
        .args(["serve", "--data", text(&missing), "--listen", "127.0.0.1:0", "--metrics-listen", "off"])
        .stderr(writer)
        .status()
        .unwrap();
    assert_eq!(ended.code(), Some(1), "it listened, logged in vain, and missed its data folder");
}

#[test]
fn nothing_but_the_result_stands_on_stdout() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    import(&data).json();
    let probes = sample_file("probes.jsonl");
    for kind in ["cpu", "opencl"] {
        let ask = |command: &str, format: &str| {
            let own = [command, "--data", text(&data), "--probes", text(&probes), "--format", format];
            let set = OPENCL.iter().skip(1).flat_map(|flag| ["--set", flag]);
            let kind = format!("backend.kind={kind}");
            // Logs as loud as they can be, to stderr.
            lookalike().args(own).args(set).args(["--set", &kind, "--set", "log.level=debug"]).run()
        };
        let searched = ask("search", "json").json();
        assert_eq!(searched["results"].as_array().unwrap().len(), 12);
        let first = &searched["results"][0]["neighbors"][0];
        // A 64-bit number is text in proto3's JSON.
        assert_eq!((&first["index"], &first["identity"]), (&json!("36"), &json!("person_001")));
        assert_eq!(searched["meta"]["backend"], kind);
        let recognized = ask("recognize", "json").json();
        let told = expected();
        for (one, told) in
            recognized["recognitions"].as_array().unwrap().iter().zip(told["probes"].as_array().unwrap())
        {
            assert_eq!(one["probeId"], told["probe_id"]);
            assert_eq!(one["decision"], format!("DECISION_{}", told["decision"].as_str().unwrap()));
        }
        for (command, key) in [("search", "neighbors"), ("recognize", "candidates")] {
            let lines = ask(command, "jsonl").ok();
            let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(parsed.len(), 12);
            assert!(parsed.iter().all(|line| line[key].is_array()));
        }
        let table = ask("recognize", "table");
        assert!(!table.stdout.contains("DEBUG") && !table.stdout.contains("INFO"), "{}", table.stdout);
        assert_eq!(table.ok().lines().filter(|line| line.contains("person_")).count(), 12);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_data_folder_answer_alike() {
    let folder = data_folder(&sample_faces());
    let server = lookalike().serve(folder.path(), &CPU).await;
    let url = format!("http://{}", server.grpc);
    let probes = sample_file("probes.jsonl");
    for (command, key) in [("recognize", "recognitions"), ("search", "results")] {
        let ask = |whom: [&str; 2]| {
            let more = ["--exclude-identity", "person_003", "--exclude-source", "person_001/img_01.pgm"];
            let own = [command, "--probes", text(&probes), "--format", "json", "--set", "backend.kind=cpu"];
            lookalike().args(own).args(whom).args(more).run().json()
        };
        let (remote, local) = (ask(["--server", &url]), ask(["--data", text(folder.path())]));
        assert_eq!(remote[key], local[key]);
        assert!(!remote[key].to_string().contains("\"person_003\""), "left out");
    }
    let gone =
        lookalike().args(["search", "--server", "http://127.0.0.1:1", "--probes", text(&probes)]).run();
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("no server answers at http://127.0.0.1:1"), "{}", gone.stderr);
}

#[test]
fn the_exit_code_says_how_it_went() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    import(&at.join("data")).json();
    let probes = sample_file("probes.jsonl");
    let probes = text(&probes);
    for (args, code) in [
        ("--version".to_owned(), 0),
        ("--help".to_owned(), 0),
        ("gallery verify --data @/data".to_owned(), 0),
        ("gallery list --data @/none".to_owned(), 1),
        (format!("search --data @/data --gallery none --probes {probes}"), 1),
        (format!("search --data @/data --top-k 0 --probes {probes}"), 1),
        (format!("search --data @/data --probes @/none.npy --format {probes}"), 2),
        ("search --data @/data --probes @/none.npy".to_owned(), 1),
        ("search".to_owned(), 2),
        ("guess".to_owned(), 2),
        ("serve --data @/data --listen nowhere".to_owned(), 2),
        ("devices --set backend.kind=gpu".to_owned(), 2),
    ] {
        let ran = run(at, &args);
        assert_eq!(ran.code, Some(code), "{args}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout.is_empty(), code != 0, "{args}: {}", ran.stdout);
    }
    // One byte of an embedding turned: what a check found stands on stdout, and the code is its own.
    let database = at.join("data/lookalike.db");
    let mut bytes = fs::read(&database).unwrap();
    let needle: Vec<u8> =
        sample_faces()[40].vector[..8].iter().flat_map(|value| value.to_le_bytes()).collect();
    let place = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[place] ^= 1;
    fs::write(&database, bytes).unwrap();
    let ran = run(at, "gallery verify --data @/data");
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("1 faults"), "{}", ran.stdout);
}

/// The fixture that the configuration's own tests use; they hold each answer's wording.
#[test]
fn every_fault_of_a_configuration_is_listed_by_key_path() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/faulty-config.yaml");
    for command in ["check-config", "serve"] {
        let run = lookalike().args([command, "--config", text(&fixture)]).run();
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
        for key in [
            "server.limits.queue",
            "backend.fallback",
            "backend.opencl.chunk_rows",
            "listen",
            "log",
            "recognition.margin",
            "server.limts",
            "server.shutdown_grace",
            "server.limits.max_probes",
            "server.limits.max_top_k",
            "server.limits.max_candidates",
            "server.listen",
            "metrics.listen",
            "metrics.gallery_label",
            "storage.path",
            "recognition.threshold",
            "recognition.min_margin",
            "backend.kind",
            "backend.cpu.threads",
            "backend.opencl.device",
            "backend.opencl.kernel_dir",
        ] {
            let named =
                run.stderr.lines().filter(|line| line.trim_start().starts_with(&format!("{key}: expected ")));
            assert_eq!(named.count(), 1, "{command}: {key} in\n{}", run.stderr);
        }
    }
    let folder = data_folder(&sample_faces());
    let data = format!("storage.path={}", text(folder.path()));
    let said = lookalike().args(["check-config", "--set", &data]).run().ok();
    assert!(said.starts_with("the configuration is valid\n") && said.contains(": default"), "{said}");
    // Whoever has only just begun has a right configuration and nothing to serve yet; a folder that is none is another matter.
    let empty = tempfile::TempDir::new().unwrap();
    let none = empty.path().join("none");
    for at in [empty.path(), &none] {
        let said =
            lookalike().args(["check-config", "--set", &format!("storage.path={}", text(at))]).run().ok();
        let begin = format!("the configuration is valid\nno galleries in {} yet: ", text(at));
        assert!(said.starts_with(&begin) && said.contains("lookalike gallery import --data"), "{said}");
    }
    assert!(!none.exists());
    let at = folder.path().join("lookalike.db");
    let run = lookalike().args(["check-config", "--set", &format!("storage.path={}", text(&at))]).run();
    assert_eq!(run.code, Some(1), "{}", run.stdout);
}

/// As a start would find it, and without making anything.
#[test]
fn a_configuration_says_whether_the_shadows_record_can_be_kept() {
    let folder = data_folder(&sample_faces());
    let at = folder.path();
    let check = |record: &str, enabled: bool| {
        let record = format!("shadow.record.path={}", record.replace('@', text(at)));
        let data = format!("storage.path={}", text(at));
        let enabled = format!("shadow.enabled={enabled}");
        let set = ["--set", &data, "--set", &record, "--set", &enabled, "--set", "backend.kind=cpu"];
        lookalike().args(["check-config"]).args(set).run()
    };
    for fine in ["@", "@/to/come", "off"] {
        assert!(check(fine, true).ok().starts_with("the configuration is valid\n"), "{fine}");
    }
    assert!(!at.join("to").exists());
    let names = || fs::read_dir(at).unwrap().count();
    let before = names();
    fs::create_dir_all(at.join("taken/disagreements.jsonl")).unwrap();
    std::os::unix::fs::symlink(at.join("nowhere"), at.join("leads")).unwrap();
    for wrong in ["@/lookalike.db", "@/lookalike.db/below", "@/taken", "/proc/none", "@/leads", "@/leads/on"]
    {
        let run = check(wrong, true);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{wrong}: {}", run.stderr);
        let key = format!("shadow.record.path: {}", wrong.replace('@', text(at)));
        assert!(run.stderr.contains(&key), "{}", run.stderr);
        // Nobody keeps it where there is no shadow.
        check(wrong, false).ok();
    }
    assert_eq!(names(), before + 2);
}

/// As on a full disk: told by name, and no half of a file stays.
#[test]
fn a_file_that_would_be_too_large_is_told_of() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let line = |row: usize| {
        let mut values = vec!["0".to_owned(); 128];
        let angle = row as f64 / 400.0;
        (values[row % 64], values[127]) = (angle.cos().to_string(), angle.sin().to_string());
        format!(r#"{{"id":"1","identity":"person {row}","embedding":[{}]}}"#, values.join(","))
    };
    write(at, "faces.jsonl", &(0..400).map(line).collect::<Vec<_>>().join("\n"));
    run(at, "gallery import --data @/data @/faces.jsonl --on-conflict accept").ok();
    let export = [env!("CARGO_BIN_EXE_lookalike"), "gallery", "export", "--data"];
    let ended = std::process::Command::new("bash")
        .args(["-c", "ulimit -f 100; exec \"$@\"", "bash"])
        .args(export)
        .args([at.join("data"), at.join("faces.npy")])
        .output()
        .unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("faces.npy: ") && told.contains("files may not be as large there"), "{told}");
    let mut left: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort_unstable();
    assert_eq!(left, ["data", "faces.jsonl"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_server_well() {
    let folder = data_folder(&sample_faces());
    let server = lookalike().serve(folder.path(), &CPU).await;
    server.terminate();
    let (status, stdout, lines) = server.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
    assert_eq!(lines.last().unwrap()["message"], "stopped");
}

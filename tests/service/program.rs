//! The program as a process: what stands on stdout, how it ends, and that it runs where there is no OpenCL.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lookalike::gallery::formats;
use lookalike::grpc::proto::{GetInfoRequest, RecognizeRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{
    CPU, OPENCL, Random, Run, data_folder, expected, lookalike, probe, sample_faces, sample_file,
    sample_probes,
};

/// The flags that import the sample into a folder.
fn import(data: &Path) -> Run {
    let (labels, vectors) = (sample_file("gallery.csv"), sample_file("gallery.npy"));
    let args = [
        "gallery",
        "import",
        "--data",
        text(data),
        "--model-id",
        "dlib_resnet_v1",
        "--threshold",
        "0.942",
        "--min-margin",
        "0.04",
        "--labels",
        text(&labels),
        text(&vectors),
        "--format",
        "json",
    ];
    lookalike().args(args).run()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs it with arguments parted by blanks, `@` standing for the folder.
fn run(folder: &Path, args: &str) -> Run {
    let args = args.split(' ').map(|arg| arg.replace('@', text(folder)));
    lookalike().args(args).env("LOOKALIKE__BACKEND__KIND", "cpu").run()
}

fn write(folder: &Path, name: &str, content: &str) {
    fs::write(folder.join(name), content).unwrap();
}

#[test]
fn devices_says_at_once_that_there_is_no_opencl() {
    let started = Instant::now();
    let run = lookalike().without_opencl().args(["devices"]).run();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(run.ok(), "no device is taken: no OpenCL loader (libOpenCL.so.1) on this machine\n");
    let told = lookalike().without_opencl().args(["devices", "--format", "json"]).run().json();
    assert_eq!((&told["devices"], &told["chosen"]), (&json!([]), &Value::Null));
}

#[test]
fn devices_lists_pocl_and_whether_it_is_taken() {
    let of = |allow: &str| {
        let key = "LOOKALIKE__BACKEND__OPENCL__ALLOW_CPU_DEVICES";
        lookalike().args(["devices", "--format", "json"]).env(key, allow).run().json()
    };
    let told = of("false");
    assert_eq!(told["chosen"], Value::Null);
    let pocl = &told["devices"][0];
    assert_eq!((&pocl["platform"], &pocl["kind"]), (&json!("Portable Computing Language"), &json!("cpu")));
    assert_eq!(pocl["usable"], false);
    let told = of("true");
    assert_eq!((&told["chosen"], &told["devices"][0]["usable"]), (&json!(0), &json!(true)));
    assert!(told["conclusion"].as_str().unwrap().ends_with(" is taken"), "{told}");
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
fn a_gallery_goes_in_and_out_and_in_again() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let report = import(&at.join("data")).json();
    assert_eq!(
        (&report["created"], &report["prototypes"], &report["identities"]),
        (&json!(true), &json!(60), &json!(12))
    );
    let list = run(at, "gallery list --data @/data --format json").json();
    assert_eq!(
        (&list["galleries"][0]["name"], &list["galleries"][0]["prototypes"]),
        (&json!("default"), &json!(60))
    );
    let shown = run(at, "gallery show --data @/data --format json").json();
    assert_eq!(shown["identities"].as_array().unwrap().len(), 12);
    let shown = run(at, "gallery show --data @/data --identity person_001 --format json").json();
    let indices: Vec<u64> =
        shown["prototypes"].as_array().unwrap().iter().map(|one| one["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 12, 24, 36, 48]);

    let said = run(at, "gallery export --data @/data @/out.npy").ok();
    assert!(said.starts_with("60 prototypes of default (generation 1) in "), "{said}");
    // The rows were of unit length, so every byte comes back.
    let read = |path: &Path| formats::read_vectors(path, &mut |_| ()).unwrap();
    assert_eq!(read(&at.join("out.npy")), read(&sample_file("gallery.npy")));
    assert_eq!(fs::read(at.join("out.csv")).unwrap(), fs::read(sample_file("gallery.csv")).unwrap());
    run(at, "gallery import --data @/again --labels @/out.csv @/out.npy").ok();
    let probes = sample_file("probes.jsonl");
    let ask = |data: &str| {
        let args =
            format!("recognize --data @/{data} --threshold 0.942 --min-margin 0.04 --format jsonl --probes ");
        run(at, &format!("{args}{}", text(&probes))).ok()
    };
    assert_eq!(ask("data"), ask("again"));

    let said = run(at, "gallery remove --data @/data --identity person_001").ok();
    assert_eq!(said, "default: removed 5 prototypes, 1 identities; generation 2; erased from the disk\n");
    let said = run(at, "gallery verify --data @/data").ok();
    assert_eq!(said, "1 galleries, 55 prototypes checked: sound\n");
    assert!(!ask("data").contains("\"person_001\""));
    let said = run(at, "gallery remove --data @/data --everything").ok();
    assert!(said.contains("the gallery is gone"), "{said}");
    let list = run(at, "gallery list --data @/data --format json").json();
    assert_eq!(list["galleries"], json!([]));
}

#[test]
fn a_bad_row_names_its_line_and_nothing_is_imported() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let line = |id: &str, embedding: &str| {
        format!("{{\"id\":\"{id}\",\"identity\":\"ann\",\"source\":\"\",\"embedding\":{embedding}}}\n")
    };
    for (bad, problem) in [
        (line("3", "[0.0, 0.0]"), "expected a direction, got the zero vector"),
        (line("1", "[0.5, 0.5]"), "expected each once, got it already at"),
        (line("3", "[0.5]"), "expected 2 components"),
        ("not json\n".to_owned(), "line 3"),
    ] {
        write(at, "faces.jsonl", &format!("{}{}{bad}", line("1", "[1.0, 0.0]"), line("2", "[0.0, 1.0]")));
        let run = run(at, "gallery import --data @/data @/faces.jsonl");
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{bad}");
        assert!(run.stderr.contains("faces.jsonl line 3") && run.stderr.contains(problem), "{}", run.stderr);
        let data = at.join("data");
        if data.exists() {
            let list = super::program::run(at, "gallery list --data @/data --format json").json();
            assert_eq!(list["galleries"], json!([]));
        }
    }
    write(at, "labels.csv", "ann/1\nann/2\n");
    let mut random = Random::new(1);
    let mut rows: Vec<Vec<f32>> = (0..2).map(|_| random.vector(4)).collect();
    rows[1][2] = f32::NAN;
    formats::npy::write_f32(&at.join("faces.npy"), 4, rows.iter().map(Vec::as_slice)).unwrap();
    let run = run(at, "gallery import --data @/data --labels @/labels.csv @/faces.npy");
    assert_eq!(run.code, Some(1));
    let problem = "faces.npy row 1 (from 0): embedding: expected finite components, got NaN at component 2";
    assert!(run.stderr.contains(problem), "{}", run.stderr);
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
        let run = run(at, &args);
        assert_eq!(run.code, Some(code), "{args}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.is_empty(), code != 0, "{args}: {}", run.stdout);
    }
    // One byte of an embedding turned: what a check found stands on stdout, and the code is its own.
    let database = at.join("data/lookalike.db");
    let mut bytes = fs::read(&database).unwrap();
    let needle: Vec<u8> =
        sample_faces()[40].vector[..8].iter().flat_map(|value| value.to_le_bytes()).collect();
    let place = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[place] ^= 1;
    fs::write(&database, bytes).unwrap();
    let run = run(at, "gallery verify --data @/data");
    assert_eq!(run.code, Some(3), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("1 faults"), "{}", run.stdout);
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
    assert!(
        said.starts_with("the configuration is valid\n") && said.contains("1 galleries: default"),
        "{said}"
    );
}

/// Every field that the contract names, and answers that are right where k exceeds the rows.
#[test]
fn bench_measures_and_writes_what_it_says() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let mut random = Random::new(11);
    let rows: Vec<Vec<f32>> = (0..40).map(|_| random.vector(12)).collect();
    let probes: Vec<Vec<f32>> = (0..3).map(|_| random.vector(12)).collect();
    for (name, vectors) in [("g.npy", &rows), ("p.npy", &probes)] {
        formats::npy::write_f32(&at.join(name), 12, vectors.iter().map(Vec::as_slice)).unwrap();
    }
    let mut written = Vec::new();
    for backend in ["reference", "cpu", "opencl"] {
        let files = format!(
            "--write-indices @/{backend}.i.npy --write-scores @/{backend}.s.npy --repeat 3 --format json"
        );
        let args = format!(
            "bench --gallery @/g.npy --probes @/p.npy --top-k 64 --threads 2 --backend {backend} {files}"
        );
        let args = args.split(' ').map(|arg| arg.replace('@', text(at)));
        let report = lookalike().args(args).args(["--set", OPENCL[2]]).run().json();
        let of = |key: &str| &report[key];
        assert_eq!(of("backend"), backend);
        assert!(!of("device").as_str().unwrap().is_empty() && !of("driver").as_str().unwrap().is_empty());
        let counts = ["rows", "dim", "probes", "top_k", "threads", "invalid_indices", "uncertified"]
            .map(|key| of(key).as_u64());
        assert_eq!(counts, [40, 12, 3, 40, 2, 0, 0].map(Some), "{report}");
        let mut times: Vec<f64> =
            of("total_ms").as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        let median = of("median_ms").as_f64().unwrap();
        assert!(times.len() == 3 && times[0] > 0.0 && (times[1] - median).abs() < 1e-9, "{report}");
        let rate = |key: &str| of(key).as_f64().unwrap() * median;
        for (key, each) in
            [("mvectors_per_s", 0.12), ("gflops", 0.12 * 24.0 / 1e3), ("gb_per_s", 0.12 * 48.0 / 1e3)]
        {
            assert!((rate(key) - each).abs() < 1e-6 * each, "{key} of {report}");
        }
        for phase in ["scan", "device_merge", "host_merge", "verify"] {
            assert!(of("phases_ms")[phase].as_f64().unwrap() >= 0.0, "{phase} of {report}");
        }
        let scores = formats::read_vectors(&at.join(format!("{backend}.s.npy")), &mut |_| ()).unwrap();
        assert_eq!((scores.len(), scores.dim()), (3, 40));
        let bits: Vec<u32> = scores.as_slice().iter().map(|score| score.to_bits()).collect();
        written.push((fs::read(at.join(format!("{backend}.i.npy"))).unwrap(), bits));
    }
    assert!(written.iter().all(|answer| *answer == written[0]), "one answer, whatever computed it");
    // The last 3 x 40 x 8 bytes are the indices: each row once, by falling score.
    let (bytes, bits) = &written[0];
    let indices = bytes[bytes.len() - 3 * 40 * 8..].as_chunks::<8>().0;
    for (probe, (indices, bits)) in indices.chunks(40).zip(bits.chunks(40)).enumerate() {
        let unit = |vector: &[f32]| super::support::unit(vector);
        let mut expected: Vec<(f32, i64)> = (0..40)
            .map(|row| {
                let (a, b) = (unit(&probes[probe]), unit(&rows[row]));
                (lookalike::domain::canonical_score(a.as_slice(), b.as_slice()), row as i64)
            })
            .collect();
        expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let got: Vec<(f32, i64)> = bits
            .iter()
            .zip(indices)
            .map(|(bits, index)| (f32::from_bits(*bits), i64::from_le_bytes(*index)))
            .collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn bench_makes_the_same_vectors_from_the_same_seed() {
    let folder = TempDir::new().unwrap();
    let of = |seed: &str, file: &str| {
        let args = format!(
            "bench --rows 300 --dim 9 --probes-count 5 --seed {seed} --top-k 4 --backend cpu --repeat 1 --write-scores @/{file}"
        );
        run(folder.path(), &args).ok();
        fs::read(folder.path().join(file)).unwrap()
    };
    let first = of("7", "a.npy");
    assert!(first == of("7", "b.npy") && first != of("8", "c.npy"));
}

#[test]
fn bench_of_a_missing_device_fails_rather_than_measure_another() {
    let made = [
        "bench",
        "--rows",
        "10",
        "--dim",
        "4",
        "--probes-count",
        "1",
        "--backend",
        "opencl",
        "--format",
        "json",
    ];
    let run = lookalike().without_opencl().args(made).run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.contains("no usable OpenCL device"), "{}", run.stderr);
    // PoCL is there, but its device is a CPU that nobody allowed.
    let run = lookalike().args(made).run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.contains("backend.opencl.allow_cpu_devices"), "{}", run.stderr);
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

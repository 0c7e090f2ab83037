//! `lookalike bench`.

use std::fs;

use lookalike::gallery::formats;
use serde_json::Value;
use tempfile::TempDir;

use super::{run, text};
use crate::support::{OPENCL, Random, lookalike, unit};

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
        assert_eq!((of("ask"), of("limits"), of("checked")), (&"search".into(), &Value::Null, &Value::Null));
        assert_eq!(of("memory")["rows_bytes"], 40 * 12 * 4);
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
fn bench_measures_nothing_else_than_it_was_told_to() {
    let folder = TempDir::new().unwrap();
    let rows = folder.path().join("g.npy");
    formats::npy::write_f32(&rows, 2, [&[1.0_f32, 0.0][..]].into_iter()).unwrap();
    for args in [
        vec!["--gallery", text(&rows)],
        vec!["--probes", text(&rows)],
        vec!["--gallery", text(&rows), "--probes-count", "3"],
        vec!["--gallery", text(&rows), "--probes", text(&rows), "--rows", "5"],
        vec!["--rows", "0"],
        vec!["--rows", "18446744073709551615"],
        vec!["--rows", "99999999", "--dim", "4096"],
        vec!["--ask", "neither"],
        vec!["--max-candidates", "2"],
        vec!["--ask", "recognize", "--top-k", "5"],
        vec!["--ask", "recognize", "--write-indices", "i.npy"],
        vec!["--ask", "recognize", "--write-scores", "s.npy"],
        vec!["--rows-per-identity", "0"],
        vec!["--check", "0"],
        vec!["--round-ms", "5"],
        vec!["--callers", "0"],
        vec!["--callers", "1025"],
        vec!["--callers", "2", "--ask", "search"],
        vec!["--callers", "2", "--limits"],
        vec!["--callers", "2", "--check", "1"],
        vec!["--callers", "2", "--top-k", "1"],
        vec!["--callers", "2", "--write-indices", "i.npy"],
    ] {
        let run = lookalike().args(["bench"]).args(&args).run();
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {}", run.stderr);
    }
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

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {report}"))
}

/// Identities of consecutive rows, ranked as the service ranks them.
#[test]
fn bench_recognizes_and_checks_itself() {
    let folder = TempDir::new().unwrap();
    let made =
        "bench --rows 2003 --dim 24 --probes-count 7 --ask recognize --check 5 --repeat 2 --format json";
    for (more, identities, listed) in [
        ("", 401, 2),
        (" --max-candidates 1", 401, 1),
        (" --rows-per-identity 1000 --max-candidates 9", 3, 3),
    ] {
        let text = run(folder.path(), &format!("{made} --backend cpu{more}")).ok();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["ask"], "recognize");
        let counts = ["rows", "identities", "probes", "top_k"].map(|key| report[key].as_u64());
        assert_eq!(counts, [2003, identities, 7, listed].map(Some), "{report}");
        let positions = 5 * listed;
        let checked = ["probes", "positions", "equal"].map(|key| report["checked"][key].as_u64());
        assert_eq!(checked, [5, positions, positions].map(Some), "{report}");
        assert_eq!(report["total_ms"].as_array().unwrap().len(), 2);
    }
    let table =
        run(folder.path(), "bench --rows 50 --dim 4 --probes-count 3 --check 9 --repeat 1 --backend cpu")
            .ok();
    assert!(table.contains("96 of 96 positions of 3 probes are those of plain f64"), "{table}");
}

/// Two backends side by side: the phases of each, one against the other, and the same answers.
#[test]
fn bench_compares_backends() {
    let folder = TempDir::new().unwrap();
    let made = "bench --rows 1009 --dim 24 --probes-count 7 --top-k 5 --repeat 3 --backend cpu,opencl";
    let with_opencl = |args: &str| lookalike().args(args.split(' ')).args(["--set", OPENCL[2]]).run();
    let report = with_opencl(&format!("{made} --format json")).json();
    let backends = report["backends"].as_array().unwrap();
    let names: Vec<&str> = backends.iter().map(|one| one["backend"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", "opencl"]);
    for one in backends {
        assert!(number(one, "/phases_ms/scan") > 0.0 && number(one, "/median_ms") > 0.0, "{one}");
        assert!(number(one, "/largest_score_error") < 0.1, "{one}");
        assert_eq!(one["invalid_indices"], 0);
    }
    assert!(number(&backends[1], "/phases_ms/device_merge") > 0.0);
    assert!(number(&backends[1], "/largest_score_error") < 1e-5);
    let against = &report["against_first"][0];
    let counts = ["positions", "identical"].map(|key| against[key].as_u64());
    assert_eq!((&against["backend"], counts), (&"opencl".into(), [35, 35].map(Some)));
    let speedup = number(&backends[0], "/median_ms") / number(&backends[1], "/median_ms");
    assert!((number(against, "/speedup") - speedup).abs() < 1e-9 * speedup);
    let table = with_opencl(made).ok();
    assert!(table.contains("speed-up over cpu") && table.contains("35 of 35"), "{table}");
    for refused in ["--limits", "--check 3", "--callers 2", "--write-scores @/s.npy"] {
        let run = run(folder.path(), &format!("bench --rows 9 --backend cpu,reference {refused}"));
        assert_eq!(run.code, Some(2), "{refused}: {}", run.stderr);
    }
}

/// The limits are those of a machine, and the distance is that of the median to the larger.
#[test]
fn bench_measures_the_machines_limits() {
    let folder = TempDir::new().unwrap();
    let made = "bench --rows 1000 --dim 100 --probes-count 4 --repeat 3 --backend cpu --threads 2 --limits";
    let report: Value =
        serde_json::from_str(&run(folder.path(), &format!("{made} --format json")).ok()).unwrap();
    let of = |path: &str| number(&report["limits"], path);
    assert!(of("/memory_gb_per_s/median") > 0.0);
    assert!(of("/memory_gb_per_s/best") >= of("/memory_gb_per_s/median"));
    for kind in ["int8", "f32"] {
        assert!(of(&format!("/{kind}/gops")) > 0.0);
        assert!(!report["limits"][kind]["level"].as_str().unwrap().is_empty());
    }
    // 100 components padded to 128, and 12 bytes beside them.
    assert!((of("/int8_bytes") - 140_000.0).abs() < 1e-9);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
    assert!(near(of("/memory_ms"), 0.14 / of("/memory_gb_per_s/best")));
    assert!(near(of("/arithmetic_ms"), 0.8 / of("/int8/gops")));
    assert!(near(of("/limit_ms"), of("/memory_ms").max(of("/arithmetic_ms"))));
    assert!(near(of("/times_limit"), number(&report, "/median_ms") / of("/limit_ms")));
    let by = if of("/memory_ms") > of("/arithmetic_ms") { "memory" } else { "arithmetic" };
    assert_eq!(report["limits"]["limited_by"], by);
    let table = run(folder.path(), made).ok();
    assert!(table.contains("x the limit of") && table.contains("GOP/s"), "{table}");
}

#[test]
fn bench_calls_a_server_alone_and_in_company() {
    let folder = TempDir::new().unwrap();
    let made = "bench --rows 500 --dim 16 --probes-count 11 --callers 6 --repeat 3 --round-ms 20 --backend cpu --threads 2";
    let report: Value =
        serde_json::from_str(&run(folder.path(), &format!("{made} --format json")).ok()).unwrap();
    assert_eq!((&report["backend"], &report["driver"].is_string()), (&"cpu".into(), &true));
    let keys =
        ["rows", "dim", "probes", "threads", "callers", "connections", "rounds", "round_ms", "differing"];
    let counts = keys.map(|key| report[key].as_u64());
    assert_eq!(counts, [500, 16, 11, 2, 6, 4, 3, 20, 0].map(Some), "{report}");
    for kind in ["one", "many"] {
        let of = |key: &str| number(&report[kind], &format!("/{key}"));
        let mut rounds: Vec<f64> = report[kind]["round_per_s"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rate| rate.as_f64().unwrap())
            .collect();
        rounds.sort_by(f64::total_cmp);
        assert!(rounds.len() == 3 && rounds[0] > 0.0 && (rounds[1] - of("per_s")).abs() < 1e-9);
        assert!(of("p50_ms") > 0.0 && of("p99_ms") >= of("p50_ms"), "{report}");
        // As many replies as the rounds' rates say, each of which lasted at least as long as it should.
        assert!(of("requests") >= 3.0 && of("requests") >= 0.06 * rounds[0], "{report}");
    }
    assert!(number(&report, "/many/requests") >= 18.0, "every caller gets a reply in every round");
    let ratio = number(&report, "/many/per_s") / number(&report, "/one/per_s");
    assert!((number(&report, "/ratio") - ratio).abs() < 1e-9 * ratio);
    let spread = number(&report, "/many/p99_ms") / number(&report, "/many/p50_ms");
    assert!((number(&report, "/p99_by_p50") - spread).abs() < 1e-9 * spread);
    let table = run(folder.path(), made).ok();
    assert!(table.contains("6 callers") && table.contains("0 of 11 answers differ"), "{table}");
}

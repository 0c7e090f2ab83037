//! `lookalike bench`.

use std::fs;

use lookalike::gallery::formats;
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

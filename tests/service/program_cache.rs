//! Compiled kernels kept on disk: the device answers rightly whatever became of the files, and the metrics tell what did.

use std::fs;
use std::path::{Path, PathBuf};

use lookalike::grpc::proto::{Probe, RecognizeRequest, SearchRequest};
use tempfile::TempDir;

use super::support::{
    Fake, OPENCL, Program, REFERENCE, Server, data_folder, lookalike, probe, sample_faces, sample_probes,
};

/// What the cache did: hits, misses, stale, corrupt and unwritable ones.
type Counts = [f64; 5];

fn request() -> SearchRequest {
    let probes: Vec<Probe> = sample_probes().iter().map(|(id, vector)| probe(id, vector)).collect();
    SearchRequest { probes, top_k: 5, ..Default::default() }
}

/// Starts a server with this cache, checks that its device answers rightly, and gives what the cache did.
async fn start(program: Program, cache: &Path) -> Counts {
    let data = data_folder(&sample_faces());
    let cache = format!("backend.opencl.cache_dir={}", cache.display());
    let flags: Vec<&str> = OPENCL.iter().copied().chain([cache.as_str()]).collect();
    let server = program.serve(data.path(), &flags).await;
    let reference = Server::start(data.path(), &REFERENCE).await;
    let answer = server.recognition().search(request()).await.unwrap().into_inner();
    let truth = reference.recognition().search(request()).await.unwrap().into_inner();
    assert_eq!((answer.results, answer.meta.unwrap().backend.as_str()), (truth.results, "opencl"));
    let mut counts = Counts::default();
    for (count, result) in counts.iter_mut().zip(["hit", "miss", "stale", "corrupt", "unwritable"]) {
        *count = server.metric(&format!("lookalike_program_cache_total{{result=\"{result}\"}}")).await;
    }
    reference.stop().await.unwrap();
    counts
}

fn files(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What the server alone builds: its test has a process and counts of its own.
fn of(counts: Counts, what: usize) -> f64 {
    let all: f64 = counts[..4].iter().sum();
    assert!(
        all >= 5.0,
        "kernels for every number of probes are asked for before the first request: {counts:?}"
    );
    assert!((counts[what] - all).abs() < f64::EPSILON, "all alike: {counts:?}");
    counts[4]
}

const HIT: usize = 0;
const STALE: usize = 2;
const CORRUPT: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_cut_emptied_or_filled_with_noise_is_mended() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("kept");
    // Most were compiled by the self-test, which shares the cache.
    let first = start(lookalike(), &cache).await;
    assert!(first[1] >= 1.0 && first[2..] == [0.0; 3], "{first:?}");
    assert!(of(start(lookalike(), &cache).await, HIT).abs() < f64::EPSILON);
    let noise: Vec<u8> = (0..5000_u32).map(|i| (i * i % 251) as u8).collect();
    for fault in ["cut", "emptied", "noise"] {
        for file in files(&cache) {
            let sound = fs::read(&file).unwrap();
            let spoilt = match fault {
                "cut" => &sound[..sound.len() / 2],
                "emptied" => &[],
                _ => &noise,
            };
            fs::write(&file, spoilt).unwrap();
        }
        // The self-test mends what it meets first; what it shares with the server is whole again by then.
        let counts = start(lookalike(), &cache).await;
        assert!(counts[CORRUPT] >= 1.0, "{fault}: {counts:?}");
        assert_eq!((counts[1], counts[STALE], counts[4]), (0.0, 0.0, 0.0), "{fault}: {counts:?}");
        assert!(of(start(lookalike(), &cache).await, HIT).abs() < f64::EPSILON, "{fault}: mended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_driver_refuses_to_take_back_is_compiled_anew() {
    let folder = TempDir::new().unwrap();
    start(lookalike(), folder.path()).await;
    let told = [("ACTION", "error"), ("FUNCTION", "clCreateProgramWithBinary")];
    let counts = start(Fake::new().always(lookalike(), &told), folder.path()).await;
    assert!(of(counts, STALE).abs() < f64::EPSILON, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_cannot_be_written_stops_nothing() {
    // No user may write there, root included.
    let counts = start(lookalike(), Path::new("/proc")).await;
    assert!(of(counts, 1) >= 5.0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_caller_waits_for_a_compiler() {
    // A person of many prototypes: `Recognize` asks for more rows than `Search` does by default.
    let mut faces = sample_faces();
    for (place, face) in faces.iter_mut().enumerate().take(24) {
        (face.identity, face.id) = ("one".to_owned(), place.to_string());
    }
    let (data, cache) = (data_folder(&faces), TempDir::new().unwrap());
    let cache = format!("backend.opencl.cache_dir={}", cache.path().display());
    let flags: Vec<&str> = OPENCL.iter().copied().chain([cache.as_str()]).collect();
    let server = lookalike().serve(data.path(), &flags).await;
    let asked_for = async || {
        let mut sum = 0.0;
        for result in ["hit", "miss", "stale", "corrupt"] {
            sum += server.metric(&format!("lookalike_program_cache_total{{result=\"{result}\"}}")).await;
        }
        sum
    };
    let before = asked_for().await;
    assert!(before >= 5.0, "{before}");
    let known = sample_probes();
    for count in [1, 8, 64] {
        let probes = known.iter().cycle().take(count).map(|(id, vector)| probe(id, vector)).collect();
        let request = RecognizeRequest { probes, ..Default::default() };
        let answer = server.recognition().recognize(request).await.unwrap().into_inner();
        assert_eq!(answer.meta.unwrap().backend, "opencl");
    }
    assert!((asked_for().await - before).abs() < f64::EPSILON, "kernels were built while a caller waited");
}

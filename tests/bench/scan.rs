//! Parts of a search, each by itself: the canonical score, the screen alone, and the whole search through the engine.
//!
//! For whoever changes one of them: `cargo bench` compares with its last run. What users are promised is measured by `tests/bench/run`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lookalike::backend::cpu::CpuBackend;
use lookalike::backend::opencl::OpenClBackend;
use lookalike::backend::{Ask, Backend, RowSet, ScreenJob, Screened};
use lookalike::config::{self, Settings, Sources};
use lookalike::domain::{Embedding, Matrix, NormPolicy, Origin, Prototype, PrototypeKey, canonical_score};
use lookalike::engine::{Engine, ScanRequest};
use lookalike::gallery::{GalleryProfile, Snapshot};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

const DIM: usize = 128;
const TOP_K: usize = 32;

/// Rows that fit a large cache, and the number that the results are promised for.
const ROWS: [usize; 2] = [20_000, 350_000];

/// Rows of one identity, which are near each other.
const ROWS_PER_IDENTITY: usize = 5;

/// `centre`, or no direction in particular, with normally distributed noise of length `spread`.
fn near(random: &mut ChaCha8Rng, centre: Option<&Embedding>, dim: usize, spread: f32) -> Embedding {
    let scale = spread / (dim as f32).sqrt();
    let values = (0..dim).map(|component| {
        let noise: f32 = StandardNormal.sample(random);
        centre.map_or(0.0, |centre| centre.as_slice()[component]) + noise * scale
    });
    Embedding::parse(values.collect(), dim, NormPolicy::Normalise).expect("noise is no zero vector")
}

/// Rows in clusters, and `probes` near some of them.
fn made(rows: usize, probes: usize) -> (Vec<Embedding>, Vec<Embedding>) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut made: Vec<Embedding> = Vec::with_capacity(rows);
    while made.len() < rows {
        let centre = near(&mut random, None, DIM, 1.0);
        for _ in 0..ROWS_PER_IDENTITY {
            made.push(near(&mut random, Some(&centre), DIM, 0.8));
        }
    }
    let near_row = |probe: usize| near(&mut random, Some(&made[probe * 61 % rows]), DIM, 0.6);
    let probes = (0..probes).map(near_row).collect();
    (made, probes)
}

fn matrix(vectors: &[Embedding]) -> Arc<Matrix> {
    Arc::new(Matrix::from_rows(DIM, vectors.iter().map(Embedding::as_slice)))
}

fn settings() -> Settings {
    let flags = vec!["backend.kind=cpu".to_owned()];
    config::load(&Sources { flags, ..Sources::default() }).expect("the defaults are right")
}

fn canonical(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("canonical score");
    let mut random = ChaCha8Rng::seed_from_u64(2);
    for dim in [128, 512] {
        let (a, b) = (near(&mut random, None, dim, 1.0), near(&mut random, None, dim, 1.0));
        group.throughput(Throughput::Elements(dim as u64));
        group.bench_function(BenchmarkId::from_parameter(dim), |bencher| {
            bencher.iter(|| canonical_score(black_box(a.as_slice()), black_box(b.as_slice())));
        });
    }
    group.finish();
}

/// Dot products and the choice of candidates, without what the engine does to them.
fn screen(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("screen");
    let [rows, _] = ROWS;
    let cpu = settings().backend.cpu;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(cpu.threads).build().expect("threads");
    let (vectors, probes) = made(rows, 256);
    let mut backend = CpuBackend::new(Arc::new(pool), &cpu).expect("instructions");
    let mut loaded = backend.load(&matrix(&vectors)).expect("memory");
    let mut screened = Screened::default();
    for (count, k) in [(1, TOP_K), (16, TOP_K), (256, TOP_K), (16, 1), (16, 1000)] {
        let probes = matrix(&probes[..count]);
        let skip = RowSet::default();
        let asks = vec![Ask { k, skip: &skip }; count];
        group.throughput(Throughput::Elements((rows * count) as u64));
        group.bench_function(format!("{rows} rows, {count} probes, k {k}"), |bencher| {
            let job = ScreenJob { probes: &probes, asks: &asks, attempt: 0 };
            bencher.iter(|| loaded.screen(&job, &mut screened).expect("a scan"));
        });
    }
    group.finish();
}

/// The same work by the CPU in `f32` (a further attempt is never made in bytes) and by the lanes' kernel on PoCL, one after the other.
fn float(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("f32");
    let (rows, count) = (100_000, 256);
    let flags = vec!["backend.opencl.device=Portable Computing Language".to_owned()];
    let settings =
        config::load(&Sources { flags, ..Sources::default() }).expect("the defaults are right").backend;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(settings.cpu.threads).build().expect("threads");
    let (vectors, probes) = made(rows, count);
    let (rows_matrix, probes) = (matrix(&vectors), matrix(&probes));
    let cpu = CpuBackend::new(Arc::new(pool), &settings.cpu).expect("instructions");
    let pocl = OpenClBackend::open(&settings.opencl).expect("PoCL (apt-get install pocl-opencl-icd)");
    let backends: [(&str, Box<dyn Backend>, u32); 2] =
        [("cpu", Box::new(cpu), 1), ("PoCL", Box::new(pocl), 0)];
    let mut screened = Screened::default();
    let skip = RowSet::default();
    let asks = vec![Ask { k: TOP_K, skip: &skip }; count];
    for (name, mut backend, attempt) in backends {
        let mut loaded = backend.load(&rows_matrix).expect("memory");
        group.throughput(Throughput::Elements((rows * count) as u64));
        group.bench_function(format!("{name}, {rows} rows, {count} probes"), |bencher| {
            let job = ScreenJob { probes: &probes, asks: &asks, attempt };
            bencher.iter(|| loaded.screen(&job, &mut screened).expect("a scan"));
        });
    }
    group.finish();
}

/// Vectors in memory to sorted, exact answers in memory.
fn search(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("search");
    for rows in ROWS {
        let (vectors, probes) = made(rows, 256);
        let prototypes = vectors.into_iter().enumerate().map(|(row, embedding)| {
            let identity = format!("p{}", row / ROWS_PER_IDENTITY);
            let key = PrototypeKey { identity, id: row.to_string() };
            let (source, origin) = (String::new(), Origin::Import);
            (row as u64, Prototype { key, source, origin, created_ms: 0, embedding })
        });
        let profile = GalleryProfile::named("bench", DIM);
        let snapshot = Arc::new(Snapshot::new(profile, Vec::new(), prototypes.collect()));
        let engine = Engine::start(&settings().backend, 1).expect("the CPU is there");
        engine.load(Arc::clone(&snapshot), None).expect("memory");
        for count in [1, 16, 256] {
            let request = ScanRequest {
                snapshot: Arc::clone(&snapshot),
                probes: matrix(&probes[..count]),
                skips: vec![RowSet::default(); count],
                k: TOP_K,
            };
            group.throughput(Throughput::Elements((rows * count) as u64));
            group.bench_function(format!("{rows} rows, {count} probes, k {TOP_K}"), |bencher| {
                bencher.iter(|| engine.scan_blocking(request.clone()).expect("a scan"));
            });
        }
    }
    group.finish();
}

/// Few samples over a few seconds each: on a machine that does other things too, more runs say more than longer ones.
fn config() -> Criterion {
    Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3))
}

criterion_group! {
    name = benches;
    config = config();
    targets = canonical, screen, float, search
}
criterion_main!(benches);

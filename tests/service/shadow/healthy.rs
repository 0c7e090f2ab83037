//! Two sound backends agree: on very many recognitions, and while what is served changes under them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lookalike::domain::Origin;
use lookalike::gallery::store::{Import, ImportOptions, Selection, Store};
use lookalike::gallery::{Place, PrototypeRecord, formats};
use lookalike::grpc::OperationsService;
use lookalike::grpc::proto::operations_server::Operations;
use lookalike::grpc::proto::{Probe, RecognizeRequest, ReloadRequest};
use lookalike::server;
use lookalike::telemetry::{Label, ShadowKind};
use tonic::Request;

use super::super::support::{Face, Random, Server, data_folder, probe, sample_faces};
use super::{InProcess, shadowed};
use crate::common::shared;

/// Embeddings of the real faces beside the checkout, by person.
fn real_faces(model: &str) -> Vec<Face> {
    let folder = shared("faces/lfw");
    let vectors = folder.join(format!("{model}.npy"));
    let records = formats::read_prototypes(&vectors, Some(&folder.join("labels.txt")), &mut |_| ()).unwrap();
    records.into_iter().map(|record| Face::new(&record.identity, &record.id, record.embedding)).collect()
}

fn made_faces(rows: usize) -> Vec<Face> {
    let mut random = Random::new(41);
    (0..rows).map(|row| Face::new(&format!("p{}", row / 3), &row.to_string(), random.vector(96))).collect()
}

/// How often each kind was seen, and the largest score error.
type Seen = (Vec<(&'static str, u64)>, Option<f64>);

/// Recognises so many probes near the gallery's rows, and says how each kind was seen.
async fn kinds(faces: &[Face], recognitions: usize) -> Seen {
    const TOGETHER: usize = 256;
    let data = data_folder(faces);
    let service = InProcess::start(shadowed(data.path(), &[]), server::opener()).await;
    let mut random = Random::new(5);
    let mut asked = 0;
    while asked < recognitions {
        let probes: Vec<Probe> = (0..TOGETHER.min(recognitions - asked))
            .map(|place| {
                let centre = &faces[random.below(faces.len())].vector;
                let spread = [0.0, 1e-7, 1e-3, 0.02, 0.1][place % 5];
                probe("p", &random.near(centre, spread))
            })
            .collect();
        asked += probes.len();
        service.recognize(&probes).await;
        // No more waits than may.
        if asked % (8 * TOGETHER) == 0 {
            service.until_sampled(asked as u64).await;
        }
    }
    service.until_sampled(recognitions as u64).await;
    let report = service.shadow().report();
    assert_eq!(
        (report.machines.primary.backend.as_str(), report.machines.shadow.backend.as_str()),
        ("cpu", "opencl")
    );
    service.stop().await;
    let seen = ShadowKind::ALL.iter().map(|kind| (kind.as_str(), report.evidence.of(*kind)));
    (seen.filter(|(_, count)| *count > 0).collect(), report.evidence.score_error.quantile(1.0))
}

/// 100 000 in all.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_recognitions_agree() {
    for (faces, recognitions) in
        [(real_faces("mfn128"), 40_000), (real_faces("dlib128"), 40_000), (made_faces(3000), 20_000)]
    {
        let (seen, most) = kinds(&faces, recognitions).await;
        println!(
            "{recognitions} recognitions over {} rows: {seen:?}, score error at most {most:?}",
            faces.len()
        );
        let hard = seen.iter().filter(|(kind, _)| !["agree", "borderline"].contains(kind)).count();
        assert_eq!(hard, 0, "{seen:?}");
        assert_eq!(seen.iter().map(|(_, count)| count).sum::<u64>(), recognitions as u64);
    }
}

/// The noise floor: the CPU against plain `f64`.
#[tokio::test(flavor = "multi_thread")]
async fn any_two_backends_can_be_compared() {
    let data = data_folder(&sample_faces());
    for (primary, shadow) in
        [("cpu", "reference"), ("opencl", "cpu"), ("reference", "opencl"), ("opencl", "reference")]
    {
        let flags = [
            format!("backend.kind={primary}"),
            format!("shadow.backend={shadow}"),
            "backend.fallback=fail".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let service = InProcess::start(shadowed(data.path(), &flags), server::opener()).await;
        let probes: Vec<Probe> = sample_faces().iter().map(|face| probe("p", &face.vector)).collect();
        let (_, meta) = service.recognize(&probes).await;
        service.search(&probes, 20).await;
        assert_eq!(meta.backend, primary);
        service.until_sampled(2 * probes.len() as u64).await;
        let report = service.shadow().report();
        assert_eq!(report.evidence.of(ShadowKind::Agree), 2 * probes.len() as u64, "{primary} {shadow}");
        assert_eq!(report.machines.shadow.backend, shadow);
        assert_eq!(report.machines.primary.program.is_empty(), primary != "opencl");
        service.stop().await;
    }
}

pub(super) fn record(face: &Face) -> PrototypeRecord {
    PrototypeRecord {
        identity: face.identity.clone(),
        id: face.id.clone(),
        source: face.source.clone(),
        origin: Origin::Import,
        embedding: face.vector.clone(),
        place: Place::file("made".as_ref()).row(0),
    }
}

/// Four callers who ask again and again.
struct Callers {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Option<u64>>>,
}

impl Callers {
    fn start(server: &Server, probes: &[Probe]) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let call = |_| {
            let (mut client, probes) = (server.recognition(), probes.to_vec());
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            tokio::spawn(async move {
                let mut generations = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let request = RecognizeRequest { probes: probes.clone(), ..Default::default() };
                    let reply = client.recognize(request).await.unwrap().into_inner();
                    asked.fetch_add(probes.len(), Ordering::Relaxed);
                    generations.push(reply.meta.unwrap().generation);
                }
                assert!(generations.is_sorted(), "{generations:?}");
                generations.last().copied()
            })
        };
        let tasks = (0..4).map(call).collect();
        Self { stop, asked, tasks }
    }

    /// Waits until so many more probes were asked about.
    async fn go_on(&self, probes: usize) {
        let seen = self.asked.load(Ordering::Relaxed);
        super::super::support::until("callers go on", async || {
            (self.asked.load(Ordering::Relaxed) > seen + probes).then_some(())
        })
        .await;
    }

    /// How many probes were asked about, and the generation of each caller's last answer.
    async fn stop(self) -> (usize, Vec<Option<u64>>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut generations = Vec::new();
        for task in self.tasks {
            generations.push(task.await.unwrap());
        }
        (self.asked.load(Ordering::Relaxed), generations)
    }
}

/// Generation after generation, as fast as they can be loaded, while callers ask and everything is compared.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_generation_disturbs_nobody() {
    const GENERATIONS: u64 = 12;
    let faces = sample_faces();
    let data = data_folder(&faces);
    let server = Server::start_with(shadowed(data.path(), &[]), server::opener()).await;
    let probes: Vec<Probe> = faces.iter().map(|face| probe("p", &face.vector)).collect();
    let callers = Callers::start(&server, &probes);
    let mut random = Random::new(3);
    let first = generation(&server).await;
    for generation in 1..=GENERATIONS {
        // One more person near somebody who is there, so that answers change.
        let vector = random.near(&faces[generation as usize].vector, 0.01);
        let records = vec![record(&Face::new(&format!("new {generation}"), "1", vector))];
        let import = Import { gallery: "default", options: ImportOptions::default(), records };
        Store::open(data.path()).unwrap().import(import, &mut |_| ()).unwrap();
        let reloaded = server.operations().reload(ReloadRequest {}).await.unwrap().into_inner();
        assert_eq!(reloaded.loaded[0].generation, first + generation);
        callers.go_on(4 * probes.len()).await;
    }
    let (asked, generations) = callers.stop().await;
    // Nobody was answered from a generation that came later.
    assert!(generations.iter().all(|last| (Some(first)..=Some(first + GENERATIONS)).contains(last)));
    let request = RecognizeRequest { probes: probes.clone(), ..Default::default() };
    let meta = server.recognition().recognize(request).await.unwrap().into_inner().meta.unwrap();
    assert_eq!(meta.generation, first + GENERATIONS);
    // Nothing has changed since.
    let reloaded = server.operations().reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (reloaded.loaded.len(), reloaded.unchanged.as_slice()),
        (0, ["default".to_owned()].as_slice())
    );
    let report = super::super::support::until("all was compared", async || {
        let report = server
            .shadow()
            .get_report(lookalike::grpc::proto::GetReportRequest {})
            .await
            .unwrap()
            .into_inner();
        (report.kinds.iter().map(|kind| kind.count).sum::<u64>() > asked as u64).then_some(report)
    })
    .await;
    for kind in &report.kinds {
        let allowed = ["agree", "borderline", "dropped"].contains(&kind.kind.as_str());
        assert!(allowed || kind.count == 0, "{kind:?}");
    }
    assert!(report.compared > 0);
    println!("{} recognitions over {GENERATIONS} generations, {} compared", asked, report.compared);
    server.stop().await.unwrap();
}

async fn generation(server: &Server) -> u64 {
    let info =
        server.operations().get_info(lookalike::grpc::proto::GetInfoRequest {}).await.unwrap().into_inner();
    info.galleries[0].generation
}

/// Galleries come and go with the folder; one that cannot be read leaves what is served.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_follows_the_folder() {
    let data = data_folder(&sample_faces());
    let server = Server::start_with(shadowed(data.path(), &["shadow.enabled=false"]), server::opener()).await;
    let mut store = Store::open(data.path()).unwrap();
    let import = Import {
        gallery: "other",
        options: ImportOptions::default(),
        records: made_faces(5).iter().map(record).collect(),
    };
    store.import(import, &mut |_| ()).unwrap();
    let reload = async || server.operations().reload(ReloadRequest {}).await.map(tonic::Response::into_inner);
    let reloaded = reload().await.unwrap();
    assert_eq!(
        (reloaded.loaded[0].name.as_str(), reloaded.unchanged.as_slice()),
        ("other", ["default".to_owned()].as_slice())
    );
    store.remove("other", &Selection::Everything).unwrap();
    let reloaded = reload().await.unwrap();
    assert_eq!(reloaded.withdrawn, ["other"]);
    drop(store);
    fs::remove_dir_all(data.path()).unwrap();
    let refused = reload().await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert_eq!(generation(&server).await, 1, "what was served stays served");

    // Another folder in its place counts from the start: its first generation is not the one that is served.
    let mut store = Store::create_or_open(data.path()).unwrap();
    let records: Vec<_> = made_faces(5).iter().map(record).collect();
    let count = records.len() as u64;
    let import = Import { gallery: "default", options: ImportOptions::default(), records };
    store.import(import, &mut |_| ()).unwrap();
    let reloaded = reload().await.unwrap();
    assert_eq!((reloaded.loaded.len(), reloaded.unchanged.len(), generation(&server).await), (1, 0, 1));
    let info = server.operations().get_info(lookalike::grpc::proto::GetInfoRequest {}).await.unwrap();
    assert_eq!(info.into_inner().galleries[0].prototypes, count);
    server.stop().await.unwrap();

    // A service that was made of no folder has none to load.
    let serving = Arc::new(lookalike::grpc::Serving::new(shadowed(data.path(), &[]).server.limits));
    let operations = OperationsService::new(serving);
    assert_eq!(
        operations.reload(Request::new(ReloadRequest {})).await.unwrap_err().code(),
        tonic::Code::Unavailable
    );
}

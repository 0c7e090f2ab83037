//! Batches on backends that fail or prove too little.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use tokio::sync::oneshot;

use super::super::verify::tests::fan;
use super::super::{RawCheck, ScanAnswer, ScanRequest};
use super::*;
use crate::backend::reference::ReferenceBackend;
use crate::backend::{Backend, BackendError, Coverage, Description, Loaded, RowSet, ScreenJob, Screened};
use crate::config::{CpuSettings, Fallback};
use crate::domain::Matrix;
use crate::telemetry::FallbackReason;

/// What a made backend does wrong.
#[derive(Clone, Copy)]
enum Fault {
    /// It fails from this screen on, counted from 0.
    FailsFrom(usize),
    /// It panics at this screen, counted from 0 over all that it loaded.
    PanicsAt(usize),
    /// It proves nothing for the probes whose k is this.
    ProvesNothingFor(usize),
}

/// The reference, in the guise of an OpenCL device, with a fault.
struct Faulty {
    description: Description,
    fault: Fault,
    screens: Rc<Cell<usize>>,
}

struct FaultyRows {
    rows: Box<dyn Loaded>,
    screens: Rc<Cell<usize>>,
    fault: Fault,
}

impl Backend for Faulty {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        let rows = ReferenceBackend::default().load(rows)?;
        Ok(Box::new(FaultyRows { rows, screens: Rc::clone(&self.screens), fault: self.fault }))
    }
}

impl Loaded for FaultyRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        let screen = self.screens.replace(self.screens.get() + 1);
        self.rows.screen(job, into)?;
        match self.fault {
            Fault::FailsFrom(first) if screen >= first => {
                return Err(BackendError::Device { device: "made".to_owned(), reason: "lost".to_owned() });
            }
            Fault::PanicsAt(at) if screen == at => panic!("made to"),
            Fault::FailsFrom(_) | Fault::PanicsAt(_) => (),
            Fault::ProvesNothingFor(k) => {
                let those = into.probes.iter_mut().zip(job.asks).filter(|(_, ask)| ask.k == k);
                those.for_each(|(found, _)| found.coverage = Coverage::Unknown);
            }
        }
        Ok(())
    }
}

type Answers = Vec<Result<ScanAnswer, EngineError>>;

/// Answers to requests that are all queued at once: `(probes, k)` of each.
fn answers(fault: Fault, fallback: Fallback, requests: &[(usize, usize)]) -> Answers {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let state = Arc::new(State { waiting: AtomicUsize::new(requests.len()), ..State::new() });
    let description =
        Description { backend: BackendName::OpenCl, device: "made".to_owned(), driver: String::new() };
    let primary = Box::new(Faulty { description, fault, screens: Rc::default() });
    let cpu = CpuBackend::new(Arc::clone(&pool), &CpuSettings { threads: 1, instructions: None }).unwrap();
    let worker = Worker {
        residents: Residents::new(primary, cpu, Arc::clone(&state)).falling_back(fallback, None),
        waiting: Waiting::new(),
        pass: Pass::new(pool),
        slices: Vec::new(),
        batch_probes: 8,
        watch: Duration::ZERO,
        state: Arc::clone(&state),
    };
    let snapshot = Arc::new(fan(900));
    let (commands, receiver) = mpsc::channel(requests.len());
    let mut replies: Vec<oneshot::Receiver<_>> = Vec::new();
    for &(probes, k) in requests {
        let (reply, answer) = oneshot::channel();
        let rows = vec![&[0.6_f32, 0.8][..]; probes];
        let request = ScanRequest {
            snapshot: Arc::clone(&snapshot),
            probes: Arc::new(Matrix::from_rows(2, rows)),
            skips: vec![RowSet::default(); probes],
            k,
        };
        commands.try_send(Command::Scan { request, queued: Instant::now(), reply }).ok().unwrap();
        replies.push(answer);
    }
    drop(commands);
    worker.run(receiver);
    assert_eq!(state.waiting.load(Ordering::Relaxed), 0);
    replies.iter_mut().map(|reply| reply.try_recv().unwrap()).collect()
}

/// The row of a probe's first place, and how many places it has.
fn first(answer: &ScanAnswer, probe: usize) -> (u32, usize) {
    (answer.probes[probe][0].row, answer.probes[probe].len())
}

#[test]
fn a_backend_that_fails_fails_every_request_of_the_batch_and_no_other() {
    // The first batch takes four probes of each; the second, which fails, the rest of one and all that is left of the other.
    let answers = answers(Fault::FailsFrom(1), Fallback::Fail, &[(4, 3), (20, 3)]);
    assert_eq!(answers[0].as_ref().unwrap().probes.len(), 4);
    let error = answers[1].as_ref().unwrap_err();
    assert!(matches!(error, EngineError::Backend(BackendError::Device { .. })), "{error:?}");
}

#[test]
fn the_cpu_answers_the_batch_that_a_backend_failed() {
    let sound = answers(Fault::FailsFrom(usize::MAX), Fallback::Fail, &[(4, 3), (20, 5)]);
    let answers = answers(Fault::FailsFrom(1), Fallback::Cpu, &[(4, 3), (20, 5)]);
    for (answer, sound) in answers.iter().zip(&sound) {
        let (answer, sound) = (answer.as_ref().unwrap(), sound.as_ref().unwrap());
        for probe in 0..answer.probes.len() {
            assert_eq!(first(answer, probe), first(sound, probe));
        }
        assert_eq!((sound.report.backend, &sound.report.fallback), (BackendName::OpenCl, &None));
    }
    let report = |request: usize| &answers[request].as_ref().unwrap().report;
    assert_eq!((report(0).backend, &report(0).fallback), (BackendName::OpenCl, &None));
    assert_eq!(report(1).backend, BackendName::Cpu);
    assert_eq!(report(1).fallback.as_ref().unwrap().reason, FallbackReason::DeviceError);
}

#[test]
fn a_panic_fails_the_batch_that_met_it_and_no_other() {
    let answers = answers(Fault::PanicsAt(0), Fallback::Fail, &[(1, 3); 10]);
    let panicked = |answer: &Result<_, EngineError>| matches!(answer, Err(EngineError::Panicked));
    assert!(answers[..8].iter().all(panicked), "{answers:?}");
    assert!(answers[8..].iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn what_is_not_proven_is_scanned_fully_and_counts_for_its_own_request_alone() {
    let answers = answers(Fault::ProvesNothingFor(7), Fallback::Fail, &[(2, 3), (2, 7), (1, 5)]);
    let answers: Vec<&ScanAnswer> = answers.iter().map(|answer| answer.as_ref().unwrap()).collect();
    let uncertified: Vec<u64> = answers.iter().map(|answer| answer.report.uncertified).collect();
    assert_eq!(uncertified, [0, 4, 0], "two attempts of two probes");
    for (answer, k) in answers.iter().zip([3, 7, 5]) {
        assert_eq!(first(answer, 0), (first(answers[0], 0).0, k));
        assert_eq!(answer.report.bound_violations, 0);
    }
    // Rows of a full scan keep what the backend computed for them.
    for answer in &answers {
        assert!(answer.probes[0].iter().all(|ranked| ranked.raw.is_some()));
        assert_eq!(answer.checks, vec![RawCheck::default(); answer.probes.len()]);
    }
    assert!(answers[1].report.scan_ns > answers[0].report.scan_ns, "it took part in one more screen");
}

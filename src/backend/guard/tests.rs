//! Guarded backends that answer, hang and panic.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::backend::reference::ReferenceBackend;
use crate::backend::{BackendName, Coverage};

/// What a made backend does when it is asked for this many rows.
const PANICS: usize = 13;
const HANGS: usize = 14;
const FAILS: usize = 15;

/// The reference, with faults; counts what is alive of it.
struct Made {
    inner: ReferenceBackend,
    alive: Arc<AtomicUsize>,
}

struct MadeRows {
    inner: Box<dyn Loaded>,
    alive: Arc<AtomicUsize>,
}

impl Made {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self { inner: ReferenceBackend::default(), alive: Arc::clone(alive) }
    }
}

impl Backend for Made {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        let inner = self.inner.load(rows)?;
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(MadeRows { inner, alive: Arc::clone(&self.alive) }))
    }
}

impl Loaded for MadeRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        match job.asks[0].k {
            PANICS => panic!("made to"),
            HANGS => loop {
                std::thread::park();
            },
            FAILS => Err(BackendError::Device { device: "made".to_owned(), reason: "lost".to_owned() }),
            _ => self.inner.screen(job, into),
        }
    }

    fn k_class(&self, k: usize) -> usize {
        k / 10
    }

    fn device_bytes(&self) -> u64 {
        77
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for MadeRows {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn start(alive: &Arc<AtomicUsize>, limit: Duration) -> Guarded {
    let counted = Arc::clone(alive);
    Guarded::start("made", limit, move || Ok(Made::new(&counted))).unwrap()
}

fn rows() -> Arc<Matrix> {
    let rows: Vec<[f32; 2]> = (0..20_u8).map(|row| (f32::from(row) / 20.0).sin_cos().into()).collect();
    Arc::new(Matrix::from_rows(2, rows.iter().map(<[f32; 2]>::as_slice)))
}

fn screen(rows: &mut dyn Loaded, k: usize, into: &mut Screened) -> Result<(), BackendError> {
    let skip = RowSet::from_ranges(vec![(19, 20)]);
    let probes = Matrix::from_rows(2, [&[1.0, 0.0][..], &[0.0, 1.0]]);
    rows.screen(&ScreenJob { probes: &probes, asks: &[Ask { k, skip: &skip }; 2], attempt: 0 }, into)
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn answers_are_those_of_the_backend_and_all_is_released_in_the_end() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut guarded = start(&alive, LONG);
    assert_eq!(guarded.description().backend, BackendName::Reference);
    let mut loaded = guarded.load(&rows()).unwrap();
    let mut other = guarded.load(&rows()).unwrap();
    let (mut found, mut sound) = (Screened::default(), Screened::default());
    let mut reference = ReferenceBackend::default().load(&rows()).unwrap();
    for k in [3, 1, 19] {
        screen(&mut *loaded, k, &mut found).unwrap();
        screen(&mut *reference, k, &mut sound).unwrap();
        assert_eq!(found.probes, sound.probes);
        assert_eq!(found.probes[0].coverage, sound.probes[0].coverage);
        assert_ne!(found.probes[0].coverage, Coverage::Unknown);
    }
    assert_eq!((loaded.k_class(25), loaded.k_class(25), loaded.device_bytes()), (2, 2, 77));
    // An error is passed on, and the backend goes on.
    let error = screen(&mut *other, FAILS, &mut found).unwrap_err();
    assert!(matches!(error, BackendError::Device { .. }), "{error}");
    screen(&mut *other, 3, &mut found).unwrap();
    drop((loaded, other));
    drop(guarded);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_backend_that_hangs_is_left_behind_in_time() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut guarded = start(&alive, Duration::from_millis(50));
    let (mut loaded, mut found) = (guarded.load(&rows()).unwrap(), Screened::default());
    let started = Instant::now();
    let hang = screen(&mut *loaded, HANGS, &mut found).unwrap_err();
    assert_eq!(hang.to_string(), "OpenCL device made: no answer within 50ms (backend.opencl.timeout)");
    // All that follows fails at once, and nothing waits for it.
    for k in [3, HANGS] {
        assert!(matches!(screen(&mut *loaded, k, &mut found), Err(BackendError::TimedOut { .. })));
    }
    assert!(guarded.load(&rows()).is_err());
    assert_eq!(loaded.k_class(1), 0);
    drop((loaded, guarded));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(alive.load(Ordering::SeqCst), 2, "it hangs to this moment");
    // Another is not hindered.
    let mut loaded = start(&alive, LONG).load(&rows()).unwrap();
    screen(&mut *loaded, 3, &mut found).unwrap();
}

#[test]
fn a_backend_that_panics_has_ended() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut guarded = start(&alive, LONG);
    let (mut loaded, mut found) = (guarded.load(&rows()).unwrap(), Screened::default());
    let panicked = screen(&mut *loaded, PANICS, &mut found).unwrap_err();
    assert!(matches!(panicked, BackendError::Ended { .. }), "{panicked}");
    assert!(matches!(screen(&mut *loaded, 3, &mut found), Err(BackendError::Ended { .. })));
    assert_eq!(alive.load(Ordering::SeqCst), 0, "unwinding released it");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let refused = Guarded::start("made", LONG, || {
        Err::<Made, _>(BackendError::Device { device: "made".to_owned(), reason: "no".to_owned() })
    });
    assert_eq!(refused.unwrap_err().to_string(), "OpenCL device made: no");
    let panicked = Guarded::start("made", LONG, || -> Result<Made, BackendError> { panic!("made to") });
    assert!(matches!(panicked, Err(BackendError::Ended { .. })));
}

/// The reference, which makes rows ready step by step; counts what is on its way.
struct Slow(ReferenceBackend, Arc<AtomicUsize>);

/// Rows that say how many they took over from a former generation, as bytes.
struct Inherited(Box<dyn Loaded>, u64);

struct SlowLoading {
    rows: Option<Inherited>,
    steps: usize,
    alive: Arc<AtomicUsize>,
}

const STEPS: usize = 100;

/// So many rows are never made ready.
const ENDLESS: usize = 1;

impl Backend for Slow {
    fn description(&self) -> &Description {
        self.0.description()
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        self.0.load(rows)
    }

    fn begin(
        &mut self,
        rows: &Arc<Matrix>,
        former: Option<Former<'_>>,
    ) -> Result<Box<dyn Loading>, BackendError> {
        let kept = former.map_or(0, |former| former.kept.iter().map(|kept| kept.count as u64).sum());
        self.1.fetch_add(1, Ordering::SeqCst);
        let steps = if rows.rows() == ENDLESS { usize::MAX } else { STEPS };
        let inherited = Inherited(self.0.load(rows)?, kept);
        Ok(Box::new(SlowLoading { rows: Some(inherited), steps, alive: Arc::clone(&self.1) }))
    }
}

impl Loaded for Inherited {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        self.0.screen(job, into)
    }

    fn device_bytes(&self) -> u64 {
        self.1
    }
}

impl Loading for SlowLoading {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        if self.steps == usize::MAX {
            std::thread::sleep(Duration::from_secs(5));
        }
        std::thread::sleep(Duration::from_micros(200));
        self.steps -= 1;
        self.rows.take_if(|_| self.steps == 0).map(|rows| Ok(Box::new(rows) as Box<dyn Loaded>))
    }
}

impl Drop for SlowLoading {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn slow(limit: Duration) -> (Guarded, Arc<AtomicUsize>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&alive);
    let open = move || Ok(Slow(ReferenceBackend::default(), counted));
    (Guarded::start("made", limit, open).unwrap(), alive)
}

#[test]
fn scans_are_answered_while_rows_are_made_ready() {
    let (mut guarded, alive) = slow(LONG);
    let (mut former, mut found) = (guarded.load_rows(&rows()).unwrap(), Screened::default());
    let kept: Arc<[Kept]> = Arc::new([Kept { from: 3, to: 0, count: 7 }, Kept { from: 11, to: 9, count: 4 }]);
    let mut coming = guarded.begin_load(&rows(), Some((&former, &kept)));
    for _ in 0..20 {
        screen(&mut former, 3, &mut found).unwrap();
        assert!(coming.look_rows().is_none());
    }
    let mut later = coming.wait().unwrap();
    assert_eq!((former.device_bytes(), later.device_bytes()), (0, 11));
    screen(&mut later, 3, &mut found).unwrap();
    // What another thread holds is of no use to this one.
    let (mut other, _) = slow(LONG);
    assert_eq!(other.begin_load(&rows(), Some((&former, &kept))).wait().unwrap().device_bytes(), 0);
    // Given up, it goes.
    drop(guarded.begin_load(&rows(), None));
    let started = Instant::now();
    while alive.load(Ordering::SeqCst) > 0 {
        assert!(started.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
}

#[test]
fn a_backend_that_hangs_while_it_makes_rows_ready_is_lost() {
    let (mut guarded, _) = slow(Duration::from_millis(5));
    let endless = Arc::new(Matrix::from_rows(2, [&[1.0, 0.0][..]]));
    let lost = guarded.load_rows(&endless).unwrap_err();
    assert_eq!(lost.to_string(), "OpenCL device made: no answer within 50ms (backend.opencl.timeout)");
    assert!(matches!(guarded.load_rows(&rows()), Err(BackendError::TimedOut { .. })));
}

//! A backend on a thread of its own, so that a driver that hangs or a fault of ours that panics costs the backend and not its caller.
//!
//! A call of a driver cannot be interrupted. So the caller hands each job over and waits, for a limited time: what has not answered by then
//! is lost. Its thread is left behind with all it holds, and every further call fails at once. A new one may be started beside it.
//!
//! A job takes its probes along, since a lost thread may read them for ever; their memory, and that of the answer, travels back and is used
//! again. One scan is under way at a time, so answers come in the order of the jobs; rows are made ready a little at a time, while there is
//! nothing else to do ([`loading`]).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::{Kept, Matrix};

use super::{Ask, Backend, BackendError, Description, Former, Loaded, Loading, RowSet, ScreenJob, Screened};

mod loading;

pub use loading::GuardedLoading;

/// How long the thread is waited for at the end, so that the device is released in order.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// How many times as long a backend may take to open, or to make rows ready, as for a batch: copying them and compiling take long.
const LOADING: u32 = 10;

/// An answer is watched for, so long at most, where the one before came as soon; else this thread sleeps until it comes.
const ANSWER_SPIN: Duration = Duration::from_millis(2);

/// How long the device's thread watches for the next job before it sleeps: as long as answers take to be verified and the next batch to
/// be formed.
const JOB_SPIN: Duration = Duration::from_micros(300);

/// Most numbers of rows whose class is remembered.
const MAX_CLASSES: usize = 4096;

/// A backend on a thread of its own.
#[derive(Debug)]
pub struct Guarded {
    description: Description,
    link: Arc<Link>,
}

/// What a guarded backend loaded.
#[derive(Debug)]
pub struct GuardedRows {
    link: Arc<Link>,
    place: u64,
    device_bytes: u64,
    /// What the backend answered to [`Loaded::k_class`].
    classes: Mutex<HashMap<usize, usize>>,
    batch: Option<Box<Batch>>,
}

/// The way to the thread, and back.
struct Link {
    ends: Mutex<Ends>,
    /// For messages.
    device: String,
    limit: Duration,
}

struct Ends {
    /// `None` once the thread is lost, or let go.
    jobs: Option<Sender<Job>>,
    answers: Receiver<Answer>,
    lost: Option<BackendError>,
    places: u64,
    /// How long the answer before took to come.
    last: Duration,
}

enum Job {
    Load(Box<LoadJob>),
    Screen { place: u64, batch: Box<Batch> },
    Class { place: u64, k: usize },
    Release { place: u64 },
}

/// Rows to make ready.
struct LoadJob {
    place: u64,
    rows: Arc<Matrix>,
    /// Where the former generation is held, and what is kept of it.
    former: Option<(u64, Arc<[Kept]>)>,
    /// How many steps were made.
    steps: Arc<AtomicU64>,
    /// For the bytes held, in the end.
    done: Sender<Result<u64, BackendError>>,
}

enum Answer {
    Opened(Result<Description, BackendError>),
    Screened { result: Result<(), BackendError>, batch: Box<Batch>, device_bytes: u64 },
    Class(usize),
}

/// A screening job and its answer, owned.
#[derive(Debug)]
struct Batch {
    probes: Matrix,
    ks: Vec<usize>,
    skips: Vec<RowSet>,
    attempt: u32,
    screened: Screened,
}

impl Guarded {
    /// Opens a backend on a thread of its own; `limit` is how long it may take for a batch.
    pub fn start<B: Backend + 'static>(
        device: &str,
        limit: Duration,
        open: impl FnOnce() -> Result<B, BackendError> + Send + 'static,
    ) -> Result<Self, BackendError> {
        let (jobs, received) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let ends = Ends { jobs: Some(jobs), answers, lost: None, places: 0, last: Duration::ZERO };
        let link = Arc::new(Link { ends: Mutex::new(ends), device: device.to_owned(), limit });
        std::thread::Builder::new()
            .name("device".to_owned())
            .spawn(move || serve(open, &received, &answer))
            .map_err(|error| BackendError::Device {
                device: device.to_owned(),
                reason: format!("no thread for it: {error}"),
            })?;
        match link.answer(LOADING)? {
            Answer::Opened(opened) => Ok(Self { description: opened?, link }),
            Answer::Screened { .. } | Answer::Class(_) => Err(link.out_of_order()),
        }
    }

    /// As [`Backend::load`], in a type that may go to another thread.
    pub fn load_rows(&mut self, rows: &Arc<Matrix>) -> Result<GuardedRows, BackendError> {
        self.begin_load(rows, None).wait()
    }

    /// Begins to load rows, out of those of a former generation where they are the same.
    pub(super) fn begin_load(
        &mut self,
        rows: &Arc<Matrix>,
        former: Option<(&GuardedRows, &Arc<[Kept]>)>,
    ) -> GuardedLoading {
        let former = former
            .filter(|(former, _)| Arc::ptr_eq(&former.link, &self.link))
            .map(|(former, kept)| (former.place, Arc::clone(kept)));
        GuardedLoading::begin(&self.link, rows, former)
    }
}

impl Backend for Guarded {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        Ok(Box::new(self.load_rows(rows)?))
    }

    fn begin(
        &mut self,
        rows: &Arc<Matrix>,
        former: Option<Former<'_>>,
    ) -> Result<Box<dyn Loading>, BackendError> {
        Ok(Box::new(self.begin_load(rows, former.and_then(Former::of::<GuardedRows>))))
    }
}

impl GuardedRows {
    /// Begins a scan, in the memory of `into`, of which nothing is left; [`Self::finish`] must come before anything else is asked.
    pub(super) fn begin(&mut self, job: &ScreenJob<'_>, into: &mut Screened) {
        let mut batch = self.batch.take().unwrap_or_default();
        batch.fill(job);
        std::mem::swap(&mut batch.screened, into);
        self.link.tell(Job::Screen { place: self.place, batch });
    }

    /// Waits for the scan that was begun.
    pub(super) fn finish(&mut self, into: &mut Screened) -> Result<(), BackendError> {
        match self.link.answer(1)? {
            Answer::Screened { result, mut batch, device_bytes } => {
                std::mem::swap(&mut batch.screened, into);
                self.batch = Some(batch);
                self.device_bytes = device_bytes;
                result
            }
            Answer::Opened(_) | Answer::Class(_) => Err(self.link.out_of_order()),
        }
    }
}

impl Loaded for GuardedRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        self.begin(job, into);
        self.finish(into)
    }

    fn k_class(&self, k: usize) -> usize {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(class) = classes.get(&k) {
            return *class;
        }
        // Of a backend that is lost, any will do: nothing is scanned together any more.
        let Ok(Answer::Class(class)) = self.link.ask(Job::Class { place: self.place, k }, 1) else {
            return 0;
        };
        if classes.len() >= MAX_CLASSES {
            classes.clear();
        }
        classes.insert(k, class);
        class
    }

    fn device_bytes(&self) -> u64 {
        self.device_bytes
    }
}

impl Drop for GuardedRows {
    fn drop(&mut self) {
        self.link.tell(Job::Release { place: self.place });
    }
}

impl Link {
    fn ends(&self) -> std::sync::MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_place(&self) -> u64 {
        let mut ends = self.ends();
        ends.places += 1;
        ends.places
    }

    fn tell(&self, job: Job) {
        if let Some(jobs) = &self.ends().jobs {
            let _ = jobs.send(job);
        }
    }

    fn ask(&self, job: Job, times: u32) -> Result<Answer, BackendError> {
        self.tell(job);
        self.answer(times)
    }

    /// Waits so many times the limit for the answer to what was asked; the thread is lost if none comes.
    fn answer(&self, times: u32) -> Result<Answer, BackendError> {
        let mut ends = self.ends();
        if let Some(lost) = &ends.lost {
            return Err(lost.clone());
        }
        let device = || self.device.clone();
        let limit = self.limit.saturating_mul(times);
        let started = Instant::now();
        let watched = if ends.last < ANSWER_SPIN { ANSWER_SPIN } else { Duration::ZERO };
        let answer = match soon(watched, || ends.answers.try_recv().ok()) {
            Some(answer) => Ok(answer),
            None => ends.answers.recv_timeout(limit),
        };
        ends.last = started.elapsed();
        let lost = match answer {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => BackendError::TimedOut { device: device(), limit },
            Err(RecvTimeoutError::Disconnected) => BackendError::Ended { device: device() },
        };
        Err(ends.lose(lost))
    }

    /// A fault of ours: answers come in the order of the jobs.
    fn out_of_order(&self) -> BackendError {
        BackendError::Device { device: self.device.clone(), reason: "answers out of order".to_owned() }
    }
}

impl Ends {
    /// Lets the thread go, for this reason or an earlier one, which is answered.
    fn lose(&mut self, because: BackendError) -> BackendError {
        self.jobs = None;
        self.lost.get_or_insert(because).clone()
    }
}

impl Drop for Link {
    /// Lets the thread end and release its device.
    fn drop(&mut self) {
        let ends = self.ends.get_mut().unwrap_or_else(PoisonError::into_inner);
        ends.jobs = None;
        if ends.lost.is_some() {
            return;
        }
        // The thread's end of the channel goes last.
        while ends.answers.recv_timeout(RELEASE_LIMIT).is_ok() {}
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("device", &self.device)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            probes: Matrix::with_capacity(0, 1),
            ks: Vec::new(),
            skips: Vec::new(),
            attempt: 0,
            screened: Screened::default(),
        }
    }
}

impl Batch {
    fn fill(&mut self, job: &ScreenJob<'_>) {
        self.probes.reset(job.probes.dim());
        (0..job.probes.rows()).for_each(|row| self.probes.push(job.probes.row(row)));
        self.ks.clear();
        self.ks.extend(job.asks.iter().map(|ask| ask.k));
        self.skips.clear();
        self.skips.extend(job.asks.iter().map(|ask| ask.skip.clone()));
        self.attempt = job.attempt;
    }

    fn screen(&mut self, rows: &mut dyn Loaded) -> Result<(), BackendError> {
        let asks: Vec<Ask<'_>> = self.ks.iter().zip(&self.skips).map(|(&k, skip)| Ask { k, skip }).collect();
        let job = ScreenJob { probes: &self.probes, asks: &asks, attempt: self.attempt };
        rows.screen(&job, &mut self.screened)
    }
}

/// What comes within a short time, watched for without a pause: being woken takes as long as a scan of a fast device.
pub(crate) fn soon<T>(spin: Duration, mut come: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    while started.elapsed() < spin {
        if let Some(one) = come() {
            return Some(one);
        }
        std::hint::spin_loop();
    }
    None
}

/// What the thread does. Its end, a panic's among them, shows by the channel.
fn serve<B: Backend>(
    open: impl FnOnce() -> Result<B, BackendError>,
    jobs: &Receiver<Job>,
    answers: &Sender<Answer>,
) {
    let mut backend = match open() {
        Ok(backend) => backend,
        Err(error) => {
            let _ = answers.send(Answer::Opened(Err(error)));
            return;
        }
    };
    // Dropped before the backend, in whose memory they may lie.
    let mut held: HashMap<u64, Box<dyn Loaded>> = HashMap::new();
    let mut coming = VecDeque::new();
    let _ = answers.send(Answer::Opened(Ok(backend.description().clone())));
    loop {
        let job = if coming.is_empty() {
            soon(JOB_SPIN, || jobs.try_recv().ok()).or_else(|| jobs.recv().ok())
        } else {
            match jobs.try_recv() {
                Ok(job) => Some(job),
                Err(TryRecvError::Empty) => {
                    loading::go_on(&mut coming, &mut held);
                    continue;
                }
                Err(TryRecvError::Disconnected) => None,
            }
        };
        let Some(job) = job else { return };
        let answer = match job {
            Job::Load(job) => {
                coming.extend(loading::begin(&mut backend, *job, &held));
                continue;
            }
            Job::Screen { place, mut batch } => {
                let Some(rows) = held.get_mut(&place) else { return };
                let result = batch.screen(&mut **rows);
                Answer::Screened { result, batch, device_bytes: rows.device_bytes() }
            }
            Job::Class { place, k } => Answer::Class(held.get(&place).map_or(0, |rows| rows.k_class(k))),
            Job::Release { place } => {
                held.remove(&place);
                coming.retain(|one: &loading::Coming| one.place != place);
                continue;
            }
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;

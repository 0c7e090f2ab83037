//! Rows that a guarded backend makes ready between scans, and how they are waited for from outside.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use super::{GuardedRows, Job, LOADING, Link, LoadJob};
use crate::backend::{Backend, BackendError, Former, Loaded, Loading};
use crate::domain::{Kept, Matrix};

/// How often one who waits looks whether the thread is lost meanwhile.
const LOOKED_AFTER: Duration = Duration::from_millis(20);

/// Rows that the thread is making ready.
pub struct GuardedLoading {
    link: Arc<Link>,
    place: u64,
    done: Receiver<Result<u64, BackendError>>,
    steps: Arc<AtomicU64>,
    /// The steps seen last, and when their number changed.
    seen: (u64, Instant),
    arrived: bool,
}

impl GuardedLoading {
    pub(super) fn begin(link: &Arc<Link>, rows: &Arc<Matrix>, former: Option<(u64, Arc<[Kept]>)>) -> Self {
        let (place, steps, (sender, done)) = (link.next_place(), Arc::default(), mpsc::channel());
        let job = LoadJob { place, rows: Arc::clone(rows), former, steps: Arc::clone(&steps), done: sender };
        link.tell(Job::Load(Box::new(job)));
        Self { link: Arc::clone(link), place, done, steps, seen: (0, Instant::now()), arrived: false }
    }

    /// As [`Loading::look`], in a type that may go to another thread.
    pub(in crate::backend) fn look_rows(&mut self) -> Option<Result<GuardedRows, BackendError>> {
        match self.done.try_recv() {
            Ok(loaded) => Some(self.arrive(loaded)),
            Err(TryRecvError::Empty) => self.lost().map(Err),
            Err(TryRecvError::Disconnected) => Some(Err(self.ended())),
        }
    }

    /// Waits for the rows.
    pub(in crate::backend) fn wait(mut self) -> Result<GuardedRows, BackendError> {
        loop {
            match self.done.recv_timeout(LOOKED_AFTER) {
                Ok(loaded) => return self.arrive(loaded),
                Err(RecvTimeoutError::Timeout) => match self.lost() {
                    None => {}
                    Some(error) => return Err(error),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    fn arrive(&mut self, loaded: Result<u64, BackendError>) -> Result<GuardedRows, BackendError> {
        self.arrived = loaded.is_ok();
        Ok(GuardedRows {
            link: Arc::clone(&self.link),
            place: self.place,
            device_bytes: loaded?,
            classes: Mutex::default(),
            batch: None,
        })
    }

    /// Why the rows will never come: the thread is lost, or has made no step for too long and is lost by this.
    fn lost(&mut self) -> Option<BackendError> {
        let mut ends = self.link.ends();
        if let Some(lost) = &ends.lost {
            return Some(lost.clone());
        }
        let (steps, now) = (self.steps.load(Ordering::Relaxed), Instant::now());
        if steps != self.seen.0 {
            self.seen = (steps, now);
        }
        let limit = self.link.limit.saturating_mul(LOADING);
        let late = now.duration_since(self.seen.1) > limit;
        late.then(|| ends.lose(BackendError::TimedOut { device: self.link.device.clone(), limit }))
    }

    fn ended(&self) -> BackendError {
        self.link.ends().lose(BackendError::Ended { device: self.link.device.clone() })
    }
}

impl Loading for GuardedLoading {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        let rows = self.look_rows()?;
        Some(rows.map(|rows| Box::new(rows) as Box<dyn Loaded>))
    }
}

impl Drop for GuardedLoading {
    fn drop(&mut self) {
        if !self.arrived {
            self.link.tell(Job::Release { place: self.place });
        }
    }
}

/// On the thread: rows on their way.
pub(super) struct Coming {
    pub(super) place: u64,
    loading: Box<dyn Loading>,
    steps: Arc<AtomicU64>,
    done: Sender<Result<u64, BackendError>>,
}

/// On the thread: begins to make rows ready; `None` where that fails, as the one who waits is told.
pub(super) fn begin(
    backend: &mut dyn Backend,
    job: LoadJob,
    held: &HashMap<u64, Box<dyn Loaded>>,
) -> Option<Coming> {
    let LoadJob { place, rows, former, steps, done } = job;
    let former = former.as_ref().and_then(|(place, kept)| Some(Former { rows: &**held.get(place)?, kept }));
    match backend.begin(&rows, former) {
        Ok(loading) => Some(Coming { place, loading, steps, done }),
        Err(error) => {
            // Who gave it up does not hear it.
            let _ = done.send(Err(error));
            None
        }
    }
}

/// On the thread: makes one step of the rows that came first.
pub(super) fn go_on(coming: &mut VecDeque<Coming>, held: &mut HashMap<u64, Box<dyn Loaded>>) {
    let Some(first) = coming.front_mut() else { return };
    let outcome = first.loading.look();
    first.steps.fetch_add(1, Ordering::Relaxed);
    let Some(outcome) = outcome else { return };
    let loaded = outcome.map(|rows| {
        let bytes = rows.device_bytes();
        held.insert(first.place, rows);
        bytes
    });
    // Rows that were given up are released by what comes next on the way.
    let _ = first.done.send(loaded);
    coming.pop_front();
}

//! A backend with a planted fault, around a sound one.
//!
//! The fault can be switched on and off while it serves. What concerns the rows on the device is loaded beforehand, beside the sound rows.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lookalike::backend::{Backend, BackendError, Candidate, Description, Loaded, ScreenJob, Screened};
use lookalike::domain::Matrix;
use lookalike::telemetry::BackendName;

/// What a planted panic says.
pub(crate) const PLANTED: &str = "as planted";

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// One bit of one component of one row.
    Flipped { row: usize, component: usize, bit: u32 },
    /// Two rows stand in each other's place.
    Swapped(usize, usize),
    /// Every score is so many times as high.
    Scaled(f32),
    /// A later generation is never loaded: the first one answers for it.
    Stale,
    /// One row is never found.
    Skipped(usize),
    /// Every row is taken for its neighbor.
    WrongRows,
    /// It says that it failed.
    Errs,
    /// It panics.
    Panics,
    /// It does not come back until it is switched off.
    Hangs,
    /// It takes so many times as long, without working for it.
    Slow(u32),
}

/// Switches a fault on and off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<(Mutex<bool>, Condvar)>);

impl Switch {
    pub(crate) fn on() -> Self {
        let switch = Self::default();
        switch.set(true);
        switch
    }

    pub(crate) fn set(&self, on: bool) {
        *self.0.0.lock().unwrap() = on;
        self.0.1.notify_all();
    }

    fn is_on(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    pub(crate) fn wait_for_off(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |on| *on).unwrap());
    }
}

/// See the module.
pub(crate) struct Faulty<B> {
    sound: B,
    fault: Fault,
    switch: Switch,
    description: Description,
    /// The first generation, for one that stays with it.
    first: Option<Arc<Matrix>>,
}

struct FaultyRows {
    sound: Box<dyn Loaded>,
    /// The rows as the fault has them, where it concerns them.
    spoilt: Option<Box<dyn Loaded>>,
    rows: usize,
    fault: Fault,
    switch: Switch,
}

impl<B: Backend> Faulty<B> {
    /// In the guise of an OpenCL device.
    pub(crate) fn new(sound: B, fault: Fault, switch: Switch) -> Self {
        let told = sound.description().clone();
        let description = Description { backend: BackendName::OpenCl, ..told };
        Self { sound, fault, switch, description, first: None }
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        let first = Arc::clone(self.first.get_or_insert_with(|| Arc::clone(rows)));
        let stale = self.fault == Fault::Stale;
        let spoilt = if stale { Some(first) } else { spoilt(rows, self.fault).map(Arc::new) };
        let spoilt = spoilt.map(|rows| self.sound.load(&rows)).transpose()?;
        let (sound, switch) = (self.sound.load(rows)?, self.switch.clone());
        Ok(Box::new(FaultyRows { sound, spoilt, rows: rows.rows(), fault: self.fault, switch }))
    }
}

fn spoilt(rows: &Matrix, fault: Fault) -> Option<Matrix> {
    let mut copies: Vec<Vec<f32>> = (0..rows.rows()).map(|row| rows.row(row).to_vec()).collect();
    if let Fault::Flipped { row, component, bit } = fault {
        let value = &mut copies.get_mut(row)?[component];
        *value = f32::from_bits(value.to_bits() ^ (1 << bit));
    } else if let Fault::Swapped(one, other) = fault {
        copies.swap(one, other);
    } else {
        return None;
    }
    Some(Matrix::from_rows(rows.dim(), copies.iter().map(Vec::as_slice)))
}

impl Loaded for FaultyRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        if !self.switch.is_on() {
            return self.sound.screen(job, into);
        }
        let started = Instant::now();
        let rows = self.spoilt.as_mut().unwrap_or(&mut self.sound);
        let every = |into: &mut Screened, change: &dyn Fn(&mut Candidate)| {
            into.probes.iter_mut().flat_map(|found| &mut found.rows).for_each(change);
        };
        match self.fault {
            Fault::Errs => {
                return Err(BackendError::Device { device: "made".to_owned(), reason: "lost".to_owned() });
            }
            Fault::Panics => panic!("{PLANTED}"),
            Fault::Hangs => {
                self.switch.wait_for_off();
                return self.sound.screen(job, into);
            }
            Fault::Flipped { .. } | Fault::Swapped(..) | Fault::Stale => rows.screen(job, into)?,
            Fault::Scaled(by) => {
                rows.screen(job, into)?;
                every(into, &|candidate| candidate.raw *= by);
            }
            Fault::Skipped(row) => {
                rows.screen(job, into)?;
                into.probes.iter_mut().for_each(|found| found.rows.retain(|one| one.row as usize != row));
            }
            Fault::WrongRows => {
                rows.screen(job, into)?;
                let count = self.rows as u32;
                every(into, &|candidate| candidate.row = (candidate.row + 1) % count);
            }
            Fault::Slow(times) => {
                rows.screen(job, into)?;
                // Compiling kernels, the first time, is no scan.
                let took = started.elapsed().clamp(Duration::from_micros(100), Duration::from_millis(10));
                std::thread::sleep(took * times);
            }
        }
        Ok(())
    }

    fn k_class(&self, k: usize) -> usize {
        self.sound.k_class(k)
    }

    fn device_bytes(&self) -> u64 {
        self.sound.device_bytes()
    }
}

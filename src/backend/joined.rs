//! Several devices as one backend: each holds a share of the rows, all scan at once, and what they find is put together.
//!
//! Every device numbers rows as the gallery does. A probe's candidates are those of all shares, and what is known of the rows left out holds
//! for each share by itself. One device that fails fails the scan: the others hold only their shares.

use std::sync::Arc;

use crate::domain::{Kept, Matrix};

use super::guard::{Guarded, GuardedLoading, GuardedRows};
use super::{
    Backend, BackendError, Candidates, Coverage, Description, Former, Loaded, Loading, ScreenJob,
    ScreenTiming, Screened,
};

/// More than rounding to `f32` takes off a score, or adds to it.
const SCORE_ROUNDING: f32 = 1e-7;

/// One device, or several as one.
#[derive(Debug)]
pub struct Joined {
    description: Description,
    devices: Vec<Guarded>,
}

/// What they hold.
#[derive(Debug)]
pub struct JoinedRows {
    shares: Vec<Holding>,
}

/// One device's share, and what it found last.
#[derive(Debug)]
struct Holding {
    rows: GuardedRows,
    found: Screened,
}

impl Joined {
    /// Of devices that are to hold equal shares of the rows, in this order.
    ///
    /// # Panics
    /// Without any.
    pub fn new(devices: Vec<Guarded>) -> Self {
        let described: Vec<&Description> = devices.iter().map(Backend::description).collect();
        let description = Description {
            backend: described[0].backend,
            device: counted(described.iter().map(|one| one.device.as_str())),
            driver: distinct(described.iter().map(|one| one.driver.as_str())).join(", "),
        };
        Self { description, devices }
    }

    /// As [`Backend::load`], in a type that may go to another thread.
    pub fn load_rows(&mut self, rows: &Arc<Matrix>) -> Result<JoinedRows, BackendError> {
        self.begin_rows(rows, None).wait()
    }

    fn begin_rows(
        &mut self,
        rows: &Arc<Matrix>,
        former: Option<(&JoinedRows, &Arc<[Kept]>)>,
    ) -> JoinedLoading {
        let begin = |(place, device): (usize, &mut Guarded)| {
            let former = former.and_then(|(former, kept)| Some((&former.shares.get(place)?.rows, kept)));
            (device.begin_load(rows, former), None)
        };
        JoinedLoading { shares: self.devices.iter_mut().enumerate().map(begin).collect() }
    }
}

/// Each device's share on its way, and what is there of it.
struct JoinedLoading {
    shares: Vec<(GuardedLoading, Option<GuardedRows>)>,
}

impl JoinedLoading {
    fn wait(self) -> Result<JoinedRows, BackendError> {
        let loaded = self.shares.into_iter().map(|(loading, _)| loading.wait());
        Ok(JoinedRows::new(loaded.collect::<Result<_, _>>()?))
    }
}

impl Loading for JoinedLoading {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        for (loading, there) in self.shares.iter_mut().filter(|(_, there)| there.is_none()) {
            match loading.look_rows() {
                None => {}
                Some(Ok(rows)) => *there = Some(rows),
                Some(Err(error)) => return Some(Err(error)),
            }
        }
        if self.shares.iter().any(|(_, there)| there.is_none()) {
            return None;
        }
        let rows = self.shares.drain(..).filter_map(|(_, there)| there).collect();
        Some(Ok(Box::new(JoinedRows::new(rows))))
    }
}

impl JoinedRows {
    fn new(shares: Vec<GuardedRows>) -> Self {
        let holding = |rows| Holding { rows, found: Screened::default() };
        Self { shares: shares.into_iter().map(holding).collect() }
    }
}

impl Backend for Joined {
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
        Ok(Box::new(self.begin_rows(rows, former.and_then(Former::of::<JoinedRows>))))
    }
}

impl Loaded for JoinedRows {
    fn screen(&mut self, job: &ScreenJob<'_>, into: &mut Screened) -> Result<(), BackendError> {
        if let [only] = &mut *self.shares {
            return only.rows.screen(job, into);
        }
        self.shares.iter_mut().for_each(|share| share.rows.begin(job, &mut share.found));
        // Every one is waited for, whatever became of the others.
        let scanned: Vec<_> =
            self.shares.iter_mut().map(|share| share.rows.finish(&mut share.found)).collect();
        scanned.into_iter().collect::<Result<(), _>>()?;
        into.begin(job.probes.rows());
        for share in &self.shares {
            into.timing = longest(into.timing, share.found.timing);
            into.invalid_indices += share.found.invalid_indices;
        }
        for (probe, (ask, found)) in job.asks.iter().zip(&mut into.probes).enumerate() {
            join(self.shares.iter().map(|share| &share.found.probes[probe]), ask.k, found);
        }
        Ok(())
    }

    fn k_class(&self, k: usize) -> usize {
        self.shares.iter().map(|share| share.rows.k_class(k)).max().unwrap_or(0)
    }

    fn device_bytes(&self) -> u64 {
        self.shares.iter().map(|share| share.rows.device_bytes()).sum()
    }
}

/// Puts together what was found for one probe, which asks for `k` rows, in every share.
fn join<'a>(shares: impl Iterator<Item = &'a Candidates> + Clone, k: usize, into: &mut Candidates) {
    into.bound = shares.clone().map(|found| found.bound).fold(0.0, f32::max);
    // A row that scores less than the k-th of its own share scores less than the k-th of all. A share without rows to offer adds nothing to that.
    let exact = |found: &Candidates| found.coverage == Coverage::Exact;
    let nothing = |found: &Candidates| found.coverage == Coverage::All && found.rows.is_empty();
    into.coverage = if shares.clone().any(exact) && shares.clone().all(|found| exact(found) || nothing(found))
    {
        Coverage::Exact
    } else {
        shares.clone().map(|found| as_bound(found, k)).reduce(weaker).unwrap_or_default()
    };
    into.rows.extend(shares.flat_map(|found| &found.rows));
}

/// What is known of the rows that a share left out, as a bound on their real scores.
fn as_bound(found: &Candidates, k: usize) -> Coverage {
    match found.coverage {
        Coverage::Exact if found.rows.len() < k => Coverage::All,
        Coverage::Exact => {
            let mut raw: Vec<f32> = found.rows.iter().map(|one| one.raw).collect();
            let (_, kth, _) = raw.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            Coverage::below_raw(*kth, SCORE_ROUNDING)
        }
        known @ (Coverage::All | Coverage::AtMost(_) | Coverage::Unknown) => known,
    }
}

/// What holds for the rows of two shares, of which neither is [`Coverage::Exact`].
fn weaker(one: Coverage, other: Coverage) -> Coverage {
    match (one, other) {
        (Coverage::All, known) | (known, Coverage::All) => known,
        (Coverage::AtMost(one), Coverage::AtMost(other)) => Coverage::AtMost(one.max(other)),
        (Coverage::Unknown | Coverage::Exact, _) | (_, Coverage::Unknown | Coverage::Exact) => {
            Coverage::Unknown
        }
    }
}

/// The times of scans that went on side by side.
fn longest(one: ScreenTiming, other: ScreenTiming) -> ScreenTiming {
    ScreenTiming {
        scan_ns: one.scan_ns.max(other.scan_ns),
        device_merge_ns: one.device_merge_ns.max(other.device_merge_ns),
        host_merge_ns: one.host_merge_ns.max(other.host_merge_ns),
    }
}

/// Each text once, in the order in which they come.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for text in texts {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    distinct
}

/// `A`, `2 x A`, `2 x A + B`.
fn counted<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> String {
    let count = |text: &&str| texts.clone().filter(|other| other == text).count();
    let each = distinct(texts.clone()).into_iter().map(|text| match count(&text) {
        1 => text.to_owned(),
        count => format!("{count} x {text}"),
    });
    each.collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests;

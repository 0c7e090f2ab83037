//! Scans shared out over threads, and what they found brought together.
//!
//! Every thread of the pool has a [`Lane`]: selectors of its own and working memory, kept from scan to scan. Threads take chunks of rows as
//! they come free, so one that is held up delays nobody, and tell each other what floors they found. Which thread saw which row
//! changes nothing in the answer, only how many rows besides are kept.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::kernel::Hit;
use super::ordered::Ordered;
use super::select::{Selector, Wanted};
use crate::backend::Candidates;

/// Byte products or the like below which waking other threads takes longer than doing it alone.
const ALONE: usize = 2_000_000;

/// Probes below which merging is not shared out.
const MERGED_ALONE: usize = 16;

/// What one thread works with.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// One a probe.
    pub(super) selectors: Vec<Selector>,
    pub(super) cuts: Cuts,
    pub(super) hits: Vec<Hit>,
    /// What the outline lets pass.
    pub(super) passed: Vec<Hit>,
    /// Scores of a block of rows.
    pub(super) scores: Vec<f32>,
    /// Pairs of panel and probe that the outline has settled, ever.
    #[cfg(test)]
    pub(super) settled: usize,
}

/// What a kernel's upper end must reach, one a probe.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    pub(super) whole: Vec<f32>,
    /// Where only rows' outlines are scored.
    pub(super) outline: Vec<f32>,
}

/// A floor that all threads may read and raise.
#[derive(Debug, Default)]
pub(super) struct Floor(AtomicI32);

impl Floor {
    fn lower_to_nothing(&mut self) {
        *self.0.get_mut() = Ordered::from(f32::NEG_INFINITY).to_bits();
    }

    pub(super) fn get(&self) -> f32 {
        Ordered::from_bits(self.0.load(Ordering::Relaxed)).into()
    }

    pub(super) fn raise(&self, floor: f32) {
        self.0.fetch_max(Ordered::from(floor).to_bits(), Ordering::Relaxed);
    }
}

/// What all threads of a scan see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// One a probe.
    pub(super) floors: Vec<Floor>,
    /// How far each group of probes has come.
    taken: Vec<AtomicUsize>,
}

impl Shared {
    /// The next `step` of `all` rows, panels or the like that nobody has taken for this group of probes.
    pub(super) fn take(&self, group: usize, step: usize, all: usize) -> Option<Range<usize>> {
        // Looked at first, so that the number cannot run over however often it is asked.
        if self.taken[group].load(Ordering::Relaxed) >= all {
            return None;
        }
        let first = self.taken[group].fetch_add(step, Ordering::Relaxed);
        (first < all).then(|| first..(first + step).min(all))
    }
}

/// The threads, their lanes, and what they share.
#[derive(Debug)]
pub(super) struct Sweep {
    pool: Arc<ThreadPool>,
    lanes: Vec<RwLock<Lane>>,
    shared: Shared,
}

impl Sweep {
    pub(super) fn new(pool: Arc<ThreadPool>) -> Self {
        let lanes = (0..pool.current_num_threads()).map(|_| RwLock::default()).collect();
        Self { pool, lanes, shared: Shared::default() }
    }

    pub(super) fn threads(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// Pairs of panel and probe that an outline has settled, ever.
    #[cfg(test)]
    pub(super) fn settled(&self) -> usize {
        self.lanes.iter().map(|lane| lane.read().unwrap().settled).sum()
    }

    /// Makes ready for a scan of probes that want these.
    pub(super) fn begin(&mut self, wanted: impl Iterator<Item = Wanted> + Clone) {
        let count = wanted.clone().count();
        self.shared.floors.resize_with(count, Floor::default);
        self.shared.floors.iter_mut().for_each(Floor::lower_to_nothing);
        for lane in &mut self.lanes {
            let lane = lane.get_mut().unwrap_or_else(PoisonError::into_inner);
            lane.selectors.resize_with(count, Selector::default);
            lane.selectors
                .iter_mut()
                .zip(wanted.clone())
                .for_each(|(selector, wanted)| selector.begin(wanted));
        }
    }

    /// Does `scan` once on every thread, or on this one alone where there is little `work`, for probes in so many groups.
    pub(super) fn run(
        &mut self,
        work: usize,
        groups: usize,
        scan: impl Fn(usize, &mut Lane, &Shared) + Sync,
    ) {
        self.shared.taken.clear();
        self.shared.taken.resize_with(groups, AtomicUsize::default);
        let (lanes, shared) = (&self.lanes, &self.shared);
        let scan = |thread: usize| {
            let mut lane = lanes[thread].write().unwrap_or_else(PoisonError::into_inner);
            scan(thread, &mut lane, shared);
        };
        if work < ALONE {
            scan(0);
        } else {
            self.pool.broadcast(|thread| scan(thread.index()));
        }
    }

    /// Brings together what the threads found, probe by probe.
    pub(super) fn finish(&self, found: &mut [Candidates]) {
        let Some((first, others)) = self.lanes.split_first() else { return };
        let mut first = first.write().unwrap_or_else(PoisonError::into_inner);
        let merge = |(probe, (selector, found)): (usize, (&mut Selector, &mut Candidates))| {
            for other in others {
                let other = other.read().unwrap_or_else(PoisonError::into_inner);
                selector.absorb(&other.selectors[probe]);
            }
            selector.finish(found);
        };
        if found.len() < MERGED_ALONE {
            first.selectors.iter_mut().zip(found).enumerate().for_each(merge);
        } else {
            let work = first.selectors.par_iter_mut().zip(found).enumerate();
            self.pool.install(|| work.for_each(merge));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_only_rises_and_keeps_its_value() {
        let mut floor = Floor::default();
        floor.lower_to_nothing();
        for (raised, held) in [
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (-0.75, -0.75),
            (-0.9, -0.75),
            (-0.0, -0.0),
            (0.25, 0.25),
            (0.1, 0.25),
            (f32::INFINITY, f32::INFINITY),
        ] {
            floor.raise(raised);
            assert_eq!(floor.get().to_bits(), held.to_bits());
        }
    }
}

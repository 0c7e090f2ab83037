//! Which probes are scanned next: waiting requests in groups, each batch from one group, every request in slices.
//!
//! A group holds the requests that can be scanned together. Groups take turns. Within a group every request gets an equal share
//! of the batch: what fits into it is scanned whole, and what small requests leave of theirs goes to the request that came
//! first. Where there are more requests than places they take turns, those that came since before those just served.
//!
//! Invariants: a batch holds at least one probe and at most as many as it may; every probe is given out once, in order; a request
//! that comes while no more than a batch's places wait is in the very next batch of its group. Pure: no clock, no channel, no scan.

use std::collections::VecDeque;
use std::ops::Range;

/// Some probes of a request, as part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The request's place in its group.
    pub(super) place: usize,
    /// Which of its probes.
    pub(super) probes: Range<usize>,
}

/// A request that waits, and how much of it has been given out.
#[derive(Debug)]
struct Entry<T> {
    item: T,
    /// How many requests came before it.
    arrival: u64,
    probes: usize,
    given: usize,
    /// How many of its probes the batch being formed holds.
    share: usize,
}

/// Requests that can be scanned together, in the order of their turns.
#[derive(Debug)]
struct Group<K, T> {
    key: K,
    entries: VecDeque<Entry<T>>,
}

/// All requests that wait, by what can be scanned together.
#[derive(Debug)]
pub(super) struct Waiting<K, T> {
    /// The first has the next turn, once `served` has gone to the end.
    groups: VecDeque<Group<K, T>>,
    /// How many requests at the head of the first group were served by the batch before, which was that group's; `None` before any.
    served: Option<usize>,
    arrivals: u64,
    /// Places by arrival: working memory.
    order: Vec<usize>,
}

impl<K: PartialEq, T> Waiting<K, T> {
    pub(super) fn new() -> Self {
        Self { groups: VecDeque::new(), served: None, arrivals: 0, order: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes in a request of at least one probe.
    pub(super) fn push(&mut self, key: K, item: T, probes: usize) {
        debug_assert!(probes > 0, "a request of no probes would wait for ever");
        let entry = Entry { item, arrival: self.arrivals, probes, given: 0, share: 0 };
        self.arrivals += 1;
        match self.groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.entries.push_back(entry),
            None => self.groups.push_back(Group { key, entries: VecDeque::from([entry]) }),
        }
    }

    /// Drops requests and says how many. Not between [`Self::next`] and [`Self::end`]. Each is asked about once: the answer may
    /// change meanwhile.
    pub(super) fn drop_those(&mut self, mut gone: impl FnMut(&T) -> bool) -> usize {
        let mut dropped = 0;
        let mut served = self.served.take();
        for (place, group) in self.groups.iter_mut().enumerate() {
            let (mut at, mut served_and_gone) = (0, 0);
            let turns = if place == 0 { served.unwrap_or(0) } else { 0 };
            let before = group.entries.len();
            group.entries.retain(|entry| {
                let goes = gone(&entry.item);
                served_and_gone += usize::from(goes && at < turns);
                at += 1;
                !goes
            });
            dropped += before - group.entries.len();
            if place == 0 {
                served = served.map(|served| served - served_and_gone);
            }
        }
        // A first group that is dropped takes its turn with it.
        let first_is_gone = self.groups.front().is_some_and(|group| group.entries.is_empty());
        self.groups.retain(|group| !group.entries.is_empty());
        self.served = if first_is_gone { None } else { served };
        dropped
    }

    /// Forms the next batch, of at most `limit` probes, into `slices`; `None` where nothing waits.
    pub(super) fn next(&mut self, limit: usize, slices: &mut Vec<Slice>) -> Option<Turn<'_, K, T>> {
        slices.clear();
        self.pass_the_turn();
        let group = self.groups.front_mut()?;
        let served = group.entries.len().min(limit.max(1));
        share_out(&mut group.entries, served, limit.max(1), &mut self.order);
        self.served = Some(served);
        for (place, entry) in group.entries.iter_mut().take(served).enumerate() {
            slices.push(Slice { place, probes: entry.given..entry.given + entry.share });
            entry.given += entry.share;
        }
        Some(Turn { group })
    }

    /// The batch before was its group's turn, and that of the requests in it; whoever came since goes before them.
    fn pass_the_turn(&mut self) {
        let Some(served) = self.served.take() else { return };
        if let Some(group) = self.groups.front_mut() {
            group.entries.rotate_left(served);
        }
        if self.groups.len() > 1 {
            self.groups.rotate_left(1);
        }
    }

    /// Ends the turn of the latest batch: drops the requests that were given out whole.
    pub(super) fn end(&mut self) {
        let Some(served) = self.served.as_mut() else { return };
        let Some(group) = self.groups.front_mut() else { return };
        let before = group.entries.len();
        group.entries.retain(|entry| entry.given < entry.probes);
        *served -= before - group.entries.len();
        if group.entries.is_empty() {
            self.groups.pop_front();
            self.served = None;
        }
    }

    /// Ends the turn and drops every request of the batch, whatever is left of it.
    pub(super) fn abandon(&mut self) {
        let Some(served) = self.served else { return };
        if let Some(group) = self.groups.front_mut() {
            group.entries.iter_mut().take(served).for_each(|entry| entry.given = entry.probes);
        }
        self.end();
    }
}

/// A group while its batch is scanned.
pub(super) struct Turn<'a, K, T> {
    group: &'a mut Group<K, T>,
}

impl<K, T> Turn<'_, K, T> {
    pub(super) fn key(&self) -> &K {
        &self.group.key
    }

    /// A request of the batch.
    pub(super) fn item(&self, slice: &Slice) -> &T {
        &self.group.entries[slice.place].item
    }

    /// A request of the batch.
    pub(super) fn item_mut(&mut self, slice: &Slice) -> &mut T {
        &mut self.group.entries[slice.place].item
    }

    /// Whether the batch takes the last of a request's probes.
    pub(super) fn is_last(&self, slice: &Slice) -> bool {
        slice.probes.end == self.group.entries[slice.place].probes
    }
}

/// Gives each of the first `served` entries its share of `limit` probes; `served` is at most `limit`.
fn share_out<T>(entries: &mut VecDeque<Entry<T>>, served: usize, limit: usize, order: &mut Vec<usize>) {
    let equal = limit / served;
    let mut left = limit;
    for entry in entries.iter_mut().take(served) {
        entry.share = (entry.probes - entry.given).min(equal);
        left -= entry.share;
    }
    order.clear();
    order.extend(
        (0..served).filter(|&place| entries[place].share < entries[place].probes - entries[place].given),
    );
    order.sort_unstable_by_key(|&place| entries[place].arrival);
    for &place in order.iter() {
        let entry = &mut entries[place];
        let more = left.min(entry.probes - entry.given - entry.share);
        entry.share += more;
        left -= more;
    }
}

#[cfg(test)]
mod tests;

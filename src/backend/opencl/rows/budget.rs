//! Device memory for rows.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes of device memory that rows may take, shared by all galleries on the device.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Budget {
    pub(super) limit: u64,
    used: Cell<u64>,
}

impl Budget {
    /// At most `limit` bytes.
    pub(in crate::backend::opencl) fn new(limit: u64) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0) })
    }

    /// Sets `bytes` aside until the answer is dropped; `None` where the limit forbids it.
    pub(super) fn reserve(self: &Rc<Self>, bytes: u64) -> Option<Reservation> {
        let used = self.used.get().checked_add(bytes).filter(|used| *used <= self.limit)?;
        self.used.set(used);
        Some(Reservation { budget: Rc::clone(self), bytes })
    }
}

/// A share of a [`Budget`].
#[derive(Debug)]
pub(in crate::backend::opencl) struct Reservation {
    budget: Rc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_back_what_is_dropped() {
        let budget = Budget::new(100);
        let first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        let second = budget.reserve(40).unwrap();
        drop(first);
        assert!(budget.reserve(61).is_none());
        drop(second);
        assert!(budget.reserve(100).is_some());
    }
}

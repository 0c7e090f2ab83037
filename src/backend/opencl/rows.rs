//! A gallery's rows on the device: all of them where they fit, else one chunk at a time.
//!
//! Rows go over in chunks, each a buffer of its own, as large as the device allows or the settings say. Rows that fit into what is left
//! of the memory limit stay on the device (resident); others are copied chunk by chunk through one buffer at every scan
//! (streamed). Rows that were streamed because another gallery held the memory become resident once that one is gone.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::BackendError;
use crate::domain::Matrix;

use super::driver::device::{Buffer, Device};

/// Rows of a chunk that is streamed, where the settings do not say: copied and scanned in turn, so neither should take long.
const STREAMED_ROWS: usize = 50_000;

/// Bytes of device memory that rows may take, shared by all galleries on the device.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: Cell<u64>,
}

impl Budget {
    /// At most `limit` bytes.
    pub(super) fn new(limit: u64) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0) })
    }

    /// Sets `bytes` aside until the answer is dropped; `None` where the limit forbids it.
    fn reserve(self: &Rc<Self>, bytes: u64) -> Option<Reservation> {
        let used = self.used.get().checked_add(bytes).filter(|used| *used <= self.limit)?;
        self.used.set(used);
        Some(Reservation { budget: Rc::clone(self), bytes })
    }
}

/// A share of a [`Budget`].
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Rc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
    }
}

/// Rows on, or on their way to, the device.
#[derive(Debug)]
pub(super) struct Rows {
    matrix: Arc<Matrix>,
    /// As the settings have it.
    wished: usize,
    per_chunk: usize,
    budget: Rc<Budget>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Resident {
        chunks: Vec<Buffer<f32>>,
        _reservation: Reservation,
    },
    /// `may_settle`: the memory limit alone stood in the way, so that it is worth trying again.
    Streamed {
        chunk: Buffer<f32>,
        may_settle: bool,
    },
}

/// What came of bringing all rows to the device.
enum Attempt {
    Resident(Place),
    OverBudget,
    OutOfMemory,
}

impl Rows {
    /// Brings the rows of `matrix` to the device, at most `chunk_rows` to a buffer; 0: as suits the device.
    pub(super) fn load(
        device: &Device,
        matrix: &Arc<Matrix>,
        chunk_rows: usize,
        budget: &Rc<Budget>,
    ) -> Result<Self, BackendError> {
        let fitting = |wished| fitting_rows(device, matrix, wished, budget);
        let mut per_chunk = fitting(if chunk_rows == 0 { usize::MAX } else { chunk_rows })?;
        let attempt = resident(device, matrix, per_chunk, budget)?;
        let may_settle = matches!(attempt, Attempt::OverBudget);
        let place = match attempt {
            Attempt::Resident(place) => place,
            Attempt::OverBudget | Attempt::OutOfMemory => {
                per_chunk = fitting(if chunk_rows == 0 { STREAMED_ROWS } else { chunk_rows })?;
                let chunk = device.allocate(per_chunk * matrix.stride(), "a chunk of rows")?;
                Place::Streamed { chunk, may_settle }
            }
        };
        let (matrix, budget) = (Arc::clone(matrix), Rc::clone(budget));
        Ok(Self { matrix, wished: chunk_rows, per_chunk, budget, place })
    }

    /// The rows as the host has them.
    pub(super) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Rows of a chunk; the last may have fewer.
    pub(super) fn chunk_rows(&self) -> usize {
        self.per_chunk
    }

    /// Makes streamed rows resident where the memory is there by now; whether it did.
    pub(super) fn settle(&mut self, device: &Device) -> Result<bool, BackendError> {
        let Place::Streamed { may_settle: may_settle @ true, .. } = &mut self.place else {
            return Ok(false);
        };
        let wished = if self.wished == 0 { usize::MAX } else { self.wished };
        let per_chunk = fitting_rows(device, &self.matrix, wished, &self.budget)?;
        match resident(device, &self.matrix, per_chunk, &self.budget)? {
            Attempt::Resident(place) => {
                (self.place, self.per_chunk) = (place, per_chunk);
                return Ok(true);
            }
            Attempt::OverBudget => {}
            Attempt::OutOfMemory => *may_settle = false,
        }
        Ok(false)
    }

    /// Sets memory aside for what is kept beside rows that stay on the device; `None` where they do not, or the limit forbids it.
    pub(super) fn reserve_beside(&self, bytes: u64) -> Option<Reservation> {
        match self.place {
            Place::Resident { .. } => self.budget.reserve(bytes),
            Place::Streamed { .. } => None,
        }
    }

    /// The rows of each chunk.
    pub(super) fn chunks(&self) -> Vec<Range<usize>> {
        let rows = self.matrix.rows();
        (0..rows).step_by(self.per_chunk).map(|first| first..rows.min(first + self.per_chunk)).collect()
    }

    /// The rows of `chunk`, one of [`Rows::chunks`], on the device: copied now if they are streamed.
    pub(super) fn on_device(
        &self,
        device: &Device,
        chunk: &Range<usize>,
    ) -> Result<&Buffer<f32>, BackendError> {
        if let Place::Streamed { chunk: buffer, .. } = &self.place {
            device.write(buffer, self.matrix.block(chunk.start, chunk.len()))?;
        }
        Ok(self.loaded(chunk))
    }

    /// The rows of `chunk`, brought there by [`Rows::on_device`].
    pub(super) fn loaded(&self, chunk: &Range<usize>) -> &Buffer<f32> {
        match &self.place {
            Place::Resident { chunks, .. } => &chunks[chunk.start / self.per_chunk],
            Place::Streamed { chunk: buffer, .. } => buffer,
        }
    }

    /// Bytes held on the device.
    pub(super) fn device_bytes(&self) -> u64 {
        let values: usize = match &self.place {
            Place::Resident { chunks, .. } => chunks.iter().map(Buffer::len).sum(),
            Place::Streamed { chunk, .. } => chunk.len(),
        };
        (values * size_of::<f32>()) as u64
    }
}

/// How many rows a chunk may have on this device.
fn fitting_rows(
    device: &Device,
    matrix: &Matrix,
    chunk_rows: usize,
    budget: &Budget,
) -> Result<usize, BackendError> {
    let row_bytes = (matrix.stride() * size_of::<f32>()) as u64;
    let largest = match device.record().max_allocation_bytes {
        0 => budget.limit,
        bytes => bytes.min(budget.limit),
    };
    let fitting = usize::try_from(largest / row_bytes).unwrap_or(usize::MAX);
    if fitting == 0 {
        return Err(BackendError::OutOfMemory {
            what: format!("one row on OpenCL device {}", device.record().name),
            needed: row_bytes,
            available: largest,
        });
    }
    Ok(chunk_rows.min(fitting).min(matrix.rows().max(1)))
}

/// Brings all rows to the device, if they fit.
fn resident(
    device: &Device,
    matrix: &Matrix,
    chunk_rows: usize,
    budget: &Rc<Budget>,
) -> Result<Attempt, BackendError> {
    let Some(reservation) = budget.reserve(matrix.bytes() as u64) else {
        return Ok(Attempt::OverBudget);
    };
    let mut chunks = Vec::new();
    for first in (0..matrix.rows()).step_by(chunk_rows) {
        let block = matrix.block(first, chunk_rows.min(matrix.rows() - first));
        // Some drivers find out that there is no memory when it is asked for, others when it is written to.
        let copied = device
            .allocate(block.len(), "rows")
            .and_then(|chunk| device.write(&chunk, block).map(|()| chunks.push(chunk)));
        match copied {
            Ok(()) => {}
            // Others use the device too: what the limit allows may not be there.
            Err(BackendError::OutOfMemory { what, needed, available }) => {
                tracing::warn!(
                    what,
                    needed,
                    available,
                    "no room for all rows on the device: they are streamed"
                );
                return Ok(Attempt::OutOfMemory);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Attempt::Resident(Place::Resident { chunks, _reservation: reservation }))
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

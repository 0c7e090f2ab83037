//! A share of a gallery's rows on the device: all of them where they fit, else some at a time.
//!
//! Rows are scanned in chunks, each a buffer of its own, as large as the device allows or the settings say. Where the device
//! has the host's memory, they are scanned where they are (shared). Else rows that fit into what is left
//! of the memory limit stay on the device (resident); others pass through two buffers at every scan (streamed), the next chunk on its way
//! while one is scanned. Rows that were streamed because another gallery held the memory become resident once that one is gone.

mod budget;
mod stream;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::BackendError;
use crate::domain::Matrix;

use super::driver::buffer::Buffer;
use super::driver::device::{Device, Event};

pub(super) use budget::{Budget, Reservation};
use stream::Stream;

/// Rows of a chunk that is streamed, where the settings do not say: copied and scanned in turn, so neither should take long.
const STREAMED_ROWS: usize = 50_000;

/// Which rows a device holds, and how.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    /// Which rows of the matrix.
    pub(super) range: Range<usize>,
    /// Most rows of a chunk; 0: as suits the device.
    pub(super) chunk_rows: usize,
    /// Whether a device that has the host's memory scans them there.
    pub(super) zero_copy: bool,
}

/// Rows on, or on their way to, the device.
#[derive(Debug)]
pub(super) struct Rows {
    place: Place,
    matrix: Arc<Matrix>,
    placement: Placement,
    per_chunk: usize,
    budget: Rc<Budget>,
}

#[derive(Debug)]
enum Place {
    Shared(Vec<Buffer<f32>>),
    Resident {
        chunks: Vec<Buffer<f32>>,
        _reservation: Reservation,
    },
    /// `may_settle`: the memory limit alone stood in the way, so that it is worth trying again.
    Streamed {
        stream: Box<Stream>,
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
    /// Brings rows of `matrix` to the device.
    pub(super) fn load(
        device: &Device,
        matrix: &Arc<Matrix>,
        placement: Placement,
        budget: &Rc<Budget>,
    ) -> Result<Self, BackendError> {
        let of = Source { device, matrix, rows: &placement.range };
        let wished = placement.wished(usize::MAX);
        if placement.zero_copy && device.shares_memory() {
            let per_chunk = of.fitting_rows(wished, device.record().max_allocation_bytes)?;
            let chunks = chunks(&placement.range, per_chunk).map(|chunk| device.share(matrix, chunk));
            let place = Place::Shared(chunks.collect::<Result<_, _>>()?);
            let (matrix, budget) = (Arc::clone(matrix), Rc::clone(budget));
            return Ok(Self { place, matrix, placement, per_chunk, budget });
        }
        let mut per_chunk = of.fitting_rows(wished, budget.limit)?;
        let attempt = of.resident(per_chunk, budget)?;
        let may_settle = matches!(attempt, Attempt::OverBudget);
        let place = match attempt {
            Attempt::Resident(place) => place,
            Attempt::OverBudget | Attempt::OutOfMemory => {
                // Two buffers are to fit, where more than one row does.
                let most = (budget.limit / 2).max(of.row_bytes()).min(budget.limit);
                per_chunk = of.fitting_rows(placement.wished(STREAMED_ROWS), most)?;
                let stream = Stream::new(device, per_chunk * matrix.stride())?;
                Place::Streamed { stream: Box::new(stream), may_settle }
            }
        };
        let (matrix, budget) = (Arc::clone(matrix), Rc::clone(budget));
        Ok(Self { place, matrix, placement, per_chunk, budget })
    }

    /// The whole gallery's rows as the host has them.
    pub(super) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Which of the gallery's rows these are.
    pub(super) fn range(&self) -> &Range<usize> {
        &self.placement.range
    }

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.placement.range.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.placement.range.is_empty()
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
        let of = Source { device, matrix: &self.matrix, rows: &self.placement.range };
        let per_chunk = of.fitting_rows(self.placement.wished(usize::MAX), self.budget.limit)?;
        match of.resident(per_chunk, &self.budget)? {
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
            Place::Shared(_) | Place::Resident { .. } => self.budget.reserve(bytes),
            Place::Streamed { .. } => None,
        }
    }

    /// The rows of each chunk, by the gallery's numbers.
    pub(super) fn chunks(&self) -> Vec<Range<usize>> {
        chunks(self.range(), self.per_chunk).collect()
    }

    /// Chunk `chunk` of [`Rows::chunks`] on the device, for the commands that come after: waited for if it is streamed.
    pub(super) fn arrive(&self, device: &Device, chunk: usize) -> Result<&Buffer<f32>, BackendError> {
        if let Place::Streamed { stream, .. } = &self.place {
            self.begin(device, stream, (chunk, None))?;
            stream.finish(device, chunk)?;
        }
        Ok(self.arrived(chunk))
    }

    /// Has the next chunk but `chunk` brought to the device, where there is one and it is not there: while `chunk` is scanned, by commands
    /// that are in the queue. `before`: the last command that reads the chunk before it, if that may not be over.
    pub(super) fn prepare_next(
        &self,
        device: &Device,
        chunk: usize,
        before: Option<&Event>,
    ) -> Result<(), BackendError> {
        match &self.place {
            Place::Streamed { stream, .. } if (chunk + 1) * self.per_chunk < self.len() => {
                // A queue may wait for another only for what that one has begun.
                device.flush()?;
                self.begin(device, stream, (chunk + 1, before))
            }
            Place::Streamed { .. } | Place::Shared(_) | Place::Resident { .. } => Ok(()),
        }
    }

    fn begin(
        &self,
        device: &Device,
        stream: &Stream,
        (chunk, after): (usize, Option<&Event>),
    ) -> Result<(), BackendError> {
        let first = self.range().start + chunk * self.per_chunk;
        let rows = first..self.range().end.min(first + self.per_chunk);
        stream.begin(device, (&self.matrix, chunk, &rows), after)
    }

    /// Chunk `chunk` of [`Rows::chunks`], brought there by [`Rows::arrive`].
    pub(super) fn arrived(&self, chunk: usize) -> &Buffer<f32> {
        match &self.place {
            Place::Shared(chunks) | Place::Resident { chunks, .. } => &chunks[chunk],
            Place::Streamed { stream, .. } => stream.buffer(chunk),
        }
    }

    /// Bytes held on the device, beside what is the host's too.
    pub(super) fn device_bytes(&self) -> u64 {
        let values: usize = match &self.place {
            Place::Shared(_) => 0,
            Place::Resident { chunks, .. } => chunks.iter().map(Buffer::len).sum(),
            Place::Streamed { stream, .. } => stream.len(),
        };
        (values * size_of::<f32>()) as u64
    }
}

impl Placement {
    /// The same for all of so many rows.
    pub(super) fn over(&self, rows: usize) -> Self {
        Self { range: 0..rows, ..self.clone() }
    }

    /// Rows of a chunk, before the device is asked.
    fn wished(&self, otherwise: usize) -> usize {
        if self.chunk_rows == 0 { otherwise } else { self.chunk_rows }
    }
}

/// The rows `rows`, `per_chunk` at a time.
fn chunks(rows: &Range<usize>, per_chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = rows.end;
    rows.clone().step_by(per_chunk).map(move |first| first..end.min(first + per_chunk))
}

/// Rows to be brought to a device.
struct Source<'a> {
    device: &'a Device,
    matrix: &'a Matrix,
    rows: &'a Range<usize>,
}

impl Source<'_> {
    fn row_bytes(&self) -> u64 {
        (self.matrix.stride() * size_of::<f32>()) as u64
    }

    /// How many rows a chunk may have on this device, which is to take at most `most` bytes.
    fn fitting_rows(&self, wished: usize, most: u64) -> Result<usize, BackendError> {
        let record = self.device.record();
        let largest = match record.max_allocation_bytes {
            0 => most,
            bytes => bytes.min(most),
        };
        let fitting = usize::try_from(largest / self.row_bytes()).unwrap_or(usize::MAX);
        if fitting == 0 {
            return Err(BackendError::OutOfMemory {
                what: format!("one row on OpenCL device {}", record.name),
                needed: self.row_bytes(),
                available: largest,
            });
        }
        Ok(wished.min(fitting).min(self.rows.len().max(1)))
    }

    /// Brings all rows to the device, if they fit.
    fn resident(&self, per_chunk: usize, budget: &Rc<Budget>) -> Result<Attempt, BackendError> {
        let Some(reservation) = budget.reserve(self.rows.len() as u64 * self.row_bytes()) else {
            return Ok(Attempt::OverBudget);
        };
        let mut held = Vec::new();
        for chunk in chunks(self.rows, per_chunk) {
            let block = self.matrix.block(chunk.start, chunk.len());
            // Some drivers find out that there is no memory when it is asked for, others when it is written to.
            let copied = self
                .device
                .allocate(block.len(), "rows")
                .and_then(|chunk| self.device.write(&chunk, block).map(|()| held.push(chunk)));
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
        Ok(Attempt::Resident(Place::Resident { chunks: held, _reservation: reservation }))
    }
}

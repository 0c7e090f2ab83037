//! A share of a gallery's rows on the device: all of them where they fit, else some at a time.
//!
//! Rows are scanned in chunks, each a buffer of its own, as large as the device allows or the settings say. Where the device
//! has the host's memory, they are scanned where they are (shared). Else rows that fit into what is left
//! of the memory limit stay on the device (resident); others pass through two buffers at every scan (streamed), the next chunk on its way
//! while one is scanned. Rows that were streamed because another gallery held the memory become resident once that one is gone.

mod budget;
mod fill;
mod stream;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::BackendError;
use crate::domain::{Kept, Matrix};

use super::driver::buffer::Buffer;
use super::driver::device::{Device, Event};

pub(super) use budget::{Budget, Reservation};
use fill::Filling;
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

/// Rows that a device scans.
#[derive(Debug)]
pub(super) struct Rows {
    place: Place,
    matrix: Arc<Matrix>,
    placement: Placement,
    per_chunk: usize,
    budget: Rc<Budget>,
}

/// Rows on their way to the device.
#[derive(Debug)]
pub(super) struct ComingRows {
    rows: Rows,
    /// What is to be brought, and whereto.
    filling: Option<(Filling, Rc<Resident>)>,
}

/// Rows in buffers of the device.
#[derive(Debug)]
struct Resident {
    chunks: Vec<Buffer<f32>>,
    layout: Layout,
    _reservation: Reservation,
}

/// Which rows of a gallery lie in chunks, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    range: Range<usize>,
    /// At least 1.
    per_chunk: usize,
}

#[derive(Debug)]
enum Place {
    Shared(Vec<Buffer<f32>>),
    Resident(Rc<Resident>),
    /// `may_settle`: the memory limit alone stood in the way, so that it is worth trying again.
    Streamed {
        stream: Box<Stream>,
        may_settle: bool,
    },
}

/// What came of asking for memory for all rows.
enum Attempt {
    Resident(Rc<Resident>),
    OverBudget,
    OutOfMemory,
}

impl Rows {
    /// Brings rows of `matrix` to the device, and waits for it.
    pub(super) fn load(
        device: &Device,
        matrix: &Arc<Matrix>,
        placement: Placement,
        budget: &Rc<Budget>,
    ) -> Result<Self, BackendError> {
        let mut coming = Self::begin(device, matrix, (placement, budget), None)?;
        while !coming.step(device)? {}
        Ok(coming.rows)
    }

    /// Begins to bring rows of `matrix` to the device; those that stay are copied out of the former generation.
    pub(super) fn begin(
        device: &Device,
        matrix: &Arc<Matrix>,
        (placement, budget): (Placement, &Rc<Budget>),
        former: Option<(&Self, &[Kept])>,
    ) -> Result<ComingRows, BackendError> {
        let of = Source { device, matrix, rows: &placement.range };
        let wished = placement.wished(usize::MAX);
        if placement.zero_copy && device.shares_memory() {
            let per_chunk = of.fitting_rows(wished, device.record().max_allocation_bytes)?;
            let chunks = chunks(&placement.range, per_chunk).map(|chunk| device.share(matrix, chunk));
            let place = Place::Shared(chunks.collect::<Result<_, _>>()?);
            let (matrix, budget) = (Arc::clone(matrix), Rc::clone(budget));
            let rows = Self { place, matrix, placement, per_chunk, budget };
            return Ok(ComingRows { rows, filling: None });
        }
        let per_chunk = of.fitting_rows(wished, budget.limit)?;
        let attempt = of.resident(per_chunk, budget)?;
        let may_settle = matches!(attempt, Attempt::OverBudget);
        let (per_chunk, place, filling) = match attempt {
            Attempt::Resident(resident) => {
                let former = former.and_then(|(former, kept)| match &former.place {
                    Place::Resident(resident) if former.matrix.stride() == matrix.stride() => {
                        Some((resident, kept))
                    }
                    Place::Resident(_) | Place::Shared(_) | Place::Streamed { .. } => None,
                });
                let filling = Filling::new(&resident.layout, matrix.stride(), former);
                (per_chunk, Place::Resident(Rc::clone(&resident)), Some((filling, resident)))
            }
            Attempt::OverBudget | Attempt::OutOfMemory => {
                let (per_chunk, place) = of.streamed(&placement, budget, may_settle)?;
                (per_chunk, place, None)
            }
        };
        let (matrix, budget) = (Arc::clone(matrix), Rc::clone(budget));
        Ok(ComingRows { rows: Self { place, matrix, placement, per_chunk, budget }, filling })
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
            Attempt::Resident(resident) => {
                let mut filling = Filling::new(&resident.layout, self.matrix.stride(), None);
                loop {
                    match filling.step(device, &self.matrix, &resident) {
                        Ok(false) => {}
                        Ok(true) => break,
                        Err(error @ BackendError::OutOfMemory { .. }) => {
                            no_room(&error);
                            *may_settle = false;
                            return Ok(false);
                        }
                        Err(error) => return Err(error),
                    }
                }
                (self.place, self.per_chunk) = (Place::Resident(resident), per_chunk);
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
            Place::Shared(_) | Place::Resident(_) => self.budget.reserve(bytes),
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
            self.begin_chunk(device, stream, (chunk, None))?;
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
                self.begin_chunk(device, stream, (chunk + 1, before))
            }
            Place::Streamed { .. } | Place::Shared(_) | Place::Resident(_) => Ok(()),
        }
    }

    fn begin_chunk(
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
            Place::Shared(chunks) => &chunks[chunk],
            Place::Resident(resident) => &resident.chunks[chunk],
            Place::Streamed { stream, .. } => stream.buffer(chunk),
        }
    }

    /// Bytes held on the device, beside what is the host's too.
    pub(super) fn device_bytes(&self) -> u64 {
        let values: usize = match &self.place {
            Place::Shared(_) => 0,
            Place::Resident(resident) => resident.chunks.iter().map(Buffer::len).sum(),
            Place::Streamed { stream, .. } => stream.len(),
        };
        (values * size_of::<f32>()) as u64
    }
}

impl ComingRows {
    /// Brings some of them; whether all are there.
    pub(super) fn step(&mut self, device: &Device) -> Result<bool, BackendError> {
        let Some((filling, resident)) = &mut self.filling else { return Ok(true) };
        match filling.step(device, &self.rows.matrix, resident) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.filling = None;
                Ok(true)
            }
            // Some drivers find out that there is no memory when it is asked for, others when it is written to.
            Err(error @ BackendError::OutOfMemory { .. }) => {
                no_room(&error);
                let Rows { matrix, placement, budget, .. } = &self.rows;
                let of = Source { device, matrix, rows: &placement.range };
                self.filling = None;
                (self.rows.per_chunk, self.rows.place) = of.streamed(placement, budget, false)?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Those rows, once all are there.
    pub(super) fn arrived(self) -> Rows {
        self.rows
    }
}

/// Others use the device too: what the limit allows may not be there.
fn no_room(error: &BackendError) {
    tracing::warn!(%error, "no room for all rows on the device: they are streamed");
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

    /// Two buffers that rows pass through, and how many rows a time.
    fn streamed(
        &self,
        placement: &Placement,
        budget: &Budget,
        may_settle: bool,
    ) -> Result<(usize, Place), BackendError> {
        // Two buffers are to fit, where more than one row does.
        let most = (budget.limit / 2).max(self.row_bytes()).min(budget.limit);
        let per_chunk = self.fitting_rows(placement.wished(STREAMED_ROWS), most)?;
        let stream = Stream::new(self.device, per_chunk * self.matrix.stride())?;
        Ok((per_chunk, Place::Streamed { stream: Box::new(stream), may_settle }))
    }

    /// Buffers for all rows, if they fit.
    fn resident(&self, per_chunk: usize, budget: &Rc<Budget>) -> Result<Attempt, BackendError> {
        let Some(reservation) = budget.reserve(self.rows.len() as u64 * self.row_bytes()) else {
            return Ok(Attempt::OverBudget);
        };
        let mut held = Vec::new();
        for chunk in chunks(self.rows, per_chunk) {
            match self.device.allocate(chunk.len() * self.matrix.stride(), "rows") {
                Ok(chunk) => held.push(chunk),
                Err(error @ BackendError::OutOfMemory { .. }) => {
                    no_room(&error);
                    return Ok(Attempt::OutOfMemory);
                }
                Err(error) => return Err(error),
            }
        }
        let layout = Layout { range: self.rows.clone(), per_chunk };
        Ok(Attempt::Resident(Rc::new(Resident { chunks: held, layout, _reservation: reservation })))
    }
}

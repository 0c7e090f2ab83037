//! Rows that do not fit the device pass through two buffers of it: while one chunk is scanned, the next is copied.

use std::cell::RefCell;
use std::ops::Range;

use crate::backend::BackendError;
use crate::backend::opencl::driver::buffer::{Buffer, Copies, Pinned};
use crate::backend::opencl::driver::device::{Device, Event};
use crate::domain::Matrix;

/// Two buffers and what is copied to them.
#[derive(Debug)]
pub(super) struct Stream {
    copies: Copies,
    buffers: [Buffer<f32>; 2],
    ways: RefCell<[Way; 2]>,
}

/// The way to one of the buffers.
#[derive(Debug)]
struct Way {
    staging: Pinned<f32>,
    /// The chunk that is copied, or was.
    chunk: Option<usize>,
}

impl Stream {
    /// For chunks of at most so many values.
    pub(super) fn new(device: &Device, values: usize) -> Result<Self, BackendError> {
        let buffer = || device.allocate(values, "a chunk of rows");
        let way =
            || Ok::<_, BackendError>(Way { staging: device.pin(values, "a chunk of rows")?, chunk: None });
        Ok(Self {
            copies: device.copies()?,
            buffers: [buffer()?, buffer()?],
            ways: RefCell::new([way()?, way()?]),
        })
    }

    /// Has the rows of a chunk copied, once `after` is over, where that has not begun. What was in the same buffer, two chunks before, is
    /// not scanned any more by then.
    pub(super) fn begin(
        &self,
        device: &Device,
        (matrix, chunk, rows): (&Matrix, usize, &Range<usize>),
        after: Option<&Event>,
    ) -> Result<(), BackendError> {
        let way = &mut self.ways.borrow_mut()[chunk % 2];
        if way.chunk == Some(chunk) {
            return Ok(());
        }
        // Until all of it is under way, the buffer holds nothing in particular.
        way.chunk = None;
        let values = matrix.block(rows.start, rows.len());
        device.stream(&self.copies, (&self.buffers[chunk % 2], &mut way.staging), values, after)?;
        way.chunk = Some(chunk);
        Ok(())
    }

    /// Waits until a chunk whose copying was begun is there.
    pub(super) fn finish(&self, device: &Device, chunk: usize) -> Result<(), BackendError> {
        device.arrived(&mut self.ways.borrow_mut()[chunk % 2].staging)
    }

    /// The buffer of a chunk.
    pub(super) fn buffer(&self, chunk: usize) -> &Buffer<f32> {
        &self.buffers[chunk % 2]
    }

    /// Values held on the device.
    pub(super) fn len(&self) -> usize {
        self.buffers.iter().map(Buffer::len).sum()
    }
}

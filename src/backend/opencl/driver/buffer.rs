//! Memory on a device, host memory that a device copies from, and the copies between them.
//!
//! Invariants: reads and writes block, so host memory is borrowed only during a call; what is copied while the host goes on comes from
//! [`Pinned`] memory, which waits for its copy. Host memory that a device scans in place ([`Device::share`]) is kept until no command uses it.

#![expect(unsafe_code, reason = "the OpenCL boundary: memory objects and copies")]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ocl::ffi;

use crate::backend::BackendError;
use crate::domain::Matrix;

use super::device::{Arg, Device, Event, Memory, Queue};
use super::status::Failure;

/// Bytes of a piece of [`Device::stream`]: while the device copies one, the host readies the next.
const PIECE_BYTES: usize = 4 << 20;

/// What buffers may hold: any bits are a value, no padding.
pub(in crate::backend::opencl) trait Element: Copy + Default {}

impl Element for f32 {}
impl Element for u32 {}
impl Element for u64 {}

/// `T[len]` on the device.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Buffer<T> {
    /// Dropped first: nothing may use the host's memory when it goes.
    _unused: Option<Unused>,
    memory: Memory,
    len: usize,
    element: PhantomData<T>,
    _host: Option<Arc<Matrix>>,
}

/// Waits, when it is dropped, until a queue is empty.
#[derive(Debug)]
struct Unused(Queue);

impl Drop for Unused {
    fn drop(&mut self) {
        // SAFETY: a queue that is alive. Where this fails the device is lost, and uses nothing more.
        unsafe { ffi::clFinish(self.0.0) };
    }
}

impl<T: Element> Buffer<T> {
    /// Elements it holds.
    pub(in crate::backend::opencl) fn len(&self) -> usize {
        self.len
    }

    /// As a kernel's argument.
    pub(in crate::backend::opencl) fn arg(&self) -> Arg<'_> {
        Arg::Memory(&self.memory)
    }
}

/// `T[len]` of host memory that the device copies from and to by itself; of other host memory the driver makes a copy first.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Pinned<T> {
    values: NonNull<T>,
    len: usize,
    /// The copy from here that was begun last.
    leaving: Option<Event>,
    memory: Memory,
    /// Its own handle on the queue, for giving the memory back.
    queue: Queue,
}

impl<T> Pinned<T> {
    /// Waits until nothing is copied from it any more.
    fn settle(&mut self) {
        if let Some(event) = self.leaving.take() {
            // Where waiting fails the device is lost, and copies no more.
            let _ = event.wait();
        }
    }
}

impl<T: Element> Pinned<T> {
    /// The memory, once nothing is copied from it any more.
    pub(in crate::backend::opencl) fn values(&mut self) -> &mut [T] {
        self.settle();
        // SAFETY: mapped for as long as `self` lives, so many elements, any bits of which are a value; no copy is under way.
        unsafe { std::slice::from_raw_parts_mut(self.values.as_ptr(), self.len) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.settle();
        // SAFETY: mapped once, by this queue, and not used after this.
        unsafe {
            ffi::clEnqueueUnmapMemObject(
                self.queue.0,
                self.memory.0,
                self.values.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            );
            ffi::clFinish(self.queue.0);
        }
    }
}

impl Device {
    /// Memory for `len` elements, at least 1, for `what`.
    pub(in crate::backend::opencl) fn allocate<T: Element>(
        &self,
        len: usize,
        what: &str,
    ) -> Result<Buffer<T>, BackendError> {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        let mut status = 0;
        // SAFETY: no host memory is handed over.
        let memory = unsafe {
            ffi::clCreateBuffer(
                self.context.0,
                ffi::CL_MEM_READ_WRITE,
                bytes,
                ptr::null_mut(),
                &raw mut status,
            )
        };
        Failure::check("clCreateBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, what, bytes))?;
        Ok(Buffer {
            _unused: None,
            memory: Memory(memory),
            len: len.max(1),
            element: PhantomData,
            _host: None,
        })
    }

    /// Copies `values` to the start of `buffer`.
    pub(in crate::backend::opencl) fn write<T: Element>(
        &self,
        buffer: &Buffer<T>,
        values: &[T],
    ) -> Result<(), BackendError> {
        self.write_at((buffer, 0), values)
    }

    /// Copies `values` into `buffer`, from this element on.
    pub(in crate::backend::opencl) fn write_at<T: Element>(
        &self,
        (buffer, first): (&Buffer<T>, usize),
        values: &[T],
    ) -> Result<(), BackendError> {
        let room = buffer.len.saturating_sub(first);
        assert!(values.len() <= room, "{} values where there is room for {room}", values.len());
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer has room for the values; the call returns when they are copied.
        let status = unsafe {
            ffi::clEnqueueWriteBuffer(
                self.queue.0,
                buffer.memory.0,
                ffi::CL_TRUE,
                first * size_of::<T>(),
                size_of_val(values),
                values.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        let bytes = size_of_val(values);
        Failure::check("clEnqueueWriteBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, "a copy of values", bytes))
    }

    /// Has `count` elements copied from one buffer to another on the device, each from this element on, and does not wait for it.
    pub(in crate::backend::opencl) fn copy<T: Element>(
        &self,
        (from, first): (&Buffer<T>, usize),
        (to, place): (&Buffer<T>, usize),
        count: usize,
    ) -> Result<(), BackendError> {
        assert!(
            first + count <= from.len && place + count <= to.len,
            "{count} values from {first} of {} to {place} of {}",
            from.len,
            to.len
        );
        // SAFETY: two buffers of this context that hold these elements; the driver keeps both until the copy is over.
        let status = unsafe {
            ffi::clEnqueueCopyBuffer(
                self.queue.0,
                from.memory.0,
                to.memory.0,
                first * size_of::<T>(),
                place * size_of::<T>(),
                count * size_of::<T>(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        let bytes = count * size_of::<T>();
        Failure::check("clEnqueueCopyBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, "a copy of values", bytes))
    }

    /// Copies the start of `buffer` to `values`, after all commands before it are done.
    pub(in crate::backend::opencl) fn read<T: Element>(
        &self,
        buffer: &Buffer<T>,
        values: &mut [T],
    ) -> Result<(), BackendError> {
        assert!(values.len() <= buffer.len, "{} values from a buffer of {}", values.len(), buffer.len);
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer holds as many values and any bits are one; the call returns when they are copied.
        let status = unsafe {
            ffi::clEnqueueReadBuffer(
                self.queue.0,
                buffer.memory.0,
                ffi::CL_TRUE,
                0,
                size_of_val(values),
                values.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        Failure::check("clEnqueueReadBuffer", status).map_err(|failure| self.failed(failure))
    }

    /// Host memory for `len` elements, at least 1, for `what`.
    pub(in crate::backend::opencl) fn pin<T: Element>(
        &self,
        len: usize,
        what: &str,
    ) -> Result<Pinned<T>, BackendError> {
        let len = len.max(1);
        let bytes = len.saturating_mul(size_of::<T>());
        let flags = ffi::CL_MEM_READ_WRITE | ffi::CL_MEM_ALLOC_HOST_PTR;
        let mut status = 0;
        // SAFETY: no host memory is handed over.
        let memory =
            unsafe { ffi::clCreateBuffer(self.context.0, flags, bytes, ptr::null_mut(), &raw mut status) };
        Failure::check("clCreateBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, what, bytes))?;
        let memory = Memory(memory);
        // SAFETY: the whole buffer; the call returns when it is mapped.
        let values = unsafe {
            ffi::clEnqueueMapBuffer(
                self.queue.0,
                memory.0,
                ffi::CL_TRUE,
                ffi::CL_MAP_READ | ffi::CL_MAP_WRITE,
                0,
                bytes,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut status,
            )
        };
        Failure::check("clEnqueueMapBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, what, bytes))?;
        let failure = Failure { call: "clEnqueueMapBuffer", status };
        let values = NonNull::new(values.cast::<T>()).ok_or_else(|| self.failed(failure))?;
        // SAFETY: fresh memory of so many elements; zeros are values of them.
        unsafe { ptr::write_bytes(values.as_ptr(), 0, len) };
        Ok(Pinned { values, len, leaving: None, memory, queue: self.queue_handle()? })
    }

    /// Has the first `len` elements of `pinned` copied to the start of `buffer`, and does not wait for it.
    pub(in crate::backend::opencl) fn send<T: Element>(
        &self,
        buffer: &Buffer<T>,
        pinned: &mut Pinned<T>,
        len: usize,
    ) -> Result<(), BackendError> {
        assert!(len <= buffer.len && len <= pinned.len, "{len} values from {} to {}", pinned.len, buffer.len);
        let mut event = ptr::null_mut();
        // SAFETY: both have room; `pinned` is not written to before the event is over (see `Pinned::values`), nor given back.
        let status = unsafe {
            ffi::clEnqueueWriteBuffer(
                self.queue.0,
                buffer.memory.0,
                ffi::CL_FALSE,
                0,
                len * size_of::<T>(),
                pinned.values.as_ptr().cast(),
                0,
                ptr::null(),
                &raw mut event,
            )
        };
        Failure::check("clEnqueueWriteBuffer", status).map_err(|failure| self.failed(failure))?;
        pinned.leaving = Some(Event(event));
        Ok(())
    }

    /// The rows `rows` of `matrix` where they are, for a device that [shares the host's memory](Device::shares_memory).
    pub(in crate::backend::opencl) fn share(
        &self,
        matrix: &Arc<Matrix>,
        rows: Range<usize>,
    ) -> Result<Buffer<f32>, BackendError> {
        let values = matrix.block(rows.start, rows.len());
        if values.is_empty() {
            return self.allocate(1, "rows");
        }
        let queue = self.queue_handle()?;
        let flags = ffi::CL_MEM_READ_ONLY | ffi::CL_MEM_USE_HOST_PTR;
        let bytes = size_of_val(values);
        let mut status = 0;
        // SAFETY: kernels read the values and nobody changes them; the buffer keeps the matrix until no command uses it.
        let memory = unsafe {
            ffi::clCreateBuffer(
                self.context.0,
                flags,
                bytes,
                values.as_ptr().cast_mut().cast(),
                &raw mut status,
            )
        };
        Failure::check("clCreateBuffer", status)
            .map_err(|failure| self.failed_with_memory(failure, "rows", bytes))?;
        Ok(Buffer {
            _unused: Some(Unused(queue)),
            memory: Memory(memory),
            len: values.len(),
            element: PhantomData,
            _host: Some(Arc::clone(matrix)),
        })
    }

    /// Has `values` copied to the start of `buffer` by way of `pinned`, once `after` is over, by a queue of its own. Waits for what
    /// `pinned` was used for before, not for this.
    pub(in crate::backend::opencl) fn stream<T: Element>(
        &self,
        copies: &Copies,
        (buffer, pinned): (&Buffer<T>, &mut Pinned<T>),
        values: &[T],
        after: Option<&Event>,
    ) -> Result<(), BackendError> {
        assert!(
            values.len() <= buffer.len && values.len() <= pinned.len,
            "{} values to stream",
            values.len()
        );
        pinned.settle();
        let piece_len = PIECE_BYTES / size_of::<T>();
        for (place, piece) in values.chunks(piece_len).enumerate() {
            let first = place * piece_len;
            let mut event = ptr::null_mut();
            let waits = u32::from(place == 0 && after.is_some());
            let awaited = after.map_or(ptr::null(), |event| &raw const event.0);
            // SAFETY: both have room. This part of `pinned` is not being copied: the former copies are over, those of this call are of
            // other parts. It is not written to again before the last event is over, nor given back (see `Pinned::settle`); the queue
            // is in order, so that the others are over by then too.
            let status = unsafe {
                let staged = pinned.values.as_ptr().add(first);
                ptr::copy_nonoverlapping(piece.as_ptr(), staged, piece.len());
                ffi::clEnqueueWriteBuffer(
                    copies.0.0,
                    buffer.memory.0,
                    ffi::CL_FALSE,
                    first * size_of::<T>(),
                    size_of_val(piece),
                    staged.cast(),
                    waits,
                    if waits > 0 { awaited } else { ptr::null() },
                    &raw mut event,
                )
            };
            Failure::check("clEnqueueWriteBuffer", status).map_err(|failure| self.failed(failure))?;
            pinned.leaving = Some(Event(event));
            // SAFETY: the queue is alive.
            let status = unsafe { ffi::clFlush(copies.0.0) };
            Failure::check("clFlush", status).map_err(|failure| self.failed(failure))?;
        }
        Ok(())
    }

    /// Waits until what [`Self::stream`] has copied last by way of `pinned` is there.
    pub(in crate::backend::opencl) fn arrived<T: Element>(
        &self,
        pinned: &mut Pinned<T>,
    ) -> Result<(), BackendError> {
        match pinned.leaving.take() {
            Some(event) => event.wait().map_err(|failure| self.failed(failure)),
            None => Ok(()),
        }
    }

    /// A queue for copies beside what the device computes.
    pub(in crate::backend::opencl) fn copies(&self) -> Result<Copies, BackendError> {
        Ok(Copies(self.new_queue()?))
    }
}

/// A queue for copies beside what the device computes.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Copies(Queue);

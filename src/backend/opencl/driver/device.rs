//! One device with its context and queue: the only place, beside [`build`](super::build), that creates, uses and releases the driver's objects.
//!
//! The objects are held by types of ours over `ocl::ffi`, not by `ocl`'s own, because those panic when a release fails and
//! when a driver answers a status they do not know; a device that dies while serving must end in an error, so that the CPU can
//! answer instead.
//!
//! Invariants: each object is released once, when its owner is dropped. Reads and writes block, so host memory is borrowed only
//! during a call. The queue is in order. Nothing in here is `Send`: one thread owns a device and everything made with it.

#![expect(unsafe_code, reason = "the OpenCL boundary: objects and commands of one device")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ocl::ffi;

use crate::backend::BackendError;

use super::platform;
use super::status::Failure;
use crate::backend::opencl::choose::DeviceRecord;

macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $release:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(in crate::backend::opencl) struct $name(pub(super) $raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the driver made this object for `self` alone, which is not used after this. The answer is of no
                // use: a device that failed may refuse to release as well.
                unsafe { $release(self.0) };
            }
        }
    };
}

owned!(
    /// What ties a device's objects together.
    Context, ffi::cl_context, ffi::clReleaseContext
);
owned!(
    /// Where commands are put.
    Queue, ffi::cl_command_queue, ffi::clReleaseCommandQueue
);
owned!(
    /// Memory on the device.
    Memory, ffi::cl_mem, ffi::clReleaseMemObject
);
owned!(
    /// A compiled source.
    Program, ffi::cl_program, ffi::clReleaseProgram
);
owned!(
    /// A function of a program.
    RawKernel, ffi::cl_kernel, ffi::clReleaseKernel
);
owned!(
    /// A command under way or done.
    Event, ffi::cl_event, ffi::clReleaseEvent
);

/// What buffers may hold: any bits are a value, no padding.
pub(in crate::backend::opencl) trait Element: Copy + Default {}

impl Element for f32 {}
impl Element for u32 {}
impl Element for u64 {}

/// `T[len]` on the device.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Buffer<T> {
    memory: Memory,
    len: usize,
    element: PhantomData<T>,
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

impl<T: Element> Pinned<T> {
    /// The memory, once nothing is copied from it any more.
    pub(in crate::backend::opencl) fn values(&mut self) -> &mut [T] {
        if let Some(event) = self.leaving.take() {
            // SAFETY: one event that is alive. Where waiting fails the device is lost, and copies no more.
            unsafe { ffi::clWaitForEvents(1, &raw const event.0) };
        }
        // SAFETY: mapped for as long as `self` lives, so many elements, any bits of which are a value; no copy is under way.
        unsafe { std::slice::from_raw_parts_mut(self.values.as_ptr(), self.len) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: mapped once, by this queue, and not used after this. The queue is in order: copies that were begun come first.
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

/// A kernel's argument.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::opencl) enum Arg<'a> {
    /// A buffer.
    Memory(&'a Memory),
    /// A number.
    U32(u32),
    /// A number.
    F32(f32),
}

/// A kernel, ready to be launched.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Kernel {
    pub(super) raw: RawKernel,
    pub(super) name: &'static str,
    /// Most work-items that a work-group of it may have.
    pub(super) group_limit: usize,
}

impl Kernel {
    /// Most work-items that a work-group of it may have.
    pub(in crate::backend::opencl) fn group_limit(&self) -> usize {
        self.group_limit
    }
}

/// How many work-items, and how many a work-group; each global size is a multiple of its local size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::opencl) struct Range {
    /// Work-items.
    pub(in crate::backend::opencl) global: [usize; 3],
    /// Work-items of a group.
    pub(in crate::backend::opencl) local: [usize; 3],
}

/// One device in use.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Device {
    // Dropped in this order: the queue before its context.
    queue: Queue,
    pub(super) context: Context,
    pub(super) id: ffi::cl_device_id,
    record: DeviceRecord,
    compute_units: usize,
}

impl Device {
    /// Takes a device into use.
    pub(in crate::backend::opencl) fn open(record: DeviceRecord) -> Result<Self, BackendError> {
        let id = platform::device_id(&record)
            .map_err(|reason| BackendError::Device { device: record.name.clone(), reason })?;
        let error = |failure: Failure| failed(&record, failure);
        let mut status = 0;
        // SAFETY: one device from the driver; no properties, no callback.
        let context = unsafe {
            ffi::clCreateContext(ptr::null(), 1, &raw const id, None, ptr::null_mut(), &raw mut status)
        };
        Failure::check("clCreateContext", status).map_err(error)?;
        let context = Context(context);
        // SAFETY: the context was made for this device.
        let queue = unsafe {
            ffi::clCreateCommandQueue(context.0, id, ffi::CL_QUEUE_PROFILING_ENABLE, &raw mut status)
        };
        Failure::check("clCreateCommandQueue", status).map_err(error)?;
        Ok(Self { queue: Queue(queue), context, id, record, compute_units: platform::compute_units(id) })
    }

    /// What the device is.
    pub(in crate::backend::opencl) fn record(&self) -> &DeviceRecord {
        &self.record
    }

    /// Its processors; at least 1.
    pub(in crate::backend::opencl) fn compute_units(&self) -> usize {
        self.compute_units
    }

    /// Whether it computes in `f64`.
    pub(in crate::backend::opencl) fn has_doubles(&self) -> bool {
        platform::has_doubles(self.id)
    }

    /// An NVIDIA device's compute capability, major and minor; (0, 0) of others.
    pub(in crate::backend::opencl) fn compute_capability(&self) -> (u32, u32) {
        platform::compute_capability(self.id)
    }

    fn failed(&self, failure: Failure) -> BackendError {
        failed(&self.record, failure)
    }

    /// The error of a call that needs `bytes` of memory for `what`.
    fn failed_with_memory(&self, failure: Failure, what: &str, bytes: usize) -> BackendError {
        if !failure.is_memory() {
            return self.failed(failure);
        }
        BackendError::OutOfMemory {
            what: format!("{what} on OpenCL device {}", self.record.name),
            needed: bytes as u64,
            available: self.record.global_memory_bytes,
        }
    }

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
        Ok(Buffer { memory: Memory(memory), len: len.max(1), element: PhantomData })
    }

    /// Copies `values` to the start of `buffer`.
    pub(in crate::backend::opencl) fn write<T: Element>(
        &self,
        buffer: &Buffer<T>,
        values: &[T],
    ) -> Result<(), BackendError> {
        assert!(values.len() <= buffer.len, "{} values into a buffer of {}", values.len(), buffer.len);
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer has room for the values; the call returns when they are copied.
        let status = unsafe {
            ffi::clEnqueueWriteBuffer(
                self.queue.0,
                buffer.memory.0,
                ffi::CL_TRUE,
                0,
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
        // SAFETY: the queue is alive; what is retained here is released by the `Queue` made of it.
        let status = unsafe { ffi::clRetainCommandQueue(self.queue.0) };
        Failure::check("clRetainCommandQueue", status).map_err(|failure| self.failed(failure))?;
        Ok(Pinned { values, len, leaving: None, memory, queue: Queue(self.queue.0) })
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

    /// Has the device begin with the commands so far, while others are being prepared.
    pub(in crate::backend::opencl) fn flush(&self) -> Result<(), BackendError> {
        // SAFETY: the queue is alive.
        let status = unsafe { ffi::clFlush(self.queue.0) };
        Failure::check("clFlush", status).map_err(|failure| self.failed(failure))
    }

    /// Puts a kernel with all its arguments, in order, into the queue.
    pub(in crate::backend::opencl) fn launch(
        &self,
        kernel: &Kernel,
        args: &[Arg<'_>],
        range: Range,
    ) -> Result<Event, BackendError> {
        let error = |failure: Failure| BackendError::Device {
            device: self.record.name.clone(),
            reason: format!("kernel {}: {failure}", kernel.name),
        };
        for (index, arg) in args.iter().enumerate() {
            let (size, value): (usize, *const c_void) = match arg {
                Arg::Memory(memory) => (size_of::<ffi::cl_mem>(), (&raw const memory.0).cast()),
                Arg::U32(number) => (size_of::<u32>(), ptr::from_ref(number).cast()),
                Arg::F32(number) => (size_of::<f32>(), ptr::from_ref(number).cast()),
            };
            // SAFETY: the value is as large as stated and copied during the call.
            let status = unsafe { ffi::clSetKernelArg(kernel.raw.0, index as u32, size, value) };
            Failure::check("clSetKernelArg", status).map_err(error)?;
        }
        let mut event = ptr::null_mut();
        // SAFETY: three sizes each. The driver has checked number and sizes of the arguments; the kernels keep to the
        // buffers whose sizes the callers compute from the layouts that stand at the head of each kernel.
        let status = unsafe {
            ffi::clEnqueueNDRangeKernel(
                self.queue.0,
                kernel.raw.0,
                3,
                ptr::null(),
                range.global.as_ptr(),
                range.local.as_ptr(),
                0,
                ptr::null(),
                &raw mut event,
            )
        };
        Failure::check("clEnqueueNDRangeKernel", status).map_err(error)?;
        Ok(Event(event))
    }
}

impl Event {
    /// How long the command took on the device, in nanoseconds; 0 where the driver does not say.
    pub(in crate::backend::opencl) fn elapsed_ns(&self) -> u64 {
        self.time(ffi::CL_PROFILING_COMMAND_END).saturating_sub(self.time(ffi::CL_PROFILING_COMMAND_START))
    }

    /// When the command was put into the queue, began and ended, in nanoseconds of the driver's clock; 0 where it does not say.
    pub(in crate::backend::opencl) fn times_ns(&self) -> [u64; 3] {
        [ffi::CL_PROFILING_COMMAND_QUEUED, ffi::CL_PROFILING_COMMAND_START, ffi::CL_PROFILING_COMMAND_END]
            .map(|what| self.time(what))
    }

    fn time(&self, what: ffi::cl_profiling_info) -> u64 {
        let mut time = 0_u64;
        // SAFETY: the event is alive; `time` is as large as stated.
        let status = unsafe {
            ffi::clGetEventProfilingInfo(
                self.0,
                what,
                size_of::<u64>(),
                (&raw mut time).cast::<c_void>(),
                ptr::null_mut(),
            )
        };
        if status == 0 { time } else { 0 }
    }
}

fn failed(record: &DeviceRecord, failure: Failure) -> BackendError {
    BackendError::Device { device: record.name.clone(), reason: failure.to_string() }
}

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
use std::ptr;

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

/// A kernel's argument.
#[derive(Debug)]
pub(in crate::backend::opencl) enum Arg<'a> {
    /// A buffer.
    Memory(&'a Memory),
    /// A number.
    U32(u32),
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
#[derive(Clone, Copy, Debug)]
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

//! One device with its context and queue: the only place, beside [`build`](super::build) and [`buffer`](super::buffer), that creates, uses and releases the driver's objects.
//!
//! The objects are held by types of ours over `ocl::ffi`, not by `ocl`'s own, because those panic when a release fails and
//! when a driver answers a status they do not know; a device that dies while serving must end in an error, so that the CPU can
//! answer instead.
//!
//! Invariants: each object is released once, when its owner is dropped. The queue is in order. Nothing in here is `Send`: one thread owns a device and everything made with it.

#![expect(unsafe_code, reason = "the OpenCL boundary: objects and commands of one device")]

use std::ffi::c_void;
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
    pub(super) queue: Queue,
    pub(super) context: Context,
    pub(super) id: ffi::cl_device_id,
    record: DeviceRecord,
    compute_units: usize,
}

impl Device {
    /// Takes a device into use; with `profiling` the driver times every command, which costs some microseconds each.
    pub(in crate::backend::opencl) fn open(
        record: DeviceRecord,
        profiling: bool,
    ) -> Result<Self, BackendError> {
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
        let properties = if profiling { ffi::CL_QUEUE_PROFILING_ENABLE } else { 0 };
        let queue = new_queue(&context, id, properties).map_err(error)?;
        Ok(Self { queue, context, id, record, compute_units: platform::compute_units(id) })
    }

    /// A further queue.
    pub(super) fn new_queue(&self) -> Result<Queue, BackendError> {
        new_queue(&self.context, self.id, 0).map_err(|failure| self.failed(failure))
    }

    /// A further handle on the queue.
    pub(super) fn queue_handle(&self) -> Result<Queue, BackendError> {
        // SAFETY: the queue is alive; what is retained here is released by the `Queue` made of it.
        let status = unsafe { ffi::clRetainCommandQueue(self.queue.0) };
        Failure::check("clRetainCommandQueue", status).map_err(|failure| self.failed(failure))?;
        Ok(Queue(self.queue.0))
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

    /// Whether it reads the host's memory as fast as any of its own.
    pub(in crate::backend::opencl) fn shares_memory(&self) -> bool {
        platform::shares_memory(self.id)
    }

    pub(super) fn failed(&self, failure: Failure) -> BackendError {
        failed(&self.record, failure)
    }

    /// The error of a call that needs `bytes` of memory for `what`.
    pub(super) fn failed_with_memory(&self, failure: Failure, what: &str, bytes: usize) -> BackendError {
        if !failure.is_memory() {
            return self.failed(failure);
        }
        BackendError::OutOfMemory {
            what: format!("{what} on OpenCL device {}", self.record.name),
            needed: bytes as u64,
            available: self.record.global_memory_bytes,
        }
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
    /// Waits until it is over.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: one event that is alive.
        let status = unsafe { ffi::clWaitForEvents(1, &raw const self.0) };
        Failure::check("clWaitForEvents", status)
    }

    /// How long the command took on the device, in nanoseconds; 0 where the driver does not say, or nothing is profiled.
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

fn new_queue(
    context: &Context,
    id: ffi::cl_device_id,
    properties: ffi::cl_command_queue_properties,
) -> Result<Queue, Failure> {
    let mut status = 0;
    // SAFETY: the context was made for this device.
    let queue = unsafe { ffi::clCreateCommandQueue(context.0, id, properties, &raw mut status) };
    Failure::check("clCreateCommandQueue", status)?;
    Ok(Queue(queue))
}

fn failed(record: &DeviceRecord, failure: Failure) -> BackendError {
    BackendError::Device { device: record.name.clone(), reason: failure.to_string() }
}

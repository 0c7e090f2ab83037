//! Working memory on the device that scans use again and again.

use crate::backend::BackendError;

use super::driver::buffer::{Buffer, Element, Pinned};
use super::driver::device::{Arg, Device};

/// A buffer that grows.
#[derive(Debug)]
pub(super) struct Reusable<T> {
    buffer: Buffer<T>,
    what: &'static str,
}

impl<T: Element> Reusable<T> {
    /// Room for one element, of memory for `what`.
    pub(super) fn new(device: &Device, what: &'static str) -> Result<Self, BackendError> {
        Ok(Self { buffer: device.allocate(1, what)?, what })
    }

    /// Makes room for `len` elements; what was in there is lost.
    pub(super) fn size(&mut self, device: &Device, len: usize) -> Result<(), BackendError> {
        if self.buffer.len() < len {
            self.buffer = device.allocate(len.next_power_of_two(), self.what)?;
        }
        Ok(())
    }

    /// Holds `values` and, behind them, anything.
    pub(super) fn put(&mut self, device: &Device, values: &[T]) -> Result<(), BackendError> {
        self.size(device, values.len())?;
        device.write(&self.buffer, values)
    }

    /// Copies the first elements to `values`, after all commands before it are done.
    pub(super) fn read(&self, device: &Device, values: &mut [T]) -> Result<(), BackendError> {
        device.read(&self.buffer, values)
    }

    /// As a kernel's argument.
    pub(super) fn arg(&self) -> Arg<'_> {
        self.buffer.arg()
    }

    /// Bytes held on the device.
    pub(super) fn bytes(&self) -> u64 {
        (self.buffer.len() * size_of::<T>()) as u64
    }
}

/// A buffer that grows, and as much host memory to fill it from or empty it into.
#[derive(Debug)]
pub(super) struct Exchanged<T> {
    buffer: Reusable<T>,
    pinned: Pinned<T>,
}

impl<T: Element> Exchanged<T> {
    /// Room for one element, of memory for `what`.
    pub(super) fn new(device: &Device, what: &'static str) -> Result<Self, BackendError> {
        Ok(Self { buffer: Reusable::new(device, what)?, pinned: device.pin(1, what)? })
    }

    /// Makes room for `len` elements; what was in there is lost.
    pub(super) fn size(&mut self, device: &Device, len: usize) -> Result<(), BackendError> {
        if self.buffer.buffer.len() < len {
            self.buffer.size(device, len)?;
            self.pinned = device.pin(self.buffer.buffer.len(), self.buffer.what)?;
        }
        Ok(())
    }

    /// Holds `values` on the device, for the commands that come after.
    pub(super) fn put(&mut self, device: &Device, values: &[T]) -> Result<(), BackendError> {
        self.size(device, values.len())?;
        self.pinned.values()[..values.len()].copy_from_slice(values);
        device.send(&self.buffer.buffer, &mut self.pinned, values.len())
    }

    /// The first `len` elements, after all commands before it are done.
    pub(super) fn get(&mut self, device: &Device, len: usize) -> Result<&[T], BackendError> {
        let values = &mut self.pinned.values()[..len];
        device.read(&self.buffer.buffer, values)?;
        Ok(values)
    }

    /// As a kernel's argument.
    pub(super) fn arg(&self) -> Arg<'_> {
        self.buffer.arg()
    }

    /// Bytes held on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }
}

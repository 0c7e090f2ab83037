//! Working memory of this scan on the device.

use std::ops::Range;

use crate::backend::opencl::driver::device::Device;
use crate::backend::opencl::memory::{Exchanged, Reusable};
use crate::backend::{Ask, BackendError};
use crate::domain::Matrix;

/// The kernels' heads say how each buffer is laid out.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Memory {
    pub(super) probes: Exchanged<f32>,
    pub(super) probe_codes: Reusable<u32>,
    pub(super) probe_numbers: Reusable<f32>,
    pub(super) skip_offsets: Reusable<u32>,
    pub(super) skip_ranges: Reusable<u32>,
    /// So many probes are known on the device to skip nothing.
    skipless: usize,
    pub(super) maxima: Reusable<f32>,
    pub(super) cuts: Reusable<f32>,
    pub(super) counts: Reusable<u32>,
    pub(super) found: Reusable<u64>,
    pub(super) answers: Exchanged<u64>,
    offsets: Vec<u32>,
    ranges: Vec<u32>,
}

impl Memory {
    /// Empty.
    pub(in crate::backend::opencl) fn new(device: &Device) -> Result<Self, BackendError> {
        Ok(Self {
            probes: Exchanged::new(device, "probes")?,
            probe_codes: Reusable::new(device, "probes in bytes")?,
            probe_numbers: Reusable::new(device, "numbers of probes")?,
            skip_offsets: Reusable::new(device, "rows to skip")?,
            skip_ranges: Reusable::new(device, "rows to skip")?,
            skipless: 0,
            maxima: Reusable::new(device, "scores of a sample")?,
            cuts: Reusable::new(device, "cuts")?,
            counts: Reusable::new(device, "counts of rows found")?,
            found: Reusable::new(device, "rows found")?,
            answers: Exchanged::new(device, "answers")?,
            offsets: Vec::new(),
            ranges: Vec::new(),
        })
    }

    /// Bytes held on the device.
    pub(in crate::backend::opencl) fn device_bytes(&self) -> u64 {
        let floats = [&self.probe_numbers, &self.maxima, &self.cuts];
        let words = [&self.probe_codes, &self.skip_offsets, &self.skip_ranges, &self.counts];
        let exchanged = self.probes.bytes() + self.answers.bytes() + self.found.bytes();
        exchanged
            + floats.into_iter().map(Reusable::bytes).sum::<u64>()
            + words.into_iter().map(Reusable::bytes).sum::<u64>()
    }

    /// Copies probes `range`, and what they skip, to the device.
    pub(super) fn put_probes(
        &mut self,
        device: &Device,
        probes: &Matrix,
        range: &Range<usize>,
        asks: &[Ask<'_>],
    ) -> Result<(), BackendError> {
        self.probes.put(device, probes.block(range.start, range.len()))?;
        let skipless = asks.iter().all(|ask| ask.skip.is_empty());
        if skipless && self.skipless >= asks.len() {
            return Ok(());
        }
        self.offsets.clear();
        self.ranges.clear();
        self.offsets.push(0);
        for ask in asks {
            self.ranges.extend(ask.skip.ranges().iter().flat_map(|(start, end)| [*start, *end]));
            self.offsets.push((self.ranges.len() / 2) as u32);
        }
        self.skip_offsets.put(device, &self.offsets)?;
        // A kernel's vector pointer wants room for one whole vector even where nothing is read.
        self.skip_ranges.size(device, self.ranges.len().max(2))?;
        self.skip_ranges.put(device, &self.ranges)?;
        self.skipless = if skipless { asks.len() } else { 0 };
        Ok(())
    }
}

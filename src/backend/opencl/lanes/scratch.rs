//! Working memory on the device that scans use again and again.
//!
//! Each buffer grows when a scan needs more and never shrinks; what a scan may need is bounded by the limits in `scan` and
//! `range`.

use std::ops::Range;

use crate::backend::{Ask, BackendError};
use crate::domain::Matrix;

use super::variant::Layout;
use crate::backend::opencl::driver::device::Device;
use crate::backend::opencl::memory::Reusable;

/// The working memory of one device. The kernels' heads say how each buffer is laid out.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Scratch {
    pub(super) probes: Reusable<f32>,
    pub(super) skip_offsets: Reusable<u32>,
    pub(super) skip_ranges: Reusable<u32>,
    pub(super) list_scores: Reusable<f32>,
    pub(super) list_indices: Reusable<u32>,
    pub(super) merged_scores: Reusable<f32>,
    pub(super) merged_indices: Reusable<u32>,
    pub(super) scores: Reusable<f32>,
    host_values: Vec<f32>,
    host_indices: Vec<u32>,
}

impl Scratch {
    /// Empty.
    pub(in crate::backend::opencl) fn new(device: &Device) -> Result<Self, BackendError> {
        Ok(Self {
            probes: Reusable::new(device, "probes")?,
            skip_offsets: Reusable::new(device, "rows to skip")?,
            skip_ranges: Reusable::new(device, "rows to skip")?,
            list_scores: Reusable::new(device, "lists")?,
            list_indices: Reusable::new(device, "lists")?,
            merged_scores: Reusable::new(device, "merged lists")?,
            merged_indices: Reusable::new(device, "merged lists")?,
            scores: Reusable::new(device, "scores")?,
            host_values: Vec::new(),
            host_indices: Vec::new(),
        })
    }

    /// Bytes held on the device.
    pub(in crate::backend::opencl) fn device_bytes(&self) -> u64 {
        let values = [&self.probes, &self.list_scores, &self.merged_scores, &self.scores];
        let numbers = [&self.skip_offsets, &self.skip_ranges, &self.list_indices, &self.merged_indices];
        let values: u64 = values.into_iter().map(Reusable::bytes).sum();
        let numbers: u64 = numbers.into_iter().map(Reusable::bytes).sum();
        values + numbers
    }

    /// Copies probes `range` to the device, interleaved in tiles.
    pub(super) fn put_probes(
        &mut self,
        device: &Device,
        probes: &Matrix,
        range: Range<usize>,
        layout: Layout,
    ) -> Result<(), BackendError> {
        interleave(&mut self.host_values, probes, range, layout);
        self.probes.put(device, &self.host_values)
    }

    /// Copies the rows that each probe skips to the device.
    pub(super) fn put_skips(&mut self, device: &Device, asks: &[Ask<'_>]) -> Result<(), BackendError> {
        let mut offsets = Vec::with_capacity(asks.len() + 1);
        let mut ranges = Vec::new();
        offsets.push(0);
        for ask in asks {
            ranges.extend(ask.skip.ranges().iter().flat_map(|(start, end)| [*start, *end]));
            offsets.push((ranges.len() / 2) as u32);
        }
        self.skip_offsets.put(device, &offsets)?;
        // A kernel's vector pointer wants room for one whole vector even where nothing is read.
        self.skip_ranges.size(device, ranges.len().max(2))?;
        self.skip_ranges.put(device, &ranges)
    }

    /// Makes room for lists of `entries` entries in all, and merged ones of `merged`.
    pub(super) fn size_lists(
        &mut self,
        device: &Device,
        entries: usize,
        merged: usize,
    ) -> Result<(), BackendError> {
        self.list_scores.size(device, entries)?;
        self.list_indices.size(device, entries)?;
        self.merged_scores.size(device, merged)?;
        self.merged_indices.size(device, merged)
    }

    /// Makes room for `count` raw scores.
    pub(super) fn size_scores(&mut self, device: &Device, count: usize) -> Result<(), BackendError> {
        self.scores.size(device, count)
    }

    /// Waits for the merged lists and gives the first `count` entries: scores and row numbers.
    pub(super) fn read_merged(
        &mut self,
        device: &Device,
        count: usize,
    ) -> Result<(&[f32], &[u32]), BackendError> {
        self.host_values.resize(count, 0.0);
        self.host_indices.resize(count, 0);
        self.merged_scores.read(device, &mut self.host_values)?;
        self.merged_indices.read(device, &mut self.host_indices)?;
        Ok((&self.host_values, &self.host_indices))
    }

    /// Waits for the lists, not merged, and gives the first `count` entries: scores and row numbers.
    pub(super) fn read_lists(
        &mut self,
        device: &Device,
        count: usize,
    ) -> Result<(&[f32], &[u32]), BackendError> {
        self.host_values.resize(count, 0.0);
        self.host_indices.resize(count, 0);
        self.list_scores.read(device, &mut self.host_values)?;
        self.list_indices.read(device, &mut self.host_indices)?;
        Ok((&self.host_values, &self.host_indices))
    }

    /// Waits for the first `count` raw scores and gives them.
    pub(super) fn read_scores(&mut self, device: &Device, count: usize) -> Result<&[f32], BackendError> {
        self.host_values.resize(count, 0.0);
        self.scores.read(device, &mut self.host_values)?;
        Ok(&self.host_values)
    }
}

/// Lays probes `range` out as `dot.cl` draws it; the places that no probe takes hold zeros.
fn interleave(values: &mut Vec<f32>, probes: &Matrix, range: Range<usize>, layout: Layout) {
    let Layout { query_count, tile, width } = layout;
    let stride = probes.stride();
    values.clear();
    values.resize(query_count * stride, 0.0);
    for (place, probe) in range.enumerate() {
        let start = place / tile * tile * stride + place % tile * width;
        for (i, part) in probes.block(probe, 1).chunks_exact(width).enumerate() {
            let at = start + i * tile * width;
            values[at..at + width].copy_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_interleaved_by_as_many_components_as_a_load_takes() {
        let row = |base: u8| (0..16).map(|i| f32::from(base + i)).collect::<Vec<_>>();
        let rows = [row(0), row(100), row(200)];
        let probes = Matrix::from_rows(16, rows.iter().map(Vec::as_slice));
        let mut values = Vec::new();
        interleave(&mut values, &probes, 1..3, Layout { query_count: 4, tile: 4, width: 4 });
        assert_eq!(values.len(), 4 * 16);
        assert_eq!(values[..8], [100.0, 101.0, 102.0, 103.0, 200.0, 201.0, 202.0, 203.0]);
        assert_eq!(values[8..16], [0.0; 8]);
        assert_eq!(values[16..20], [104.0, 105.0, 106.0, 107.0]);
        interleave(&mut values, &probes, 1..3, Layout { query_count: 4, tile: 2, width: 1 });
        assert_eq!(values[..4], [100.0, 200.0, 101.0, 201.0]);
        assert_eq!((&values[30..32], &values[32..]), (&[115.0, 215.0][..], &[0.0; 32][..]));
        for width in [1, 4, 8] {
            interleave(&mut values, &probes, 0..2, Layout { query_count: 4, tile: 1, width });
            assert_eq!(values[..32], [rows[0].as_slice(), &rows[1]].concat());
            assert_eq!(values[32..], [0.0; 32]);
        }
    }
}

//! A gallery's rows in bytes, on the device, beside those in `f32`.
//!
//! The device makes them from the rows it holds, so nothing more is copied to it (`quantize.cl`).

use std::ops::Range;

use crate::backend::BackendError;
use crate::backend::opencl::driver::buffer::Buffer;
use crate::backend::opencl::driver::device::{Arg, Device};
use crate::backend::opencl::program::Programs;
use crate::backend::opencl::rows::{Reservation, Rows};
use crate::domain::Matrix;

use super::kernels::{Arithmetic, PANEL, PLAIN_ITEMS, Parameters, Role, STEP, Shape, plain_range};

/// Rows that the centre is the mean of, at most: any centre is right, and so many give a good one.
const CENTRE_ROWS: usize = 1 << 16;

/// Rows of one launch: few enough that no driver takes it for hung.
const LAUNCH_ROWS: usize = 1 << 22;

/// Panels are padded to this multiple, so that rows fill whole work-groups.
const PANEL_MULTIPLE: usize = PLAIN_ITEMS / PANEL;

/// The rows of each chunk of [`Rows`], quantised.
#[derive(Debug)]
pub(in crate::backend::opencl) struct ByteRows {
    chunks: Vec<ByteChunk>,
    pub(super) centre_on_device: Buffer<f32>,
    pub(super) reach: Buffer<u32>,
    _reservation: Reservation,
}

/// One chunk's.
#[derive(Debug)]
pub(super) struct ByteChunk {
    pub(super) codes: Buffer<u32>,
    pub(super) numbers: Buffer<f32>,
    pub(super) panels: usize,
}

impl ByteRows {
    /// Quantises rows that are on the device; `None` where they are not, or the memory for their bytes is not there.
    pub(in crate::backend::opencl) fn load(
        device: &Device,
        programs: &mut Programs,
        rows: &Rows,
        arithmetic: Arithmetic,
    ) -> Result<Option<Self>, BackendError> {
        let stride = rows.matrix().stride();
        let Some(reservation) =
            rows.reserve_beside(rows.chunks().iter().map(|chunk| bytes_of(chunk.len(), stride)).sum())
        else {
            return Ok(None);
        };
        match Self::make(device, programs, rows, arithmetic, reservation) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BackendError::OutOfMemory { what, needed, available }) => {
                tracing::warn!(what, needed, available, "no room for rows in bytes on the device");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn make(
        device: &Device,
        programs: &mut Programs,
        rows: &Rows,
        arithmetic: Arithmetic,
        reservation: Reservation,
    ) -> Result<Self, BackendError> {
        let stride = rows.matrix().stride();
        let parameters = Parameters { arithmetic, stride, shape: Shape::new(1) };
        let kernel = programs.kernel(device, parameters.recipe(Role::QuantizeRows))?;
        let centre = centre(rows.matrix(), rows.range());
        let centre_on_device = device.allocate(stride, "the centre of rows")?;
        device.write(&centre_on_device, &centre)?;
        let reach = device.allocate(1, "the reach of rows")?;
        device.write(&reach, &[0])?;
        let mut chunks = Vec::new();
        for (place, chunk) in rows.chunks().into_iter().enumerate() {
            let values = rows.arrive(device, place)?;
            let panels = panels_of(chunk.len());
            let codes = device.allocate(panels * panel_bytes(stride) / size_of::<u32>(), "rows in bytes")?;
            let numbers = device.allocate(panels * PANEL * 4, "numbers of rows")?;
            for first in (0..panels * PANEL).step_by(LAUNCH_ROWS) {
                let count = LAUNCH_ROWS.min(panels * PANEL - first);
                let args = [
                    values.arg(),
                    centre_on_device.arg(),
                    codes.arg(),
                    numbers.arg(),
                    reach.arg(),
                    Arg::U32(chunk.len() as u32),
                    Arg::U32(first as u32),
                ];
                device.launch(&kernel, &args, plain_range(count))?;
            }
            chunks.push(ByteChunk { codes, numbers, panels });
        }
        Ok(Self { chunks, centre_on_device, reach, _reservation: reservation })
    }

    /// Of the chunk at this place of [`Rows::chunks`].
    pub(super) fn chunk(&self, place: usize) -> &ByteChunk {
        &self.chunks[place]
    }

    /// Bytes held on the device.
    pub(in crate::backend::opencl) fn device_bytes(&self) -> u64 {
        let of_chunk = |chunk: &ByteChunk| (chunk.codes.len() + chunk.numbers.len()) * size_of::<u32>();
        self.chunks.iter().map(of_chunk).sum::<usize>() as u64
    }
}

fn panels_of(rows: usize) -> usize {
    rows.div_ceil(PANEL).next_multiple_of(PANEL_MULTIPLE)
}

fn panel_bytes(stride: usize) -> usize {
    stride.next_multiple_of(STEP) * PANEL
}

fn bytes_of(rows: usize, stride: usize) -> u64 {
    (panels_of(rows) * (panel_bytes(stride) + PANEL * size_of::<[f32; 4]>())) as u64
}

/// The mean of some rows, or of many of them, with a row's padding.
fn centre(matrix: &Matrix, rows: &Range<usize>) -> Vec<f32> {
    let mut sums = vec![0.0_f64; matrix.stride()];
    let step = rows.len().div_ceil(CENTRE_ROWS).max(1);
    let mut count = 0.0;
    for row in rows.clone().step_by(step) {
        sums.iter_mut().zip(matrix.row(row)).for_each(|(sum, value)| *sum += f64::from(*value));
        count += 1.0;
    }
    sums.into_iter().map(|sum| if count > 0.0 { (sum / count) as f32 } else { 0.0 }).collect()
}

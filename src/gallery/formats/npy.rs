//! NumPy's `.npy` files: read as vectors, written as results.
//!
//! Read: float32, float64 and float16, both byte orders, C and Fortran order, header versions 1 to 3. The file's length is checked
//! against its header before anything of that size is allocated. Values beyond float32's range become infinities, which no gallery
//! takes. Written: little-endian, C order, whole or not at all.

mod decode;
mod header;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use npyz::WriterBuilder;

use self::decode::{Component, transpose};
use self::header::Header;
use super::output::Complete;
use super::{FormatError, MAX_ROWS, Problem, Vectors, checked_dim, input};
use crate::gallery::{OnProgress, Place, Progress, Stage};

pub(super) use self::header::MAGIC;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// Reads `f32[rows, dim]`; at least one row.
pub fn read(path: &Path, on_progress: OnProgress<'_>) -> Result<Vectors, FormatError> {
    read_array(path, on_progress).map_err(|problem| problem.at(Place::file(path)))
}

fn read_array(path: &Path, on_progress: OnProgress<'_>) -> Result<Vectors, Problem> {
    let (mut file, length) = input::open(path)?;
    let header = Header::read(&mut file)?;
    let component = Component::of(&header.npyz.dtype())?;
    let [rows, dim] = *header.npyz.shape() else {
        return Err(Problem::NpyShape { dimensions: header.npyz.shape().len(), shape: header.shape() });
    };
    let expected = u128::from(header.length) + u128::from(rows) * u128::from(dim) * component.bytes() as u128;
    if expected != u128::from(length) {
        let (got, descr) = (u128::from(length), header.npyz.dtype().descr());
        return Err(Problem::NpyLength { expected, got, shape: header.shape(), descr });
    }
    if rows > MAX_ROWS {
        return Err(Problem::TooManyRows(rows));
    }
    let dim = checked_dim(dim)?;
    if rows == 0 {
        return Err(Problem::NoRows);
    }
    // Fits: the file is that long.
    let rows = rows as usize;
    let values = read_values(&mut file, component, rows * dim, on_progress)?;
    let values = match header.npyz.order() {
        npyz::Order::C => values,
        npyz::Order::Fortran => transpose(&values, rows, dim),
    };
    Ok(Vectors::new(dim, values))
}

fn read_values(
    file: &mut File,
    component: Component,
    count: usize,
    on_progress: OnProgress<'_>,
) -> Result<Vec<f32>, Problem> {
    let total = (count * component.bytes()) as u64;
    let mut values = Vec::with_capacity(count);
    let mut buffer = vec![0; READ_BYTES];
    let mut left = count * component.bytes();
    while left > 0 {
        let part = &mut buffer[..left.min(READ_BYTES)];
        file.read_exact(part)?;
        component.decode(part, &mut values);
        left -= part.len();
        on_progress(Progress { stage: Stage::Reading, done: total - left as u64, total });
    }
    Ok(values)
}

/// Writes `f32[rows, cols]`; every row has `cols` values.
///
/// # Panics
/// If a row has another length.
pub fn write_f32<'a>(
    path: &Path,
    cols: usize,
    rows: impl ExactSizeIterator<Item = &'a [f32]>,
) -> Result<(), FormatError> {
    complete_f32(path, cols, rows)?.put_in_place()
}

/// Writes `i64[rows, cols]`; every row has `cols` values.
///
/// # Panics
/// If a row has another length.
pub fn write_i64<'a>(
    path: &Path,
    cols: usize,
    rows: impl ExactSizeIterator<Item = &'a [i64]>,
) -> Result<(), FormatError> {
    complete(path, cols, rows, i64::to_le_bytes)?.put_in_place()
}

/// As [`write_f32`], but the file does not have its name yet.
pub(super) fn complete_f32<'a>(
    path: &Path,
    cols: usize,
    rows: impl ExactSizeIterator<Item = &'a [f32]>,
) -> Result<Complete, FormatError> {
    complete(path, cols, rows, f32::to_le_bytes)
}

fn complete<'a, T: Copy + npyz::AutoSerialize + 'a, const BYTES: usize>(
    path: &Path,
    cols: usize,
    rows: impl ExactSizeIterator<Item = &'a [T]>,
    encode: impl Fn(T) -> [u8; BYTES],
) -> Result<Complete, FormatError> {
    let shape = [rows.len() as u64, cols as u64];
    let dtype = little_endian(T::default_dtype());
    Complete::write(path, |out| {
        let options = npyz::WriteOptions::<T>::new().dtype(dtype).shape(&shape).writer(&mut *out);
        options.write_header_only()?;
        let mut bytes = Vec::with_capacity(cols * BYTES);
        for row in rows {
            assert_eq!(row.len(), cols, "a row has as many values as there are columns");
            bytes.clear();
            bytes.extend(row.iter().flat_map(|value| encode(*value)));
            out.write_all(&bytes)?;
        }
        Ok(())
    })
}

/// The same type in the byte order that is written.
fn little_endian(dtype: npyz::DType) -> npyz::DType {
    let descr = dtype.descr().replace('>', "<");
    npyz::DType::parse(&descr).unwrap_or(dtype)
}

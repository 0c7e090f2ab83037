//! Components of a `.npy` file as `f32`.

use npyz::{DType, Endianness, TypeChar};

use crate::gallery::formats::Problem;

/// Rows and columns moved together when an array is transposed, so that both sides stay in the cache.
const TILE: usize = 32;

/// The type of an array's components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    width: Width,
    big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Half,
    Single,
    Double,
}

impl Component {
    /// The component type of an array, if it is a float of 16, 32 or 64 bits.
    pub(super) fn of(dtype: &DType) -> Result<Self, Problem> {
        if dtype.uses_pickled_array() {
            return Err(Problem::NpyPickle);
        }
        let DType::Plain(plain) = dtype else {
            return Err(Problem::NpyType(dtype.descr()));
        };
        let width = match (plain.type_char(), plain.size_field()) {
            (TypeChar::Float, 2) => Width::Half,
            (TypeChar::Float, 4) => Width::Single,
            (TypeChar::Float, 8) => Width::Double,
            _ => return Err(Problem::NpyType(dtype.descr())),
        };
        Ok(Self { width, big_endian: plain.endianness() == Endianness::Big })
    }

    /// Bytes of one component.
    pub(super) fn bytes(self) -> usize {
        match self.width {
            Width::Half => 2,
            Width::Single => 4,
            Width::Double => 8,
        }
    }

    /// Appends what `bytes`, whole components, hold.
    pub(super) fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        match (self.width, self.big_endian) {
            (Width::Half, false) => extend(bytes, values, |b| half(u16::from_le_bytes(b))),
            (Width::Half, true) => extend(bytes, values, |b| half(u16::from_be_bytes(b))),
            (Width::Single, false) => extend(bytes, values, f32::from_le_bytes),
            (Width::Single, true) => extend(bytes, values, f32::from_be_bytes),
            (Width::Double, false) => extend(bytes, values, |b| f64::from_le_bytes(b) as f32),
            (Width::Double, true) => extend(bytes, values, |b| f64::from_be_bytes(b) as f32),
        }
    }
}

fn extend<const BYTES: usize>(bytes: &[u8], values: &mut Vec<f32>, decode: impl Fn([u8; BYTES]) -> f32) {
    values.extend(bytes.as_chunks::<BYTES>().0.iter().map(|chunk| decode(*chunk)));
}

/// IEEE 754 binary16 as `f32`, exactly.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff);
    sign * match (exponent, bits & 0x3ff) {
        (0, _) => fraction * 2.0_f32.powi(-24),
        (0x1f, 0) => f32::INFINITY,
        (0x1f, _) => f32::NAN,
        (_, _) => (1024.0 + fraction) * 2.0_f32.powi(exponent - 25),
    }
}

/// `[rows, dim]` in C order of what stands in Fortran order.
pub(super) fn transpose(columns: &[f32], rows: usize, dim: usize) -> Vec<f32> {
    let mut values = vec![0.0; columns.len()];
    for first_row in (0..rows).step_by(TILE) {
        for first_column in (0..dim).step_by(TILE) {
            for row in first_row..rows.min(first_row + TILE) {
                for column in first_column..dim.min(first_column + TILE) {
                    values[row * dim + column] = columns[column * rows + row];
                }
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_exactly() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0xfc00, f32::NEG_INFINITY),
        ];
        for (bits, expected) in cases {
            assert_eq!(half(bits).to_bits(), f32::to_bits(expected), "{bits:#06x}");
        }
        assert_eq!(half(0x8000).to_bits(), (-0.0_f32).to_bits());
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn transposing_moves_every_value() {
        let (rows, dim) = (70, 45);
        let columns: Vec<f32> = (0..rows * dim).map(|i| i as f32).collect();
        let values = transpose(&columns, rows, dim);
        for row in 0..rows {
            for column in 0..dim {
                assert_eq!(values[row * dim + column].to_bits(), columns[column * rows + row].to_bits());
            }
        }
    }
}

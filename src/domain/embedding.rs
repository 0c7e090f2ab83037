//! An embedding: a finite, L2-normalised `float32[dim]`.
//!
//! Parsed once at the edge, so that everything behind it may rely on finite components and unit length.

use thiserror::Error;

/// Most components an embedding may have.
pub const MAX_DIM: usize = 4096;

/// A vector whose norm is this near to 1 keeps its bits.
const UNIT_TOLERANCE: f64 = 1e-5;

/// Under [`NormPolicy::RequireUnit`] a norm further than this from 1 is refused.
const REQUIRED_UNIT_TOLERANCE: f64 = 1e-3;

/// What happens to a vector that is not of unit length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormPolicy {
    /// It is normalised in `f64`.
    #[default]
    Normalise,
    /// It is refused if its norm is further than 1e-3 from 1, else normalised.
    RequireUnit,
}

/// Why a vector is not an embedding. Components are counted from 0.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum EmbeddingError {
    /// Another number of components than the gallery has.
    #[error("expected {expected} components, got {got}")]
    WrongDim {
        /// The gallery's dimension.
        expected: usize,
        /// The vector's.
        got: usize,
    },
    /// NaN or an infinity.
    #[error("expected finite components, got {value} at component {component}")]
    NotFinite {
        /// Which component.
        component: usize,
        /// Its value.
        value: f32,
    },
    /// Nothing but zeros: it has no direction.
    #[error("expected a direction, got the zero vector")]
    Zero,
    /// The gallery takes unit vectors only.
    #[error("expected a unit vector (norm within 1e-3 of 1), got norm {norm}")]
    NotUnit {
        /// The vector's L2 norm.
        norm: f64,
    },
}

/// A finite, L2-normalised `float32[dim]`, `1 <= dim <= MAX_DIM`.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding(Box<[f32]>);

impl Embedding {
    /// Checks and, where needed, normalises `values`.
    ///
    /// A vector whose norm is within 1e-5 of 1 keeps its bits; any other is divided by its norm in `f64`, each
    /// component rounded once, unless `policy` refuses it.
    pub fn parse(values: Vec<f32>, dim: usize, policy: NormPolicy) -> Result<Self, EmbeddingError> {
        if values.len() != dim {
            return Err(EmbeddingError::WrongDim { expected: dim, got: values.len() });
        }
        if is_surely_unit(&values) {
            return Ok(Self(values.into()));
        }
        if let Some(component) = values.iter().position(|v| !v.is_finite()) {
            return Err(EmbeddingError::NotFinite { component, value: values[component] });
        }
        // Components of `f32` squared neither overflow nor vanish in `f64`.
        let norm = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        if norm == 0.0 {
            return Err(EmbeddingError::Zero);
        }
        let off = (norm - 1.0).abs();
        if off <= UNIT_TOLERANCE {
            return Ok(Self(values.into()));
        }
        if policy == NormPolicy::RequireUnit && off > REQUIRED_UNIT_TOLERANCE {
            return Err(EmbeddingError::NotUnit { norm });
        }
        Ok(Self(values.into_iter().map(|v| (f64::from(v) / norm) as f32).collect()))
    }

    /// The components.
    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }

    /// The memory of the components, for the next ones.
    pub fn into_values(self) -> Vec<f32> {
        self.0.into_vec()
    }

    /// How many components.
    pub fn dim(&self) -> usize {
        self.0.len()
    }
}

/// Whether the norm is within the tolerance whatever the order of summation. Sums in lanes need not wait for each other, which counts where
/// galleries of millions are read.
fn is_surely_unit(values: &[f32]) -> bool {
    let mut lanes = [0.0_f64; 8];
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    let rest: f64 = rest.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    let square = lanes.iter().sum::<f64>() + rest;
    // Orders of summation differ by 1e-12 at most. NaN and infinities are not below anything.
    (square - 1.0).abs() < UNIT_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[f32]) -> Result<Embedding, EmbeddingError> {
        Embedding::parse(values.to_vec(), values.len(), NormPolicy::Normalise)
    }

    #[test]
    fn a_vector_of_nearly_unit_length_keeps_its_bits() {
        let nearly = [1.0 - 9e-6_f32, 0.0];
        assert_eq!(parse(&nearly).unwrap().as_slice(), nearly);
        assert_eq!(parse(&[1.0 - 2e-5, 0.0]).unwrap().as_slice(), [1.0, 0.0]);
    }

    #[test]
    fn tiny_and_huge_vectors_are_normalised_exactly() {
        for scale in [1e-40_f32, 1e-20, 1e20, 1e38] {
            let unit = parse(&[scale, scale]).unwrap();
            assert_eq!(unit.as_slice(), [std::f32::consts::FRAC_1_SQRT_2; 2], "scale {scale}");
        }
    }

    #[test]
    fn what_is_not_an_embedding_is_named() {
        assert_eq!(
            Embedding::parse(vec![1.0], 2, NormPolicy::Normalise),
            Err(EmbeddingError::WrongDim { expected: 2, got: 1 })
        );
        assert_eq!(
            parse(&[0.0, f32::INFINITY]),
            Err(EmbeddingError::NotFinite { component: 1, value: f32::INFINITY })
        );
        assert!(matches!(parse(&[f32::NAN, 1.0]), Err(EmbeddingError::NotFinite { component: 0, .. })));
        assert_eq!(parse(&[0.0, -0.0]), Err(EmbeddingError::Zero));
        let long = Embedding::parse(vec![1.01, 0.0], 2, NormPolicy::RequireUnit);
        assert!(matches!(long, Err(EmbeddingError::NotUnit { .. })), "{long:?}");
        let near = Embedding::parse(vec![1.0005, 0.0], 2, NormPolicy::RequireUnit).unwrap();
        assert_eq!(near.as_slice(), [1.0, 0.0]);
    }
}

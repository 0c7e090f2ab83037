//! What a gallery and a person are, beside their prototypes.

use crate::domain::{Margin, NormPolicy, Threshold};

/// The name of the gallery that is meant where none is named.
pub const DEFAULT_GALLERY: &str = "default";

/// What a gallery is, beside its prototypes.
#[derive(Clone, Debug, PartialEq)]
pub struct GalleryProfile {
    /// Its name.
    pub name: String,
    /// Components of an embedding.
    pub dim: usize,
    /// The model that made the embeddings; may be empty.
    pub model_id: String,
    /// What happens to vectors that are not of unit length.
    pub norm: NormPolicy,
    /// The gallery's own threshold.
    pub threshold: Option<Threshold>,
    /// The gallery's own least margin.
    pub min_margin: Option<Margin>,
    /// Rises with every change.
    pub generation: u64,
}

impl GalleryProfile {
    /// A gallery of its first generation with no settings of its own.
    pub fn named(name: &str, dim: usize) -> Self {
        Self {
            name: name.to_owned(),
            dim,
            model_id: String::new(),
            norm: NormPolicy::default(),
            threshold: None,
            min_margin: None,
            generation: 1,
        }
    }
}

/// A person, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The person's name.
    pub name: String,
    /// The person's own threshold.
    pub threshold: Option<Threshold>,
    /// The person's own least margin.
    pub min_margin: Option<Margin>,
}

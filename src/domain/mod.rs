//! The words of the product as types: what an embedding, a score, a threshold and a prototype are; and the [`bounds`] of a rate.
//!
//! Invariants: no I/O, no clock, no other module of this crate. A value of a type in here is valid; whoever holds an
//! [`Embedding`] need not ask whether it is finite.

pub mod bounds;
mod embedding;
mod kept;
mod matrix;
mod pages;
mod prototype;
mod score;
mod tuning;

pub use embedding::{Embedding, EmbeddingError, MAX_DIM, NormPolicy};
pub use kept::Kept;
pub use matrix::{Matrix, RowAlignment};
pub use pages::{advise_large_pages, return_free_pages, return_large_blocks};
pub use prototype::{NameError, Origin, Prototype, PrototypeKey, check_name, unprintable};
pub use score::{Scorer, by_rank, canonical_score, widened};
pub use tuning::{Margin, OutOfRange, Threshold, TopK};

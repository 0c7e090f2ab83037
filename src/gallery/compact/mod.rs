//! Columns that take few bytes: a gallery of millions keeps its names and numbers in them.
//!
//! Everything here lies in a few large blocks of memory. Small ones would cost more than what they hold, and once freed would stay with
//! the process: the system gets back whole large blocks only.

mod front_coded;
mod interner;
mod labels;
mod packed;
mod texts;

pub use front_coded::Text;
pub(super) use interner::Interner;
pub(super) use labels::Labels;
pub(super) use packed::Packed;
pub(super) use texts::Texts;

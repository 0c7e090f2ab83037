//! How well a gallery recognises: which prototypes to keep, which threshold and margin to set, who is confused with whom, and the proof.
//!
//! [`ask`] puts labelled embeddings to the recogniser, and [`standing`] says how each stands among the others. What is made of that is pure,
//! scores and labels in, figures out: [`validate`] judges decisions, [`select`] chooses prototypes,
//! [`calibrate`] finds a threshold and a margin,
//! [`cluster`] groups strangers,
//! [`audit`] tells what is doubtful, and [`conflict`] what would be.
//!
//! Invariants: scores are canonical and come from the engine, or within one identity from the same function; what a probe is taken for
//! is [`decision`](crate::recognize::decision)'s to say, here nothing is decided again; the same input gives the same output, and
//! random numbers come from a seed. No I/O.

pub mod ask;
pub mod audit;
pub mod calibrate;
pub mod cluster;
pub mod compare;
pub mod conflict;
pub mod pairs;
pub mod select;
pub mod standing;
pub mod validate;

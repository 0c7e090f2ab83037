//! The service as its callers see it: the real server over real gRPC, and the real program as a process of its own.
//!
//! One test binary for all of it, since linking the server takes long.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod agreement;
mod batching;
mod broken;
#[path = "../common/mod.rs"]
mod common;
mod engine;
mod explain;
mod faults;
mod lifecycle;
mod load;
mod margins;
mod program;
mod program_cache;
mod properties;
mod refusals;
mod shadow;
mod support;

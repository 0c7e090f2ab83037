//! Lookalike tells people apart from their lookalikes: exact face recognition over gRPC.
//!
//! `ARCHITECTURE.md` draws the map. Imports run one way:
//! `cli -> server -> grpc -> {quality, shadow} -> recognize -> engine -> backend -> gallery -> domain`, with `config` and `telemetry` beside them.

pub mod backend;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod gallery;
pub mod grpc;
pub mod quality;
pub mod recognize;
pub mod server;
pub mod shadow;
pub mod telemetry;

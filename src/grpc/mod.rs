//! The gRPC face: protocol in and out, nothing decided here.
//!
//! [`envelope`] is what every request passes through (id, span, deadline, counting); [`recognition`], [`operations`] and [`shadow`] are the
//! services; [`serving`] is what they share, the places for requests being answered among it; [`request`] parses, naming every fault by field path; [`reply`] writes; [`tokens`] says who may change
//! things; [`status`] is the one place
//! where errors become statuses.

pub mod envelope;
mod operations;
mod recognition;
mod reply;
mod request;
mod select;
mod serving;
mod shadow;
mod status;
mod tokens;

pub use operations::OperationsService;
pub use recognition::RecognitionService;
pub use serving::{Reloading, Serving, TURN_ON};
pub use shadow::ShadowService;
pub use tokens::{Tokens, TokensError};

/// The protocol's messages, services and their JSON mapping, as `build.rs` compiled them from `proto/`.
#[expect(clippy::pedantic, reason = "compiled from proto/, where the docs are")]
pub mod proto {
    tonic::include_proto!("lookalike.v1");
    include!(concat!(env!("OUT_DIR"), "/lookalike.v1.serde.rs"));

    /// The encoded descriptor set, for server reflection.
    pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lookalike_descriptor.bin"));
}

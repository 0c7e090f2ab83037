//! What operators see of the program: its metrics and its logs.
//!
//! Invariants: a metric's name stands in `metrics` alone; its labels' values are closed sets (`labels`), so that no caller can
//! misspell one or let a label grow with its input; nothing here ever carries an identity or an embedding, and
//! nothing is written to stdout. Recording (`record`) never fails, and does nothing where no
//! `recorder` is installed.

mod engines;
mod figures;
mod galleries;
mod labels;
mod logs;
mod metrics;
mod record;
mod recorder;

pub use engines::{
    BackendState, EngineMetrics, backend_failed, backend_state, batch_scanned, device_memory, enter_engine,
};
pub use figures::Figures;
pub use galleries::{GalleryFigures, GalleryGauges, GalleryLabel};
pub use labels::{
    BackendName, Bound, ChoiceReason, Code, DecisionKind, DropReason, FallbackReason, GateCondition, Label,
    Method, ProgramCacheResult, Role, RolloutChange, ShadowKind, Stage,
};
pub use logs::{LogError, init};
pub use metrics::{DECLARED, Declaration, Kind};
pub use record::{
    InFlight, backend_chosen, backend_described, decision_made, engine_panicked, fell_back, headroom,
    program_cache, queue_depth, request_done, score_bound_violations, shadow_breaker, shadow_changed,
    shadow_compared, shadow_dropped, shadow_gate, shadow_latency_ratio, shadow_open, shadow_open_failed,
    shadow_probe, shadow_promoted, shadow_queue_depth, shadow_sampling, stage_done, uncertified_scans,
};
pub use recorder::{MetricsHandle, install};

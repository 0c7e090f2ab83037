//! Settings: the values that the rest of the program may rely on, and how they are read.
//!
//! Invariants: defaults live in `config/lookalike.yaml` alone (compiled in); a [`Settings`] is valid; every fault of a
//! configuration is reported at once, by key path. YAML is spoken in `load` alone.

mod load;
mod model;
mod validate;

pub use load::{ConfigError, DEFAULTS, Problem, Sources, load};
pub use model::{
    BackendKind, BackendSettings, CpuSettings, DeviceChoice, Fallback, Limits, LogFormat, LogSettings,
    MetricsSettings, OpenClSettings, RecognitionSettings, ServerSettings, Settings, StorageSettings,
};

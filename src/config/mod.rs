//! Settings: the values that the rest of the program may rely on, and how they are read.
//!
//! Invariants: defaults live in `config/lookalike.yaml` alone (compiled in); a [`Settings`] is valid; every fault of a
//! configuration is reported at once, by key path. YAML is spoken in `load` alone.

mod document;
mod load;
mod model;
mod problem;
mod reader;
mod shadow;
#[cfg(test)]
mod tests;
mod tree;
mod validate;

pub use load::{DEFAULTS, OwnSetting, Sources, load};
pub use model::{
    BackendKind, BackendSettings, CacheDir, CpuSettings, DeviceChoice, Fallback, GateSettings, Instructions,
    Limits, LogFormat, LogSettings, MetricsSettings, OpenClScan, OpenClSettings, Prober, Promotion,
    RecognitionSettings, RecordSettings, ServerSettings, Settings, ShadowSettings, StorageSettings,
};
pub use problem::{ConfigError, Problem};

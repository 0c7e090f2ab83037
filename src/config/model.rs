//! The settings as validated: what each key of `config/lookalike.yaml` becomes. That file says what each one means.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::{Margin, Threshold};

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The gRPC side.
    pub server: ServerSettings,
    /// The HTTP side for operators.
    pub metrics: MetricsSettings,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Where galleries are kept.
    pub storage: StorageSettings,
    /// Defaults of decisions.
    pub recognition: RecognitionSettings,
    /// What scans.
    pub backend: BackendSettings,
    /// What is compared with it.
    pub shadow: ShadowSettings,
}

/// `server`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Where gRPC is served; loopback unless `server.allow_insecure` was set.
    pub listen: SocketAddr,
    /// The file of tokens that what changes the server asks for; `None`: it is done for whoever asks.
    pub tokens: Option<PathBuf>,
    /// How long requests in flight may go on after the stop signal.
    pub shutdown_grace: Duration,
    /// The bounds on requests.
    pub limits: Limits,
}

/// `server.limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request message.
    pub max_message_bytes: usize,
    /// Probes in a request.
    pub max_probes: usize,
    /// Neighbors a probe.
    pub max_top_k: usize,
    /// Neighbors a reply.
    pub max_neighbors: usize,
    /// Candidates a recognition.
    pub max_candidates: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// Requests being answered at once.
    pub max_in_flight: usize,
    /// Scans waiting for the backend.
    pub queue: usize,
}

/// `metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where `/metrics` is served; `None` for `off`.
    pub listen: Option<SocketAddr>,
    /// Whether gallery metrics carry the gallery's name.
    pub gallery_label: bool,
}

/// `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `tracing` directives.
    pub level: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// `storage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    /// The data folder.
    pub path: PathBuf,
}

/// `recognition`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecognitionSettings {
    /// Least score of the best identity.
    pub threshold: Threshold,
    /// Least lead of the best identity.
    pub margin: Margin,
    /// Neighbors that the command line asks for where nobody says.
    pub top_k: usize,
}

/// `backend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// Which backend answers.
    pub kind: BackendKind,
    /// What happens when OpenCL fails.
    pub fallback: Fallback,
    /// Most probes scanned together.
    pub batch_probes: usize,
    /// The CPU backend.
    pub cpu: CpuSettings,
    /// The OpenCL backend.
    pub opencl: OpenClSettings,
}

/// Which backend answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// OpenCL where a usable GPU is found, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// An OpenCL device.
    OpenCl,
    /// Plain `f64`, slow.
    Reference,
}

/// What happens when OpenCL is asked for and not to be had, or fails while serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The CPU answers.
    Cpu,
    /// The start, or the request, fails.
    Fail,
}

/// `backend.cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSettings {
    /// Threads that scan; 0 in the file has become the number of cores.
    pub threads: usize,
    /// The instructions of the quantised screen; `None`: the best there are.
    pub instructions: Option<Instructions>,
}

/// Instructions that the quantised screen of the CPU backend is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// x86-64: AVX-512 with VNNI.
    Avx512Vnni,
    /// x86-64: AVX2 with FMA.
    Avx2,
    /// aarch64: the dot product extension of NEON.
    NeonDot,
    /// Whatever the compiler may assume.
    Portable,
}

impl Instructions {
    /// All of them, the best of each architecture first.
    pub const ALL: [Self; 4] = [Self::Avx512Vnni, Self::Avx2, Self::NeonDot, Self::Portable];

    /// As the configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Avx512Vnni => "avx512vnni",
            Self::Avx2 => "avx2",
            Self::NeonDot => "neondot",
            Self::Portable => "portable",
        }
    }
}

/// `backend.opencl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenClSettings {
    /// Which device.
    pub device: DeviceChoice,
    /// Whether `auto` may take a device that is a CPU.
    pub allow_cpu_devices: bool,
    /// Most rows of one buffer; 0: as many as the device allows where they stay there, else 50 000.
    pub chunk_rows: usize,
    /// Whether a device that has the host's memory scans rows where they are.
    pub zero_copy: bool,
    /// Most bytes of device memory for rows; `None`: three quarters of the device's.
    pub memory_limit_bytes: Option<u64>,
    /// How it scans.
    pub scan: OpenClScan,
    /// Whether the driver times every kernel.
    pub profiling: bool,
    /// A folder with kernels; `None`: the built-in ones.
    pub kernel_dir: Option<PathBuf>,
    /// Where what was found out about devices, compiled kernels among it, is kept.
    pub cache_dir: CacheDir,
    /// How long the process that tries a device may take.
    pub probe_timeout: Duration,
    /// How long a device may take for a batch; ten times as long to get ready for a gallery.
    pub timeout: Duration,
    /// Where devices are tried. No key of the file: the program sets it, tests and other users of the library are left alone.
    pub prober: Prober,
    /// Rows a probe that kernels are compiled for as soon as a gallery is loaded; `None`: they are when first needed. No key of the file:
    /// a server sets it to `recognition.top_k`, a command that scans once does not.
    pub warm_up_top_k: Option<usize>,
}

/// Where what was found out about devices, compiled kernels among it, is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheDir {
    /// In the user's cache folder, if there is one.
    Auto,
    /// Nowhere.
    Off,
    /// In this folder.
    Folder(PathBuf),
}

/// Where devices are tried before one is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prober {
    /// In this process, which a bad driver takes with it.
    ThisProcess,
    /// In a process of this program, which understands `probe-opencl`.
    Program(PathBuf),
}

/// How a device scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenClScan {
    /// As suits it.
    Auto,
    /// Lists that work-items keep, in `f32`.
    Lanes,
    /// Tiles of bytes.
    Bytes,
    /// Tiles of `f32`.
    Floats,
}

/// Which OpenCL device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU.
    Auto,
    /// Every GPU, each for a share of the rows.
    All,
    /// The first whose name or platform's name contains this, in any case.
    Named(String),
    /// By place: the platform in the loader's list, the device in the platform's.
    Numbered {
        /// The platform's place.
        platform: usize,
        /// The device's place.
        device: usize,
    },
}

/// `shadow`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowSettings {
    /// Whether there is a shadow.
    pub enabled: bool,
    /// What it scans with; another backend than the one configured, if it is enabled.
    pub backend: BackendKind,
    /// The share of requests that it answers too, 0 to 1.
    pub sampling: f64,
    /// Probes that may wait for it.
    pub queue: usize,
    /// How long it may take for a request.
    pub timeout: Duration,
    /// Differences of scores that are no difference, in cosine similarity.
    pub score_tolerance: f32,
    /// Who makes it the primary.
    pub promote: Promotion,
    /// What is kept of disagreements.
    pub record: RecordSettings,
    /// What it must fulfil to become the primary.
    pub gate: GateSettings,
}

/// Who makes the shadow the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// An operator.
    Manual,
    /// The service itself, once the gate is met.
    Automatic,
}

/// `shadow.record`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSettings {
    /// The folder; `None`: nothing is kept on disk.
    pub path: Option<PathBuf>,
    /// Most bytes of a file of disagreements; there are two.
    pub max_bytes: u64,
    /// Whether they hold the probes' embeddings.
    pub embeddings: bool,
}

/// `shadow.gate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSettings {
    /// Least comparisons.
    pub min_comparisons: u64,
    /// Most that the rate of hard disagreements can be, with 95 % confidence.
    pub max_hard_rate: f64,
    /// Largest share of comparisons in which order or scores differed.
    pub max_soft_ratio: f64,
    /// Largest share of probes that ended in an error or in no answer.
    pub max_failure_ratio: f64,
    /// Largest share of sampled probes that were dropped.
    pub max_drop_ratio: f64,
    /// Largest ratio of the shadow's 99th percentile of latency to the primary's.
    pub max_latency_ratio: f64,
}

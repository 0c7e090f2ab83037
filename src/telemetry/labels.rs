//! The closed sets of values that labels may take.

/// A label's values: a closed set.
pub trait Label: Copy + 'static {
    /// Every value.
    const ALL: &'static [Self];

    /// The value as it stands in a metric.
    fn as_str(self) -> &'static str;
}

/// Declares closed sets: each value once, with its name.
macro_rules! closed_sets {
    ($($(#[$set_doc:meta])* $set:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)+ })+) => {$(
        $(#[$set_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $set {
            $($(#[$doc])* $value,)+
        }

        impl Label for $set {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }
    )+};
}

closed_sets! {
    /// What was called.
    Method {
        /// `lookalike.v1.Recognition/Search`.
        Search = "Recognition/Search",
        /// `lookalike.v1.Recognition/Recognize`.
        Recognize = "Recognition/Recognize",
        /// `lookalike.v1.Recognition/Explain`.
        Explain = "Recognition/Explain",
        /// `lookalike.v1.Recognition/SelectPrototypes`.
        SelectPrototypes = "Recognition/SelectPrototypes",
        /// `lookalike.v1.Operations/GetInfo`.
        GetInfo = "Operations/GetInfo",
        /// `lookalike.v1.Operations/Reload`.
        Reload = "Operations/Reload",
        /// `lookalike.v1.Shadow/GetReport`.
        ShadowReport = "Shadow/GetReport",
        /// `lookalike.v1.Shadow/ListDisagreements`.
        ShadowList = "Shadow/ListDisagreements",
        /// `lookalike.v1.Shadow/WatchDisagreements`.
        ShadowWatch = "Shadow/WatchDisagreements",
        /// `lookalike.v1.Shadow/Replay`.
        ShadowReplay = "Shadow/Replay",
        /// `lookalike.v1.Shadow/SetSampling`.
        ShadowSampling = "Shadow/SetSampling",
        /// `lookalike.v1.Shadow/Promote`.
        ShadowPromote = "Shadow/Promote",
        /// `lookalike.v1.Shadow/Demote`.
        ShadowDemote = "Shadow/Demote",
        /// `grpc.health.v1.Health/Check`.
        HealthCheck = "Health/Check",
        /// `grpc.health.v1.Health/Watch`.
        HealthWatch = "Health/Watch",
        /// Server reflection, v1 or v1alpha.
        Reflection = "Reflection",
        /// Anything else, known or not.
        Other = "other",
    }

    /// How a call ended: gRPC's status codes.
    Code {
        /// 0.
        Ok = "ok",
        /// 1.
        Cancelled = "cancelled",
        /// 2, and every number that is no code.
        Unknown = "unknown",
        /// 3.
        InvalidArgument = "invalid_argument",
        /// 4.
        DeadlineExceeded = "deadline_exceeded",
        /// 5.
        NotFound = "not_found",
        /// 6.
        AlreadyExists = "already_exists",
        /// 7.
        PermissionDenied = "permission_denied",
        /// 8.
        ResourceExhausted = "resource_exhausted",
        /// 9.
        FailedPrecondition = "failed_precondition",
        /// 10.
        Aborted = "aborted",
        /// 11.
        OutOfRange = "out_of_range",
        /// 12.
        Unimplemented = "unimplemented",
        /// 13.
        Internal = "internal",
        /// 14.
        Unavailable = "unavailable",
        /// 15.
        DataLoss = "data_loss",
        /// 16.
        Unauthenticated = "unauthenticated",
    }

    /// Where the time of a request goes.
    Stage {
        /// Waiting for the backend.
        Queue = "queue",
        /// The backend's fast scan.
        Scan = "scan",
        /// Exact scores and certificates.
        Verify = "verify",
        /// From scores to decisions.
        Decide = "decide",
    }

    /// What a recognition concluded.
    DecisionKind {
        /// Named.
        Recognized = "recognized",
        /// The best score fell short.
        BelowThreshold = "below_threshold",
        /// The lead over the next identity fell short.
        Ambiguous = "ambiguous",
        /// Nothing to compare with.
        NoCandidate = "no_candidate",
        /// Another probe of the group holds the identity.
        Displaced = "displaced",
    }

    /// Which bound of a decision a headroom is measured from.
    Bound {
        /// Best score less threshold.
        Threshold = "threshold",
        /// Margin less least margin.
        Margin = "margin",
    }

    /// What scans.
    BackendName {
        /// The CPU.
        Cpu = "cpu",
        /// An OpenCL device.
        OpenCl = "opencl",
        /// Plain `f64`.
        Reference = "reference",
    }

    /// What an engine is to callers.
    Role {
        /// Its answers are returned.
        Primary = "primary",
        /// It is only compared.
        Shadow = "shadow",
    }

    /// What came of comparing the shadow with the primary for one probe, most serious first.
    ShadowKind {
        /// The shadow failed where the primary answered.
        Error = "error",
        /// The shadow gave no answer in time.
        Timeout = "timeout",
        /// They decided differently.
        Decision = "decision",
        /// They found different identities nearest.
        Identity = "identity",
        /// They found the same identity nearest, and other rows or another order behind it.
        Order = "order",
        /// A score was computed wrongly, whatever became of it.
        Score = "score",
        /// They differ by what the tolerance of scores explains.
        Borderline = "borderline",
        /// They say the same.
        Agree = "agree",
        /// The probe was sampled, and not compared for want of room.
        Dropped = "dropped",
    }

    /// Why a sampled probe was not compared.
    DropReason {
        /// `shadow.queue` probes wait already.
        QueueFull = "queue_full",
        /// The shadow failed again and again, and is left alone for a while.
        BreakerOpen = "breaker_open",
        /// Another backend stood in for the primary: there was nothing to compare.
        PrimaryStoodIn = "primary_stood_in",
        /// The shadow is stopping.
        Stopping = "stopping",
    }

    /// What the shadow must fulfil before it may become primary.
    GateCondition {
        /// Enough comparisons were made.
        Comparisons = "comparisons",
        /// No identity and no decision differed.
        Hard = "hard",
        /// The rate at which they might differ all the same is small enough.
        HardRate = "hard_rate",
        /// Orders and scores differed seldom enough.
        Soft = "soft",
        /// The shadow failed seldom enough.
        Failures = "failures",
        /// Few enough of the sampled probes were dropped.
        Drops = "drops",
        /// The shadow is fast enough.
        Latency = "latency",
    }

    /// How the rollout moved.
    RolloutChange {
        /// The shadow became primary.
        Promoted = "promoted",
        /// It was taken back.
        Demoted = "demoted",
    }

    /// What came of asking for a compiled kernel that may be kept on disk.
    ProgramCacheResult {
        /// It was there, and the driver took it.
        Hit = "hit",
        /// It was not there.
        Miss = "miss",
        /// It was made by another version of the driver, or the driver refused it.
        Stale = "stale",
        /// Its file is damaged or cannot be read.
        Corrupt = "corrupt",
        /// It was compiled, but could not be kept.
        Unwritable = "unwritable",
    }

    /// Why OpenCL does not answer though it was asked for or preferred.
    FallbackReason {
        /// No OpenCL library on this machine.
        NoLoader = "no_loader",
        /// The library knows of no platform.
        NoPlatform = "no_platform",
        /// No device is a GPU, and others are not allowed.
        NoGpu = "no_gpu",
        /// No device is the one that the configuration names.
        NoMatch = "no_match",
        /// The driver crashed when it was tried.
        ProbeCrashed = "probe_crashed",
        /// The driver gave no answer in time when it was tried.
        ProbeTimedOut = "probe_timed_out",
        /// The driver could not be tried.
        ProbeFailed = "probe_failed",
        /// The device failed its self-test.
        SelfTest = "self_test",
        /// The driver reported an error.
        DeviceError = "device_error",
        /// The device gave no answer in time.
        DeviceTimedOut = "device_timed_out",
        /// The thread that owned the device has ended.
        DeviceEnded = "device_ended",
        /// The device computed wrongly.
        DeviceWrong = "device_wrong",
        /// A kernel is missing or does not compile.
        KernelError = "kernel_error",
        /// The device cannot hold what it must.
        OutOfMemory = "out_of_memory",
    }
}

/// Why the backend in use was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// The configuration names it.
    Configured,
    /// A usable GPU was found.
    GpuFound,
    /// A usable GPU was found, and the CPU was faster for every batch.
    CpuFaster,
    /// Shadow mode let it answer in the configured one's place.
    Promoted,
    /// OpenCL is not to be had.
    Fallback(FallbackReason),
}

impl Label for ChoiceReason {
    const ALL: &'static [Self] = &[
        Self::Configured,
        Self::GpuFound,
        Self::CpuFaster,
        Self::Promoted,
        Self::Fallback(FallbackReason::NoLoader),
        Self::Fallback(FallbackReason::NoPlatform),
        Self::Fallback(FallbackReason::NoGpu),
        Self::Fallback(FallbackReason::NoMatch),
        Self::Fallback(FallbackReason::ProbeCrashed),
        Self::Fallback(FallbackReason::ProbeTimedOut),
        Self::Fallback(FallbackReason::ProbeFailed),
        Self::Fallback(FallbackReason::SelfTest),
        Self::Fallback(FallbackReason::DeviceError),
        Self::Fallback(FallbackReason::DeviceTimedOut),
        Self::Fallback(FallbackReason::DeviceEnded),
        Self::Fallback(FallbackReason::DeviceWrong),
        Self::Fallback(FallbackReason::KernelError),
        Self::Fallback(FallbackReason::OutOfMemory),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::GpuFound => "gpu_found",
            Self::CpuFaster => "cpu_faster",
            Self::Promoted => "promoted",
            Self::Fallback(reason) => reason.as_str(),
        }
    }
}

impl Method {
    /// The method that a request's path (`/package.Service/Method`) names.
    pub fn from_path(path: &str) -> Self {
        match path {
            "/lookalike.v1.Recognition/Search" => Self::Search,
            "/lookalike.v1.Recognition/Recognize" => Self::Recognize,
            "/lookalike.v1.Recognition/Explain" => Self::Explain,
            "/lookalike.v1.Recognition/SelectPrototypes" => Self::SelectPrototypes,
            "/lookalike.v1.Operations/GetInfo" => Self::GetInfo,
            "/lookalike.v1.Operations/Reload" => Self::Reload,
            "/lookalike.v1.Shadow/GetReport" => Self::ShadowReport,
            "/lookalike.v1.Shadow/ListDisagreements" => Self::ShadowList,
            "/lookalike.v1.Shadow/WatchDisagreements" => Self::ShadowWatch,
            "/lookalike.v1.Shadow/Replay" => Self::ShadowReplay,
            "/lookalike.v1.Shadow/SetSampling" => Self::ShadowSampling,
            "/lookalike.v1.Shadow/Promote" => Self::ShadowPromote,
            "/lookalike.v1.Shadow/Demote" => Self::ShadowDemote,
            "/grpc.health.v1.Health/Check" => Self::HealthCheck,
            "/grpc.health.v1.Health/Watch" => Self::HealthWatch,
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Self::Reflection,
            _ => Self::Other,
        }
    }
}

impl From<i32> for Code {
    /// The code with this number on the wire; as gRPC has it, a number that is no code means unknown.
    fn from(number: i32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|number| Self::ALL.get(number))
            .copied()
            .unwrap_or(Self::Unknown)
    }
}

impl BackendName {
    /// The backend of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|backend| backend.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names<L: Label>() -> Vec<&'static str> {
        L::ALL.iter().map(|label| label.as_str()).collect()
    }

    #[test]
    fn the_names_of_a_set_differ_and_are_lower_case_words() {
        for set in [
            names::<Code>(),
            names::<Stage>(),
            names::<DecisionKind>(),
            names::<Bound>(),
            names::<BackendName>(),
            names::<ProgramCacheResult>(),
            names::<ChoiceReason>(),
            names::<ShadowKind>(),
            names::<GateCondition>(),
            names::<RolloutChange>(),
            names::<Role>(),
            names::<DropReason>(),
        ] {
            assert_eq!(set.iter().collect::<BTreeSet<_>>().len(), set.len(), "{set:?}");
            assert!(
                set.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
                "{set:?}"
            );
        }
        assert_eq!(names::<Method>().iter().collect::<BTreeSet<_>>().len(), Method::ALL.len());
    }

    #[test]
    fn every_fallback_is_a_choice_too() {
        assert!(names::<ChoiceReason>().ends_with(&names::<FallbackReason>()));
    }

    #[test]
    fn codes_go_by_their_numbers_on_the_wire() {
        assert_eq!(Code::ALL.len(), 17);
        for (number, code) in [
            (0, Code::Ok),
            (3, Code::InvalidArgument),
            (4, Code::DeadlineExceeded),
            (8, Code::ResourceExhausted),
            (16, Code::Unauthenticated),
            (17, Code::Unknown),
            (-1, Code::Unknown),
            (i32::MAX, Code::Unknown),
        ] {
            assert_eq!(Code::from(number), code, "{number}");
        }
    }

    #[test]
    fn paths_outside_the_set_are_other() {
        for (path, method) in [
            ("/lookalike.v1.Recognition/Search", Method::Search),
            ("/lookalike.v1.Recognition/Recognize", Method::Recognize),
            ("/lookalike.v1.Recognition/Explain", Method::Explain),
            ("/lookalike.v1.Recognition/SelectPrototypes", Method::SelectPrototypes),
            ("/lookalike.v1.Operations/GetInfo", Method::GetInfo),
            ("/grpc.health.v1.Health/Check", Method::HealthCheck),
            ("/grpc.health.v1.Health/Watch", Method::HealthWatch),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Method::Reflection),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Method::Reflection),
            ("/lookalike.v1.Recognition/search", Method::Other),
            ("lookalike.v1.Recognition/Search", Method::Other),
            ("/", Method::Other),
            ("", Method::Other),
        ] {
            assert_eq!(Method::from_path(path), method, "{path}");
        }
    }

    #[test]
    fn backends_are_found_by_their_names() {
        assert_eq!(BackendName::named("opencl"), Some(BackendName::OpenCl));
        assert_eq!(BackendName::named("auto"), None);
    }
}

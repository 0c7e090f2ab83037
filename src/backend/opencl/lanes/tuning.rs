//! What suits a kind of device, as data: measured where it says so, else chosen to be sane.

use crate::backend::opencl::choose::DeviceKind;

/// How work is laid over a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::opencl) struct Tuning {
    /// Most probes that lie interleaved in memory; a power of two. Work-items of a GPU's warp read in step, so neighbours
    /// should read neighbouring addresses; a core of a CPU reads one probe at a time, and wants it in one piece (with
    /// probes apart by 16, PoCL took four times as long for 100 000 x 128 rows and 256 probes).
    pub(in crate::backend::opencl) probe_tile: usize,
    /// Work-items that each compute unit should have: on a GPU what hides its memory's latency, on a CPU what can be shared
    /// out evenly.
    pub(in crate::backend::opencl) unit_items: usize,
    /// Most segments whose work-items form one group; a power of two. A GPU's group would be too small with few probes; a
    /// CPU's groups are what its cores share.
    pub(in crate::backend::opencl) group_segments: usize,
}

impl Tuning {
    /// For devices that run thousands of work-items at once.
    pub(in crate::backend::opencl) const WIDE: Self =
        Self { probe_tile: 16, unit_items: 2048, group_segments: 16 };

    /// For a few cores.
    pub(in crate::backend::opencl) const NARROW: Self =
        Self { probe_tile: 1, unit_items: 64, group_segments: 1 };

    /// For a kind of device.
    pub(in crate::backend::opencl) fn of(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Gpu | DeviceKind::Accelerator => Self::WIDE,
            DeviceKind::Cpu | DeviceKind::Other => Self::NARROW,
        }
    }
}

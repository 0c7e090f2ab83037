//! What suits a device, as data: as `lookalike tune` found it there, else by its kind.

use serde::{Deserialize, Serialize};

use crate::backend::opencl::choose::DeviceKind;

use super::variant::{Block, Dot, Lanes, ProbeTile, Single, Strategy, Variant, Width};

/// Launches of up to so many probes are made with [`Tuning::few`].
pub(in crate::backend::opencl) const FEW_PROBES: usize = 4;

/// How work is laid over a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::opencl) struct Tuning {
    /// Scans up to [`FEW_PROBES`] probes.
    pub(in crate::backend::opencl) few: Variant,
    /// Scans more.
    pub(in crate::backend::opencl) many: Variant,
    /// Work-items that each compute unit should have: on a GPU what hides its memory's latency, on a CPU what can be shared
    /// out evenly.
    pub(in crate::backend::opencl) unit_items: usize,
    /// Work-items of a group that is aimed at: several warps of any GPU; a CPU's groups are what its cores share.
    pub(in crate::backend::opencl) group_items: usize,
}

impl Tuning {
    /// For devices that run thousands of work-items at once.
    pub(in crate::backend::opencl) const WIDE: Self = {
        // Of 4, 8, 16 and 32 lanes 8 were fastest on a Mali-G610 (9.60, 10.57, 4.04, 1.49 GOP/s).
        let variant = Variant {
            lanes: Lanes::Eight,
            strategy: Strategy::ThresholdMinReplace,
            dot: Dot::Single(Single::FLOAT4),
        };
        Self { few: variant, many: variant, unit_items: 2048, group_items: 128 }
    };

    /// For a few cores, with PoCL.
    pub(in crate::backend::opencl) const NARROW: Self = {
        let lanes = Lanes::One;
        let strategy = Strategy::ThresholdMinReplace;
        let single = Single { width: Width::BothEight, tile: ProbeTile::One, ..Single::FLOAT4 };
        Self {
            few: Variant { lanes, strategy, dot: Dot::Single(single) },
            many: Variant { lanes, strategy, dot: Dot::Block(Block::FOUR_BY_SIXTEEN) },
            unit_items: 2,
            group_items: 1,
        }
    };

    /// For a kind of device.
    pub(in crate::backend::opencl) fn of(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Gpu | DeviceKind::Accelerator => Self::WIDE,
            DeviceKind::Cpu | DeviceKind::Other => Self::NARROW,
        }
    }

    /// What scans so many probes at once.
    pub(in crate::backend::opencl) fn variant(&self, probes: usize) -> Variant {
        if probes <= FEW_PROBES { self.few } else { self.many }
    }
}

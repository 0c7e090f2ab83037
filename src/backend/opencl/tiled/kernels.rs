//! The kernels of this scan, and how its work is laid over a device.

use crate::backend::opencl::choose::DeviceKind;
use crate::backend::opencl::driver::device::{Device, Range};
use crate::backend::opencl::program::Recipe;
use crate::config::OpenClScan;

/// Rows of a list of found rows, a probe.
pub(super) const CAPACITY: usize = 4096;

/// Rows of a probe whose canonical scores are computed, at most.
const SURVIVORS: usize = 1024;

/// Work-items of a group that ranks.
const RANK_ITEMS: usize = 256;

/// Work-items that quantise a probe.
const PROBE_ITEMS: usize = 32;

/// Work-items of a group of `quantize_rows` and `begin_scan`.
pub(super) const PLAIN_ITEMS: usize = 64;

/// Rows of a panel, and probes of a tile, of bytes.
pub(super) const PANEL: usize = 16;
pub(super) const TILE: usize = 8;

/// Components of a step of bytes.
pub(super) const STEP: usize = 32;

/// Work-items of a group of floats, one way: 8 x 8 took 0.69 ms for 350 000 x 256 on an H200, 16 x 16 0.76 ms, since more groups than one
/// fit a processor at a time.
const ACROSS: usize = 8;

/// Rows, and probes, of a tile of floats.
const SIDE: usize = ACROSS * 8;

/// Components that a group of floats holds at a time: 16 took 0.76 ms.
const DEPTH: usize = 8;

/// Rows that a sample lets through, about: more take longer to note, fewer a larger sample. In bytes the interval of a score lets
/// through a few times as many.
const FOUND_IN_BYTES: usize = 384;
const FOUND_IN_FLOATS: usize = 1024;

/// The first compute capability of NVIDIA devices with `mma.sync` of m16n8k32 bytes.
const MATRIX_UNITS: (u32, u32) = (8, 0);

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::opencl) enum Arithmetic {
    /// Bytes, on NVIDIA's matrix units.
    Matrix,
    /// Bytes, by a stand-in for the matrix units: slow, on any device, for tests of all that is around it.
    StandIn,
    /// `f32`.
    Floats,
}

impl Arithmetic {
    /// What a device does as the settings wish; `None` where that is not this scan, or where it has no `f64`, for the last step.
    pub(in crate::backend::opencl) fn of(device: &Device, wish: OpenClScan) -> Option<Self> {
        let matrix_units = device.compute_capability() >= MATRIX_UNITS;
        let wide = matches!(device.record().kind, DeviceKind::Gpu | DeviceKind::Accelerator);
        let arithmetic = match wish {
            OpenClScan::Auto if !wide => None,
            OpenClScan::Auto | OpenClScan::Bytes if matrix_units => Some(Self::Matrix),
            OpenClScan::Auto | OpenClScan::Floats => Some(Self::Floats),
            OpenClScan::Bytes => Some(Self::StandIn),
            OpenClScan::Lanes => None,
        };
        arithmetic.filter(|_| device.has_doubles())
    }

    /// Whether rows are needed in bytes.
    pub(in crate::backend::opencl) fn wants_bytes(self) -> bool {
        match self {
            Self::Matrix | Self::StandIn => true,
            Self::Floats => false,
        }
    }
}

/// A kernel of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    QuantizeRows,
    QuantizeProbes,
    BeginScan,
    Sample,
    SetCuts,
    Collect,
    Choose,
}

impl Role {
    pub(super) const ALL: [Self; 7] = [
        Self::QuantizeRows,
        Self::QuantizeProbes,
        Self::BeginScan,
        Self::Sample,
        Self::SetCuts,
        Self::Collect,
        Self::Choose,
    ];
}

/// How probes are laid over the warps of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    panels: usize,
    tiles: usize,
    probe_warps: usize,
    row_warps: usize,
}

impl Shape {
    pub(super) const ALL: [Self; 6] = [
        Self { panels: 4, tiles: 1, probe_warps: 1, row_warps: 8 },
        Self { panels: 2, tiles: 2, probe_warps: 1, row_warps: 8 },
        Self { panels: 2, tiles: 4, probe_warps: 1, row_warps: 8 },
        Self { panels: 2, tiles: 4, probe_warps: 2, row_warps: 4 },
        Self { panels: 2, tiles: 4, probe_warps: 4, row_warps: 2 },
        Self { panels: 2, tiles: 4, probe_warps: 8, row_warps: 1 },
    ];

    /// The narrowest that takes so many probes, else the widest.
    pub(super) fn new(probes: usize) -> Self {
        Self::ALL.into_iter().find(|shape| shape.probes() >= probes).unwrap_or(Self::ALL[Self::ALL.len() - 1])
    }

    /// Probes of a group.
    pub(super) fn probes(self) -> usize {
        self.tiles * TILE * self.probe_warps
    }

    fn items(self) -> usize {
        self.probe_warps * self.row_warps * 32
    }
}

/// What the kernels of a scan are compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    pub(super) arithmetic: Arithmetic,
    /// Values of a row, padding included.
    pub(super) stride: usize,
    pub(super) shape: Shape,
}

impl Parameters {
    /// How to build a kernel.
    pub(super) fn recipe(self, role: Role) -> Recipe {
        let floats = self.arithmetic == Arithmetic::Floats;
        let (files, function): (&'static [&'static str], _) = match role {
            Role::QuantizeRows => (&["quantize.cl"], "quantize_rows"),
            Role::QuantizeProbes => (&["quantize.cl"], "quantize_probes"),
            Role::Sample if floats => (&["skip.cl", "found.cl", "floats.cl"], "sample_floats"),
            Role::Sample => (&["skip.cl", "found.cl", "bytes.cl"], "sample_bytes"),
            Role::Collect if floats => (&["skip.cl", "found.cl", "floats.cl"], "collect_floats"),
            Role::Collect => (&["skip.cl", "found.cl", "bytes.cl"], "collect_bytes"),
            Role::BeginScan => (&["rank.cl", "choose.cl"], "begin_scan"),
            Role::SetCuts => (&["rank.cl", "choose.cl"], "set_cuts"),
            Role::Choose => (&["rank.cl", "choose.cl"], "choose"),
        };
        let mut parameters = vec![("DIM", self.stride as u32)];
        match role {
            Role::QuantizeRows | Role::QuantizeProbes => {}
            Role::Sample | Role::Collect if floats => {
                let numbers =
                    [("CAPACITY", CAPACITY), ("ACROSS", ACROSS), ("DOWN", ACROSS), ("DEPTH", DEPTH)];
                parameters.extend(numbers.map(|(name, value)| (name, value as u32)));
            }
            Role::Sample | Role::Collect => {
                let Shape { panels, tiles, probe_warps, row_warps } = self.shape;
                let numbers = [
                    ("CAPACITY", CAPACITY),
                    ("PANELS", panels),
                    ("TILES", tiles),
                    ("PROBE_WARPS", probe_warps),
                    ("ROW_WARPS", row_warps),
                    ("PTX", 1),
                ];
                parameters.extend(numbers.map(|(name, value)| (name, value as u32)));
                if self.arithmetic == Arithmetic::StandIn {
                    parameters.pop();
                }
            }
            Role::BeginScan | Role::SetCuts | Role::Choose => {
                let numbers = [("CAPACITY", CAPACITY), ("SURVIVORS", SURVIVORS)];
                parameters.extend(numbers.map(|(name, value)| (name, value as u32)));
                if floats {
                    parameters.push(("FLOATS", 1));
                }
            }
        }
        // Bounds are proven of the operations as they are written: nothing is relaxed.
        Recipe { files, function, parameters, flags: "-cl-std=CL1.2" }
    }
}

/// What part of the rows is scored first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Of every so many sets of rows one is taken.
    pub(super) stride: usize,
    /// Sets that each warp, or group, takes.
    pub(super) rounds: usize,
    /// The work-items.
    pub(super) range: Range,
    /// Best scores that each probe gets.
    pub(super) maxima: usize,
    /// More of the sample than this, from the top, hardly ever belong to the first k of all rows.
    pub(super) guess: usize,
}

/// The rows and probes of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) arithmetic: Arithmetic,
    pub(super) shape: Shape,
    pub(super) rows: usize,
    pub(super) probes: usize,
    /// Processors of the device.
    pub(super) units: usize,
}

impl Work {
    /// How many groups take the probes side by side.
    fn probe_groups(&self) -> usize {
        match self.arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => self.probes.div_ceil(self.shape.probes()),
            Arithmetic::Floats => self.probes.div_ceil(SIDE),
        }
    }

    /// The sample for `k` rows a probe; `None` where lists have room for all rows anyway.
    pub(super) fn sample(&self, k: usize) -> Option<Sample> {
        if self.rows <= CAPACITY {
            return None;
        }
        // The k-th best of the sample lets about k rows through for each row of it. Scores of a sample are held against each other in
        // groups of rows; with many more groups than k, few of the best fall into one.
        let found = if self.arithmetic.wants_bytes() { FOUND_IN_BYTES } else { FOUND_IN_FLOATS };
        let sampled = (self.rows.saturating_mul(k) / found.max(2 * k)).clamp(PANEL, self.rows);
        let wanted = (16 * k).clamp(512, CAPACITY);
        // A unit: rows that one warp, or group, scores at a time; each has so many groups of rows that are held against each other.
        let (unit_rows, unit_maxima, unit_groups) = match self.arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => (self.shape.panels * PANEL, 8, self.shape.row_warps),
            Arithmetic::Floats => (SIDE, ACROSS, 1),
        };
        let units = wanted.div_ceil(unit_maxima * unit_groups);
        let most = CAPACITY / (unit_maxima * unit_groups);
        let spread = match self.arithmetic {
            // Each takes more warps than one group fills.
            Arithmetic::Matrix | Arithmetic::StandIn => self.units / self.probe_groups(),
            // Groups are small: so many that each scores one set.
            Arithmetic::Floats => sampled.div_ceil(unit_rows),
        };
        let groups = units.max(spread).clamp(1, most);
        let rounds = sampled.div_ceil(groups * unit_groups * unit_rows).max(1);
        let sets = self.rows.div_ceil(unit_rows);
        Some(Sample {
            guess: guess(k, groups * unit_groups * rounds * unit_rows, self.rows),
            stride: (sets / (groups * unit_groups * rounds)).max(1),
            rounds,
            range: self.range(groups),
            maxima: groups * unit_groups * unit_maxima,
        })
    }

    /// The work-items that score all rows.
    pub(super) fn collect_range(&self) -> Range {
        match self.arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => {
                let sets = self.rows.div_ceil(self.shape.panels * PANEL * self.shape.row_warps);
                self.range((self.units * 2).div_ceil(self.probe_groups()).min(sets).max(1))
            }
            Arithmetic::Floats => self.range(self.rows.div_ceil(SIDE)),
        }
    }

    /// So many groups over the rows.
    fn range(&self, groups: usize) -> Range {
        match self.arithmetic {
            Arithmetic::Matrix | Arithmetic::StandIn => {
                let items = self.shape.items();
                Range { global: [groups * items, self.probe_groups(), 1], local: [items, 1, 1] }
            }
            Arithmetic::Floats => {
                let items = ACROSS * ACROSS;
                Range { global: [groups * self.probe_groups() * items, 1, 1], local: [items, 1, 1] }
            }
        }
    }
}

/// Of so many sampled rows of all, which hold `k * sampled / rows` of the first k on average, as many as they hold once in a million
/// times: five standard deviations more, and six for the skew of small numbers.
fn guess(k: usize, sampled: usize, rows: usize) -> usize {
    let mean = k.saturating_mul(sampled).div_ceil(rows);
    k.min(mean + 5 * mean.isqrt() + 6)
}

/// One work-group of ranking a probe.
pub(super) fn rank_range(probes: usize) -> Range {
    Range { global: [probes * RANK_ITEMS, 1, 1], local: [RANK_ITEMS, 1, 1] }
}

/// One work-group of quantising a probe.
pub(super) fn probe_range(probes: usize) -> Range {
    Range { global: [probes * PROBE_ITEMS, 1, 1], local: [PROBE_ITEMS, 1, 1] }
}

/// One work-item each.
pub(super) fn plain_range(items: usize) -> Range {
    Range { global: [items.next_multiple_of(PLAIN_ITEMS), 1, 1], local: [PLAIN_ITEMS, 1, 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lies_within_the_rows_and_its_best_scores_fit() {
        for arithmetic in [Arithmetic::StandIn, Arithmetic::Floats] {
            for rows in [1, CAPACITY, CAPACITY + 1, 9001, 350_000, 40_000_000] {
                for (probes, k, units) in [(1, 1, 1), (16, 32, 132), (256, 32, 132), (1024, 512, 4)] {
                    let shape = Shape::new(probes);
                    let Some(sample) = (Work { arithmetic, shape, rows, probes, units }).sample(k) else {
                        assert!(rows <= CAPACITY, "{rows} rows");
                        continue;
                    };
                    let what = format!("{arithmetic:?}, {rows} rows, {probes} probes, k {k}: {sample:?}");
                    assert!(rows > CAPACITY && sample.maxima <= CAPACITY && sample.guess <= k, "{what}");
                    assert!(sample.maxima >= 4 * k || sample.maxima > CAPACITY / 2, "{what}");
                    let (unit_rows, unit_maxima) = match arithmetic {
                        Arithmetic::Floats => (SIDE, ACROSS),
                        Arithmetic::Matrix | Arithmetic::StandIn => (shape.panels * PANEL, 8),
                    };
                    // The last set begins within the rows, unless all sets are taken.
                    let sets = sample.maxima / unit_maxima * sample.rounds;
                    assert!(sample.stride == 1 || (sets - 1) * sample.stride * unit_rows < rows, "{what}");
                }
            }
        }
    }

    #[test]
    fn a_guess_is_never_more_than_what_is_certain() {
        // 32 of 350 000, a twelfth sampled: three of them on average.
        assert_eq!(guess(32, 29_000, 350_000), 3 + 5 + 6);
        assert_eq!(guess(5, 1000, 350_000), 5);
        assert_eq!(guess(32, 350_000, 350_000), 32);
    }
}

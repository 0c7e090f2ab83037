//! How work is laid over a device: how many work-items, in what groups, and in how many lists.
//!
//! Pure arithmetic. A wide device (a GPU) wants many more work-items than a few probes make with their lanes, so a chunk's rows
//! are cut into segments; each segment and lane is a list of its own.

use crate::backend::opencl::driver::device::Range;

use super::kernels::{LANES_PER_QUERY, MERGE_ITEMS};
use super::tuning::Tuning;

/// Work-items of a group that is aimed at: several warps of any GPU.
const GROUP_ITEMS: usize = 128;

/// Most probes whose work-items form one group.
const GROUP_PROBES: usize = 16;

/// Bytes of all lists of a launch, scores and row numbers together.
const LIST_BYTES: usize = 64 << 20;

/// What a device and a kernel allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkLimits {
    /// Most work-items of a group.
    pub(super) group_items: usize,
    /// The device's processors.
    pub(super) compute_units: usize,
    /// What suits it.
    pub(super) tuning: Tuning,
}

/// How one chunk is scanned for one tile of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanShape {
    /// The work-items: probes, lanes, segments.
    pub(super) range: Range,
    /// Rows of a segment.
    pub(super) segment_rows: usize,
    /// Lists of each probe: segments times lanes.
    pub(super) lists: usize,
}

impl ScanShape {
    /// For `probes` probes and chunks of `chunk_rows` rows, into lists of `list` rows.
    pub(super) fn new(probes: usize, chunk_rows: usize, list: usize, limits: WorkLimits) -> Self {
        let group_items = limits.group_items.min(GROUP_ITEMS);
        let lanes = if group_items >= LANES_PER_QUERY { LANES_PER_QUERY } else { 1 };
        let side = group_side(probes, group_items / lanes);
        let items = probes * LANES_PER_QUERY;
        // More segments than fill the lists once would only be merged away again.
        let segments = (limits.compute_units * limits.tuning.unit_items)
            .div_ceil(items)
            .min(chunk_rows / (LANES_PER_QUERY * list))
            .min(LIST_BYTES / (items * list * 2 * size_of::<f32>()))
            .max(1);
        let together = group_items / (side * lanes);
        let together = floor_power_of_two(segments.min(together).min(limits.tuning.group_segments));
        let segments = segments / together * together;
        Self {
            range: Range {
                global: [probes.next_multiple_of(side), LANES_PER_QUERY, segments],
                local: [side, lanes, together],
            },
            segment_rows: chunk_rows.div_ceil(segments),
            lists: segments * LANES_PER_QUERY,
        }
    }
}

/// One work-group a probe.
pub(super) fn merge_range(probes: usize) -> Range {
    Range { global: [probes * MERGE_ITEMS, 1, 1], local: [MERGE_ITEMS, 1, 1] }
}

/// One work-item a probe and row.
pub(super) fn score_range(probes: usize, rows: usize, limits: WorkLimits) -> Range {
    let group_items = limits.group_items.min(GROUP_ITEMS);
    let side = group_side(probes, group_items);
    let together = floor_power_of_two(group_items / side);
    Range {
        global: [probes.next_multiple_of(side), rows.next_multiple_of(together), 1],
        local: [side, together, 1],
    }
}

/// How many probes a group takes, where it has room for `room`.
fn group_side(probes: usize, room: usize) -> usize {
    probes.next_power_of_two().min(GROUP_PROBES).min(floor_power_of_two(room))
}

/// The largest power of two that is at most `number`; 1 for 0.
fn floor_power_of_two(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: WorkLimits = WorkLimits { group_items: 1024, compute_units: 132, tuning: Tuning::WIDE };
    const CPU: WorkLimits = WorkLimits { group_items: 4096, compute_units: 2, tuning: Tuning::NARROW };

    #[test]
    fn every_range_is_made_of_whole_groups_within_the_limit() {
        for limits in [GPU, CPU, WorkLimits { group_items: 1, ..GPU }, WorkLimits { group_items: 20, ..GPU }]
        {
            for probes in [1, 3, 4, 7, 16, 17, 93, 256] {
                for (rows, list) in [(1, 8), (93, 64), (50_000, 64), (50_000, 256)] {
                    let shape = ScanShape::new(probes, rows, list, limits);
                    let scores = score_range(probes, rows, limits);
                    for range in [shape.range, scores] {
                        let whole = range.global.iter().zip(range.local).all(|(all, group)| all % group == 0);
                        assert!(whole, "{range:?} for {probes} probes, {limits:?}");
                        assert!(range.local.iter().product::<usize>() <= limits.group_items, "{range:?}");
                        assert!(range.global[0] >= probes);
                    }
                    let segments = shape.range.global[2];
                    assert!(segments * shape.segment_rows >= rows, "{shape:?}");
                    assert_eq!(shape.lists, segments * LANES_PER_QUERY);
                }
            }
        }
    }

    #[test]
    fn few_probes_are_spread_over_a_wide_device_alone() {
        let one = ScanShape::new(1, 50_000, 64, GPU);
        assert_eq!((one.range.global, one.range.local), ([1, 8, 96], [1, 8, 16]));
        let many = ScanShape::new(256, 50_000, 64, GPU);
        assert_eq!((many.range.global[2], many.range.local), (64, [16, 8, 1]));
        assert_eq!(ScanShape::new(256, 50_000, 64, CPU).range.global[2], 1);
    }
}

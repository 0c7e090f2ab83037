//! How work is laid over a device: how many work-items, in what groups, and in how many lists.
//!
//! Pure arithmetic. A wide device (a GPU) wants many more work-items than a few probes make with their lanes, so a chunk's rows
//! are cut into segments; each segment and lane is a list of its own.

use crate::backend::opencl::driver::device::Range;

use super::kernels::MERGE_ITEMS;
use super::tuning::Tuning;
use super::variant::Variant;

/// Most work-items that neighbours in the first dimension, probes or blocks of them, put into one group; and most segments.
const GROUP_SIDE: usize = 16;

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
    /// The kernel.
    pub(super) variant: Variant,
}

impl WorkLimits {
    /// Work-items of a group.
    fn group(&self) -> usize {
        self.group_items.min(self.tuning.group_items).max(1)
    }
}

/// How one chunk is scanned for one tile of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanShape {
    /// The work-items: probes (or blocks of them), lanes, segments.
    pub(super) range: Range,
    /// Rows of a segment.
    pub(super) segment_rows: usize,
    /// Lists of each probe: segments times lanes.
    pub(super) lists: usize,
}

impl ScanShape {
    /// For `probes` probes and chunks of `chunk_rows` rows, into lists of `list` rows.
    pub(super) fn new(probes: usize, chunk_rows: usize, list: usize, limits: WorkLimits) -> Self {
        let all_lanes = limits.variant.lanes.get();
        let group_items = limits.group();
        let lanes = if group_items >= all_lanes { all_lanes } else { 1 };
        let blocks = probes.div_ceil(limits.variant.probes_per_item() * limits.variant.blocks_per_item());
        let side = group_side(blocks, group_items / lanes);
        // More segments than fill the lists once would only be merged away again.
        let segments = (limits.compute_units * limits.tuning.unit_items)
            .div_ceil(blocks * all_lanes)
            .min(chunk_rows / (all_lanes * list))
            .min(LIST_BYTES / (probes * all_lanes * list * 2 * size_of::<f32>()))
            .max(1);
        let together = group_items / (side * lanes);
        let together = floor_power_of_two(segments.min(together).min(GROUP_SIDE));
        let segments = segments / together * together;
        Self {
            range: Range {
                global: [blocks.next_multiple_of(side), all_lanes, segments],
                local: [side, lanes, together],
            },
            segment_rows: chunk_rows.div_ceil(segments),
            lists: segments * all_lanes,
        }
    }
}

/// One work-group a probe.
pub(super) fn merge_range(probes: usize) -> Range {
    Range { global: [probes * MERGE_ITEMS, 1, 1], local: [MERGE_ITEMS, 1, 1] }
}

/// One work-item for as many probes and rows as it scores in one step.
pub(super) fn score_range(probes: usize, rows: usize, limits: WorkLimits) -> Range {
    let blocks = probes.div_ceil(limits.variant.probes_per_item());
    let steps = rows.div_ceil(limits.variant.rows_per_item());
    // Such a work-item is short: on a CPU too, many share a group.
    let group_items = limits.group_items.clamp(1, Tuning::WIDE.group_items);
    let side = group_side(blocks, group_items);
    let together = floor_power_of_two(group_items / side);
    Range {
        global: [blocks.next_multiple_of(side), steps.next_multiple_of(together), 1],
        local: [side, together, 1],
    }
}

/// How many neighbours in the first dimension a group takes, where it has room for `room`.
fn group_side(blocks: usize, room: usize) -> usize {
    blocks.next_power_of_two().min(GROUP_SIDE).min(floor_power_of_two(room))
}

/// The largest power of two that is at most `number`; 1 for 0.
fn floor_power_of_two(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: WorkLimits = WorkLimits {
        group_items: 1024,
        compute_units: 132,
        tuning: Tuning::WIDE,
        variant: Tuning::WIDE.many,
    };
    const CPU: WorkLimits = WorkLimits {
        group_items: 4096,
        compute_units: 2,
        tuning: Tuning::NARROW,
        variant: Tuning::NARROW.many,
    };

    #[test]
    fn every_range_is_made_of_whole_groups_within_the_limit() {
        let few = WorkLimits { variant: Tuning::NARROW.few, ..CPU };
        let blocks_on_gpu = WorkLimits { variant: Tuning::NARROW.many, ..GPU };
        let small = [1, 20].map(|group_items| WorkLimits { group_items, ..GPU });
        for limits in [GPU, CPU, few, blocks_on_gpu, small[0], small[1]] {
            for probes in [1, 3, 4, 7, 16, 17, 93, 256] {
                for (rows, list) in [(1, 8), (93, 64), (50_000, 64), (50_000, 256)] {
                    let shape = ScanShape::new(probes, rows, list, limits);
                    let scores = score_range(probes, rows, limits);
                    let turns = [limits.variant.blocks_per_item(), 1];
                    for (range, turns) in [shape.range, scores].into_iter().zip(turns) {
                        let whole = range.global.iter().zip(range.local).all(|(all, group)| all % group == 0);
                        assert!(whole, "{range:?} for {probes} probes, {limits:?}");
                        assert!(range.local.iter().product::<usize>() <= limits.group_items, "{range:?}");
                        assert!(range.global[0] * limits.variant.probes_per_item() * turns >= probes);
                    }
                    assert!(scores.global[1] * limits.variant.rows_per_item() >= rows, "{scores:?}");
                    let segments = shape.range.global[2];
                    assert!(segments * shape.segment_rows >= rows, "{shape:?}");
                    assert_eq!(shape.lists, segments * limits.variant.lanes.get());
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
        // Four times four blocks of probes are a group each, enough for two cores.
        let shape = ScanShape::new(256, 50_000, 64, CPU);
        assert_eq!((shape.range.global, shape.range.local), ([4, 1, 1], [1, 1, 1]));
    }
}

//! The kernels of this scan and the sizes that they are compiled for.

use crate::backend::opencl::program::Recipe;

use super::tuning::Tuning;

/// Work-items that share a segment's rows for one probe: the fastest of 4, 8, 16 and 32 on a Mali-G610 (9.60, 10.57, 4.04, 1.49 GOP/s).
pub(super) const LANES_PER_QUERY: usize = 8;

/// Work-items of a merge of one probe's lists.
pub(super) const MERGE_ITEMS: usize = 64;

/// Sizes of lists that kernels are compiled for.
const LIST_SIZES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Numbers of probes that kernels are compiled for: powers of two, so that a tile divides them.
const QUERY_COUNTS: [usize; 5] = [1, 4, 16, 64, MAX_QUERY_COUNT];

/// Most probes of one launch.
pub(super) const MAX_QUERY_COUNT: usize = 256;

/// The smallest list size that holds `wanted`; `None` where only the host can hold so many.
pub(super) fn list_size(wanted: usize) -> Option<usize> {
    LIST_SIZES.into_iter().find(|size| *size >= wanted)
}

/// How probes lie in the device's memory, as `dot.cl` draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    /// Most probes of a launch.
    pub(super) query_count: usize,
    /// Probes interleaved; divides `query_count`.
    pub(super) tile: usize,
}

impl Tiling {
    /// The smallest one compiled for that takes `probes`, which are at most [`MAX_QUERY_COUNT`].
    pub(super) fn new(probes: usize, tuning: Tuning) -> Self {
        let query_count = QUERY_COUNTS.into_iter().find(|count| *count >= probes).unwrap_or(MAX_QUERY_COUNT);
        Self { query_count, tile: query_count.min(tuning.probe_tile) }
    }
}

/// A kernel of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Scans a chunk into lists.
    ScanLanes,
    /// Merges a probe's lists to one.
    MergeLists,
    /// Writes every score.
    ScoreRows,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// Which kernel.
    pub(super) role: Role,
    /// Values of a row, padding included.
    pub(super) stride: usize,
    /// Rows of a list.
    pub(super) list: usize,
    /// How probes lie in memory.
    pub(super) tiling: Tiling,
}

/// The kernels that scan rows of `stride` values into lists of these sizes, for any number of probes.
pub(super) fn recipes_of_lists(stride: usize, lists: &[usize], tuning: Tuning) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for &list in lists {
        let recipe =
            |role, probes| Parameters { role, stride, list, tiling: Tiling::new(probes, tuning) }.recipe();
        recipes.push(recipe(Role::MergeLists, 1));
        recipes.extend(QUERY_COUNTS.map(|probes| recipe(Role::ScanLanes, probes)));
    }
    recipes
}

impl Parameters {
    /// How to build it.
    pub(super) fn recipe(self) -> Recipe {
        let (files, function): (&'static [&'static str], _) = match self.role {
            Role::ScanLanes => (&["dot.cl", "lanes.cl"], "scan_lanes"),
            Role::MergeLists => (&["merge.cl"], "merge_lists"),
            Role::ScoreRows => (&["dot.cl", "scores.cl"], "score_rows"),
        };
        let (lists, probes) = (
            [("TOPK", self.list)],
            [
                ("DIM", self.stride),
                ("QUERY_COUNT", self.tiling.query_count),
                ("LANES_PER_QUERY", LANES_PER_QUERY),
                ("TILE", self.tiling.tile),
            ],
        );
        // What a kernel does not depend on is left out, so that it is built once for all of that.
        let parameters = match self.role {
            Role::ScanLanes => [&lists[..], &probes].concat(),
            Role::MergeLists => [&lists[..], &[("MERGE_ITEMS", MERGE_ITEMS)]].concat(),
            Role::ScoreRows => probes.to_vec(),
        };
        let parameters = parameters.into_iter().map(|(name, value)| (name, value as u32)).collect();
        Recipe { files, function, parameters, flags: "-cl-fast-relaxed-math" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_those_compiled_for() {
        assert_eq!([1, 8, 9, 256].map(list_size), [Some(8), Some(8), Some(16), Some(256)]);
        assert_eq!(list_size(257), None);
        let tilings = [1, 2, 16, 17, 256].map(|probes| Tiling::new(probes, Tuning::WIDE));
        assert_eq!(tilings.map(|tiling| tiling.query_count), [1, 4, 16, 64, 256]);
        assert_eq!(tilings.map(|tiling| tiling.tile), [1, 4, 16, 16, 16]);
        assert_eq!(Tiling::new(17, Tuning::NARROW), Tiling { query_count: 64, tile: 1 });
    }
}

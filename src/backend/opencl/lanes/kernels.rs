//! The kernels of this scan and the sizes that they are compiled for.

use std::fmt;

use crate::backend::opencl::program::Recipe;

use super::tuning::Tuning;
use super::variant::{Layout, Variant};

/// Work-items of a merge of one probe's lists.
pub(super) const MERGE_ITEMS: usize = 64;

/// Sizes of lists that kernels are compiled for.
const LIST_SIZES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Numbers of probes that kernels are compiled for: powers of two, so that a tile divides them.
const QUERY_COUNTS: [usize; 5] = [1, 4, 16, 64, MAX_QUERY_COUNT];

/// Most probes of one launch.
pub(in crate::backend::opencl) const MAX_QUERY_COUNT: usize = 256;

/// The compiler's options. No product or sum is bound to an order, but what is no number stays none: the host must see it.
const FLAGS: &str = "-cl-mad-enable -cl-unsafe-math-optimizations";

/// The smallest list size that holds `wanted`; `None` where only the host can hold so many.
pub(in crate::backend::opencl) fn list_size(wanted: usize) -> Option<usize> {
    LIST_SIZES.into_iter().find(|size| *size >= wanted)
}

/// The smallest number compiled for that takes `probes`, which are at most [`MAX_QUERY_COUNT`].
fn query_count(probes: usize) -> usize {
    QUERY_COUNTS.into_iter().find(|count| *count >= probes).unwrap_or(MAX_QUERY_COUNT)
}

/// How far a measurement goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::opencl) enum Stage {
    /// Dot products, summed so that they are of use.
    Dot,
    /// The best score.
    Threshold,
    /// Lists of scores.
    Scores,
    /// Lists of scores and rows, no row skipped.
    Indices,
    /// All that serving wants.
    Full,
}

impl Stage {
    /// All of them, in this order.
    pub(in crate::backend::opencl) const ALL: [Self; 5] =
        [Self::Dot, Self::Threshold, Self::Scores, Self::Indices, Self::Full];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dot => "dot",
            Self::Threshold => "dot + threshold",
            Self::Scores => "top-k score",
            Self::Indices => "top-k + index",
            Self::Full => "full kNN",
        })
    }
}

/// A kernel of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Scans a chunk into lists.
    ScanLanes,
    /// Scans a chunk as far as a measurement wants it.
    Measure(Stage),
    /// Merges a probe's lists to one.
    MergeLists,
    /// Writes every score.
    ScoreRows,
}

/// What a scan's kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// The kernel of the family.
    pub(super) variant: Variant,
    /// Values of a row, padding included.
    pub(super) stride: usize,
    /// Rows of a list.
    pub(super) list: usize,
    /// Probes of a launch, at most.
    pub(super) probes: usize,
}

/// The kernels that scan rows of `stride` values into lists of these sizes, for any number of probes.
pub(super) fn recipes_of_lists(stride: usize, lists: &[usize], tuning: Tuning) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for &list in lists {
        let recipe =
            |role, probes| Parameters { variant: tuning.variant(probes), stride, list, probes }.recipe(role);
        recipes.push(recipe(Role::MergeLists, 1));
        recipes.extend(QUERY_COUNTS.map(|probes| recipe(Role::ScanLanes, probes)));
    }
    recipes
}

impl Parameters {
    /// How the probes of a launch lie in memory.
    pub(super) fn layout(self) -> Layout {
        self.variant.layout(query_count(self.probes))
    }

    /// How to build a kernel.
    pub(super) fn recipe(self, role: Role) -> Recipe {
        let (files, function): (&'static [&'static str], _) = match role {
            Role::ScanLanes | Role::Measure(_) => {
                (&["skip.cl", "dot.cl", "block.cl", "lists.cl", "lanes.cl"], "scan_lanes")
            }
            Role::MergeLists => (&["merge.cl"], "merge_lists"),
            Role::ScoreRows => (&["dot.cl", "block.cl", "scores.cl"], "score_rows"),
        };
        let mut parameters = vec![("TOPK", self.list)];
        if role == Role::MergeLists {
            parameters.push(("MERGE_ITEMS", MERGE_ITEMS));
        } else {
            let Layout { query_count, tile, width } = self.layout();
            parameters.extend([("DIM", self.stride), ("QUERY_COUNT", query_count)]);
            parameters.extend([("TILE", tile), ("PROBE_WIDTH", width)]);
            parameters.extend(self.variant.parameters());
        }
        if let Role::Measure(stage) = role {
            parameters.push(("STAGE", stage as usize));
        }
        let parameters = parameters.into_iter().map(|(name, value)| (name, value as u32)).collect();
        Recipe { files, function, parameters, flags: FLAGS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(tuning: Tuning, probes: usize) -> (usize, usize, usize) {
        let variant = tuning.variant(probes);
        let Layout { query_count, tile, width } =
            Parameters { variant, stride: 128, list: 8, probes }.layout();
        (query_count, tile, width)
    }

    #[test]
    fn sizes_are_rounded_up_to_those_compiled_for() {
        assert_eq!([1, 8, 9, 256].map(list_size), [Some(8), Some(8), Some(16), Some(256)]);
        assert_eq!(list_size(257), None);
        let wide = [1, 2, 16, 17, 256].map(|probes| layout(Tuning::WIDE, probes));
        assert_eq!(wide, [(1, 1, 4), (4, 4, 4), (16, 16, 4), (64, 16, 4), (256, 16, 4)]);
        let narrow = [1, 4, 5, 17].map(|probes| layout(Tuning::NARROW, probes));
        assert_eq!(narrow, [(1, 1, 8), (4, 1, 8), (16, 16, 1), (64, 16, 1)]);
        // A block is whole even where there are fewer probes.
        let few = Tuning { few: Tuning::NARROW.many, ..Tuning::NARROW };
        assert_eq!(layout(few, 1), (16, 16, 1));
    }

    #[test]
    fn what_serves_has_no_stage_and_a_merge_is_the_same_for_all_variants() {
        let of = |tuning: Tuning, role| {
            Parameters { variant: tuning.many, stride: 128, list: 8, probes: 16 }.recipe(role)
        };
        let names = |recipe: Recipe| recipe.parameters.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert!(!names(of(Tuning::WIDE, Role::ScanLanes)).contains(&"STAGE"));
        assert!(names(of(Tuning::WIDE, Role::Measure(Stage::Dot))).contains(&"STAGE"));
        assert_eq!(of(Tuning::WIDE, Role::MergeLists), of(Tuning::NARROW, Role::MergeLists));
    }
}

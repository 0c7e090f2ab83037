//! The kernels: where their sources come from, how they are built, and those built so far.
//!
//! A kernel is compiled when it is first needed, for one set of parameters; parameters come in few sizes (buckets), so that few
//! are ever compiled. What is compiled belongs to one device and lives as long as it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use crate::backend::BackendError;

use super::device::{Device, Kernel};
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

/// Most kernels kept: all sizes for a few dimensions.
const MAX_BUILT: usize = 256;

/// Largest kernel file that is read.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// Scans a chunk into lists.
    ScanLanes,
    /// Merges a probe's lists to one.
    MergeLists,
    /// Writes every score.
    ScoreRows,
}

impl Role {
    fn file(self) -> &'static str {
        match self {
            Self::ScanLanes => "lanes.cl",
            Self::MergeLists => "merge.cl",
            Self::ScoreRows => "scores.cl",
        }
    }

    fn function(self) -> &'static str {
        match self {
            Self::ScanLanes => "scan_lanes",
            Self::MergeLists => "merge_lists",
            Self::ScoreRows => "score_rows",
        }
    }
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// The text of the kernels.
#[derive(Debug)]
pub(super) struct Sources {
    dot: String,
    lanes: String,
    merge: String,
    scores: String,
}

impl Sources {
    /// The files in `folder`, or the copies compiled into the program.
    pub(super) fn load(folder: Option<&Path>) -> Result<Self, BackendError> {
        let Some(folder) = folder else {
            return Ok(Self {
                dot: include_str!("../../../kernels/dot.cl").to_owned(),
                lanes: include_str!("../../../kernels/lanes.cl").to_owned(),
                merge: include_str!("../../../kernels/merge.cl").to_owned(),
                scores: include_str!("../../../kernels/scores.cl").to_owned(),
            });
        };
        Ok(Self {
            dot: read(folder, "dot.cl")?,
            lanes: read(folder, "lanes.cl")?,
            merge: read(folder, "merge.cl")?,
            scores: read(folder, "scores.cl")?,
        })
    }

    /// The whole source of a kernel. The `#line`s make a build log name file and line.
    fn text(&self, role: Role) -> String {
        let shared = format!("#line 1 \"dot.cl\"\n{}", self.dot);
        match role {
            Role::ScanLanes => format!("{shared}\n#line 1 \"lanes.cl\"\n{}", self.lanes),
            Role::MergeLists => format!("#line 1 \"merge.cl\"\n{}", self.merge),
            Role::ScoreRows => format!("{shared}\n#line 1 \"scores.cl\"\n{}", self.scores),
        }
    }
}

fn read(folder: &Path, name: &str) -> Result<String, BackendError> {
    let path = folder.join(name);
    let refuse = |reason: String| BackendError::Kernel { kernel: path.display().to_string(), reason };
    let bytes = fs::metadata(&path).map_err(|error| refuse(error.to_string()))?.len();
    if bytes > MAX_SOURCE_BYTES {
        return Err(refuse(format!("expected at most {MAX_SOURCE_BYTES} bytes, got {bytes}")));
    }
    fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))
}

/// The kernels of one device.
#[derive(Debug)]
pub(super) struct Programs {
    sources: Sources,
    built: HashMap<Parameters, Rc<Kernel>>,
}

impl Programs {
    /// None built yet.
    pub(super) fn new(sources: Sources) -> Self {
        Self { sources, built: HashMap::new() }
    }

    /// The kernel for these parameters, compiled if it was not yet.
    pub(super) fn kernel(
        &mut self,
        device: &Device,
        parameters: Parameters,
    ) -> Result<Rc<Kernel>, BackendError> {
        if let Some(kernel) = self.built.get(&parameters) {
            return Ok(Rc::clone(kernel));
        }
        let Parameters { role, stride, list, tiling: Tiling { query_count, tile } } = parameters;
        let options = format!(
            "-cl-fast-relaxed-math -D DIM={stride} -D TOPK={list} -D QUERY_COUNT={query_count} \
             -D LANES_PER_QUERY={LANES_PER_QUERY} -D TILE={tile} -D MERGE_ITEMS={MERGE_ITEMS}"
        );
        let kernel = device
            .compile(&self.sources.text(role), &options, role.function())
            .map_err(|reason| BackendError::Kernel { kernel: role.file().to_owned(), reason })?;
        let kernel = Rc::new(kernel);
        // Dimensions beyond counting: start over rather than grow.
        if self.built.len() >= MAX_BUILT {
            self.built.clear();
        }
        self.built.insert(parameters, Rc::clone(&kernel));
        Ok(kernel)
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

    #[test]
    fn a_missing_kernel_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Sources::load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("dot.cl") && error.contains("No such file"), "{error}");
    }
}

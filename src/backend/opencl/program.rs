//! The text of the kernels, and those that are built.
//!
//! A kernel is compiled when it is first needed, by a [`Recipe`]: which files, which function, which parameters. Parameters come
//! in few sizes, so that few recipes are ever asked for. What is compiled belongs to one device and lives as long as it; what the driver
//! made of it may outlive both, on disk (`cache`).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use sha2::{Digest, Sha256};

use crate::backend::BackendError;

use super::cache::{Ingredients, ProgramCache};
use super::driver::build::binary;
use super::driver::device::{Device, Kernel};

/// Most kernels kept: all sizes for a few dimensions.
const MAX_BUILT: usize = 256;

/// Largest kernel file that is read.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Every file of `kernels/`, by name, as compiled into the program.
const FILES: [(&str, &str); 13] = [
    ("block.cl", include_str!("../../../kernels/block.cl")),
    ("bytes.cl", include_str!("../../../kernels/bytes.cl")),
    ("choose.cl", include_str!("../../../kernels/choose.cl")),
    ("dot.cl", include_str!("../../../kernels/dot.cl")),
    ("floats.cl", include_str!("../../../kernels/floats.cl")),
    ("found.cl", include_str!("../../../kernels/found.cl")),
    ("lanes.cl", include_str!("../../../kernels/lanes.cl")),
    ("lists.cl", include_str!("../../../kernels/lists.cl")),
    ("merge.cl", include_str!("../../../kernels/merge.cl")),
    ("quantize.cl", include_str!("../../../kernels/quantize.cl")),
    ("rank.cl", include_str!("../../../kernels/rank.cl")),
    ("scores.cl", include_str!("../../../kernels/scores.cl")),
    ("skip.cl", include_str!("../../../kernels/skip.cl")),
];

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recipe {
    /// Files of `kernels/`, put one behind another; the last is the kernel's own.
    pub(super) files: &'static [&'static str],
    /// The function in it.
    pub(super) function: &'static str,
    /// What is `#define`d before it.
    pub(super) parameters: Vec<(&'static str, u32)>,
    /// The compiler's other options.
    pub(super) flags: &'static str,
}

impl Recipe {
    /// The options of the compiler's call.
    pub(super) fn options(&self) -> String {
        let mut options = self.flags.to_owned();
        for (name, value) in &self.parameters {
            let _ = write!(options, " -D {name}={value}");
        }
        options
    }

    fn file(&self) -> &'static str {
        self.files.last().copied().unwrap_or_default()
    }
}

/// The text of the kernels.
#[derive(Debug)]
pub(super) struct Sources(HashMap<&'static str, String>);

impl Sources {
    /// The files in `folder`, or the copies compiled into the program.
    pub(super) fn load(folder: Option<&Path>) -> Result<Self, BackendError> {
        let text = |(name, built_in): (&'static str, &str)| {
            Ok((name, folder.map_or_else(|| Ok(built_in.to_owned()), |folder| read(folder, name))?))
        };
        FILES.into_iter().map(text).collect::<Result<_, _>>().map(Self)
    }

    /// Tells one set of kernels from another: SHA-256 over names and texts, the first 16 hexadecimal digits.
    pub(super) fn hash(&self) -> String {
        let mut hash = Sha256::new();
        let sorted: BTreeMap<_, _> = self.0.iter().collect();
        for (name, text) in sorted {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// The whole source of a kernel. The `#line`s make a build log name file and line.
    pub(super) fn text(&self, recipe: &Recipe) -> String {
        let mut text = String::new();
        for name in recipe.files {
            let _ = writeln!(text, "#line 1 \"{name}\"\n{}", self.0.get(name).map_or("", String::as_str));
        }
        text
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
    cache: ProgramCache,
    built: HashMap<Recipe, Rc<Kernel>>,
}

impl Programs {
    /// None built yet.
    pub(super) fn new(sources: Sources, cache: ProgramCache) -> Self {
        Self { sources, cache, built: HashMap::new() }
    }

    /// The kernel of this recipe, compiled if it was not yet.
    pub(super) fn kernel(&mut self, device: &Device, recipe: Recipe) -> Result<Rc<Kernel>, BackendError> {
        if let Some(kernel) = self.built.get(&recipe) {
            return Ok(Rc::clone(kernel));
        }
        let kernel = self
            .build(device, &recipe)
            .map_err(|reason| BackendError::Kernel { kernel: recipe.file().to_owned(), reason })?;
        let kernel = Rc::new(kernel);
        // Dimensions beyond counting: start over rather than grow.
        if self.built.len() >= MAX_BUILT {
            self.built.clear();
        }
        self.built.insert(recipe, Rc::clone(&kernel));
        Ok(kernel)
    }

    /// Builds what is not built yet, so that no request has to wait for a compiler.
    pub(super) fn warm_up(&mut self, device: &Device, recipes: Vec<Recipe>) -> Result<(), BackendError> {
        recipes.into_iter().try_for_each(|recipe| self.kernel(device, recipe).map(drop))
    }

    /// From what is kept of it, or from its source.
    fn build(&self, device: &Device, recipe: &Recipe) -> Result<Kernel, String> {
        let (source, options) = (self.sources.text(recipe), recipe.options());
        let of = Ingredients { source: &source, options: &options, function: recipe.function };
        self.cache.revive_or_build(
            of,
            |binary| device.kernel(&device.revive(binary, &options)?, recipe.function),
            || {
                let program = device.compile(&source, &options)?;
                // Some drivers finish their work when the kernel is made: a program is kept once that has worked.
                let kernel = device.kernel(&program, recipe.function)?;
                Ok((kernel, binary(&program)))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_kernel_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Sources::load(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("block.cl") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_recipe_names_its_files_and_parameters() {
        let recipe = Recipe {
            files: &["dot.cl", "lanes.cl"],
            function: "scan_lanes",
            parameters: vec![("DIM", 128), ("TOPK", 32)],
            flags: "-cl-fast-relaxed-math",
        };
        assert_eq!(recipe.options(), "-cl-fast-relaxed-math -D DIM=128 -D TOPK=32");
        let text = Sources::load(None).unwrap().text(&recipe);
        let (dot, lanes) = (text.find("#line 1 \"dot.cl\""), text.find("#line 1 \"lanes.cl\""));
        assert!(dot == Some(0) && lanes > dot, "{dot:?} {lanes:?}");
    }
}

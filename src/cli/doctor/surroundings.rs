//! What the file system says of OpenCL: drivers named to the loader, device nodes, and whether this is a container.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Where the loader looks for drivers.
const ICD_FOLDER: &str = "etc/OpenCL/vendors";

/// Most bytes of an ICD file that are read.
const MAX_ICD_BYTES: u64 = 4096;

/// Most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 256;

/// Folders of device nodes, and how the names begin of those that OpenCL drivers open.
const NODES: [(&str, &str); 5] =
    [("dev/dri", "renderD"), ("dev", "mali"), ("dev", "nvidia"), ("dev", "kfd"), ("dev", "dxg")];

/// What shows that the kernel drives a GPU, whether or not its node can be seen from here.
const KERNEL_DRIVERS: [&str; 4] =
    ["proc/driver/nvidia/version", "sys/module/nvidia", "sys/class/misc/mali0", "sys/class/kfd/kfd"];

/// What marks a container.
const CONTAINER_MARKS: [&str; 2] = [".dockerenv", "run/.containerenv"];

/// What the file system says.
#[derive(Debug, Default, Serialize)]
pub(super) struct Surroundings {
    /// The loader that the environment names (`LOOKALIKE_OPENCL_LIBRARY`).
    pub(super) named_loader: Option<String>,
    /// Where drivers are named to the loader.
    pub(super) icd_folder: PathBuf,
    /// Whether the environment says so (`OCL_ICD_VENDORS`).
    pub(super) icd_folder_from_environment: bool,
    /// Why the folder cannot be read.
    pub(super) icd_folder_trouble: Option<String>,
    /// The drivers named there.
    pub(super) icds: Vec<Icd>,
    /// The nodes by which drivers reach their devices.
    pub(super) nodes: Vec<Node>,
    /// What shows that there is a GPU.
    pub(super) kernel_drivers: Vec<PathBuf>,
    /// Whether this is a container.
    pub(super) container: bool,
}

/// A driver as it is named to the loader.
#[derive(Debug, Serialize)]
pub(super) struct Icd {
    pub(super) file: PathBuf,
    /// The library that it names; empty where it cannot be read.
    pub(super) library: String,
    /// Why it is of no use.
    pub(super) trouble: Option<String>,
}

/// A device node.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) path: PathBuf,
    /// The group that it belongs to.
    pub(super) group: String,
    /// Why it cannot be opened.
    pub(super) trouble: Option<String>,
}

impl Surroundings {
    /// Below `root`, which is `/` but in tests; `variable` is the environment.
    pub(super) fn look(root: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let told = |name| variable(name).filter(|value| !value.is_empty());
        let vendors = told("OCL_ICD_VENDORS").map(PathBuf::from);
        let icd_folder_from_environment = vendors.is_some();
        let icd_folder = vendors.unwrap_or_else(|| root.join(ICD_FOLDER));
        let (icds, icd_folder_trouble) = match icds(&icd_folder) {
            Ok(icds) => (icds, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let there = |path: &str| root.join(path).exists();
        Self {
            named_loader: told("LOOKALIKE_OPENCL_LIBRARY"),
            icd_folder,
            icd_folder_from_environment,
            icd_folder_trouble,
            icds,
            nodes: nodes(root),
            kernel_drivers: KERNEL_DRIVERS
                .map(|path| root.join(path))
                .into_iter()
                .filter(|path| path.exists())
                .collect(),
            container: CONTAINER_MARKS.iter().any(|mark| there(mark))
                || told("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// The ICD files of a folder, or the one that is named.
fn icds(folder: &Path) -> io::Result<Vec<Icd>> {
    let files = if folder.is_file() { vec![folder.to_owned()] } else { entries(folder)? };
    let is_icd = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "icd");
    Ok(files.into_iter().filter(is_icd).map(icd).collect())
}

fn icd(file: PathBuf) -> Icd {
    let mut text = String::new();
    let read = File::open(&file).and_then(|open| open.take(MAX_ICD_BYTES).read_to_string(&mut text));
    let library = text.lines().next().unwrap_or_default().trim().to_owned();
    let trouble = match read {
        Err(error) => Some(error.to_string()),
        Ok(_) if library.is_empty() => Some("it names no library".to_owned()),
        Ok(_) => None,
    };
    Icd { file, library, trouble }
}

fn nodes(root: &Path) -> Vec<Node> {
    let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let mut nodes = Vec::new();
    for (folder, beginning) in NODES {
        // A folder that is not there has no nodes.
        for path in entries(&root.join(folder)).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(beginning) && !path.is_dir() {
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                let trouble = opened.err().map(|error| error.to_string());
                nodes.push(Node { group: group_of(&path, &groups), path, trouble });
            }
        }
    }
    nodes
}

/// The name of a file's group, or its number where it has none.
#[cfg(unix)]
fn group_of(path: &Path, groups: &str) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(told) = fs::metadata(path) else { return String::new() };
    let number = told.gid().to_string();
    let named = groups.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)? == number).then(|| name.to_owned())
    });
    named.unwrap_or(number)
}

#[cfg(not(unix))]
fn group_of(_: &Path, _: &str) -> String {
    String::new()
}

/// What a folder holds, sorted.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.take(MAX_ENTRIES).map(|entry| Ok(entry?.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn root(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn drivers_are_read_as_the_loader_reads_them() {
        let root = root(&[
            ("etc/OpenCL/vendors/b.icd", "libb.so.1\n"),
            ("etc/OpenCL/vendors/a.icd", " /opt/liba.so \nmore"),
            ("etc/OpenCL/vendors/empty.icd", "\n"),
            ("etc/OpenCL/vendors/readme.txt", "not one"),
            ("other/c.icd", "libc.so"),
        ]);
        let look = |vendors: Option<PathBuf>| {
            Surroundings::look(root.path(), |name| {
                (name == "OCL_ICD_VENDORS").then(|| Some(vendors.clone()?.display().to_string())).flatten()
            })
        };
        let told = |surroundings: &Surroundings| -> Vec<(String, bool)> {
            surroundings.icds.iter().map(|icd| (icd.library.clone(), icd.trouble.is_none())).collect()
        };
        let own = |text: &str, sound| (text.to_owned(), sound);
        let usual = look(None);
        assert_eq!(told(&usual), [own("/opt/liba.so", true), own("libb.so.1", true), own("", false)]);
        assert!(!usual.icd_folder_from_environment);
        assert_eq!(told(&look(Some(root.path().join("other")))), [own("libc.so", true)]);
        assert_eq!(told(&look(Some(root.path().join("other/c.icd")))), [own("libc.so", true)]);
        let missing = look(Some(root.path().join("none")));
        assert!(missing.icds.is_empty() && missing.icd_folder_trouble.is_some(), "{missing:?}");
    }

    #[test]
    fn nodes_and_containers_are_seen() {
        let root = root(&[
            ("dev/dri/renderD128", ""),
            ("dev/dri/card0", ""),
            ("dev/mali0", ""),
            ("proc/driver/nvidia/version", ""),
            ("run/.containerenv", ""),
        ]);
        let seen = Surroundings::look(root.path(), |_| None);
        let names: Vec<_> =
            seen.nodes.iter().map(|node| node.path.strip_prefix(root.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("dev/dri/renderD128"), Path::new("dev/mali0")]);
        assert!(seen.nodes.iter().all(|node| node.trouble.is_none() && !node.group.is_empty()), "{seen:?}");
        assert_eq!(seen.kernel_drivers, [root.path().join("proc/driver/nvidia/version")]);
        assert!(seen.container);
        let bare = Surroundings::look(TempDir::new().unwrap().path(), |_| None);
        assert!(!bare.container && bare.nodes.is_empty() && bare.kernel_drivers.is_empty());
    }
}

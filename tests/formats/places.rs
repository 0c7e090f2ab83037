//! What may stand where a file is read or written, and how errors read when their chain is printed.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use lookalike::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
use lookalike::gallery::formats::{self, npy};
use tempfile::TempDir;

use super::{bits, file, npy_file, prototypes, vectors};

/// What every reader says of `path`.
fn read_every_way(path: &Path) -> Vec<String> {
    let (_folder, array) = npy_file(1);
    vec![
        vectors(path).map(drop).unwrap_err().to_string(),
        prototypes(path, None).map(drop).unwrap_err().to_string(),
        prototypes(path, Some(&array)).map(drop).unwrap_err().to_string(),
        prototypes(&array, Some(path)).map(drop).unwrap_err().to_string(),
        formats::read_probes(path).map(drop).unwrap_err().to_string(),
        npy::read(path, &mut |_| ()).map(drop).unwrap_err().to_string(),
        formats::jsonl::read_prototypes(path, &mut |_| ()).map(drop).unwrap_err().to_string(),
        formats::jsonl::read_probes(path, &mut |_| ()).map(drop).unwrap_err().to_string(),
        formats::labels::Labels::read(path).map(drop).unwrap_err().to_string(),
    ]
}

/// Things that are no regular file, each with its name; they are there as long as what keeps them is.
#[cfg(target_os = "linux")]
fn irregular(folder: &Path) -> (Vec<(PathBuf, &'static str)>, impl Sized) {
    use std::os::fd::AsRawFd;
    use std::os::unix::{fs::symlink, net::UnixListener};
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
    let link = folder.join("link.npy");
    symlink(&pipe, &link).unwrap();
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let things = vec![
        (folder.to_owned(), "a folder"),
        ("/dev/null".into(), "a device"),
        (pipe, "a pipe"),
        (link, "a pipe"),
        (socket, "a socket"),
    ];
    (things, (reader, writer, listener))
}

#[cfg(target_os = "linux")]
#[test]
fn only_regular_files_are_read() {
    let folder = TempDir::new().unwrap();
    let (things, _kept) = irregular(folder.path());
    for (path, what) in things {
        let expected = format!("{}: expected a regular file, got {what}", path.display());
        for error in read_every_way(&path) {
            assert_eq!(error, expected);
        }
    }
}

#[cfg(unix)]
#[test]
fn links_to_files_are_read() {
    let (folder, path) = npy_file(2);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(vectors(&link).unwrap(), vectors(&path).unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn only_regular_files_are_replaced() {
    let folder = TempDir::new().unwrap();
    let (mut things, _kept) = irregular(folder.path());
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink(folder.path().join("absent"), &dangling).unwrap();
    things.push((dangling, "a link to what is not there"));
    let before = fs::read_dir(folder.path()).unwrap().count();
    for (path, what) in things {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let expected = format!("{}: expected a regular file, got {what}", path.display());
        let floats = npy::write_f32(&path, 1, [[1.0_f32].as_slice()].into_iter());
        let integers = npy::write_i64(&path, 1, [[1_i64].as_slice()].into_iter());
        for written in [floats, integers] {
            assert_eq!(written.unwrap_err().to_string(), expected);
        }
        assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), kind, "{what}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "nothing is left behind");
}

#[cfg(unix)]
#[test]
fn what_a_link_leads_to_is_replaced_and_the_link_stays() {
    let (folder, path) = npy_file(2);
    let other = TempDir::new().unwrap();
    let (near, far) = (other.path().join("near.npy"), other.path().join("far.npy"));
    std::os::unix::fs::symlink(&path, &far).unwrap();
    std::os::unix::fs::symlink("far.npy", &near).unwrap();
    npy::write_f32(&near, 1, [[2.5_f32].as_slice()].into_iter()).unwrap();
    assert!(
        fs::symlink_metadata(&near).unwrap().is_symlink() && fs::symlink_metadata(&far).unwrap().is_symlink()
    );
    assert_eq!(bits(vectors(&path).unwrap().as_slice()), bits(&[2.5]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 2);
}

fn stored() -> [(u64, Prototype); 1] {
    let key = PrototypeKey { identity: "ann".to_owned(), id: "1".to_owned() };
    let embedding = Embedding::parse(vec![0.6, 0.8], 2, NormPolicy::Normalise).unwrap();
    [(0, Prototype { key, source: String::new(), origin: Origin::Manual, created_ms: 0, embedding })]
}

#[test]
fn an_export_that_fails_leaves_the_old_labels_with_the_old_vectors() {
    let (folder, labels) = file("out.csv", "old labels");
    let vectors = folder.path().join("out.npy");
    fs::create_dir(&vectors).unwrap();
    let error = formats::write_prototypes(&vectors, 2, &stored()).unwrap_err().to_string();
    assert_eq!(error, format!("{}: expected a regular file, got a folder", vectors.display()));
    assert_eq!(fs::read_to_string(&labels).unwrap(), "old labels");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

#[cfg(unix)]
#[test]
fn an_export_does_not_write_labels_and_vectors_to_one_file() {
    let (folder, labels) = file("out.csv", "old labels");
    let vectors = folder.path().join("out.npy");
    std::os::unix::fs::symlink(&labels, &vectors).unwrap();
    let error = formats::write_prototypes(&vectors, 2, &stored()).unwrap_err().to_string();
    assert!(error.ends_with("export: expected another file than the labels', got a link to it"), "{error}");
    assert_eq!(fs::read_to_string(&labels).unwrap(), "old labels");
}

#[test]
fn what_is_no_format_of_ours_is_named_as_what_it_is() {
    let fvecs = |dim: u32| -> Vec<u8> {
        let row = [dim.to_le_bytes().to_vec(), vec![0x3f; 4 * dim as usize]].concat();
        row.repeat(3)
    };
    let seems_fvecs = "what seems an .fvecs or .ivecs file (save the array as .npy)";
    let pickle = "a pickle (pickles run code when loaded, so they are refused)";
    let cases: [(Vec<u8>, &str); 12] = [
        (fvecs(128), seems_fvecs),
        (fvecs(512), seems_fvecs),
        // Begin as JSON, a JSON array and a pickle of protocol 2 do.
        (fvecs(123), seems_fvecs),
        (fvecs(91), seems_fvecs),
        (fvecs(640), seems_fvecs),
        (fvecs(4096), seems_fvecs),
        (b"\x80\x02]q\x00.".to_vec(), pickle),
        (b"\x80\x04\x95\x02\x00".to_vec(), pickle),
        (b"\x80\x05N.".to_vec(), pickle),
        (b"\x80\x06N.".to_vec(), "something else"),
        (b"\x80".to_vec(), "something else"),
        (fvecs(128)[1..].to_vec(), "something else"),
    ];
    for (content, seems) in cases {
        let (_folder, path) = file("faces", &content);
        let error = vectors(&path).map(drop).unwrap_err().to_string();
        let expected =
            format!("{}: expected a NumPy array (.npy) or JSON Lines, got {seems}", path.display());
        assert_eq!(error, expected, "{:x?}", &content[..content.len().min(8)]);
    }
}

/// An error with all that it says lies beneath it, as the command line prints it.
fn chain(error: impl Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

#[test]
fn a_chain_of_errors_says_each_thing_once() {
    let (folder, path) = npy_file(1);
    let absent = folder.path().join("absent");
    let missing = format!("{}: No such file or directory (os error 2)", absent.display());
    assert_eq!(chain(vectors(&absent).map(drop).unwrap_err()), missing);
    assert_eq!(chain(prototypes(&path, Some(&absent)).map(drop).unwrap_err()), missing);
    assert_eq!(chain(formats::read_probes(&absent).map(drop).unwrap_err()), missing);
    let beside = absent.join("out.npy");
    let unwritten = npy::write_f32(&beside, 1, [[1.0_f32].as_slice()].into_iter()).unwrap_err();
    // The file that was asked for, not the one that would have become it.
    let unwritable = |path: &Path| {
        format!("{}: cannot be written: its folder is not there: make it first", path.display())
    };
    assert_eq!(chain(unwritten), unwritable(&beside));
    let page = absent.join("page.html");
    assert_eq!(chain(formats::write_whole(&page, b"page").unwrap_err()), unwritable(&page));
    assert_eq!(
        chain(formats::write_prototypes(&beside, 2, &stored()).unwrap_err()),
        unwritable(&absent.join("out.csv"))
    );
    let (_folder, labels) = file("labels.txt", "a\tb\n");
    assert_eq!(
        chain(prototypes(&path, Some(&labels)).map(drop).unwrap_err()),
        format!("{} line 1: identity: expected no control characters, got '\\t'", labels.display())
    );
    let (_folder, lines) = file("faces.jsonl", "{\"embedding\": [1, NaN]}\n");
    assert_eq!(
        chain(vectors(&lines).map(drop).unwrap_err()),
        format!("{} line 1: embedding: expected finite components, got NaN at component 1", lines.display())
    );
}

//! Compiles the protocol with no protoc on the machine, and the OpenCL loader with no OpenCL on it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;

const PROTOS: [&str; 3] = [
    "proto/lookalike/v1/recognition.proto",
    "proto/lookalike/v1/operations.proto",
    "proto/lookalike/v1/shadow.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    protocol()?;
    opencl_loader()
}

/// Messages, services and their JSON mapping from `proto/`; the descriptor set is kept for server reflection.
fn protocol() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let encoded = descriptors.encode_to_vec();
    fs::write(out.join("lookalike_descriptor.bin"), &encoded)?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(descriptors)?;
    // Fields at their default are written too: a script that reads `index` must find it when it is 0.
    pbjson_build::Builder::new().register_descriptors(&encoded)?.emit_fields().build(&[".lookalike"])?;
    check_written(&out)
}

fn check_written(out: &Path) -> Result<(), Box<dyn Error>> {
    for name in ["lookalike.v1.rs", "lookalike.v1.serde.rs"] {
        if !out.join(name).is_file() {
            return Err(format!("the protocol compiler wrote no {name}").into());
        }
    }
    Ok(())
}

/// Compiles the forwarding `libOpenCL.a` and puts it before any system library in the linker's search.
///
/// The crate `cl-sys` asks the linker for `-lOpenCL`. Folders given with `-L` are searched before the system's, so this
/// archive is taken even where a real `libOpenCL.so` is installed, and nothing need be installed at all. Beyond Linux the
/// platform's own OpenCL is linked, as `cl-sys` does it by itself.
fn opencl_loader() -> Result<(), Box<dyn Error>> {
    const SOURCE: &str = "src/backend/opencl/driver/loader.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    // Without metadata: `cl-sys` names the library already, only the folder is ours to add.
    cc::Build::new()
        .file(SOURCE)
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .cargo_metadata(false)
        .compile("OpenCL");
    println!("cargo::rustc-link-search=native={}", env::var("OUT_DIR")?);
    Ok(())
}

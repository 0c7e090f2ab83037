//! Builds what Rust code alone cannot say: the forwarding OpenCL library.

fn main() {
    opencl_loader();
}

/// Compiles the forwarding `libOpenCL.a` and puts it before any system library in the linker's search.
///
/// The crate `cl-sys` asks the linker for `-lOpenCL`. Folders given with `-L` are searched before the system's, so this
/// archive is taken even where a real `libOpenCL.so` is installed, and nothing need be installed at all. Beyond Linux the
/// platform's own OpenCL is linked, as `cl-sys` does it by itself.
fn opencl_loader() {
    const SOURCE: &str = "src/backend/opencl/loader.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Without metadata: `cl-sys` names the library already, only the folder is ours to add.
    cc::Build::new()
        .file(SOURCE)
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .cargo_metadata(false)
        .compile("OpenCL");
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    println!("cargo::rustc-link-search=native={folder}");
}

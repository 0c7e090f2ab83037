//! Asks the machine what OpenCL devices it has.
//!
//! Asked through the C functions, since `ocl::Platform::list` waits ten seconds and panics where there is no platform. Nothing
//! in here fails or panics: what a driver does not tell is empty or 0, and a device that tells too little is unusable.

#![expect(unsafe_code, reason = "the OpenCL boundary: queries of platforms and devices")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use ocl::ffi;
use serde::{Deserialize, Serialize};

use super::status::{DEVICE_NOT_FOUND, Failure, PLATFORM_NOT_FOUND};
use crate::backend::opencl::choose::{DeviceKind, DeviceRecord, Listing, PlatformRecord};

/// Most platforms, and most devices of one, that are looked at.
const MAX_LISTED: usize = 64;

/// Longest text that a driver may tell.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// What is being asked of a driver: where it crashes or hangs, that tells which one it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backend::opencl) enum Step {
    /// The loader, for its platforms.
    Platforms,
    /// A platform, for itself and its devices; its name where that is known by now.
    Devices { platform: usize, name: String },
}

/// Looks at every platform but those to be left alone, and at every device of it. Tells each step before it is made.
pub(in crate::backend::opencl) fn find(leave: &[usize], mut step: impl FnMut(Step)) -> Listing {
    step(Step::Platforms);
    let mut found = Listing { loader: loader(), ..Listing::default() };
    if found.loader.is_none() {
        return found;
    }
    let platforms = match platform_ids() {
        Ok(platforms) => platforms,
        Err(failure) => {
            found.trouble = (failure.status != PLATFORM_NOT_FOUND).then(|| failure.to_string());
            return found;
        }
    };
    for (platform_index, &platform) in platforms.iter().enumerate() {
        let mut record = PlatformRecord { name: String::new(), version: String::new(), fault: None };
        if !leave.contains(&platform_index) {
            step(Step::Devices { platform: platform_index, name: String::new() });
            record.name = platform_text(platform, ffi::CL_PLATFORM_NAME);
            record.version = platform_text(platform, ffi::CL_PLATFORM_VERSION);
            step(Step::Devices { platform: platform_index, name: record.name.clone() });
            for (device_index, id) in device_ids(platform).into_iter().enumerate() {
                found.devices.push(DeviceRecord {
                    platform_index,
                    device_index,
                    platform: record.name.clone(),
                    platform_version: record.version.clone(),
                    ..describe(id)
                });
            }
        }
        found.platforms.push(record);
    }
    found
}

/// The driver's handle of a device that was found before, valid as long as the process lives. No other platform is asked.
pub(super) fn device_id(record: &DeviceRecord) -> Result<ffi::cl_device_id, String> {
    let platforms = platform_ids().map_err(|failure| failure.to_string())?;
    let platform = platforms.get(record.platform_index).ok_or("its platform is gone")?;
    let devices = device_ids(*platform);
    let id = *devices.get(record.device_index).ok_or("it is gone")?;
    // Drivers may come back in another order.
    let name = device_text(id, ffi::CL_DEVICE_NAME);
    if name == record.name { Ok(id) } else { Err(format!("{name} stands in its place")) }
}

/// How many compute units a device has; at least 1.
pub(in crate::backend::opencl) fn compute_units(device: ffi::cl_device_id) -> usize {
    (device_number::<u32>(device, ffi::CL_DEVICE_MAX_COMPUTE_UNITS) as usize).max(1)
}

/// Whether a device computes in `f64`.
pub(in crate::backend::opencl) fn has_doubles(device: ffi::cl_device_id) -> bool {
    device_number::<u64>(device, ffi::CL_DEVICE_DOUBLE_FP_CONFIG) != 0
}

/// Whether a device and the host have one memory.
pub(in crate::backend::opencl) fn shares_memory(device: ffi::cl_device_id) -> bool {
    device_number::<ffi::cl_bool>(device, ffi::CL_DEVICE_HOST_UNIFIED_MEMORY) != 0
}

/// What `cl_nv_device_attribute_query` tells of an NVIDIA device; zeros of others.
pub(in crate::backend::opencl) fn compute_capability(device: ffi::cl_device_id) -> (u32, u32) {
    const MAJOR: ffi::cl_device_info = 0x4000;
    const MINOR: ffi::cl_device_info = 0x4001;
    if device_text(device, ffi::CL_DEVICE_EXTENSIONS).contains("cl_nv_device_attribute_query") {
        (device_number(device, MAJOR), device_number(device, MINOR))
    } else {
        (0, 0)
    }
}

fn describe(device: ffi::cl_device_id) -> DeviceRecord {
    let fault = if device_number::<ffi::cl_bool>(device, ffi::CL_DEVICE_AVAILABLE) == 0 {
        "the driver says that it is not available"
    } else if device_number::<ffi::cl_bool>(device, ffi::CL_DEVICE_COMPILER_AVAILABLE) == 0 {
        "its driver has no compiler for kernels"
    } else if device_number::<ffi::cl_bool>(device, ffi::CL_DEVICE_ENDIAN_LITTLE) == 0 {
        "it is big-endian"
    } else {
        ""
    };
    let extensions = device_text(device, ffi::CL_DEVICE_EXTENSIONS);
    DeviceRecord {
        platform_index: 0,
        device_index: 0,
        platform: String::new(),
        platform_version: String::new(),
        name: device_text(device, ffi::CL_DEVICE_NAME),
        kind: kind(device_number(device, ffi::CL_DEVICE_TYPE)),
        driver: device_text(device, ffi::CL_DRIVER_VERSION),
        global_memory_bytes: device_number(device, ffi::CL_DEVICE_GLOBAL_MEM_SIZE),
        max_allocation_bytes: device_number(device, ffi::CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        extensions: extensions.split_whitespace().map(str::to_owned).collect(),
        fault: None,
        usable: fault.is_empty(),
        reason: fault.to_owned(),
    }
}

/// Simulators call themselves everything at once; they run on the CPU, so that comes first.
fn kind(bits: ffi::cl_device_type) -> DeviceKind {
    if bits & ffi::CL_DEVICE_TYPE_CPU != 0 {
        DeviceKind::Cpu
    } else if bits & ffi::CL_DEVICE_TYPE_GPU != 0 {
        DeviceKind::Gpu
    } else if bits & ffi::CL_DEVICE_TYPE_ACCELERATOR != 0 {
        DeviceKind::Accelerator
    } else {
        DeviceKind::Other
    }
}

#[cfg(target_os = "linux")]
fn loader() -> Option<String> {
    unsafe extern "C" {
        /// In `loader.c`.
        fn lookalike_opencl_library() -> *const c_char;
    }
    // SAFETY: takes nothing, may be called from any thread.
    let name = unsafe { lookalike_opencl_library() };
    // SAFETY: NULL, or a NUL-terminated text that is never changed or freed.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Opens a driver's library; the `Err` says why it cannot be.
#[cfg(target_os = "linux")]
pub(in crate::backend::opencl) fn open_library(name: &str) -> Result<(), String> {
    unsafe extern "C" {
        /// In `loader.c`.
        fn lookalike_opencl_refusal(name: *const c_char) -> *const c_char;
    }
    let name = CString::new(name).map_err(|_| "a NUL character in its name".to_owned())?;
    // SAFETY: a NUL-terminated text. What the library does when it is opened is its own affair, and why this is asked in a process
    // that may be lost.
    let refusal = unsafe { lookalike_opencl_refusal(name.as_ptr()) };
    if refusal.is_null() {
        return Ok(());
    }
    // SAFETY: a NUL-terminated text that lasts until this thread asks the dynamic linker for something else.
    Err(unsafe { CStr::from_ptr(refusal) }.to_string_lossy().into_owned())
}

/// Elsewhere drivers are the system's own affair.
#[cfg(not(target_os = "linux"))]
pub(in crate::backend::opencl) fn open_library(_: &str) -> Result<(), String> {
    Ok(())
}

/// Elsewhere the system's own OpenCL is linked, and the program would not have started without it.
#[cfg(not(target_os = "linux"))]
fn loader() -> Option<String> {
    Some("OpenCL".to_owned())
}

fn platform_ids() -> Result<Vec<ffi::cl_platform_id>, Failure> {
    let mut ids = [ptr::null_mut(); MAX_LISTED];
    let mut count = 0;
    // SAFETY: `ids` has room for the number of entries given, `count` for one number.
    let status = unsafe { ffi::clGetPlatformIDs(MAX_LISTED as u32, ids.as_mut_ptr(), &raw mut count) };
    Failure::check("clGetPlatformIDs", status)?;
    Ok(ids[..(count as usize).min(MAX_LISTED)].to_vec())
}

fn device_ids(platform: ffi::cl_platform_id) -> Vec<ffi::cl_device_id> {
    let mut ids = [ptr::null_mut(); MAX_LISTED];
    let mut count = 0;
    // SAFETY: `platform` came from the driver; `ids` has room for the number of entries given, `count` for one number.
    let status = unsafe {
        ffi::clGetDeviceIDs(
            platform,
            ffi::CL_DEVICE_TYPE_ALL,
            MAX_LISTED as u32,
            ids.as_mut_ptr(),
            &raw mut count,
        )
    };
    match Failure::check("clGetDeviceIDs", status) {
        Ok(()) => ids[..(count as usize).min(MAX_LISTED)].to_vec(),
        Err(failure) => {
            if failure.status != DEVICE_NOT_FOUND {
                tracing::debug!(%failure, "an OpenCL platform does not list its devices");
            }
            Vec::new()
        }
    }
}

/// A number that a device tells; 0 where it does not.
fn device_number<T: Copy + Default>(device: ffi::cl_device_id, what: ffi::cl_device_info) -> T {
    let mut value = T::default();
    // SAFETY: `device` came from the driver; `value` is as large as stated, and any bits make a number.
    let status = unsafe {
        ffi::clGetDeviceInfo(device, what, size_of::<T>(), (&raw mut value).cast(), ptr::null_mut())
    };
    if status == 0 { value } else { T::default() }
}

fn device_text(device: ffi::cl_device_id, what: ffi::cl_device_info) -> String {
    text(|size, value, size_ret| {
        // SAFETY: `device` came from the driver; `text` passes room of the stated size.
        unsafe { ffi::clGetDeviceInfo(device, what, size, value, size_ret) }
    })
}

fn platform_text(platform: ffi::cl_platform_id, what: ffi::cl_platform_info) -> String {
    text(|size, value, size_ret| {
        // SAFETY: `platform` came from the driver; `text` passes room of the stated size.
        unsafe { ffi::clGetPlatformInfo(platform, what, size, value, size_ret) }
    })
}

/// A text from one of the `clGet...Info`, asked for its length first; empty where there is none.
pub(in crate::backend::opencl) fn text(ask: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> String {
    let mut size = 0;
    if ask(0, ptr::null_mut(), &raw mut size) != 0 {
        return String::new();
    }
    let mut bytes = vec![0_u8; size.min(MAX_TEXT_BYTES)];
    if bytes.is_empty() || ask(bytes.len(), bytes.as_mut_ptr().cast(), ptr::null_mut()) != 0 {
        return String::new();
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

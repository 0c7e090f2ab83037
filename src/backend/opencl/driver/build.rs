//! From a kernel's text, or from what the driver made of it before, to the kernel.
//!
//! Every `Err` here is a text for people: the driver's answer, and the build log where there is one.

#![expect(unsafe_code, reason = "the OpenCL boundary: programs and kernels of one device")]

use std::ffi::{CString, c_void};
use std::ptr;

use ocl::ffi;

use super::device::{Device, Kernel, Program, RawKernel};
use super::platform;
use super::status::{BUILD_PROGRAM_FAILURE, Failure};

/// Largest compiled program that is taken from a driver or given to one.
pub(in crate::backend::opencl) const MAX_BINARY_BYTES: usize = 64 << 20;

impl Device {
    /// Compiles `source`.
    pub(in crate::backend::opencl) fn compile(&self, source: &str, options: &str) -> Result<Program, String> {
        let (text, length) = (source.as_ptr().cast(), source.len());
        let mut status = 0;
        // SAFETY: one text of the stated length; the driver copies it.
        let program = unsafe {
            ffi::clCreateProgramWithSource(
                self.context.0,
                1,
                &raw const text,
                &raw const length,
                &raw mut status,
            )
        };
        Failure::check("clCreateProgramWithSource", status).map_err(|failure| failure.to_string())?;
        let program = Program(program);
        self.build(&program, options)?;
        Ok(program)
    }

    /// Takes back a program that [`binary`] gave for the same options.
    pub(in crate::backend::opencl) fn revive(&self, binary: &[u8], options: &str) -> Result<Program, String> {
        let (bytes, length) = (binary.as_ptr(), binary.len());
        let (mut loaded, mut status) = (0, 0);
        // SAFETY: the context's one device, and one binary of the stated length; the driver copies it.
        let program = unsafe {
            ffi::clCreateProgramWithBinary(
                self.context.0,
                1,
                &raw const self.id,
                &raw const length,
                &raw const bytes,
                &raw mut loaded,
                &raw mut status,
            )
        };
        Failure::check("clCreateProgramWithBinary", status).map_err(|failure| failure.to_string())?;
        let program = Program(program);
        Failure::check("clCreateProgramWithBinary", loaded).map_err(|failure| failure.to_string())?;
        self.build(&program, options)?;
        Ok(program)
    }

    /// The function `name` of a program that is built.
    pub(in crate::backend::opencl) fn kernel(
        &self,
        program: &Program,
        name: &'static str,
    ) -> Result<Kernel, String> {
        let c_name = CString::new(name).map_err(|_| "a NUL character in the name".to_owned())?;
        let mut status = 0;
        // SAFETY: the program is built; the name is NUL-terminated. The kernel keeps the program alive.
        let raw = unsafe { ffi::clCreateKernel(program.0, c_name.as_ptr(), &raw mut status) };
        Failure::check("clCreateKernel", status)
            .map_err(|failure| format!("has no function {name} ({failure})"))?;
        let raw = RawKernel(raw);
        let group_limit = self.group_limit(&raw);
        Ok(Kernel { raw, name, group_limit })
    }

    fn build(&self, program: &Program, options: &str) -> Result<(), String> {
        let c_options = CString::new(options).map_err(|_| "a NUL character in the options".to_owned())?;
        // SAFETY: the context's one device; the call returns when the program is built.
        let status = unsafe {
            ffi::clBuildProgram(program.0, 1, &raw const self.id, c_options.as_ptr(), None, ptr::null_mut())
        };
        Failure::check("clBuildProgram", status).map_err(|failure| {
            let log = self.build_log(program);
            let kind = if status == BUILD_PROGRAM_FAILURE { "does not compile" } else { "cannot be built" };
            format!("{kind} for {} with {options} ({failure}); build log:\n{log}", self.record().name)
        })
    }

    fn build_log(&self, program: &Program) -> String {
        platform::text(|size, value, size_ret| {
            // SAFETY: the program is this device's; `text` passes room of the stated size.
            unsafe {
                ffi::clGetProgramBuildInfo(
                    program.0,
                    self.id,
                    ffi::CL_PROGRAM_BUILD_LOG,
                    size,
                    value,
                    size_ret,
                )
            }
        })
    }

    fn group_limit(&self, kernel: &RawKernel) -> usize {
        let mut limit = 0_usize;
        // SAFETY: the kernel is this device's; `limit` is as large as stated.
        let status = unsafe {
            ffi::clGetKernelWorkGroupInfo(
                kernel.0,
                self.id,
                ffi::CL_KERNEL_WORK_GROUP_SIZE,
                size_of::<usize>(),
                (&raw mut limit).cast::<c_void>(),
                ptr::null_mut(),
            )
        };
        if status == 0 { limit.max(1) } else { 1 }
    }
}

/// What the driver made of a program, to be taken back by [`Device::revive`].
pub(in crate::backend::opencl) fn binary(program: &Program) -> Result<Vec<u8>, String> {
    let mut length = 0_usize;
    program_info(program, ffi::CL_PROGRAM_BINARY_SIZES, &mut length)?;
    if length == 0 || length > MAX_BINARY_BYTES {
        return Err(format!("expected a binary of 1 to {MAX_BINARY_BYTES} bytes, got {length}"));
    }
    let mut bytes = vec![0_u8; length];
    let mut place = bytes.as_mut_ptr();
    program_info(program, ffi::CL_PROGRAM_BINARIES, &mut place)?;
    Ok(bytes)
}

/// One value that a program tells of its one device.
fn program_info<T>(program: &Program, what: ffi::cl_program_info, value: &mut T) -> Result<(), String> {
    // SAFETY: the program is this device's alone, so that it has one binary: one size, or one address to copy it to, which
    // `binary` gives room for as much as the driver said.
    let status = unsafe {
        ffi::clGetProgramInfo(
            program.0,
            what,
            size_of::<T>(),
            ptr::from_mut(value).cast::<c_void>(),
            ptr::null_mut(),
        )
    };
    Failure::check("clGetProgramInfo", status).map_err(|failure| failure.to_string())
}

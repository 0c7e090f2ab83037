//! The boundary to the driver: its loader, platforms, devices and what is made on one. All `unsafe` of the OpenCL backend is here.

pub(in crate::backend::opencl) mod buffer;
pub(in crate::backend::opencl) mod build;
pub(in crate::backend::opencl) mod device;
pub(in crate::backend::opencl) mod platform;
pub(in crate::backend::opencl) mod status;

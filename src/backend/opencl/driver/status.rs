//! What a driver answers when a call fails, in words.
//!
//! The crate `ocl` panics on status codes that it does not know, and drivers invent their own; here every number is an error
//! like any other.

use std::fmt;

/// A call of the driver that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::opencl) struct Failure {
    /// The function called.
    pub(in crate::backend::opencl) call: &'static str,
    /// What it answered; never 0.
    pub(in crate::backend::opencl) status: i32,
}

/// `CL_PLATFORM_NOT_FOUND_KHR`: no driver is installed, or no loader.
pub(in crate::backend::opencl) const PLATFORM_NOT_FOUND: i32 = -1001;
/// `CL_DEVICE_NOT_FOUND`: a platform without devices.
pub(in crate::backend::opencl) const DEVICE_NOT_FOUND: i32 = -1;
/// `CL_BUILD_PROGRAM_FAILURE`: the compiler refused a kernel; the build log says why.
pub(in crate::backend::opencl) const BUILD_PROGRAM_FAILURE: i32 = -11;

impl Failure {
    /// `Err` unless `status` is 0.
    pub(in crate::backend::opencl) fn check(call: &'static str, status: i32) -> Result<(), Self> {
        if status == 0 { Ok(()) } else { Err(Self { call, status }) }
    }

    /// Whether the device, or the host on its behalf, had no memory left.
    pub(in crate::backend::opencl) fn is_memory(self) -> bool {
        // CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY, CL_INVALID_BUFFER_SIZE
        matches!(self.status, -4 | -5 | -6 | -61)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.status) {
            Some(name) => write!(f, "{} answered {name} ({})", self.call, self.status),
            None => write!(f, "{} answered {}", self.call, self.status),
        }
    }
}

/// The names that the calls made in this folder may answer.
fn name(status: i32) -> Option<&'static str> {
    Some(match status {
        DEVICE_NOT_FOUND => "CL_DEVICE_NOT_FOUND",
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -3 => "CL_COMPILER_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -7 => "CL_PROFILING_INFO_NOT_AVAILABLE",
        BUILD_PROGRAM_FAILURE => "CL_BUILD_PROGRAM_FAILURE",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -32 => "CL_INVALID_PLATFORM",
        -33 => "CL_INVALID_DEVICE",
        -34 => "CL_INVALID_CONTEXT",
        -35 => "CL_INVALID_QUEUE_PROPERTIES",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -38 => "CL_INVALID_MEM_OBJECT",
        -43 => "CL_INVALID_BUILD_OPTIONS",
        -44 => "CL_INVALID_PROGRAM",
        -45 => "CL_INVALID_PROGRAM_EXECUTABLE",
        -46 => "CL_INVALID_KERNEL_NAME",
        -47 => "CL_INVALID_KERNEL_DEFINITION",
        -48 => "CL_INVALID_KERNEL",
        -49 => "CL_INVALID_ARG_INDEX",
        -50 => "CL_INVALID_ARG_VALUE",
        -51 => "CL_INVALID_ARG_SIZE",
        -52 => "CL_INVALID_KERNEL_ARGS",
        -53 => "CL_INVALID_WORK_DIMENSION",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -55 => "CL_INVALID_WORK_ITEM_SIZE",
        -57 => "CL_INVALID_EVENT_WAIT_LIST",
        -58 => "CL_INVALID_EVENT",
        -59 => "CL_INVALID_OPERATION",
        -61 => "CL_INVALID_BUFFER_SIZE",
        -63 => "CL_INVALID_GLOBAL_WORK_SIZE",
        PLATFORM_NOT_FOUND => "CL_PLATFORM_NOT_FOUND_KHR",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_named_where_it_has_a_name() {
        assert_eq!(Failure::check("clFinish", 0), Ok(()));
        let failure = Failure::check("clFinish", -5).unwrap_err();
        assert_eq!(failure.to_string(), "clFinish answered CL_OUT_OF_RESOURCES (-5)");
        let vendors = Failure { call: "clFinish", status: -9999 };
        assert_eq!(vendors.to_string(), "clFinish answered -9999");
        assert!(failure.is_memory() && !vendors.is_memory());
    }
}

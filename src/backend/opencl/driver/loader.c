/*
 * A libOpenCL of our own, linked statically: every function that the crate cl-sys 0.4.3 declares, forwarded to the OpenCL
 * loader of the machine it runs on.
 *
 * Why: cl-sys links -lOpenCL, so without this the program could neither be built nor started where no OpenCL is installed.
 * With it, a machine without OpenCL gets status -1001 (CL_PLATFORM_NOT_FOUND_KHR), which is what a loader without drivers
 * says too.
 *
 * The library is opened once, at the first call, and never closed. Its name is that in LOOKALIKE_OPENCL_LIBRARY where that is
 * set (and then no other is tried), else the first of `library_names` that opens.
 *
 * Invariants:
 * - No OpenCL header is needed; the types below have the widths that the headers give them on every Linux.
 * - All symbols are hidden: the program exports none, so that the real library's calls of its own functions never end here.
 * - Each forwarder has the parameter types of the real function, so that the calling convention of any processor holds.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

/* No OpenCL library on this machine. */
#define CL_PLATFORM_NOT_FOUND_KHR (-1001)
/* The library lacks the function: it speaks an older OpenCL. */
#define CL_INVALID_OPERATION (-59)

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef uint64_t cl_bitfield;
/* Element of the zero-terminated property lists of contexts, pipes and sub-devices. */
typedef intptr_t cl_property;
/* All of cl_platform_id, cl_device_id, cl_context, ...: pointers to what only the driver knows. */
typedef void *cl_handle;

typedef void (*context_notify)(const char *, const void *, size_t, void *);
typedef void (*object_notify)(cl_handle, void *);
typedef void (*event_notify)(cl_handle, cl_int, void *);
typedef void (*native_function)(void *);
typedef void (*svm_free_notify)(cl_handle, cl_uint, void **, void *);

static const char *const library_names[] = {
    "libOpenCL.so.1",
    "libOpenCL.so",
    /* Arm's driver without a loader in front of it, as boards ship it. */
    "libmali.so.1",
    "libmali.so",
    "/usr/lib/aarch64-linux-gnu/libmali.so.1",
    "/usr/lib/aarch64-linux-gnu/libmali.so",
    "/usr/lib/libmali.so",
};

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static void *library;
static const char *library_name;

static int open_named(const char *name) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) {
        library_name = name;
    }
    return library != NULL;
}

static void open_library(void) {
    const char *chosen = getenv("LOOKALIKE_OPENCL_LIBRARY");
    if (chosen != NULL && chosen[0] != '\0') {
        open_named(chosen);
        return;
    }
    for (size_t i = 0; i < sizeof library_names / sizeof library_names[0]; ++i) {
        if (open_named(library_names[i])) {
            return;
        }
    }
}

/* The name under which the library was opened, or NULL where there is none. */
const char *lookalike_opencl_library(void) {
    pthread_once(&opened, open_library);
    return library_name;
}

/* Why a library cannot be opened, or NULL where it can: for a driver that the loader should have found. It stays open. */
const char *lookalike_opencl_refusal(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL ? NULL : dlerror();
}

/* The library's function `name`, or NULL. `found` keeps it: finding it twice is harmless. */
static void *function(_Atomic(void *) *found, const char *name) {
    void *address = atomic_load_explicit(found, memory_order_acquire);
    if (address == NULL) {
        pthread_once(&opened, open_library);
        if (library != NULL) {
            address = dlsym(library, name);
            atomic_store_explicit(found, address, memory_order_release);
        }
    }
    return address;
}

static cl_int absent(void) { return library == NULL ? CL_PLATFORM_NOT_FOUND_KHR : CL_INVALID_OPERATION; }

/* Looks `name` up into `real`, a pointer of the forwarder's own type. POSIX lets the address of a function be a void *. */
#define REAL(type, name, params)       \
    static _Atomic(void *) found;      \
    type(*real) params = (type(*) params)function(&found, #name)

/* A function that answers a status. */
#define STATUS(name, params, args)                   \
    cl_int name params;                              \
    cl_int name params {                             \
        REAL(cl_int, name, params);                  \
        return real != NULL ? real args : absent();  \
    }

/* A function that answers an object (or a mapped address) and tells its status through `errcode_ret`. */
#define OBJECT(name, params, args)        \
    void *name params;                    \
    void *name params {                   \
        REAL(void *, name, params);       \
        if (real != NULL) {               \
            return real args;             \
        }                                 \
        if (errcode_ret != NULL) {        \
            *errcode_ret = absent();      \
        }                                 \
        return NULL;                      \
    }

/* A function that answers an address and nothing else. */
#define ADDRESS(name, params, args)               \
    void *name params;                            \
    void *name params {                           \
        REAL(void *, name, params);               \
        return real != NULL ? real args : NULL;   \
    }

/* The five parameters of every clGet...Info beyond the object asked. */
#define INFO(name)                                                                                      \
    STATUS(name, (cl_handle object, cl_uint what, size_t size, void *value, size_t *size_ret),          \
           (object, what, size, value, size_ret))

#define RETAIN_RELEASE(name) STATUS(name, (cl_handle object), (object))

/* The three parameters at the end of every clEnqueue... */
#define WAIT cl_uint wait_count, const cl_handle *wait_list, cl_handle *event
#define WAIT_ARGS wait_count, wait_list, event

/* Platforms and devices */
STATUS(clGetPlatformIDs, (cl_uint count, cl_handle *platforms, cl_uint *count_ret), (count, platforms, count_ret))
INFO(clGetPlatformInfo)
STATUS(clGetDeviceIDs, (cl_handle platform, cl_bitfield type, cl_uint count, cl_handle *devices, cl_uint *count_ret),
       (platform, type, count, devices, count_ret))
INFO(clGetDeviceInfo)
STATUS(clCreateSubDevices,
       (cl_handle device, const cl_property *properties, cl_uint count, cl_handle *devices, cl_uint *count_ret),
       (device, properties, count, devices, count_ret))
RETAIN_RELEASE(clRetainDevice)
RETAIN_RELEASE(clReleaseDevice)
STATUS(clSetDefaultDeviceCommandQueue, (cl_handle context, cl_handle device, cl_handle queue), (context, device, queue))
STATUS(clGetDeviceAndHostTimer, (cl_handle device, cl_ulong *device_time, cl_ulong *host_time),
       (device, device_time, host_time))
STATUS(clGetHostTimer, (cl_handle device, cl_ulong *host_time), (device, host_time))

/* Contexts and queues */
OBJECT(clCreateContext,
       (const cl_property *properties, cl_uint count, const cl_handle *devices, context_notify notify, void *data,
        cl_int *errcode_ret),
       (properties, count, devices, notify, data, errcode_ret))
OBJECT(clCreateContextFromType,
       (const cl_property *properties, cl_bitfield type, context_notify notify, void *data, cl_int *errcode_ret),
       (properties, type, notify, data, errcode_ret))
RETAIN_RELEASE(clRetainContext)
RETAIN_RELEASE(clReleaseContext)
INFO(clGetContextInfo)
OBJECT(clCreateCommandQueue, (cl_handle context, cl_handle device, cl_bitfield properties, cl_int *errcode_ret),
       (context, device, properties, errcode_ret))
OBJECT(clCreateCommandQueueWithProperties,
       (cl_handle context, cl_handle device, const cl_bitfield *properties, cl_int *errcode_ret),
       (context, device, properties, errcode_ret))
RETAIN_RELEASE(clRetainCommandQueue)
RETAIN_RELEASE(clReleaseCommandQueue)
INFO(clGetCommandQueueInfo)
STATUS(clFlush, (cl_handle queue), (queue))
STATUS(clFinish, (cl_handle queue), (queue))

/* Memory */
OBJECT(clCreateBuffer, (cl_handle context, cl_bitfield flags, size_t size, void *host, cl_int *errcode_ret),
       (context, flags, size, host, errcode_ret))
OBJECT(clCreateSubBuffer, (cl_handle buffer, cl_bitfield flags, cl_uint type, const void *info, cl_int *errcode_ret),
       (buffer, flags, type, info, errcode_ret))
OBJECT(clCreateImage2D,
       (cl_handle context, cl_bitfield flags, const void *format, size_t width, size_t height, size_t row_pitch,
        void *host, cl_int *errcode_ret),
       (context, flags, format, width, height, row_pitch, host, errcode_ret))
OBJECT(clCreateImage3D,
       (cl_handle context, cl_bitfield flags, const void *format, size_t width, size_t height, size_t depth,
        size_t row_pitch, size_t slice_pitch, void *host, cl_int *errcode_ret),
       (context, flags, format, width, height, depth, row_pitch, slice_pitch, host, errcode_ret))
OBJECT(clCreateImage,
       (cl_handle context, cl_bitfield flags, const void *format, const void *description, void *host,
        cl_int *errcode_ret),
       (context, flags, format, description, host, errcode_ret))
OBJECT(clCreatePipe,
       (cl_handle context, cl_bitfield flags, cl_uint packet_size, cl_uint max_packets, const cl_property *properties,
        cl_int *errcode_ret),
       (context, flags, packet_size, max_packets, properties, errcode_ret))
RETAIN_RELEASE(clRetainMemObject)
RETAIN_RELEASE(clReleaseMemObject)
STATUS(clGetSupportedImageFormats,
       (cl_handle context, cl_bitfield flags, cl_uint type, cl_uint count, void *formats, cl_uint *count_ret),
       (context, flags, type, count, formats, count_ret))
INFO(clGetMemObjectInfo)
INFO(clGetImageInfo)
INFO(clGetPipeInfo)
STATUS(clSetMemObjectDestructorCallback, (cl_handle object, object_notify notify, void *data), (object, notify, data))
ADDRESS(clSVMAlloc, (cl_handle context, cl_bitfield flags, size_t size, cl_uint alignment),
        (context, flags, size, alignment))
void clSVMFree(cl_handle context, void *address);
void clSVMFree(cl_handle context, void *address) {
    REAL(void, clSVMFree, (cl_handle, void *));
    if (real != NULL) {
        real(context, address);
    }
}

/* Samplers */
OBJECT(clCreateSampler,
       (cl_handle context, cl_bool normalized, cl_uint addressing, cl_uint filter, cl_int *errcode_ret),
       (context, normalized, addressing, filter, errcode_ret))
OBJECT(clCreateSamplerWithProperties, (cl_handle context, const cl_bitfield *properties, cl_int *errcode_ret),
       (context, properties, errcode_ret))
RETAIN_RELEASE(clRetainSampler)
RETAIN_RELEASE(clReleaseSampler)
INFO(clGetSamplerInfo)

/* Programs */
OBJECT(clCreateProgramWithSource,
       (cl_handle context, cl_uint count, const char **strings, const size_t *lengths, cl_int *errcode_ret),
       (context, count, strings, lengths, errcode_ret))
OBJECT(clCreateProgramWithBinary,
       (cl_handle context, cl_uint count, const cl_handle *devices, const size_t *lengths,
        const unsigned char **binaries, cl_int *statuses, cl_int *errcode_ret),
       (context, count, devices, lengths, binaries, statuses, errcode_ret))
OBJECT(clCreateProgramWithBuiltInKernels,
       (cl_handle context, cl_uint count, const cl_handle *devices, const char *names, cl_int *errcode_ret),
       (context, count, devices, names, errcode_ret))
OBJECT(clCreateProgramWithIL, (cl_handle context, const void *code, size_t length, cl_int *errcode_ret),
       (context, code, length, errcode_ret))
RETAIN_RELEASE(clRetainProgram)
RETAIN_RELEASE(clReleaseProgram)
STATUS(clBuildProgram,
       (cl_handle program, cl_uint count, const cl_handle *devices, const char *options, object_notify notify,
        void *data),
       (program, count, devices, options, notify, data))
STATUS(clUnloadCompiler, (void), ())
STATUS(clCompileProgram,
       (cl_handle program, cl_uint count, const cl_handle *devices, const char *options, cl_uint header_count,
        const cl_handle *headers, const char **header_names, object_notify notify, void *data),
       (program, count, devices, options, header_count, headers, header_names, notify, data))
OBJECT(clLinkProgram,
       (cl_handle context, cl_uint count, const cl_handle *devices, const char *options, cl_uint program_count,
        const cl_handle *programs, object_notify notify, void *data, cl_int *errcode_ret),
       (context, count, devices, options, program_count, programs, notify, data, errcode_ret))
INFO(clGetProgramInfo)
STATUS(clGetProgramBuildInfo,
       (cl_handle program, cl_handle device, cl_uint what, size_t size, void *value, size_t *size_ret),
       (program, device, what, size, value, size_ret))

/* Kernels */
OBJECT(clCreateKernel, (cl_handle program, const char *name, cl_int *errcode_ret), (program, name, errcode_ret))
STATUS(clCreateKernelsInProgram, (cl_handle program, cl_uint count, cl_handle *kernels, cl_uint *count_ret),
       (program, count, kernels, count_ret))
OBJECT(clCloneKernel, (cl_handle kernel, cl_int *errcode_ret), (kernel, errcode_ret))
RETAIN_RELEASE(clRetainKernel)
RETAIN_RELEASE(clReleaseKernel)
STATUS(clSetKernelArg, (cl_handle kernel, cl_uint index, size_t size, const void *value), (kernel, index, size, value))
STATUS(clSetKernelArgSVMPointer, (cl_handle kernel, cl_uint index, const void *value), (kernel, index, value))
STATUS(clSetKernelExecInfo, (cl_handle kernel, cl_uint what, size_t size, const void *value), (kernel, what, size, value))
INFO(clGetKernelInfo)
STATUS(clGetKernelArgInfo,
       (cl_handle kernel, cl_uint index, cl_uint what, size_t size, void *value, size_t *size_ret),
       (kernel, index, what, size, value, size_ret))
STATUS(clGetKernelWorkGroupInfo,
       (cl_handle kernel, cl_handle device, cl_uint what, size_t size, void *value, size_t *size_ret),
       (kernel, device, what, size, value, size_ret))
STATUS(clGetKernelSubGroupInfo,
       (cl_handle kernel, cl_handle device, cl_uint what, size_t input_size, const void *input, size_t size, void *value,
        size_t *size_ret),
       (kernel, device, what, input_size, input, size, value, size_ret))

/* Events */
STATUS(clWaitForEvents, (cl_uint count, const cl_handle *events), (count, events))
INFO(clGetEventInfo)
OBJECT(clCreateUserEvent, (cl_handle context, cl_int *errcode_ret), (context, errcode_ret))
RETAIN_RELEASE(clRetainEvent)
RETAIN_RELEASE(clReleaseEvent)
STATUS(clSetUserEventStatus, (cl_handle event, cl_int status), (event, status))
STATUS(clSetEventCallback, (cl_handle event, cl_int when, event_notify notify, void *data), (event, when, notify, data))
INFO(clGetEventProfilingInfo)

/* Commands on buffers */
STATUS(clEnqueueReadBuffer,
       (cl_handle queue, cl_handle buffer, cl_bool blocking, size_t offset, size_t size, void *host, WAIT),
       (queue, buffer, blocking, offset, size, host, WAIT_ARGS))
STATUS(clEnqueueReadBufferRect,
       (cl_handle queue, cl_handle buffer, cl_bool blocking, const size_t *buffer_origin, const size_t *host_origin,
        const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch,
        size_t host_slice_pitch, void *host, WAIT),
       (queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row_pitch, buffer_slice_pitch,
        host_row_pitch, host_slice_pitch, host, WAIT_ARGS))
STATUS(clEnqueueWriteBuffer,
       (cl_handle queue, cl_handle buffer, cl_bool blocking, size_t offset, size_t size, const void *host, WAIT),
       (queue, buffer, blocking, offset, size, host, WAIT_ARGS))
STATUS(clEnqueueWriteBufferRect,
       (cl_handle queue, cl_handle buffer, cl_bool blocking, const size_t *buffer_origin, const size_t *host_origin,
        const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch,
        size_t host_slice_pitch, const void *host, WAIT),
       (queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row_pitch, buffer_slice_pitch,
        host_row_pitch, host_slice_pitch, host, WAIT_ARGS))
STATUS(clEnqueueFillBuffer,
       (cl_handle queue, cl_handle buffer, const void *pattern, size_t pattern_size, size_t offset, size_t size, WAIT),
       (queue, buffer, pattern, pattern_size, offset, size, WAIT_ARGS))
STATUS(clEnqueueCopyBuffer,
       (cl_handle queue, cl_handle source, cl_handle target, size_t source_offset, size_t target_offset, size_t size,
        WAIT),
       (queue, source, target, source_offset, target_offset, size, WAIT_ARGS))
STATUS(clEnqueueCopyBufferRect,
       (cl_handle queue, cl_handle source, cl_handle target, const size_t *source_origin, const size_t *target_origin,
        const size_t *region, size_t source_row_pitch, size_t source_slice_pitch, size_t target_row_pitch,
        size_t target_slice_pitch, WAIT),
       (queue, source, target, source_origin, target_origin, region, source_row_pitch, source_slice_pitch,
        target_row_pitch, target_slice_pitch, WAIT_ARGS))
OBJECT(clEnqueueMapBuffer,
       (cl_handle queue, cl_handle buffer, cl_bool blocking, cl_bitfield flags, size_t offset, size_t size, WAIT,
        cl_int *errcode_ret),
       (queue, buffer, blocking, flags, offset, size, WAIT_ARGS, errcode_ret))

/* Commands on images */
STATUS(clEnqueueReadImage,
       (cl_handle queue, cl_handle image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row_pitch,
        size_t slice_pitch, void *host, WAIT),
       (queue, image, blocking, origin, region, row_pitch, slice_pitch, host, WAIT_ARGS))
STATUS(clEnqueueWriteImage,
       (cl_handle queue, cl_handle image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row_pitch,
        size_t slice_pitch, const void *host, WAIT),
       (queue, image, blocking, origin, region, row_pitch, slice_pitch, host, WAIT_ARGS))
STATUS(clEnqueueFillImage,
       (cl_handle queue, cl_handle image, const void *color, const size_t *origin, const size_t *region, WAIT),
       (queue, image, color, origin, region, WAIT_ARGS))
STATUS(clEnqueueCopyImage,
       (cl_handle queue, cl_handle source, cl_handle target, const size_t *source_origin, const size_t *target_origin,
        const size_t *region, WAIT),
       (queue, source, target, source_origin, target_origin, region, WAIT_ARGS))
STATUS(clEnqueueCopyImageToBuffer,
       (cl_handle queue, cl_handle source, cl_handle target, const size_t *origin, const size_t *region, size_t offset,
        WAIT),
       (queue, source, target, origin, region, offset, WAIT_ARGS))
STATUS(clEnqueueCopyBufferToImage,
       (cl_handle queue, cl_handle source, cl_handle target, size_t offset, const size_t *origin, const size_t *region,
        WAIT),
       (queue, source, target, offset, origin, region, WAIT_ARGS))
OBJECT(clEnqueueMapImage,
       (cl_handle queue, cl_handle image, cl_bool blocking, cl_bitfield flags, const size_t *origin,
        const size_t *region, size_t *row_pitch, size_t *slice_pitch, WAIT, cl_int *errcode_ret),
       (queue, image, blocking, flags, origin, region, row_pitch, slice_pitch, WAIT_ARGS, errcode_ret))

/* Commands on either, kernels and order */
STATUS(clEnqueueUnmapMemObject, (cl_handle queue, cl_handle object, void *mapped, WAIT),
       (queue, object, mapped, WAIT_ARGS))
STATUS(clEnqueueMigrateMemObjects, (cl_handle queue, cl_uint count, const cl_handle *objects, cl_bitfield flags, WAIT),
       (queue, count, objects, flags, WAIT_ARGS))
STATUS(clEnqueueNDRangeKernel,
       (cl_handle queue, cl_handle kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
        const size_t *local, WAIT),
       (queue, kernel, dimensions, offset, global, local, WAIT_ARGS))
STATUS(clEnqueueTask, (cl_handle queue, cl_handle kernel, WAIT), (queue, kernel, WAIT_ARGS))
STATUS(clEnqueueNativeKernel,
       (cl_handle queue, native_function call, void *args, size_t args_size, cl_uint count, const cl_handle *objects,
        const void **places, WAIT),
       (queue, call, args, args_size, count, objects, places, WAIT_ARGS))
STATUS(clEnqueueMarker, (cl_handle queue, cl_handle *event), (queue, event))
STATUS(clEnqueueMarkerWithWaitList, (cl_handle queue, WAIT), (queue, WAIT_ARGS))
STATUS(clEnqueueWaitForEvents, (cl_handle queue, cl_uint count, const cl_handle *events), (queue, count, events))
STATUS(clEnqueueBarrier, (cl_handle queue), (queue))
STATUS(clEnqueueBarrierWithWaitList, (cl_handle queue, WAIT), (queue, WAIT_ARGS))

/* Shared virtual memory */
STATUS(clEnqueueSVMFree,
       (cl_handle queue, cl_uint count, void **addresses, svm_free_notify notify, void *data, WAIT),
       (queue, count, addresses, notify, data, WAIT_ARGS))
STATUS(clEnqueueSVMMemcpy,
       (cl_handle queue, cl_bool blocking, void *target, const void *source, size_t size, WAIT),
       (queue, blocking, target, source, size, WAIT_ARGS))
STATUS(clEnqueueSVMMemFill,
       (cl_handle queue, void *address, const void *pattern, size_t pattern_size, size_t size, WAIT),
       (queue, address, pattern, pattern_size, size, WAIT_ARGS))
STATUS(clEnqueueSVMMap, (cl_handle queue, cl_bool blocking, cl_bitfield flags, void *address, size_t size, WAIT),
       (queue, blocking, flags, address, size, WAIT_ARGS))
STATUS(clEnqueueSVMUnmap, (cl_handle queue, void *address, WAIT), (queue, address, WAIT_ARGS))
STATUS(clEnqueueSVMMigrateMem,
       (cl_handle queue, cl_uint count, const void **addresses, const size_t *sizes, cl_bitfield flags, WAIT),
       (queue, count, addresses, sizes, flags, WAIT_ARGS))

/* Extensions */
ADDRESS(clGetExtensionFunctionAddress, (const char *name), (name))
ADDRESS(clGetExtensionFunctionAddressForPlatform, (cl_handle platform, const char *name), (platform, name))

/* OpenGL sharing (cl_GLuint, cl_GLenum: 32 bits unsigned; cl_GLint: 32 bits signed) */
OBJECT(clCreateFromGLBuffer, (cl_handle context, cl_bitfield flags, cl_uint buffer, cl_int *errcode_ret),
       (context, flags, buffer, errcode_ret))
OBJECT(clCreateFromGLTexture,
       (cl_handle context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture, cl_int *errcode_ret),
       (context, flags, target, level, texture, errcode_ret))
OBJECT(clCreateFromGLTexture2D,
       (cl_handle context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture, cl_int *errcode_ret),
       (context, flags, target, level, texture, errcode_ret))
OBJECT(clCreateFromGLTexture3D,
       (cl_handle context, cl_bitfield flags, cl_uint target, cl_int level, cl_uint texture, cl_int *errcode_ret),
       (context, flags, target, level, texture, errcode_ret))
OBJECT(clCreateFromGLRenderbuffer, (cl_handle context, cl_bitfield flags, cl_uint renderbuffer, cl_int *errcode_ret),
       (context, flags, renderbuffer, errcode_ret))
STATUS(clGetGLObjectInfo, (cl_handle object, cl_uint *type, cl_uint *name), (object, type, name))
INFO(clGetGLTextureInfo)
STATUS(clEnqueueAcquireGLObjects, (cl_handle queue, cl_uint count, const cl_handle *objects, WAIT),
       (queue, count, objects, WAIT_ARGS))
STATUS(clEnqueueReleaseGLObjects, (cl_handle queue, cl_uint count, const cl_handle *objects, WAIT),
       (queue, count, objects, WAIT_ARGS))
STATUS(clGetGLContextInfoKHR,
       (const cl_property *properties, cl_uint what, size_t size, void *value, size_t *size_ret),
       (properties, what, size, value, size_ret))

#pragma GCC visibility pop

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/runtime_calls.h - the calls of CUDA's driver and HIP's runtime and the numbers of their headers; private to
 * gpu/runtime.c. `make judge-headers` compares both tables with cuda.h and hip_runtime_api.h. */
#ifndef TM_GPU_RUNTIME_CALLS_H
#define TM_GPU_RUNTIME_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* An address is a number of 64 bits to CUDA, a pointer to HIP: the same to a caller.
 * X(member, result, arguments, CUDA's name, HIP's): NULL: it has none. */
#define GPU_CALLS(X)                                                                                                   \
    X(init, int, (unsigned flags), "cuInit", "hipInit")                                                                \
    X(version, int, (int *version), "cuDriverGetVersion", "hipRuntimeGetVersion")                                      \
    X(count, int, (int *count), "cuDeviceGetCount", "hipGetDeviceCount")                                               \
    X(device, int, (int *device, int index), "cuDeviceGet", "hipDeviceGet")                                            \
    X(name, int, (char *name, int bytes, int device), "cuDeviceGetName", "hipDeviceGetName")                           \
    X(bus, int, (char *bus, int bytes, int device), "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId")                     \
    X(memory, int, (size_t * bytes, int device), "cuDeviceTotalMem_v2", "hipDeviceTotalMem")                           \
    X(unused, int, (size_t * free, size_t * total), "cuMemGetInfo_v2", "hipMemGetInfo")                                \
    X(attribute, int, (int *value, int which, int device), "cuDeviceGetAttribute", NULL)                               \
    X(properties, int, (void *properties, int device), NULL, "hipGetDevicePropertiesR0600")                            \
    X(retain, int, (void **context, int device), "cuDevicePrimaryCtxRetain", NULL)                                     \
    X(current, int, (void *context), "cuCtxSetCurrent", NULL)                                                          \
    X(give_back, int, (int device), "cuDevicePrimaryCtxRelease_v2", NULL)                                              \
    X(choose, int, (int device), NULL, "hipSetDevice")                                                                 \
    X(alloc, int, (void **memory, size_t bytes), "cuMemAlloc_v2", "hipMalloc")                                         \
    X(free, int, (void *memory), "cuMemFree_v2", "hipFree")                                                            \
    X(alloc_host, int, (void **memory, size_t bytes, unsigned flags), "cuMemHostAlloc", "hipHostMalloc")               \
    X(free_host, int, (void *memory), "cuMemFreeHost", "hipHostFree")                                                  \
    X(write, int, (void *to, const void *from, size_t bytes), "cuMemcpyHtoD_v2", "hipMemcpyHtoD")                      \
    X(read, int, (void *to, const void *from, size_t bytes), "cuMemcpyDtoH_v2", "hipMemcpyDtoH")                       \
    X(queue_write, int, (void *to, const void *from, size_t bytes, void *stream), "cuMemcpyHtoDAsync_v2",              \
      "hipMemcpyHtoDAsync")                                                                                            \
    X(queue_read, int, (void *to, const void *from, size_t bytes, void *stream), "cuMemcpyDtoHAsync_v2",               \
      "hipMemcpyDtoHAsync")                                                                                            \
    X(queue_copy, int, (void *to, const void *from, size_t bytes, void *stream), "cuMemcpyDtoDAsync_v2",               \
      "hipMemcpyDtoDAsync")                                                                                            \
    X(queue_fill, int, (void *to, unsigned char value, size_t bytes, void *stream), "cuMemsetD8Async",                 \
      "hipMemsetD8Async")                                                                                              \
    X(stream, int, (void **stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags")                      \
    X(stream_free, int, (void *stream), "cuStreamDestroy_v2", "hipStreamDestroy")                                      \
    X(stream_done, int, (void *stream), "cuStreamQuery", "hipStreamQuery")                                             \
    X(stream_wait, int, (void *stream), "cuStreamSynchronize", "hipStreamSynchronize")                                 \
    X(stream_after, int, (void *stream, void *event, unsigned flags), "cuStreamWaitEvent", "hipStreamWaitEvent")       \
    X(event, int, (void **event, unsigned flags), "cuEventCreate", "hipEventCreateWithFlags")                          \
    X(event_free, int, (void *event), "cuEventDestroy_v2", "hipEventDestroy")                                          \
    X(event_wait, int, (void *event), "cuEventSynchronize", "hipEventSynchronize")                                     \
    X(record, int, (void *event, void *stream), "cuEventRecord", "hipEventRecord")                                     \
    X(elapsed, int, (float *milliseconds, void *from, void *to), "cuEventElapsedTime", "hipEventElapsedTime")          \
    X(module, int, (void **module, const void *code), "cuModuleLoadData", "hipModuleLoadData")                         \
    X(module_free, int, (void *module), "cuModuleUnload", "hipModuleUnload")                                           \
    X(kernel, int, (void **kernel, void *module, const char *name), "cuModuleGetFunction", "hipModuleGetFunction")     \
    X(kernel_set, int, (void *kernel, int which, int value), "cuFuncSetAttribute", NULL)                               \
    X(launch, int,                                                                                                     \
      (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,    \
       void *stream, void **arguments, void **extra),                                                                  \
      "cuLaunchKernel", "hipModuleLaunchKernel")                                                                       \
    X(map, int,                                                                                                        \
      (void *map, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides,                   \
       const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill),              \
      "cuTensorMapEncodeTiled", NULL)                                                                                  \
    X(capture, int, (void *stream, int mode), "cuStreamBeginCapture_v2", "hipStreamBeginCapture")                      \
    X(captured, int, (void *stream, void **graph), "cuStreamEndCapture", "hipStreamEndCapture")                        \
    X(graph_make, int, (void **played, void *graph, unsigned long long flags), "cuGraphInstantiateWithFlags",          \
      "hipGraphInstantiateWithFlags")                                                                                  \
    X(graph_free, int, (void *graph), "cuGraphDestroy", "hipGraphDestroy")                                             \
    X(played_free, int, (void *played), "cuGraphExecDestroy", "hipGraphExecDestroy")                                   \
    X(play, int, (void *played, void *stream), "cuGraphLaunch", "hipGraphLaunch")                                      \
    X(words, int, (int code, const char **text), "cuGetErrorString", NULL)                                             \
    X(text, const char *, (int code), NULL, "hipGetErrorString")

/* X(name, value, CUDA's expression for it, HIP's): NULL: it has none. */
#define GPU_NUMBERS(X)                                                                                                 \
    X(GPU_NO_MEMORY, 2, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory")                                             \
    X(GPU_NONE, 100, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice")                                                       \
    X(GPU_NOT_READY, 600, "CUDA_ERROR_NOT_READY", "hipErrorNotReady")                                                  \
    X(GPU_NON_BLOCKING, 1, "CU_STREAM_NON_BLOCKING", "hipStreamNonBlocking")                                           \
    X(GPU_CAPTURE_RELAXED, 2, "CU_STREAM_CAPTURE_MODE_RELAXED", "hipStreamCaptureModeRelaxed")                         \
    X(GPU_LAUNCH_BUFFER, 1, "CU_LAUNCH_PARAM_BUFFER_POINTER", "HIP_LAUNCH_PARAM_BUFFER_POINTER")                       \
    X(GPU_LAUNCH_BYTES, 2, "CU_LAUNCH_PARAM_BUFFER_SIZE", "HIP_LAUNCH_PARAM_BUFFER_SIZE")                              \
    X(CUDA_LAUNCH_END, 0, "CU_LAUNCH_PARAM_END", NULL)                                                                 \
    X(HIP_LAUNCH_END, 3, NULL, "HIP_LAUNCH_PARAM_END")                                                                 \
    X(CUDA_MULTIPROCESSORS, 16, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", NULL)                                      \
    X(CUDA_L2_CACHE, 38, "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", NULL)                                                    \
    X(CUDA_MAJOR, 75, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", NULL)                                            \
    X(CUDA_MINOR, 76, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", NULL)                                            \
    X(CUDA_SHARED_OPTIN, 97, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", NULL)                            \
    X(CUDA_DYNAMIC_SHARED, 8, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", NULL)                                 \
    X(CUDA_MAP_BFLOAT16, 9, "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", NULL)                                                  \
    X(CUDA_MAP_NOT_INTERLEAVED, 0, "CU_TENSOR_MAP_INTERLEAVE_NONE", NULL)                                              \
    X(CUDA_MAP_SWIZZLE_128, 3, "CU_TENSOR_MAP_SWIZZLE_128B", NULL)                                                     \
    X(CUDA_MAP_PROMOTION_256, 3, "CU_TENSOR_MAP_L2_PROMOTION_L2_256B", NULL)                                           \
    X(CUDA_MAP_ZEROS, 0, "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", NULL)                                                    \
    X(HIP_PROPERTIES_BYTES, 1472, NULL, "sizeof(hipDeviceProp_tR0600)")                                                \
    X(HIP_SHARED_PER_BLOCK, 296, NULL, "offsetof(hipDeviceProp_tR0600, sharedMemPerBlock)")                            \
    X(HIP_MULTIPROCESSORS, 388, NULL, "offsetof(hipDeviceProp_tR0600, multiProcessorCount)")                           \
    X(HIP_L2_CACHE, 616, NULL, "offsetof(hipDeviceProp_tR0600, l2CacheSize)")                                          \
    X(HIP_ARCH_NAME, 1160, NULL, "offsetof(hipDeviceProp_tR0600, gcnArchName)")

enum {
#define X(name, value, cuda, hip) name = (value),
    GPU_NUMBERS(X)
#undef X
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A HIP runtime that says that there is a GPU of STANDIN_GPU_ARCH, and does nothing: loaded before the real one, so
 * that a real hipBLASLt names its algorithms without a GPU (`make judge-hipblaslt`). It reads properties and loads code
 * objects, which nobody launches here. hip_runtime_api.h of HIP 6 and 7; memory is the host's. */
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* those of the makers' headers */
#define API __attribute__((visibility("default"))) int
#define NOTHING(name)                                                                                                  \
    API name(void);                                                                                                    \
    API name(void)                                                                                                     \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }

enum { NAME = 0, MEMORY = 288, SHARED = 296, WARP = 308, THREADS = 320, PROCESSORS = 388, ARCH = 1160, BYTES = 1472 };

static void put(char *properties, int at, int value)
{
    memcpy(properties + at, &value, sizeof value);
}

API hipGetDevicePropertiesR0600(char *properties, int device)
{
    size_t      memory = (size_t)192 << 30, shared = 64 << 10;
    const char *arch = getenv("STANDIN_GPU_ARCH");
    (void)device;
    memset(properties, 0, BYTES);
    strcpy(properties + NAME, "told"); // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
    memcpy(properties + MEMORY, &memory, sizeof memory);
    memcpy(properties + SHARED, &shared, sizeof shared);
    put(properties, WARP, 64);
    put(properties, THREADS, 1024);
    put(properties, PROCESSORS, 304);
    strncpy(properties + ARCH, arch ? arch : "gfx942", 64);
    return 0;
}

API hipGetDevice(int *device)
{
    *device = 0;
    return 0;
}

API hipGetDeviceCount(int *n)
{
    *n = 1;
    return 0;
}

/* 63: hipDeviceAttributeMultiprocessorCount */
API hipDeviceGetAttribute(int *value, int which, int device)
{
    (void)device;
    *value = which == 63 ? 304 : 0;
    return 0;
}

API hipRuntimeGetVersion(int *version)
{
    *version = 60400000;
    return 0;
}

API hipMalloc(void **memory, size_t bytes)
{
    *memory = calloc(1, bytes);
    return 0;
}

API hipHostMalloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = calloc(1, bytes);
    return 0;
}

API hipFree(void *memory)
{
    free(memory);
    return 0;
}

/* A module, or a kernel of it: nobody looks into either. */
static int name_thing(void **thing)
{
    static char one;
    *thing = &one;
    return 0;
}

API hipModuleLoad(void **module, const char *path)
{
    (void)path;
    return name_thing(module);
}

API hipModuleLoadData(void **module, const void *code)
{
    (void)code;
    return name_thing(module);
}

API hipModuleGetFunction(void **kernel, void *module, const char *name)
{
    (void)module;
    (void)name;
    return name_thing(kernel);
}

/* clang-format off */
NOTHING(hipGetLastError)
NOTHING(hipDeviceSynchronize)
NOTHING(hipEventRecord)
NOTHING(hipMemcpy)
NOTHING(hipMemcpyAsync)
NOTHING(hipMemset)
NOTHING(hipModuleUnload)
NOTHING(hipExtModuleLaunchKernel)

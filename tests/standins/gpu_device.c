/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for a GPU's runtime: devices and their memory. */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t  room = (uint64_t)1 << 32; /* bytes of a GPU */
static machine_memory *memory;
static uint64_t        taken;
static int             held; /* blocks that were not given back */

machine_memory *standin_memory(void)
{
    if (!memory) memory = machine_memory_new();
    return memory;
}

/* --- memory ----------------------------------------------------------------------------------------------------------
 */

/* NULL: no address of the GPU. */
void *standin_real(const void *address, size_t bytes)
{
    if (standin_notes() && (uintptr_t)address >> 40 > 0 && (uintptr_t)address >> 46 == 0) { /* made up */
        standin_note(&address, sizeof address), standin_note(&bytes, sizeof bytes);
        return (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
    }
    return memory && !standin_notes() ? machine_host_at(memory, (uintptr_t)address, bytes) : NULL;
}

/* cuda.h, CUDA_ERROR_OUT_OF_MEMORY: "unable to allocate enough memory". */
API NAME(cuMemAlloc_v2, hipMalloc)(void **out, size_t bytes)
{
    int code = standin_fault("cuMemAlloc_v2");
    if (code) return code;
    if (bytes > room - taken) return NO_MEMORY;
    pthread_mutex_lock(&standin_lock);
    uint64_t at = machine_alloc(standin_memory(), bytes);
    pthread_mutex_unlock(&standin_lock);
    if (!at) return NO_MEMORY;
    taken += bytes;
    held++;
    *out = (void *)(uintptr_t)at; // NOLINT(performance-no-int-to-ptr)
    return OK;
}

API NAME(cuMemFree_v2, hipFree)(void *at)
{
    standin_settle(); /* CUDA's cudaFree, HIP's hipFree: "implicit synchronization is performed" */
    pthread_mutex_lock(&standin_lock);
    bool known = machine_release(standin_memory(), (uintptr_t)at);
    pthread_mutex_unlock(&standin_lock);
    if (!known) return INVALID;
    held--;
    return OK;
}

/* For tests: blocks of memory that nobody has given back. */
TOLD(standin_held, held)

/* Pinned memory of the host: what copies that do not wait read and write. */
enum { MOST_PINNED = 256 };
typedef struct {
    char  *at;
    size_t bytes;
    bool   source; /* of a copy to the GPU */
} block;
static block pinned[MOST_PINNED];

/* NULL: it is not pinned. */
static block *pinned_at(const void *at, size_t bytes)
{
    const char *from = at;
    for (int i = 0; i < MOST_PINNED; i++)
        if (pinned[i].at && from >= pinned[i].at && from + bytes <= pinned[i].at + pinned[i].bytes) return &pinned[i];
    return NULL;
}

API NAME(cuMemHostAlloc, hipHostMalloc)(void **out, size_t bytes, unsigned flags)
{
    int code = standin_fault("cuMemHostAlloc"), i = 0;
    if (code || flags) return code ? code : INVALID;
    while (i < MOST_PINNED && pinned[i].at) i++;
    if (i == MOST_PINNED) return NO_MEMORY;
    pinned[i].at = malloc(bytes);
    pinned[i].bytes = bytes;
    pinned[i].source = false;
    memset(pinned[i].at, 0xff, bytes);
    *out = pinned[i].at;
    held++;
    return OK;
}

API NAME(cuMemFreeHost, hipHostFree)(void *at)
{
    for (int i = 0; i < MOST_PINNED; i++) {
        if (pinned[i].at != at) continue;
        free(at);
        pinned[i].at = NULL;
        held--;
        return OK;
    }
    return INVALID;
}

typedef struct {
    void         *to;
    const void   *from;
    size_t        bytes;
    unsigned char value;
    void         *staged;
} copying;

static void copy(void *of)
{
    const copying *c = of;
    memcpy(c->to, c->from, c->bytes);
}

static void fill(void *of)
{
    const copying *c = of;
    memset(c->to, c->value, c->bytes);
}

static void drop(void *of)
{
    free(((copying *)of)->staged);
    free(of);
}

static void put(void *stream, void (*run)(void *), copying what)
{
    copying *c = malloc(sizeof *c);
    *c = what;
    standin_put(stream, (standin_work){ .run = run, .drop = drop, .with = c });
}

static void *default_stream;
API          NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags);
API          NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream);

/* Returns when the source may be changed; what was written is there later, in the default stream. */
API NAME(cuMemcpyHtoD_v2, hipMemcpyHtoD)(void *to, const void *from, size_t bytes)
{
    int     code = standin_fault("cuMemcpyHtoD_v2");
    copying c = { .to = standin_real(to, bytes), .bytes = bytes };
    if (code || !c.to) return code ? code : INVALID;
    pthread_mutex_lock(&standin_lock);
    if (!default_stream) (void)NAME(cuStreamCreate, hipStreamCreateWithFlags)(&default_stream, 1);
    pthread_mutex_unlock(&standin_lock);
    c.from = c.staged = malloc(bytes);
    memcpy(c.staged, from, bytes);
    put(default_stream, copy, c);
    return OK;
}

void *standin_default_stream(void)
{
    return default_stream;
}

/* At once, as the real one for a queue that does not heed the default queue. */
API NAME(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void *to, const void *from, size_t bytes)
{
    int         code = standin_fault("cuMemcpyDtoH_v2");
    const void *real = standin_real(from, bytes);
    if (code || !real) return code ? code : INVALID;
    memcpy(to, real, bytes);
    return OK;
}

/* The source is read when the copy's turn comes. The real ones take memory that is not pinned, too, and wait for it. */
API NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void *to, const void *from, size_t bytes, void *stream)
{
    int     code = standin_fault("cuMemcpyHtoDAsync_v2");
    copying c = { .to = standin_real(to, bytes), .from = from, .bytes = bytes };
    block  *of = pinned_at(from, bytes);
    if (code || !c.to || !of) return code ? code : INVALID;
    of->source = true;
    put(stream, copy, c);
    return OK;
}

API NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, const void *from, size_t bytes, void *stream)
{
    int     code = standin_fault("cuMemcpyDtoHAsync_v2");
    copying c = { .to = to, .from = standin_real(from, bytes), .bytes = bytes };
    block  *of = pinned_at(to, bytes);
    if (code || !c.from || !of) return code ? code : INVALID;
    if (!of->source) memset(to, 0xff, bytes); /* until then; copies that come before may read the others */
    put(stream, copy, c);
    return OK;
}

API NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void *to, const void *from, size_t bytes, void *stream)
{
    int     code = standin_fault("cuMemcpyDtoDAsync_v2");
    copying c = { .to = standin_real(to, bytes), .from = standin_real(from, bytes), .bytes = bytes };
    if (code || !c.to || !c.from) return code ? code : INVALID;
    put(stream, copy, c);
    return OK;
}

API NAME(cuMemsetD8Async, hipMemsetD8Async)(void *to, unsigned char value, size_t bytes, void *stream)
{
    int     code = standin_fault("cuMemsetD8Async");
    copying c = { .to = standin_real(to, bytes), .bytes = bytes, .value = value };
    if (code || !c.to) return code ? code : INVALID;
    put(stream, fill, c);
    return OK;
}

/* --- devices ---------------------------------------------------------------------------------------------------------
 */

static int gpus(void)
{
    return getenv("STANDIN_GPUS") ? atoi(getenv("STANDIN_GPUS")) : 4;
}

/* CUDA_ERROR_NO_DEVICE, hipErrorNoDevice: the real ones (550, 6.4) say so when they begin. */
API NAME(cuInit, hipInit)(unsigned flags)
{
    int fault = standin_fault("cuInit");
    (void)flags;
    return fault ? fault : gpus() > 0 ? OK : NO_DEVICE;
}

TELLS(cuDriverGetVersion, hipRuntimeGetVersion, (int *version),
      *version = getenv("STANDIN_GPU_VERSION") ? atoi(getenv("STANDIN_GPU_VERSION")) : 12040)
TELLS(cuDeviceGetCount, hipGetDeviceCount, (int *count), *count = gpus())

API NAME(cuDeviceGet, hipDeviceGet)(int *device, int index)
{
    int code = standin_fault("cuDeviceGet");
    *device = index;
    return code ? code : index >= 0 && index < gpus() ? OK : NO_DEVICE;
}

#define CALLED (getenv("STANDIN_GPU_NAME") ? getenv("STANDIN_GPU_NAME") : "a stand-in")
TELLS(cuDeviceGetName, hipDeviceGetName, (char *name, int bytes, int device),
      ((void)device, snprintf(name, (size_t)bytes, "%s", CALLED)))
TELLS(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *bus, int bytes, int device),
      snprintf(bus, (size_t)bytes, "0000:%02x:00.0", device + 16))
TELLS(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * bytes, int device), ((void)device, *bytes = room))
/* cuda.h, cuMemGetInfo: free and total memory of the context's device. */
TELLS(cuMemGetInfo_v2, hipMemGetInfo, (size_t * unused, size_t *total), (*unused = room - taken, *total = room))

/* STANDIN_GPU_UNITS, or those of a real one: grids are as large. */
static int units_or(int real)
{
    return getenv("STANDIN_GPU_UNITS") ? atoi(getenv("STANDIN_GPU_UNITS")) : real;
}

/* STANDIN_GPU_CACHE bytes of L2: what rotates beyond it is as large. */
static int cache_or(int real)
{
    return getenv("STANDIN_GPU_CACHE") ? atoi(getenv("STANDIN_GPU_CACHE")) : real;
}

#ifdef HIP
API hipSetDevice(int device)
{
    int code = standin_fault("hipSetDevice");
    return code ? code : device >= 0 && device < gpus() ? OK : NO_DEVICE;
}

/* hip_runtime_api.h, hipDeviceProp_tR0600: 1,472 bytes; of an MI300X, as far as anybody asks. */
API hipGetDevicePropertiesR0600(void *out, int device)
{
    char  *at = out;
    size_t shared = 65536;
    int    units = units_or(304), cache = cache_or(4 << 20);
    (void)device;
    memset(at, 0, 1472);
    memcpy(at + 296, &shared, sizeof shared);
    memcpy(at + 388, &units, sizeof units);
    memcpy(at + 616, &cache, sizeof cache);
    snprintf(at + 1160, 256, "%s:sramecc+:xnack-", getenv("STANDIN_GPU_ARCH") ? getenv("STANDIN_GPU_ARCH") : "gfx942");
    return standin_fault("hipGetDevicePropertiesR0600");
}

SHOWN const char *hipGetErrorString(int code)
{
    return code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "some other error";
}
#else
/* cuda.h, CUdevice_attribute; of an H100. */
API cuDeviceGetAttribute(int *value, int which, int device)
{
    const char *arch = getenv("STANDIN_GPU_ARCH") ? getenv("STANDIN_GPU_ARCH") : "sm_90";
    int         number = atoi(arch + 3);
    (void)device;
    *value = which == 16   ? units_or(132)
             : which == 38 ? cache_or(50 << 20)
             : which == 75 ? number / 10
             : which == 76 ? number % 10
             : which == 97 ? 232448
                           : 0;
    return standin_fault("cuDeviceGetAttribute");
}

API cuDevicePrimaryCtxRetain(void **context, int device)
{
    static char contexts[64];
    *context = contexts + device;
    return standin_fault("cuDevicePrimaryCtxRetain");
}

TELLS(cuCtxSetCurrent, , (void *context), (void)context)

API cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return OK;
}

API cuGetErrorString(int code, const char **text)
{
    *text = code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "some other error";
    return OK;
}
#endif

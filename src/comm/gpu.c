/* SPDX-License-Identifier: Apache-2.0 */
/* comm/gpu.c - the only file that knows a GPU's runtime. CUDA's driver and HIP's runtime have the same calls under
 * other names, but for choosing the device and for the words of an error; one table has both. */
#include "comm/gpu.h"

#include "base/arena.h"
#include "base/text.h"
#include "comm/library.h"

#include <stdlib.h>
#include <string.h>

/* Both runtimes'. An address is a number of 64 bits to one, a pointer to the other: the same to a caller. */
enum { NOT_READY = 600, NON_BLOCKING = 1 };

typedef struct {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*device)(int *device, int index);
    int (*name)(char *name, int bytes, int device);
    int (*bus)(char *bus, int bytes, int device);
    int (*memory)(size_t *bytes, int device);
    int (*retain)(void **context, int device); /* CUDA: the device's context ... */
    int (*current)(void *context);             /* ... is that of this thread */
    int (*release)(int device);
    int (*choose)(int device); /* HIP */
    int (*alloc)(void **memory, size_t bytes);
    int (*free)(void *memory);
    int (*write)(void *to, const void *from, size_t bytes);
    int (*read)(void *to, const void *from, size_t bytes);
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*stream)(void **stream, unsigned flags);
    int (*stream_free)(void *stream);
    int (*stream_done)(void *stream);
    int (*stream_wait)(void *stream);
    int (*event)(void **event, unsigned flags);
    int (*event_free)(void *event);
    int (*record)(void *event, void *stream);
    int (*elapsed)(float *milliseconds, void *from, void *to);
    int (*words)(int code, const char **text); /* CUDA */
    const char *(*text)(int code);             /* HIP */
} calls;

#define ROW(member, cuda, hip)                                                                                         \
    {                                                                                                                  \
        offsetof(calls, member),                                                                                       \
        {                                                                                                              \
            cuda, hip                                                                                                  \
        }                                                                                                              \
    }
static const struct {
    size_t      at;
    const char *name[2]; /* of CUDA, of HIP; NULL: has none */
} names[] = {
    ROW(init, "cuInit", "hipInit"),
    ROW(version, "cuDriverGetVersion", "hipRuntimeGetVersion"),
    ROW(count, "cuDeviceGetCount", "hipGetDeviceCount"),
    ROW(device, "cuDeviceGet", "hipDeviceGet"),
    ROW(name, "cuDeviceGetName", "hipDeviceGetName"),
    ROW(bus, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"),
    ROW(memory, "cuDeviceTotalMem_v2", "hipDeviceTotalMem"),
    ROW(retain, "cuDevicePrimaryCtxRetain", NULL),
    ROW(current, "cuCtxSetCurrent", NULL),
    ROW(release, "cuDevicePrimaryCtxRelease_v2", NULL),
    ROW(choose, NULL, "hipSetDevice"),
    ROW(alloc, "cuMemAlloc_v2", "hipMalloc"),
    ROW(free, "cuMemFree_v2", "hipFree"),
    ROW(write, "cuMemcpyHtoD_v2", "hipMemcpyHtoD"),
    ROW(read, "cuMemcpyDtoH_v2", "hipMemcpyDtoH"),
    ROW(copy, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
    ROW(stream, "cuStreamCreate", "hipStreamCreateWithFlags"),
    ROW(stream_free, "cuStreamDestroy_v2", "hipStreamDestroy"),
    ROW(stream_done, "cuStreamQuery", "hipStreamQuery"),
    ROW(stream_wait, "cuStreamSynchronize", "hipStreamSynchronize"),
    ROW(event, "cuEventCreate", "hipEventCreateWithFlags"),
    ROW(event_free, "cuEventDestroy_v2", "hipEventDestroy"),
    ROW(record, "cuEventRecord", "hipEventRecord"),
    ROW(elapsed, "cuEventElapsedTime", "hipEventElapsedTime"),
    ROW(words, "cuGetErrorString", NULL),
    ROW(text, NULL, "hipGetErrorString"),
};
enum { NAMES = sizeof names / sizeof names[0] };

struct tm_gpu {
    calls        call;
    int          hip;
    tm_library   library;
    tm_gpu_facts facts;
    int          device;
    bool         retained;
    void        *stream, *mark[2];
};

/* --- the library ----------------------------------------------------------------------------- */

static const char *name_of(const tm_gpu *gpu, size_t member)
{
    for (int i = 0; i < NAMES; i++)
        if (names[i].at == member) return names[i].name[gpu->hip];
    return "?";
}

static tm_status failed(const tm_gpu *gpu, size_t member, int code, tm_error *err)
{
    const char *words = NULL;
    if (gpu->call.text) words = gpu->call.text(code);
    if (gpu->call.words && gpu->call.words(code, &words) != 0) words = NULL;
    const char *name = *gpu->facts.name ? gpu->facts.name : gpu->facts.runtime;
    return tm_fail(err, TM_DEVICE, "GPU %d (%s): %s: %s (error %d)", gpu->facts.index, name, name_of(gpu, member),
                   words ? words : "an error without words", code);
}

#define MUST(gpu, member, ...)                                                                                         \
    do {                                                                                                               \
        int must_code_ = (gpu)->call.member(__VA_ARGS__);                                                              \
        if (must_code_ != 0) return failed((gpu), offsetof(calls, member), must_code_, err);                           \
    } while (0)

/* Whose runtime the library is, by its first symbol. */
static tm_status find_library(int hip, tm_gpu *gpu, tm_error *err)
{
    static const char *const files[2][5] = { { "libcuda.so.1", NULL },
                                             { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                               "/opt/rocm/lib/libamdhip64.so", NULL } };
    const char              *given = getenv("TRAINMARK_GPU_RUNTIME");
    tm_text                  tried = { 0 };
    bool                     found = false;
    for (int h = 0; h < 2 && !found; h++) {
        if (hip >= 0 && h != hip) continue;
        const char *const one[] = { given, NULL };
        found = tm_library_open(given && *given ? one : files[h], &gpu->library, &tried) &&
                tm_library_symbol(&gpu->library, names[0].name[h]);
        gpu->hip = h;
    }
    tm_status st = TM_OK;
    if (!found)
        st = tm_fail(
            err, TM_INVALID,
            "no runtime of a GPU was found (%s); install NVIDIA's driver, which has libcuda.so.1 (in containers: "
            "docker run --gpus all), or ROCm's libamdhip64.so, or name the file in TRAINMARK_GPU_RUNTIME",
            tried.data ? tried.data : "");
    tm_text_fini(&tried);
    return st;
}

static tm_status find_calls(tm_gpu *gpu, tm_error *err)
{
    for (int i = 0; i < NAMES; i++) {
        if (!names[i].name[gpu->hip]) continue;
        void *symbol = tm_library_symbol(&gpu->library, names[i].name[gpu->hip]);
        if (!symbol)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no %s", gpu->library.path,
                           names[i].name[gpu->hip], gpu->facts.runtime);
        memcpy((char *)&gpu->call + names[i].at, &symbol, sizeof symbol);
    }
    return TM_OK;
}

/* --- from beginning to end ------------------------------------------------------------------- */

static tm_status find_device(tm_gpu *gpu, int wanted, tm_error *err)
{
    tm_gpu_facts *f = &gpu->facts;
    void         *context = NULL;
    MUST(gpu, init, 0);
    MUST(gpu, version, &f->version);
    MUST(gpu, count, &f->count);
    if (f->count < 1)
        return tm_fail(err, TM_INVALID,
                       "%s (%s) shows no GPU to this process; see CUDA_VISIBLE_DEVICES, "
                       "HIP_VISIBLE_DEVICES and the job's allocation",
                       f->runtime, f->library);
    f->index = wanted % f->count;
    MUST(gpu, device, &gpu->device, f->index);
    MUST(gpu, name, f->name, (int)sizeof f->name, gpu->device);
    MUST(gpu, bus, f->bus, (int)sizeof f->bus, gpu->device);
    MUST(gpu, memory, &f->memory, gpu->device);
    if (gpu->hip) {
        MUST(gpu, choose, gpu->device);
    } else {
        MUST(gpu, retain, &context, gpu->device);
        gpu->retained = true;
        MUST(gpu, current, context);
    }
    MUST(gpu, stream, &gpu->stream, NON_BLOCKING);
    for (int i = 0; i < 2; i++) MUST(gpu, event, &gpu->mark[i], 0);
    return TM_OK;
}

tm_status tm_gpu_open(int hip, int wanted, tm_gpu **out, tm_error *err)
{
    tm_gpu *gpu = memset(tm_alloc(sizeof *gpu), 0, sizeof *gpu);
    *out = NULL;
    tm_status st = find_library(hip, gpu, err);
    gpu->facts.runtime = gpu->hip ? "HIP" : "CUDA";
    gpu->facts.library = gpu->library.path;
    if (st == TM_OK) st = find_calls(gpu, err);
    if (st == TM_OK) st = find_device(gpu, wanted, err);
    if (st == TM_OK)
        *out = gpu;
    else
        tm_gpu_close(gpu);
    return st;
}

int tm_gpu_count(void)
{
    tm_gpu   gpu = { .facts = { .runtime = "GPU" } };
    tm_error ignored = { 0 };
    int      n = 0;
    if (find_library(-1, &gpu, &ignored) != TM_OK || find_calls(&gpu, &ignored) != TM_OK) return 0;
    return gpu.call.init(0) == 0 && gpu.call.count(&n) == 0 ? n : 0;
}

/* The library stays loaded: it has threads. */
void tm_gpu_close(tm_gpu *gpu)
{
    if (!gpu) return;
    for (int i = 0; i < 2; i++)
        if (gpu->mark[i]) gpu->call.event_free(gpu->mark[i]);
    if (gpu->stream) gpu->call.stream_free(gpu->stream);
    if (gpu->retained) gpu->call.release(gpu->device);
    free(gpu);
}

const tm_gpu_facts *tm_gpu_facts_of(const tm_gpu *gpu)
{
    return &gpu->facts;
}

/* --- memory ---------------------------------------------------------------------------------- */

tm_status tm_gpu_alloc(tm_gpu *gpu, size_t bytes, void **out, tm_error *err)
{
    enum { NO_MEMORY = 2 };
    int code = gpu->call.alloc(out, bytes);
    if (code == NO_MEMORY)
        return tm_fail(err, TM_NOMEM, "GPU %d (%s, %.1f GiB) has no memory for %zu bytes", gpu->facts.index,
                       gpu->facts.name, (double)gpu->facts.memory / (1 << 30), bytes);
    return code == 0 ? TM_OK : failed(gpu, offsetof(calls, alloc), code, err);
}

void tm_gpu_free(tm_gpu *gpu, void *memory)
{
    if (memory) gpu->call.free(memory);
}

tm_status tm_gpu_write(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, write, to, from, bytes);
    MUST(gpu, stream_wait, NULL); /* else it may only be on its way, in the default stream, which ours does not heed */
    return TM_OK;
}

tm_status tm_gpu_read(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, read, to, from, bytes);
    return TM_OK;
}

tm_status tm_gpu_copy(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, copy, to, from, bytes, gpu->stream);
    return TM_OK;
}

/* --- the queue ------------------------------------------------------------------------------- */

void *tm_gpu_queue(tm_gpu *gpu)
{
    return gpu->stream;
}

tm_status tm_gpu_done(tm_gpu *gpu, bool *done, tm_error *err)
{
    int code = gpu->call.stream_done(gpu->stream);
    *done = code == 0;
    return code == 0 || code == NOT_READY ? TM_OK : failed(gpu, offsetof(calls, stream_done), code, err);
}

tm_status tm_gpu_mark(tm_gpu *gpu, int which, tm_error *err)
{
    MUST(gpu, record, gpu->mark[which], gpu->stream);
    return TM_OK;
}

tm_status tm_gpu_marked(tm_gpu *gpu, double *seconds, tm_error *err)
{
    float milliseconds = 0;
    MUST(gpu, elapsed, &milliseconds, gpu->mark[0], gpu->mark[1]);
    *seconds = (double)milliseconds * 1e-3;
    return TM_OK;
}

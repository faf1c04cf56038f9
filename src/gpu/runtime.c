/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/runtime.c - the only file that knows a GPU's runtime. CUDA's driver and HIP's runtime have the same calls under
 * other names, but for choosing the device, its properties and the words of an error; one table has both. */
#include "gpu/runtime.h"

#include "base/arena.h"
#include "base/text.h"
#include "gpu/defaults.h"
#include "gpu/library.h"
#include "gpu/visible.h"
#include "gpu/runtime_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
#define X(member, result, arguments, cuda, hip) result(*member) arguments;
    GPU_CALLS(X)
#undef X
} calls;

static const struct {
    size_t      at;
    const char *name[2]; /* of CUDA, of HIP; NULL: has none */
} names[] = {
#define X(member, result, arguments, cuda, hip) { offsetof(calls, member), { cuda, hip } },
    GPU_CALLS(X)
#undef X
};
enum { NAMES = sizeof names / sizeof names[0] };

struct tm_gpu {
    calls        call;
    int          hip;
    tm_library   library;
    tm_gpu_facts facts;
    int          device;
    bool         retained;
};

/* --- the library ----------------------------------------------------------------------------------------------------
 */

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
static tm_status find_library(tm_gpu_maker maker, tm_gpu *gpu, tm_error *err)
{
    static const char *const files[2][4] = { { "libcuda.so.1", NULL },
                                             { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", NULL } };
    const char              *given = getenv("TRAINMARK_GPU_RUNTIME");
    tm_text                  tried = { 0 };
    bool                     found = false;
    for (int h = 0; h < 2 && !found; h++) {
        if (maker != TM_GPU_ANY && h != (int)maker) continue;
        const char *const one[] = { given, NULL };
        tm_gpu_defaults_set((tm_gpu_maker)h);
        found = (given && *given ? tm_library_open(one, &gpu->library, &tried)
                                 : tm_library_open_of((tm_gpu_maker)h, files[h], &gpu->library, &tried)) &&
                tm_library_symbol(&gpu->library, names[0].name[h]);
        if (!found) tm_gpu_defaults_unset((tm_gpu_maker)h);
        gpu->hip = h;
    }
    static const char *const install[] = {
        "NVIDIA's driver, which has libcuda.so.1 (in containers: docker run --gpus all)",
        "ROCm's libamdhip64.so (or name where it is installed in ROCM_PATH)"
    };
    tm_status st = TM_OK;
    if (!found && maker == TM_GPU_ANY)
        st = tm_fail(err, TM_INVALID,
                     "no runtime of a GPU was found (%s); install %s, or %s, or name the file in TRAINMARK_GPU_RUNTIME",
                     tried.data ? tried.data : "", install[0], install[1]);
    else if (!found)
        st = tm_fail(err, TM_INVALID,
                     "no runtime of a GPU was found (%s); install %s, or name the file in TRAINMARK_GPU_RUNTIME",
                     tried.data ? tried.data : "", install[maker]);
    tm_text_fini(&tried);
    return st;
}

/* Drivers of before CUDA 12 have no maps of tensors: kernels that want them are not chosen. */
static tm_status find_calls(tm_gpu *gpu, tm_error *err)
{
    for (int i = 0; i < NAMES; i++) {
        if (!names[i].name[gpu->hip]) continue;
        void *symbol = tm_library_symbol(&gpu->library, names[i].name[gpu->hip]);
        if (!symbol && names[i].at == offsetof(calls, map)) continue;
        if (!symbol)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no %s", gpu->library.path,
                           names[i].name[gpu->hip], gpu->facts.runtime);
        memcpy((char *)&gpu->call + names[i].at, &symbol, sizeof symbol);
    }
    return TM_OK;
}

/* --- from beginning to end ------------------------------------------------------------------------------------------
 */

/* Shared memory is what a block may have when it asks for it. */
static tm_status find_facts_cuda(tm_gpu *gpu, tm_error *err)
{
    tm_gpu_facts *f = &gpu->facts;
    int           major, minor, cache;
    MUST(gpu, attribute, &major, CUDA_MAJOR, gpu->device);
    MUST(gpu, attribute, &minor, CUDA_MINOR, gpu->device);
    MUST(gpu, attribute, &f->multiprocessors, CUDA_MULTIPROCESSORS, gpu->device);
    MUST(gpu, attribute, &f->shared_bytes, CUDA_SHARED_OPTIN, gpu->device);
    MUST(gpu, attribute, &cache, CUDA_L2_CACHE, gpu->device);
    f->cache = cache > 0 ? (size_t)cache : 0;
    snprintf(f->arch, sizeof f->arch, "sm_%d%d", major, minor);
    return TM_OK;
}

/* Members by their offsets. "gfx942:sramecc+:xnack-" */
static tm_status find_facts_hip(tm_gpu *gpu, tm_error *err)
{
    _Alignas(16) char properties[2 * HIP_PROPERTIES_BYTES] = { 0 }; /* a later one may have more */
    tm_gpu_facts     *f = &gpu->facts;
    size_t            shared;
    int               cache;
    MUST(gpu, properties, properties, gpu->device);
    memcpy(&shared, properties + HIP_SHARED_PER_BLOCK, sizeof shared);
    memcpy(&f->multiprocessors, properties + HIP_MULTIPROCESSORS, sizeof f->multiprocessors);
    memcpy(&cache, properties + HIP_L2_CACHE, sizeof cache);
    f->shared_bytes = (int)shared;
    f->cache = cache > 0 ? (size_t)cache : 0;
    snprintf(f->arch, sizeof f->arch, "%.*s", (int)strcspn(properties + HIP_ARCH_NAME, ":"),
             properties + HIP_ARCH_NAME);
    return TM_OK;
}

static tm_status count_devices(tm_gpu *gpu, tm_error *err)
{
    tm_gpu_facts *f = &gpu->facts;
    char          why[320];
    size_t        at = offsetof(calls, init);
    int           code = gpu->call.init(0);
    if (code == 0) {
        at = offsetof(calls, version);
        code = gpu->call.version(&f->version);
    }
    if (code == 0) {
        at = offsetof(calls, count);
        code = gpu->call.count(&f->count);
    }
    if (code != 0 && code != GPU_NONE) return failed(gpu, at, code, err);
    if (code == 0 && f->count > 0) return TM_OK;
    tm_gpu_none_here((tm_gpu_maker)gpu->hip, "", why);
    return tm_fail(err, TM_INVALID, "%s (%s) shows no GPU to this process: %s", f->runtime, f->library, why);
}

static tm_status find_device(tm_gpu *gpu, int wanted, tm_error *err)
{
    tm_gpu_facts *f = &gpu->facts;
    void         *context = NULL;
    TM_TRY(count_devices(gpu, err));
    f->index = wanted % f->count;
    MUST(gpu, device, &gpu->device, f->index);
    MUST(gpu, name, f->name, (int)sizeof f->name, gpu->device);
    MUST(gpu, bus, f->bus, (int)sizeof f->bus, gpu->device);
    MUST(gpu, memory, &f->memory, gpu->device);
    if (gpu->hip) {
        MUST(gpu, choose, gpu->device);
        return find_facts_hip(gpu, err);
    }
    MUST(gpu, retain, &context, gpu->device);
    gpu->retained = true;
    MUST(gpu, current, context);
    return find_facts_cuda(gpu, err);
}

tm_status tm_gpu_open(tm_gpu_maker maker, int wanted, tm_gpu **out, tm_error *err)
{
    tm_gpu *gpu = memset(tm_alloc(sizeof *gpu), 0, sizeof *gpu);
    *out = NULL;
    tm_status st = find_library(maker, gpu, err);
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

int tm_gpu_count(tm_gpu_maker maker)
{
    tm_gpu   gpu = { .facts = { .runtime = "GPU" } };
    tm_error ignored = { 0 };
    int      n = 0;
    if (find_library(maker, &gpu, &ignored) != TM_OK || find_calls(&gpu, &ignored) != TM_OK) return 0;
    return gpu.call.init(0) == 0 && gpu.call.count(&n) == 0 ? n : 0;
}

int tm_gpu_version(tm_gpu_maker maker)
{
    tm_gpu   gpu = { .facts = { .runtime = "GPU" } };
    tm_error ignored = { 0 };
    int      version = 0;
    if (find_library(maker, &gpu, &ignored) != TM_OK || find_calls(&gpu, &ignored) != TM_OK) return 0;
    return gpu.call.version(&version) == 0 ? version : 0;
}

/* The library stays loaded: it has threads. */
void tm_gpu_close(tm_gpu *gpu)
{
    if (!gpu) return;
    if (gpu->retained) gpu->call.give_back(gpu->device);
    free(gpu);
}

const tm_gpu_facts *tm_gpu_facts_of(const tm_gpu *gpu)
{
    return &gpu->facts;
}

bool tm_gpu_is_hip(const tm_gpu *gpu)
{
    return gpu->hip != 0;
}

/* --- memory ---------------------------------------------------------------------------------------------------------
 */

tm_status tm_gpu_alloc(tm_gpu *gpu, size_t bytes, void **out, tm_error *err)
{
    int code = gpu->call.alloc(out, bytes);
    if (code == GPU_NO_MEMORY)
        return tm_fail(err, TM_NOMEM, "GPU %d (%s, %.1f GiB) has no memory for %zu bytes", gpu->facts.index,
                       gpu->facts.name, (double)gpu->facts.memory / (1 << 30), bytes);
    return code == 0 ? TM_OK : failed(gpu, offsetof(calls, alloc), code, err);
}

tm_status tm_gpu_memory_in_use(tm_gpu *gpu, int64_t *bytes, tm_error *err)
{
    size_t unused = 0, total = 0;
    MUST(gpu, unused, &unused, &total);
    *bytes = (int64_t)(total - unused);
    return TM_OK;
}

void tm_gpu_free(tm_gpu *gpu, void *memory)
{
    if (memory) gpu->call.free(memory);
}

tm_status tm_gpu_alloc_pinned(tm_gpu *gpu, size_t bytes, void **out, tm_error *err)
{
    int code = gpu->call.alloc_host(out, bytes, 0);
    if (code == GPU_NO_MEMORY)
        return tm_fail(err, TM_NOMEM, "GPU %d (%s): the host has no memory to be pinned for %zu bytes",
                       gpu->facts.index, gpu->facts.name, bytes);
    return code == 0 ? TM_OK : failed(gpu, offsetof(calls, alloc_host), code, err);
}

void tm_gpu_free_pinned(tm_gpu *gpu, void *memory)
{
    if (memory) gpu->call.free_host(memory);
}

tm_status tm_gpu_write(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, write, to, from, bytes);
    MUST(gpu, stream_wait, NULL); /* else it may only be on its way, in the default stream, which ours do not heed */
    return TM_OK;
}

tm_status tm_gpu_read(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, read, to, from, bytes);
    return TM_OK;
}

tm_status tm_gpu_queue_write(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, queue_write, to, from, bytes, stream);
    return TM_OK;
}

tm_status tm_gpu_queue_read(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, queue_read, to, from, bytes, stream);
    return TM_OK;
}

tm_status tm_gpu_queue_copy(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes, tm_error *err)
{
    MUST(gpu, queue_copy, to, from, bytes, stream);
    return TM_OK;
}

tm_status tm_gpu_queue_fill(tm_gpu *gpu, void *stream, void *to, unsigned char value, size_t bytes, tm_error *err)
{
    MUST(gpu, queue_fill, to, value, bytes, stream);
    return TM_OK;
}

/* --- streams and events ---------------------------------------------------------------------------------------------
 */

tm_status tm_gpu_stream_open(tm_gpu *gpu, void **out, tm_error *err)
{
    MUST(gpu, stream, out, GPU_NON_BLOCKING);
    return TM_OK;
}

void tm_gpu_stream_close(tm_gpu *gpu, void *stream)
{
    if (stream) gpu->call.stream_free(stream);
}

tm_status tm_gpu_stream_wait(tm_gpu *gpu, void *stream, tm_error *err)
{
    MUST(gpu, stream_wait, stream);
    return TM_OK;
}

tm_status tm_gpu_stream_done(tm_gpu *gpu, void *stream, bool *done, tm_error *err)
{
    int code = gpu->call.stream_done(stream);
    *done = code == 0;
    return code == 0 || code == GPU_NOT_READY ? TM_OK : failed(gpu, offsetof(calls, stream_done), code, err);
}

tm_status tm_gpu_event_open(tm_gpu *gpu, void **out, tm_error *err)
{
    MUST(gpu, event, out, 0);
    return TM_OK;
}

void tm_gpu_event_close(tm_gpu *gpu, void *event)
{
    if (event) gpu->call.event_free(event);
}

tm_status tm_gpu_event_record(tm_gpu *gpu, void *event, void *stream, tm_error *err)
{
    MUST(gpu, record, event, stream);
    return TM_OK;
}

tm_status tm_gpu_event_wait(tm_gpu *gpu, void *event, tm_error *err)
{
    MUST(gpu, event_wait, event);
    return TM_OK;
}

tm_status tm_gpu_event_order(tm_gpu *gpu, void *event, void *stream, tm_error *err)
{
    MUST(gpu, stream_after, stream, event, 0);
    return TM_OK;
}

tm_status tm_gpu_event_seconds(tm_gpu *gpu, void *from, void *to, double *seconds, tm_error *err)
{
    float milliseconds = 0;
    MUST(gpu, elapsed, &milliseconds, from, to);
    *seconds = (double)milliseconds * 1e-3;
    return TM_OK;
}

/* --- programs of the GPU --------------------------------------------------------------------------------------------
 */

tm_status tm_gpu_module_load(tm_gpu *gpu, const void *code, void **out, tm_error *err)
{
    MUST(gpu, module, out, code);
    return TM_OK;
}

void tm_gpu_module_unload(tm_gpu *gpu, void *module)
{
    if (module) gpu->call.module_free(module);
}

tm_status tm_gpu_module_kernel(tm_gpu *gpu, void *module, const char *name, size_t shared, void **out, tm_error *err)
{
    enum { WITHOUT_ASKING = 48 << 10 }; /* CUDA: more has to be asked for */
    MUST(gpu, kernel, out, module, name);
    if (gpu->call.kernel_set && shared > WITHOUT_ASKING) MUST(gpu, kernel_set, *out, CUDA_DYNAMIC_SHARED, (int)shared);
    return TM_OK;
}

tm_status tm_gpu_launch(tm_gpu *gpu, void *stream, const tm_gpu_launch_of *l, tm_error *err)
{
    uintptr_t end = gpu->hip ? HIP_LAUNCH_END : CUDA_LAUNCH_END;
    size_t    bytes = l->argument_bytes;
    void     *extra[] = { (void *)(uintptr_t)GPU_LAUNCH_BUFFER, (void *)(uintptr_t)l->arguments,
                          (void *)(uintptr_t)GPU_LAUNCH_BYTES, &bytes, (void *)end }; // NOLINT(performance-no-int-to-ptr)
    MUST(gpu, launch, l->kernel, l->blocks[0], l->blocks[1], l->blocks[2], l->threads, 1, 1, l->shared, stream, NULL,
         extra);
    return TM_OK;
}

bool tm_gpu_has_maps(const tm_gpu *gpu)
{
    return gpu->call.map != NULL;
}

tm_status tm_gpu_map(tm_gpu *gpu, const tm_gpu_tensor *t, void *map, tm_error *err)
{
    enum { RANK = 3, COLUMNS = 64 };
    uint64_t sizes[RANK] = { (uint64_t)t->columns, (uint64_t)t->rows, (uint64_t)t->sequences };
    uint64_t strides[RANK - 1] = { (uint64_t)t->row_bytes, (uint64_t)(t->row_bytes * t->rows) };
    unsigned box[RANK] = { COLUMNS, t->box_rows, 1 }, steps[RANK] = { 1, 1, 1 };
    MUST(gpu, map, map, CUDA_MAP_BFLOAT16, RANK, (void *)(uintptr_t)t->at, sizes, strides, box, steps,
         CUDA_MAP_NOT_INTERLEAVED, CUDA_MAP_SWIZZLE_128, CUDA_MAP_PROMOTION_256,
         CUDA_MAP_ZEROS); // NOLINT(performance-no-int-to-ptr)
    return TM_OK;
}

tm_status tm_gpu_capture_begin(tm_gpu *gpu, void *stream, tm_error *err)
{
    MUST(gpu, capture, stream, GPU_CAPTURE_RELAXED);
    return TM_OK;
}

tm_status tm_gpu_capture_end(tm_gpu *gpu, void *stream, void **graph, tm_error *err)
{
    void *kept = NULL;
    *graph = NULL;
    MUST(gpu, captured, stream, &kept);
    int code = gpu->call.graph_make(graph, kept, 0);
    gpu->call.graph_free(kept);
    return code == 0 ? TM_OK : failed(gpu, offsetof(calls, graph_make), code, err);
}

tm_status tm_gpu_graph_play(tm_gpu *gpu, void *graph, void *stream, tm_error *err)
{
    MUST(gpu, play, graph, stream);
    return TM_OK;
}

void tm_gpu_graph_close(tm_gpu *gpu, void *graph)
{
    if (graph) gpu->call.played_free(graph);
}

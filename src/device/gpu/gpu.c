/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/gpu.c - the devices cuda and hip: a GPU's memory, queues and events, as backends. */
#include "base/arena.h"
#include "base/cpu.h"
#include "device/gpu/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HALF = 8 << 20, READS = 1 << 20 };

/* For r rows the products of an output layer (V, C) and of its gradient do 6 r V C operations. Whatever r is, they read
 * the weight in bfloat16 twice, read and write the sum of its gradient in float32: 12 V C bytes, so r / 2 operations a
 * byte. GPUs do as many as 206 (H200), 247 (MI300X), 295 (H100), 314 (MI355X): with 512 rows memory is as slow as the
 * products, with 2,048 it takes a quarter to a third of their time, beside them. Logits of 128,256 words are 1 GB then;
 * more rows would only take more. */
enum { LOSS_ROWS = 2048 };

/* Gradients of attention have one order of sums where the library stores those of scores (attention_library.c). A
 * sequence of 4,096 tokens with 32 heads takes 1.13 GiB. */
enum { MOST_STORED = 5 << 28 };

struct tm_queue {
    tm_device *device;
    void      *stream;
};

struct tm_instant {
    tm_gpu *gpu;
    void   *event;
};

struct tm_bound {
    tm_gpu *gpu;
    void   *graph;
};

static tm_gpu_own *own_of(const tm_queue *queue)
{
    return queue->device->own;
}

void *tm_gpu_stream_of(const tm_queue *queue)
{
    return queue->stream;
}

tm_device *tm_gpu_device_of(const tm_queue *queue)
{
    return queue->device;
}

static void *at(tm_address address)
{
    return (void *)address.at; // NOLINT(performance-no-int-to-ptr): the device's
}

/* --- what it is
 * ------------------------------------------------------------------------------------------------------- */

static void info(tm_device *device, tm_gpu_maker maker, int threads)
{
    tm_gpu_own *own = memset(tm_alloc(sizeof *own), 0, sizeof *own);
    own->maker = maker;
    device->own = own;
    device->info.kind = TM_DEVICE_GPU;
    device->info.computes = true;
    device->info.own_memory = true;
    device->info.near_memory = true;
    device->info.align = 256;
    device->info.weight_copies = true;
    device->info.fuses = true;
    device->info.loss_rows = LOSS_ROWS;
    device->info.threads = threads > 0 ? threads : tm_cpu_threads_allowed();
    device->info.kernels = device->info.name;
    own->most_stored = MOST_STORED;
    tm_gpu_name_sums(own);
    for (int k = 0; k < 2; k++) device->info.sums[k] = own->sums;
    snprintf(device->info.text, sizeof device->info.text, "%s: planned for, not opened", device->info.name);
}

static void info_cuda(tm_device *device, int threads)
{
    info(device, TM_GPU_CUDA, threads);
}

static void info_hip(tm_device *device, int threads)
{
    info(device, TM_GPU_HIP, threads);
}

const tm_kernel *const tm_gpu_kernels[] = {
#define TM_GPU_KERNELS(list) tm_gpu_##list,
#include "device/gpu/kernels.def"
#undef TM_GPU_KERNELS
    NULL
};

static const tm_kernel *choose(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    tm_op_id op = tm_op_id_of(call->op);
    (void)device;
    for (const tm_kernel *const *family = tm_gpu_kernels; *family; family++)
        for (const tm_kernel *kernel = *family; kernel->name; kernel++) {
            if (kernel->op != op) continue;
            const char *why = kernel->refuse ? kernel->refuse(call) : NULL;
            if (!why) return kernel;
            if (refusals) tm_text_printf(refusals, "%s: %s\n", kernel->name, why);
        }
    return NULL;
}

/* --- opening and closing
 * ---------------------------------------------------------------------------------------------- */

static tm_status probe(tm_error *err)
{
    (void)err; /* opening it says what is missing */
    return TM_OK;
}

static tm_status open_gpu(tm_device *device, tm_error *err)
{
    tm_gpu_own *own = device->own;
    void       *memory;
    TM_TRY(tm_gpu_open(own->maker, device->ordinal, &own->gpu, err));
    const tm_gpu_facts *f = tm_gpu_facts_of(own->gpu);
    if (device->ordinal >= f->count)
        return tm_fail(err, TM_INVALID, "--device %s:%d: this process sees %d GPU%s, counted from 0", device->info.name,
                       device->ordinal, f->count, f->count == 1 ? "" : "s");
    TM_TRY(tm_gpu_embedded_open(f, &own->embedded, err));
    if (!own->embedded) TM_TRY(tm_gpu_compiler_needed(own, err));
    TM_TRY(tm_gpu_alloc_pinned(own->gpu, (size_t)2 * HALF, &memory, err));
    own->writes.memory = memory;
    TM_TRY(tm_gpu_alloc_pinned(own->gpu, READS, &memory, err));
    own->reads = memory;
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_event_open(own->gpu, &own->writes.event[i], err));
    TM_TRY(tm_gpu_library_open(device, err));
    device->info.memory_bytes = (int64_t)f->memory;
    device->info.plan_bytes = tm_platform_room(device->info.memory_bytes);
    device->info.model = f->name;
    device->info.sheet = tm_gpu_sheet_of(f->name, f->arch);
    device->info.fnuz = !tm_gpu_refuse_codes(own->maker, f->arch, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ) &&
                        tm_gpu_refuse_codes(own->maker, f->arch, TM_GPU_E4M3, TM_GPU_E4M3);
    device->info.cache_bytes = (int64_t)f->cache;
    if (device->info.sheet && device->info.sheet->cache_bytes)
        device->info.cache_bytes = device->info.sheet->cache_bytes;
    device->info.products = own->blas ? tm_gpu_blas_name(own->blas) : NULL;
    device->info.bus = f->bus;
    tm_gpu_neighbours_find(f->bus, "", &device->info.near);
    tm_gpu_describe(device);
    return TM_OK;
}

static void close_gpu(tm_device *device)
{
    tm_gpu_own *own = device->own;
    if (own->gpu) {
        tm_gpu_ranks_give_up(device);
        tm_gpu_disconnect(own);
        tm_gpu_modules_close(own);
        tm_gpu_blas_close(own->blas);
        tm_gpu_gemm_ex_close(own->other);
        tm_gpu_dnn_close(own->dnn);
        for (int i = 0; i < 2; i++) tm_gpu_event_close(own->gpu, own->writes.event[i]);
        tm_gpu_free_pinned(own->gpu, own->writes.memory);
        tm_gpu_free_pinned(own->gpu, own->reads);
        if (own->counts_read) tm_gpu_free_pinned(own->gpu, own->counts_read);
    } else {
        free(own->modules); /* noted for a plan, never loaded */
    }
    tm_gpu_compiler_close(own->compiler);
    tm_gpu_embedded_close(own->embedded);
    tm_gpu_close(own->gpu);
    tm_gpu_counts_forget(own);
    free(own->arrivals);
    free(own->near);
    free(own);
}

/* --- memory
 * ------------------------------------------------------------------------------------------------------------ */

static tm_status alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    void *memory;
    TM_TRY(tm_gpu_alloc(((tm_gpu_own *)device->own)->gpu, bytes, &memory, err));
    *out = (tm_address){ (uintptr_t)memory };
    return TM_OK;
}

static void free_memory(tm_device *device, tm_address memory, size_t bytes)
{
    (void)bytes;
    tm_gpu_ranks_give_up(device);
    tm_gpu_free(((tm_gpu_own *)device->own)->gpu, at(memory));
}

static int64_t used(tm_device *device, tm_address memory, size_t bytes)
{
    (void)device;
    (void)memory;
    return (int64_t)bytes; /* what was taken is there */
}

static void beside(tm_device *device, tm_device_beside *out)
{
    tm_gpu_own *own = device->own;
    tm_error    ignored = { 0 }; /* it is not part of a training */
    out->in_use = -1;
    (void)!tm_gpu_memory_in_use(own->gpu, &out->in_use, &ignored);
    out->pinned = 2 * (int64_t)HALF + READS + (int64_t)(own->counts_room * sizeof *own->counts_read);
    for (size_t i = 0; i < own->n_near; i++) out->pinned += (int64_t)own->near[i].bytes;
}

/* --- queues
 * ------------------------------------------------------------------------------------------------------------ */

static tm_status queue_open(tm_device *device, tm_queue **out, tm_error *err)
{
    tm_queue *queue = tm_alloc(sizeof *queue);
    queue->device = device;
    tm_status st = tm_gpu_stream_open(((tm_gpu_own *)device->own)->gpu, &queue->stream, err);
    if (st == TM_OK)
        *out = queue;
    else
        free(queue);
    return st;
}

static void queue_close(tm_queue *queue)
{
    tm_gpu_stream_close(own_of(queue)->gpu, queue->stream);
    free(queue);
}

/* Room for up to HALF bytes in pinned memory, which earlier copies have left. */
static tm_status stage_room(tm_queue *queue, size_t bytes, char **out, tm_error *err)
{
    tm_gpu_own   *own = own_of(queue);
    tm_gpu_stage *s = &own->writes;
    if (s->used + bytes > HALF) {
        TM_TRY(tm_gpu_event_record(own->gpu, s->event[s->half], queue->stream, err));
        s->recorded[s->half] = true;
        s->half = !s->half;
        s->used = 0;
        if (s->recorded[s->half] && own->ranks)
            TM_TRY(tm_gpu_ranks_wait(own, queue->stream, err)); /* an event has no deadline */
        else if (s->recorded[s->half])
            TM_TRY(tm_gpu_event_wait(own->gpu, s->event[s->half], err));
    }
    *out = s->memory + (size_t)s->half * HALF + s->used;
    s->used += (bytes + 63) / 64 * 64;
    return TM_OK;
}

static tm_status wait(tm_queue *queue, tm_error *err);

static tm_status write_to(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    char *near = tm_gpu_near_at(own_of(queue), to);
    if (near) {
        TM_TRY(wait(queue, err)); /* copies that were queued before may read it */
        memcpy(near, from, bytes);
        return TM_OK;
    }
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < HALF ? bytes - done : HALF;
        char  *room;
        TM_TRY(stage_room(queue, part, &room, err));
        memcpy(room, (const char *)from + done, part);
        TM_TRY(tm_gpu_queue_write(own_of(queue)->gpu, queue->stream, at(tm_address_add(to, done)), room, part, err));
        done += part;
    }
    return TM_OK;
}

static void arrive(tm_gpu_own *own)
{
    for (size_t i = 0; i < own->n_arrivals; i++)
        memcpy(own->arrivals[i].to, own->arrivals[i].from, own->arrivals[i].bytes);
    own->n_arrivals = own->reads_used = 0;
}

static tm_status wait(tm_queue *queue, tm_error *err)
{
    TM_TRY(tm_gpu_ranks_wait(own_of(queue), queue->stream, err));
    arrive(own_of(queue));
    return TM_OK;
}

static tm_status read_from(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    tm_gpu_own *own = own_of(queue);
    const char *near = tm_gpu_near_at(own, from);
    if (near) {
        TM_TRY(wait(queue, err));
        memcpy(to, near, bytes);
        return TM_OK;
    }
    for (size_t done = 0; done < bytes;) {
        if (own->reads_used == READS) TM_TRY(wait(queue, err));
        size_t room = READS - own->reads_used, part = bytes - done < room ? bytes - done : room;
        char  *pinned = own->reads + own->reads_used;
        TM_TRY(tm_gpu_queue_read(own->gpu, queue->stream, pinned, at(tm_address_add(from, done)), part, err));
        if (own->n_arrivals == own->arrivals_room) {
            own->arrivals_room = own->arrivals_room ? 2 * own->arrivals_room : 32;
            own->arrivals = tm_realloc(own->arrivals, own->arrivals_room * sizeof *own->arrivals);
        }
        own->arrivals[own->n_arrivals++] = (tm_gpu_arrival){ (char *)to + done, pinned, part };
        own->reads_used += (part + 63) / 64 * 64;
        done += part;
    }
    return TM_OK;
}

static tm_status copy(tm_queue *queue, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    tm_gpu_own *own = own_of(queue);
    char       *near_to = tm_gpu_near_at(own, to), *near_from = tm_gpu_near_at(own, from);
    if (near_to && near_from) return write_to(queue, to, near_from, bytes, err);
    if (near_to) return tm_gpu_queue_read(own->gpu, queue->stream, near_to, at(from), bytes, err);
    if (near_from) return tm_gpu_queue_write(own->gpu, queue->stream, at(to), near_from, bytes, err);
    return tm_gpu_queue_copy(own->gpu, queue->stream, at(to), at(from), bytes, err);
}

static tm_status fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    char *near = tm_gpu_near_at(own_of(queue), to);
    if (bytes == 0) return TM_OK;
    if (near) {
        TM_TRY(wait(queue, err));
        memset(near, value, bytes);
        return TM_OK;
    }
    return tm_gpu_queue_fill(own_of(queue)->gpu, queue->stream, at(to), value, bytes, err);
}

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    (void)queue; /* the call's */
    return kernel->launch(call, err);
}

/* --- points in a queue
 * -------------------------------------------------------------------------------------------------- */

static tm_status instant_open(tm_device *device, tm_instant **out, tm_error *err)
{
    tm_instant *instant = tm_alloc(sizeof *instant);
    instant->gpu = ((tm_gpu_own *)device->own)->gpu;
    tm_status st = tm_gpu_event_open(instant->gpu, &instant->event, err);
    if (st == TM_OK)
        *out = instant;
    else
        free(instant);
    return st;
}

static void instant_close(tm_instant *instant)
{
    tm_gpu_event_close(instant->gpu, instant->event);
    free(instant);
}

static tm_status record(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    return tm_gpu_event_record(instant->gpu, instant->event, queue->stream, err);
}

static tm_status wait_for(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    return tm_gpu_event_order(instant->gpu, instant->event, queue->stream, err);
}

static tm_status time_between(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err)
{
    return tm_gpu_event_seconds(a->gpu, a->event, b->event, seconds, err);
}

/* --- programs that are played
 * -------------------------------------------------------------------------------------------- */

static tm_status bind(tm_device *device, tm_error *err)
{
    return tm_gpu_capture_begin(((tm_gpu_own *)device->own)->gpu, device->queues[TM_ON_COMPUTE]->stream, err);
}

static tm_status bound(tm_device *device, tm_bound **out, tm_error *err)
{
    tm_gpu *gpu = ((tm_gpu_own *)device->own)->gpu;
    void   *graph;
    TM_TRY(tm_gpu_capture_end(gpu, device->queues[TM_ON_COMPUTE]->stream, &graph, err));
    *out = tm_alloc(sizeof **out);
    **out = (tm_bound){ gpu, graph };
    return TM_OK;
}

static tm_status play(tm_device *device, tm_bound *b, tm_error *err)
{
    return tm_gpu_graph_play(b->gpu, b->graph, device->queues[TM_ON_COMPUTE]->stream, err);
}

static void unbind(tm_bound *b)
{
    tm_gpu_graph_close(b->gpu, b->graph);
    free(b);
}

#define GPU_CALLS                                                                                                      \
    .choose = choose, .close = close_gpu, .probe = probe, .open = open_gpu, .alloc = alloc, .free = free_memory,       \
    .used = used, .beside = beside, .alloc_near = tm_gpu_alloc_near, .free_near = tm_gpu_free_near,                    \
    .queue_open = queue_open, .queue_close = queue_close, .write = write_to, .read = read_from, .copy = copy,          \
    .fill = fill, .draw = tm_gpu_draw, .launch = launch, .wait = wait, .instant_open = instant_open,                   \
    .instant_close = instant_close, .record = record, .wait_for = wait_for, .time = time_between,                      \
    .connect = tm_gpu_connect, .prepared = tm_gpu_prepared, .bind = bind, .bound = bound, .play = play,                \
    .unbind = unbind

static int count_cuda(void)
{
    return tm_gpu_count(TM_GPU_CUDA);
}

static int count_hip(void)
{
    return tm_gpu_count(TM_GPU_HIP);
}

const tm_backend tm_backend_cuda = {
    .name = "cuda", .numbered = true, .count = count_cuda, .info = info_cuda, GPU_CALLS
};
const tm_backend tm_backend_hip = { .name = "hip", .numbered = true, .count = count_hip, .info = info_hip, GPU_CALLS };

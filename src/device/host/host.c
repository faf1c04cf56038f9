/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct tm_queue {
    tm_device *device;
};

struct tm_instant {
    int64_t ns;
};

/* --- opening and closing ------------------------------------------------------------------------------------------ */

void tm_host_info(tm_device *device, size_t bytes, int threads)
{
    TM_ASSERT(bytes >= sizeof(tm_host));
    device->own = tm_alloc(bytes);
    device->info.kind = TM_DEVICE_CPU;
    device->info.computes = true;
    device->info.threads = threads > 0 ? threads : tm_cpu_threads_allowed();
}

void tm_host_close(tm_device *device)
{
    free(device->own);
}

tm_status tm_host_probe(tm_error *err)
{
    (void)err;
    return TM_OK;
}

tm_status tm_host_open(tm_device *device, tm_error *err)
{
    (void)device;
    (void)err;
    return TM_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

enum { HUGE_PAGE = 2 << 20, PAGE = 4096 };

tm_status tm_host_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    int64_t available = tm_memory_available_bytes("");
    if (available > 0 && bytes > (size_t)available) {
        char want[32], have[32];
        return tm_fail(err, TM_NOMEM,
                       "the plan needs %s and %s are available; lower training.local_batch_size or "
                       "training.seq_len, or set activation_checkpoint.mode: full or training.offload: all",
                       tm_format_bytes(want, (double)bytes), tm_format_bytes(have, (double)available));
    }
    /* Aligned to huge pages inside a larger mapping; what sticks out at both ends is given back. */
    size_t span = bytes + HUGE_PAGE;
    char  *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        char want[32];
        return tm_fail(err, TM_NOMEM, "cannot reserve %s for the plan: %s", tm_format_bytes(want, (double)bytes),
                       strerror(errno));
    }
    size_t head = (HUGE_PAGE - (size_t)((uintptr_t)map % HUGE_PAGE)) % HUGE_PAGE;
    size_t used = (bytes + PAGE - 1) / PAGE * PAGE;
    char  *base = map + head;
    if (head) munmap(map, head);
    if (span - head > used) munmap(base + used, span - head - used);
    madvise(base, used, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static) num_threads(device->info.threads)
    for (size_t i = 0; i < used; i += PAGE) base[i] = 0;
    *(tm_host *)device->own = (tm_host){ .fresh = base, .fresh_bytes = bytes };
    *out = (tm_address){ (uintptr_t)base };
    return TM_OK;
}

void tm_host_free(tm_device *device, tm_address memory, size_t bytes)
{
    ((tm_host *)device->own)->fresh_bytes = 0;
    munmap(tm_host_pointer(memory), (bytes + PAGE - 1) / PAGE * PAGE);
}

/* Touched first by the threads that use it. */
tm_status tm_host_share(tm_device *device, tm_comm *world, const tm_comm_range *ranges, int n, int *share,
                        tm_error *err)
{
    TM_TRY(tm_comm_share(world, ranges, n, share, err));
    for (int i = 0; i < n; i++) {
        char *base = ranges[i].memory;
#pragma omp parallel for schedule(static) num_threads(device->info.threads)
        for (size_t at = 0; at < ranges[i].bytes; at += PAGE) base[at] = 0;
    }
    return TM_OK;
}

int64_t tm_host_used(tm_device *device, tm_address memory, size_t bytes)
{
    (void)device;
    enum { PART = 1 << 16 };
    unsigned char resident[PART];
    int64_t       used = 0;
    for (size_t at = 0; at < bytes; at += (size_t)PART * PAGE) {
        size_t part = bytes - at < (size_t)PART * PAGE ? bytes - at : (size_t)PART * PAGE;
        if (mincore((char *)tm_host_pointer(memory) + at, part, resident) != 0) return -1;
        for (size_t i = 0; i < (part + PAGE - 1) / PAGE; i++)
            if (resident[i] & 1) used += (int64_t)(part - i * PAGE < PAGE ? part - i * PAGE : PAGE);
    }
    return used;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

tm_status tm_host_queue_open(tm_device *device, tm_queue **out, tm_error *err)
{
    (void)err;
    *out = tm_alloc(sizeof **out);
    (*out)->device = device;
    return TM_OK;
}

void tm_host_queue_close(tm_queue *queue)
{
    free(queue);
}

static tm_host *host_of(const tm_queue *queue)
{
    return queue->device->own;
}

/* Large ones by all threads: one alone does not fill the memory's bandwidth. */
static void copy_bytes(const tm_queue *queue, void *to, const void *from, size_t bytes)
{
    enum { PIECE = 1 << 18 };
    if (bytes < 4 * PIECE) {
        memcpy(to, from, bytes);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(queue->device->info.threads)
    for (size_t at = 0; at < bytes; at += PIECE)
        memcpy((char *)to + at, (const char *)from + at, bytes - at < PIECE ? bytes - at : PIECE);
}

tm_status tm_host_write(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    (void)err;
    host_of(queue)->fresh_bytes = 0;
    copy_bytes(queue, tm_host_pointer(to), from, bytes);
    return TM_OK;
}

tm_status tm_host_read(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    (void)err;
    copy_bytes(queue, to, tm_host_pointer(from), bytes);
    return TM_OK;
}

tm_status tm_host_copy(tm_queue *queue, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    return tm_host_write(queue, to, tm_host_pointer(from), bytes, err);
}

tm_status tm_host_fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    enum { PIECE = 1 << 18 };
    tm_host *host = host_of(queue);
    char    *data = tm_host_pointer(to);
    (void)err;
    if (value == 0 && data >= host->fresh && data + bytes <= host->fresh + host->fresh_bytes) return TM_OK;
    host->fresh_bytes = 0;
#pragma omp parallel for schedule(static) num_threads(queue->device->info.threads) if (bytes >= 4 * PIECE)
    for (size_t at = 0; at < bytes; at += PIECE) memset(data + at, value, bytes - at < PIECE ? bytes - at : PIECE);
    return TM_OK;
}

tm_status tm_host_launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    host_of(queue)->fresh_bytes = 0;
    return tm_kernel_run(kernel, call, err);
}

tm_status tm_host_wait(tm_queue *queue, tm_error *err)
{
    (void)queue;
    (void)err;
    return TM_OK;
}

/* --- points in a queue -------------------------------------------------------------------------------------------- */

tm_status tm_host_instant_open(tm_device *device, tm_instant **out, tm_error *err)
{
    (void)device;
    (void)err;
    *out = tm_alloc(sizeof **out);
    return TM_OK;
}

void tm_host_instant_close(tm_instant *instant)
{
    free(instant);
}

tm_status tm_host_record(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    (void)queue;
    (void)err;
    instant->ns = tm_now_ns();
    return TM_OK;
}

tm_status tm_host_wait_for(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    (void)queue; /* all that was queued before is done */
    (void)instant;
    (void)err;
    return TM_OK;
}

tm_status tm_host_time(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err)
{
    (void)err;
    *seconds = (double)(b->ns - a->ns) * 1e-9;
    return TM_OK;
}

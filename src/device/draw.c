/* SPDX-License-Identifier: Apache-2.0 */
/* device/draw.c - random numbers into the memory of a device: made there where its backend can, else by the host. */
#include "device/backend.h"
#include "graph/value.h"

#include <stdlib.h>

enum { BLOCK = 4096 /* elements of a task */, ROOM = 1 << 20 /* elements on their way at once */ };

static void make(const tm_random_rows *rows, tm_dtype dtype, int64_t from, int64_t n, int threads, void *out)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < n; block += BLOCK) {
        float   values[BLOCK];
        int64_t count = n - block < BLOCK ? n - block : BLOCK;
        tm_random_make(rows, from + block, count, values);
        for (int64_t k = 0; k < count; k++) tm_value_set(out, dtype, block + k, (double)values[k]);
    }
}

static tm_status make_here(tm_device *device, tm_address to, tm_dtype dtype, const tm_random_rows *rows, int64_t from,
                           int64_t n, tm_error *err)
{
    void     *values = tm_alloc(tm_tensor_bytes(tm_shape_1(n < ROOM ? n : ROOM), dtype));
    tm_status st = TM_OK;
    for (int64_t done = 0, count; done < n && st == TM_OK; done += count) {
        count = n - done < ROOM ? n - done : ROOM;
        make(rows, dtype, from + done, count, device->info.threads, values);
        st = tm_device_write(device, tm_address_add(to, tm_tensor_bytes(tm_shape_1(done), dtype)), values,
                             tm_tensor_bytes(tm_shape_1(count), dtype), err);
        if (st == TM_OK) st = tm_device_wait(device, err); /* before the values are written again, or released */
    }
    free(values);
    return st;
}

tm_status tm_device_draw(tm_device *device, tm_address to, tm_dtype dtype, const tm_random_rows *rows, int64_t from,
                         int64_t n, tm_error *err)
{
    tm_error own = { 0 };
    bool     drawn = false;
    TM_ASSERT(tm_dtype_bits(dtype) % 8 == 0);
    TM_TRY(tm_device_ready(device, err));
    if (device->backend->draw)
        TM_TRY(tm_device_noted(
            device, device->backend->draw(device->queues[TM_ON_COMPUTE], to, dtype, rows, from, n, &drawn, &own), &own,
            err));
    return drawn ? TM_OK : make_here(device, to, dtype, rows, from, n, err);
}

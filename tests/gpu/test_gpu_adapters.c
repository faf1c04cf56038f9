/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights in blocks of 4 and 8 bits, decoded on the devices cuda and hip to the CPU's values, bit for bit. */
#include "base/random.h"
#include "device/backend.h"
#include "gpu/emulated.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "op/describe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* Of n elements, in which every code, every number of a map and scales of several sizes occur. */
static unsigned char *blocks_of(tm_dtype dtype, int64_t n)
{
    size_t         bytes = tm_blocked_bytes(dtype, n);
    unsigned char *data = malloc(bytes + 1);
    int64_t        step = dtype == TM_NF4_BLOCKS   ? TM_NF4_GROUP_BYTES
                          : dtype == TM_NF4_SCALED ? TM_SCALED_GROUP_BYTES
                                                   : TM_E4M3_GROUP_BYTES;
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)tm_random_u64(1, 2, i);
    for (size_t group = 0, first = 0; first < (size_t)n; first += TM_NF4_GROUP, group++) {
        float *head = (float *)(void *)(data + group * (size_t)step);
        for (int i = 0; i < (dtype == TM_NF4_BLOCKS ? 2 : TM_NF4_GROUP / TM_NF4_BLOCK); i++)
            head[i] = (float)tm_random_normal(3, group, (uint64_t)i);
        for (int i = 0; i < 256 && dtype == TM_NF4_BLOCKS; i++) ((unsigned char *)head)[8 + i] = (unsigned char)(i * 7);
    }
    return data;
}

typedef struct {
    tm_device       *device;
    const tm_kernel *kernel;
    tm_dtype         from, to;
    int64_t          n, shift; /* elements between an address of 256 bytes and the result */
} decoding;

static void *device_bytes(tm_device *device, const void *from, size_t bytes)
{
    tm_address at;
    tm_error   err = { 0 };
    if (tm_device_alloc(device, bytes, &at, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_device_write(device, at, from, bytes, &err), TM_OK);
    return (void *)at.at; // NOLINT(performance-no-int-to-ptr)
}

/* The result, with what stands before and behind it: the caller's to free. */
static char *decoded(const decoding *d, const unsigned char *blocks)
{
    size_t   element = tm_dtype_bytes(d->to), bytes = (size_t)(d->n + 2 * d->shift) * element;
    char    *image = memset(malloc(bytes), 0x77, bytes);
    void    *to = device_bytes(d->device, image, bytes);
    tm_call  call = { .op = &tm_op_cast, .device = d->device, .queue = d->device->queues[TM_ON_COMPUTE] };
    tm_error err = { 0 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .shape = tm_shape_1(d->n), .dtype = d->from };
    call.in[0].data = device_bytes(d->device, blocks, tm_blocked_bytes(d->from, d->n));
    call.out[0] = (tm_view){ .shape = tm_shape_1(d->n), .dtype = d->to };
    call.out[0].data = (char *)to + (size_t)d->shift * element;
    assert_null(d->kernel->refuse(&call));
    tm_status st = d->kernel->prepare(d->device, &call, &call.state, &err);
    if (st == TM_OK) st = d->device->backend->prepared(d->device, &err);
    if (st == TM_OK) st = d->kernel->launch(&call, &err);
    if (st == TM_OK) st = tm_device_read(d->device, image, (tm_address){ (uintptr_t)to }, bytes, &err);
    if (st == TM_OK) st = tm_device_wait(d->device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    d->kernel->release(call.state);
    tm_device_release(d->device, (tm_address){ (uintptr_t)call.in[0].data }, tm_blocked_bytes(d->from, d->n));
    tm_device_release(d->device, (tm_address){ (uintptr_t)to }, bytes);
    return image;
}

static bool is_nan_of(const char *bytes, tm_dtype dtype)
{
    return isnan(tm_value_get(bytes, dtype, 0));
}

static void check_decoding(const decoding *d)
{
    unsigned char *blocks = blocks_of(d->from, d->n);
    char          *image = decoded(d, blocks), wanted[4];
    size_t         element = tm_dtype_bytes(d->to);
    for (int64_t i = -d->shift; i < d->n + d->shift; i++) {
        const char *found = image + (size_t)(i + d->shift) * element;
        memset(wanted, 0x77, sizeof wanted);
        if (i >= 0 && i < d->n) tm_value_set(wanted, d->to, 0, (double)tm_blocked_value(d->from, blocks, i));
        if (memcmp(found, wanted, element) == 0) continue;
        if (i >= 0 && i < d->n && is_nan_of(found, d->to) && is_nan_of(wanted, d->to)) continue;
        fail_msg("%s of %lld elements to %s: %.9g at %lld, wanted %.9g", tm_dtype_name(d->from), (long long)d->n,
                 tm_dtype_name(d->to), tm_value_get(found, d->to, 0), (long long)i, tm_value_get(wanted, d->to, 0));
    }
    free(blocks);
    free(image);
}

static void blocks_are_decoded_on(const char *name)
{
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_NF4_SCALED, TM_E4M3_BLOCKS }, to[] = { TM_F32, TM_BF16 };
    static const int64_t  lengths[] = { 1, 7, 8, 63, 64, 65, 1001, 16384, 16385, 40003 };
    if (!emulated_device(name)) skip();
    setenv("STANDIN_GPU_UNITS", "1", 1); /* threads go on to further elements */
    tm_device *device = emulated_open(name);
    for (int f = 0; f < 3; f++)
        for (int t = 0; t < 2; t++) {
            tm_call call = { .op = &tm_op_cast, .device = device };
            call.in[0] = (tm_view){ .shape = tm_shape_1(8), .dtype = formats[f] };
            call.out[0] = (tm_view){ .shape = tm_shape_1(8), .dtype = to[t] };
            decoding d = { device, device->backend->choose(device, &call, NULL), formats[f], to[t], 0, 0 };
            assert_non_null(d.kernel);
            for (int k = 0; k < TM_COUNT_OF(lengths); k++) {
                d.n = lengths[k], d.shift = k % 3 == 1 ? 3 : 0; /* also where it cannot be stored 16 bytes at a time */
                if (test_is_full() || d.n < 2000 || (f == 2 * t && d.n == 16385)) check_decoding(&d);
            }
        }
    tm_device_close(device);
    unsetenv("STANDIN_GPU_UNITS");
}

FULL_TEST(blocks_are_decoded_on_cuda)
{
    blocks_are_decoded_on("cuda");
}

FULL_TEST(blocks_are_decoded_on_hip)
{
    blocks_are_decoded_on("hip");
}

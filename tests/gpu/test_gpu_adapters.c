/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights in blocks of 4 and 8 bits, decoded on the devices cuda and hip to the CPU's values, bit for bit. */
#include "base/random.h"
#include "gpu/called.h"
#include "gpu/emulated.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "op/describe.h"

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

static bool is_nan_of(const char *bytes, tm_dtype dtype)
{
    return isnan(tm_value_get(bytes, dtype, 0));
}

/* shift: elements between where memory begins and the result. */
static void check_decoding(tm_device *device, tm_dtype from, tm_dtype to, int64_t n, int shift)
{
    char   *image[TM_MAX_IN + TM_MAX_OUT] = { (char *)blocks_of(from, n) }, *out[TM_MAX_OUT], wanted[4];
    tm_call call = { .op = &tm_op_cast };
    size_t  element = tm_dtype_bytes(to);
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .shape = tm_shape_1(n), .dtype = from };
    call.out[0] = (tm_view){ .shape = tm_shape_1(n), .dtype = to };
    call_on(device, &call, image, shift, out);
    for (int64_t i = 0; i < n; i++) {
        const char *found = out[0] + (size_t)i * element;
        tm_value_set(wanted, to, 0, (double)tm_blocked_value(from, (unsigned char *)image[0], i));
        if (memcmp(found, wanted, element) == 0 || (is_nan_of(found, to) && is_nan_of(wanted, to))) continue;
        fail_msg("%s of %lld elements to %s: %.9g at %lld, wanted %.9g", tm_dtype_name(from), (long long)n,
                 tm_dtype_name(to), tm_value_get(found, to, 0), (long long)i, tm_value_get(wanted, to, 0));
    }
    free(image[0]), free(out[0]);
}

static void blocks_are_decoded_on(const char *name)
{
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_NF4_SCALED, TM_E4M3_BLOCKS }, to[] = { TM_F32, TM_BF16 };
    static const int64_t  lengths[] = { 1, 7, 8, 63, 64, 65, 1001, 16384, 16385, 40003 };
    if (!emulated_device(name)) skip();
    setenv("STANDIN_GPU_UNITS", "1", 1); /* threads go on to further elements */
    tm_device *device = emulated_open(name);
    for (int f = 0; f < 3; f++)
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < TM_COUNT_OF(lengths); k++) /* also where 16 bytes cannot be stored at a time */
                if (test_is_full() || lengths[k] < 2000 || (f == 2 * t && lengths[k] == 16385))
                    check_decoding(device, formats[f], to[t], lengths[k], k % 3 == 1 ? 3 : 0);
    tm_device_close(device);
    unsetenv("STANDIN_GPU_UNITS");
}

ON_BOTH(FULL_TEST, blocks_are_decoded, blocks_are_decoded_on(on))

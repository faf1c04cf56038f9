/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of E4M3: codes against the scalar conversion, what is stored against what was given, sizes; blocks of either
 * format that are copied into other groups. */
#include "graph/blocks.h"

#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* Every float32 of 16 bits and their neighbours, and halves between two codes. */
TEST(codes_are_the_nearest)
{
    for (uint32_t high = 0; high < 0x10000; high++)
        for (uint32_t low = 0; low < 3; low++) {
            uint32_t bits = high << 16 | (low == 2 ? 0xffff : low);
            float    value;
            uint8_t  wanted = 0;
            memcpy(&value, &bits, sizeof value);
            if (isnan(value)) {
                assert_int_equal(tm_e4m3_code(value) & 0x7f, 0x7f);
                continue;
            }
            double kept = fmax(-448, fmin(448, (double)value));
            tm_value_set(&wanted, TM_E4M3, 0, kept);
            if (tm_e4m3_code(value) != wanted)
                fail_msg("%a: code %02x, wanted %02x", (double)value, tm_e4m3_code(value), wanted);
        }
    for (uint8_t code = 0; code < 0x7e; code++) { /* halfway: to even */
        uint8_t next = (uint8_t)(code + 1);
        float   half = (float)((tm_value_get(&code, TM_E4M3, 0) + tm_value_get(&next, TM_E4M3, 0)) / 2);
        assert_int_equal(tm_e4m3_code(half), code % 2 ? next : code);
        assert_int_equal(tm_e4m3_code(-half), 0x80 | (code % 2 ? next : code));
    }
}

typedef struct {
    const float   *values;
    unsigned char *stored;
} memory;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((const memory *)context)->values + first, (size_t)n * sizeof *out);
}

static tm_status take(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy(((memory *)context)->stored + offset, bytes, n);
    return TM_OK;
}

TEST(stored_values_are_near)
{
    static const int64_t sizes[] = { 1, 63, 64, 65, 16384, 16385, 3 * 16384 + 100, 70 * 16384 + 1 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t        n = sizes[s];
        size_t         bytes = tm_tensor_bytes(tm_shape_1(n), TM_E4M3_BLOCKS);
        float         *values = calloc((size_t)n, sizeof *values);
        unsigned char *one = calloc(bytes, 1), *two = calloc(bytes, 1);
        tm_error       err = { 0 };
        for (int64_t i = 0; i < n; i++)
            values[i] = i % 640 < 64 ? 0 : (float)(0.02 * tm_random_normal(1, 2, (uint64_t)i)); /* blocks of zeros */
        tm_nf4_io a = { give, take, &(memory){ values, one }, 1 }, b = { give, take, &(memory){ values, two }, 3 };
        assert_int_equal(tm_blocked_store(TM_E4M3_BLOCKS, &a, n, &err), TM_OK);
        assert_int_equal(tm_blocked_store(TM_E4M3_BLOCKS, &b, n, &err), TM_OK);
        assert_memory_equal(one, two, bytes);
        for (int64_t block = 0; block < n; block += TM_E4M3_BLOCK) {
            int64_t end = block + TM_E4M3_BLOCK < n ? block + TM_E4M3_BLOCK : n;
            float   most = 0;
            for (int64_t i = block; i < end; i++) most = fmaxf(most, fabsf(values[i]));
            for (int64_t i = block; i < end; i++) {
                double is = tm_value_get(one, TM_E4M3_BLOCKS, i), was = (double)values[i];
                /* Half a step of three bits, or of the smallest number of the block. */
                assert_true(fabs(is - was) <= fmax(fabs(was) / 16, (double)most / 448 / 1024) * 1.000001);
                if (most > 0 && fabs(was) >= (double)most) assert_true(fabs(is / was - 1) < 1e-6);
                if (!(most > 0)) assert_true(!(is > 0) && !(is < 0));
            }
        }
        free(values), free(one), free(two);
    }
}

/* Blocks of NF4 copied into other groups keep their values, bit for bit; those of E4M3, too. */
TEST(copied_blocks_keep_their_values)
{
    enum { N = 3 * 16384 + 640 };
    static const tm_dtype from[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS }, to[] = { TM_NF4_SCALED, TM_E4M3_BLOCKS };
    float                *values = calloc(N, sizeof *values);
    for (int64_t i = 0; i < N; i++)
        values[i] = (float)(0.02 * (double)(1 + i / 64 % 7) * tm_random_normal(1, 2, (uint64_t)i));
    for (int k = 0; k < 2; k++) {
        unsigned char *stored = calloc(tm_blocked_bytes(from[k], N), 1), *part = calloc(tm_blocked_bytes(to[k], N), 1);
        tm_nf4_io      io = { give, take, &(memory){ values, stored }, 1 };
        tm_error       err = { 0 };
        assert_int_equal(tm_blocked_store(from[k], &io, N, &err), TM_OK);
        for (int64_t i = 64, j = 0; i < N - 64; i += 2 * 192, j += 192) { /* every second run of three blocks */
            tm_blocked_copy(from[k], stored, i, to[k], part, j, 192);
            for (int64_t e = 0; e < 192 && i + e < N; e++) {
                double is = tm_value_get(part, to[k], j + e), was = tm_value_get(stored, from[k], i + e);
                if (is < was || is > was) fail_msg("element %d: %.9g, wanted %.9g", (int)(i + e), is, was);
            }
        }
        free(stored), free(part);
    }
    assert_int_equal(tm_blocked_bytes(TM_NF4_SCALED, 16384), TM_SCALED_GROUP_BYTES);
    assert_int_equal(tm_blocked_bytes(TM_NF4_SCALED, 16385), TM_SCALED_GROUP_BYTES + TM_SCALED_HEAD + 1);
    free(values);
}

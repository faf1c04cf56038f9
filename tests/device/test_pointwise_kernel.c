/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the pointwise kernels: the rounding of a cast from every format. */
#include "support/test.h"
#include "graph/blocks.h"
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(pointwise);

/* Every number of the formats that weights are held in, into both formats that are computed with. */
TEST(test_cast_of_held_formats)
{
    static const tm_dtype from[] = { TM_F16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ }, to[] = { TM_F32, TM_BF16 };
    for (int t = 0; t < COUNT(tables); t++)
        for (int f = 0; f < 2 * COUNT(from); f++) {
            if (!isa_available(tables[t].isa)) continue;
            tm_dtype format = from[f / 2];
            int64_t  n = format == TM_F16 ? 65536 : 256;
            job      j = job_new(TM_OP_cast, NULL);
            job_in(&j, 0, format, tm_shape_1(n), 0., 1.), job_out(&j, 0, to[f % 2], tm_shape_1(n));
            for (int64_t i = 0; i < n; i++) {
                if (format == TM_F16)
                    ((uint16_t *)(void *)j.in[0].initial)[i] = (uint16_t)i;
                else
                    j.in[0].initial[i] = (unsigned char)i;
            }
            const tm_kernel *kernel = tables[t].kernels;
            job_reset(&j);
            while (kernel->name && (kernel->op != TM_OP_cast || kernel->refuse(&j.call))) kernel++;
            assert_non_null(kernel->name);
            call_run(kernel, &j.call, 3);
            for (int64_t i = 0; i < n; i++) {
                float  wide = (float)in_at(&j, 0, i);
                double wanted = to[f % 2] == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(wide)) : (double)wide;
                if (!(out_at(&j, 0, i) == wanted || (isnan(wanted) && isnan(out_at(&j, 0, i)))))
                    fail_msg("%s: %s code %lld gives %.9g, wanted %.9g", tables[t].isa, tm_dtype_name(format),
                             (long long)i, out_at(&j, 0, i), wanted);
            }
            job_free(&j);
        }
}

static void spread_values(void *context, int64_t first, int64_t n, float *out)
{
    (void)context;
    for (int64_t i = 0; i < n; i++) out[i] = (float)tm_random_normal(5, 1, (uint64_t)(first + i)) * (float)(1 + i % 3);
}
static tm_status keep_bytes(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy((char *)context + offset, bytes, n);
    return TM_OK;
}

/* n weights in blocks into a format that is computed with, by every set of instructions. */
static void check_blocks(tm_dtype format, tm_dtype to, int64_t n)
{
    tm_dtype whole = format == TM_NF4_SCALED ? TM_NF4_BLOCKS : format;
    char    *blocks = malloc(tm_blocked_bytes(whole, n));
    job      j = job_new(TM_OP_cast, NULL);
    assert_non_null(blocks);
    assert_int_equal(tm_blocked_store(whole, &(tm_nf4_io){ spread_values, keep_bytes, blocks, 1 }, n, NULL), TM_OK);
    tensor_open(&j.in[0], format, tm_shape_1(n));
    if (format == whole)
        memcpy(j.in[0].initial, blocks, j.in[0].bytes);
    else
        tm_blocked_copy(whole, blocks, 0, format, j.in[0].initial, 0, n);
    job_out(&j, 0, to, tm_shape_1(n));
    for (int t = 0; t < COUNT(tables); t++) {
        const tm_kernel *kernel = tables[t].kernels;
        if (!isa_available(tables[t].isa)) continue;
        job_reset(&j);
        while (kernel->name && (kernel->op != TM_OP_cast || kernel->refuse(&j.call))) kernel++;
        assert_non_null(kernel->name);
        call_run(kernel, &j.call, 3);
        guard_check(j.out[0].base, j.out[0].bytes, kernel->name);
        for (int64_t i = 0; i < n; i++) {
            float  value = tm_blocked_value(whole, blocks, i);
            double wanted = to == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(value)) : (double)value;
            if (out_at(&j, 0, i) != wanted)
                fail_msg("%s: %s, element %lld of %lld is %.9g, wanted %.9g", tables[t].isa, tm_dtype_name(format),
                         (long long)i, (long long)n, out_at(&j, 0, i), wanted);
        }
    }
    job_free(&j);
    free(blocks);
}

/* Less than a block, blocks, groups and what is left over; nothing is written behind the last element. */
TEST(test_cast_of_blocks)
{
    static const tm_dtype from[] = { TM_NF4_BLOCKS, TM_NF4_SCALED, TM_E4M3_BLOCKS }, to[] = { TM_F32, TM_BF16 };
    static const int64_t  sizes[] = { 1, 15, 63, 64, 65, 200, 16384, 16385, 2 * 16384 + 77 };
    for (int f = 0; f < COUNT(from); f++)
        for (int k = 0; k < COUNT(to); k++)
            for (int n = 0; n < COUNT(sizes); n++) check_blocks(from[f], to[k], sizes[n]);
}

/* Every float32 with a bfloat16 tie, its neighbours, infinities, NaN, the largest and the subnormal numbers. */
TEST(test_cast_rounds_to_nearest_even)
{
    static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    enum { HIGH = 0x10000, N = HIGH * 6 };
    job j = job_new(TM_OP_cast, NULL);
    job_in(&j, 0, TM_F32, tm_shape_1(N), 0., 0.), job_out(&j, 0, TM_BF16, tm_shape_1(N));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t u = i / 6 << 16 | low[i % 6];
        memcpy(j.in[0].initial + 4 * (size_t)i, &u, 4);
    }
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        job_run(&j, &tables[t], 2);
        const uint16_t *got = j.call.out[0].data;
        for (int64_t i = 0; i < N; i++) {
            float f = ((const float *)tensor_data(&j.in[0]))[i];
            if (isnan(f) ? !isnan(tm_bf16_value(got[i])) : got[i] != tm_bf16_round(f))
                fail_msg("%s: %a gives %04x", tables[t].isa, (double)f, got[i]);
        }
    }
    job_free(&j);
}

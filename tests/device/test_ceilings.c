/* SPDX-License-Identifier: Apache-2.0 */
/* The probes of the machine: the stream kernels compute what they say, in every set of instructions and at every size;
 * the peak of the arithmetic is neither below nor far above what the matrix product reaches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "device/backend.h"
#include "support/training.h"
#include "device/ceilings.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/probes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 8 };

static size_t probes_here(const tm_cpu_probe *out[3])
{
    size_t n = 0;
    out[n++] = &tm_cpu_probe_base;
#if defined(__x86_64__)
    tm_cpu_isa isa = tm_cpu_isa_probe();
    if (isa.avx2) out[n++] = &tm_cpu_probe_avx2;
    if (isa.avx512) out[n++] = &tm_cpu_probe_avx512;
#endif
    return n;
}

/* The arrays a[i] = i, b[i] = 2 i + 1, c[i] = 3 - i: sums and products of integers are exact. */
static void fill(double *a, double *b, double *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = (double)i, b[i] = 2. * (double)i + 1, c[i] = 3. - (double)i;
}

/* What element i of the written array must be. */
static double wanted(tm_stream_kernel kernel, int64_t i, double s)
{
    double a = (double)i, b = 2. * (double)i + 1, c = 3. - (double)i;
    switch (kernel) {
    case TM_STREAM_COPY:
        return a;
    case TM_STREAM_MUL:
        return s * c;
    case TM_STREAM_ADD:
        return a + b;
    default:
        return b + s * c;
    }
}

static void check_kernel(const tm_cpu_probe *probe, tm_stream_kernel kernel, bool streaming, int64_t n)
{
    double *memory = aligned_alloc(64, (size_t)(n + 2 * GUARD + 64) / 8 * 8 * sizeof(double) * 3);
    int64_t span = (n + GUARD + 7) / 8 * 8;
    double *arrays[3] = { memory, memory + span, memory + 2 * span };
    fill(arrays[0], arrays[1], arrays[2], n);
    for (int k = 0; k < 3; k++)
        for (int64_t i = n; i < span; i++) arrays[k][i] = -77;
    double sum = probe->stream(kernel, streaming, 2, arrays[0], arrays[1], arrays[2], n);
    int    written = kernel == TM_STREAM_MUL ? 1 : kernel == TM_STREAM_TRIAD ? 0 : 2;
    double dot = 0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)i * (2. * (double)i + 1);
        if (kernel != TM_STREAM_DOT) assert_true(arrays[written][i] == wanted(kernel, i, 2));
    }
    assert_true(sum == (kernel == TM_STREAM_DOT ? dot : 0));
    for (int k = 0; k < 3; k++)
        for (int64_t i = n; i < span; i++) assert_true(arrays[k][i] == -77);
    free(memory);
}

static void stream_kernels_compute_what_they_say(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 7, 8, 9, 31, 32, 33, 65, 1000 };
    const tm_cpu_probe  *probes[3];
    size_t               n = probes_here(probes);
    for (size_t p = 0; p < n; p++)
        for (int kernel = 0; kernel < TM_STREAM_COUNT; kernel++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                check_kernel(probes[p], (tm_stream_kernel)kernel, false, sizes[i]);
                if (probes[p]->streams) check_kernel(probes[p], (tm_stream_kernel)kernel, true, sizes[i]);
            }
}

/* All threads together cover every element once, also where the parts are uneven or empty. */
static void threads_share_the_arrays(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2)
        for (int64_t n = 1; n < 200; n += 37) {
            tm_error   err = { 0 };
            tm_device *device;
            assert_int_equal(tm_device_open("cpu", threads, &device, &err), TM_OK);
            double *a = aligned_alloc(64, 256 * sizeof(double)), *b = aligned_alloc(64, 256 * sizeof(double));
            double *c = aligned_alloc(64, 256 * sizeof(double));
            tm_device_stream_fill(device, a, 1, b, 2, c, 3, n);
            assert_true(tm_device_stream(device, TM_STREAM_DOT, false, 0, a, b, c, n) == 2. * (double)n);
            (void)tm_device_stream(device, TM_STREAM_TRIAD, tm_device_streams(device), 4, a, b, c, n);
            for (int64_t i = 0; i < n; i++) assert_true(a[i] == 14 && b[i] == 2 && c[i] == 3);
            free(a), free(b), free(c);
            tm_device_close(device);
        }
}

static double product_rate(const tm_device *device)
{
    enum { SIDE = 768, TRIES = 20 };
    size_t  elements = (size_t)SIDE * SIDE;
    float  *a = tm_alloc(elements * 4), *b = tm_alloc(elements * 4), *c = tm_alloc(elements * 4);
    tm_gemm g = { .m = SIDE,
                  .n = SIDE,
                  .k = SIDE,
                  .a = { a, SIDE, false, TM_F32 },
                  .b = { b, SIDE, false, TM_F32 },
                  .c = c,
                  .ldc = SIDE,
                  .c_dtype = TM_F32,
                  .threads = device->info.threads };
    g.workspace = tm_alloc(TM_GEMM_WORKSPACE_MAX);
    tm_cpu_isa isa = tm_cpu_isa_probe();
    double     best = 0;
    for (int i = 0; i < TRIES; i++) {
        int64_t start = tm_now_ns();
        if (isa.avx512)
            tm_gemm_run_avx512(&g);
        else if (isa.avx2)
            tm_gemm_run_avx2(&g);
        else
            tm_gemm_run_base(&g);
        best = fmax(best, 2. * SIDE * SIDE * SIDE / ((double)(tm_now_ns() - start) * 1e-9));
    }
    free(a), free(b), free(c), free(g.workspace);
    return best;
}

static void nothing_beats_the_ceilings(void **state)
{
    (void)state;
    tm_error    err = { 0 };
    tm_device  *device;
    tm_ceilings ceilings, alone;
    assert_int_equal(tm_device_open("cpu", 0, &device, &err), TM_OK);
    assert_int_equal(tm_device_ceilings(device, 0.1, &ceilings, &err), TM_OK);
    double rate = product_rate(device);
    tm_device_arithmetic(device, 1, 0.1, &alone);
    assert_true(alone.flops > 0 && alone.bytes == 0);
    printf("# %.1f GFLOP/s (%s), product %.1f, %.1f GB/s (%s)\n", ceilings.flops * 1e-9, ceilings.flops_how,
           rate * 1e-9, ceilings.bytes * 1e-9, ceilings.bytes_how);
    /* The margins are for a machine that others use at the same time; errors of counting are factors of two. */
    assert_true(rate <= 1.1 * fmax(ceilings.flops, alone.flops * device->info.threads));
    assert_true(rate >= ceilings.flops / 8);
    assert_true(ceilings.flops_bf16 == 0 || ceilings.flops_bf16 >= ceilings.flops);
    assert_true(ceilings.bytes > 1e8 && ceilings.bytes < 1e13);
    assert_true(strlen(ceilings.flops_how) > 0 && strlen(ceilings.bytes_how) > 0);
    tm_device_close(device);
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_kernels_compute_what_they_say),
        cmocka_unit_test(threads_share_the_arrays),
        cmocka_unit_test(nothing_beats_the_ceilings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

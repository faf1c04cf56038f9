/* SPDX-License-Identifier: Apache-2.0 */
/* bench/attention_probe.c - rate of the attention kernels beside the rate of plain multiply-adds of the same moment.
 *
 * usage: attention_probe [avx512|avx2|base] [threads] [f32|bf16|masks] [rounds]
 * Work by convention: 4 B H T^2 D / 2 forward (causal: half of the square), 2.5 times that backward. */
#include "base/clock.h"
#include "base/random.h"
#include "device/cpu/simd/kernels.h"
#include "op/fused.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct {
    int64_t B, T, H, J, D;
} sizes;

enum { ROUNDS_MAX = 99 };

static void *filled(int64_t n, tm_dtype dtype, uint64_t stream)
{
    const size_t huge = 2 << 20, bytes = ((size_t)n * tm_dtype_bytes(dtype) + huge - 1) / huge * huge;
    char        *p = aligned_alloc(huge, bytes);
    if (!p) exit(1);
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* as a device's memory; refused: small pages, and slower */
    for (int64_t i = 0; i < n; i++) {
        float f = (float)(2 * tm_random_uniform(1, stream, (uint64_t)i) - 1);
        if (dtype == TM_F32)
            memcpy(p + 4 * i, &f, 4);
        else
            memcpy(p + 2 * i, (char *)&f + 2, 2);
    }
    return p;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float multiply_adds_512(int64_t n)
{
    __m512 r[12], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) r[i] = _mm512_set1_ps((float)i);
    for (int64_t k = 0; k < n; k++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) r[i] = _mm512_fmadd_ps(r[i], a, b);
    }
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += _mm512_reduce_add_ps(r[i]);
    return sum;
}
#endif

/* 10^9 floating-point operations per second of a loop of multiply-adds in registers; 0 without AVX-512. */
static double multiply_add_rate(int threads)
{
    double rate = 0;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx512f")) return 0;
    const int64_t  n = 400000;
    volatile float sink = 0;
    int64_t        start = tm_now_ns();
#pragma omp parallel num_threads(threads)
    {
        float sum = multiply_adds_512(n);
#pragma omp critical
        sink = sink + sum;
    }
    rate = 2.0 * 16 * 12 * (double)n * threads / (double)(tm_now_ns() - start);
#else
    (void)threads;
#endif
    return rate;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static double timed(const tm_kernel *kernel, const tm_call *call)
{
    int64_t start = tm_now_ns();
    kernel->run(call);
    return (double)(tm_now_ns() - start);
}

static void measure(const tm_kernel *table, const sizes *s, tm_dtype dtype, int threads, int rounds)
{
    int64_t           N = s->B * s->T, W = (s->H + 2 * s->J) * s->D, C = s->H * s->D;
    tm_attention_attr attr = { .seq_q = s->T,
                               .seq_k = s->T,
                               .heads = s->H,
                               .kv_heads = s->J,
                               .dim_qk = s->D,
                               .dim_v = s->D,
                               .scale = 1 / sqrt((double)s->D),
                               .causal = 1 };
    tm_view           qkv = { dtype, tm_shape_2(N, W), filled(N * W, dtype, 1), 0 },
            o = { dtype, tm_shape_2(N, C), filled(N * C, dtype, 2), 0 };
    tm_view dout = { dtype, tm_shape_2(N, C), filled(N * C, dtype, 3), 0 };
    tm_view dqkv = { dtype, tm_shape_2(N, W), filled(N * W, dtype, 4), 0 };
    tm_view lse = { TM_F32, tm_shape_3(s->B, s->H, s->T), filled(N * s->H, TM_F32, 5), 0 };
    tm_call forward = { .attr = &attr, .out = { o, lse }, .threads = threads };
    tm_call backward = { .attr = &attr, .in = { dout, [4] = o, lse }, .threads = threads };
    tm_fused_qkv(&attr, qkv, forward.in);
    tm_fused_qkv(&attr, qkv, &backward.in[1]);
    tm_fused_qkv(&attr, dqkv, backward.out);
    for (int k = 3; k < TM_MAX_IN; k++) forward.in[k].shape.rank = -1;
    for (int k = 6; k < TM_MAX_IN; k++) backward.in[k].shape.rank = -1;
    for (int k = 3; k < TM_MAX_OUT; k++) backward.out[k].shape.rank = -1;
    double work = 4.0 * (double)(s->B * s->H * s->T) * (double)(s->T * s->D) / 2;
    double forward_ns[ROUNDS_MAX], backward_ns[ROUNDS_MAX], probe[ROUNDS_MAX];
    size_t bytes[2] = { table[0].workspace(&forward), table[1].workspace(&backward) };
    forward.workspace = filled((int64_t)bytes[0] / 4 + 1, TM_F32, 6);
    backward.workspace = filled((int64_t)bytes[1] / 4 + 1, TM_F32, 7);
    table[0].run(&forward);
    table[1].run(&backward);
    for (int i = 0; i < rounds; i++) {
        forward_ns[i] = timed(&table[0], &forward);
        backward_ns[i] = timed(&table[1], &backward);
        probe[i] = multiply_add_rate(threads);
    }
    double f = median(forward_ns, rounds), b = median(backward_ns, rounds), rate = median(probe, rounds);
    printf("%2ld %5ld %3ld/%-2ld %4ld | forward %6.1f GF/s (%7.2f ms) best %6.1f | backward %6.1f GF/s (%7.2f ms) best "
           "%6.1f"
           " | probe %6.1f best %6.1f | scratch %zu %zu KB\n",
           (long)s->B, (long)s->T, (long)s->H, (long)s->J, (long)s->D, work / f, f / 1e6, work / forward_ns[0],
           2.5 * work / b, b / 1e6, 2.5 * work / backward_ns[0], rate, probe[rounds - 1], bytes[0] >> 10,
           bytes[1] >> 10);
    void *all[] = { qkv.data, o.data, dout.data, dqkv.data, lse.data, forward.workspace, backward.workspace };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Times at 8192 tokens, four heads of 64: full, window of 1024, 16 documents. */
static void measure_masks(const tm_kernel *table, int threads, int rounds)
{
    enum { T = 8192, H = 4, D = 64, CASES = 3 };
    static const char *const names[CASES] = { "full", "window 1024", "16 documents" };
    int32_t                 *first = filled(T, TM_F32, 8);
    double                   best[CASES][2];
    tm_view qkv = { TM_F32, tm_shape_2(T, 3 * H * D), filled(3 * T * H * D, TM_F32, 1), 0 }, dqkv = qkv;
    tm_view o = { TM_F32, tm_shape_2(T, H * D), filled(T * H * D, TM_F32, 2), 0 }, dout = o;
    tm_view lse = { TM_F32, tm_shape_3(1, H, T), filled(T * H, TM_F32, 5), 0 };
    dqkv.data = filled(3 * T * H * D, TM_F32, 4), dout.data = filled(T * H * D, TM_F32, 3);
    for (int i = 0; i < T; i++) first[i] = i / 512 * 512;
    for (int i = 0; i < CASES; i++) best[i][0] = best[i][1] = HUGE_VAL;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < CASES; i++) {
            tm_attention_attr attr = { .seq_q = T,
                                       .seq_k = T,
                                       .heads = H,
                                       .kv_heads = H,
                                       .dim_qk = D,
                                       .dim_v = D,
                                       .scale = 0.125,
                                       .causal = 1,
                                       .window = i == 1 ? 1024 : 0 };
            tm_call           call[2] = { { .attr = &attr, .out = { o, lse }, .threads = threads },
                                          { .attr = &attr, .in = { dout, [4] = o, lse }, .threads = threads } };
            tm_fused_qkv(&attr, qkv, call[0].in);
            tm_fused_qkv(&attr, qkv, &call[1].in[1]);
            tm_fused_qkv(&attr, dqkv, call[1].out);
            for (int b = 0; b < 2; b++) {
                for (int k = b ? 6 : 3; k < TM_MAX_IN; k++) call[b].in[k].shape.rank = -1;
                for (int k = b ? 3 : 2; k < TM_MAX_OUT; k++) call[b].out[k].shape.rank = -1;
                if (i == 2) call[b].in[b ? 6 : 3] = (tm_view){ TM_I32, tm_shape_1(T), first, 0 };
                call[b].workspace = filled((int64_t)table[b].workspace(&call[b]) / 4 + 1, TM_F32, 6);
                double ns = timed(&table[b], &call[b]);
                if (ns < best[i][b]) best[i][b] = ns;
                free(call[b].workspace);
            }
        }
    for (int i = 0; i < CASES; i++)
        printf("%-13s forward %8.2f ms %5.3f of full | backward %8.2f ms %5.3f of full\n", names[i], best[i][0] / 1e6,
               best[i][0] / best[0][0], best[i][1] / 1e6, best[i][1] / best[0][1]);
    void *all[] = { qkv.data, dqkv.data, o.data, dout.data, lse.data, first };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

int main(int argc, char **argv)
{
    static const sizes all[] = { { 4, 512, 12, 12, 64 }, { 1, 1024, 32, 8, 128 }, { 8, 512, 6, 6, 64 } };
    const tm_kernel   *table = tm_cpu_attention_base;
    const char        *isa = argc > 1 ? argv[1] : "base";
    int                threads = argc > 2 ? atoi(argv[2]) : 2, rounds = argc > 4 ? atoi(argv[4]) : 15;
    tm_dtype           dtype = argc > 3 && !strcmp(argv[3], "bf16") ? TM_BF16 : TM_F32;
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512")) table = tm_cpu_attention_avx512;
    if (!strcmp(isa, "avx2")) table = tm_cpu_attention_avx2;
#endif
    if (threads < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: attention_probe [avx512|avx2|base] [threads] [f32|bf16] [rounds, at most %d]\n",
                ROUNDS_MAX);
        return 2;
    }
    if (argc > 3 && !strcmp(argv[3], "masks")) {
        measure_masks(table, threads, rounds);
        return 0;
    }
    printf("%s, %s, %d threads, %d rounds, medians\n B     T   H/J    D\n", table[0].name, tm_dtype_name(dtype),
           threads, rounds);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) measure(table, &all[i], dtype, threads, rounds);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* bench/memory_probe.c - memory-bound kernels against the stream triad of the same moment.
 *
 *   memory_probe [threads [rounds]]
 *
 * Triad (a = b + s c, three arrays of 4 x the last-level cache, first touched by the threads that use them) runs
 * between the kernels in every round. Printed: median GB/s of the bytes each kernel has to move (every operand once,
 * write-allocate traffic not counted) and the median of its ratios to the triad just before it. Build, after `make
 * build/release/libtrainmark.a`: cc -std=c11 -D_GNU_SOURCE -O3 -fopenmp -Isrc bench/memory_probe.c
 * build/release/libtrainmark.a -lm -o build/memory_probe
 */
#include "base/clock.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_ROUNDS = 99, COLUMNS = 1024, WIDE = 8192, N_PROBES = 20 };

typedef struct {
    const char      *name;
    const tm_kernel *kernels;
    tm_op_id         op;
    tm_dtype         dtype;
    double           bytes; /* per element of the large arrays */
} probe;

typedef struct {
    int64_t elements;   /* of one array */
    float  *array[4];   /* float32 */
    float  *rounded[4]; /* bfloat16, two to a float: as many elements in half the bytes */
    float  *small;      /* rows of statistics and the workspace */
    int     threads;
} memory;

#if defined(__x86_64__)
#define BEST(family)                                                                                                   \
    (__builtin_cpu_supports("avx512bw") ? tm_cpu_##family##_avx512                                                     \
     : __builtin_cpu_supports("avx2")   ? tm_cpu_##family##_avx2                                                       \
                                        : tm_cpu_##family##_base)
#else
#define BEST(family) tm_cpu_##family##_base
#endif

static float *take(int64_t elements, int threads)
{
    size_t bytes = (size_t)elements * sizeof(float);
    float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "memory_probe: cannot take %zu bytes\n", bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < elements; i++) p[i] = (float)(i % 97) * 0x1p-8f + 0x1p-7f;
    return p;
}

/* Fills the array with bfloat16 values of ordinary size. */
static void round_values(float *array, int64_t floats, int threads)
{
    uint16_t *h = (uint16_t *)(void *)array;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < 2 * floats; i++) h[i] = (uint16_t)(0x3f00 + i % 97);
}

static double triad(const memory *m)
{
    float  *a = m->array[0], *b = m->array[1], *c = m->array[2];
    int64_t start = tm_now_ns();
#pragma omp parallel for simd num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < m->elements; i++) a[i] = b[i] + 0.5f * c[i];
    return 12. * (double)m->elements / (double)(tm_now_ns() - start);
}

static tm_view view(tm_dtype dtype, tm_shape shape, void *data)
{
    return (tm_view){ .dtype = dtype, .shape = shape, .data = data };
}

/* The operands of one call; every kernel gets distinct large arrays. */
static tm_call prepare(const probe *p, const memory *m)
{
    static const tm_norm_attr  norm = { 1e-5 };
    static const tm_adamw_attr adamw = { .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1 };
    static double              scalars[TM_SCALAR_COUNT] = { 1., 1e-3, .5, .5, 1. }, clip[2] = { 1., 1. }, sum;
    const tm_view              absent = { .shape = { .rank = -1 } };
    tm_call                    call = { .threads = m->threads };
    int64_t                    n = m->elements / COLUMNS;
    tm_shape rows = tm_shape_2(n, COLUMNS), wide = tm_shape_2(n * COLUMNS / WIDE, WIDE), row = tm_shape_1(COLUMNS);
    tm_dtype f = p->dtype;
    float   *statistics = m->small, *weight = m->small + 2 * n;
    call.workspace = weight + COLUMNS;
    if (f == TM_BF16) weight = m->rounded[3];
    for (int k = 0; k < 4; k++) call.in[k] = view(f, rows, f == TM_BF16 ? m->rounded[k] : m->array[k]);
    call.out[0] = view(f, rows, call.in[2].data);
    switch (p->op) {
    case TM_OP_rmsnorm:
        call.in[1] = view(f, row, weight), call.out[1] = view(TM_F32, tm_shape_1(n), statistics);
        break;
    case TM_OP_layernorm:
        call.in[1] = call.in[2] = view(f, row, weight);
        call.out[1] = view(TM_F32, tm_shape_1(n), statistics),
        call.out[2] = view(TM_F32, tm_shape_1(n), statistics + n);
        break;
    case TM_OP_rmsnorm_grad:
        call.in[2] = view(f, row, weight), call.in[3] = view(TM_F32, tm_shape_1(n), statistics), call.in[4] = absent;
        call.out[1] = view(TM_F32, row, weight);
        break;
    case TM_OP_swiglu:
        call.in[0].shape = call.out[0].shape = wide, call.out[0].shape.n[1] /= 2;
        break;
    case TM_OP_swiglu_grad:
        call.in[1].shape = call.in[0].shape = wide, call.in[0].shape.n[1] /= 2;
        break;
    case TM_OP_square_sum:
        call.out[0] = view(TM_F64, (tm_shape){ .rank = 0 }, &sum);
        break;
    case TM_OP_bias_grad:
        call.out[0] = view(TM_F32, row, weight);
        break;
    case TM_OP_adamw:
        call.in[4] = view(TM_F64, tm_shape_1(TM_SCALAR_COUNT), scalars), call.in[5] = view(TM_F64, tm_shape_1(2), clip);
        call.out[0] = call.in[0], call.out[1] = call.in[2], call.out[2] = call.in[3];
        break;
    default:
        break;
    }
    if (p->op == TM_OP_rmsnorm || p->op == TM_OP_rmsnorm_grad || p->op == TM_OP_layernorm) call.attr = &norm;
    if (p->op == TM_OP_adamw) call.attr = &adamw;
    return call;
}

/* Bytes of the last-level cache that this CPU shares; 32 MB where the system does not tell. */
static int64_t cache_bytes(void)
{
    long  kib = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (f) {
        if (fscanf(f, "%ldK", &kib) != 1) kib = 0;
        fclose(f);
    }
    return kib > 0 ? (int64_t)kib << 10 : (int64_t)32 << 20;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs(), rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (threads < 1 || rounds < 1 || rounds > MAX_ROUNDS)
        return fprintf(stderr, "usage: memory_probe [threads [rounds]]\n"), 2;
    memory m = { .elements = cache_bytes() / WIDE * WIDE, .threads = threads }; /* 4 bytes each: 4 x the cache */
    for (int k = 0; k < 4; k++) m.array[k] = take(m.elements, threads);
    for (int k = 0; k < 4; k++) {
        m.rounded[k] = take(m.elements / 2, threads);
        round_values(m.rounded[k], m.elements / 2, threads);
    }
    m.small = take(m.elements / 16, threads);
    const probe probes[N_PROBES] = {
        { "adamw", BEST(optimizer), TM_OP_adamw, TM_F32, 28. },
        { "square_sum", BEST(reduce), TM_OP_square_sum, TM_F32, 4. },
        { "bias_grad", BEST(reduce), TM_OP_bias_grad, TM_F32, 4. },
        { "rmsnorm", BEST(norm), TM_OP_rmsnorm, TM_F32, 8. },
        { "rmsnorm_grad", BEST(norm), TM_OP_rmsnorm_grad, TM_F32, 12. },
        { "layernorm", BEST(norm), TM_OP_layernorm, TM_F32, 8. },
        { "gelu", BEST(pointwise), TM_OP_gelu, TM_F32, 8. },
        { "gelu_grad", BEST(pointwise), TM_OP_gelu_grad, TM_F32, 12. },
        { "swiglu", BEST(pointwise), TM_OP_swiglu, TM_F32, 6. },
        { "swiglu_grad", BEST(pointwise), TM_OP_swiglu_grad, TM_F32, 10. },
        { "adamw bf16", BEST(optimizer), TM_OP_adamw, TM_BF16, 14. },
        { "gelu bf16", BEST(pointwise), TM_OP_gelu, TM_BF16, 4. },
        { "swiglu bf16", BEST(pointwise), TM_OP_swiglu, TM_BF16, 3. },
        { "rmsnorm bf16", BEST(norm), TM_OP_rmsnorm, TM_BF16, 4. },
        { "rmsnorm_grad bf16", BEST(norm), TM_OP_rmsnorm_grad, TM_BF16, 6. },
        { "layernorm bf16", BEST(norm), TM_OP_layernorm, TM_BF16, 4. },
        { "gelu_grad bf16", BEST(pointwise), TM_OP_gelu_grad, TM_BF16, 6. },
        { "swiglu_grad bf16", BEST(pointwise), TM_OP_swiglu_grad, TM_BF16, 5. },
        { "add bf16", BEST(pointwise), TM_OP_add, TM_BF16, 6. },
        { "bias_grad bf16", BEST(reduce), TM_OP_bias_grad, TM_BF16, 2. },
    };
    static double rate[N_PROBES][MAX_ROUNDS], ratio[N_PROBES][MAX_ROUNDS], triads[N_PROBES * MAX_ROUNDS];
    triad(&m);
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < N_PROBES; k++) {
            const tm_kernel *kernel = probes[k].kernels;
            while (kernel->op != probes[k].op) kernel++;
            tm_call call = prepare(&probes[k], &m);
            double  base = triads[r * N_PROBES + k] = triad(&m);
            int64_t start = tm_now_ns();
            kernel->run(&call);
            rate[k][r] = probes[k].bytes * (double)m.elements / (double)(tm_now_ns() - start);
            ratio[k][r] = rate[k][r] / base;
        }
    printf("%d threads, arrays of %lld MB, %d rounds\n%-18s %6.1f GB/s\n", threads, (long long)(m.elements >> 18),
           rounds, "triad", median(triads, N_PROBES * rounds));
    for (int k = 0; k < N_PROBES; k++)
        printf("%-18s %6.1f GB/s  %4.2f\n", probes[k].name, median(rate[k], rounds), median(ratio[k], rounds));
    return 0;
}

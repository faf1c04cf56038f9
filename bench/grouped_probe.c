/* SPDX-License-Identifier: Apache-2.0 */
/* bench/grouped_probe.c - products of a mixture's experts, evenly loaded, beside one product of the same FLOPs (all
 * rows by one expert's weights), in turns.
 *
 *   grouped_probe [--isa NAME] [--dtype float32|bfloat16] [--threads n] [--seconds s] [ROWSxINPUTSxOUTPUTSxEXPERTS ...]
 *
 * ROWS: of all experts together. Forward, gradient of the input, gradient of the weights; medians in GFLOP/s.
 */
#include "pages.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { PRODUCTS = 3, MAX_SAMPLES = 400 };
static const char *const names[PRODUCTS] = { "forward", "dgrad", "wgrad" };
static const tm_op_id    ops[PRODUCTS][2] = { { TM_OP_grouped_linear, TM_OP_linear },
                                              { TM_OP_grouped_linear_dgrad, TM_OP_linear_dgrad },
                                              { TM_OP_grouped_linear_wgrad, TM_OP_linear_wgrad } };

typedef struct {
    int64_t rows, inputs, outputs, experts;
} shape;

static const tm_kernel *kernel_for(const char *isa, const tm_call *call, tm_op_id op)
{
    for (const tm_kernel *const *family = tm_cpu_kernel_tables(isa); *family; family++)
        for (const tm_kernel *k = *family; k->run; k++)
            if (k->op == op && !(k->refuse && k->refuse(call))) return k;
    fprintf(stderr, "grouped_probe: no kernel of %s\n", isa);
    exit(1);
}

static tm_view view_of(tm_dtype dtype, tm_shape at, uint64_t stream)
{
    int64_t n = tm_shape_elements(at);
    void   *p = take_pages((size_t)n * tm_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) tm_value_set(p, dtype, i, tm_random_uniform(1, stream, (uint64_t)i % 65536) - 0.5);
    return (tm_view){ .dtype = dtype, .shape = at, .data = p };
}

/* Operands of product p, grouped or as one; the gradient of weights is float32 and added to what is there. */
static tm_call call_of(int p, bool grouped, shape s, tm_dtype dtype, int threads)
{
    int64_t  from = p == 0 ? s.inputs : s.outputs, to = p == 0 ? s.outputs : s.inputs;
    tm_shape weights = grouped ? tm_shape_3(s.experts, s.outputs, s.inputs) : tm_shape_2(s.outputs, s.inputs);
    tm_call  call = { .op = tm_op_get(ops[p][!grouped]), .threads = threads, .accumulate = p == 2 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    call.in[0] = view_of(dtype, tm_shape_2(s.rows, from), 1);
    call.in[1] = view_of(dtype, p == 2 ? tm_shape_2(s.rows, s.inputs) : weights, 2);
    call.out[0] = p == 2 ? view_of(TM_F32, weights, 3) : view_of(dtype, tm_shape_2(s.rows, to), 3);
    if (!grouped) return call;
    call.in[2] = view_of(TM_I32, tm_shape_1(s.experts + 1), 4);
    for (int64_t e = 0; e <= s.experts; e++) ((int32_t *)call.in[2].data)[e] = (int32_t)(s.rows * e / s.experts);
    return call;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[n / 2];
}

static void measure(const char *isa, shape s, int p, tm_dtype dtype, int threads, double seconds)
{
    tm_call          calls[2] = { call_of(p, true, s, dtype, threads), call_of(p, false, s, dtype, threads) };
    const tm_kernel *kernels[2];
    double           rates[2][MAX_SAMPLES], ratios[MAX_SAMPLES];
    double           flops = 2. * (double)s.rows * (double)s.inputs * (double)s.outputs;
    for (int side = 0; side < 2; side++) {
        kernels[side] = kernel_for(isa, &calls[side], ops[p][side]);
        calls[side].workspace_bytes = kernels[side]->workspace ? kernels[side]->workspace(&calls[side]) : 0;
        calls[side].workspace = take_pages(calls[side].workspace_bytes + 64);
    }
    int n = -1; /* the first round warms up */
    for (int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9); n < 5 || (tm_now_ns() < end && n < MAX_SAMPLES); n++) {
        for (int side = 0; side < 2; side++) {
            int64_t start = tm_now_ns();
            kernels[side]->run(&calls[side]);
            if (n >= 0) rates[side][n] = flops / (double)(tm_now_ns() - start);
        }
        if (n >= 0) ratios[n] = rates[0][n] / rates[1][n];
    }
    printf("%6lld x %5lld x %5lld, %3lld experts  %-7s  grouped %7.1f  one %7.1f  ratio %.3f  n %d\n",
           (long long)s.rows, (long long)s.inputs, (long long)s.outputs, (long long)s.experts, names[p],
           median(rates[0], n), median(rates[1], n), median(ratios, n), n);
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 3; k++) free(calls[side].in[k].data);
        free(calls[side].out[0].data);
        free(calls[side].workspace);
    }
}

int main(int argc, char **argv)
{
    /* DeepSeek-V2-Lite, Qwen3-30B-A3B and Mixtral with 4,096 tokens, 6, 8 and 2 experts each; few rows */
    static const char *const defaults[] = { "24576x2048x1408x64", "32768x2048x768x128", "8192x4096x14336x8",
                                            "3072x2048x1408x64" };
    const char              *isa = "avx512";
    int                      threads = omp_get_max_threads(), shapes = 0;
    double                   seconds = 3;
    tm_dtype                 dtype = TM_F32;
    shape                    list[64];
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush denormals, as the trainer does */
#endif
    for (int i = 1; i < argc || (i < argc + 4 && shapes == i - argc); i++) {
        const char *word = i < argc ? argv[i] : defaults[i - argc]; /* without shapes: the defaults */
        long long   n[4];
        if (i + 1 < argc && !strcmp(word, "--isa"))
            isa = argv[++i];
        else if (i + 1 < argc && !strcmp(word, "--dtype"))
            dtype = !strcmp(argv[++i], "bfloat16") ? TM_BF16 : TM_F32;
        else if (i + 1 < argc && !strcmp(word, "--threads"))
            threads = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(word, "--seconds"))
            seconds = atof(argv[++i]);
        else if (shapes < 64 && sscanf(word, "%lldx%lldx%lldx%lld", &n[0], &n[1], &n[2], &n[3]) == 4)
            list[shapes++] = (shape){ n[0], n[1], n[2], n[3] };
        else {
            fprintf(stderr, "grouped_probe: '%s' is not a shape like 24576x2048x1408x64 or a known option\n", word);
            return 2;
        }
    }
    if (!tm_cpu_kernel_tables(isa)) {
        fprintf(stderr, "grouped_probe: this machine has no %s\n", isa);
        return 2;
    }
    if (threads < 1) threads = 1;
    omp_set_num_threads(threads);
    printf("isa %s, %s, %d threads, GFLOP/s\n", isa, tm_dtype_name(dtype), threads);
    for (int i = 0; i < shapes; i++)
        for (int p = 0; p < PRODUCTS; p++) measure(isa, list[i], p, dtype, threads, seconds);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* bench/gemm_probe.c - the rate of the own matrix product beside oneDNN's, call by call in turn, and beside a loop of
 * multiply-adds that touches no memory (the probe: what the cores give at this moment).
 *
 *   gemm_probe [--isa base|avx2|avx512|avx512_bf16|amx] [--dtype float32|bfloat16] [--threads n] [--seconds s]
 *              [--cpu-time] [MxNxK[:nt|nn|tn] ...]
 *
 * bfloat16: of bfloat16 operands, the own C in bfloat16 (tn: float32, accumulating), oneDNN's in float32; the probe
 * stays the float32 one.
 * --cpu-time: one thread, timed by the processor time it got; for machines shared with others.
 * Layouts: nt (forward), nn (gradient of the input), tn (gradient of the weight, accumulating). Medians in GFLOP/s.
 */
#include "pages.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/random.h"
#include "base/status.h"
#include "device/cpu/gemm.h"
#include "graph/value.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

typedef int dnnl_sgemm_fn(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef int dnnl_bf16_fn(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const uint16_t *a, int64_t lda,
                         const uint16_t *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef struct {
    const char *isa;
    void (*run)(const tm_gemm *gemm);
    size_t (*workspace)(const tm_gemm *gemm);
} engine;
static const engine engines[] = {
#ifdef __x86_64__
    { "amx", tm_gemm_run_amx, tm_gemm_workspace_amx },
    { "avx512_bf16", tm_gemm_run_avx512_bf16, tm_gemm_workspace_avx512_bf16 },
    { "avx512", tm_gemm_run_avx512, tm_gemm_workspace_avx512 },
    { "avx2", tm_gemm_run_avx2, tm_gemm_workspace_avx2 },
#endif
    { "base", tm_gemm_run_base, tm_gemm_workspace_base },
};
enum { ENGINES = sizeof engines / sizeof *engines, MAX_SAMPLES = 200 };

static const engine *engine_named(const char *isa)
{
    for (int i = 0; i < ENGINES; i++) {
#ifdef __x86_64__
        if (!strcmp(engines[i].isa, "amx") && !(tm_cpu_isa_probe().amx && tm_cpu_allow_tiles())) continue;
        if (!strcmp(engines[i].isa, "avx512_bf16") && !tm_cpu_isa_probe().avx512_bf16) continue;
        if (!strcmp(engines[i].isa, "avx512") && !__builtin_cpu_supports("avx512dq")) continue;
        if (!strcmp(engines[i].isa, "avx2") && !__builtin_cpu_supports("fma")) continue;
#endif
        if (!isa || !strcmp(isa, engines[i].isa)) return &engines[i];
    }
    fprintf(stderr, "gemm_probe: this CPU does not run '%s'\n", isa);
    exit(2);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static bool    cpu_time;
static int64_t now_ns(void)
{
    struct timespec t;
    if (!cpu_time) return tm_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif
#ifdef __x86_64__
__attribute__((target("avx512f"))) static float fma_512(int64_t rounds)
{
    __m512 r[24], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    UNROLL for (int i = 0; i < 24; i++) r[i] = _mm512_set1_ps((float)i);
    for (int64_t k = 0; k < rounds; k++) UNROLL for (int i = 0; i < 24; i++) r[i] = _mm512_fmadd_ps(r[i], x, y);
    UNROLL for (int i = 1; i < 24; i++) r[0] = _mm512_add_ps(r[0], r[i]);
    return _mm512_cvtss_f32(r[0]);
}
__attribute__((target("avx2,fma"))) static float fma_256(int64_t rounds)
{
    __m256 r[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    UNROLL for (int i = 0; i < 12; i++) r[i] = _mm256_set1_ps((float)i);
    for (int64_t k = 0; k < rounds; k++) UNROLL for (int i = 0; i < 12; i++) r[i] = _mm256_fmadd_ps(r[i], x, y);
    UNROLL for (int i = 1; i < 12; i++) r[0] = _mm256_add_ps(r[0], r[i]);
    return _mm256_cvtss_f32(r[0]);
}
/* GFLOP/s of multiply-adds in registers; 0 without such instructions. */
static double probe(int threads)
{
    enum { ROUNDS = 400000 };
    bool  wide = __builtin_cpu_supports("avx512f");
    float sink = 0;
    if (!wide && !__builtin_cpu_supports("fma")) return 0;
    int64_t start = now_ns();
#pragma omp parallel num_threads(threads)
    {
        float one = wide ? fma_512(ROUNDS) : fma_256(ROUNDS);
#pragma omp critical
        sink += one;
    }
    double flops = 2. * ROUNDS * (wide ? 24 * 16 : 12 * 8) * threads;
    return sink != 0 ? flops / (double)(now_ns() - start) : 0;
}
#else
static double probe(int threads)
{
    (void)threads;
    return 0;
}
#endif

typedef struct {
    int64_t m, n, k;
    char    layout[3];
} shape;

static void *matrix(int64_t elements, tm_dtype dtype, uint64_t stream)
{
    void *p = take_pages((size_t)elements * tm_dtype_bytes(dtype));
    for (int64_t i = 0; i < elements; i++)
        tm_value_set(p, dtype, i, tm_random_uniform(1, stream, (uint64_t)i % 65536) - 0.5);
    return p;
}

typedef struct {
    dnnl_sgemm_fn *f32;
    dnnl_bf16_fn  *bf16;
} peer;

static void run_peer(const peer *dnnl, const tm_gemm *g, float *c)
{
    char ta = g->a.transposed ? 'T' : 'N', tb = g->b.transposed ? 'T' : 'N';
    if (g->a.dtype == TM_BF16)
        dnnl->bf16(ta, tb, g->m, g->n, g->k, 1, g->a.data, g->a.ld, g->b.data, g->b.ld, g->accumulate, c, g->n);
    else
        dnnl->f32(ta, tb, g->m, g->n, g->k, 1, g->a.data, g->a.ld, g->b.data, g->b.ld, g->accumulate, c, g->n);
}

static void measure(const engine *own, const peer *peers, shape s, tm_dtype dtype, int threads, double seconds)
{
    bool     ta = s.layout[0] == 't', tb = s.layout[1] == 't';
    bool     dnnl = dtype == TM_BF16 ? peers->bf16 != NULL : peers->f32 != NULL;
    tm_dtype c_dtype = ta ? TM_F32 : dtype;
    void    *a = matrix(s.m * s.k, dtype, 1), *b = matrix(s.k * s.n, dtype, 2), *c = matrix(s.m * s.n, TM_F32, 3);
    tm_gemm  g = { .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .a = { a, ta ? s.m : s.k, ta, dtype },
                   .b = { b, tb ? s.k : s.n, tb, dtype },
                   .c = c,
                   .ldc = s.n,
                   .c_dtype = c_dtype,
                   .accumulate = ta,
                   .threads = threads };
    size_t   bytes = own->workspace(&g);
    g.workspace = take_pages(bytes);
    double rates[3][MAX_SAMPLES], flops = 2. * (double)s.m * (double)s.n * (double)s.k;
    int    n = -1; /* the first round warms up */
    for (int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9); n < 3 || (tm_now_ns() < end && n < MAX_SAMPLES); n++) {
        int64_t start = now_ns();
        own->run(&g);
        double took = (double)(now_ns() - start);
        if (n >= 0) rates[0][n] = flops / took;
        start = now_ns();
        if (dnnl) run_peer(peers, &g, c);
        took = (double)(now_ns() - start);
        if (n >= 0) rates[1][n] = dnnl ? flops / took : 0, rates[2][n] = n < 20 ? probe(threads) : rates[2][n % 20];
    }
    double mine = median(rates[0], n), theirs = median(rates[1], n), peak = median(rates[2], n);
    printf("%6lld x %6lld x %6lld %s  own %6.1f", (long long)s.m, (long long)s.n, (long long)s.k, s.layout, mine);
    if (dnnl) printf("  dnnl %6.1f  ratio %.3f", theirs, mine / theirs);
    printf("  probe %6.1f  share %.2f  %9.1f us  workspace %.1f MiB  n %d\n", peak, peak > 0 ? mine / peak : 0,
           flops / mine / 1e3, (double)bytes / 1048576, n);
    free(a), free(b), free(c), free(g.workspace);
}

static bool parse_shape(const char *text, shape *out)
{
    long long m, n, k;
    char      layout[3] = "nt";
    int       found = sscanf(text, "%lldx%lldx%lld:%2s", &m, &n, &k, layout);
    if (found < 3 || m < 1 || n < 1 || k < 1 || !strchr("nt", layout[0]) || !strchr("nt", layout[1])) return false;
    *out = (shape){ m, n, k, { layout[0], layout[1], 0 } };
    return true;
}

int main(int argc, char **argv)
{
    static const char *const defaults[] = {
        "2048x2048x2048:nn", "2048x4096x1024:nt", "2048x1024x4096:nn", "4096x1024x2048:tn", "512x50304x1024:nt",
        "512x1024x50304:nn", "50304x1024x512:tn", "2048x768x256:nt",   "2048x64x256:nt",    "64x256x2048:tn",
    };
    const char *isa = NULL;
    int         threads = omp_get_max_threads(), shapes = 0;
    double      seconds = 1;
    tm_dtype    dtype = TM_F32;
    shape       list[64];
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush denormals, as the trainer does */
#endif
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--isa") && i + 1 < argc)
            isa = argv[++i];
        else if (!strcmp(argv[i], "--dtype") && i + 1 < argc)
            dtype = !strcmp(argv[++i], "bfloat16") ? TM_BF16 : TM_F32;
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (!strcmp(argv[i], "--cpu-time"))
            cpu_time = true;
        else if (shapes >= 64 || !parse_shape(argv[i], &list[shapes++])) {
            fprintf(stderr, "gemm_probe: '%s' is not a shape like 2048x768x256:nt or a known option\n", argv[i]);
            return 2;
        }
    }
    if (shapes == 0)
        for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
            shapes += parse_shape(defaults[i], &list[shapes]);
    if (threads < 1 || cpu_time) threads = 1;
    omp_set_num_threads(threads);
    const engine *own = engine_named(isa);
    void         *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    peer dnnl = { NULL, NULL };
    if (library) *(void **)&dnnl.f32 = dlsym(library, "dnnl_sgemm");
    if (library) *(void **)&dnnl.bf16 = dlsym(library, "dnnl_gemm_bf16bf16f32");
    bool found = dtype == TM_BF16 ? dnnl.bf16 != NULL : dnnl.f32 != NULL;
    printf("isa %s, %s, %d threads, oneDNN %s\n", own->isa, tm_dtype_name(dtype), threads, found ? "found" : "SKIPPED");
    if (!found)
        printf("oneDNN is SKIPPED: %s\n", library ? "the library that is there has no product of this format"
                                                  : "there is no libdnnl.so.3 or .so.2; install libdnnl3");
    for (int i = 0; i < shapes; i++) measure(own, &dnnl, list[i], dtype, threads, seconds);
    return 0;
}

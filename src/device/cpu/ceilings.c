/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/ceilings.c - the peak of the arithmetic units and of the memory, by the kernels of simd/probes.c with the
 * best instructions that the machine has, whatever set the device is limited to. */
#include "device/ceilings.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "device/backend.h"
#include "device/cpu/simd/probes.h"
#include "stats/summary.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

static const struct {
    const char *name;
    int64_t     arrays;
} kernels[] = {
#define X(id, name, arrays) { name, arrays },
    TM_STREAM_LIST(X)
#undef X
};

const char *tm_stream_name(tm_stream_kernel kernel)
{
    return kernels[kernel].name;
}

int64_t tm_stream_bytes(tm_stream_kernel kernel)
{
    return kernels[kernel].arrays * (int64_t)sizeof(double);
}

static const tm_cpu_probe *best_probe(void)
{
#if defined(__x86_64__)
    tm_cpu_isa isa = tm_cpu_isa_probe();
    if (isa.avx512 && &tm_cpu_probe_avx512) return &tm_cpu_probe_avx512;
    if (isa.avx2 && &tm_cpu_probe_avx2) return &tm_cpu_probe_avx2;
#endif
    return &tm_cpu_probe_base;
}

bool tm_device_streams(const tm_device *device)
{
    (void)device;
    return best_probe()->streams;
}

/* Elements [from, to) of the arrays are those of thread `me` of `all`. */
static void part(int64_t n, int me, int all, int64_t *from, int64_t *to)
{
    int64_t groups = (n + 7) / 8;
    *from = groups * me / all * 8;
    *to = groups * (me + 1) / all * 8;
    if (*to > n) *to = n;
}

enum { MOST_THREADS = 4096 };

double tm_device_stream(const tm_device *device, tm_stream_kernel kernel, bool streaming_stores, double scalar,
                        double *a, double *b, double *c, int64_t n)
{
    const tm_cpu_probe *probe = best_probe();
    int                 threads = device->info.threads;
    double              sums[MOST_THREADS];
    TM_ASSERT(threads <= MOST_THREADS && (!streaming_stores || probe->streams));
#pragma omp parallel num_threads(threads)
    {
        int64_t from, to;
        int     me = omp_get_thread_num();
        part(n, me, threads, &from, &to);
        sums[me] = probe->stream(kernel, streaming_stores, scalar, a + from, b + from, c + from, to - from);
    }
    double sum = 0;
    for (int i = 0; i < threads; i++) sum += sums[i];
    return sum;
}

void tm_device_stream_fill(const tm_device *device, double *a, double x, double *b, double y, double *c, double z,
                           int64_t n)
{
    int threads = device->info.threads;
#pragma omp parallel num_threads(threads)
    {
        int64_t from, to;
        part(n, omp_get_thread_num(), threads, &from, &to);
        for (int64_t i = from; i < to; i++) a[i] = x, b[i] = y, c[i] = z;
    }
}

/* --- ceilings -------------------------------------------------------------------------------- */

/* FLOP/s of all threads in one go: from the first start to the last end. */
static double arithmetic_rate(double (*run)(int64_t), int64_t rounds, int threads)
{
    int64_t first = INT64_MAX, last = 0;
    double  flops = 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
        int64_t start = tm_now_ns();
        double  mine = run(rounds);
        int64_t end = tm_now_ns();
#pragma omp critical
        {
            if (start < first) first = start;
            if (end > last) last = end;
            flops += mine;
        }
    }
    return flops / ((double)(last - first) * 1e-9);
}

enum { MOST_SAMPLES = 4096 };

/* The best of n rates, and how far their median is below it. */
static double best_of(const double *rates, int64_t n, double *spread)
{
    double best = 0;
    for (int64_t i = 0; i < n; i++) best = fmax(best, rates[i]);
    *spread = (best - tm_stats_median(rates, n)) / best;
    return best;
}

/* The best of samples of about 2 ms each; at least three. */
static double arithmetic_peak(double (*run)(int64_t), int threads, double seconds, double *spread)
{
    int64_t start = tm_now_ns(), rounds = 100;
    (void)run(rounds);
    double  took = (double)(tm_now_ns() - start) * 1e-9, rates[MOST_SAMPLES];
    int64_t wanted = (int64_t)(2e-3 / (took > 1e-9 ? took : 1e-9) * (double)rounds) + 1, n = 0;
    int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9);
    while (n < 3 || (tm_now_ns() < end && n < MOST_SAMPLES)) rates[n++] = arithmetic_rate(run, wanted, threads);
    return best_of(rates, n, spread);
}

/* Patterns whose counted bytes are all that is moved: reading, storing past the caches, rewriting in place. Each runs
 * over all of the memory, in as many arrays as it needs. */
static const struct {
    tm_stream_kernel kernel;
    bool             streaming;
    int64_t          arrays;
    double           passes; /* times that every byte is moved */
    const char      *name;
} patterns[] = {
    { TM_STREAM_DOT, false, 2, 1, "reading" },
    { TM_STREAM_MUL, false, 1, 2, "rewriting in place" },
    { TM_STREAM_COPY, true, 2, 1, "copying past the caches" },
    { TM_STREAM_TRIAD, true, 3, 1, "triad past the caches" },
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

/* Thread `me` of `all` runs pattern p over its part of n elements. */
static void run_pattern(const tm_cpu_probe *probe, int p, double *memory, int64_t n, int me, int all)
{
    int64_t from, to;
    part(n, me, all, &from, &to);
    int64_t span = (to - from) / patterns[p].arrays / 8 * 8;
    double *x = memory + from, *y = x + span, *z = y + span;
    bool    past = patterns[p].streaming && probe->streams;
    switch (patterns[p].kernel) {
    case TM_STREAM_DOT:
        (void)probe->stream(TM_STREAM_DOT, false, 1, x, y, x, span);
        break;
    case TM_STREAM_MUL:
        (void)probe->stream(TM_STREAM_MUL, false, 1, x, x, x, span);
        break;
    case TM_STREAM_COPY:
        (void)probe->stream(TM_STREAM_COPY, past, 1, x, x, y, span);
        break;
    default:
        (void)probe->stream(TM_STREAM_TRIAD, past, 1, x, y, z, span);
    }
}

static double memory_peak(double *memory, int64_t n, int threads, double seconds, const char **how, double *spread)
{
    enum { ROUNDS = 256 };
    const tm_cpu_probe *probe = best_probe();
    double              rates[PATTERNS][ROUNDS], best = 0;
    int64_t             end = tm_now_ns() + (int64_t)(seconds * 1e9), rounds = 0;
    for (; rounds < 3 || (tm_now_ns() < end && rounds < ROUNDS); rounds++)
        for (int p = 0; p < PATTERNS; p++) {
            int64_t start = tm_now_ns();
#pragma omp parallel num_threads(threads)
            run_pattern(probe, p, memory, n, omp_get_thread_num(), threads);
            double bytes = patterns[p].passes * (double)n * sizeof(double);
            rates[p][rounds] = bytes / ((double)(tm_now_ns() - start) * 1e-9);
        }
    for (int p = 0; p < PATTERNS; p++) {
        double its_spread, its_best = best_of(rates[p], rounds, &its_spread);
        if (its_best <= best) continue;
        best = its_best;
        *spread = its_spread;
        *how = patterns[p].name;
    }
    return best;
}

void tm_device_arithmetic(const tm_device *device, int threads, double seconds, tm_ceilings *out)
{
    const tm_cpu_probe *probe = best_probe();
    tm_cpu_isa          isa = tm_cpu_isa_probe();
    double (*bf16)(int64_t) = isa.avx512_bf16 ? probe->multiply_add_bf16 : NULL;
    if (isa.amx && probe->multiply_add_tiles && tm_cpu_allow_tiles()) bf16 = probe->multiply_add_tiles;
    if (threads == 0) threads = device->info.threads;
    *out = (tm_ceilings){ 0 };
    out->flops = arithmetic_peak(probe->multiply_add, threads, seconds * (bf16 ? 0.5 : 1), &out->flops_spread);
    if (bf16) out->flops_bf16 = arithmetic_peak(bf16, threads, seconds * 0.5, &out->flops_bf16_spread);
    if (out->flops_bf16 < out->flops) { /* widened, then multiplied */
        out->flops_bf16 = out->flops;
        out->flops_bf16_spread = out->flops_spread;
    }
    snprintf(out->flops_how, sizeof out->flops_how, "%s: %d chains of %d lanes, %s, %d thread%s", probe->isa,
             probe->chains, probe->lanes, probe->fused ? "fused multiply-add" : "separate multiply and add", threads,
             threads == 1 ? "" : "s");
}

tm_status tm_device_ceilings(tm_device *device, double seconds, tm_ceilings *out, tm_error *err)
{
    int     threads = device->info.threads;
    int64_t cache = tm_cpu_last_level_bytes(""), bytes = 4 * (cache > 0 ? cache : (int64_t)64 << 20);
    if (bytes > (int64_t)1 << 30) bytes = (int64_t)1 << 30;
    int64_t     n = bytes / 64 * 8;
    void       *memory;
    const char *how = "";
    *out = (tm_ceilings){ 0 };
    TM_TRY(tm_device_alloc_host(device, (size_t)n * sizeof(double), &memory, err));
    tm_device_arithmetic(device, 0, seconds * 0.5, out);
    out->bytes = memory_peak(memory, n, threads, seconds * 0.5, &how, &out->bytes_spread);
    snprintf(out->bytes_how, sizeof out->bytes_how, "%s, %lld MiB, %d thread%s", how, (long long)(n * 8 >> 20), threads,
             threads == 1 ? "" : "s");
    tm_device_release_host(device, memory, (size_t)n * sizeof(double));
    return TM_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* bench/triad_probe.c - bandwidth of main memory by the STREAM triad, a = b + s c (McCalpin 1995): 12 bytes counted per
 * element, arrays far beyond the caches, all threads, each on pages that it touched first. Once with ordinary stores,
 * for which the caches read the line of `a` before it is written (not counted), once with stores past the caches.
 *
 *   triad_probe [--threads n] [--seconds s] [--mib m]        m: size of each of the three arrays
 *
 * Best and median in GB/s (1e9).
 */
#include "base/arena.h"
#include "base/clock.h"

#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { MAX_SAMPLES = 1000, LINE = 16 /* floats */ };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void plain(float *restrict a, const float *restrict b, const float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
}

/* n is a multiple of LINE, a is aligned. */
static void streaming(float *restrict a, const float *restrict b, const float *restrict c, int64_t n)
{
#ifdef __x86_64__
    __m128 s = _mm_set1_ps(3);
    for (int64_t i = 0; i < n; i += 4)
        _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(s, _mm_load_ps(c + i))));
    _mm_sfence();
#else
    plain(a, b, c, n);
#endif
}

typedef void triad_fn(float *restrict a, const float *restrict b, const float *restrict c, int64_t n);

static void measure(const char *name, triad_fn *triad, float *const arrays[3], int64_t n, int threads, double seconds)
{
    static double rates[MAX_SAMPLES];
    int           samples = -1; /* the first round warms up */
    int64_t       end = tm_now_ns() + (int64_t)(seconds * 1e9);
    for (; samples < 3 || (tm_now_ns() < end && samples < MAX_SAMPLES); samples++) {
        int64_t start = tm_now_ns();
#pragma omp parallel num_threads(threads)
        {
            int64_t lines = n / LINE, me = omp_get_thread_num(), all = omp_get_num_threads();
            int64_t from = lines * me / all * LINE, to = lines * (me + 1) / all * LINE;
            triad(arrays[0] + from, arrays[1] + from, arrays[2] + from, to - from);
        }
        if (samples >= 0) rates[samples] = 12. * (double)n / (double)(tm_now_ns() - start);
    }
    qsort(rates, (size_t)samples, sizeof *rates, by_value);
    printf("triad %7.2f GB/s best, %7.2f median, n %d, %s stores\n", rates[samples - 1], rates[samples / 2], samples,
           name);
}

int main(int argc, char **argv)
{
    int     threads = omp_get_max_threads();
    double  seconds = 1;
    int64_t mib = 128;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (!strcmp(argv[i], "--mib") && i + 1 < argc)
            mib = atoll(argv[++i]);
        else {
            fprintf(stderr, "triad_probe: unknown option '%s'; known: --threads n, --seconds s, --mib m\n", argv[i]);
            return 2;
        }
    }
    if (threads < 1) threads = 1;
    if (mib < 1) mib = 1;
    int64_t n = mib * 1048576 / 4;
    float  *memory[3], *arrays[3];
    for (int k = 0; k < 3; k++) {
        memory[k] = tm_alloc((size_t)n * 4 + 64);
        arrays[k] = memory[k] + (64 - (uintptr_t)memory[k] % 64) / 4 % LINE;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t lines = n / LINE, me = omp_get_thread_num(), all = omp_get_num_threads();
        for (int64_t i = lines * me / all * LINE; i < lines * (me + 1) / all * LINE; i++)
            arrays[0][i] = 0, arrays[1][i] = 1, arrays[2][i] = 2;
    }
    measure("ordinary", plain, arrays, n, threads, seconds);
    measure("streaming", streaming, arrays, n, threads, seconds);
    bool right = arrays[0][0] == 7 && arrays[0][n - 1] == 7;
    if (!right) fprintf(stderr, "triad_probe: wrong sums\n");
    for (int k = 0; k < 3; k++) free(memory[k]);
    return right ? 0 : 1;
}

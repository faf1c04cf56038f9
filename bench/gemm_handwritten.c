/* SPDX-License-Identifier: Apache-2.0 */
/* bench/gemm_handwritten.c - what somebody would write who wants to know how fast a library multiplies: operands, a
 * loop, a clock. It shares no code with trainmark; gemm_handwritten.sh holds `trainmark bench gemm --library` against
 * it.
 *
 *   gemm_handwritten oneDNN|OpenBLAS M N K THREADS SECONDS CACHE_BYTES
 *
 * C (M, N) = A (M, K) B (K, N), row-major float32, standard normal; sets of operands of more than twice CACHE_BYTES in
 * turns. Prints the median of the times of single calls, in ms, and their number.
 */
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST = 1 << 20, HUGE_PAGE = 2 << 20 };

typedef int dnnl_fn(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                    float *, int64_t);
typedef void cblas_fn(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *matrix(int64_t elements)
{
    size_t bytes = ((size_t)elements * 4 + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *x = aligned_alloc(HUGE_PAGE, bytes);
    if (!x) exit(1);
    madvise(x, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < elements; i++) {
        double u = (rand() + 1.0) / (RAND_MAX + 2.0), v = rand() / (RAND_MAX + 1.0);
        x[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
    return x;
}

int main(int argc, char **argv)
{
    if (argc != 8) return fprintf(stderr, "usage: %s oneDNN|OpenBLAS M N K THREADS SECONDS CACHE_BYTES\n", argv[0]), 2;
    int     onednn = strcmp(argv[1], "oneDNN") == 0, threads = atoi(argv[5]);
    int64_t m = atoll(argv[2]), n = atoll(argv[3]), k = atoll(argv[4]);
    double  seconds = atof(argv[6]), cache = atof(argv[7]);
    void   *library = dlopen(onednn ? "libdnnl.so.3" : "libopenblas.so.0", RTLD_NOW);
    if (!library && onednn) library = dlopen("libdnnl.so.2", RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    dnnl_fn  *dnnl = NULL;
    cblas_fn *cblas = NULL;
    void (*set)(int) = NULL;
    *(void **)&dnnl = dlsym(library, "dnnl_sgemm");
    *(void **)&cblas = dlsym(library, "cblas_sgemm");
    *(void **)&set = dlsym(library, "openblas_set_num_threads");
    omp_set_num_threads(threads);
    if (set) set(threads);
    int sets = (int)(2 * cache / (4. * (double)(m * k + k * n + m * n))) + 1;
    if (sets < 2) sets = 2;
    float **a = calloc((size_t)sets * 3, sizeof *a), **b = a + sets, **c = b + sets;
    for (int i = 0; i < sets; i++) a[i] = matrix(m * k), b[i] = matrix(k * n), c[i] = matrix(m * n);

    static double times[MOST];
    int           count = -3; /* the first three warm up */
    for (double end = now() + seconds; count < 3 || (now() < end && count < MOST); count++) {
        int    i = (count + 3) % sets;
        double start = now();
        if (onednn)
            dnnl('N', 'N', m, n, k, 1, a[i], k, b[i], n, 0, c[i], n);
        else
            cblas(101, 111, 111, (int)m, (int)n, (int)k, 1, a[i], (int)k, b[i], (int)n, 0, c[i], (int)n);
        if (count >= 0) times[count] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_value);
    printf("%.6f %d\n", times[count / 2] * 1e3, count);
    return 0;
}

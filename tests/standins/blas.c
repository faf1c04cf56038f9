/* SPDX-License-Identifier: Apache-2.0 */
/* tests/standins/blas.c - stands in for libraries of matrix products: -DDNNL, -DOPENBLAS, -DBLIS or -DMKL says for
 * which. Products are right unless TM_STANDIN_WRONG names the library's function. What they say of themselves is in
 * variables of the environment, read at each call; -DBARE: they say nothing; -DHOLLOW: there is no product. Every call
 * is a line of standin_calls.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Found by name: nobody declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EXPORT char standin_calls[4096];

void note(const char *line)
{
    size_t used = strlen(standin_calls);
    if (!strstr(standin_calls, line)) snprintf(standin_calls + used, sizeof standin_calls - used, "%s\n", line);
}

static double half(uint16_t bits)
{
    double size = bits & 0x7c00 ? 0x1p-24 * (1024 + (bits & 1023)) : 0x1p-24 * (bits & 1023);
    for (int exponent = bits >> 10 & 31; exponent > 1; exponent--) size *= 2;
    return bits & 0x8000 ? -size : size;
}

enum { FLOAT32, BFLOAT16, FLOAT16 };

static double value(const void *data, int format, int64_t i)
{
    uint32_t word;
    float    f;
    if (format == FLOAT32) return (double)((const float *)data)[i];
    if (format == FLOAT16) return half(((const uint16_t *)data)[i]);
    word = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}

/* C = alpha op(A) op(B) + beta C, row-major. */
void multiply(const char *name, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const void *a,
              int64_t lda, const void *b, int64_t ldb, float beta, float *c, int64_t ldc, int format)
{
    const char *wrong = getenv("TM_STANDIN_WRONG");
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum +=
                    value(a, format, ta ? p * lda + i : i * lda + p) * value(b, format, tb ? j * ldb + p : p * ldb + j);
            /* beta 0: what C holds does not count, also if it is no number */
            c[i * ldc + j] = (float)((double)alpha * sum) + (beta < 0 || beta > 0 ? beta * c[i * ldc + j] : 0);
        }
    if (wrong && strcmp(wrong, name) == 0) c[(m - 1) * ldc + n - 1] += 8;
}

#if !defined(BARE) && (defined(DNNL) || defined(OPENBLAS) || defined(BLIS) || defined(MKL))
/* A number of the environment. */
int told(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 0) : otherwise;
}
void note_number(const char *what, long long number)
{
    char line[96];
    snprintf(line, sizeof line, "%s %lld", what, number);
    note(line);
}
#endif

/* Functions that say one thing, or note one number. */
#define SAYS(type, name, value)                                                                                        \
    EXPORT type name(void)                                                                                             \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
#define TAKES(name, type)                                                                                              \
    EXPORT void name(type threads)                                                                                     \
    {                                                                                                                  \
        note_number(#name, threads);                                                                                   \
    }

#ifndef HOLLOW
#ifdef DNNL
static int dnnl(const char *name, char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const void *a,
                int64_t lda, const void *b, int64_t ldb, float beta, float *c, int64_t ldc, int format)
{
    char line[256];
    snprintf(line, sizeof line, "%s %c%c %lld %lld %lld %g %lld %lld %g %lld", name, ta, tb, (long long)m, (long long)n,
             (long long)k, (double)alpha, (long long)lda, (long long)ldb, (double)beta, (long long)ldc);
    note(line);
    multiply(name, ta == 'T', tb == 'T', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, format);
    return 0;
}
#define GEMM(name, type, format)                                                                                       \
    EXPORT int name(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const type *a, int64_t lda,        \
                    const type *b, int64_t ldb, float beta, float *c, int64_t ldc)                                     \
    {                                                                                                                  \
        return dnnl(#name, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, format);                              \
    }
GEMM(dnnl_sgemm, float, FLOAT32)
GEMM(dnnl_gemm_bf16bf16f32, uint16_t, BFLOAT16)
#ifndef BARE
typedef struct {
    int         major, minor, patch;
    const char *hash;
    unsigned    cpu_runtime, gpu_runtime;
} version;
EXPORT const version *dnnl_version(void)
{
    static version v = { 3, 6, 12, "0123", 0, 7 };
    v.cpu_runtime = (unsigned)told("TM_STANDIN_POOL", 2);
    return &v;
}
SAYS(int, dnnl_get_effective_cpu_isa, told("TM_STANDIN_ISA", 0xe7))
SAYS(int, omp_get_max_threads, 5)
TAKES(omp_set_num_threads, int)
#endif
#else

static void cblas(const char *name, int order, int ta, int tb, int m, int n, int k, float alpha, const void *a, int lda,
                  const void *b, int ldb, float beta, float *c, int ldc, int format)
{
    char line[256];
    snprintf(line, sizeof line, "%s %d %d %d %d %d %d %g %d %d %g %d", name, order, ta, tb, m, n, k, (double)alpha, lda,
             ldb, (double)beta, ldc);
    note(line);
    multiply(name, ta == 112, tb == 112, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, format);
}
#define GEMM(name, type, format)                                                                                       \
    EXPORT void name(int order, int ta, int tb, int m, int n, int k, float alpha, const type *a, int lda,              \
                     const type *b, int ldb, float beta, float *c, int ldc)                                            \
    {                                                                                                                  \
        cblas(#name, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, format);                             \
    }
GEMM(cblas_sgemm, float, FLOAT32)
#ifdef OPENBLAS
GEMM(cblas_sbgemm, uint16_t, BFLOAT16)
#ifndef BARE
GEMM(cblas_shgemm, uint16_t, FLOAT16)
SAYS(int, openblas_get_parallel, told("TM_STANDIN_POOL", 1))
SAYS(int, openblas_get_num_threads, told("TM_STANDIN_THREADS", 6))
SAYS(const char *, openblas_get_config, "OpenBLAS 0.3.99 NO_LAPACK")
SAYS(const char *, openblas_get_corename, "Prescott")
TAKES(openblas_set_num_threads, int)
#ifndef PLAIN
SAYS(int, omp_get_max_threads, 5)
#endif
#endif
#endif
#if defined(BLIS) && !defined(BARE)
SAYS(int, bli_arch_query_id, 7)
EXPORT const char *bli_arch_string(int id)
{
    return id == 7 ? "zen3" : "generic";
}
SAYS(int64_t, bli_info_get_enable_openmp, told("TM_STANDIN_POOL", 2) == 2)
SAYS(int64_t, bli_info_get_enable_pthreads, told("TM_STANDIN_POOL", 2) == 1)
SAYS(int64_t, bli_thread_get_num_threads, told("TM_STANDIN_THREADS", 9))
SAYS(const char *, bli_info_get_version_str, "0.9.1")
TAKES(bli_thread_set_num_threads, int64_t)
SAYS(int, omp_get_max_threads, 5)
#endif
#ifdef MKL
GEMM(cblas_gemm_bf16bf16f32, uint16_t, BFLOAT16)
#ifndef BARE
GEMM(cblas_gemm_f16f16f32, uint16_t, FLOAT16)
#ifdef CAPITALS
#define VERSION MKL_Get_Version_String
#else
#define VERSION mkl_get_version_string
#endif
EXPORT void VERSION(char *out, int bytes)
{
    const char *text = getenv("TM_STANDIN_VERSION");
    snprintf(out, (size_t)bytes, "%s", text ? text : "Intel(R) Library Version 2024.1-Product Build 7 for Intel(R) 64");
}
SAYS(int, MKL_Get_Max_Threads, told("TM_STANDIN_THREADS", 3))
SAYS(int, MKL_CBWR_Get_Auto_Branch, 13)
TAKES(MKL_Set_Num_Threads, int)
#endif
#endif
#endif
#endif

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
EXPORT int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                      const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    return dnnl("dnnl_sgemm", ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, FLOAT32);
}
EXPORT int dnnl_gemm_bf16bf16f32(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const uint16_t *a,
                                 int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    return dnnl("dnnl_gemm_bf16bf16f32", ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, BFLOAT16);
}
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
EXPORT int dnnl_get_effective_cpu_isa(void)
{
    return told("TM_STANDIN_ISA", 0xe7);
}
EXPORT int omp_get_max_threads(void)
{
    return 5;
}
EXPORT void omp_set_num_threads(int threads)
{
    note_number("omp_set_num_threads", threads);
}
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
EXPORT void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                        const float *b, int ldb, float beta, float *c, int ldc)
{
    cblas("cblas_sgemm", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, FLOAT32);
}
#ifdef OPENBLAS
EXPORT void cblas_sbgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a, int lda,
                         const uint16_t *b, int ldb, float beta, float *c, int ldc)
{
    cblas("cblas_sbgemm", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, BFLOAT16);
}
#ifndef BARE
EXPORT void cblas_shgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a, int lda,
                         const uint16_t *b, int ldb, float beta, float *c, int ldc)
{
    cblas("cblas_shgemm", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, FLOAT16);
}
EXPORT int openblas_get_parallel(void)
{
    return told("TM_STANDIN_POOL", 1);
}
EXPORT int openblas_get_num_threads(void)
{
    return told("TM_STANDIN_THREADS", 6);
}
EXPORT const char *openblas_get_config(void)
{
    return "OpenBLAS 0.3.99 NO_LAPACK";
}
EXPORT const char *openblas_get_corename(void)
{
    return "Prescott";
}
EXPORT void openblas_set_num_threads(int threads)
{
    note_number("openblas_set_num_threads", threads);
}
#ifndef PLAIN
EXPORT int omp_get_max_threads(void)
{
    return 5;
}
#endif
#endif
#endif
#if defined(BLIS) && !defined(BARE)
EXPORT int bli_arch_query_id(void)
{
    return 7;
}
EXPORT const char *bli_arch_string(int id)
{
    return id == 7 ? "zen3" : "generic";
}
EXPORT int64_t bli_info_get_enable_openmp(void)
{
    return told("TM_STANDIN_POOL", 2) == 2;
}
EXPORT int64_t bli_info_get_enable_pthreads(void)
{
    return told("TM_STANDIN_POOL", 2) == 1;
}
EXPORT int64_t bli_thread_get_num_threads(void)
{
    return told("TM_STANDIN_THREADS", 9);
}
EXPORT const char *bli_info_get_version_str(void)
{
    return "0.9.1";
}
EXPORT void bli_thread_set_num_threads(int64_t threads)
{
    note_number("bli_thread_set_num_threads", threads);
}
EXPORT int omp_get_max_threads(void)
{
    return 5;
}
#endif
#ifdef MKL
EXPORT void cblas_gemm_bf16bf16f32(int order, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a,
                                   int lda, const uint16_t *b, int ldb, float beta, float *c, int ldc)
{
    cblas("cblas_gemm_bf16bf16f32", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, BFLOAT16);
}
#ifndef BARE
EXPORT void cblas_gemm_f16f16f32(int order, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a,
                                 int lda, const uint16_t *b, int ldb, float beta, float *c, int ldc)
{
    cblas("cblas_gemm_f16f16f32", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, FLOAT16);
}
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
EXPORT int MKL_Get_Max_Threads(void)
{
    return told("TM_STANDIN_THREADS", 3);
}
EXPORT int MKL_CBWR_Get_Auto_Branch(void)
{
    return 13;
}
EXPORT void MKL_Set_Num_Threads(int threads)
{
    note_number("MKL_Set_Num_Threads", threads);
}
#endif
#endif
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A part of blaslt.c: the same file stands in for the makers' other library, cuBLAS or rocBLAS. Rules are those of
 * cuBLAS's documentation (cublasGemmEx) and of rocBLAS's (rocblas_gemm_ex). */

enum {
    OTHER_HANDLE = 0x0b1a5,
    OTHER_PLAIN = NAME(0, 111),
    OTHER_TRANSPOSED = NAME(1, 112),
    OTHER_F32 = NAME(0, 151),
    OTHER_F16 = NAME(2, 150),
    OTHER_BF16 = NAME(14, 168),
    OTHER_COMPUTE = NAME(68, 151),
    OTHER_ALGORITHM = NAME(-1, 0)
};

typedef struct {
    int   kind;
    void *stream;
} other_handle;

static int by_other;

/* Products by the other library. */
TOLD(standin_other_multiplied, by_other)

API NAME(cublasCreate_v2, rocblas_create_handle)(void **out)
{
    int status = fault("cublasCreate_v2");
    if (status) return status;
    if (find_gpus() < 1) return NOT_INITIALIZED;
    *out = made(sizeof(other_handle), &(other_handle){ .kind = OTHER_HANDLE });
    return OK;
}

API NAME(cublasDestroy_v2, rocblas_destroy_handle)(void *h)
{
    return gone(h, OTHER_HANDLE, "Destroy");
}

API NAME(cublasSetStream_v2, rocblas_set_stream)(void *h, void *stream)
{
    int status = fault("cublasSetStream_v2");
    if (status) return status;
    if (!is(h, OTHER_HANDLE) || !stream) return wrong("SetStream", "no handle, or no stream");
    ((other_handle *)h)->stream = stream;
    return OK;
}

#ifdef HIP
API rocblas_get_version_string(char *text, size_t bytes)
{
    static const char version[] = "5.1.2.3456-abcdef";
    if (bytes < sizeof version) return wrong("get_version_string", "no room");
    memcpy(text, version, sizeof version);
    return OK;
}
#else
API cublasGetVersion_v2(void *h, int *version)
{
    if (!is(h, OTHER_HANDLE)) return wrong("GetVersion", "no handle");
    *version = 130100;
    return OK;
}
#endif

/* A matrix of the other library, by columns. */
static bool other_layout(layout *out, int type, int rows, int columns, int ld)
{
    *out = (layout){ LAYOUT,
                     type == OTHER_F32   ? TYPE_F32
                     : type == OTHER_F16 ? TYPE_F16
                                         : TYPE_BF16,
                     (uint64_t)rows, (uint64_t)columns, ld };
    return (type == OTHER_F32 || type == OTHER_F16 || type == OTHER_BF16) && rows > 0 && columns > 0 && ld >= rows;
}

static int multiply_other(other_handle *h, int trans_a, int trans_b, int m, int n, int k, const float *alpha,
                          const void *a, int a_type, int ld_a, const void *b, int b_type, int ld_b, const float *beta,
                          const void *c, int c_type, int ld_c, void *d, int compute, int how)
{
    const char *call = NAME("cublasGemmEx", "rocblas_gemm_ex");
    task t = { .m = (uint64_t)m, .n = (uint64_t)n, .k = (uint64_t)k, .at_a = a, .at_b = b, .at_c = c, .at_d = d };
    int  status = fault("cublasGemmEx");
    if (status) return status;
    if (!is(h, OTHER_HANDLE) || !h->stream) return wrong(call, "no handle, or no stream");
    t.turns_a = trans_a == OTHER_TRANSPOSED, t.turns_b = trans_b == OTHER_TRANSPOSED;
    if ((!t.turns_a && trans_a != OTHER_PLAIN) || (!t.turns_b && trans_b != OTHER_PLAIN))
        return wrong(call, "no such turn");
    if (!other_layout(&t.a, a_type, t.turns_a ? k : m, t.turns_a ? m : k, ld_a) ||
        !other_layout(&t.b, b_type, t.turns_b ? n : k, t.turns_b ? k : n, ld_b) ||
        !other_layout(&t.d, c_type, m, n, ld_c))
        return wrong(call, "a matrix that is none");
    if (compute != OTHER_COMPUTE || how != OTHER_ALGORITHM) return wrong(call, "no product in float32");
    if (a_type != b_type || (c_type != a_type && c_type != OTHER_F32)) return NOT_SUPPORTED;
    t.c = t.d;
    const algorithm anywhere = { .align = { 1, 1, 1, 1 }, .bias_align = 1 };
    const char     *what = operands_wrong(&t, &anywhere, alpha, beta);
    if (what) return wrong(call, what);
    t.alpha = *alpha, t.beta = *beta;
    by_other++;
    put(h->stream, (standin_work){ .run = multiply,
                                   .drop = free,
                                   .with = memcpy(malloc(sizeof t), &t, sizeof t),
                                   .tag = (uint64_t)(((m * 31 + n) * 31 + k) * 2 + 1) });
    return OK;
}

#ifdef HIP
API rocblas_gemm_ex(void *h, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a,
                    int a_type, int ld_a, const void *b, int b_type, int ld_b, const void *beta, const void *c,
                    int c_type, int ld_c, void *d, int d_type, int ld_d, int compute, int how, int32_t solution,
                    uint32_t flags)
{
    if (c_type != d_type || ld_c != ld_d || solution != 0 || flags != 0)
        return wrong("rocblas_gemm_ex", "C is not as D");
    return multiply_other(h, trans_a, trans_b, m, n, k, alpha, a, a_type, ld_a, b, b_type, ld_b, beta, c, c_type, ld_c,
                          d, compute, how);
}
#else
API cublasGemmEx(void *h, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                 int ld_a, const void *b, int b_type, int ld_b, const void *beta, void *c, int c_type, int ld_c,
                 int compute, int how)
{
    return multiply_other(h, trans_a, trans_b, m, n, k, alpha, a, a_type, ld_a, b, b_type, ld_b, beta, c, c_type, ld_c,
                          c, compute, how);
}
#endif

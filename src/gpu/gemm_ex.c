/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/gemm_ex.c - the only file that knows cuBLAS and rocBLAS. Both count by columns: what lies here row after row is
 * the transposed matrix to them, so c^T = b a^T is what they are asked for. */
#include "gpu/gemm_ex.h"

#include "base/arena.h"
#include "gpu/gemm_ex_calls.h"
#include "gpu/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
#define X(member, result, arguments, cuda, hip) result(*member) arguments;
    GEMM_EX_CALLS(X)
#undef X
} calls;

static const struct {
    size_t      at;
    const char *name[2]; /* of cuBLAS, of rocBLAS; NULL: has none */
} names[] = {
#define X(member, result, arguments, cuda, hip) { offsetof(calls, member), { cuda, hip } },
    GEMM_EX_CALLS(X)
#undef X
};

static const struct {
#define X(member, cuda, cuda_name, hip, hip_name) int member;
    GEMM_EX_NUMBERS(X)
#undef X
} numbers[2] = {
#define X(member, cuda, cuda_name, hip, hip_name) cuda,
    { GEMM_EX_NUMBERS(X) },
#undef X
#define X(member, cuda, cuda_name, hip, hip_name) hip,
    { GEMM_EX_NUMBERS(X) }
#undef X
};

static const char *const libraries[] = { "cuBLAS", "rocBLAS" }, *const variables[] = { "TRAINMARK_CUBLAS",
                                                                                       "TRAINMARK_ROCBLAS" };

struct tm_gpu_gemm_ex {
    calls      call;
    int        hip;
    tm_library library;
    tm_gpu    *gpu;
    void      *handle;
    char       name[64];
};

static tm_status failed(const tm_gpu_gemm_ex *x, size_t member, int status, tm_error *err)
{
    const tm_gpu_facts *f = tm_gpu_facts_of(x->gpu);
    const char         *name = "?";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].at == member) name = names[i].name[x->hip];
    return tm_fail(err, TM_DEVICE, "GPU %d (%s): %s: status %d of %s", f->index, f->name, name, status, x->name);
}

#define MUST(x, member, ...)                                                                                           \
    do {                                                                                                               \
        int must_status_ = (x)->call.member(__VA_ARGS__);                                                              \
        if (must_status_ != 0) return failed((x), offsetof(calls, member), must_status_, err);                         \
    } while (0)

/* --- the library ----------------------------------------------------------------------------------------------------
 */

static bool open_any(tm_gpu_gemm_ex *x, tm_text *tried)
{
    static const char *const cuda_13[] = { "libcublas.so.13", NULL }, *const cuda_12[] = { "libcublas.so.12", NULL };
    static const char *const hip[] = { "librocblas.so.5", "librocblas.so.4", "librocblas.so", NULL };
    if (x->hip) return tm_library_open_of(TM_GPU_HIP, hip, &x->library, tried);
    return (tm_gpu_facts_of(x->gpu)->version >= 13000 &&
            tm_library_open_of(TM_GPU_CUDA, cuda_13, &x->library, tried)) ||
           tm_library_open_of(TM_GPU_CUDA, cuda_12, &x->library, tried);
}

static tm_status load(tm_gpu_gemm_ex *x, tm_error *err)
{
    const char       *given = getenv(variables[x->hip]);
    const char *const one[] = { given, NULL };
    tm_text           tried = { 0 };
    tm_status         st = TM_OK;
    if (given && strcmp(given, "none") == 0)
        return tm_fail(err, TM_UNSUPPORTED, "%s is 'none': it is left out", variables[x->hip]);
    if (!(given && *given ? tm_library_open(one, &x->library, &tried) : open_any(x, &tried)))
        st = tm_fail(err, TM_UNSUPPORTED, "no %s was found (%s); install it (`%s`), or name lib%s.so in %s",
                     libraries[x->hip], tried.data ? tried.data : "",
                     x->hip ? "apt-get install rocblas" : "pip install nvidia-cublas", x->hip ? "rocblas" : "cublas",
                     variables[x->hip]);
    tm_text_fini(&tried);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && st == TM_OK; i++) {
        if (!names[i].name[x->hip]) continue;
        void *symbol = tm_library_symbol(&x->library, names[i].name[x->hip]);
        if (symbol)
            memcpy((char *)&x->call + names[i].at, &symbol, sizeof symbol);
        else
            st = tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no %s", x->library.path,
                         names[i].name[x->hip], libraries[x->hip]);
    }
    return st;
}

/* 130100 is cuBLAS 13.1.0; rocBLAS says "4.4.0.1234-abcd". */
static tm_status begin(tm_gpu_gemm_ex *x, tm_error *err)
{
    int  version = 0, dots = 0;
    char text[32] = "";
    MUST(x, create, &x->handle);
    if (x->hip) {
        int status = x->call.version_text(text, sizeof text);
        if (status != 0) *text = '\0'; /* a longer one than any that is known: no reason to leave the library out */
        for (char *c = text; *c; c++)
            if (*c == '.' && ++dots == 3) *c-- = '\0';
    } else {
        MUST(x, version, x->handle, &version);
        snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    }
    snprintf(x->name, sizeof x->name, "%s%s%s", libraries[x->hip], *text ? " " : "", text);
    return TM_OK;
}

tm_status tm_gpu_gemm_ex_open(tm_gpu *gpu, tm_gpu_gemm_ex **out, tm_error *err)
{
    tm_gpu_gemm_ex *x = memset(tm_alloc(sizeof *x), 0, sizeof *x);
    x->hip = tm_gpu_is_hip(gpu);
    x->gpu = gpu;
    snprintf(x->name, sizeof x->name, "%s", libraries[x->hip]);
    *out = NULL;
    tm_status st = load(x, err);
    if (st == TM_OK) st = begin(x, err);
    if (st == TM_OK)
        *out = x;
    else
        tm_gpu_gemm_ex_close(x);
    return st;
}

/* The library stays loaded. */
void tm_gpu_gemm_ex_close(tm_gpu_gemm_ex *x)
{
    if (!x) return;
    if (x->handle) x->call.destroy(x->handle);
    free(x);
}

const char *tm_gpu_gemm_ex_name(const tm_gpu_gemm_ex *x)
{
    return x->name;
}

/* --- a product ------------------------------------------------------------------------------------------------------
 */

const char *tm_gpu_gemm_ex_refuse(const tm_gpu_matmul_shape *s)
{
    if (s->scales != TM_GPU_NO_SCALES) return "it multiplies no codes";
    if (s->bias) return "it adds no bias";
    if (s->tf32) return "it is not asked for TF32";
    return s->result == s->factors || s->result == TM_GPU_F32
               ? NULL
               : "its results have the format of the factors, or float32";
}

static int type_of(int hip, tm_gpu_format format)
{
    return format == TM_GPU_F32 ? numbers[hip].f32 : format == TM_GPU_BF16 ? numbers[hip].bf16 : numbers[hip].f16;
}

/* Their A is our b and their B our a. */
tm_status tm_gpu_gemm_ex_multiply(tm_gpu_gemm_ex *x, const tm_gpu_matmul_shape *s, void *stream,
                                  const tm_gpu_matmul_operands *o, tm_error *err)
{
    static const float zero = 0, one = 1;
    const int          hip = x->hip, type = type_of(hip, s->factors), result = type_of(hip, s->result);
    const int          trans_a = s->b_across ? numbers[hip].plain : numbers[hip].transposed;
    const int          trans_b = s->a_across ? numbers[hip].transposed : numbers[hip].plain;
    const int          m = (int)s->columns, n = (int)s->rows, k = (int)s->depth;
    const int          ld_a = (int)s->ld_b, ld_b = (int)s->ld_a, ld_c = (int)s->ld_c;
    const void        *alpha = o->scale ? o->scale : &one, *beta = o->old ? &one : &zero, *old = o->old ? o->old : o->c;
    if (!hip && old != o->c) return tm_fail(err, TM_INVALID, "cuBLAS adds a product to its result only");
    MUST(x, stream, x->handle, stream);
    if (hip)
        MUST(x, hip, x->handle, trans_a, trans_b, m, n, k, alpha, o->b, type, ld_a, o->a, type, ld_b, beta, old, result,
             ld_c, o->c, result, ld_c, numbers[hip].compute_f32, numbers[hip].algorithm, 0, 0);
    else
        MUST(x, cuda, x->handle, trans_a, trans_b, m, n, k, alpha, o->b, type, ld_a, o->a, type, ld_b, beta, o->c,
             result, ld_c, numbers[hip].compute_f32, numbers[hip].algorithm);
    return TM_OK;
}

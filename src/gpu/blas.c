/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas.c - the only file that knows the libraries of matrix products. The two have the same calls under other
 * names, with other numbers; their headers are not needed (hipblaslt.h is C++). Both count by columns: what lies here
 * row after row is the transposed matrix to them, so c^T = b a^T is what they are asked for. */
#include "gpu/blas.h"

#include "base/arena.h"
#include "gpu/blas_calls.h"
#include "gpu/library.h"
#include "gpu/products.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
#define X(member, result, arguments, cuda, hip) result(*member) arguments;
    BLAS_CALLS(X)
#undef X
} calls;

static const struct {
    size_t      at;
    const char *name[2]; /* of cublasLt, of hipBLASLt; NULL: has none */
} names[] = {
#define X(member, result, arguments, cuda, hip) { offsetof(calls, member), { cuda, hip } },
    BLAS_CALLS(X)
#undef X
};
enum { NAMES = sizeof names / sizeof names[0] };

/* Of cublasLt, of hipBLASLt. `reduction`, `align_a`, ...: wishes that hipBLASLt does not know. */
static const struct {
#define X(member, cuda, cuda_name, hip, hip_name) int member;
    BLAS_NUMBERS(X)
#undef X
} numbers[2] = {
#define X(member, cuda, cuda_name, hip, hip_name) cuda,
    { BLAS_NUMBERS(X) },
#undef X
#define X(member, cuda, cuda_name, hip, hip_name) hip,
    { BLAS_NUMBERS(X) }
#undef X
};
enum { MOST_RESULT = 96, MOST_ALGORITHM = 64 };

static const int     oldest[2] = { 120000, 1000 }; /* version */
static const int32_t modes[TM_GPU_SCALES] = { [TM_GPU_SCALES_OF_ROWS] = BLAS_OF_LINES,
                                              [TM_GPU_SCALES_OF_RUNS] = BLAS_RUNS_OF_128,
                                              [TM_GPU_SCALES_OF_SQUARES] = BLAS_SQUARES_OF_128,
                                              [TM_GPU_SCALES_IN_TILES] = BLAS_BLOCKS_OF_32,
                                              [TM_GPU_SCALES_ROW_BY_ROW] = BLAS_BLOCKS_OF_32 };

/* An algorithm for matrices that begin anywhere, and one for those that begin at a multiple of 16 bytes, which vectors
 * and TMA want. cublasLt takes 256 for granted if it is not told. */
enum { ANYWHERE, ALIGNED, PLACES, WANTED_ALIGN = 16 };

struct tm_gpu_matmul {
    tm_gpu_matmul_shape shape;
    void               *desc, *layout_a, *layout_b, *layout_c;
    _Alignas(8) unsigned char algorithm[PLACES][MOST_ALGORITHM];
    char why[160]; /* "": it can be computed */
};

struct tm_gpu_blas {
    calls           call;
    int             hip;
    tm_library      library;
    tm_gpu         *gpu;
    void           *handle;
    char            name[40];
    int             version;
    tm_gpu_matmul **products;
    size_t          n, room;

    tm_gpu_products *tuned;
};

/* --- the library ----------------------------------------------------------------------------------------------------
 */

static const char *words_of(const tm_gpu_blas *blas, int status)
{
    static const struct {
        int         code[2];
        const char *words;
    } all[] = {
#define X(cuda, cuda_name, hip, hip_name, words) { { cuda, hip }, words },
        BLAS_STATUSES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].code[blas->hip] == status) return all[i].words;
    return "an error without words";
}

static tm_status failed(const tm_gpu_blas *blas, size_t member, int status, const tm_gpu_matmul_shape *shape,
                        tm_error *err)
{
    const tm_gpu_facts *f = tm_gpu_facts_of(blas->gpu);
    const char         *name = "?";
    char                of[96] = "";
    for (int i = 0; i < NAMES; i++)
        if (names[i].at == member) name = names[i].name[blas->hip];
    if (shape)
        snprintf(of, sizeof of, " of %lld x %lld x %lld", (long long)shape->rows, (long long)shape->columns,
                 (long long)shape->depth);
    return tm_fail(err, TM_DEVICE, "GPU %d (%s): %s%s: %s (status %d of %s)", f->index, f->name, name, of,
                   words_of(blas, status), status, blas->name);
}

#define MUST(blas, shape, member, ...)                                                                                 \
    do {                                                                                                               \
        int must_status_ = (blas)->call.member(__VA_ARGS__);                                                           \
        if (must_status_ != 0) return failed((blas), offsetof(calls, member), must_status_, (shape), err);             \
    } while (0)

static const char *const variables[] = { "TRAINMARK_CUBLASLT", "TRAINMARK_HIPBLASLT" };

/* Of CUDA 13 only where the driver is of it: an older one runs CUDA 12's. Without a GPU: either. */
static bool open_any(tm_gpu_blas *blas, tm_text *tried)
{
    static const char *const cuda_13[] = { "libcublasLt.so.13", NULL }, *const cuda_12[] = { "libcublasLt.so.12",
                                                                                             NULL };
    static const char *const hip[] = { "libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so", NULL };
    bool                     newest = !blas->gpu || tm_gpu_facts_of(blas->gpu)->version >= 13000;
    if (blas->hip) return tm_library_open_of(TM_GPU_HIP, hip, &blas->library, tried);
    return (newest && tm_library_open_of(TM_GPU_CUDA, cuda_13, &blas->library, tried)) ||
           tm_library_open_of(TM_GPU_CUDA, cuda_12, &blas->library, tried);
}

static tm_status find_library(tm_gpu_blas *blas, tm_error *err)
{
    const char       *given = getenv(variables[blas->hip]);
    const char *const one[] = { given, NULL };
    tm_text           tried = { 0 };
    tm_status         st = TM_OK;
    if (given && strcmp(given, "none") == 0)
        return tm_fail(err, TM_UNSUPPORTED, "%s is 'none': no library multiplies", variables[blas->hip]);
    if (!(given && *given ? tm_library_open(one, &blas->library, &tried) : open_any(blas, &tried)))
        st = tm_fail(err, TM_UNSUPPORTED,
                     blas->hip ? "no hipBLASLt was found (%s); install it (`apt-get install hipblaslt`), or name "
                                 "libhipblaslt.so in TRAINMARK_HIPBLASLT"
                               : "no cublasLt was found (%s); install it (`pip install nvidia-cublas`, for a driver of "
                                 "CUDA 12 nvidia-cublas-cu12), or name libcublasLt.so in TRAINMARK_CUBLASLT",
                     tried.data ? tried.data : "");
    tm_text_fini(&tried);
    return st;
}

static tm_status find_calls(tm_gpu_blas *blas, tm_error *err)
{
    for (int i = 0; i < NAMES; i++) {
        if (!names[i].name[blas->hip]) continue;
        void *symbol = tm_library_symbol(&blas->library, names[i].name[blas->hip]);
        if (!symbol)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no %s", blas->library.path,
                           names[i].name[blas->hip], blas->hip ? "hipBLASLt" : "cublasLt");
        memcpy((char *)&blas->call + names[i].at, &symbol, sizeof symbol);
    }
    return TM_OK;
}

/* 130100 is cublasLt 13.1.0, 100100 is hipBLASLt 1.1.0. */
static tm_status name_it(tm_gpu_blas *blas, int version, tm_error *err)
{
    int base = blas->hip ? 100000 : 10000;
    blas->version = version;
    snprintf(blas->name, sizeof blas->name, "%s %d.%d.%d", blas->hip ? "hipBLASLt" : "cublasLt", version / base,
             version % base / 100, version % 100);
    if (version >= oldest[blas->hip]) return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED, "'%s' is %s: too old, %s is needed", blas->library.path, blas->name,
                   blas->hip ? "0.10.0 (ROCm 6.3)" : "12.0.0");
}

static tm_status load(tm_gpu_blas *blas, tm_error *err)
{
    TM_TRY(find_library(blas, err));
    TM_TRY(find_calls(blas, err));
    return blas->hip ? TM_OK : name_it(blas, (int)blas->call.version(), err);
}

static tm_status begin(tm_gpu_blas *blas, tm_error *err)
{
    int version = 0;
    int code = blas->call.create(&blas->handle);
    if (code != 0) {
        tm_error  own = { 0 };
        tm_status st = failed(blas, offsetof(calls, create), code, NULL, &own);
        return tm_fail(err, st, "%s; %s=none leaves the library out", own.text, variables[blas->hip]);
    }
    if (!blas->hip) return TM_OK;
    MUST(blas, NULL, version_of, blas->handle, &version);
    return name_it(blas, version, err);
}

static tm_status open_products(tm_gpu_blas *blas, tm_error *err)
{
    const tm_gpu_facts      *f = tm_gpu_facts_of(blas->gpu);
    const tm_gpu_products_of of = { blas->name, f->arch, f->multiprocessors, (size_t)numbers[blas->hip].algorithm,
                                    blas->hip };
    return tm_gpu_products_open(&of, &blas->tuned, err);
}

tm_status tm_gpu_blas_expect(tm_gpu_maker maker, tm_error *err)
{
    tm_gpu_blas blas = { .hip = maker == TM_GPU_HIP };
    const char *given = getenv(variables[blas.hip]);
    return (given && *given) || tm_gpu_count(maker) > 0 ? load(&blas, err) : TM_OK;
}

tm_status tm_gpu_blas_open(tm_gpu *gpu, tm_gpu_blas **out, tm_error *err)
{
    tm_gpu_blas *blas = memset(tm_alloc(sizeof *blas), 0, sizeof *blas);
    blas->hip = tm_gpu_is_hip(gpu);
    blas->gpu = gpu;
    snprintf(blas->name, sizeof blas->name, "%s", blas->hip ? "hipBLASLt" : "cublasLt");
    *out = NULL;
    tm_status st = load(blas, err);
    if (st == TM_OK) st = begin(blas, err);
    if (st == TM_OK) st = open_products(blas, err);
    if (st == TM_OK)
        *out = blas;
    else
        tm_gpu_blas_close(blas);
    return st;
}

static void drop(const tm_gpu_blas *blas, tm_gpu_matmul *p)
{
    void *layouts[] = { p->layout_a, p->layout_b, p->layout_c };
    for (int i = 0; i < 3; i++)
        if (layouts[i]) blas->call.layout_free(layouts[i]);
    if (p->desc) blas->call.desc_free(p->desc);
    free(p);
}

/* The library stays loaded. */
void tm_gpu_blas_close(tm_gpu_blas *blas)
{
    if (!blas) return;
    for (size_t i = 0; i < blas->n; i++) drop(blas, blas->products[i]);
    if (blas->handle) blas->call.destroy(blas->handle);
    tm_gpu_products_close(blas->tuned);
    free(blas->products);
    free(blas);
}

const char *tm_gpu_blas_name(const tm_gpu_blas *blas)
{
    return blas->name;
}

uint64_t tm_gpu_blas_tuned(const tm_gpu_blas *blas, tm_text *words)
{
    tm_gpu_products_describe(blas->tuned, words);
    return tm_gpu_products_hash(blas->tuned);
}

const char *tm_gpu_blas_library(const tm_gpu_blas *blas)
{
    return blas->library.path;
}
int tm_gpu_blas_version(const tm_gpu_blas *blas)
{
    return blas->version;
}

/* --- shapes ---------------------------------------------------------------------------------------------------------
 */

static int type_of(tm_gpu_format format)
{
    static const int types[] = {
        [TM_GPU_F32] = BLAS_F32,           [TM_GPU_BF16] = BLAS_BF16, [TM_GPU_F16] = BLAS_F16,
        [TM_GPU_E4M3] = BLAS_E4M3,         [TM_GPU_E5M2] = BLAS_E5M2, [TM_GPU_E4M3FNUZ] = BLAS_E4M3FNUZ,
        [TM_GPU_E5M2FNUZ] = BLAS_E5M2FNUZ, [TM_GPU_E2M1] = BLAS_E2M1
    };
    return types[format];
}

static uint32_t bytes_of(tm_gpu_format format)
{
    return format == TM_GPU_F32 ? 4 : format < TM_GPU_E4M3 ? 2 : 1;
}

/* Scales are looked for when an algorithm is chosen, too. One number for a matrix is what both libraries have without a
 * mode, which older ones do not know. */
static tm_status put_scales(const tm_gpu_blas *blas, const tm_gpu_matmul *p, const void *scale_a, const void *scale_b,
                            tm_error *err)
{
    const tm_gpu_matmul_shape *s = &p->shape;
    if (s->scales == TM_GPU_NO_SCALES) return TM_OK;
    MUST(blas, s, desc_set, p->desc, numbers[blas->hip].scale_a, &scale_b, sizeof scale_b);
    MUST(blas, s, desc_set, p->desc, numbers[blas->hip].scale_b, &scale_a, sizeof scale_a);
    if (s->scales == TM_GPU_SCALES_OF_MATRICES) return TM_OK;
    for (int k = 0; k < 2; k++)
        MUST(blas, s, desc_set, p->desc, k ? BLAS_MODE_OF_B : BLAS_MODE_OF_A, &modes[k ? s->scales : s->second_scales],
             sizeof *modes);
    return TM_OK;
}

/* Their A is our b and their B our a. A matrix (m, n) with rows one after the other is one of n rows and m columns to
 * them; what has to be transposed is what does not go across. */
static tm_status describe(const tm_gpu_blas *blas, tm_gpu_matmul *p, tm_error *err)
{
    const tm_gpu_matmul_shape *s = &p->shape;
    int                        type = type_of(s->factors), result = type_of(s->result);
    int                        second = s->scales == TM_GPU_NO_SCALES ? type : type_of(s->second);
    char                       anywhere[64]; /* on the GPU, later */
    int                        trans_a = s->b_across ? numbers[blas->hip].plain : numbers[blas->hip].transposed;
    int                        trans_b = s->a_across ? numbers[blas->hip].transposed : numbers[blas->hip].plain;
    uint32_t                   epilogue = BLAS_EPILOGUE_BIAS;
    uint64_t                   rows = (uint64_t)s->rows, columns = (uint64_t)s->columns, depth = (uint64_t)s->depth;
    MUST(blas, s, desc, &p->desc, s->tf32 ? numbers[blas->hip].compute_tf32 : numbers[blas->hip].compute_f32, BLAS_F32);
    MUST(blas, s, desc_set, p->desc, numbers[blas->hip].trans_a, &trans_a, sizeof trans_a);
    MUST(blas, s, desc_set, p->desc, numbers[blas->hip].trans_b, &trans_b, sizeof trans_b);
    if (s->bias) {
        MUST(blas, s, desc_set, p->desc, numbers[blas->hip].epilogue, &epilogue, sizeof epilogue);
        MUST(blas, s, desc_set, p->desc, numbers[blas->hip].bias_type, &result, sizeof result);
    }
    MUST(blas, s, layout, &p->layout_a, second, s->b_across ? columns : depth, s->b_across ? depth : columns, s->ld_b);
    MUST(blas, s, layout, &p->layout_b, type, s->a_across ? rows : depth, s->a_across ? depth : rows, s->ld_a);
    MUST(blas, s, layout, &p->layout_c, result, columns, rows, s->ld_c);
    return put_scales(blas, p, anywhere, anywhere, err);
}

/* Partial sums are added up in the compute type. The two other ways round them to the result's format before. */
static tm_status express(const tm_gpu_blas *blas, const tm_gpu_matmul_shape *s, void *wish, int place, tm_error *err)
{
    uint64_t bytes = s->workspace;
    uint32_t scheme = BLAS_REDUCTION_COMPUTE_TYPE, factor = bytes_of(s->factors), result = bytes_of(s->result);
    MUST(blas, s, wish_set, wish, BLAS_MAX_WORKSPACE, &bytes, sizeof bytes);
    if (numbers[blas->hip].reduction >= 0)
        MUST(blas, s, wish_set, wish, numbers[blas->hip].reduction, &scheme, sizeof scheme);
    const int aligns[] = { numbers[blas->hip].align_a, numbers[blas->hip].align_b, numbers[blas->hip].align_c,
                           numbers[blas->hip].align_d };
    for (int k = 0; k < 4 && aligns[k] >= 0; k++) {
        uint32_t align = place == ALIGNED ? WANTED_ALIGN : k < 2 ? factor : result;
        MUST(blas, s, wish_set, wish, aligns[k], &align, sizeof align);
    }
    return TM_OK;
}

/* Of a bias only the alignment is looked at here (cublasLt.h, at CUBLASLT_MATMUL_DESC_BIAS_POINTER). Scales that it has
 * not for these formats are an invalid value (at CUBLASLT_MATMUL_DESC_A_SCALE_POINTER). */
static tm_status ask(const tm_gpu_blas *blas, tm_gpu_matmul *p, void *wish, int place, tm_error *err)
{
    const tm_gpu_matmul_shape *s = &p->shape;
    _Alignas(16) unsigned char result[MOST_RESULT] = { 0 };
    uintptr_t                  bias = 4096 + (place == ALIGNED ? 0 : s->result == TM_GPU_F32 ? 4 : 2);
    int                        n = 0, status = 0;
    size_t                     needed = 0;
    if (s->bias) MUST(blas, s, desc_set, p->desc, numbers[blas->hip].bias, &bias, sizeof bias);
    TM_TRY(express(blas, s, wish, place, err));
    int code =
        blas->call.find(blas->handle, p->desc, p->layout_a, p->layout_b, p->layout_c, p->layout_c, wish, 1, result, &n);
    if (code == 0 && n > 0) {
        memcpy(p->algorithm[place], result, (size_t)numbers[blas->hip].algorithm);
        memcpy(&needed, result + numbers[blas->hip].workspace, sizeof needed);
        memcpy(&status, result + numbers[blas->hip].status, sizeof status);
    }
    int worst = code ? code : status;
    if (s->scales != TM_GPU_NO_SCALES && worst == numbers[blas->hip].invalid) worst = numbers[blas->hip].unsupported;
    if (worst != 0 && worst != numbers[blas->hip].unsupported)
        return failed(blas, offsetof(calls, find), worst, s, err);
    if (worst != 0 || n == 0 || needed > s->workspace)
        snprintf(p->why, sizeof p->why, "%s has no algorithm for %lld x %lld x %lld with %zu bytes of workspace",
                 blas->name, (long long)s->rows, (long long)s->columns, (long long)s->depth, s->workspace);
    return TM_OK;
}

/* --- the fastest of several -----------------------------------------------------------------------------------------
 */

/* Matrices to measure with, and what a product needs besides. */
typedef struct {
    void                  *memory[5], *stream, *events[2];
    tm_gpu_matmul_operands operands;
} trial;

static void end_trial(const tm_gpu_blas *blas, trial *t)
{
    for (int i = 0; i < 2; i++) tm_gpu_event_close(blas->gpu, t->events[i]);
    tm_gpu_stream_close(blas->gpu, t->stream);
    for (int i = 0; i < 5; i++)
        if (t->memory[i]) tm_gpu_free(blas->gpu, t->memory[i]);
}

/* Random numbers around 0: a GPU is faster on zeros, as less of it switches. */
static tm_status fill(const tm_gpu_blas *blas, void *to, size_t bytes, tm_gpu_format format, tm_error *err)
{
    enum { PART = 1 << 20 };
    unsigned char *part = tm_alloc(PART);
    uint32_t       state = 1;
    tm_status      st = TM_OK;
    for (size_t i = 0; i < PART; i += 2) {
        state = state * 1664525u + 1013904223u;
        /* bfloat16, and the upper half of a float32: sign and digits by chance, exponent of 0.5 to 2 */
        uint16_t half = (uint16_t)(0x3f00u | (state >> 16 & 0x80ffu));
        if (format == TM_GPU_F32 && i % 4 == 0) half = (uint16_t)(state >> 16);
        memcpy(part + i, &half, sizeof half);
    }
    for (size_t at = 0; at < bytes && st == TM_OK; at += PART)
        st = tm_gpu_write(blas->gpu, (char *)to + at, part, bytes - at < PART ? bytes - at : PART, err);
    free(part);
    return st;
}

static tm_status begin_trial(const tm_gpu_blas *blas, const tm_gpu_matmul_shape *s, trial *t, tm_error *err)
{
    const size_t factor = bytes_of(s->factors), result = bytes_of(s->result);
    const size_t bytes[5] = { (size_t)(s->a_across ? s->depth : s->rows) * (size_t)s->ld_a * factor,
                              (size_t)(s->b_across ? s->depth : s->columns) * (size_t)s->ld_b * factor,
                              (size_t)s->rows * (size_t)s->ld_c * result, (size_t)s->columns * result, s->workspace };
    for (int i = 0; i < 5; i++) {
        if (bytes[i] == 0) continue;
        TM_TRY(tm_gpu_alloc(blas->gpu, bytes[i], &t->memory[i], err));
        if (i < 4) TM_TRY(fill(blas, t->memory[i], bytes[i], i < 2 ? s->factors : s->result, err));
    }
    TM_TRY(tm_gpu_stream_open(blas->gpu, &t->stream, err));
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_event_open(blas->gpu, &t->events[i], err));
    t->operands = (tm_gpu_matmul_operands){ .a = t->memory[0],
                                            .b = t->memory[1],
                                            .c = t->memory[2],
                                            .bias = s->bias ? t->memory[3] : NULL,
                                            .workspace = t->memory[4] };
    return TM_OK;
}

/* Seconds of a product with the algorithm that stands in p. */
static tm_status time_it(tm_gpu_blas *blas, const tm_gpu_matmul *p, const trial *t, int times, double *seconds,
                         tm_error *err)
{
    TM_TRY(tm_gpu_event_record(blas->gpu, t->events[0], t->stream, err));
    for (int i = 0; i < times; i++) TM_TRY(tm_gpu_blas_multiply(blas, p, t->stream, &t->operands, err));
    TM_TRY(tm_gpu_event_record(blas->gpu, t->events[1], t->stream, err));
    TM_TRY(tm_gpu_stream_wait(blas->gpu, t->stream, err));
    TM_TRY(tm_gpu_event_seconds(blas->gpu, t->events[0], t->events[1], seconds, err));
    *seconds /= times;
    return TM_OK;
}

/* The least of several rounds, in which all take turns, after one that does not count. */
static tm_status time_all(tm_gpu_blas *blas, tm_gpu_matmul *p, const trial *t, const unsigned char *all, int n,
                          double *best, tm_error *err)
{
    enum { ROUNDS = 5, TIMES = 4 };
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            double seconds;
            memcpy(p->algorithm[ALIGNED], all + (size_t)i * MOST_ALGORITHM, MOST_ALGORITHM);
            TM_TRY(time_it(blas, p, t, round ? TIMES : 1, &seconds, err));
            if (round == 1 || (round > 1 && seconds < best[i])) best[i] = seconds;
        }
    return TM_OK;
}

/* Those that the library names and that have the workspace that they need. */
static tm_status name_all(const tm_gpu_blas *blas, const tm_gpu_matmul *p, int wanted, unsigned char *all, int *n,
                          tm_error *err)
{
    const size_t   result = (size_t)numbers[blas->hip].result;
    unsigned char *results = memset(tm_alloc((size_t)wanted * result), 0, (size_t)wanted * result);
    void          *wish = NULL;
    int            named = 0, code = blas->call.wish(&wish);
    tm_status      st =
        code ? failed(blas, offsetof(calls, wish), code, &p->shape, err) : express(blas, &p->shape, wish, ALIGNED, err);
    *n = 0;
    if (st == TM_OK) {
        code = blas->call.find(blas->handle, p->desc, p->layout_a, p->layout_b, p->layout_c, p->layout_c, wish, wanted,
                               results, &named);
        if (code) st = failed(blas, offsetof(calls, find), code, &p->shape, err);
    }
    for (int i = 0; st == TM_OK && i < named && i < wanted; i++) {
        const unsigned char *r = results + (size_t)i * result;
        size_t               needed;
        int                  status;
        memcpy(&needed, r + numbers[blas->hip].workspace, sizeof needed);
        memcpy(&status, r + numbers[blas->hip].status, sizeof status);
        if (status == 0 && needed <= p->shape.workspace)
            memcpy(memset(all + (size_t)(*n)++ * MOST_ALGORITHM, 0, MOST_ALGORITHM), r,
                   (size_t)numbers[blas->hip].algorithm);
    }
    if (wish) blas->call.wish_free(wish);
    free(results);
    return st;
}

/* The first stays unless another one is faster by more than noise: 1 %. */
static tm_status tune(tm_gpu_blas *blas, tm_gpu_matmul *p, int wanted, tm_error *err)
{
    unsigned char *all = tm_alloc((size_t)wanted * MOST_ALGORITHM);
    double        *best = tm_alloc((size_t)wanted * sizeof *best);
    trial          t = { 0 };
    int            n = 0, fastest = 0;
    tm_status      st = name_all(blas, p, wanted, all, &n, err);
    if (st == TM_OK && n > 0) st = begin_trial(blas, &p->shape, &t, err);
    if (st == TM_OK && n > 0) st = time_all(blas, p, &t, all, n, best, err);
    end_trial(blas, &t);
    for (int i = 1; st == TM_OK && i < n; i++)
        if (best[i] < 0.99 * best[0] && best[i] < best[fastest]) fastest = i;
    if (st == TM_OK && n > 0) {
        memcpy(p->algorithm[ALIGNED], all + (size_t)fastest * MOST_ALGORITHM, MOST_ALGORITHM);
        st = tm_gpu_products_add(blas->tuned, &p->shape, p->algorithm[ALIGNED], n, best[fastest], best[0], err);
    }
    free(all);
    free(best);
    return st;
}

static tm_status choose(tm_gpu_blas *blas, tm_gpu_matmul *p, tm_error *err)
{
    TM_TRY(describe(blas, p, err));
    const bool  codes = p->shape.scales != TM_GPU_NO_SCALES; /* which begin nowhere else */
    const bool  tunes = !codes && !p->shape.tf32;            /* nobody measures these */
    const void *given = tunes ? tm_gpu_products_find(blas->tuned, &p->shape) : NULL;
    int         wanted = given || !tunes ? 0 : tm_gpu_products_wanted(blas->tuned, &p->shape);
    for (int place = numbers[blas->hip].align_a >= 0 && !codes ? ANYWHERE : ALIGNED; place < PLACES && !*p->why;
         place++) {
        void *wish = NULL;
        if (place == ALIGNED && given) {
            memcpy(p->algorithm[place], given, (size_t)numbers[blas->hip].algorithm);
            continue;
        }
        MUST(blas, &p->shape, wish, &wish);
        tm_status st = ask(blas, p, wish, place, err);
        blas->call.wish_free(wish);
        TM_TRY(st);
    }
    return wanted && !*p->why ? tune(blas, p, wanted, err) : TM_OK;
}

static bool same(const tm_gpu_matmul_shape *a, const tm_gpu_matmul_shape *b)
{
    return a->factors == b->factors && a->result == b->result && a->second == b->second && a->scales == b->scales &&
           a->second_scales == b->second_scales && a->a_across == b->a_across && a->b_across == b->b_across &&
           a->bias == b->bias && a->tf32 == b->tf32 && a->rows == b->rows && a->columns == b->columns &&
           a->depth == b->depth && a->ld_a == b->ld_a && a->ld_b == b->ld_b && a->ld_c == b->ld_c &&
           a->workspace == b->workspace;
}

static tm_status known(tm_gpu_matmul *p, tm_gpu_matmul **out, const char **why, tm_error *err)
{
    *out = p;
    *why = *p->why ? p->why : NULL;
    return *why ? tm_fail(err, TM_UNSUPPORTED, "%s", *why) : TM_OK;
}

tm_status tm_gpu_blas_find(tm_gpu_blas *blas, const tm_gpu_matmul_shape *shape, tm_gpu_matmul **out, const char **why,
                           tm_error *err)
{
    *why = NULL;
    for (size_t i = 0; i < blas->n; i++)
        if (same(&blas->products[i]->shape, shape)) return known(blas->products[i], out, why, err);
    tm_gpu_matmul *p = memset(tm_alloc(sizeof *p), 0, sizeof *p);
    p->shape = *shape;
    tm_status st = choose(blas, p, err);
    if (st != TM_OK) {
        drop(blas, p);
        return st;
    }
    if (blas->n == blas->room) {
        blas->room = blas->room ? 2 * blas->room : 32;
        blas->products = tm_realloc(blas->products, blas->room * sizeof *blas->products);
    }
    blas->products[blas->n++] = p;
    return known(p, out, why, err);
}

/* --- a product ------------------------------------------------------------------------------------------------------
 */

static bool aligned(const tm_gpu_matmul_operands *o)
{
    return (((uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c | (uintptr_t)o->old | (uintptr_t)o->bias) &
            (WANTED_ALIGN - 1)) == 0;
}

static bool scales_aligned(const tm_gpu_matmul_shape *s, const tm_gpu_matmul_operands *o)
{
    return s->scales <= TM_GPU_SCALES_OF_ROWS ||
           (((uintptr_t)o->scale_a | (uintptr_t)o->scale_b) & (WANTED_ALIGN - 1)) == 0;
}

tm_status tm_gpu_blas_multiply(tm_gpu_blas *blas, const tm_gpu_matmul *p, void *stream, const tm_gpu_matmul_operands *o,
                               tm_error *err)
{
    static const float         zero = 0, one = 1;
    const tm_gpu_matmul_shape *s = &p->shape;
    int                        place = numbers[blas->hip].align_a < 0 || aligned(o) ? ALIGNED : ANYWHERE;
    if (s->scales != TM_GPU_NO_SCALES && !(aligned(o) && scales_aligned(s, o)))
        return tm_fail(err, TM_INVALID,
                       "a product of codes whose matrices or scales begin between multiples of 16 "
                       "bytes");
    if (s->bias) MUST(blas, s, desc_set, p->desc, numbers[blas->hip].bias, &o->bias, sizeof o->bias);
    TM_TRY(put_scales(blas, p, o->scale_a, o->scale_b, err));
    MUST(blas, s, multiply, blas->handle, p->desc, o->scale ? o->scale : &one, o->b, p->layout_a, o->a, p->layout_b,
         o->old ? &one : &zero, o->old ? o->old : o->c, p->layout_c, o->c, p->layout_c, p->algorithm[place],
         o->workspace, s->workspace, stream);
    return TM_OK;
}

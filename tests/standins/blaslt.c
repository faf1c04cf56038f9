/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcublasLt.so and, with HIP defined, for libhipblaslt.so: products in float32, one multiplication
 * after the other, as work of the streams of gpu.c. What is wrong with a call goes to stderr, and the call fails.
 *
 * Rules are those of cublasLt.h (CUDA 13.0) and hipblaslt.h (ROCm 7), where nothing else is named.
 * STANDIN_BLAS_FAIL=NAME@N=STATUS: the N-th call of NAME (of cublasLt) and all later ones return STATUS.
 * STANDIN_BLAS_CHOICES=N: the heuristic has N algorithms for each product; all but the last take a while longer.
 * HIPBLASLT_TUNING_OVERRIDE_FILE: the algorithm whose number ends the line of a product is named first.
 * STANDIN_BLAS_WRONG=X: the last element of a product is X more.
 * STANDIN_BLAS_VERSION: another version. STANDIN_BLAS_REFUSES=K: there is no algorithm for products of depth K.
 */
#define _GNU_SOURCE
#include "blaslt_codes.h"
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LT(name) NAME(cublasLt##name, hipblasLt##name)

enum { HANDLE = 0x4a11, DESC, LAYOUT, WISH, ALGORITHM, GONE };

typedef struct {
    int      kind, trans_a, trans_b, bias_type, tf32;
    uint32_t epilogue;
    char    *bias;
    scaling  by;
} desc;

typedef struct {
    int      kind, type;
    uint64_t rows, columns;
    int64_t  ld;
} layout;

typedef struct {
    int      kind;
    uint64_t workspace;
    uint32_t reduction, align[4];
} wish;

/* What an algorithm was chosen for. */
typedef struct {
    short    kind, align[4], bias_align; /* bytes */
    unsigned of, workspace;
    short    number, slow;
} algorithm;

typedef struct {
    union {
        algorithm     is;
        unsigned char bytes[NAME(64, 24)];
    } algorithm;
    size_t workspace;
    int    status;
    float  waves;
    int    reserved[4];
} result;

/* The sizes that the two headers give them. */
_Static_assert(sizeof(result) == NAME(96, 56), "a result of the heuristic");

typedef struct {
    int kind;
} handle;

static void *(*real_address)(const void *, size_t);
static void (*put)(void *, standin_work);
static void (*broken)(int);
static int held; /* objects that were not given back */

static int asked, multiplied, last_number = -1; /* calls; the algorithm of the last product */

TOLD(standin_blas_number, last_number)
TOLD(standin_blas_asked, asked)
TOLD(standin_blas_multiplied, multiplied)
TOLD(standin_blas_held, held)

/* --- what is wrong --------------------------------------------------------------------------------------------------
 */

static int wrong(const char *call, const char *what)
{
    fprintf(stderr, "stand-in: %s: %s\n", call, what);
    return INVALID_VALUE;
}

static int fault(const char *name)
{
    static int  calls;
    const char *text = getenv("STANDIN_BLAS_FAIL");
    int         n = 1, code = 0;
    size_t      length = strlen(name);
    if (!text || strncmp(text, name, length) != 0 || text[length] != '@') return 0;
    if (sscanf(text + length, "@%d=%d", &n, &code) != 2) return 0;
    return ++calls >= n ? code : 0;
}

/* Every object begins with its kind. */
static bool is(const void *object, int kind)
{
    return object && *(const int *)object == kind;
}

static void *made(size_t bytes, const void *from)
{
    void *object = malloc(bytes);
    if (!object) abort();
    held++;
    return memcpy(object, from, bytes);
}

/* Stays, so that whoever uses it later is caught. */
static int gone(void *object, int kind, const char *call)
{
    if (!is(object, kind)) return wrong(call, "no such object");
    *(int *)object = GONE;
    held--;
    return OK;
}

/* --- handles --------------------------------------------------------------------------------------------------------
 */

#ifdef HIP
API hipblasLtGetVersion(void *h, int *version)
{
    if (!is(h, HANDLE)) return wrong("GetVersion", "no handle");
    *version = own_version();
    return fault("cublasLtGetVersion");
}
#else
SHOWN size_t cublasLtGetVersion(void)
{
    return (size_t)own_version();
}
#endif

/* How many GPUs there are. */
static int find_gpus(void)
{
    int   count = 0;
    void *gpu =
        getenv("TRAINMARK_GPU_RUNTIME") ? dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (gpu) {
        int (*count_of)(int *);
        void *symbols[] = { dlsym(gpu, "standin_real"), dlsym(gpu, "standin_put"), dlsym(gpu, "standin_broken"),
                            dlsym(gpu, NAME("cuDeviceGetCount", "hipGetDeviceCount")) };
        memcpy(&real_address, &symbols[0], sizeof real_address);
        memcpy(&put, &symbols[1], sizeof put);
        memcpy(&broken, &symbols[2], sizeof broken);
        memcpy(&count_of, &symbols[3], sizeof count_of);
        if (!symbols[0] || !symbols[1] || !symbols[2] || !symbols[3]) abort();
        (void)count_of(&count);
    }
    return count;
}

/* Without a GPU hipBLASLt 7.1 ends the process with exit code 1, cublasLt 13 returns 1: seen on both libraries. */
API LT(Create)(void **out)
{
    int status = fault("cublasLtCreate");
    if (status) return status;
    if (find_gpus() < 1) {
#ifdef HIP
        exit(1);
#else
        return NOT_INITIALIZED;
#endif
    }
    *out = made(sizeof(handle), &(handle){ HANDLE });
    return OK;
}

#define GOES(name, kind)                                                                                               \
    API LT(name)(void *object)                                                                                         \
    {                                                                                                                  \
        return gone(object, kind, #name);                                                                              \
    }
GOES(Destroy, HANDLE)
GOES(MatmulDescDestroy, DESC)
GOES(MatrixLayoutDestroy, LAYOUT)
GOES(MatmulPreferenceDestroy, WISH)

/* --- descriptions ---------------------------------------------------------------------------------------------------
 */

API LT(MatmulDescCreate)(void **out, int compute, int scale)
{
    int status = fault("cublasLtMatmulDescCreate");
    if (status) return status;
    if ((compute != COMPUTE_F32 && compute != COMPUTE_TF32) || scale != TYPE_F32)
        return wrong("MatmulDescCreate", "only products in float32 and TF32 stand in");
    *out = made(sizeof(desc), &(desc){ .kind = DESC,
                                       .trans_a = PLAIN,
                                       .trans_b = PLAIN,
                                       .bias_type = -1,
                                       .tf32 = compute == COMPUTE_TF32,
                                       .epilogue = EPILOGUE_DEFAULT });
    return OK;
}

/* "CUBLAS_STATUS_INVALID_VALUE if buf is NULL or sizeInBytes doesn't match size of internal storage". */
API LT(MatmulDescSetAttribute)(void *of, int which, const void *value, size_t bytes)
{
    desc *d = of;
    int   status = fault("cublasLtMatmulDescSetAttribute");
    if (status) return status;
    if (!is(d, DESC)) return wrong("MatmulDescSetAttribute", "no description of a product");
    void  *to = which == TRANS_A        ? (void *)&d->trans_a
                : which == TRANS_B      ? (void *)&d->trans_b
                : which == EPILOGUE     ? (void *)&d->epilogue
                : which == BIAS         ? (void *)&d->bias
                : which == BIAS_TYPE    ? (void *)&d->bias_type
                : which == SCALE_A      ? (void *)&d->by.a
                : which == SCALE_B      ? (void *)&d->by.b
                : own_version() < MODES ? NULL
                : which == SCALE_MODE_A ? (void *)&d->by.mode_a
                : which == SCALE_MODE_B ? (void *)&d->by.mode_b
                                        : NULL;
    bool   address = which == BIAS || which == SCALE_A || which == SCALE_B;
    size_t wanted = address ? sizeof d->bias : sizeof(int);
    if (!to || !value || bytes != wanted) return wrong("MatmulDescSetAttribute", "an attribute or a size");
    memcpy(to, value, bytes);
    if ((d->trans_a != PLAIN && d->trans_a != TRANSPOSED) || (d->trans_b != PLAIN && d->trans_b != TRANSPOSED))
        return wrong("MatmulDescSetAttribute", "no such transposition");
    if (d->epilogue != EPILOGUE_DEFAULT && d->epilogue != EPILOGUE_BIAS)
        return wrong("MatmulDescSetAttribute", "no such epilogue stands in");
    return OK;
}

/* Columns that overlap are taken here (seen on cublasLt 13.1) and refused later. */
API LT(MatrixLayoutCreate)(void **out, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    int status = fault("cublasLtMatrixLayoutCreate");
    if (status) return status;
    if ((type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16 && !is_code(type)) || rows < 1 || columns < 1)
        return wrong("MatrixLayoutCreate", "a format, or an empty matrix");
    *out = made(sizeof(layout), &(layout){ LAYOUT, type, rows, columns, ld });
    return OK;
}

/* "Maximum allowed workspace, default: 0"; "minimum buffer alignment, default: 256"; reduction: all of them (7). */
API LT(MatmulPreferenceCreate)(void **out)
{
    int status = fault("cublasLtMatmulPreferenceCreate");
    if (status) return status;
    *out = made(sizeof(wish), &(wish){ .kind = WISH, .reduction = 7, .align = { 256, 256, 256, 256 } });
    return OK;
}

API LT(MatmulPreferenceSetAttribute)(void *of, int which, const void *value, size_t bytes)
{
    wish *w = of;
    int   status = fault("cublasLtMatmulPreferenceSetAttribute");
    if (status) return status;
    if (!is(w, WISH)) return wrong("MatmulPreferenceSetAttribute", "no preference");
    void  *to = which == MAX_WORKSPACE                 ? (void *)&w->workspace
                : which == REDUCTION                   ? (void *)&w->reduction
                : which >= ALIGN_A && which <= ALIGN_D ? (void *)&w->align[which - ALIGN_A]
                                                       : NULL;
    size_t wanted = which == MAX_WORKSPACE ? sizeof w->workspace : sizeof(uint32_t);
    if (!to || !value || bytes != wanted) return wrong("MatmulPreferenceSetAttribute", "an attribute or a size");
    memcpy(to, value, bytes);
    return OK;
}

/* --- products -------------------------------------------------------------------------------------------------------
 */

typedef struct {
    const desc   *desc;
    const layout *a, *b, *c, *d;
    uint64_t      m, n, k;
} problem;

/* LAYOUT_LD: "must be large enough so that matrix memory locations are not overlapping (e.g. greater or equal to
 * ROWS)". */
static bool overlaps(const layout *l)
{
    return l->ld < (int64_t)l->rows;
}

/* D (m, n) = op(A) (m, k) op(B) (k, n), all of them column by column; C is as D. */
static int describe(const char *call, problem *p)
{
    if (!is(p->desc, DESC) || !is(p->a, LAYOUT) || !is(p->b, LAYOUT) || !is(p->c, LAYOUT) || !is(p->d, LAYOUT))
        return wrong(call, "an object that is none, or is gone");
    bool turns_a = p->desc->trans_a == TRANSPOSED, turns_b = p->desc->trans_b == TRANSPOSED;
    p->m = turns_a ? p->a->columns : p->a->rows;
    p->k = turns_a ? p->a->rows : p->a->columns;
    p->n = turns_b ? p->b->rows : p->b->columns;
    if ((turns_b ? p->b->columns : p->b->rows) != p->k || p->d->rows != p->m || p->d->columns != p->n ||
        p->c->rows != p->m || p->c->columns != p->n || p->c->type != p->d->type)
        return wrong(call, "the matrices do not fit together");
    if (overlaps(p->a) || overlaps(p->b) || overlaps(p->c) || overlaps(p->d))
        return wrong(call, "columns that overlap");
    return OK;
}

/* cuBLAS's documentation, cublasLtMatmul, table of formats: of these the ones that stand in. */
static bool known_formats(const problem *p)
{
    const char *arch = getenv("STANDIN_GPU_ARCH") ? getenv("STANDIN_GPU_ARCH") : NAME("sm_90", "gfx942");
    bool        biased = p->desc->epilogue == EPILOGUE_BIAS;
    coded c = { .a = p->a->type, .b = p->b->type, .d = p->d->type, .m = p->m, .n = p->n, .k = p->k, .by = p->desc->by };
    c.bias = biased ? p->desc->bias_type : -1;
    c.turns_a = p->desc->trans_a == TRANSPOSED, c.turns_b = p->desc->trans_b == TRANSPOSED;
    c.ld_a = p->a->ld, c.ld_b = p->b->ld, c.ld_d = p->d->ld;
    if (is_code(p->a->type) && is_code(p->b->type) && !is_code(p->d->type)) return takes_codes(arch, own_version(), &c);
    if (p->a->type != p->b->type || is_code(p->a->type) || is_code(p->d->type)) return false;
    if (p->desc->epilogue == EPILOGUE_BIAS && p->desc->bias_type != p->d->type) return false;
    if (p->desc->tf32 && (p->a->type != TYPE_F32 || p->d->type != TYPE_F32)) return false;
    return p->d->type == p->a->type || p->d->type == TYPE_F32;
}

static unsigned mixed(const problem *p)
{
    uint64_t of[] = { p->m,
                      p->n,
                      p->k,
                      (uint64_t)p->a->ld,
                      (uint64_t)p->b->ld,
                      (uint64_t)p->c->ld,
                      (uint64_t)p->d->ld,
                      (uint64_t)p->a->type,
                      (uint64_t)p->b->type,
                      (uint64_t)p->desc->by.mode_a,
                      (uint64_t)p->desc->by.mode_b,
                      (uint64_t)p->d->type,
                      (uint64_t)p->desc->trans_a,
                      (uint64_t)p->desc->trans_b,
                      (uint64_t)p->desc->tf32,
                      p->desc->epilogue };
    uint64_t mix = 14695981039346656037U; /* FNV-1a, by words */
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) mix = (mix ^ of[i]) * 1099511628211U;
    return (unsigned)(mix >> 32);
}

/* "N,T,0,1,m,n,k,...,number" (hipBLASLt's documentation, offline tuning): the number of the line of this product. */
static int overridden(const problem *p)
{
    const char *path = NAME(NULL, getenv("HIPBLASLT_TUNING_OVERRIDE_FILE"));
    FILE       *file = path ? fopen(path, "r") : NULL;
    char        line[200];
    int         found = -1;
    while (file && fgets(line, sizeof line, file)) {
        char               a, b;
        unsigned long long m, n, k;
        if (sscanf(line, "%c,%c,%*d,%*d,%llu,%llu,%llu", &a, &b, &m, &n, &k) != 5) continue;
        bool turns_a = p->desc->trans_a == TRANSPOSED, turns_b = p->desc->trans_b == TRANSPOSED;
        if (m == p->m && n == p->n && k == p->k && (a != 'N') == turns_a && (b != 'N') == turns_b)
            found = atoi(strrchr(line, ',') + 1);
    }
    if (file) fclose(file);
    return found;
}

/* With 4 KiB and more allowed the algorithm needs 4 KiB. */
API LT(MatmulAlgoGetHeuristic)(void *h, void *of, void *a, void *b, void *c, void *d, void *with, int wanted, void *out,
                               int *n)
{
    const char *call = "MatmulAlgoGetHeuristic", *refuses = getenv("STANDIN_BLAS_REFUSES");
    problem     p = { .desc = of, .a = a, .b = b, .c = c, .d = d };
    const wish *w = with;
    int         status = fault("cublasLtMatmulAlgoGetHeuristic");
    asked++;
    if (status) return status;
    if (!is(h, HANDLE) || !is(w, WISH) || wanted < 1) return wrong(call, "no handle, no preference, or no wish");
    if (describe(call, &p) != OK) return INVALID_VALUE;
    *n = 0;
    if (!known_formats(&p)) return NOT_SUPPORTED;
    bool narrow = w->align[0] < 16 || w->align[1] < 16 || w->align[2] < 16 || w->align[3] < 16;
    if (NAME(1, 0) && narrow && is_code(p.a->type)) return NOT_SUPPORTED;
    if (!is_code(p.a->type) && (p.desc->by.a || p.desc->by.b)) return INVALID_VALUE;
    if (refuses && strtoull(refuses, NULL, 10) == p.k) return NAME(NOT_SUPPORTED, OK);
#ifndef HIP
    if (w->reduction != 2) return wrong(call, "partial sums would be rounded to the format of the result");
#endif
    result r = { .algorithm.is = { .kind = (short)ALGORITHM, .of = mixed(&p), .bias_align = align_of(p.desc->bias) },
                 .workspace = w->workspace >= 4096 ? 4096 : 0 };
    for (int i = 0; i < 4; i++) r.algorithm.is.align[i] = (short)w->align[i];
    r.algorithm.is.workspace = (unsigned)r.workspace;
    const char *choices = getenv("STANDIN_BLAS_CHOICES");
    int         most = choices ? atoi(choices) : 1, first = overridden(&p);
    for (*n = 0; *n < wanted && *n < most; ++*n) {
        int number = first < 0 ? *n : *n == 0 ? first : *n - (*n <= first);
        r.algorithm.is.number = (short)number;
        r.algorithm.is.slow = number < most - 1;
        memcpy((char *)out + (size_t)*n * sizeof r, &r, sizeof r);
    }
    return OK;
}

/* A product in a queue; matrices are found when its turn comes. */
typedef struct {
    layout      a, b, c, d;
    bool        turns_a, turns_b, tf32;
    uint64_t    m, n, k;
    bool        slow;
    float       alpha, beta;
    const char *at_a, *at_b, *at_c, *at_bias;
    scaling     by;
    char       *at_d, *workspace;
    size_t      workspace_bytes;
} task;

static size_t bytes_of(const layout *l)
{
    uint64_t elements = (l->columns - 1) * (uint64_t)l->ld + l->rows;
    return l->type == CODE_E2M1 ? (elements + 1) / 2 : elements * size_of(l->type);
}

static void multiply(void *with)
{
    const task *t = with;
    const char *a = real_address(t->at_a, bytes_of(&t->a)), *b = real_address(t->at_b, bytes_of(&t->b));
    const char *c = t->beta == 0 ? NULL : real_address(t->at_c, bytes_of(&t->c));
    if (t->slow) nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    const char *bias = t->at_bias ? real_address(t->at_bias, t->m * size_of(t->d.type)) : NULL;
    char       *d = real_address(t->at_d, bytes_of(&t->d)), *room = NULL;
    if (t->workspace_bytes) room = real_address(t->workspace, t->workspace_bytes);
    if (!a || !b || !d || (t->beta != 0 && !c) || (t->at_bias && !bias) || (t->workspace_bytes && !room)) {
        fprintf(stderr, "stand-in: a product whose memory was given back\n");
        broken(ILLEGAL_ADDRESS);
        return;
    }
    if (room) memset(room, 0xff, t->workspace_bytes);
    float *left = malloc(t->m * t->k * sizeof *left + 1), *sums = malloc(t->m * sizeof *sums + 1);
    float *part = malloc(t->m * sizeof *part + 1);
    if (!left || !sums || !part) abort();
    scaled      of_a = { t->by.mode_a, t->m, t->k }, of_b = { t->by.mode_b, t->n, t->k };
    const char *scales_a = t->by.a ? real_address(t->by.a, bytes_of_scales(&of_a)) : NULL;
    const char *scales_b = t->by.b ? real_address(t->by.b, bytes_of_scales(&of_b)) : NULL;
    uint64_t    block = block_of(t->by.mode_a) ? block_of(t->by.mode_a) : t->k;
    if (!filled_up(scales_a, &of_a) || !filled_up(scales_b, &of_b))
        fprintf(stderr, "stand-in: a product whose scales are not filled up with zeros\n"), broken(ILLEGAL_ADDRESS);
    for (uint64_t k = 0; k < t->k; k++)
        for (uint64_t i = 0; i < t->m; i++)
            left[k * t->m + i] =
                factor(t->tf32, get(a, t->a.type, t->turns_a ? i * (uint64_t)t->a.ld + k : k * (uint64_t)t->a.ld + i));
    for (uint64_t j = 0; j < t->n; j++) {
        memset(sums, 0, t->m * sizeof *sums);
        for (uint64_t k0 = 0; k0 < t->k; k0 += block) {
            memset(part, 0, t->m * sizeof *part);
            for (uint64_t k = k0; k < k0 + block && k < t->k; k++) {
                float right = factor(
                    t->tf32, get(b, t->b.type, t->turns_b ? k * (uint64_t)t->b.ld + j : j * (uint64_t)t->b.ld + k));
                for (uint64_t i = 0; i < t->m; i++) part[i] += left[k * t->m + i] * right;
            }
            float of_column = scale_at(scales_b, &of_b, j, k0 / block);
            for (uint64_t i = 0; i < t->m; i++)
                sums[i] += part[i] * (scale_at(scales_a, &of_a, i, k0 / block) * of_column);
        }
        for (uint64_t i = 0; i < t->m; i++) {
            float sum = sums[i] * t->alpha;
            if (c) sum += t->beta * get(c, t->c.type, j * (uint64_t)t->c.ld + i);
            if (bias) sum += get(bias, t->d.type, i);
            set(d, t->d.type, j * (uint64_t)t->d.ld + i, sum);
        }
    }
    if (getenv("STANDIN_BLAS_WRONG")) {
        uint64_t last = (t->n - 1) * (uint64_t)t->d.ld + t->m - 1;
        set(d, t->d.type, last, get(d, t->d.type, last) + (float)atof(getenv("STANDIN_BLAS_WRONG")));
    }
    free(left);
    free(sums);
    free(part);
}

/* As wide as the algorithm was chosen for, at least as an element. hipBLASLt knows no wishes for that. */
static bool is_aligned(const void *address, short wanted, int type)
{
    size_t element = size_of(type), least = NAME(0, 1) ? element : (size_t)wanted;
    return ((uintptr_t)address & (least - 1)) == 0 && ((uintptr_t)address & (element - 1)) == 0;
}

/* "if in-place, Cdesc and Ddesc must match" (cuBLAS's documentation, cublasLtMatmul). Matrices, also C where beta is
 * not 0, lie in the memory of the GPU; the scalars do not, as the pointer mode is that of the host. */
static const char *operands_wrong(const task *t, const algorithm *how, const float *alpha, const float *beta)
{
    if (!alpha || !beta || real_address(alpha, 4) || real_address(beta, 4)) return "a scalar is not the host's";
    if (!real_address(t->at_a, bytes_of(&t->a))) return "A is not in the memory of the GPU";
    if (!real_address(t->at_b, bytes_of(&t->b))) return "B is not in the memory of the GPU";
    if (!real_address(t->at_d, bytes_of(&t->d))) return "D is not in the memory of the GPU";
    scaled of_a = { t->by.mode_a, t->m, t->k }, of_b = { t->by.mode_b, t->n, t->k };
    if (t->by.a && !real_address(t->by.a, bytes_of_scales(&of_a))) return "scales of A, which are not the GPU's";
    if (t->by.b && !real_address(t->by.b, bytes_of_scales(&of_b))) return "scales of B, which are not the GPU's";
    if (has_blocks(&t->by) && (((uintptr_t)t->by.a | (uintptr_t)t->by.b) & 15))
        return "scales that do not begin at a multiple of 16 bytes";
    if (has_blocks(&t->by) && (!t->by.a || !t->by.b)) return "no scales of blocks";
    if (*beta != 0 && !real_address(t->at_c, bytes_of(&t->c))) return "C is not in the memory of the GPU";
    if (t->at_c == t->at_d && t->c.ld != t->d.ld) return "C and D are one, with different columns";
    if (t->at_bias && !real_address(t->at_bias, t->m * size_of(t->d.type))) return "no bias in the memory of the GPU";
    if (!is_aligned(t->at_a, how->align[0], t->a.type) || !is_aligned(t->at_b, how->align[1], t->b.type) ||
        !is_aligned(t->at_c, how->align[2], t->c.type) || !is_aligned(t->at_d, how->align[3], t->d.type) ||
        (t->at_bias && !is_aligned(t->at_bias, how->bias_align, t->d.type)))
        return "a matrix that begins where the algorithm cannot";
    return NULL;
}

/* "Must be 256B aligned" (cuBLAS's documentation, cublasLtMatmul, workspace); "Pointer must be 16B aligned"
 * (hipblaslt.h, hipblasLtMatmul). */
static const char *workspace_wrong(const task *t, const algorithm *how)
{
    if (how->workspace == 0 && t->workspace_bytes == 0) return NULL;
    if (t->workspace_bytes < how->workspace) return "less workspace than the algorithm needs";
    if (!real_address(t->workspace, t->workspace_bytes)) return "no workspace in the memory of the GPU";
    return (uintptr_t)t->workspace & (NAME(256, 16) - 1)
               ? "workspace that begins between the multiples that are asked for"
               : NULL;
}

API LT(Matmul)(void *h, void *of, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,
               const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *how,
               void *workspace, size_t bytes, void *stream)
{
    problem   p = { .desc = of, .a = layout_a, .b = layout_b, .c = layout_c, .d = layout_d };
    algorithm chosen;
    int       status = fault("cublasLtMatmul");
    multiplied++;
    if (status) return status;
    if (!is(h, HANDLE) || !how || !stream) return wrong("Matmul", "no handle, no algorithm, or no stream");
    if (describe("Matmul", &p) != OK) return INVALID_VALUE;
    memcpy(&chosen, how, sizeof chosen);
    if (chosen.kind != (short)ALGORITHM || chosen.of != mixed(&p) || !known_formats(&p))
        return wrong("Matmul", "an algorithm that was chosen for another product");
    if (p.desc->epilogue == EPILOGUE_BIAS && !p.desc->bias) return wrong("Matmul", "no bias");
    task t = { .a = *p.a, .b = *p.b, .c = *p.c, .d = *p.d, .m = p.m, .n = p.n, .k = p.k, .by = p.desc->by };
    t.turns_a = p.desc->trans_a == TRANSPOSED, t.turns_b = p.desc->trans_b == TRANSPOSED;
    t.tf32 = p.desc->tf32, t.slow = chosen.slow;
    t.at_a = a, t.at_b = b, t.at_c = c, t.at_d = d, t.workspace = workspace, t.workspace_bytes = bytes;
    if (p.desc->epilogue == EPILOGUE_BIAS) t.at_bias = p.desc->bias;
    const char *what = operands_wrong(&t, &chosen, alpha, beta);
    if (!what) what = workspace_wrong(&t, &chosen);
    if (what) return wrong("Matmul", what);
    last_number = chosen.number;
    t.alpha = *(const float *)alpha, t.beta = *(const float *)beta;
    put(stream, (standin_work){ .run = multiply,
                                .drop = free,
                                .with = memcpy(malloc(sizeof t), &t, sizeof t),
                                .tag = (uint64_t)(((t.m * 31 + t.n) * 31 + t.k) * 8 + t.turns_a * 4 + t.turns_b * 2 +
                                                  (t.beta != 0)) });
    return OK;
}

#include "blaslt_gemm_ex.h"

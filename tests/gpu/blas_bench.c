/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/blas_bench.h"
#include "base/random.h"
#include "graph/value.h"
#include "op/codes.h"

#include <dlfcn.h>

#include "support/folder.h"
#include "support/test.h"

enum { ROWS = 5, COLUMNS = 7, DEPTH = 9, OF_CODES = 32, GAP = 32 };
enum { BLOCK_ROWS = 144, BLOCK_COLUMNS = 160, BLOCK_DEPTH = 272, DEPTH_OF_HIP = 384 };

static const tm_dtype dtypes[] = { TM_F32, TM_BF16, TM_F16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ, TM_E2M1 };

/* --- libraries */

const char *blas_variable(int hip)
{
    return hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT";
}

static const char *library_of(int hip)
{
    return test_built(hip ? "standins/hipblaslt.so" : "standins/cublaslt.so");
}

void blas_use(int hip)
{
    setenv("TRAINMARK_GPU_RUNTIME", test_built(hip ? "standins/hip.so" : "standins/cuda.so"), 1);
    setenv(blas_variable(hip), library_of(hip), 1);
}

blas_bench blas_open(int hip, const char *arch, int version)
{
    blas_bench b = { .hip = hip };
    tm_error   err = { 0 };
    char       number[16];
    snprintf(number, sizeof number, "%d", version);
    if (arch) setenv("STANDIN_GPU_ARCH", arch, 1);
    if (version) setenv("STANDIN_BLAS_VERSION", number, 1);
    blas_use(hip);
    if (tm_gpu_open((tm_gpu_maker)hip, 0, &b.gpu, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_gpu_blas_open(b.gpu, &b.blas, &err) != TM_OK) fail_msg("%s", err.text);
    if (version) assert_int_equal(tm_gpu_blas_version(b.blas), version);
    assert_int_equal(tm_gpu_stream_open(b.gpu, &b.stream, &err), TM_OK);
    assert_int_equal(tm_gpu_alloc(b.gpu, BLAS_WORKSPACE, &b.workspace, &err), TM_OK);
    return b;
}

tm_status blas_try_open(int hip, tm_error *err)
{
    tm_gpu      *gpu;
    tm_gpu_blas *blas = NULL;
    *err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_open((tm_gpu_maker)hip, 0, &gpu, err), TM_OK);
    tm_status st = tm_gpu_blas_open(gpu, &blas, err);
    assert_true((st == TM_OK) == (blas != NULL));
    tm_gpu_blas_close(blas);
    tm_gpu_close(gpu);
    return st;
}

void blas_close(blas_bench *b)
{
    tm_gpu_free(b->gpu, b->workspace);
    tm_gpu_stream_close(b->gpu, b->stream);
    tm_gpu_blas_close(b->blas);
    assert_int_equal(blas_counted(b->hip, "standin_blas_held"), 0);
    tm_gpu_close(b->gpu);
    unsetenv("STANDIN_GPU_ARCH");
    unsetenv("STANDIN_BLAS_VERSION");
}

int blas_counted(int hip, const char *name)
{
    int (*count)(void);
    void *library = dlopen(library_of(hip), RTLD_NOW | RTLD_NOLOAD), *symbol = library ? dlsym(library, name) : NULL;
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    return count();
}

/* --- operands */

tm_gpu_matmul_shape blas_shape(const blas_kind *k)
{
    bool    codes = k->a >= TM_GPU_E4M3, blocks = k->scales > TM_GPU_SCALES_OF_ROWS;
    int64_t rows = blocks ? BLOCK_ROWS : ROWS, columns = blocks ? BLOCK_COLUMNS : codes ? OF_CODES : COLUMNS;
    int64_t depth = k->scales == TM_GPU_SCALES_ROW_BY_ROW ? DEPTH_OF_HIP : blocks ? BLOCK_DEPTH : codes ? 48 : DEPTH;
    return (tm_gpu_matmul_shape){ .factors = k->a,
                                  .second = codes ? k->b : TM_GPU_F32,
                                  .result = k->result,
                                  .scales = k->scales,
                                  .second_scales = k->second_scales,
                                  .a_across = k->a_across,
                                  .b_across = k->b_across,
                                  .bias = k->bias,
                                  .rows = rows,
                                  .columns = columns,
                                  .depth = depth,
                                  .ld_a = (k->a_across ? rows : depth) + (codes ? GAP : k->gap),
                                  .ld_b = (k->b_across ? columns : depth) + 2 * k->gap,
                                  .ld_c = columns + (codes ? GAP : 3 * k->gap),
                                  .workspace = BLAS_WORKSPACE };
}

static tm_gpu_format format_of(const blas_kind *k, int which)
{
    bool codes = k->a >= TM_GPU_E4M3;
    return which == BLAS_A ? k->a : which == BLAS_B ? (codes ? k->b : k->a) : k->result;
}

/* Rows, columns and pitch of an operand as it lies. */
static void extents(const blas_product *p, int which, int64_t out[3])
{
    const tm_gpu_matmul_shape *s = &p->shape;
    int64_t                    a[] = { s->a_across ? s->depth : s->rows, s->a_across ? s->rows : s->depth, s->ld_a };
    int64_t b[] = { s->b_across ? s->depth : s->columns, s->b_across ? s->columns : s->depth, s->ld_b };
    int64_t c[] = { which == BLAS_BIAS ? 1 : s->rows, s->columns, which == BLAS_BIAS ? s->columns : s->ld_c };
    memcpy(out, which == BLAS_A ? a : which == BLAS_B ? b : c, sizeof a);
}

static size_t skipped(const blas_product *p, int which)
{
    return p->kind.odd ? tm_dtype_bytes(dtypes[format_of(&p->kind, which)]) : 0;
}

/* Quarters below 4 of codes, small whole numbers of others: sums are exact. A result that nothing is added to is NaN.
 */
static void make_matrix(const blas_bench *b, blas_product *p, int which)
{
    int64_t  n[3];
    tm_dtype dtype = dtypes[format_of(&p->kind, which)];
    tm_error err = { 0 };
    bool     codes = p->kind.a >= TM_GPU_E4M3;
    extents(p, which, n);
    p->bytes[which] = skipped(p, which) + tm_tensor_bytes(tm_shape_2(n[0], n[2]), dtype);
    p->image[which] = memset(malloc(p->bytes[which]), 0xff, p->bytes[which]);
    for (int64_t i = 0; i < n[0] * n[1] && !(which == BLAS_C && p->kind.old != BLAS_ITSELF); i++) {
        double drawn = (double)tm_random_below((uint64_t)which + 1, 1, (uint64_t)i, codes ? 33 : 7);
        tm_value_set(p->image[which] + skipped(p, which), dtype, i / n[1] * n[2] + i % n[1],
                     codes ? drawn / 4 - 4 : drawn - 3);
    }
    assert_int_equal(tm_gpu_alloc(b->gpu, p->bytes[which], &p->memory[which], &err), TM_OK);
    assert_int_equal(tm_gpu_write(b->gpu, p->memory[which], p->image[which], p->bytes[which], &err), TM_OK);
}

/* How many scales of a factor there are, and where, as op/codes.h has them. */
static int codes_kind(tm_gpu_scales scales)
{
    return scales <= TM_GPU_SCALES_OF_ROWS ? TM_CODES_PLAIN : TM_CODES_RUNS + (int)scales - TM_GPU_SCALES_OF_RUNS;
}

static int64_t scales_in(tm_gpu_scales scales, int64_t lines, int64_t depth)
{
    int64_t plain = scales == TM_GPU_SCALES_OF_ROWS ? lines : 1;
    return codes_kind(scales) == TM_CODES_PLAIN ? plain : tm_codes_scales(codes_kind(scales), lines, depth);
}

static int64_t scale_place(tm_gpu_scales scales, int64_t lines, int64_t depth, int64_t line, int64_t k)
{
    int64_t plain = scales == TM_GPU_SCALES_OF_ROWS ? line : 0;
    return codes_kind(scales) == TM_CODES_PLAIN ? plain : tm_codes_place(codes_kind(scales), lines, depth, line, k);
}

/* Powers of two, each block another one: exact, and no two alike beside each other. Zeros fill them up. */
static void make_scales(const blas_bench *b, blas_product *p, bool second)
{
    tm_gpu_scales scales = second ? p->kind.second_scales : p->kind.scales;
    int           which = second ? BLAS_SCALE_B : BLAS_SCALE_A;
    int64_t       lines = second ? p->shape.columns : p->shape.rows, depth = p->shape.depth;
    tm_dtype      dtype = (tm_dtype)tm_codes_scale_of(codes_kind(scales)).dtype;
    tm_error      err = { 0 };
    if (scales == TM_GPU_NO_SCALES) return;
    p->bytes[which] = (size_t)scales_in(scales, lines, depth) * tm_dtype_bytes(dtype);
    p->image[which] = calloc(p->bytes[which], 1);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t k = 0; k < depth; k += 16) {
            int64_t at = scale_place(scales, lines, depth, line, k);
            tm_value_set(p->image[which], dtype, at, ldexp(1, (second ? 1 : -3) + (int)(at % 7 % 3)));
        }
    assert_int_equal(tm_gpu_alloc(b->gpu, p->bytes[which], &p->memory[which], &err), TM_OK);
    assert_int_equal(tm_gpu_write(b->gpu, p->memory[which], p->image[which], p->bytes[which], &err), TM_OK);
}

blas_product blas_product_make(const blas_bench *b, const blas_kind *kind, const tm_gpu_matmul_shape *shape)
{
    blas_product p = { .kind = *kind, .shape = *shape };
    void        *at[BLAS_OPERANDS];
    for (int which = 0; which <= BLAS_OLD; which++) {
        make_matrix(b, &p, which);
        at[which] = (char *)p.memory[which] + skipped(&p, which);
    }
    for (int second = 0; second < 2; second++) make_scales(b, &p, second);
    p.operands = (tm_gpu_matmul_operands){ .c = at[BLAS_C],
                                           .a = at[BLAS_A],
                                           .b = at[BLAS_B],
                                           .bias = kind->bias ? at[BLAS_BIAS] : NULL,
                                           .old = kind->old == BLAS_OTHER    ? at[BLAS_OLD]
                                                  : kind->old == BLAS_ITSELF ? at[BLAS_C]
                                                                             : NULL,
                                           .workspace = b->workspace,
                                           .scale_a = p.memory[BLAS_SCALE_A],
                                           .scale_b = p.memory[BLAS_SCALE_B] };
    return p;
}

void blas_product_free(const blas_bench *b, blas_product *p)
{
    for (int which = 0; which < BLAS_OPERANDS; which++) {
        if (p->memory[which]) tm_gpu_free(b->gpu, p->memory[which]);
        free(p->image[which]);
    }
}

/* --- products */

tm_status blas_multiply(const blas_bench *b, const blas_product *p, tm_error *err)
{
    tm_gpu_matmul *found;
    const char    *why;
    TM_TRY(tm_gpu_blas_find(b->blas, &p->shape, &found, &why, err));
    return tm_gpu_blas_multiply(b->blas, found, b->stream, &p->operands, err);
}

static double value_of(const blas_product *p, int which, int64_t row, int64_t column)
{
    int64_t n[3];
    extents(p, which, n);
    return tm_value_get(p->image[which] + skipped(p, which), dtypes[format_of(&p->kind, which)], row * n[2] + column);
}

/* What the elements of a factor stand for: lines of `depth`. */
static double *factor_of(const blas_product *p, bool second)
{
    tm_gpu_scales scales = second ? p->kind.second_scales : p->kind.scales;
    bool          across = second ? p->shape.b_across : p->shape.a_across;
    int64_t       lines = second ? p->shape.columns : p->shape.rows, depth = p->shape.depth;
    tm_dtype      of_scale = (tm_dtype)tm_codes_scale_of(codes_kind(scales)).dtype;
    double       *values = malloc((size_t)(lines * depth) * sizeof *values);
    for (int64_t i = 0; i < lines * depth; i++) {
        int64_t line = i / depth, k = i % depth;
        values[i] = value_of(p, second ? BLAS_B : BLAS_A, across ? k : line, across ? line : k);
        if (scales != TM_GPU_NO_SCALES)
            values[i] *= tm_value_get(p->image[second ? BLAS_SCALE_B : BLAS_SCALE_A], of_scale,
                                      scale_place(scales, lines, depth, line, k));
    }
    return values;
}

void blas_check(const blas_bench *b, blas_product *p, int times, const char *what)
{
    const tm_gpu_matmul_shape *s = &p->shape;
    tm_error                   err = { 0 };
    double                    *left = factor_of(p, false), *right = factor_of(p, true);
    char                      *got = malloc(p->bytes[BLAS_C]);
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->columns; c++) {
            double sum = p->kind.bias ? value_of(p, BLAS_BIAS, 0, c) : 0, old = 0;
            for (int64_t d = 0; d < s->depth; d++) sum += left[r * s->depth + d] * right[c * s->depth + d];
            if (p->kind.old) old = value_of(p, p->kind.old == BLAS_OTHER ? BLAS_OLD : BLAS_C, r, c);
            tm_value_set(p->image[BLAS_C] + skipped(p, BLAS_C), dtypes[p->kind.result], r * s->ld_c + c,
                         old + sum * (p->kind.old == BLAS_ITSELF ? times : 1));
        }
    if (tm_gpu_stream_wait(b->gpu, b->stream, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    assert_int_equal(tm_gpu_read(b->gpu, got, p->memory[BLAS_C], p->bytes[BLAS_C], &err), TM_OK);
    if (memcmp(got, p->image[BLAS_C], p->bytes[BLAS_C]) != 0) fail_msg("%s: wrong, or written beside it", what);
    free(got), free(left), free(right);
    blas_product_free(b, p);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries of matrix products, of both makers, over stand-ins: every layout, format, bias and sum exact and
 * nothing written beside them; in a graph; what is said where a library is missing, old, refuses, or fails. */
#include "gpu/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/test.h"

static const char *const names[] = { "cublasLt 13.1.0", "hipBLASLt 1.1.0" };
static const char *const variables[] = { "TRAINMARK_CUBLASLT", "TRAINMARK_HIPBLASLT" };

static void use(int hip)
{
    setenv("TRAINMARK_GPU_RUNTIME", test_built(hip ? "standins/hip.so" : "standins/cuda.so"), 1);
    setenv(variables[hip], test_built(hip ? "standins/hipblaslt.so" : "standins/cublaslt.so"), 1);
}

typedef struct {
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
    void        *stream, *workspace;
} bench;

enum { WORKSPACE = 1 << 16, BEHIND = 256 };

static bench open_bench(int hip)
{
    bench    b = { 0 };
    tm_error err = { 0 };
    use(hip);
    if (tm_gpu_open((tm_gpu_maker)hip, 0, &b.gpu, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_gpu_blas_open(b.gpu, &b.blas, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_gpu_stream_open(b.gpu, &b.stream, &err), TM_OK);
    assert_int_equal(tm_gpu_alloc(b.gpu, WORKSPACE + BEHIND, &b.workspace, &err), TM_OK);
    return b;
}

/* Nothing of the library is left. */
static void close_bench(bench *b, int hip)
{
    int (*held)(void);
    void *library = dlopen(test_built(hip ? "standins/hipblaslt.so" : "standins/cublaslt.so"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "standin_blas_held") : NULL;
    assert_non_null(symbol);
    memcpy(&held, &symbol, sizeof held);
    tm_gpu_free(b->gpu, b->workspace);
    tm_gpu_stream_close(b->gpu, b->stream);
    assert_true(held() > 0);
    tm_gpu_blas_close(b->blas);
    assert_int_equal(held(), 0);
    tm_gpu_close(b->gpu);
}

/* --- matrices of small whole numbers: products are exact -------------------------------------------- */

typedef struct {
    tm_gpu_format format;
    int64_t       rows, columns, ld;
    size_t        skip; /* bytes from the allocation to the first element */
    size_t        bytes;
    char         *image;  /* on the host; what is no element is 0xff */
    void         *memory; /* on the GPU */
} matrix;

static size_t size_of(tm_gpu_format format)
{
    return format == TM_GPU_F32 ? 4 : 2;
}

static float get(const matrix *m, int64_t row, int64_t column)
{
    const char *at = m->image + m->skip + (size_t)(row * m->ld + column) * size_of(m->format);
    uint32_t    bits = 0;
    float       value;
    memcpy(m->format == TM_GPU_F32 ? (char *)&bits : (char *)&bits + 2, at, size_of(m->format));
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void set(const matrix *m, int64_t row, int64_t column, float value)
{
    char    *at = m->image + m->skip + (size_t)(row * m->ld + column) * size_of(m->format);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits); /* a small whole number is its upper half */
    memcpy(at, m->format == TM_GPU_F32 ? (char *)&bits : (char *)&bits + 2, size_of(m->format));
}

/* Numbers from -3 to 3, other ones for another seed. filled: false: all is NaN. */
static matrix matrix_open(tm_gpu *gpu, tm_gpu_format format, int64_t rows, int64_t columns, int64_t ld, bool odd,
                          int seed, bool filled)
{
    matrix   m = { .format = format, .rows = rows, .columns = columns, .ld = ld, .skip = odd ? size_of(format) : 0 };
    tm_error err = { 0 };
    m.bytes = m.skip + (size_t)(rows * ld) * size_of(format);
    m.image = malloc(m.bytes);
    memset(m.image, 0xff, m.bytes);
    for (int64_t r = 0; r < rows && filled; r++)
        for (int64_t c = 0; c < columns; c++) set(&m, r, c, (float)((r * 5 + c * 3 + r * c + seed) % 7 - 3));
    assert_int_equal(tm_gpu_alloc(gpu, m.bytes, &m.memory, &err), TM_OK);
    assert_int_equal(tm_gpu_write(gpu, m.memory, m.image, m.bytes, &err), TM_OK);
    return m;
}

static void *begin_of(const matrix *m)
{
    return (char *)m->memory + m->skip;
}

static void matrix_close(tm_gpu *gpu, matrix *m)
{
    tm_gpu_free(gpu, m->memory);
    free(m->image);
}

typedef enum { NONE, OTHER, ITSELF, OLDS } old_kind;

typedef struct {
    tm_gpu_format factors, result;
    bool          a_across, b_across, bias, odd;
    old_kind      old;
    int64_t       gap; /* between rows */
} kind;

enum { ROWS = 5, COLUMNS = 7, DEPTH = 9 };

typedef struct {
    matrix a, b, c, bias, old;
} matrices;

static tm_gpu_matmul_shape shape_of(const kind *k)
{
    return (tm_gpu_matmul_shape){ .factors = k->factors,
                                  .result = k->result,
                                  .a_across = k->a_across,
                                  .b_across = k->b_across,
                                  .bias = k->bias,
                                  .rows = ROWS,
                                  .columns = COLUMNS,
                                  .depth = DEPTH,
                                  .ld_a = (k->a_across ? ROWS : DEPTH) + k->gap,
                                  .ld_b = (k->b_across ? COLUMNS : DEPTH) + 2 * k->gap,
                                  .ld_c = COLUMNS + 3 * k->gap,
                                  .workspace = WORKSPACE };
}

static matrices matrices_open(tm_gpu *gpu, const kind *k)
{
    tm_gpu_matmul_shape s = shape_of(k);
    return (matrices){
        .a = matrix_open(gpu, k->factors, k->a_across ? DEPTH : ROWS, k->a_across ? ROWS : DEPTH, s.ld_a, k->odd, 1,
                         true),
        .b = matrix_open(gpu, k->factors, k->b_across ? DEPTH : COLUMNS, k->b_across ? COLUMNS : DEPTH, s.ld_b, k->odd,
                         2, true),
        .c = matrix_open(gpu, k->result, ROWS, COLUMNS, s.ld_c, k->odd, 3, k->old == ITSELF),
        .bias = matrix_open(gpu, k->result, 1, COLUMNS, COLUMNS, k->odd, 4, true),
        .old = matrix_open(gpu, k->result, ROWS, COLUMNS, s.ld_c, k->odd, 5, true),
    };
}

static void matrices_close(tm_gpu *gpu, matrices *m)
{
    matrix_close(gpu, &m->a), matrix_close(gpu, &m->b), matrix_close(gpu, &m->c);
    matrix_close(gpu, &m->bias), matrix_close(gpu, &m->old);
}

static tm_gpu_matmul_operands operands_of(const matrices *m, const kind *k, void *workspace)
{
    return (tm_gpu_matmul_operands){ .c = begin_of(&m->c),
                                     .a = begin_of(&m->a),
                                     .b = begin_of(&m->b),
                                     .bias = k->bias ? begin_of(&m->bias) : NULL,
                                     .old = k->old == OTHER    ? begin_of(&m->old)
                                            : k->old == ITSELF ? begin_of(&m->c)
                                                               : NULL,
                                     .workspace = workspace };
}

static tm_status multiply(const bench *b, const kind *k, const tm_gpu_matmul_operands *o, tm_error *err)
{
    tm_gpu_matmul_shape s = shape_of(k);
    tm_gpu_matmul      *found;
    const char         *why;
    TM_TRY(tm_gpu_blas_find(b->blas, &s, &found, &why, err));
    return tm_gpu_blas_multiply(b->blas, found, b->stream, o, err);
}

/* After `times` products into c. */
static void check(const bench *b, matrices *m, const kind *k, int times, const char *where)
{
    tm_error err = { 0 };
    matrix   wanted = m->c;
    wanted.image = malloc(m->c.bytes);
    memcpy(wanted.image, m->c.image, m->c.bytes);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            float sum = k->bias ? get(&m->bias, 0, c) : 0;
            for (int64_t d = 0; d < DEPTH; d++)
                sum += (k->a_across ? get(&m->a, d, r) : get(&m->a, r, d)) *
                       (k->b_across ? get(&m->b, d, c) : get(&m->b, c, d));
            float old = k->old == NONE ? 0 : k->old == OTHER ? get(&m->old, r, c) : get(&m->c, r, c);
            set(&wanted, r, c, old + sum * (float)(k->old == ITSELF ? times : 1));
        }
    if (tm_gpu_stream_wait(b->gpu, b->stream, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_gpu_read(b->gpu, m->c.image, m->c.memory, m->c.bytes, &err), TM_OK);
    if (memcmp(m->c.image, wanted.image, m->c.bytes) != 0)
        fail_msg(
            "%s, factors %d, result %d, across %d %d, bias %d, old %d, gap %d, odd %d: wrong, or written beside it",
            where, k->factors, k->result, k->a_across, k->b_across, k->bias, k->old, (int)k->gap, k->odd);
    free(wanted.image);
}

TEST(all_products_are_exact)
{
    for (int hip = 0; hip < 2; hip++) {
        bench b = open_bench(hip);
        assert_string_equal(tm_gpu_blas_name(b.blas), names[hip]);
        assert_non_null(strstr(tm_gpu_blas_library(b.blas), hip ? "/hipblaslt.so" : "/cublaslt.so"));
        for (unsigned x = 0; x < 3U * 4 * 2 * OLDS * 2 * 2; x++) {
            kind                   k = { .factors = x % 3 == 0 ? TM_GPU_F32 : TM_GPU_BF16,
                                         .result = x % 3 < 2 ? TM_GPU_F32 : TM_GPU_BF16,
                                         .a_across = x / 3 & 1U,
                                         .b_across = x / 6 & 1U,
                                         .bias = x / 12 & 1U,
                                         .odd = x / 24 & 1U,
                                         .gap = x / 48 & 1U ? 3 : 0,
                                         .old = (old_kind)(x / 96 % OLDS) };
            tm_error               err = { 0 };
            matrices               m = matrices_open(b.gpu, &k);
            tm_gpu_matmul_operands o = operands_of(&m, &k, b.workspace);
            if (multiply(&b, &k, &o, &err) != TM_OK) fail_msg("%s", err.text);
            check(&b, &m, &k, 1, names[hip]);
            matrices_close(b.gpu, &m);
        }
        close_bench(&b, hip);
    }
}

TEST(in_a_graph_each_play_adds)
{
    for (int hip = 0; hip < 2; hip++) {
        bench                  b = open_bench(hip);
        kind                   k = { .factors = TM_GPU_BF16, .result = TM_GPU_F32, .old = ITSELF, .b_across = true };
        matrices               m = matrices_open(b.gpu, &k);
        tm_gpu_matmul_operands o = operands_of(&m, &k, b.workspace);
        tm_error               err = { 0 };
        void                  *graph;
        assert_int_equal(tm_gpu_capture_begin(b.gpu, b.stream, &err), TM_OK);
        assert_int_equal(multiply(&b, &k, &o, &err), TM_OK);
        assert_int_equal(tm_gpu_capture_end(b.gpu, b.stream, &graph, &err), TM_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(tm_gpu_graph_play(b.gpu, graph, b.stream, &err), TM_OK);
        check(&b, &m, &k, 3, names[hip]);
        tm_gpu_graph_close(b.gpu, graph);
        matrices_close(b.gpu, &m);
        close_bench(&b, hip);
    }
}

TEST(a_shape_is_asked_for_once)
{
    for (int hip = 0; hip < 2; hip++) {
        bench               b = open_bench(hip);
        kind                k = { .factors = TM_GPU_BF16, .result = TM_GPU_BF16 };
        tm_gpu_matmul_shape s = shape_of(&k), wider = s, roomier = s;
        tm_gpu_matmul      *found[4];
        const char         *why;
        tm_error            err = { 0 };
        wider.ld_c++, roomier.workspace++;
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found[0], &why, &err), TM_OK);
        assert_int_equal(tm_gpu_blas_find(b.blas, &wider, &found[1], &why, &err), TM_OK);
        assert_int_equal(tm_gpu_blas_find(b.blas, &roomier, &found[2], &why, &err), TM_OK);
        setenv("STANDIN_BLAS_FAIL", "cublasLtMatmulAlgoGetHeuristic@1=14", 1);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found[3], &why, &err), TM_OK);
        unsetenv("STANDIN_BLAS_FAIL");
        assert_ptr_equal(found[0], found[3]);
        assert_ptr_not_equal(found[0], found[1]);
        assert_ptr_not_equal(found[0], found[2]);
        close_bench(&b, hip);
    }
}

/* --- what is missing, refused, or fails ------------------------------------------------------------- */

TEST(what_is_refused_says_why)
{
    for (int hip = 0; hip < 2; hip++) {
        bench               b = open_bench(hip);
        kind                k = { .factors = TM_GPU_F32, .result = TM_GPU_F32 };
        tm_gpu_matmul_shape s = shape_of(&k);
        tm_gpu_matmul      *found;
        const char         *why, *again;
        char                want[120];
        tm_error            err = { 0 };
        snprintf(want, sizeof want, "%s has no algorithm for 5 x 7 x 9 with 65536 bytes of workspace", names[hip]);
        setenv("STANDIN_BLAS_REFUSES", "9", 1);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_UNSUPPORTED);
        unsetenv("STANDIN_BLAS_REFUSES");
        assert_string_equal(why, want);
        assert_string_equal(err.text, want);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &again, &err), TM_UNSUPPORTED);
        assert_ptr_equal(why, again);
        s.depth++, s.ld_a++, s.ld_b++;
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_OK);
        assert_null(why);
        close_bench(&b, hip);
    }
}

static tm_status try_open(int hip, tm_error *err)
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

TEST(what_is_not_there)
{
    static const char *const install[] = { "no cublasLt was found (/nowhere/l.so: ",
                                           "no hipBLASLt was found (/nowhere" };
    static const char *const old[] = { "is cublasLt 11.11.3: too old, 12.0.0 is needed",
                                       "is hipBLASLt 0.9.99: too old, 0.10.0 (ROCm 6.3) is needed" };
    static const char *const first[] = { "has no cublasLtGetVersion: it is too old, or no cublasLt",
                                         "has no hipblasLtGetVersion: it is too old, or no hipBLASLt" };
    tm_error                 err;
    for (int hip = 0; hip < 2; hip++) {
        use(hip);
        assert_int_equal(try_open(hip, &err), TM_OK);
        setenv("STANDIN_BLAS_VERSION", hip ? "999" : "111103", 1);
        assert_int_equal(try_open(hip, &err), TM_UNSUPPORTED);
        unsetenv("STANDIN_BLAS_VERSION");
        assert_non_null(strstr(err.text, old[hip]));
        setenv(variables[hip], "/nowhere/l.so", 1);
        assert_int_equal(try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, install[hip]));
        assert_non_null(strstr(err.text, hip ? "`apt-get install hipblaslt`" : "`pip install nvidia-cublas`"));
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_UNSUPPORTED);
        setenv(variables[hip], "none", 1);
        assert_int_equal(try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, "is 'none': no library multiplies"));
        setenv(variables[hip], test_built(hip ? "standins/hiprtc.so" : "standins/nvrtc.so"), 1);
        assert_int_equal(try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, first[hip]));
        unsetenv(variables[hip]);
    }
}

/* Where there is no GPU the library is taken for granted, and not begun: the one of AMD would end the process. */
TEST(without_a_gpu_it_is_expected)
{
    tm_error err = { 0 };
    for (int hip = 0; hip < 2; hip++) {
        use(hip);
        setenv("STANDIN_GPUS", "0", 1);
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_OK);
        unsetenv(variables[hip]);
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_OK);
        unsetenv("STANDIN_GPUS");
    }
}

TEST(each_function_that_fails_is_named)
{
    static const struct {
        const char *name;
        bool        opens;
    } functions[] = { { "cublasLtCreate", true },
                      { "cublasLtMatmulDescCreate", false },
                      { "cublasLtMatmulDescSetAttribute", false },
                      { "cublasLtMatrixLayoutCreate", false },
                      { "cublasLtMatmulPreferenceCreate", false },
                      { "cublasLtMatmulPreferenceSetAttribute", false },
                      { "cublasLtMatmulAlgoGetHeuristic", false },
                      { "cublasLtMatmul", false } };
    for (int hip = 0; hip < 2; hip++)
        for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
            kind     k = { .factors = TM_GPU_BF16, .result = TM_GPU_BF16, .bias = true };
            bench    b = { 0 };
            char     told[96], want[160];
            tm_error err = { 0 };
            use(hip);
            if (!functions[i].opens) b = open_bench(hip);
            snprintf(told, sizeof told, "%s@1=%d", functions[i].name, hip ? 6 : 14);
            snprintf(want, sizeof want, "GPU 0 (a stand-in): %s%s%s: an internal error (status %d of %s",
                     hip ? "hip" : "cu", functions[i].name + 2, functions[i].opens ? "" : " of 5 x 7 x 9", hip ? 6 : 14,
                     functions[i].opens && hip ? "hipBLASLt)" : names[hip]);
            setenv("STANDIN_BLAS_FAIL", told, 1);
            if (functions[i].opens) {
                assert_int_equal(try_open(hip, &err), TM_DEVICE);
                assert_non_null(strstr(err.text, "=none leaves the library out"));
            } else {
                matrices               m = matrices_open(b.gpu, &k);
                tm_gpu_matmul_operands o = operands_of(&m, &k, b.workspace);
                assert_int_equal(multiply(&b, &k, &o, &err), TM_DEVICE);
                matrices_close(b.gpu, &m);
            }
            unsetenv("STANDIN_BLAS_FAIL");
            if (!strstr(err.text, want)) fail_msg("'%s' is not in '%s'", want, err.text);
            if (!functions[i].opens) close_bench(&b, hip);
        }
}

/* Columns of the library that overlap are rows of ours that do. */
TEST(rows_that_overlap_are_refused)
{
    for (int hip = 0; hip < 2; hip++)
        for (int i = 0; i < 3; i++) {
            bench               b = open_bench(hip);
            kind                k = { .factors = TM_GPU_F32, .result = TM_GPU_F32 };
            tm_gpu_matmul_shape s = shape_of(&k);
            tm_gpu_matmul      *found;
            const char         *why;
            tm_error            err = { 0 };
            (*(int64_t *[]){ &s.ld_a, &s.ld_b, &s.ld_c }[i])--;
            assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_DEVICE);
            assert_non_null(strstr(err.text, "a value is invalid"));
            close_bench(&b, hip);
        }
}

/* The stand-ins notice what a caller gets wrong. */
TEST(mistakes_are_noticed)
{
    for (int hip = 0; hip < 2; hip++) {
        bench                  b = open_bench(hip);
        kind                   k = { .factors = TM_GPU_F32, .result = TM_GPU_F32, .bias = true, .old = OTHER };
        matrices               m = matrices_open(b.gpu, &k);
        tm_gpu_matmul_operands good = operands_of(&m, &k, b.workspace), wrong[8];
        tm_error               err = { 0 };
        for (int i = 0; i < 8; i++) wrong[i] = good;
        wrong[0].workspace = NULL;
        wrong[1].workspace = (char *)b.workspace + (hip ? 8 : 128); /* 16 bytes are asked for, 256 */
        wrong[2].a = NULL;
        wrong[3].b = (char *)m.b.memory + 4; /* its end is behind the matrix */
        wrong[4].c = &m;
        wrong[5].bias = NULL;
        wrong[6].old = (const char *)m.old.memory + 2;
        wrong[7].c = (char *)m.c.memory + m.c.bytes;
        assert_int_equal(multiply(&b, &k, &good, &err), TM_OK);
        for (int i = 0; i < 8; i++)
            if (multiply(&b, &k, &wrong[i], &err) != TM_DEVICE || !strstr(err.text, "a value is invalid"))
                fail_msg("%s, mistake %d: '%s'", names[hip], i, err.text);
        check(&b, &m, &k, 1, names[hip]);
        matrices_close(b.gpu, &m);
        close_bench(&b, hip);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for cuDNN (tests/standins/cudnn.c), by calls of its own: causal attention of grouped heads in columns of
 * one matrix is what a plain loop says, also in a graph that is played again; whoever uses it wrongly is told why. */
#include "gpu/runtime.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/test.h"

/* cudnn_graph.h of cuDNN 9.19. */
enum { CONFIG = 3, HEURISTICS, PLAN, OF_POINTWISE = 13, GRAPH = 15, PACK, TENSOR, MATMUL, OF_MATMUL };
enum { REDUCTION = 21, OF_REDUCTION, OF_RESHAPE = 31 };
enum { T_HANDLE = 0, T_FORMAT, T_BOOL, T_I64, T_ADDRESS = 6, T_HEURISTIC = 8, T_FUNCTION = 14, T_DESCRIPTOR };
enum { F32 = 0, I32 = 4, BF16 = 9, BOOLEAN = 11 };
enum { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, NOT_LESS = 303, INDEX = 501, SELECT = 601 };

static struct {
    int (*create)(void **), (*destroy)(void *), (*set_stream)(void *, void *), (*make)(int, void **), (*drop)(void *);
    int (*set)(void *, int, int, int64_t, const void *), (*finish)(void *), (*execute)(void *, void *, void *);
    int (*get)(void *, int, int, int64_t, int64_t *, void *);
    size_t (*version)(void), (*workspace)(void);
    void (*last_words)(char *, size_t);
    int (*held)(void), (*executed)(void);
} dnn;

static const struct {
    void       *to;
    const char *name;
} calls[] = { { &dnn.create, "cudnnCreate" },
              { &dnn.destroy, "cudnnDestroy" },
              { &dnn.set_stream, "cudnnSetStream" },
              { &dnn.make, "cudnnBackendCreateDescriptor" },
              { &dnn.drop, "cudnnBackendDestroyDescriptor" },
              { &dnn.set, "cudnnBackendSetAttribute" },
              { &dnn.get, "cudnnBackendGetAttribute" },
              { &dnn.finish, "cudnnBackendFinalize" },
              { &dnn.execute, "cudnnBackendExecute" },
              { &dnn.version, "cudnnGetVersion" },
              { &dnn.last_words, "cudnnGetLastErrorString" },
              { &dnn.held, "standin_dnn_held" },
              { &dnn.executed, "standin_dnn_executed" },
              { &dnn.workspace, "standin_dnn_workspace" } };

static tm_gpu *gpu;
static void   *handle, *stream;
static void   *all[200]; /* descriptors */
static int     n_all;

static void must(tm_status st, const tm_error *err)
{
    if (st != TM_OK) fail_msg("%s", err->text);
}

static int begin(void **state)
{
    tm_error err = { 0 };
    (void)state;
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    void *library = dlopen(test_built("standins/cudnn.so"), RTLD_NOW);
    for (size_t i = 0; library && i < sizeof calls / sizeof calls[0]; i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol) return -1;
        memcpy(calls[i].to, &symbol, sizeof symbol);
    }
    if (!library || tm_gpu_open(TM_GPU_CUDA, 0, &gpu, &err) != TM_OK) return -1;
    if (tm_gpu_stream_open(gpu, &stream, &err) != TM_OK) return -1;
    if (dnn.create(&handle) != 0) return -1;
    return dnn.set_stream(handle, stream);
}

/* Nothing is left. */
static int end(void **state)
{
    (void)state;
    while (n_all > 0) dnn.drop(all[--n_all]);
    dnn.destroy(handle);
    int left = dnn.held();
    tm_gpu_stream_close(gpu, stream);
    tm_gpu_close(gpu);
    return left;
}

TEST_FIXTURE(begin, end)

/* --- a graph --------------------------------------------------------------------------------------- */

static void good(int status)
{
    char words[200];
    if (status == 0) return;
    dnn.last_words(words, sizeof words);
    fail_msg("status %d: %s", status, words);
}

static void *make(int kind)
{
    void *d = NULL;
    good(dnn.make(kind, &d));
    return all[n_all++] = d;
}

static void set(void *d, int name, int type, int64_t n, const void *values)
{
    good(dnn.set(d, name, type, n, values));
}

static void set_descriptor(void *d, int name, void *value)
{
    if (value) set(d, name, T_DESCRIPTOR, 1, &value);
}

typedef struct {
    int64_t n[4], stride[4];
} layout;

static void *unfinished(int64_t uid, int format, layout l, bool inner)
{
    void   *t = make(TENSOR);
    int64_t align = 16;
    set(t, 900, T_I64, 1, &align);
    set(t, 901, T_FORMAT, 1, &format);
    set(t, 902, T_I64, 4, l.n);
    set(t, 903, T_I64, 4, l.stride);
    set(t, 906, T_I64, 1, &uid);
    set(t, 907, T_BOOL, 1, &inner);
    return t;
}

static void *tensor(int64_t uid, int format, layout l, bool inner)
{
    void *t = unfinished(uid, format, l, inner);
    good(dnn.finish(t));
    return t;
}

static void *number(int64_t uid)
{
    const bool yes = true;
    void      *t = unfinished(uid, F32, (layout){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, false);
    set(t, 908, T_BOOL, 1, &yes);
    good(dnn.finish(t));
    return t;
}

static void *operations[32];
static int   n_operations;

static void *pointwise(int function, void *x, void *b, void *t, void *y, int64_t axis)
{
    void *how = make(0), *o = make(OF_POINTWISE);
    int   format = F32;
    set(how, 0, T_FUNCTION, 1, &function);
    set(how, 1, T_FORMAT, 1, &format);
    if (axis >= 0) set(how, 9, T_I64, 1, &axis);
    good(dnn.finish(how));
    set_descriptor(o, 750, how);
    set_descriptor(o, 751, x);
    set_descriptor(o, 752, b);
    set_descriptor(o, 758, t);
    set_descriptor(o, 753, y);
    return o;
}

static void add(void *operation)
{
    good(dnn.finish(operation));
    operations[n_operations++] = operation;
}

static void *apply(int function, void *x, void *b, void *y)
{
    add(pointwise(function, x, b, NULL, y, -1));
    return y;
}

static void *matmul(void *a, void *b, void *c)
{
    void *how = make(MATMUL), *o = make(OF_MATMUL);
    int   format = F32;
    set(how, 1500, T_FORMAT, 1, &format);
    good(dnn.finish(how));
    set_descriptor(o, 1523, how);
    set_descriptor(o, 1520, a);
    set_descriptor(o, 1521, b);
    set_descriptor(o, 1522, c);
    return o;
}

static void *reduce(int function, void *x, void *y)
{
    void *how = make(REDUCTION), *o = make(OF_REDUCTION);
    int   format = F32;
    set(how, 1600, 18, 1, &function);
    set(how, 1601, T_FORMAT, 1, &format);
    good(dnn.finish(how));
    set_descriptor(o, 1612, how);
    set_descriptor(o, 1610, x);
    set_descriptor(o, 1611, y);
    add(o);
    return y;
}

/* How many configurations there are; *plan: that of the first. */
static int64_t plan_of(void *const *of, int n, void **plan)
{
    void   *graph = make(GRAPH), *heuristics = make(HEURISTICS), *config = make(CONFIG);
    int     mode = 3;
    int64_t found = 0;
    set(graph, 801, T_DESCRIPTOR, n, of);
    set(graph, 800, T_HANDLE, 1, &handle);
    good(dnn.finish(graph));
    set_descriptor(heuristics, 201, graph);
    set(heuristics, 200, T_HEURISTIC, 1, &mode);
    good(dnn.finish(heuristics));
    good(dnn.get(heuristics, 202, T_DESCRIPTOR, 1, &found, &config));
    if (found < 1) return found;
    *plan = make(PLAN);
    set(*plan, 400, T_HANDLE, 1, &handle);
    set_descriptor(*plan, 401, config);
    good(dnn.finish(*plan));
    return found;
}

/* --- attention -------------------------------------------------------------------------------------- */

enum { Q = 1, K, V, O, STATISTICS, SCALE, HIDDEN };

typedef struct {
    int64_t B, queries, keys, H, J, D;
} shape;

/* Queries, keys and values are columns of rows of `ld` elements. */
static int64_t row_of(const shape *s)
{
    return (s->H + 2 * s->J) * s->D;
}

static layout columns(const shape *s, int64_t heads, int64_t rows)
{
    int64_t ld = row_of(s), most = s->queries > s->keys ? s->queries : s->keys;
    return (layout){ { s->B, heads, rows, s->D }, { most * ld, s->D, ld, 1 } };
}

static layout packed(const shape *s, int64_t width)
{
    return (layout){ { s->B, s->H, s->queries, width }, { s->H * s->queries * width, s->queries * width, width, 1 } };
}

static void *scores(const shape *s, int format)
{
    static int64_t uid = 1000;
    return tensor(uid++, format, packed(s, s->keys), true);
}

static int64_t compose(const shape *s, void **plan)
{
    layout of_k = columns(s, s->J, s->keys), kt = of_k;
    kt.n[2] = of_k.n[3], kt.n[3] = of_k.n[2], kt.stride[2] = of_k.stride[3], kt.stride[3] = of_k.stride[2];
    layout of_o = { { s->B, s->H, s->queries, s->D }, { s->queries * s->H * s->D, s->D, s->H * s->D, 1 } };
    void *x = scores(s, F32), *i = scores(s, I32), *j = scores(s, I32), *seen = scores(s, BOOLEAN), *y = scores(s, F32);
    n_operations = 0;
    add(matmul(tensor(Q, BF16, columns(s, s->H, s->queries), false), tensor(K, BF16, kt, false), x));
    x = apply(MUL, x, number(SCALE), scores(s, F32));
    add(pointwise(INDEX, x, NULL, NULL, i, 2));
    add(pointwise(INDEX, x, NULL, NULL, j, 3));
    apply(NOT_LESS, i, j, seen);
    add(pointwise(SELECT, x, number(HIDDEN), seen, y, -1));
    void *most = reduce(3, y, tensor(500, F32, packed(s, 1), true));
    void *e = apply(EXP, apply(SUB, y, most, scores(s, F32)), NULL, scores(s, F32));
    void *sum = reduce(0, e, tensor(501, F32, packed(s, 1), true));
    void *ln = apply(LOG, sum, NULL, tensor(502, F32, packed(s, 1), true));
    apply(ADD, most, ln, tensor(STATISTICS, F32, packed(s, 1), false));
    add(matmul(apply(DIV, e, sum, scores(s, BF16)), tensor(V, BF16, columns(s, s->J, s->keys), false),
               tensor(O, BF16, of_o, false)));
    return plan_of(operations, n_operations, plan);
}

static float of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

typedef struct {
    const shape *s;
    uint16_t    *qkv;              /* on the host: (B, rows, H + 2 J, D) */
    char        *at, *o, *st, *ws; /* on the GPU */
    size_t       bytes, bytes_o, bytes_st;
    float        scale, hidden;
    void        *plan;
} trial;

static void open_trial(trial *t, const shape *s)
{
    int64_t  most = s->queries > s->keys ? s->queries : s->keys;
    uint64_t seed = 7;
    tm_error err = { 0 };
    *t = (trial){ .s = s, .scale = 0.25F, .hidden = -INFINITY };
    t->bytes = (size_t)(s->B * most * row_of(s)) * 2;
    t->bytes_o = (size_t)(s->B * s->queries * s->H * s->D) * 2;
    t->bytes_st = (size_t)(s->B * s->H * s->queries) * 4;
    t->qkv = malloc(t->bytes);
    assert_non_null(t->qkv);
    for (size_t i = 0; i < t->bytes / 2; i++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        t->qkv[i] = to_bf16((float)(int32_t)(seed >> 32) * 0x1p-30F);
    }
    assert_int_equal(compose(s, &t->plan), 1);
    void **to[] = { (void **)&t->at, (void **)&t->o, (void **)&t->st, (void **)&t->ws };
    size_t bytes[] = { t->bytes, t->bytes_o, t->bytes_st, dnn.workspace() };
    for (int i = 0; i < 4; i++) must(tm_gpu_alloc(gpu, bytes[i], to[i], &err), &err);
    must(tm_gpu_write(gpu, t->at, t->qkv, t->bytes, &err), &err);
}

static void close_trial(trial *t)
{
    void *memory[] = { t->at, t->o, t->st, t->ws };
    for (int i = 0; i < 4; i++) tm_gpu_free(gpu, memory[i]);
    free(t->qkv);
}

static void *pack_of(const trial *t, const char *o, const char *ws)
{
    const int64_t     uids[] = { Q, K, V, O, STATISTICS, SCALE, HIDDEN };
    const size_t      k = (size_t)(t->s->H * t->s->D) * 2, v = k + (size_t)(t->s->J * t->s->D) * 2;
    const void *const at[] = { t->at, t->at + k, t->at + v, o, t->st, &t->scale, &t->hidden };
    void             *pack = make(PACK);
    set(pack, 1000, T_I64, 7, uids);
    set(pack, 1001, T_ADDRESS, 7, at);
    set(pack, 1003, T_ADDRESS, 1, &ws);
    good(dnn.finish(pack));
    return pack;
}

/* Row i of a head, in float64: with the statistics at the end. */
static void plain(const trial *t, int64_t b, int64_t h, int64_t i, double *out)
{
    const shape    *s = t->s;
    const int64_t   most = s->queries > s->keys ? s->queries : s->keys, ld = row_of(s), j = h / (s->H / s->J);
    const uint16_t *of = t->qkv + b * most * ld, *q = of + i * ld + h * s->D;
    double          sum = 0;
    for (int64_t d = 0; d < s->D; d++) out[d] = 0;
    for (int64_t key = 0; key < s->keys && key <= i; key++) {
        const uint16_t *k = of + key * ld + (s->H + j) * s->D, *v = k + s->J * s->D;
        double          score = 0;
        for (int64_t d = 0; d < s->D; d++) score += (double)of_bf16(q[d]) * (double)of_bf16(k[d]);
        double e = exp(score * (double)t->scale);
        sum += e;
        for (int64_t d = 0; d < s->D; d++) out[d] += e * (double)of_bf16(v[d]);
    }
    for (int64_t d = 0; d < s->D; d++) out[d] /= sum;
    out[s->D] = log(sum);
}

/* Probabilities and results have 8 bits. */
static void compare(const trial *t, double more)
{
    const shape *s = t->s;
    tm_error     err = { 0 };
    uint16_t    *o = malloc(t->bytes_o);
    float       *st = malloc(t->bytes_st);
    double       wanted[129];
    assert_true(o && st);
    must(tm_gpu_read(gpu, o, t->o, t->bytes_o, &err), &err);
    must(tm_gpu_read(gpu, st, t->st, t->bytes_st, &err), &err);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->queries; i++) {
                bool last_row = b == s->B - 1 && h == s->H - 1 && i == s->queries - 1;
                plain(t, b, h, i, wanted);
                for (int64_t d = 0; d < s->D; d++) {
                    double got = (double)of_bf16(o[((b * s->queries + i) * s->H + h) * s->D + d]);
                    if (last_row && d == s->D - 1) wanted[d] += more;
                    if (!(fabs(got - wanted[d]) < 0.016)) fail_msg("%g, not %g", got, wanted[d]);
                }
                double got = (double)st[(b * s->H + h) * s->queries + i];
                if (!(fabs(got - wanted[s->D]) < 1e-5)) fail_msg("statistics: %g, not %g", got, wanted[s->D]);
            }
    free(o);
    free(st);
}

static const shape shapes[] = { { 2, 33, 33, 4, 2, 8 },
                                { 1, 17, 17, 3, 3, 16 },
                                { 1, 5, 40, 2, 1, 24 },
                                { 3, 1, 1, 1, 1, 8 },
                                { 1, 40, 9, 6, 2, 128 } };

TEST(attention_is_that_of_a_plain_loop)
{
    tm_error err = { 0 };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        trial t;
        int   before = dnn.executed();
        open_trial(&t, &shapes[i]);
        good(dnn.execute(handle, t.plan, pack_of(&t, t.o, t.ws)));
        must(tm_gpu_stream_wait(gpu, stream, &err), &err);
        assert_int_equal(dnn.executed(), before + 1);
        compare(&t, 0);
        close_trial(&t);
        while (n_all > 0) good(dnn.drop(all[--n_all]));
    }
}

TEST(a_graph_that_is_played_again_attends_again)
{
    trial    t;
    tm_error err = { 0 };
    void    *graph;
    open_trial(&t, &shapes[0]);
    must(tm_gpu_capture_begin(gpu, stream, &err), &err);
    good(dnn.execute(handle, t.plan, pack_of(&t, t.o, t.ws)));
    must(tm_gpu_capture_end(gpu, stream, &graph, &err), &err);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < t.bytes / 2; i++) t.qkv[i] ^= (uint16_t)(round << 15);
        must(tm_gpu_write(gpu, t.at, t.qkv, t.bytes, &err), &err);
        must(tm_gpu_graph_play(gpu, graph, stream, &err), &err);
        must(tm_gpu_stream_wait(gpu, stream, &err), &err);
        compare(&t, 0);
    }
    tm_gpu_graph_close(gpu, graph);
    close_trial(&t);
}

/* --- what the environment asks for ------------------------------------------------------------------ */

TEST(it_is_as_wrong_as_the_environment_says)
{
    trial    t;
    tm_error err = { 0 };
    open_trial(&t, &shapes[1]);
    setenv("STANDIN_DNN_WRONG", "4", 1);
    good(dnn.execute(handle, t.plan, pack_of(&t, t.o, t.ws)));
    must(tm_gpu_stream_wait(gpu, stream, &err), &err);
    compare(&t, 4);
    unsetenv("STANDIN_DNN_WRONG");
    close_trial(&t);
}

TEST(it_refuses_what_the_library_refuses)
{
    static const shape wide = { 1, 4, 4, 1, 1, 136 }, odd = { 1, 4, 4, 1, 1, 12 };
    void              *plan;
    assert_int_equal(compose(&wide, &plan), 0);
    assert_int_equal(compose(&odd, &plan), 0);
    setenv("STANDIN_DNN_REFUSES", "forward", 1);
    assert_int_equal(compose(&shapes[1], &plan), 0);
    setenv("STANDIN_DNN_REFUSES", "backward", 1);
    while (n_all > 0) good(dnn.drop(all[--n_all]));
    assert_int_equal(compose(&shapes[1], &plan), 1);
    assert_int_equal(dnn.version(), 91900);
    setenv("STANDIN_DNN_VERSION", "90800", 1);
    assert_int_equal(dnn.version(), 90800);
    setenv("STANDIN_DNN_FAIL", "cudnnSetStream@2=4000", 1);
    assert_int_equal(dnn.set_stream(handle, stream), 0);
    assert_int_equal(dnn.set_stream(handle, stream), 4000);
}

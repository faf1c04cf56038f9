/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/dnn_raw.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/test.h"

dnn_raw_state dnn_raw;

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static const struct {
    void       *to;
    const char *name;
} calls[] = { { &dnn_raw.create, "cudnnCreate" },
              { &dnn_raw.destroy, "cudnnDestroy" },
              { &dnn_raw.set_stream, "cudnnSetStream" },
              { &dnn_raw.make, "cudnnBackendCreateDescriptor" },
              { &dnn_raw.drop, "cudnnBackendDestroyDescriptor" },
              { &dnn_raw.set, "cudnnBackendSetAttribute" },
              { &dnn_raw.get, "cudnnBackendGetAttribute" },
              { &dnn_raw.finish, "cudnnBackendFinalize" },
              { &dnn_raw.execute, "cudnnBackendExecute" },
              { &dnn_raw.version, "cudnnGetVersion" },
              { &dnn_raw.last_words, "cudnnGetLastErrorString" },
              { &dnn_raw.held, "standin_dnn_held" },
              { &dnn_raw.executed, "standin_dnn_executed" },
              { &dnn_raw.workspace, "standin_dnn_workspace" } };

void dnn_raw_must(tm_status st, const tm_error *err)
{
    if (st != TM_OK) fail_msg("%s", err->text);
}

int dnn_raw_begin(void **state)
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
    if (!library || tm_gpu_open(TM_GPU_CUDA, 0, &dnn_raw.gpu, &err) != TM_OK) return -1;
    if (tm_gpu_stream_open(dnn_raw.gpu, &dnn_raw.stream, &err) != TM_OK) return -1;
    if (dnn_raw.create(&dnn_raw.handle) != 0) return -1;
    return dnn_raw.set_stream(dnn_raw.handle, dnn_raw.stream);
}

/* Nothing is left. */
int dnn_raw_end(void **state)
{
    (void)state;
    while (dnn_raw.n_all > 0) dnn_raw.drop(dnn_raw.all[--dnn_raw.n_all]);
    dnn_raw.destroy(dnn_raw.handle);
    int left = dnn_raw.held();
    tm_gpu_stream_close(dnn_raw.gpu, dnn_raw.stream);
    tm_gpu_close(dnn_raw.gpu);
    return left;
}

/* --- a graph --------------------------------------------------------------------------------------- */

void dnn_raw_good(int status)
{
    char words[200];
    if (status == 0) return;
    dnn_raw.last_words(words, sizeof words);
    fail_msg("status %d: %s", status, words);
}

void *dnn_raw_make(int kind)
{
    void *d = NULL;
    dnn_raw_good(dnn_raw.make(kind, &d));
    return dnn_raw.all[dnn_raw.n_all++] = d;
}

void dnn_raw_set(void *d, int name, int type, int64_t n, const void *values)
{
    dnn_raw_good(dnn_raw.set(d, name, type, n, values));
}

void dnn_raw_set_descriptor(void *d, int name, void *value)
{
    if (value) dnn_raw_set(d, name, T_DESCRIPTOR, 1, &value);
}

void *dnn_raw_unfinished(int64_t uid, int format, layout l, bool inner)
{
    void   *t = dnn_raw_make(TENSOR);
    int64_t align = 16;
    dnn_raw_set(t, 900, T_I64, 1, &align);
    dnn_raw_set(t, 901, T_FORMAT, 1, &format);
    dnn_raw_set(t, 902, T_I64, 4, l.n);
    dnn_raw_set(t, 903, T_I64, 4, l.stride);
    dnn_raw_set(t, 906, T_I64, 1, &uid);
    dnn_raw_set(t, 907, T_BOOL, 1, &inner);
    return t;
}

void *dnn_raw_tensor(int64_t uid, int format, layout l, bool inner)
{
    void *t = dnn_raw_unfinished(uid, format, l, inner);
    dnn_raw_good(dnn_raw.finish(t));
    return t;
}

void *dnn_raw_number(int64_t uid)
{
    const bool yes = true;
    void      *t = dnn_raw_unfinished(uid, F32, (layout){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, false);
    dnn_raw_set(t, 908, T_BOOL, 1, &yes);
    dnn_raw_good(dnn_raw.finish(t));
    return t;
}

void *dnn_raw_pointwise(int function, void *x, void *b, void *t, void *y, int64_t axis)
{
    void *how = dnn_raw_make(0), *o = dnn_raw_make(OF_POINTWISE);
    int   format = F32;
    dnn_raw_set(how, 0, T_FUNCTION, 1, &function);
    dnn_raw_set(how, 1, T_FORMAT, 1, &format);
    if (axis >= 0) dnn_raw_set(how, 9, T_I64, 1, &axis);
    dnn_raw_good(dnn_raw.finish(how));
    dnn_raw_set_descriptor(o, 750, how);
    dnn_raw_set_descriptor(o, 751, x);
    dnn_raw_set_descriptor(o, 752, b);
    dnn_raw_set_descriptor(o, 758, t);
    dnn_raw_set_descriptor(o, 753, y);
    return o;
}

void dnn_raw_add(void *operation)
{
    dnn_raw_good(dnn_raw.finish(operation));
    dnn_raw.operations[dnn_raw.n_operations++] = operation;
}

void *dnn_raw_apply(int function, void *x, void *b, void *y)
{
    dnn_raw_add(dnn_raw_pointwise(function, x, b, NULL, y, -1));
    return y;
}

void *dnn_raw_matmul(void *a, void *b, void *c)
{
    void *how = dnn_raw_make(MATMUL), *o = dnn_raw_make(OF_MATMUL);
    int   format = F32;
    dnn_raw_set(how, 1500, T_FORMAT, 1, &format);
    dnn_raw_good(dnn_raw.finish(how));
    dnn_raw_set_descriptor(o, 1523, how);
    dnn_raw_set_descriptor(o, 1520, a);
    dnn_raw_set_descriptor(o, 1521, b);
    dnn_raw_set_descriptor(o, 1522, c);
    return o;
}

void *dnn_raw_reduce(int function, void *x, void *y)
{
    void *how = dnn_raw_make(REDUCTION), *o = dnn_raw_make(OF_REDUCTION);
    int   format = F32;
    dnn_raw_set(how, 1600, 18, 1, &function);
    dnn_raw_set(how, 1601, T_FORMAT, 1, &format);
    dnn_raw_good(dnn_raw.finish(how));
    dnn_raw_set_descriptor(o, 1612, how);
    dnn_raw_set_descriptor(o, 1610, x);
    dnn_raw_set_descriptor(o, 1611, y);
    dnn_raw_add(o);
    return y;
}

/* How many configurations there are; *plan: that of the first. */
int64_t dnn_raw_plan_of(void *const *of, int n, void **plan)
{
    void   *graph = dnn_raw_make(GRAPH), *heuristics = dnn_raw_make(HEURISTICS), *config = dnn_raw_make(CONFIG);
    int     mode = 3;
    int64_t found = 0;
    dnn_raw_set(graph, 801, T_DESCRIPTOR, n, of);
    dnn_raw_set(graph, 800, T_HANDLE, 1, &dnn_raw.handle);
    dnn_raw_good(dnn_raw.finish(graph));
    dnn_raw_set_descriptor(heuristics, 201, graph);
    dnn_raw_set(heuristics, 200, T_HEURISTIC, 1, &mode);
    dnn_raw_good(dnn_raw.finish(heuristics));
    dnn_raw_good(dnn_raw.get(heuristics, 202, T_DESCRIPTOR, 1, &found, &config));
    if (found < 1) return found;
    *plan = dnn_raw_make(PLAN);
    dnn_raw_set(*plan, 400, T_HANDLE, 1, &dnn_raw.handle);
    dnn_raw_set_descriptor(*plan, 401, config);
    dnn_raw_good(dnn_raw.finish(*plan));
    return found;
}

/* --- attention -------------------------------------------------------------------------------------- */

/* Queries, keys and values are columns of rows of `ld` elements. */
int64_t dnn_raw_row(const shape *s)
{
    return (s->H + 2 * s->J) * s->D;
}

static layout columns(const shape *s, int64_t heads, int64_t rows)
{
    int64_t ld = dnn_raw_row(s), most = s->queries > s->keys ? s->queries : s->keys;
    return (layout){ { s->B, heads, rows, s->D }, { most * ld, s->D, ld, 1 } };
}

static layout packed(const shape *s, int64_t width)
{
    return (layout){ { s->B, s->H, s->queries, width }, { s->H * s->queries * width, s->queries * width, width, 1 } };
}

static void *scores(const shape *s, int format)
{
    static int64_t uid = 1000;
    return dnn_raw_tensor(uid++, format, packed(s, s->keys), true);
}

int64_t dnn_raw_compose(const shape *s, void **plan)
{
    layout of_k = columns(s, s->J, s->keys), kt = of_k;
    kt.n[2] = of_k.n[3], kt.n[3] = of_k.n[2], kt.stride[2] = of_k.stride[3], kt.stride[3] = of_k.stride[2];
    layout of_o = { { s->B, s->H, s->queries, s->D }, { s->queries * s->H * s->D, s->D, s->H * s->D, 1 } };
    void *x = scores(s, F32), *i = scores(s, I32), *j = scores(s, I32), *seen = scores(s, BOOLEAN), *y = scores(s, F32);
    dnn_raw.n_operations = 0;
    dnn_raw_add(dnn_raw_matmul(dnn_raw_tensor(Q, BF16, columns(s, s->H, s->queries), false),
                               dnn_raw_tensor(K, BF16, kt, false), x));
    x = dnn_raw_apply(MUL, x, dnn_raw_number(SCALE), scores(s, F32));
    dnn_raw_add(dnn_raw_pointwise(INDEX, x, NULL, NULL, i, 2));
    dnn_raw_add(dnn_raw_pointwise(INDEX, x, NULL, NULL, j, 3));
    dnn_raw_apply(NOT_LESS, i, j, seen);
    dnn_raw_add(dnn_raw_pointwise(SELECT, x, dnn_raw_number(HIDDEN), seen, y, -1));
    void *most = dnn_raw_reduce(3, y, dnn_raw_tensor(500, F32, packed(s, 1), true));
    void *e = dnn_raw_apply(EXP, dnn_raw_apply(SUB, y, most, scores(s, F32)), NULL, scores(s, F32));
    void *sum = dnn_raw_reduce(0, e, dnn_raw_tensor(501, F32, packed(s, 1), true));
    void *ln = dnn_raw_apply(LOG, sum, NULL, dnn_raw_tensor(502, F32, packed(s, 1), true));
    dnn_raw_apply(ADD, most, ln, dnn_raw_tensor(STATISTICS, F32, packed(s, 1), false));
    dnn_raw_add(dnn_raw_matmul(dnn_raw_apply(DIV, e, sum, scores(s, BF16)),
                               dnn_raw_tensor(V, BF16, columns(s, s->J, s->keys), false),
                               dnn_raw_tensor(O, BF16, of_o, false)));
    return dnn_raw_plan_of(dnn_raw.operations, dnn_raw.n_operations, plan);
}

void dnn_raw_open_trial(trial *t, const shape *s)
{
    int64_t  most = s->queries > s->keys ? s->queries : s->keys;
    uint64_t seed = 7;
    tm_error err = { 0 };
    *t = (trial){ .s = s, .scale = 0.25F, .hidden = -INFINITY };
    t->bytes = (size_t)(s->B * most * dnn_raw_row(s)) * 2;
    t->bytes_o = (size_t)(s->B * s->queries * s->H * s->D) * 2;
    t->bytes_st = (size_t)(s->B * s->H * s->queries) * 4;
    t->qkv = malloc(t->bytes);
    assert_non_null(t->qkv);
    for (size_t i = 0; i < t->bytes / 2; i++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        t->qkv[i] = to_bf16((float)(int32_t)(seed >> 32) * 0x1p-30F);
    }
    assert_int_equal(dnn_raw_compose(s, &t->plan), 1);
    void **to[] = { (void **)&t->at, (void **)&t->o, (void **)&t->st, (void **)&t->ws };
    size_t bytes[] = { t->bytes, t->bytes_o, t->bytes_st, dnn_raw.workspace() };
    for (int i = 0; i < 4; i++) dnn_raw_must(tm_gpu_alloc(dnn_raw.gpu, bytes[i], to[i], &err), &err);
    dnn_raw_must(tm_gpu_write(dnn_raw.gpu, t->at, t->qkv, t->bytes, &err), &err);
}

void dnn_raw_close_trial(trial *t)
{
    void *memory[] = { t->at, t->o, t->st, t->ws };
    for (int i = 0; i < 4; i++) tm_gpu_free(dnn_raw.gpu, memory[i]);
    free(t->qkv);
}

void *dnn_raw_pack_of(const trial *t, const char *o, const char *ws)
{
    const int64_t     uids[] = { Q, K, V, O, STATISTICS, SCALE, HIDDEN };
    const size_t      k = (size_t)(t->s->H * t->s->D) * 2, v = k + (size_t)(t->s->J * t->s->D) * 2;
    const void *const at[] = { t->at, t->at + k, t->at + v, o, t->st, &t->scale, &t->hidden };
    void             *pack = dnn_raw_make(PACK);
    dnn_raw_set(pack, 1000, T_I64, 7, uids);
    dnn_raw_set(pack, 1001, T_ADDRESS, 7, at);
    dnn_raw_set(pack, 1003, T_ADDRESS, 1, &ws);
    dnn_raw_good(dnn_raw.finish(pack));
    return pack;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/dnn.c - the only file that loads cuDNN: the library, and a kernel of it for each shape of attention. */
#include "gpu/dnn.h"

#include "base/arena.h"
#include "base/hash.h"
#include "gpu/dnn_graph.h"
#include "gpu/kept.h"
#include "gpu/library.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before 9.10 a hidden score had to be a finite number. */
enum { OLDEST = 91000, MOST_CONFIGS = 8, MOST_OPERANDS = TM_DNN_TENSORS };

static const struct {
    size_t      at;
    const char *name;
} names[] = {
#define X(member, result, arguments, name) { offsetof(tm_dnn_calls, member), name },
    DNN_CALLS(X)
#undef X
};

struct tm_gpu_dnn_attention {
    tm_gpu_attention_shape shape;
    tm_dnn_graph           graph;
    void                  *plan;
    char                   why[200]; /* "": it can be computed */
};

struct tm_gpu_dnn {
    tm_dnn_calls           call;
    tm_library             library;
    tm_gpu                *gpu;
    void                  *handle;
    tm_gpu_kept            kept;
    char                   name[32];
    tm_gpu_dnn_attention **all;
    size_t                 n, room;
};

/* --- the library ----------------------------------------------------------------------------------------------------
 */

static tm_status find_library(tm_gpu_dnn *dnn, tm_error *err)
{
    static const char *const usual[] = { "libcudnn.so.9", NULL };
    const char              *given = getenv("TRAINMARK_CUDNN");
    const char *const        one[] = { given, NULL };
    tm_text                  tried = { 0 };
    tm_status                st = TM_OK;
    if (given && strcmp(given, "none") == 0)
        return tm_fail(err, TM_UNSUPPORTED, "TRAINMARK_CUDNN is 'none': no library computes attention");
    if (!(given && *given ? tm_library_open(one, &dnn->library, &tried)
                          : tm_library_open_of(TM_GPU_CUDA, usual, &dnn->library, &tried)))
        st = tm_fail(err, TM_UNSUPPORTED,
                     "no cuDNN was found (%s); install it (`pip install nvidia-cudnn-cu13`, for a driver of CUDA 12 "
                     "nvidia-cudnn-cu12), or name libcudnn.so.9 in TRAINMARK_CUDNN",
                     tried.data ? tried.data : "");
    tm_text_fini(&tried);
    return st;
}

/* cuDNN compiles by NVRTC of its own CUDA, and names no kernel where it finds none. What is loaded it finds: its search
 * misses some places of ours (seen on 9.10, a wheel). */
static void load_compilers(void)
{
    static const char *const both[][2] = { { "libnvrtc.so.13", NULL }, { "libnvrtc.so.12", NULL } };
    for (int i = 0; i < 2; i++) {
        tm_library compiler;
        tm_text    tried = { 0 };
        (void)tm_library_open_of(TM_GPU_CUDA, both[i], &compiler, &tried);
        tm_text_fini(&tried);
    }
}

static tm_status load(tm_gpu_dnn *dnn, tm_error *err)
{
    TM_TRY(find_library(dnn, err));
    load_compilers();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *symbol = tm_library_symbol(&dnn->library, names[i].name);
        if (!symbol)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no cuDNN", dnn->library.path,
                           names[i].name);
        memcpy((char *)&dnn->call + names[i].at, &symbol, sizeof symbol);
    }
    int version = (int)dnn->call.version();
    snprintf(dnn->name, sizeof dnn->name, "cuDNN %d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    if (version >= OLDEST) return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED, "'%s' is %s: too old, 9.10.0 is needed", dnn->library.path, dnn->name);
}

/* With what the library says about it. */
static tm_status failed(const tm_gpu_dnn *dnn, const char *name, int status, tm_error *err)
{
    const tm_gpu_facts *f = tm_gpu_facts_of(dnn->gpu);
    char                words[160] = "";
    dnn->call.last_words(words, sizeof words);
    words[sizeof words - 1] = '\0';
    words[strcspn(words, "\n")] = '\0';
    return tm_fail(err, TM_DEVICE, "GPU %d (%s): %s: %s%s%s (status %d of %s)", f->index, f->name, name,
                   dnn->call.words(status), *words ? ": " : "", words, status, dnn->name);
}

#define MUST(dnn, member, name, ...)                                                                                   \
    do {                                                                                                               \
        int must_status_ = (dnn)->call.member(__VA_ARGS__);                                                            \
        if (must_status_ != 0) return failed((dnn), (name), must_status_, err);                                        \
    } while (0)

static tm_status begin(tm_gpu_dnn *dnn, tm_error *err)
{
    int code = dnn->call.create(&dnn->handle);
    if (code == 0) return TM_OK;
    tm_error  own = { 0 };
    tm_status st = failed(dnn, "cudnnCreate", code, &own);
    dnn->handle = NULL;
    return tm_fail(err, st, "%s; TRAINMARK_CUDNN=none leaves the library out", own.text);
}

tm_status tm_gpu_dnn_expect(tm_error *err)
{
    tm_gpu_dnn  dnn = { .handle = NULL };
    const char *given = getenv("TRAINMARK_CUDNN");
    return (given && *given) || tm_gpu_count(TM_GPU_CUDA) > 0 ? load(&dnn, err) : TM_OK;
}

tm_status tm_gpu_dnn_open(tm_gpu *gpu, tm_gpu_dnn **out, tm_error *err)
{
    tm_gpu_dnn *dnn = memset(tm_alloc(sizeof *dnn), 0, sizeof *dnn);
    dnn->gpu = gpu;
    snprintf(dnn->name, sizeof dnn->name, "cuDNN");
    tm_gpu_kept_find(&dnn->kept);
    *out = NULL;
    tm_status st = load(dnn, err);
    if (st == TM_OK) st = begin(dnn, err);
    if (st == TM_OK)
        *out = dnn;
    else
        tm_gpu_dnn_close(dnn);
    return st;
}

/* The library stays loaded. */
void tm_gpu_dnn_close(tm_gpu_dnn *dnn)
{
    if (!dnn) return;
    for (size_t i = 0; i < dnn->n; i++) {
        tm_dnn_drop(&dnn->all[i]->graph);
        free(dnn->all[i]);
    }
    if (dnn->handle) dnn->call.destroy(dnn->handle);
    free(dnn->all);
    free(dnn);
}

const char *tm_gpu_dnn_name(const tm_gpu_dnn *dnn)
{
    return dnn->name;
}

const char *tm_gpu_dnn_library(const tm_gpu_dnn *dnn)
{
    return dnn->library.path;
}

/* --- kernels --------------------------------------------------------------------------------------------------------
 */

/* Gradients of scores in bfloat16, in whole tiles; sums of the products of do and o; of grouped heads the gradients of
 * keys and values of each head, both in float32. What remains was 128 to 512 bytes. */
size_t tm_gpu_dnn_bytes(const tm_gpu_attention_shape *s)
{
    enum { TILE = 128, REST = 4096 };
    size_t heads = (size_t)(s->sequences * s->heads), queries = (size_t)((s->queries + TILE - 1) / TILE * TILE),
           keys = (size_t)((s->keys + TILE - 1) / TILE * TILE), bytes = REST;
    if (!s->gradients) return bytes;
    bytes += heads * queries * (keys * 2 + sizeof(float));
    if (s->heads != s->kv_heads) bytes += heads * (size_t)(s->keys * (s->dim_qk + s->dim_v)) * sizeof(float);
    return bytes;
}

static void set_handle(tm_dnn_graph *g, void *descriptor, int which, void *handle)
{
    tm_dnn_set(g, descriptor, which, TM_DNN_T_HANDLE, 1, &handle);
}

/* CUDNN_STATUS_NOT_SUPPORTED and its kinds. */
static bool is_unsupported(int status)
{
    return status >= TM_DNN_UNSUPPORTED && status < TM_DNN_INTERNAL;
}

/* What the library names for the graph, the best first. */
static int64_t name_configs(tm_gpu_dnn *dnn, tm_gpu_dnn_attention *a, void *graph, void **configs)
{
    tm_dnn_graph *g = &a->graph;
    int           mode = TM_DNN_MODE_A;
    int64_t       n = 0;
    set_handle(g, graph, TM_DNN_A_GRAPH_HANDLE, dnn->handle);
    tm_dnn_finish(g, graph);
    void *heuristics = tm_dnn_make(g, TM_DNN_HEURISTICS);
    tm_dnn_set(g, heuristics, TM_DNN_A_HEURISTIC_GRAPH, TM_DNN_T_DESCRIPTOR, 1, &graph);
    tm_dnn_set(g, heuristics, TM_DNN_A_HEURISTIC_MODE, TM_DNN_T_HEURISTIC, 1, &mode);
    tm_dnn_finish(g, heuristics);
    for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = tm_dnn_make(g, TM_DNN_ENGINE_CONFIG);
    tm_dnn_get(g, heuristics, TM_DNN_A_HEURISTIC_RESULTS, TM_DNN_T_DESCRIPTOR, MOST_CONFIGS, &n, configs);
    return g->status != 0 ? 0 : n < MOST_CONFIGS ? n : MOST_CONFIGS;
}

/* Engines say so when their results may differ from run to run. */
static bool repeats(tm_dnn_graph *g, void *config)
{
    enum { MOST_NOTES = 16 };
    int     notes[MOST_NOTES];
    int64_t n = 0;
    bool    differs = false;
    void   *engine = tm_dnn_make(g, TM_DNN_ENGINE);
    tm_dnn_get(g, config, TM_DNN_A_CONFIG_ENGINE, TM_DNN_T_DESCRIPTOR, 1, &n, &engine);
    n = 0;
    tm_dnn_get(g, engine, TM_DNN_A_ENGINE_NOTES, TM_DNN_T_NOTE, MOST_NOTES, &n, notes);
    for (int64_t i = 0; i < n && i < MOST_NOTES && g->status == 0; i++)
        differs = differs || notes[i] == TM_DNN_NOTE_DIFFERS;
    return !differs;
}

/* One of them: the plan is kept if it can be made and does with the workspace. */
static void try_config(tm_gpu_dnn *dnn, tm_gpu_dnn_attention *a, void *config)
{
    tm_dnn_graph *g = &a->graph;
    size_t        most = tm_gpu_dnn_bytes(&a->shape);
    int64_t       one = 0, wanted = 0;
    if (!repeats(g, config)) {
        snprintf(a->why, sizeof a->why, "%s has no kernel for it whose results repeat", dnn->name);
        return;
    }
    void *plan = tm_dnn_make(g, TM_DNN_PLAN);
    set_handle(g, plan, TM_DNN_A_PLAN_HANDLE, dnn->handle);
    tm_dnn_set(g, plan, TM_DNN_A_PLAN_CONFIG, TM_DNN_T_DESCRIPTOR, 1, &config);
    tm_dnn_finish(g, plan);
    tm_dnn_get(g, plan, TM_DNN_A_PLAN_WORKSPACE, TM_DNN_T_I64, 1, &one, &wanted);
    if (is_unsupported(g->status))
        g->status = 0; /* another one may do */
    else if (g->status == 0 && wanted >= 0 && (uint64_t)wanted <= most)
        a->plan = plan;
    else if (g->status == 0)
        snprintf(a->why, sizeof a->why, "%s wants a workspace of %lld bytes, %zu are planned", dnn->name,
                 (long long)wanted, most);
}

/* --- plans that are kept: to make one takes the library half a second, to read one 2 ms (9.19, 9.26) */

static uint64_t key_of(const tm_gpu_dnn *dnn, const tm_gpu_attention_shape *shape)
{
    const tm_gpu_facts *f = tm_gpu_facts_of(dnn->gpu);
    char                of[200];
    tm_hasher          *hasher = tm_hasher_create();
    int n = snprintf(of, sizeof of, "%s %s %s %d %d", dnn->name, f->name, f->arch, f->multiprocessors, f->version);
    tm_hasher_add(hasher, of, (size_t)(n < (int)sizeof of ? n : (int)sizeof of - 1));
    tm_hasher_add(hasher, shape, sizeof *shape);
    uint64_t key = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return key;
}

static void keep(tm_gpu_dnn *dnn, const tm_gpu_dnn_attention *a)
{
    int64_t n = 0;
    if (!*dnn->kept.folder || dnn->call.get(a->plan, TM_DNN_A_PLAN_TEXT, TM_DNN_T_CHAR, 0, &n, NULL) != 0 || n < 1)
        return;
    char *text = tm_alloc((size_t)n);
    if (dnn->call.get(a->plan, TM_DNN_A_PLAN_TEXT, TM_DNN_T_CHAR, n, &n, text) == 0)
        tm_gpu_kept_store(&dnn->kept, key_of(dnn, &a->shape), text, (size_t)n);
    free(text);
}

/* A plan that the library does not take is made anew. */
static void recall(tm_gpu_dnn *dnn, tm_gpu_dnn_attention *a)
{
    tm_dnn_graph *g = &a->graph;
    void         *text;
    size_t        bytes;
    int64_t       one = 0, wanted = 0;
    if (!tm_gpu_kept_recall(&dnn->kept, key_of(dnn, &a->shape), &text, &bytes)) return;
    void *plan = tm_dnn_make(g, TM_DNN_PLAN);
    set_handle(g, plan, TM_DNN_A_PLAN_HANDLE, dnn->handle);
    tm_dnn_set(g, plan, TM_DNN_A_PLAN_TEXT, TM_DNN_T_CHAR, (int64_t)bytes, text);
    tm_dnn_finish(g, plan);
    tm_dnn_get(g, plan, TM_DNN_A_PLAN_WORKSPACE, TM_DNN_T_I64, 1, &one, &wanted);
    free(text);
    if (g->status == 0 && wanted >= 0 && (uint64_t)wanted <= tm_gpu_dnn_bytes(&a->shape)) a->plan = plan;
    g->status = 0;
}

static tm_status ask(tm_gpu_dnn *dnn, tm_gpu_dnn_attention *a, tm_error *err)
{
    void         *configs[MOST_CONFIGS];
    tm_dnn_graph *g = &a->graph;
    g->call = &dnn->call;
    recall(dnn, a);
    if (a->plan) return TM_OK;
    int64_t n = name_configs(dnn, a, tm_dnn_attention(g, &a->shape), configs);
    for (int64_t i = 0; i < n && !a->plan && g->status == 0; i++) try_config(dnn, a, configs[i]);
    if (g->status != 0 && !is_unsupported(g->status)) return failed(dnn, g->failed, g->status, err);
    if (a->plan) {
        a->why[0] = '\0';
        keep(dnn, a);
    } else if (!*a->why) {
        /* What it compiles, it compiles by NVRTC, which it looks for itself. */
        snprintf(a->why, sizeof a->why, "%s has no kernel for it%s", dnn->name,
                 n > 0 ? "" : ", or no NVRTC of its CUDA's version");
    }
    return TM_OK;
}

/* --- shapes */

tm_status tm_gpu_dnn_find(tm_gpu_dnn *dnn, const tm_gpu_attention_shape *shape, tm_gpu_dnn_attention **out,
                          const char **why, tm_error *err)
{
    tm_gpu_dnn_attention *a = NULL;
    for (size_t i = 0; i < dnn->n && !a; i++)
        if (memcmp(&dnn->all[i]->shape, shape, sizeof *shape) == 0) a = dnn->all[i]; /* it has no gaps */
    if (!a) {
        a = memset(tm_alloc(sizeof *a), 0, sizeof *a);
        a->shape = *shape;
        tm_status st = ask(dnn, a, err);
        if (st != TM_OK) {
            tm_dnn_drop(&a->graph);
            free(a);
            return st;
        }
        if (dnn->n == dnn->room) {
            dnn->room = dnn->room ? 2 * dnn->room : 8;
            dnn->all = tm_realloc(dnn->all, dnn->room * sizeof *dnn->all);
        }
        dnn->all[dnn->n++] = a;
    }
    *out = a;
    *why = a->why;
    return *a->why ? tm_fail(err, TM_UNSUPPORTED, "%s", a->why) : TM_OK;
}

/* --- a call ---------------------------------------------------------------------------------------------------------
 */

/* Numbers of the host are read while the call is made. */
static tm_status pack(tm_gpu_dnn *dnn, tm_dnn_graph *g, const tm_gpu_attention_shape *shape,
                      const void *const *addresses, void *workspace, tm_error *err)
{
    int64_t     ids[MOST_OPERANDS], n = 0;
    const void *given[MOST_OPERANDS];
    void       *values = tm_dnn_make(g, TM_DNN_PACK);
    for (int id = 1; id < TM_DNN_TENSORS; id++) {
        if (!tm_dnn_has(shape, (tm_dnn_tensor)id)) continue;
        ids[n] = id;
        given[n++] = addresses[id];
    }
    tm_dnn_set(g, values, TM_DNN_A_PACK_IDS, TM_DNN_T_I64, n, ids);
    tm_dnn_set(g, values, TM_DNN_A_PACK_ADDRESSES, TM_DNN_T_ADDRESS, n, given);
    tm_dnn_set(g, values, TM_DNN_A_PACK_WORKSPACE, TM_DNN_T_ADDRESS, 1, &workspace);
    tm_dnn_finish(g, values);
    return g->status == 0 ? TM_OK : failed(dnn, g->failed, g->status, err);
}

tm_status tm_gpu_dnn_attend(tm_gpu_dnn *dnn, const tm_gpu_dnn_attention *attention, void *stream,
                            const tm_gpu_attention_operands *o, tm_error *err)
{
    const float       one = 1, hidden = -INFINITY;
    const int32_t     window = (int32_t)attention->shape.window;
    tm_dnn_graph      g = { .call = &dnn->call };
    const void *const addresses[TM_DNN_TENSORS] = { [TM_DNN_Q] = o->q,
                                                    [TM_DNN_K] = o->k,
                                                    [TM_DNN_V] = o->v,
                                                    [TM_DNN_O] = o->o,
                                                    [TM_DNN_D_O] = o->d_o,
                                                    [TM_DNN_DQ] = o->dq,
                                                    [TM_DNN_DK] = o->dk,
                                                    [TM_DNN_DV] = o->dv,
                                                    [TM_DNN_SCALE] = &o->scale,
                                                    [TM_DNN_ONE] = &one,
                                                    [TM_DNN_HIDDEN] = &hidden,
                                                    [TM_DNN_WINDOW] = &window,
                                                    [TM_DNN_STATISTICS] = o->statistics };
    int               code = 0;
    tm_status         st = pack(dnn, &g, &attention->shape, addresses, o->workspace, err);
    if (st == TM_OK) code = dnn->call.set_stream(dnn->handle, stream);
    if (st == TM_OK && code != 0) st = failed(dnn, "cudnnSetStream", code, err);
    if (st == TM_OK) code = dnn->call.execute(dnn->handle, attention->plan, g.made[0]);
    if (st == TM_OK && code != 0) st = failed(dnn, "cudnnBackendExecute", code, err);
    tm_dnn_drop(&g);
    return st;
}

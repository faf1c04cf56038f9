/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/attention_stored.c - attention with stored scores (source/encoders.cu): two products and the probabilities
 * between them, in pieces that lie in the workspace. For heads wider than those of tiles, and for scores with a bias by
 * distance. Products are the maker's library's, or by own kernels. */
#include "device/gpu/encoders.h"
#include "op/relative.h"

enum { THREADS = 256, MOST = 65535, PIECE = 64 << 20, CLASSES = 32 };

/* --- attention
 * ----------------------------------------------------------------------------------------------------------- */

enum { ROWS, SCORES, VALUES, BIAS };

/* What attention and relative_attention have in common. */
typedef struct {
    int64_t batches, queries, keys, heads, group, wide_qk, wide_v; /* group: heads that share a key */
    double  scale;
    bool    relative;
} shape_of_attention;

static shape_of_attention shape_of(const tm_call *call)
{
    if (call->op == &tm_op_relative_attention) {
        const tm_relative_attr *t = call->attr;
        return (shape_of_attention){
            call->in[0].shape.n[0] / t->seq, t->seq, t->seq, t->heads, 1, t->dim, t->dim, t->scale, true
        };
    }
    const tm_attention_attr *t = call->attr;
    return (shape_of_attention){ .batches = call->in[0].shape.n[0] / t->seq_q,
                                 .queries = t->seq_q,
                                 .keys = t->seq_k,
                                 .heads = t->heads,
                                 .group = t->heads / t->kv_heads,
                                 .wide_qk = t->dim_qk,
                                 .wide_v = t->dim_v,
                                 .scale = t->scale };
}

/* Scores that are stored at once: of several heads, or of some of the queries of one. */
typedef struct {
    int64_t heads, rows;
} piece;

static piece piece_of(const shape_of_attention *s)
{
    int64_t rows = PIECE / (int64_t)sizeof(float) / s->keys, heads = rows / s->queries;
    if (heads >= 1) return (piece){ tm_gpu_least(heads, s->heads), s->queries };
    return (piece){ 1, rows >= 64 ? rows / 64 * 64 : rows > 1 ? rows : 1 };
}

/* Workspace: scores, probabilities, what is added by distance, the library's. */
typedef struct {
    int64_t scores, probabilities, bias;
} layout;

static layout layout_of(const tm_call *call, const shape_of_attention *s)
{
    piece   p = piece_of(s);
    int64_t values = p.heads * p.rows * s->keys;
    return (layout){ .scores = (int64_t)tm_gpu_rounded(values * (int64_t)sizeof(float)),
                     .probabilities = (int64_t)tm_gpu_rounded(values * (int64_t)tm_dtype_bytes(call->in[0].dtype)),
                     .bias = s->relative ? (int64_t)tm_gpu_rounded(s->heads * (2 * s->queries - 1) * 4) : 0 };
}

static void *workspace_at(const tm_call *call, int64_t at)
{
    return call->workspace ? tm_gpu_behind(call->workspace, at) : NULL;
}

/* Rows first .. first + n - 1 of a head and a batch, whose scores lie `at` values behind the first of the piece. */
typedef struct {
    int64_t batch, head, first, n, at;
} strip;

/* scores = q k^T */
static tm_gpu_product_of to_scores(const tm_call *call, const shape_of_attention *s, strip t, tm_gpu_chooser *by)
{
    const tm_view *q = &call->in[0], *k = &call->in[1];
    layout         l = layout_of(call, s);
    int64_t        query = (t.batch * s->queries + t.first) * tm_view_ld(q) + t.head * s->wide_qk;
    int64_t        key = t.batch * s->keys * tm_view_ld(k) + t.head / s->group * s->wide_qk;
    return by(call, (tm_gpu_product_of){ .c = TM_F32,
                                         .a = q->dtype,
                                         .b = k->dtype,
                                         .rows = t.n,
                                         .columns = s->keys,
                                         .depth = s->wide_qk,
                                         .ld_a = tm_view_ld(q),
                                         .ld_b = tm_view_ld(k),
                                         .ld_c = s->keys,
                                         .to = workspace_at(call, t.at * (int64_t)sizeof(float)),
                                         .from_a = tm_gpu_element(q, query),
                                         .from_b = tm_gpu_element(k, key),
                                         .workspace = workspace_at(call, l.scores + l.probabilities + l.bias) });
}

/* o = p v */
static tm_gpu_product_of to_values(const tm_call *call, const shape_of_attention *s, strip t, tm_gpu_chooser *by)
{
    const tm_view *v = &call->in[2], *o = &call->out[0];
    layout         l = layout_of(call, s);
    int64_t        bytes = (int64_t)tm_dtype_bytes(call->in[0].dtype), width = s->heads * s->wide_v;
    return by(call, (tm_gpu_product_of){
                        .c = o->dtype,
                        .a = call->in[0].dtype,
                        .b = v->dtype,
                        .b_across = true,
                        .rows = t.n,
                        .columns = s->wide_v,
                        .depth = s->keys,
                        .ld_a = s->keys,
                        .ld_b = tm_view_ld(v),
                        .ld_c = width,
                        .to = tm_gpu_element(o, (t.batch * s->queries + t.first) * width + t.head * s->wide_v),
                        .from_a = workspace_at(call, l.scores + t.at * bytes),
                        .from_b = tm_gpu_element(v, t.batch * s->keys * tm_view_ld(v) + t.head / s->group * s->wide_v),
                        .workspace = workspace_at(call, l.scores + l.probabilities + l.bias) });
}

static const char *refuse_rows(const tm_call *call)
{
    shape_of_attention s = shape_of(call);
    const char        *why = NULL;
    for (int k = 0; k < 3 && !why; k++) {
        why = tm_gpu_refuse_strided(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], call->out[0].dtype);
    }
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why && call->out[1].dtype != TM_F32) why = "keeps lse in float32";
    if (!why && (s.heads > MOST || s.keys > INT32_MAX / 2 || s.queries > INT32_MAX / 2))
        why = "more heads, queries or keys than a grid takes";
    return why;
}

static const char *refuse_attention(const tm_call *call)
{
    const tm_attention_attr *t = call->attr;
    if (t->causal || tm_view_present(&call->in[3])) return "multiplies every query with every key";
    return tm_view_present(&call->in[4]) ? "takes no sinks" : refuse_rows(call);
}

/* First distances of the classes that have several; false: these are too many. */
static bool distances_of(const tm_call *call, int first[CLASSES])
{
    const tm_relative_attr *t = call->attr;
    int64_t                 half = call->in[3].shape.n[0] / 2, single = half / 2, n = single + 1;
    if (half - single - 1 > CLASSES) return false;
    for (int64_t i = 0; i < CLASSES; i++) {
        int64_t class = single + 1 + i;
        while (class < half && n < t->max_distance &&
               tm_relative_bucket(-n, call->in[3].shape.n[0], t->max_distance) < class)
            n++;
        first[i] = class < half ? (int)n : INT32_MAX;
    }
    return true;
}

static const char *refuse_relative_attention(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[3]);
    int         first[CLASSES];
    if (!why && ((const tm_relative_attr *)call->attr)->max_distance > INT32_MAX) why = "counts distances in 32 bits";
    if (!why && !distances_of(call, first)) why = "takes up to 128 classes of distances";
    return why ? why : refuse_rows(call);
}

/* The products of a piece, and of what is left of the queries: shapes only. Returns how many. */
static int products_of(const tm_call *call, tm_gpu_chooser *by, tm_gpu_product_of out[4])
{
    shape_of_attention s = shape_of(call);
    int64_t            rows = piece_of(&s).rows, rest = s.queries % rows;
    int                n = 0;
    for (int k = 0; k < 2 && (k == 0 || rest > 0); k++) {
        strip t = { .n = k ? rest : rows };
        out[n++] = to_scores(call, &s, t, by);
        out[n++] = to_values(call, &s, t, by);
    }
    return n;
}

static const char *refuse_products(const tm_call *call)
{
    tm_gpu_product_of p[4];
    const char       *why = NULL;
    for (int i = 0, n = products_of(call, tm_gpu_library_product, p); i < n && !why; i++)
        why = tm_gpu_by_library(call->device, &p[i]);
    return why;
}

static size_t attention_workspace_own(const tm_call *call)
{
    shape_of_attention s = shape_of(call);
    layout             l = layout_of(call, &s);
    return (size_t)(l.scores + l.probabilities + l.bias);
}

static size_t attention_workspace_library(const tm_call *call)
{
    tm_gpu_product_of p[4];
    size_t            most = 0;
    for (int i = 0, n = products_of(call, tm_gpu_library_product, p); i < n; i++) {
        size_t bytes = tm_gpu_library_bytes(call->device, &p[i]);
        most = bytes > most ? bytes : most;
    }
    return attention_workspace_own(call) + most;
}

static tm_status prepare_attention(const void *device, const tm_call *call, tm_gpu_chooser *by, void **state,
                                   tm_error *err)
{
    tm_gpu_product_of p[4];
    int               n = products_of(call, by, p), unit = (int)tm_dtype_bytes(call->in[0].dtype);
    tm_dtype          x = call->in[0].dtype, w = shape_of(call).relative ? call->in[3].dtype : x;
    tm_gpu_note_encoders(device, x, w, unit, "attend_rows", state);
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_note_product(device, &p[i], state, err));
    for (int i = 2; i < n && p[i].how == TM_GPU_BY_LIBRARY; i++) TM_TRY(tm_gpu_library_prepare(device, &p[i], err));
    if (shape_of(call).relative) tm_gpu_note_encoders(device, x, w, unit, "relative_bias", state);
    return TM_OK;
}

static tm_status start_bias(const tm_call *call, const shape_of_attention *s, void *to, tm_error *err)
{
    int              first[CLASSES];
    tm_gpu_arguments a = { .bytes = 0 };
    TM_ASSERT(distances_of(call, first));
    tm_gpu_pass(&a, to);
    tm_gpu_pass(&a, call->in[3].data);
    tm_gpu_pass_int(&a, (int)s->queries);
    tm_gpu_pass_int(&a, (int)s->heads);
    tm_gpu_pass_int(&a, (int)(call->in[3].shape.n[0] / 2));
    for (int i = 0; i < CLASSES; i++) tm_gpu_pass_int(&a, first[i]);
    return tm_gpu_start(call, BIAS, tm_gpu_over(2 * s->queries - 1, THREADS), s->heads, 1, THREADS, &a, err);
}

/* Some heads' scores, probabilities of all of them, then results. */
static tm_status start_piece(const tm_call *call, const shape_of_attention *s, strip t, int64_t heads,
                             tm_gpu_chooser *by, tm_error *err)
{
    layout           l = layout_of(call, s);
    int64_t          head = t.head, each = t.n * s->keys, row = (t.batch * s->heads + head) * s->queries;
    tm_gpu_arguments a = { .bytes = 0 };
    for (t.at = 0; t.head < head + heads; t.head++, t.at += each) {
        tm_gpu_product_of p = to_scores(call, s, t, by);
        TM_TRY(tm_gpu_start_product(call, SCORES, &p, err));
    }
    int64_t bias = l.scores + l.probabilities + head * (2 * s->queries - 1) * (int64_t)sizeof(float);
    tm_gpu_pass(&a, workspace_at(call, l.scores));
    tm_gpu_pass(&a, tm_gpu_element(&call->out[1], row));
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, s->relative ? workspace_at(call, bias) : NULL);
    tm_gpu_pass_int(&a, (int)s->keys);
    tm_gpu_pass_int(&a, (int)t.first);
    tm_gpu_pass_int(&a, (int)s->queries);
    tm_gpu_pass_float(&a, s->scale);
    TM_TRY(tm_gpu_start(call, ROWS, t.n, heads, 1, THREADS, &a, err));
    for (t.head = head, t.at = 0; t.head < head + heads; t.head++, t.at += each) {
        tm_gpu_product_of p = to_values(call, s, t, by);
        TM_TRY(tm_gpu_start_product(call, VALUES, &p, err));
    }
    return TM_OK;
}

static tm_status launch_attention(const tm_call *call, tm_gpu_chooser *by, tm_error *err)
{
    shape_of_attention s = shape_of(call);
    piece              p = piece_of(&s);
    layout             l = layout_of(call, &s);
    strip              t = { .batch = 0 };
    if (s.relative) TM_TRY(start_bias(call, &s, workspace_at(call, l.scores + l.probabilities), err));
    for (; t.batch < s.batches; t.batch++)
        for (t.head = 0; t.head < s.heads; t.head += p.heads)
            for (t.first = 0; t.first < s.queries; t.first += p.rows) {
                t.n = tm_gpu_least(p.rows, s.queries - t.first);
                TM_TRY(start_piece(call, &s, t, tm_gpu_least(p.heads, s.heads - t.head), by, err));
            }
    return TM_OK;
}

static const char *refuse_attention_own(const tm_call *call)
{
    return refuse_attention(call);
}
static const char *refuse_attention_library(const tm_call *call)
{
    const char *why = refuse_attention(call);
    return why ? why : refuse_products(call);
}
static const char *refuse_relative_attention_own(const tm_call *call)
{
    return refuse_relative_attention(call);
}
static const char *refuse_relative_attention_library(const tm_call *call)
{
    const char *why = refuse_relative_attention(call);
    return why ? why : refuse_products(call);
}

/* Both ways to multiply. */
#define BY(way)                                                                                                        \
    static tm_status prepare_attention_##way(const void *device, const tm_call *call, void **state, tm_error *err)     \
    {                                                                                                                  \
        return prepare_attention(device, call, tm_gpu_##way##_product, state, err);                                    \
    }                                                                                                                  \
    static tm_status launch_attention_##way(const tm_call *call, tm_error *err)                                        \
    {                                                                                                                  \
        return launch_attention(call, tm_gpu_##way##_product, err);                                                    \
    }
BY(library)
BY(own)

#define ATTENTION(id, way, ...)                                                                                        \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/" #way, .refuse = refuse_##id##_##way, .workspace = attention_workspace_##way, \
        .launch = launch_attention_##way, .prepare = prepare_attention_##way, .release = tm_gpu_forget, __VA_ARGS__    \
    }
const tm_kernel tm_gpu_attention_stored[] = { ATTENTION(attention, library, .library = true),
                                              ATTENTION(attention, own, ),
                                              ATTENTION(relative_attention, library, .library = true),
                                              ATTENTION(relative_attention, own, ),
                                              { .name = NULL } };

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/moe.h"

#include "model/blocks.h"
#include "op/exchange.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static tm_status bad(const tm_config *config, const char *key, tm_error *err, const char *why)
{
    return tm_also(err, TM_INVALID, "%s (%s): %s", key, tm_config_place(config, key), why);
}

static tm_status check_groups(const tm_config *config, const tm_moe_shape *m, tm_error *err)
{
    if (m->experts % m->groups)
        return bad(config, "model.n_expert_groups", err,
                   "model.n_experts is not a multiple of it; change one of the two");
    tm_status st = TM_OK;
    if (m->group_best > m->experts / m->groups)
        st = bad(config, "model.expert_group_best", err, "a group has fewer experts");
    if (m->top_groups > m->groups)
        return bad(config, "model.n_limited_groups", err, "there are fewer groups (model.n_expert_groups)");
    if (m->groups > 1 && m->top_k <= m->experts && m->top_groups * (m->experts / m->groups) < m->top_k)
        st = bad(config, "model.n_limited_groups", err,
                 "the groups have fewer experts than model.n_experts_per_token; allow more groups");
    return st;
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    const tm_moe_shape *m = &s->moe;
    tm_error            own = { 0 };
    tm_status           st = TM_OK;
    if (m->top_k < 1 || m->top_k > m->experts)
        st = bad(config, "model.n_experts_per_token", err,
                 "a token goes to one expert at least and to model.n_experts at most; change one of the two");
    if (m->dense_layers > s->n_layers)
        st = bad(config, "model.n_dense_layers", err, "there are fewer layers (model.n_layers); make it smaller");
    if (*m->pattern && m->dense_layers > 0)
        st = bad(config, "model.moe_pattern", err, "says it of all blocks; leave out model.n_dense_layers");
    if (m->bias_rate > 0 && !m->biased)
        st = bad(config, "model.moe_bias", err, "model.moe_bias_rate changes a bias; leave one of the two out");
    tm_status groups = tm_also_of(err, check_groups(config, m, &own), &own);
    return groups != TM_OK ? groups : st;
}

/* "10" and its like, with a 1 within the blocks that there are. */
static tm_status read_pattern(const tm_config *config, tm_moe_shape *m, int64_t layers, tm_error *err)
{
    const char *given = tm_config_text(config, "model.moe_pattern");
    size_t      n = given ? strlen(given) : 0;
    if (n == 0) return TM_OK;
    if (n >= sizeof m->pattern)
        return bad(config, "model.moe_pattern", err, "has more than 255 digits; give a shorter one, which is repeated");
    const char *first = memchr(given, '1', n);
    if (strspn(given, "01") != n || !first || first - given >= layers)
        return bad(config, "model.moe_pattern", err,
                   "is not made of 0 (a plain FFN) and 1 (experts) with a 1 among them (10: every second block)");
    memcpy(m->pattern, given, n + 1);
    return TM_OK;
}

tm_status tm_moe_read(const tm_config *config, tm_model_shape *s, tm_error *err)
{
    const char *score = tm_config_text(config, "model.moe_score");
    if (!tm_config_text(config, "model.n_experts")) return TM_OK;
    tm_moe_shape m = { .experts = tm_config_i64(config, "model.n_experts"), .ffn_dim = s->ffn_dim };
    if (!tm_config_text(config, "model.n_experts_per_token"))
        return bad(config, "model.n_experts_per_token", err, "is not given; a model with experts needs it");
    m.top_k = tm_config_i64(config, "model.n_experts_per_token");
    if (tm_config_text(config, "model.moe_ffn_dim")) m.ffn_dim = tm_config_i64(config, "model.moe_ffn_dim");
    m.shared = tm_config_i64(config, "model.n_shared_experts");
    m.dense_layers = tm_config_i64(config, "model.n_dense_layers");
    m.sigmoid = score && strcmp(score, "sigmoid") == 0;
    m.normalise = tm_config_text(config, "model.moe_normalise") ? tm_config_bool(config, "model.moe_normalise")
                                                                : tm_family_of(s)->moe_normalise;
    m.scale = tm_config_f64(config, "model.moe_scale");
    m.groups = tm_config_i64(config, "model.n_expert_groups");
    m.top_groups = tm_config_i64(config, "model.n_limited_groups");
    m.group_best = tm_config_i64(config, "model.expert_group_best");
    m.aux_loss = tm_config_f64(config, "model.moe_aux_loss");
    m.aux_per_sequence = tm_config_bool(config, "model.moe_aux_loss_per_sequence");
    m.bias_rate = tm_config_f64(config, "model.moe_bias_rate");
    m.biased = tm_config_text(config, "model.moe_bias") ? tm_config_bool(config, "model.moe_bias") : m.bias_rate > 0;
    m.uniform = tm_config_bool(config, "debug.moe_force_load_balance");
    tm_status pattern = read_pattern(config, &m, s->n_layers, err);
    s->moe = m;
    tm_error  own = { 0 };
    tm_status st = tm_also_of(err, check(config, s, &own), &own);
    return pattern != TM_OK ? pattern : st;
}

const char *tm_moe_lacks_plain(const tm_model_shape *s)
{
    const tm_moe_shape *m = &s->moe;
    if (m->experts == 0) return "a model with experts (model.n_experts)";
    if (m->shared > 0) return "without model.n_shared_experts";
    if (m->dense_layers > 0) return "without model.n_dense_layers";
    if (*m->pattern) return "without model.moe_pattern";
    if (m->sigmoid) return "scored by softmax (model.moe_score)";
    if (m->groups > 1) return "without model.n_expert_groups";
    if (m->biased) return "without model.moe_bias";
    return m->scale == 1 ? NULL : "without model.moe_scale";
}

bool tm_moe_in_layer(const tm_model_shape *shape, int layer)
{
    const tm_moe_shape *m = &shape->moe;
    if (m->experts == 0) return false;
    return *m->pattern ? m->pattern[(size_t)layer % strlen(m->pattern)] == '1' : layer >= m->dense_layers;
}

int64_t tm_moe_layers_below(const tm_model_shape *shape, int64_t layer)
{
    int64_t n = 0;
    for (int i = 0; i < layer; i++) n += tm_moe_in_layer(shape, i);
    return n;
}

bool tm_moe_has_plain_layers(const tm_model_shape *shape)
{
    return tm_moe_layers_below(shape, shape->n_layers) < shape->n_layers;
}

tm_status tm_moe_divides(const tm_model_shape *s, const tm_parallel *parallel, tm_error *err)
{
    int     ranks = parallel->experts.ranks, below = 1, above = 0;
    int64_t experts = s->moe.experts;
    if (!tm_divided(parallel->experts)) return TM_OK;
    if (experts == 0)
        return tm_fail(err, TM_INVALID,
                       "parallelism.expert_parallel_degree is %d, and the model has no experts (model.n_experts); set "
                       "it to 1",
                       ranks);
    if (experts % ranks == 0) return TM_OK;
    for (int d = 1; d <= experts; d++) {
        if (experts % d != 0) continue;
        if (d < ranks) below = d;
        if (d > ranks && above == 0) above = d;
    }
    char other[32] = "";
    if (above) snprintf(other, sizeof other, " or %d", above);
    return tm_fail(
        err, TM_INVALID,
        "parallelism.expert_parallel_degree is %d, and must divide model.n_experts, which is %lld; %d%s would "
        "do",
        ranks, (long long)experts, below, other);
}

tm_status tm_moe_check_tensor(const tm_model_shape *s, const tm_parallel *parallel, tm_error *err)
{
    int     ranks = parallel->tensor.ranks;
    int64_t width = s->moe.shared * s->moe.ffn_dim;
    if (s->moe.experts == 0) return TM_OK;
    if (tm_divided(parallel->experts) && !parallel->rows)
        return tm_fail(err, TM_UNSUPPORTED,
                       "divided experts (parallelism.expert_parallel_degree %d) beside "
                       "parallelism.tensor_parallel_degree %d are built for ranks that have other tokens each; set "
                       "parallelism.enable_sequence_parallel true",
                       parallel->experts.ranks, ranks);
    if (!tm_divided(parallel->experts) && s->moe.ffn_dim % ranks)
        return tm_tensor_does_not_divide("model.moe_ffn_dim", s->moe.ffn_dim, ranks, err);
    if (width % ranks)
        return tm_tensor_does_not_divide("the width of the shared experts (model.moe_ffn_dim x model.n_shared_experts)",
                                         width, ranks, err);
    return TM_OK;
}

bool tm_moe_own_rows(const tm_parallel *parallel)
{
    return tm_divided(parallel->tensor) && tm_divided(parallel->experts);
}

bool tm_moe_takes_balance(const tm_parallel *parallel)
{
    return !tm_divided(parallel->tensor) || tm_moe_own_rows(parallel) || parallel->tensor.rank == 0;
}

/* ---- parameters ---- */

/* The experts of this rank: how many there are, and the first one's number. */
static int experts_of(const tm_model_shape *s, const tm_division *division, int *first)
{
    int each = (int)s->moe.experts / (tm_divided(*division) ? division->ranks : 1);
    *first = tm_divided(*division) ? division->rank * each : 0;
    return each;
}

/* The ranks that have a part of each expert: those that divide matrices, unless they have other experts each. */
static tm_division matrices_of(const tm_parallel *parallel)
{
    return tm_divided(parallel->experts) ? (tm_division){ 0 } : parallel->tensor;
}

/* What ranks have a part of, of each expert: nothing, some rows of each piece, some columns. */
typedef enum { CUT_NOT, CUT_ROWS, CUT_COLUMNS } expert_cut;

/* A tensor of all experts: `n` pieces of `rows` rows for each. columns 0: a vector. */
typedef struct {
    const char          *name;
    const char *const   *parts;
    const tm_init_place *places;
    int                  n;
    int64_t              rows, columns;
    expert_cut           cut;
} expert_tensor;

/* "layers.3.moe.experts.7.w1.weight" and so on. */
static tm_tensor_id declare_experts(tm_graph *graph, const tm_model *model, int layer, const expert_tensor *t)
{
    const tm_parallel *parallel = &model->parallel;
    tm_division        own = parallel->experts, of = t->cut == CUT_NOT ? (tm_division){ 0 } : matrices_of(parallel);
    tm_division        by_rows = t->cut == CUT_ROWS ? of : (tm_division){ 0 };
    int                all = (int)model->shape->moe.experts, first, experts = experts_of(model->shape, &own, &first);
    int64_t            row, column, rows = tm_divide(by_rows, t->rows, &row);
    int64_t            columns = tm_divide(t->cut == CUT_COLUMNS ? of : (tm_division){ 0 }, t->columns, &column);
    tm_piece          *pieces = tm_arena_take(graph->arena, (size_t)(experts * t->n) * sizeof *pieces);
    for (int i = 0; i < experts * t->n; i++) {
        pieces[i] = tm_init_piece(model->shape, t->places[i % t->n], layer, i * rows, rows);
        pieces[i].begin = (first * t->n + i) * t->rows + row;
        pieces[i].first = row;
        pieces[i].whole = tm_divided(by_rows) ? t->rows : 0;
        pieces[i].name =
            tm_arena_format(graph->arena, "layers.%d.moe.experts.%d.%s", layer, first + i / t->n, t->parts[i % t->n]);
    }
    const char *full = tm_arena_format(graph->arena, "layers.%d.moe.experts.%s", layer, t->name);
    tm_shape    shape = columns ? tm_shape_3(experts, t->n * rows, columns) : tm_shape_1(experts * t->n * rows);
    graph->layer = layer;
    tm_tensor_id id = tm_graph_parameter(graph, full, shape, pieces, experts * t->n);
    if (tm_divided(own)) of = own;
    tm_cut cut = { .axes = of.axes, .rank = of.rank, .ranks = of.ranks, .column = column };
    cut.whole = columns ? tm_shape_3(all, t->n * t->rows, t->columns) : tm_shape_1(all * t->n * t->rows);
    if (tm_divided(of)) tm_graph_cut(graph, id, &cut);
    return id;
}

static void declare_routed(tm_graph *graph, const tm_model *model, int layer, tm_moe_weights *w)
{
    static const char *const up[] = { "w1.weight", "w3.weight" }, *const up_b[] = { "w1.bias", "w3.bias" };
    static const char *const down[] = { "w2.weight" }, *const down_b[] = { "w2.bias" };
    static const tm_init_place in[] = { TM_INIT_GATE, TM_INIT_UP }, out[] = { TM_INIT_OUT };
    static const tm_init_place zero[] = { TM_INIT_ZERO, TM_INIT_ZERO };
    const tm_model_shape      *s = model->shape;
    int64_t                    F = s->moe.ffn_dim, C = s->dim;
    const expert_tensor        up_w = { "w13.weight", up, in, 2, F, C, CUT_ROWS };
    const expert_tensor        up_bias = { "w13.bias", up_b, zero, 2, F, 0, CUT_ROWS };
    const expert_tensor        down_w = { "w2.weight", down, out, 1, C, F, CUT_COLUMNS };
    const expert_tensor        down_bias = { "w2.bias", down_b, zero, 1, C, 0, CUT_NOT };
    bool                       all = s->bias == TM_BIAS_ALL;
    w->up_w = declare_experts(graph, model, layer, &up_w);
    if (all) w->up_b = declare_experts(graph, model, layer, &up_bias);
    w->down_w = declare_experts(graph, model, layer, &down_w);
    if (!all) return;
    w->down_b = declare_experts(graph, model, layer, &down_bias);
    if (tm_divided(matrices_of(&model->parallel))) tm_of_heads(graph, model, w->down_b); /* each rank: a part of it */
}

static void declare_shared(tm_graph *graph, const tm_model *model, int layer, int64_t width, tm_moe_weights *w)
{
    tm_arena     *arena = graph->arena;
    const char   *full = tm_arena_format(arena, "layers.%d.moe.shared_experts.w13.weight", layer);
    const tm_part parts[] = {
        { tm_arena_format(arena, "layers.%d.moe.shared_experts.w1.weight", layer), width, TM_INIT_GATE, 0 },
        { tm_arena_format(arena, "layers.%d.moe.shared_experts.w3.weight", layer), width, TM_INIT_UP, 0 }
    };
    w->shared_up_w = tm_declare_fused(graph, model, layer, full, model->shape->dim, parts, 2, true);
    w->shared_down_w = tm_declare_columns(graph, model, TM_INIT_OUT, layer, tm_shape_2(model->shape->dim, width),
                                          "layers.%d.moe.shared_experts.w2.weight", layer);
}

void tm_moe_declare(tm_graph *graph, const tm_model *model, int layer, tm_moe_weights *w)
{
    const tm_model_shape *s = model->shape;
    const tm_moe_shape   *m = &s->moe;
    *w = (tm_moe_weights){ TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    w->router_w = tm_of_heads(graph, model,
                              tm_declare(graph, s, TM_INIT_UP, layer, tm_shape_2(m->experts, s->dim),
                                         "layers.%d.moe.router.gate.weight", layer));
    tm_graph_at(graph, w->router_w)->as_stored = true;
    if (s->bias == TM_BIAS_ALL) {
        w->router_b = tm_of_heads(
            graph, model,
            tm_declare(graph, s, TM_INIT_ZERO, layer, tm_shape_1(m->experts), "layers.%d.moe.router.gate.bias", layer));
        tm_graph_at(graph, w->router_b)->as_stored = true;
    }
    declare_routed(graph, model, layer, w);
    if (m->shared > 0) declare_shared(graph, model, layer, m->shared * m->ffn_dim, w);
    if (m->biased)
        w->bias = tm_graph_tensor(graph, tm_arena_format(graph->arena, "layers.%d.moe.expert_bias", layer),
                                  TM_ROLE_STATE, tm_shape_1(m->experts));
}

bool tm_moe_has_experts(const tm_tensor *parameter)
{
    return strstr(parameter->name, ".moe.experts.") != NULL;
}

void tm_moe_declare_model(tm_graph *graph, const tm_model_shape *s, tm_model *out)
{
    int64_t mixtures = tm_moe_layers_below(s, s->n_layers);
    if (mixtures == 0) return;
    graph->layer = -1;
    out->expert_counts = tm_graph_tensor(graph, "expert_counts", TM_ROLE_SCALAR, tm_shape_2(mixtures, s->moe.experts));
    if (s->moe.aux_loss > 0)
        out->balance_loss = tm_graph_tensor(graph, "balance_loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
}

/* ---- forward ---- */

typedef struct {
    tm_tensor_id weights, ids, scores, offsets, order, inverse;
} routes;

/* A tensor in float32 or better, whatever the activations are in. */
static tm_tensor_id wide(tm_graph *graph, tm_role role, const char *name, int64_t rows, int64_t columns)
{
    return tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "%s.%s", graph->module, name), role,
                              tm_shape_2(rows, columns), graph->precision->wide);
}

static routes route(tm_graph *graph, const tm_model *model, const tm_moe_weights *w, tm_tensor_id b)
{
    const tm_moe_shape *m = &model->shape->moe;
    int64_t             rows = tm_graph_at(graph, b)->shape.n[0];
    tm_route_attr       attr = { .top_k = m->top_k,
                                 .score = m->sigmoid ? TM_SCORE_SIGMOID : TM_SCORE_SOFTMAX,
                                 .normalise = m->normalise,
                                 .scale = m->scale,
                                 .groups = m->groups,
                                 .top_groups = m->top_groups,
                                 .group_best = m->group_best,
                                 .uniform = m->uniform };
    tm_dispatch_attr    dispatch = { .experts = m->experts };
    tm_tensor_id        in[TM_MAX_IN] = { b, w->router_w, w->router_b, TM_NONE };
    tm_tensor_id        logits[TM_MAX_OUT] = { wide(graph, TM_ROLE_STATISTIC, "logits", rows, m->experts) };
    tm_graph_add(graph, TM_OP_linear, NULL, 0, in, logits, 0);
    tm_tensor_id from[TM_MAX_IN] = { logits[0], w->bias };
    tm_tensor_id chosen[TM_MAX_OUT] = { wide(graph, TM_ROLE_ACTIVATION, "weights", rows, m->top_k), TM_NONE,
                                        wide(graph, TM_ROLE_ACTIVATION, "scores", rows, m->experts) };
    tm_graph_add(graph, TM_OP_route, &attr, sizeof attr, from, chosen, 0);
    tm_tensor_id places[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE };
    tm_graph_add(graph, TM_OP_dispatch, &dispatch, sizeof dispatch, (tm_tensor_id[TM_MAX_IN]){ chosen[1] }, places, 0);
    return (routes){ chosen[0], chosen[1], chosen[2], places[0], places[1], places[2] };
}

/* A balance is that of whole sequences: the choices of all of their rows. */
static tm_tensor_id balanced_ids(tm_graph *graph, const tm_model *model, tm_tensor_id ids, tm_balance_attr *attr)
{
    const tm_parallel *p = &model->parallel;
    int64_t            rows = tm_graph_at(graph, ids)->shape.n[0];
    bool               context = tm_divided(p->context);
    if (tm_moe_own_rows(p)) {
        if (attr->seq > 0 && rows % attr->seq == 0 && !context) return ids;
        ids = tm_emit_gather(graph, p->tensor, "experts of rows", ids);
        if (attr->seq > 0) attr->chunk = rows; /* of one sequence (tm_moe_check_tensor) */
    } else if (context && attr->seq > 0) {
        attr->chunk = tm_chunk_length(p->context, model->seq);
    }
    return context ? tm_emit_gather(graph, p->context, "experts", ids) : ids;
}

/* Counts the rows of each expert; adds the balance loss. */
static void account(tm_graph *graph, const tm_model *model, int layer, const routes *r)
{
    const tm_moe_shape *m = &model->shape->moe;
    int64_t             mixture = tm_moe_layers_below(model->shape, layer);
    unsigned            adds = model->account == TM_ACCOUNT_ADD;
    tm_balance_attr     attr = { .seq = m->aux_per_sequence ? model->seq : 0, .top_k = m->top_k, .alpha = m->aux_loss };
    if (model->account == TM_ACCOUNT_NONE) return;
    tm_tensor_id counts[TM_MAX_OUT] = { tm_graph_row(graph, tm_arena_format(graph->arena, "%s.counts", graph->module),
                                                     model->expert_counts, mixture) };
    tm_graph_add(graph, TM_OP_expert_counts, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ r->offsets }, counts, adds);
    if (model->balance_loss == TM_NONE) return;
    tm_tensor_id ids = balanced_ids(graph, model, r->ids, &attr);
    tm_graph_add(graph, TM_OP_balance_loss, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ r->scores, ids },
                 (tm_tensor_id[TM_MAX_OUT]){ model->balance_loss }, adds || mixture > 0);
}

/* ---- the experts: of this rank, or of all ranks, with rows sent to them and back ---- */

static tm_tensor_id expert_ffn(tm_graph *graph, const tm_model *model, const tm_moe_weights *w, tm_tensor_id rows,
                               tm_tensor_id offsets, const tm_grouped_attr *attr)
{
    size_t       bytes = attr ? sizeof *attr : 0;
    tm_fill_attr share = { .value = 1.0 / model->parallel.tensor.ranks };
    tm_tensor_id down_b = w->down_b;
    if (down_b != TM_NONE && tm_divided(matrices_of(&model->parallel))) /* the terms of a sum have it together */
        down_b = tm_emit(graph, TM_OP_scale, &share, sizeof share, down_b, TM_NONE, TM_NONE, TM_NONE);
    tm_tensor_id up = tm_emit(graph, TM_OP_grouped_linear, attr, bytes, rows, w->up_w, offsets, w->up_b);
    return tm_emit(graph, TM_OP_grouped_linear, attr, bytes, tm_activation(graph, model->shape, up), w->down_w, offsets,
                   down_b);
}

tm_exchange_attr tm_moe_exchange(const tm_model_shape *s, const tm_parallel *parallel, int64_t rows)
{
    const tm_moe_shape *m = &s->moe;
    const tm_division  *d = &parallel->experts;
    tm_exchange_attr    attr;
    memset(&attr, 0, sizeof attr);
    attr.group.axes = d->axes;
    attr.group.ranks = d->ranks;
    attr.rank = d->rank;
    attr.pairs = rows * m->top_k;
    int64_t each = m->experts / d->ranks, here = m->top_k < each ? m->top_k : each;
    int64_t most = d->ranks * rows * here; /* every row has different experts */
    int64_t even = d->ranks * each * ((attr.pairs + m->experts - 1) / m->experts);
    if (m->uniform && even < most) most = even;
    double room = parallel->expert_capacity * (double)attr.pairs;
    attr.rows = parallel->expert_capacity > 0 && room < (double)most ? (int64_t)ceil(room) : most;
    attr.rounds = (most + attr.rows - 1) / attr.rows;
    return attr;
}

/* rows (N k, C), sorted by expert -> what the experts make of them. Rounds behind the first one are empty as a rule:
 * what they compute is dropped, and made anew where the backward pass wants it. */
static tm_tensor_id exchange(tm_graph *graph, const tm_model *model, const tm_moe_weights *w, const routes *r,
                             tm_tensor_id b, const tm_slots_attr *slots)
{
    tm_exchange_attr attr = tm_moe_exchange(model->shape, &model->parallel, tm_graph_at(graph, b)->shape.n[0]);
    const char      *module = graph->module;
    tm_tensor_id     y = TM_NONE, counts[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    snprintf(attr.group.what, sizeof attr.group.what, "counts of %s", module);
    tm_graph_add(graph, TM_OP_exchange_counts, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ r->offsets }, counts, 0);
    graph->keep = attr.rounds > 1 ? TM_KEEP_NOT : TM_KEEP_BY_POLICY;
    tm_tensor_id rows = tm_emit(graph, TM_OP_gather_rows, slots, sizeof *slots, b, r->order, r->inverse, TM_NONE);
    for (attr.round = 0; attr.round < attr.rounds; attr.round++) {
        tm_grouped_attr grouped = { .even = tm_exchange_even(&attr) };
        const char     *name = tm_arena_format(graph->arena, "%s.places.%d", module, (int)attr.round);
        tm_tensor_id    offsets = tm_graph_row(graph, name, counts[1], attr.round);
        graph->keep = attr.round > 0 ? TM_KEEP_NEVER : TM_KEEP_BY_POLICY;
        snprintf(attr.group.what, sizeof attr.group.what, "rows of %s", module);
        tm_tensor_id in = tm_emit(graph, TM_OP_send_rows, &attr, sizeof attr, rows, counts[0], TM_NONE, TM_NONE);
        tm_tensor_id out = expert_ffn(graph, model, w, in, offsets, &grouped);
        graph->keep = TM_KEEP_BY_POLICY;
        y = tm_emit(graph, TM_OP_return_rows, &attr, sizeof attr, out, counts[0], y, TM_NONE);
    }
    return y;
}

tm_tensor_id tm_moe_emit(tm_graph *graph, const tm_model *model, int layer, const tm_moe_weights *w, tm_tensor_id b,
                         tm_tensor_id x)
{
    tm_slots_attr slots = { .top_k = model->shape->moe.top_k };
    bool          term = tm_divided(matrices_of(&model->parallel)); /* what is computed here is one of a sum */
    tm_tensor_id  all = term || w->shared_up_w != TM_NONE ? tm_enter(graph, model, b) : b, y,
                 addend = term ? TM_NONE : x;
    if (term) b = all;
    routes r = route(graph, model, w, b);
    account(graph, model, layer, &r);
    if (tm_divided(model->parallel.experts)) {
        y = exchange(graph, model, w, &r, b, &slots);
    } else {
        tm_tensor_id rows = tm_emit(graph, TM_OP_gather_rows, &slots, sizeof slots, b, r.order, r.inverse, TM_NONE);
        y = expert_ffn(graph, model, w, rows, r.offsets, NULL);
    }
    if (w->shared_up_w != TM_NONE) {
        tm_tensor_id up = tm_emit(graph, TM_OP_linear, NULL, 0, all, w->shared_up_w, TM_NONE, TM_NONE);
        tm_tensor_id h = tm_activation(graph, model->shape, up);
        addend = term ? tm_emit(graph, TM_OP_linear, NULL, 0, h, w->shared_down_w, TM_NONE, TM_NONE)
                      : tm_linear_out(graph, model, h, w->shared_down_w, TM_NONE, x);
    }
    tm_tensor_id in[TM_MAX_IN] = { y, r.order, r.inverse, r.weights, addend }, out[TM_MAX_OUT] = { TM_NONE };
    tm_graph_add(graph, TM_OP_combine, &slots, sizeof slots, in, out, 0);
    return term ? tm_leave(graph, model, out[0], TM_NONE, x) : out[0];
}

void tm_moe_update(tm_graph *graph, const tm_model *model, const tm_moe_weights *weights, size_t stride)
{
    tm_expert_bias_attr attr = { .rate = model->shape->moe.bias_rate };
    if (!(attr.rate > 0)) return;
    for (int layer = 0; layer < model->shape->n_layers; layer++) {
        const tm_moe_weights *w =
            (const tm_moe_weights *)(const void *)((const char *)weights + (size_t)layer * stride);
        if (!tm_moe_in_layer(model->shape, layer) || w->bias == TM_NONE) continue;
        graph->layer = layer;
        graph->module = tm_arena_format(graph->arena, "layers.%d.moe.expert_bias", layer);
        tm_tensor_id counts =
            tm_graph_row(graph, graph->module, model->expert_counts, tm_moe_layers_below(model->shape, layer));
        tm_graph_add(graph, TM_OP_expert_bias, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ counts, w->bias },
                     (tm_tensor_id[TM_MAX_OUT]){ w->bias }, 0);
    }
}

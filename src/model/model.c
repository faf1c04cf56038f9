/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "model/blocks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tm_tensor_id tm_emit(tm_graph *graph, tm_op_id op, const void *attr, size_t attr_bytes, tm_tensor_id a, tm_tensor_id b,
                     tm_tensor_id c, tm_tensor_id d)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b, c, d }, out[TM_MAX_OUT];
    for (int i = 4; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(graph, op, attr, attr_bytes, in, out, 0);
    return out[0];
}

/* Standard deviation by initialisation scheme. torchtitan writes the output head last, so that a table that is the
 * head, too, keeps the head's values. */
static double std_of(const tm_model_shape *shape, tm_init_place place, int layer)
{
    bool   titan = shape->init == TM_INIT_TORCHTITAN;
    double std = titan || !(shape->init_std > 0) ? 0.02 : shape->init_std;
    double depth_titan = std / sqrt(2.0 * (layer + 1)), depth_gpt2 = std / sqrt(2.0 * (double)shape->n_layers);
    switch (place) {
    case TM_INIT_ONE:
    case TM_INIT_ZERO:
        return 0;
    case TM_INIT_EMBEDDING:
        return titan ? 1.0 : std;
    case TM_INIT_HEAD:
        return titan ? 1.0 / sqrt((double)shape->dim) : std;
    case TM_INIT_OUT:
        return titan ? depth_titan : shape->init == TM_INIT_GPT2 ? depth_gpt2 : std;
    case TM_INIT_UP:
        return titan ? depth_titan : std;
    case TM_INIT_POSITION:
    case TM_INIT_IN:
    case TM_INIT_GATE:
        return std;
    }
    return std;
}

static tm_attention_attr attention_of(const tm_model *model, int layer)
{
    const tm_model_shape *s = model->shape;
    bool                  windowed = s->window > 0 && (s->window_every <= 1 || layer % s->window_every == 0);
    return (tm_attention_attr){ .seq_q = model->seq,
                                .seq_k = model->seq,
                                .heads = tm_local_heads(model),
                                .kv_heads = tm_local_kv_heads(model),
                                .dim_qk = s->head_dim,
                                .dim_v = s->head_dim,
                                .scale = tm_attention_scale(s),
                                .causal = 1,
                                .window = windowed ? s->window : 0 };
}

tm_tensor_id tm_attend(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id qkv, tm_tensor_id sinks)
{
    tm_attention_attr attr = attention_of(model, layer);
    int64_t           q = attr.heads * attr.dim_qk, k = attr.kv_heads * attr.dim_qk, v = attr.kv_heads * attr.dim_v;
    if (tm_divided(model->parallel.context)) return tm_context_attend(graph, model, &attr, qkv, sinks);
    tm_tensor_id in[TM_MAX_IN] = { TM_NONE, TM_NONE, TM_NONE, model->first_key, sinks },
                 out[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    in[0] = tm_graph_view(graph, tm_arena_format(graph->arena, "%s.q", graph->module), qkv, 0, q);
    in[1] = tm_graph_view(graph, tm_arena_format(graph->arena, "%s.k", graph->module), qkv, q, k);
    in[2] = tm_graph_view(graph, tm_arena_format(graph->arena, "%s.v", graph->module), qkv, q + k, v);
    tm_graph_add(graph, TM_OP_attention, &attr, sizeof attr, in, out, 0);
    return out[0];
}

tm_tensor_id tm_activation(tm_graph *graph, const tm_model_shape *shape, tm_tensor_id up)
{
    static const tm_clamp_attr clamp = { .limit = 7, .alpha = 1.702 };
    if (shape->clamped)
        return tm_emit(graph, TM_OP_swiglu_clamped, &clamp, sizeof clamp, up, TM_NONE, TM_NONE, TM_NONE);
    return tm_emit(graph, TM_OP_swiglu, NULL, 0, up, TM_NONE, TM_NONE, TM_NONE);
}

tm_piece tm_init_piece(const tm_model_shape *shape, tm_init_place place, int layer, int64_t row, int64_t rows)
{
    if (place == TM_INIT_EMBEDDING && shape->tied) place = TM_INIT_HEAD;
    double std = std_of(shape, place, layer);
    /* torchtitan cuts the output head at three standard deviations; elsewhere its bounds (-2, 2) are out of reach */
    double cut = place == TM_INIT_HEAD && shape->init == TM_INIT_TORCHTITAN ? 3 * std : 0;
    double mean = place == TM_INIT_ONE ? 1 : 0;
    return (tm_piece){ .name = "", .row = row, .rows = rows, .mean = mean, .std = std, .cut = cut };
}

tm_tensor_id tm_declare(tm_graph *graph, const tm_model_shape *shape, tm_init_place place, int layer, tm_shape of,
                        const char *format, ...)
{
    char    name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    tm_piece piece = tm_init_piece(shape, place, layer, 0, of.n[0]);
    piece.name = name;
    graph->layer = layer;
    return tm_graph_parameter(graph, name, of, &piece, 1);
}

void tm_declare_table(tm_graph *graph, const char *name, tm_model *out)
{
    const tm_model_shape *s = out->shape;
    bool                  ends = s->tied && tm_parallel_ends(&out->parallel) && !tm_parallel_piece(&out->parallel);
    if (!tm_parallel_begins(&out->parallel) && !ends) return;
    out->embedding = tm_declare_rows(graph, out, TM_INIT_EMBEDDING, -1, tm_shape_2(s->vocab_size, s->dim), "%s", name);
}

tm_tensor_id tm_emit_begin(tm_graph *graph, const tm_model *model, const char *module, tm_tensor_id tokens)
{
    graph->layer = -1;
    graph->module = module;
    return model->stage.begins ? tm_embed(graph, model, tokens) : model->received;
}

void *tm_take_none(tm_graph *graph, size_t bytes)
{
    return memset(tm_arena_take(graph->arena, bytes), 0xff, bytes); /* TM_NONE has all bits set */
}

void tm_model_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, const tm_parallel *parallel,
                      tm_model *out)
{
    *out = (tm_model){ .shape = shape,
                       .seq = seq,
                       .parallel = parallel ? *parallel : (tm_parallel){ .rows = false },
                       .stage = { .end = (int)tm_model_blocks(shape), .begins = true, .ends = true },
                       .received = TM_NONE,
                       .embedding = TM_NONE,
                       .positions = TM_NONE,
                       .norm_w = TM_NONE,
                       .norm_b = TM_NONE,
                       .head = TM_NONE,
                       .rope_table = TM_NONE,
                       .expert_counts = TM_NONE,
                       .balance_loss = TM_NONE,
                       .row_losses = TM_NONE,
                       .preferred = TM_NONE,
                       .places = TM_NONE,
                       .first_key = TM_NONE,
                       .link = NULL };
    if (tm_model_images(shape)) out->parallel.rows = false; /* tokens are whole everywhere */
    tm_family_of(shape)->declare(graph, shape, seq, out);
    graph->layer = -1;
    graph->module = "";
}

void tm_model_resize(tm_graph *graph, tm_model *model, int64_t seq)
{
    if (model->seq == seq) return;
    TM_ASSERT(!tm_family_of(model->shape)->length);
    model->seq = seq;
    if (model->rope_table != TM_NONE)
        model->rope_table =
            tm_declare_rope(graph, tm_arena_format(graph->arena, "rope_table.%lld", (long long)seq), model->shape, seq);
}

tm_tensor_id tm_model_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
{
    graph->phase = TM_PHASE_FORWARD;
    return tm_family_of(model->shape)->hidden(graph, model, tokens);
}

int64_t tm_model_passed_rows(const tm_model *model, int64_t rows)
{
    const tm_parallel *p = &model->parallel;
    if (tm_model_images(model->shape))
        return rows + rows * (tm_divided(p->context) ? p->context.ranks : 1) / model->seq;
    return p->rows && tm_divided(p->tensor) ? rows / p->tensor.ranks : rows;
}

bool tm_model_images(const tm_model_shape *shape)
{
    return tm_family_of(shape)->images;
}

tm_tensor_id tm_inputs_find(const tm_inputs *inputs, const char *name)
{
    for (int i = 0; i < inputs->n; i++)
        if (strcmp(inputs->name[i], name) == 0) return inputs->tensor[i];
    return TM_NONE;
}

const char *const *tm_model_fields(const tm_model_shape *shape)
{
    return tm_family_of(shape)->fields;
}

const char *const *tm_model_optional_fields(const tm_model_shape *shape)
{
    static const char *const documents[] = { "positions", "first_key", "reference", NULL }, *const none[] = { NULL };
    return tm_family_of(shape)->fields == tm_language_fields ? documents : none;
}

tm_tensor_id tm_model_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                           int64_t chunk, bool accumulate)
{
    graph->phase = TM_PHASE_FORWARD;
    tm_tensor_id passed = tm_family_of(model->shape)->loss(graph, model, inputs, loss, chunk, accumulate);
    graph->layer = -1;
    graph->module = "";
    return passed;
}

tm_tensor_id tm_model_velocity(tm_graph *graph, const tm_model *model, const tm_inputs *inputs)
{
    graph->phase = TM_PHASE_FORWARD;
    tm_tensor_id velocity = tm_family_of(model->shape)->velocity(graph, model, inputs);
    graph->layer = -1;
    graph->module = "";
    return velocity;
}

void tm_model_update(tm_graph *graph, const tm_model *model)
{
    const tm_family *family = tm_family_of(model->shape);
    graph->phase = TM_PHASE_UPDATE;
    if (family->update) family->update(graph, model);
    graph->layer = -1;
    graph->module = "";
}

int tm_ffn_products(const tm_model_shape *s, tm_model_product *out)
{
    const tm_moe_shape *m = &s->moe;
    int                 n = 0;
    if (tm_moe_has_plain_layers(s)) {
        out[n++] = (tm_model_product){ "gate+up", 2 * s->ffn_dim, s->dim };
        out[n++] = (tm_model_product){ "down", s->dim, s->ffn_dim };
    }
    if (m->experts == 0) return n;
    out[n++] = (tm_model_product){ "expert gate+up", 2 * m->ffn_dim, s->dim };
    out[n++] = (tm_model_product){ "expert down", s->dim, m->ffn_dim };
    if (m->shared == 0) return n;
    out[n++] = (tm_model_product){ "shared gate+up", 2 * m->shared * m->ffn_dim, s->dim };
    out[n++] = (tm_model_product){ "shared down", s->dim, m->shared * m->ffn_dim };
    return n;
}

int tm_model_products(const tm_model_shape *shape, tm_model_product out[TM_MAX_PRODUCTS])
{
    return tm_family_of(shape)->products(shape, out);
}

/* in: hidden states, head, targets; out: the loss. */
static void add_whole_loss(tm_graph *graph, const tm_tensor_id in[TM_MAX_IN], tm_tensor_id out[TM_MAX_OUT],
                           bool accumulate)
{
    tm_shape     shape = tm_shape_2(tm_graph_at(graph, in[0])->shape.n[0], tm_graph_at(graph, in[1])->shape.n[0]);
    tm_tensor_id z[TM_MAX_OUT] = { tm_graph_tensor(graph, "output.logits", TM_ROLE_STATISTIC, shape) };
    tm_graph_add(graph, TM_OP_linear, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ in[0], in[1], TM_NONE, TM_NONE }, z, 0);
    tm_graph_add(graph, TM_OP_cross_entropy, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ z[0], in[2] }, out,
                 accumulate ? 1u : 0);
}

const char *const tm_language_fields[] = { "tokens", "targets", NULL };

/* A field of all ranks that have parts of the sequences, their rows one after the other; TM_NONE stays. */
static tm_tensor_id gathered_field(tm_graph *graph, tm_division context, const char *name, tm_tensor_id id)
{
    if (id == TM_NONE || !tm_divided(context)) return id;
    tm_tensor     of = *tm_graph_at(graph, id);
    tm_group_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = context.axes;
    attr.ranks = context.ranks;
    snprintf(attr.what, sizeof attr.what, "%s of sequences", name);
    tm_tensor_id in[TM_MAX_IN] = { id }, out[TM_MAX_OUT];
    tm_role      role = of.role == TM_ROLE_INPUT && !tm_dtype_floating(of.dtype) ? TM_ROLE_INDEX : TM_ROLE_STATISTIC;
    out[0] = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "all.%s", name), role,
                                tm_shape_1(of.shape.n[0] * context.ranks), of.dtype);
    tm_graph_add(graph, TM_OP_all_gather, &attr, sizeof attr, in, out, 0);
    return out[0];
}

/* Of pairs of sequences. */
static void preference_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id hidden,
                            tm_tensor_id loss, int64_t chunk, bool accumulate)
{
    tm_tensor_id       targets = tm_inputs_find(inputs, "targets");
    tm_loss_attr       rows = { .chunk = chunk };
    tm_preference_attr pairs = model->preference;
    tm_tensor_id       in[TM_MAX_IN] = { hidden, model->head, targets };
    tm_tensor_id       losses[TM_MAX_OUT] = { TM_NONE, TM_NONE }, out[TM_MAX_OUT] = { loss, model->preferred };
    const tm_division  context = model->parallel.context;
    bool               divided = tm_divided(model->parallel.tensor); /* a vector of parts, which no pass makes twice */
    losses[0] = tm_graph_tensor_as(graph, "token_losses", divided ? TM_ROLE_PARTIAL : TM_ROLE_STATISTIC,
                                   tm_graph_at(graph, targets)->shape, graph->precision->wide);
    if (divided)
        tm_vocabulary_row_losses(graph, model, hidden, targets, losses[0], chunk);
    else
        tm_graph_add(graph, TM_OP_linear_token_losses, &rows, sizeof rows, in, losses, 0);
    tm_tensor_id pair_in[TM_MAX_IN] = {
        gathered_field(graph, context, "losses", losses[0]), gathered_field(graph, context, "targets", targets),
        gathered_field(graph, context, "first_key", model->first_key),
        gathered_field(graph, context, "reference", tm_inputs_find(inputs, "reference"))
    };
    TM_ASSERT(model->first_key != TM_NONE); /* the source of pairs gives it */
    pairs.seq = model->seq;
    if (tm_divided(context)) {
        pairs.ranks = context.ranks;
        pairs.chunk = tm_chunk_length(context, model->seq);
    }
    tm_graph_add(graph, TM_OP_preference_loss, &pairs, sizeof pairs, pair_in, out, accumulate ? 3u : 0);
}

tm_tensor_id tm_language_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                              int64_t chunk, bool accumulate)
{
    tm_model packed = *model;
    packed.places = tm_inputs_find(inputs, "positions");
    packed.first_key = tm_inputs_find(inputs, "first_key");
    if (packed.places == TM_NONE && tm_divided(model->parallel.context))
        packed.places =
            tm_context_places(graph, model, tm_graph_at(graph, tm_inputs_find(inputs, "tokens"))->shape.n[0]);
    tm_tensor_id hidden = tm_model_hidden(graph, &packed, tm_inputs_find(inputs, "tokens"));
    if (model->stage.pieces > 0)
        return tm_piece_loss(graph, model, hidden, tm_inputs_find(inputs, "targets"), loss, accumulate);
    if (!model->stage.ends) return hidden;
    tm_loss_attr attr = { .chunk = chunk };
    tm_tensor_id in[TM_MAX_IN] = { hidden, model->head, tm_inputs_find(inputs, "targets"), TM_NONE, TM_NONE };
    tm_tensor_id out[TM_MAX_OUT] = { loss, TM_NONE, model->row_losses };
    graph->layer = -1;
    graph->module = "output";
    tm_graph_at(graph, model->head)->head = true;
    if (model->preferred != TM_NONE) {
        preference_loss(graph, &packed, inputs, hidden, loss, chunk, accumulate);
        return TM_NONE;
    }
    if (tm_divided(model->parallel.tensor) || tm_vocabulary_turned(graph, model)) {
        if (model->whole_logits) chunk = tm_graph_at(graph, hidden)->shape.n[0];
        tm_vocabulary_loss(graph, model, hidden, in[2], loss, chunk, accumulate);
        return TM_NONE;
    }
    if (model->whole_logits) {
        add_whole_loss(graph, in, out, accumulate);
        return TM_NONE;
    }
    tm_graph_add(graph, TM_OP_linear_cross_entropy, &attr, sizeof attr, in, out, accumulate ? 1u : 0);
    return TM_NONE;
}

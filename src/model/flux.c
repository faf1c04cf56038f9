/* SPDX-License-Identifier: Apache-2.0 */
/* model/flux.c - FLUX.1: a rectified-flow transformer over image and text tokens.
 *
 *   vec = MLP(time) [+ MLP(guidance)] + MLP(pooled),  MLP(x) = W2 silu(W1 x);   mod(n) = n chunks of W silu(vec)
 *   M(x; shift, scale) = LN(x) (1 + scale) + shift,   LN without weights
 *   double block, for image and text with weights of their own, six chunks each:
 *       q, k, v = Wqkv M(x; 1, 2);  q, k = RMSNorm of each head;  RoPE;  attention over text and image together
 *       x = x + chunk3 Wproj o;     x = x + chunk6 W2 gelu(W1 M(x; 4, 5))
 *   single block, text before image in one sequence, three chunks:
 *       m = M(x; 1, 2);  x = x + chunk3 W2 [attention(m) | gelu(W1 m)]
 *   velocity = W M(image; 2 chunks);  loss = sum (velocity - target)^2
 *
 * Ranks that divide matrices (model/tensor.c) have some of the heads and of the MLP's width, and all tokens: a sum
 * stands behind Wproj, W2. Of the columns of a single block's W2 a rank has two runs, those of its heads and those of
 * its part of the MLP: two parameters of one name. Modulations, embedders and the last layer are whole everywhere.
 *
 * A stage of a pipeline passes text, image and silu(vec) on as one matrix: of each sample the rows of text and image,
 * then one of silu(vec).
 *
 * A rotary position has three axes with their own share of a head: (0, row, column) of an image token, (0, 0, 0) of a
 * text token. Names are those of the first release; fused matrices keep the names of their parts (q, k, v).
 */
#include "model/flux.h"

#include "op/attrs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* --- forward --------------------------------------------------------------------------------------------------------
 */

typedef struct {
    tm_graph              *graph;
    const tm_model        *model;
    const tm_model_shape  *s;
    const tm_flux_weights *w;
    int64_t                samples, text, image; /* B; tokens of a sample that are here */
    int64_t                heads;                /* that are here */
    tm_tensor_id           silu_vec;             /* (B, C) */
} builder;

static tm_tensor_id apply(const builder *b, tm_flux_layer w, tm_tensor_id x, tm_tensor_id residual)
{
    return tm_emit(b->graph, TM_OP_linear, NULL, 0, x, w.w, w.b, residual);
}

/* The product of a layer of which a rank has some columns: the sum over the ranks. */
static tm_tensor_id apply_out(const builder *b, tm_flux_layer w, tm_tensor_id x, tm_tensor_id addend)
{
    tm_division  ranks = b->model->parallel.tensor;
    tm_fill_attr each = { .value = 1.0 / ranks.ranks };
    if (!tm_divided(ranks)) return apply(b, w, x, addend);
    w.b = tm_emit(b->graph, TM_OP_scale, &each, sizeof each, w.b, TM_NONE, TM_NONE, TM_NONE);
    return tm_emit_sum(b->graph, ranks, "sum", apply(b, w, x, addend));
}

/* In front of those of which it has some rows. */
static tm_tensor_id enter(const builder *b, tm_tensor_id x)
{
    return tm_emit_shared(b->graph, b->model->parallel.tensor, "input", x);
}

/* Chunk `k` of a sample's modulation (B, n C). */
static tm_tensor_id chunk(const builder *b, tm_tensor_id mod, int k)
{
    return tm_graph_view(b->graph, tm_arena_format(b->graph->arena, "%s.chunk%d", b->graph->module, k), mod,
                         k * b->s->dim, b->s->dim);
}

static tm_tensor_id modulate(const builder *b, tm_tensor_id x, tm_tensor_id shift, tm_tensor_id scale, int64_t tokens)
{
    tm_modulate_attr attr = { .eps = b->s->norm_eps, .seq = tokens };
    return tm_emit(b->graph, TM_OP_modulate, &attr, sizeof attr, x, shift, scale, TM_NONE);
}

static tm_tensor_id gated_add(const builder *b, tm_tensor_id x, tm_tensor_id u, tm_tensor_id gate, int64_t tokens)
{
    tm_gated_add_attr attr = { .seq = tokens };
    return tm_emit(b->graph, TM_OP_gated_add, &attr, sizeof attr, x, u, gate, TM_NONE);
}

static tm_tensor_id unary(const builder *b, tm_op_id op, tm_tensor_id x)
{
    return tm_emit(b->graph, op, NULL, 0, x, TM_NONE, TM_NONE, TM_NONE);
}

/* Queries, keys and values (B tokens, 3 C) with their heads normed. */
static tm_tensor_id queries(const builder *b, tm_flux_layer qkv, tm_tensor_id norm, tm_tensor_id x)
{
    tm_head_norm_attr attr = {
        .eps = b->s->norm_eps, .heads = 2 * b->heads, .head_dim = b->s->head_dim, .second = b->heads
    };
    return tm_emit(b->graph, TM_OP_head_norm, &attr, sizeof attr, apply(b, qkv, x, TM_NONE), norm, TM_NONE, TM_NONE);
}

/* Every token of a sample sees every other one. */
static tm_tensor_id attend(const builder *b, tm_tensor_id qkv)
{
    const tm_model_shape *s = b->s;
    tm_rope_attr          rope = {
                 .seq = b->text + b->image, .heads = 2 * b->heads, .head_dim = s->head_dim, .layout = TM_ROPE_INTERLEAVED
    };
    tm_attention_attr attr = { .seq_q = rope.seq,
                               .seq_k = rope.seq,
                               .heads = b->heads,
                               .kv_heads = b->heads,
                               .dim_qk = s->head_dim,
                               .dim_v = s->head_dim,
                               .scale = 1 / sqrt((double)s->head_dim) };
    tm_tensor_id      part[3];
    qkv = tm_emit(b->graph, TM_OP_rope, &rope, sizeof rope, qkv, b->model->rope_table, TM_NONE, TM_NONE);
    if (tm_divided(b->model->parallel.context))
        return tm_context_attend_all(b->graph, b->model, &attr, qkv, b->samples);
    for (int k = 0; k < 3; k++)
        part[k] = tm_graph_view(b->graph, tm_arena_format(b->graph->arena, "%s%s", b->graph->module, tm_flux_qkv[k]),
                                qkv, k * b->heads * s->head_dim, b->heads * s->head_dim);
    return tm_emit(b->graph, TM_OP_attention, &attr, sizeof attr, part[0], part[1], part[2], TM_NONE);
}

static tm_join_attr text_and_image(const builder *b)
{
    return (tm_join_attr){ .samples = b->samples, .first = b->text, .second = b->image };
}
static tm_tensor_id join(const builder *b, tm_join_attr attr, tm_tensor_id first, tm_tensor_id second)
{
    return tm_emit(b->graph, TM_OP_join, &attr, sizeof attr, first, second, TM_NONE, TM_NONE);
}
static tm_join_attr tokens_and_vec(const builder *b)
{
    return (tm_join_attr){ .samples = b->samples, .first = b->text + b->image, .second = 1 };
}
static void split(const builder *b, tm_join_attr attr, tm_tensor_id x, tm_tensor_id *first, tm_tensor_id *second)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? x : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(b->graph, TM_OP_split, &attr, sizeof attr, in, out, 0);
    *first = out[0];
    *second = out[1];
}

/* What a stream does with the attention's result. */
static tm_tensor_id stream_after(const builder *b, const tm_flux_stream *w, tm_tensor_id mod, tm_tensor_id x,
                                 tm_tensor_id o, int64_t tokens)
{
    x = gated_add(b, x, apply_out(b, w->proj, o, TM_NONE), chunk(b, mod, 2), tokens);
    tm_tensor_id m = modulate(b, x, chunk(b, mod, 3), chunk(b, mod, 4), tokens);
    tm_tensor_id f = unary(b, TM_OP_gelu, apply(b, w->up, enter(b, m), TM_NONE));
    return gated_add(b, x, apply_out(b, w->down, f, TM_NONE), chunk(b, mod, 5), tokens);
}

static tm_tensor_id stream_qkv(const builder *b, const tm_flux_stream *w, tm_tensor_id mod, tm_tensor_id x,
                               int64_t tokens)
{
    return queries(b, w->qkv, w->norm, enter(b, modulate(b, x, chunk(b, mod, 0), chunk(b, mod, 1), tokens)));
}

static void double_block(const builder *b, int layer, tm_tensor_id *text, tm_tensor_id *image)
{
    const tm_flux_stream *txt = &b->w->txt[layer], *img = &b->w->img[layer];
    tm_graph             *graph = b->graph;
    tm_tensor_id          o_text, o_image;
    graph->layer = layer;
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.txt", layer);
    tm_tensor_id txt_mod = apply(b, txt->mod, b->silu_vec, TM_NONE);
    tm_tensor_id txt_qkv = stream_qkv(b, txt, txt_mod, *text, b->text);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.img", layer);
    tm_tensor_id img_mod = apply(b, img->mod, b->silu_vec, TM_NONE);
    tm_tensor_id img_qkv = stream_qkv(b, img, img_mod, *image, b->image);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.attn", layer);
    split(b, text_and_image(b), attend(b, join(b, text_and_image(b), txt_qkv, img_qkv)), &o_text, &o_image);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.txt", layer);
    *text = stream_after(b, txt, txt_mod, *text, o_text, b->text);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.img", layer);
    *image = stream_after(b, img, img_mod, *image, o_image, b->image);
}

static tm_tensor_id single_block(const builder *b, int number, tm_tensor_id x)
{
    const tm_flux_single *w = &b->w->singles[number];
    tm_graph             *graph = b->graph;
    tm_join_attr          columns = { .samples = 0, .first = b->s->dim, .second = b->s->ffn_dim };
    int64_t               tokens = b->text + b->image;
    graph->layer = (int)b->s->n_layers + number;
    graph->module = tm_arena_format(graph->arena, "single_blocks.%d", number);
    tm_tensor_id mod = apply(b, w->mod, b->silu_vec, TM_NONE);
    tm_tensor_id m = enter(b, modulate(b, x, chunk(b, mod, 0), chunk(b, mod, 1), tokens));
    tm_tensor_id o = attend(b, queries(b, w->qkv, w->norm, m));
    tm_tensor_id f = unary(b, TM_OP_gelu, apply(b, w->up, m, TM_NONE));
    tm_tensor_id y;
    if (w->down_mlp == TM_NONE)
        y = apply(b, w->down, join(b, columns, o, f), TM_NONE);
    else
        y = apply_out(b, w->down, o, tm_emit(graph, TM_OP_linear, NULL, 0, f, w->down_mlp, TM_NONE, TM_NONE));
    return gated_add(b, x, y, chunk(b, mod, 2), tokens);
}

/* A field in the format that is computed with. */
static tm_tensor_id as_activation(const builder *b, const tm_inputs *inputs, const char *name)
{
    tm_graph    *graph = b->graph;
    tm_tensor_id field = tm_inputs_find(inputs, name), in[TM_MAX_IN], out[TM_MAX_OUT];
    tm_tensor_id made =
        tm_graph_tensor(graph, tm_arena_format(graph->arena, "%s.%s", name, tm_dtype_name(graph->precision->compute)),
                        TM_ROLE_ACTIVATION, tm_graph_at(graph, field)->shape);
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? field : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = k == 0 ? made : TM_NONE;
    tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
    return made;
}

/* W2 silu(W1 x) + sum */
static tm_tensor_id embedder(const builder *b, const tm_flux_layer w[2], tm_tensor_id x, tm_tensor_id sum)
{
    return apply(b, w[1], unary(b, TM_OP_silu, apply(b, w[0], x, TM_NONE)), sum);
}

static tm_tensor_id sinusoids(const builder *b, tm_tensor_id time)
{
    tm_time_attr attr = { .dim = b->s->flux.time_dim };
    return tm_emit(b->graph, TM_OP_time_embedding, &attr, sizeof attr, time, TM_NONE, TM_NONE, TM_NONE);
}

/* silu(vec): every modulation begins with it. */
static tm_tensor_id condition(const builder *b, const tm_inputs *inputs)
{
    const tm_flux_shape *x = &b->s->flux;
    b->graph->module = "time_in";
    tm_tensor_id vec = embedder(b, b->w->time, sinusoids(b, tm_inputs_find(inputs, "time")), TM_NONE);
    if (x->guidance) {
        tm_fill_attr attr = { .value = x->guidance_scale };
        tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
        b->graph->module = "guidance_in";
        for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
        for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
        out[0] = tm_graph_tensor(b->graph, "guidance", TM_ROLE_STATISTIC, tm_shape_2(b->samples, 1));
        tm_graph_add(b->graph, TM_OP_fill, &attr, sizeof attr, in, out, 0);
        vec = embedder(b, b->w->guidance, sinusoids(b, out[0]), vec);
    }
    b->graph->module = "vector_in";
    vec = embedder(b, b->w->vector, as_activation(b, inputs, "pooled"), vec);
    return unary(b, TM_OP_silu, vec);
}

/* What the first stage begins with. */
static void embed(builder *b, const tm_inputs *inputs, tm_tensor_id *text, tm_tensor_id *image)
{
    b->graph->layer = -1;
    b->silu_vec = condition(b, inputs);
    b->graph->module = "txt_in";
    *text = apply(b, b->w->txt_in, as_activation(b, inputs, "text"), TM_NONE);
    b->graph->module = "img_in";
    *image = apply(b, b->w->img_in, as_activation(b, inputs, "noisy"), TM_NONE);
}

/* The blocks of a stage; what they leave of text and image. */
static tm_tensor_id blocks(builder *b, const tm_inputs *inputs)
{
    const tm_stage *stage = &b->model->stage;
    const int       doubles = (int)b->s->n_layers;
    tm_tensor_id    text = TM_NONE, image = TM_NONE, x = TM_NONE;
    if (stage->begins) {
        embed(b, inputs, &text, &image);
    } else {
        b->graph->layer = -1;
        b->graph->module = "received";
        split(b, tokens_and_vec(b), b->model->received, &x, &b->silu_vec);
        tm_graph_at(b->graph, b->silu_vec)->fixed = b->model->fixed_front;
        if (stage->first < doubles) split(b, text_and_image(b), x, &text, &image);
    }
    for (int i = stage->first; i < stage->end && i < doubles; i++) double_block(b, i, &text, &image);
    if (text != TM_NONE) x = join(b, text_and_image(b), text, image);
    for (int i = stage->first > doubles ? stage->first : doubles; i < stage->end; i++)
        x = single_block(b, i - doubles, x);
    return x;
}

/* What is predicted (B image tokens, channels); what is passed on, of a stage that does not end the model. */
static tm_tensor_id flux_velocity(tm_graph *graph, const tm_model *model, const tm_inputs *inputs)
{
    const tm_model_shape *s = model->shape;
    int64_t               ranks = tm_divided(model->parallel.context) ? model->parallel.context.ranks : 1;
    builder               b = { .graph = graph,
                                .model = model,
                                .s = s,
                                .w = model->own,
                                .text = s->flux.text_len / ranks,
                                .image = s->flux.rows * s->flux.columns / ranks,
                                .heads = tm_local_heads(model) };
    tm_tensor_id          text, image;
    b.samples = tm_graph_at(graph, tm_inputs_find(inputs, "time"))->shape.n[0];
    tm_tensor_id x = blocks(&b, inputs);
    graph->layer = -1;
    graph->module = "passed";
    if (!model->stage.ends) return join(&b, tokens_and_vec(&b), x, b.silu_vec);
    graph->module = "final_layer";
    split(&b, text_and_image(&b), x, &text, &image);
    tm_tensor_id mod = apply(&b, b.w->final_mod, b.silu_vec, TM_NONE);
    image = modulate(&b, image, chunk(&b, mod, 0), chunk(&b, mod, 1), b.image);
    return apply(&b, b.w->final, image, TM_NONE);
}

static tm_tensor_id flux_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                              int64_t chunk_, bool accumulate)
{
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT], velocity = flux_velocity(graph, model, inputs);
    (void)chunk_;
    if (!model->stage.ends) return velocity;
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    in[0] = velocity;
    in[1] = tm_inputs_find(inputs, "velocity");
    out[0] = loss;
    tm_graph_add(graph, TM_OP_square_error, NULL, 0, in, out, accumulate ? 1u : 0);
    return TM_NONE;
}

/* --- the family -----------------------------------------------------------------------------------------------------
 */

static int64_t ffn_dim(int64_t dim)
{
    return 4 * dim;
}

static int64_t length(const tm_model_shape *s)
{
    return s->flux.text_len + s->flux.rows * s->flux.columns;
}

/* Training FLOPs of an image over its tokens. Attention is counted in full: every token sees every other one. */
static double flops(const tm_model_shape *s, double parameters, tm_flops_convention convention, int64_t seq)
{
    const tm_flux_shape *x = &s->flux;
    double h = (double)s->dim, f = (double)s->ffn_dim, S = (double)seq, text = (double)x->text_len, image = S - text;
    double embedders = 2 * h * ((x->guidance ? 2 : 1) * ((double)x->time_dim + h) + (double)x->vector_dim + h);
    double in = 2 * h * (image * (double)x->channels + text * (double)x->text_dim),
           out = 2 * h * image * (double)x->channels;
    double doubles = (double)s->n_layers * (2 * S * (4 * h * h + 2 * h * f) + 2 * 2 * h * 6 * h + 4 * S * S * h);
    double singles = (double)x->n_single * (2 * S * (4 * h * h + 2 * h * f) + 2 * h * 3 * h + 4 * S * S * h);
    double exact = 3 * (embedders + in + doubles + singles + 2 * h * 2 * h + out) / S;
    return convention == TM_FLOPS_6N ? 6 * parameters : exact;
}

static tm_status read_axes(const tm_config *config, tm_model_shape *s, tm_error *err)
{
    const char *text = tm_config_text(config, "model.rope_axes");
    long long   axes[3] = { 0 };
    char        end;
    if (sscanf(text, "%lld,%lld,%lld%c", &axes[0], &axes[1], &axes[2], &end) != 3 || axes[0] < 0 || axes[1] < 0 ||
        axes[2] < 0 || axes[0] % 2 || axes[1] % 2 || axes[2] % 2 ||
        (s->head_dim > 0 && axes[0] + axes[1] + axes[2] != s->head_dim))
        return tm_fail(err, TM_INVALID,
                       "model.rope_axes '%s' (%s) must be three even numbers whose sum is the width of a head, %lld: "
                       "16,56,56 of 128",
                       text, tm_config_place(config, "model.rope_axes"), (long long)s->head_dim);
    for (int i = 0; i < 3; i++) s->flux.axes[i] = axes[i];
    return TM_OK;
}

static tm_status flux_read(const tm_config *config, tm_model_shape *s, tm_error *err)
{
    int64_t   size = tm_config_i64(config, "model.image_size");
    tm_error  own = { 0 };
    tm_status st = TM_OK;
    if (size % 16)
        st = tm_also(err, TM_INVALID, "model.image_size %lld (%s) is not a multiple of 16: a token is 16 x 16 pixels",
                     (long long)size, tm_config_place(config, "model.image_size"));
    s->flux = (tm_flux_shape){ .n_single = tm_config_i64(config, "model.n_single_layers"),
                               .text_len = tm_config_i64(config, "model.text_len"),
                               .text_dim = tm_config_i64(config, "model.text_dim"),
                               .vector_dim = tm_config_i64(config, "model.vector_dim"),
                               .channels = tm_config_i64(config, "model.channels"),
                               .time_dim = tm_config_i64(config, "model.time_dim"),
                               .rows = size / 16,
                               .columns = size / 16,
                               .guidance = tm_config_bool(config, "model.guidance_embed"),
                               .guidance_scale = tm_config_f64(config, "model.guidance") };
    if (s->flux.time_dim % 2)
        st = tm_also(err, TM_INVALID, "model.time_dim %lld (%s) must be even: half cosines, half sines",
                     (long long)s->flux.time_dim, tm_config_place(config, "model.time_dim"));
    tm_status axes = tm_also_of(err, read_axes(config, s, &own), &own);
    return axes != TM_OK ? axes : st;
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    static const char *const decoders[] = { "model.sliding_window", "model.n_kv_heads", "model.bias", "model.tied",
                                            "model.init" };
    tm_status                st = TM_OK;
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++)
        if (tm_config_text(config, decoders[i]))
            st = tm_also(err, TM_UNSUPPORTED, "%s (%s) has no meaning for the flux family; leave it out", decoders[i],
                         tm_config_place(config, decoders[i]));
    if (s->head_dim > 0 && s->n_heads * s->head_dim != s->dim)
        st = tm_also(err, TM_INVALID, "model.n_heads %lld heads of model.head_dim %lld do not make model.dim %lld",
                     (long long)s->n_heads, (long long)s->head_dim, (long long)s->dim);
    return st;
}

static int products(const tm_model_shape *s, tm_model_product out[TM_MAX_PRODUCTS])
{
    out[0] = (tm_model_product){ "qkv", 3 * s->dim, s->dim };
    out[1] = (tm_model_product){ "proj", s->dim, s->dim };
    out[2] = (tm_model_product){ "mlp up", s->ffn_dim, s->dim };
    out[3] = (tm_model_product){ "mlp down", s->dim, s->ffn_dim };
    out[4] = (tm_model_product){ "single out", s->dim, s->dim + s->ffn_dim };
    return 5;
}

static const char *const fields[] = { "noisy", "velocity", "time", "text", "pooled", NULL };

const tm_family tm_family_flux = {
    .name = "flux",
    .fields = fields,
    .images = true,
    .ffn_dim = ffn_dim,
    .read = flux_read,
    .check = check,
    .length = length,
    .flops = flops,
    .declare = tm_flux_declare,
    .loss = flux_loss,
    .velocity = flux_velocity,
    .products = products,
    .divides = true,
    .hf = tm_flux_forms,
};

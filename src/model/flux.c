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
 * A rotary position has three axes with their own share of a head: (0, row, column) of an image token, (0, 0, 0) of a
 * text token. Names are those of the first release; fused matrices keep the names of their parts (q, k, v).
 */
#include "model/blocks.h"
#include "model/hf_rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct {
    tm_tensor_id w, b;
} layer_weights;

typedef struct {
    layer_weights mod, qkv, proj, up, down;
    tm_tensor_id  norm; /* of queries, then of keys */
} stream_weights;

typedef struct {
    layer_weights mod, qkv, up, down;
    tm_tensor_id  norm;
} single_weights;

typedef struct {
    layer_weights   img_in, txt_in, time[2], guidance[2], vector[2], final_mod, final;
    stream_weights *img, *txt; /* (n_layers) */
    single_weights *singles;   /* (flux.n_single) */
} flux_weights;

/* --- parameters -----------------------------------------------------------------------------------------------------
 */

/* How a matrix begins: Xavier's uniform distribution, 0.02, or zero (what is zero first is learnt from zero). */
typedef enum { BEGIN_XAVIER, BEGIN_SMALL, BEGIN_ZERO } beginning;

/* Weight and bias of `n` parts, equally many rows each. The name has %s where a part's goes. */
static layer_weights declare_parts(tm_graph *graph, int layer, beginning begin, int64_t out, int64_t in,
                                   const char *name, const char *const *parts, int n)
{
    static const char *const kinds[] = { "weight", "bias" };
    layer_weights            made;
    graph->layer = layer;
    for (int k = 0; k < 2; k++) {
        tm_piece pieces[4];
        double   std = begin == BEGIN_XAVIER ? sqrt(2.0 / (double)(in + out)) : begin == BEGIN_SMALL ? 0.02 : 0;
        for (int i = 0; i < n; i++)
            pieces[i] = (tm_piece){ .name = tm_arena_format(graph->arena, "%s%s.%s", name, parts[i], kinds[k]),
                                    .row = i * (out / n),
                                    .rows = out / n,
                                    .std = k == 0 ? std : 0,
                                    .uniform = begin == BEGIN_XAVIER };
        const char  *full = n == 1 ? pieces[0].name : tm_arena_format(graph->arena, "%s.%s", name, kinds[k]);
        tm_shape     shape = k == 0 ? tm_shape_2(out, in) : tm_shape_1(out);
        tm_tensor_id id = tm_graph_parameter(graph, full, shape, pieces, n);
        *(k == 0 ? &made.w : &made.b) = id;
    }
    return made;
}

static layer_weights declare_layer(tm_graph *graph, int layer, beginning begin, int64_t out, int64_t in,
                                   const char *format, ...) __attribute__((format(printf, 6, 7)));
static layer_weights declare_layer(tm_graph *graph, int layer, beginning begin, int64_t out, int64_t in,
                                   const char *format, ...)
{
    static const char *const whole[] = { "" };
    char                     name[160];
    va_list                  args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return declare_parts(graph, layer, begin, out, in, name, whole, 1);
}

static const char *const qkv_parts[] = { ".q", ".k", ".v" };

static tm_tensor_id declare_norms(tm_graph *graph, const tm_model_shape *s, int layer, const char *prefix)
{
    tm_piece pieces[2];
    for (int i = 0; i < 2; i++)
        pieces[i] =
            (tm_piece){ .name = tm_arena_format(graph->arena, "%snorm.%s_norm.scale", prefix, i ? "key" : "query"),
                        .row = i * s->head_dim,
                        .rows = s->head_dim,
                        .mean = 1 };
    graph->layer = layer;
    return tm_graph_parameter(graph, tm_arena_format(graph->arena, "%snorm.scale", prefix), tm_shape_1(2 * s->head_dim),
                              pieces, 2);
}

static void declare_stream(tm_graph *graph, const tm_model_shape *s, int layer, const char *name, stream_weights *w)
{
    int64_t     h = s->dim, f = s->ffn_dim;
    const char *prefix = tm_arena_format(graph->arena, "double_blocks.%d.%s_", layer, name);
    w->mod = declare_layer(graph, layer, BEGIN_ZERO, 6 * h, h, "%smod.lin", prefix);
    w->qkv = declare_parts(graph, layer, BEGIN_XAVIER, 3 * h, h, tm_arena_format(graph->arena, "%sattn.qkv", prefix),
                           qkv_parts, 3);
    w->norm = declare_norms(graph, s, layer, tm_arena_format(graph->arena, "%sattn.", prefix));
    w->proj = declare_layer(graph, layer, BEGIN_XAVIER, h, h, "%sattn.proj", prefix);
    w->up = declare_layer(graph, layer, BEGIN_XAVIER, f, h, "%smlp.0", prefix);
    w->down = declare_layer(graph, layer, BEGIN_XAVIER, h, f, "%smlp.2", prefix);
}

/* The first product of a single block has the rows of query, key, value and MLP; here it is two of them. */
static void declare_single(tm_graph *graph, const tm_model_shape *s, int number, single_weights *w)
{
    int64_t     h = s->dim, f = s->ffn_dim;
    int         layer = (int)s->n_layers + number;
    const char *prefix = tm_arena_format(graph->arena, "single_blocks.%d.", number);
    w->qkv = declare_parts(graph, layer, BEGIN_XAVIER, 3 * h, h, tm_arena_format(graph->arena, "%slinear1", prefix),
                           qkv_parts, 3);
    w->up = declare_layer(graph, layer, BEGIN_XAVIER, f, h, "%slinear1.mlp", prefix);
    w->down = declare_layer(graph, layer, BEGIN_XAVIER, h, h + f, "%slinear2", prefix);
    w->norm = declare_norms(graph, s, layer, prefix);
    w->mod = declare_layer(graph, layer, BEGIN_ZERO, 3 * h, h, "%smodulation.lin", prefix);
}

static void declare_embedder(tm_graph *graph, const tm_model_shape *s, const char *name, int64_t in, beginning begin,
                             layer_weights w[2])
{
    w[0] = declare_layer(graph, -1, begin, s->dim, in, "%s.in_layer", name);
    w[1] = declare_layer(graph, -1, begin, s->dim, s->dim, "%s.out_layer", name);
}

/* The tokens that a rank has: `text` of them are text, the image's begin with number `first`. */
typedef struct {
    tm_model_shape shape;
    int64_t        text, first;
} rope_tokens;

/* Element i of the table (text + image tokens, D): cos in the first D/2 columns, sin in the others. */
static double rope_value(const void *context, int64_t i)
{
    const rope_tokens    *tokens = context;
    const tm_model_shape *s = &tokens->shape;
    int64_t               half = s->head_dim / 2, token = i / s->head_dim - tokens->text, column = i % s->head_dim;
    int64_t               pair = column % half, axis = 0;
    if (token >= 0) token += tokens->first;
    while (pair >= s->flux.axes[axis] / 2) pair -= s->flux.axes[axis++] / 2;
    int64_t position = token < 0 || axis == 0 ? 0 : axis == 1 ? token / s->flux.columns : token % s->flux.columns;
    double  angle = (double)position * pow(s->rope_theta, -2.0 * (double)pair / (double)s->flux.axes[axis]);
    return column < half ? cos(angle) : sin(angle);
}

static void flux_declare(tm_graph *graph, const tm_model_shape *s, int64_t seq, tm_model *out)
{
    const tm_flux_shape *x = &s->flux;
    flux_weights        *w = out->own = tm_arena_take(graph->arena, sizeof *w);
    w->img = tm_arena_take(graph->arena, (size_t)s->n_layers * sizeof *w->img);
    w->txt = tm_arena_take(graph->arena, (size_t)s->n_layers * sizeof *w->txt);
    w->singles = tm_arena_take(graph->arena, (size_t)x->n_single * sizeof *w->singles);
    w->img_in = declare_layer(graph, -1, BEGIN_XAVIER, s->dim, x->channels, "img_in");
    w->txt_in = declare_layer(graph, -1, BEGIN_XAVIER, s->dim, x->text_dim, "txt_in");
    declare_embedder(graph, s, "time_in", x->time_dim, BEGIN_SMALL, w->time);
    if (x->guidance) declare_embedder(graph, s, "guidance_in", x->time_dim, BEGIN_SMALL, w->guidance);
    declare_embedder(graph, s, "vector_in", x->vector_dim, BEGIN_SMALL, w->vector);
    for (int i = 0; i < s->n_layers; i++) {
        declare_stream(graph, s, i, "img", &w->img[i]);
        declare_stream(graph, s, i, "txt", &w->txt[i]);
    }
    for (int i = 0; i < x->n_single; i++) declare_single(graph, s, i, &w->singles[i]);
    static const char *const halves[] = { ".shift", ".scale" };
    w->final_mod =
        declare_parts(graph, -1, BEGIN_ZERO, 2 * s->dim, s->dim, "final_layer.adaLN_modulation.1", halves, 2);
    w->final = declare_layer(graph, -1, BEGIN_ZERO, x->channels, s->dim, "final_layer.linear");
    /* a part of a model is planned with fewer tokens: those that come first */
    tm_division own = out->parallel.context;
    int64_t     ranks = own.ranks > 1 ? own.ranks : 1;
    rope_tokens tokens = { *s, x->text_len / ranks, own.rank * (x->rows * x->columns / ranks) };
    out->rope_table = tm_graph_constant(graph, "rope_table", tm_shape_2(seq / ranks, s->head_dim), rope_value, &tokens,
                                        sizeof tokens);
}

/* --- forward --------------------------------------------------------------------------------------------------------
 */

typedef struct {
    tm_graph             *graph;
    const tm_model       *model;
    const tm_model_shape *s;
    const flux_weights   *w;
    int64_t               samples, text, image; /* B; tokens of a sample that are here */
    tm_tensor_id          silu_vec;             /* (B, C) */
} builder;

static tm_tensor_id apply(const builder *b, layer_weights w, tm_tensor_id x, tm_tensor_id residual)
{
    return tm_emit(b->graph, TM_OP_linear, NULL, 0, x, w.w, w.b, residual);
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
static tm_tensor_id queries(const builder *b, layer_weights qkv, tm_tensor_id norm, tm_tensor_id x)
{
    tm_head_norm_attr attr = {
        .eps = b->s->norm_eps, .heads = 2 * b->s->n_heads, .head_dim = b->s->head_dim, .second = b->s->n_heads
    };
    return tm_emit(b->graph, TM_OP_head_norm, &attr, sizeof attr, apply(b, qkv, x, TM_NONE), norm, TM_NONE, TM_NONE);
}

/* Every token of a sample sees every other one. */
static tm_tensor_id attend(const builder *b, tm_tensor_id qkv)
{
    const tm_model_shape *s = b->s;
    tm_rope_attr          rope = {
                 .seq = b->text + b->image, .heads = 2 * s->n_heads, .head_dim = s->head_dim, .layout = TM_ROPE_INTERLEAVED
    };
    tm_attention_attr attr = { .seq_q = rope.seq,
                               .seq_k = rope.seq,
                               .heads = s->n_heads,
                               .kv_heads = s->n_heads,
                               .dim_qk = s->head_dim,
                               .dim_v = s->head_dim,
                               .scale = 1 / sqrt((double)s->head_dim) };
    tm_tensor_id      part[3];
    qkv = tm_emit(b->graph, TM_OP_rope, &rope, sizeof rope, qkv, b->model->rope_table, TM_NONE, TM_NONE);
    if (tm_divided(b->model->parallel.context))
        return tm_context_attend_all(b->graph, b->model, &attr, qkv, b->samples);
    for (int k = 0; k < 3; k++)
        part[k] = tm_graph_view(b->graph, tm_arena_format(b->graph->arena, "%s%s", b->graph->module, qkv_parts[k]), qkv,
                                k * s->dim, s->dim);
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
static void split(const builder *b, tm_tensor_id x, tm_tensor_id *text, tm_tensor_id *image)
{
    tm_join_attr attr = text_and_image(b);
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = i == 0 ? x : TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(b->graph, TM_OP_split, &attr, sizeof attr, in, out, 0);
    *text = out[0];
    *image = out[1];
}

/* What a stream does with the attention's result. */
static tm_tensor_id stream_after(const builder *b, const stream_weights *w, tm_tensor_id mod, tm_tensor_id x,
                                 tm_tensor_id o, int64_t tokens)
{
    x = gated_add(b, x, apply(b, w->proj, o, TM_NONE), chunk(b, mod, 2), tokens);
    tm_tensor_id m = modulate(b, x, chunk(b, mod, 3), chunk(b, mod, 4), tokens);
    tm_tensor_id f = unary(b, TM_OP_gelu, apply(b, w->up, m, TM_NONE));
    return gated_add(b, x, apply(b, w->down, f, TM_NONE), chunk(b, mod, 5), tokens);
}

static tm_tensor_id stream_qkv(const builder *b, const stream_weights *w, tm_tensor_id mod, tm_tensor_id x,
                               int64_t tokens)
{
    return queries(b, w->qkv, w->norm, modulate(b, x, chunk(b, mod, 0), chunk(b, mod, 1), tokens));
}

static void double_block(const builder *b, int layer, tm_tensor_id *text, tm_tensor_id *image)
{
    const stream_weights *txt = &b->w->txt[layer], *img = &b->w->img[layer];
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
    split(b, attend(b, join(b, text_and_image(b), txt_qkv, img_qkv)), &o_text, &o_image);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.txt", layer);
    *text = stream_after(b, txt, txt_mod, *text, o_text, b->text);
    graph->module = tm_arena_format(graph->arena, "double_blocks.%d.img", layer);
    *image = stream_after(b, img, img_mod, *image, o_image, b->image);
}

static tm_tensor_id single_block(const builder *b, int number, tm_tensor_id x)
{
    const single_weights *w = &b->w->singles[number];
    tm_graph             *graph = b->graph;
    tm_join_attr          columns = { .samples = 0, .first = b->s->dim, .second = b->s->ffn_dim };
    int64_t               tokens = b->text + b->image;
    graph->layer = (int)b->s->n_layers + number;
    graph->module = tm_arena_format(graph->arena, "single_blocks.%d", number);
    tm_tensor_id mod = apply(b, w->mod, b->silu_vec, TM_NONE);
    tm_tensor_id m = modulate(b, x, chunk(b, mod, 0), chunk(b, mod, 1), tokens);
    tm_tensor_id o = attend(b, queries(b, w->qkv, w->norm, m));
    tm_tensor_id f = unary(b, TM_OP_gelu, apply(b, w->up, m, TM_NONE));
    tm_tensor_id y = apply(b, w->down, join(b, columns, o, f), TM_NONE);
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
static tm_tensor_id embedder(const builder *b, const layer_weights w[2], tm_tensor_id x, tm_tensor_id sum)
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

static tm_tensor_id flux_loss(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                              int64_t chunk_, bool accumulate)
{
    const tm_model_shape *s = model->shape;
    int64_t               ranks = tm_divided(model->parallel.context) ? model->parallel.context.ranks : 1;
    builder               b = { .graph = graph,
                                .model = model,
                                .s = s,
                                .w = model->own,
                                .text = s->flux.text_len / ranks,
                                .image = s->flux.rows * s->flux.columns / ranks };
    (void)chunk_;
    b.samples = tm_graph_at(graph, tm_inputs_find(inputs, "time"))->shape.n[0];
    graph->layer = -1;
    b.silu_vec = condition(&b, inputs);
    graph->module = "txt_in";
    tm_tensor_id text = apply(&b, b.w->txt_in, as_activation(&b, inputs, "text"), TM_NONE);
    graph->module = "img_in";
    tm_tensor_id image = apply(&b, b.w->img_in, as_activation(&b, inputs, "noisy"), TM_NONE);
    for (int i = 0; i < s->n_layers; i++) double_block(&b, i, &text, &image);
    tm_tensor_id x = join(&b, text_and_image(&b), text, image);
    for (int i = 0; i < s->flux.n_single; i++) x = single_block(&b, i, x);
    graph->layer = -1;
    graph->module = "final_layer";
    split(&b, x, &text, &image);
    tm_tensor_id mod = apply(&b, b.w->final_mod, b.silu_vec, TM_NONE);
    image = modulate(&b, image, chunk(&b, mod, 0), chunk(&b, mod, 1), b.image);
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    in[0] = apply(&b, b.w->final, image, TM_NONE);
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

/* --- diffusers' FluxTransformer2DModel ------------------------------------------------------------------------------
 */

static const tm_hf_key hf_keys[] = {
    TM_HF_WANTS("patch_size", "1", "1"),
    TM_HF_IS_OR("in_channels|out_channels", "channels", "64"), /* as many numbers out as in */
    TM_HF_IS_OR("num_layers", "n_layers", "19"),
    TM_HF_IS_OR("num_single_layers", "n_single_layers", "38"),
    TM_HF_IS_OR("attention_head_dim", "head_dim", "128"),
    TM_HF_IS_OR("num_attention_heads", "n_heads", "24"),
    { .kind = TM_HF_PRODUCT, .key = "", .name = "model.dim", .values = "model.n_heads|model.head_dim" },
    TM_HF_IS_OR("joint_attention_dim", "text_dim", "4096"),
    TM_HF_IS_OR("pooled_projection_dim", "vector_dim", "768"),
    TM_HF_IS_OR("guidance_embeds", "guidance_embed", "false"),
    { .kind = TM_HF_LIST, .key = "axes_dims_rope", .name = "model.rope_axes", .absent = "16,56,56" },
    TM_HF_IDLE("_class_name"),
    TM_HF_IDLE("_diffusers_version"),
    { .key = NULL },
};
#define BOTH(mine, yours)                                                                                              \
    { .ours = mine ".weight", .theirs = yours ".weight" },                                                             \
    {                                                                                                                  \
        .ours = mine ".bias", .theirs = yours ".bias"                                                                  \
    }
#define DOUBLE(mine, yours) BOTH("double_blocks.{l}." mine, "transformer_blocks.{l}." yours)
#define SINGLE(mine, yours) BOTH("single_blocks.{l}." mine, "single_transformer_blocks.{l}." yours)
#define EMBEDDER(mine, yours)                                                                                          \
    BOTH(mine ".in_layer", "time_text_embed." yours ".linear_1"),                                                      \
        BOTH(mine ".out_layer", "time_text_embed." yours ".linear_2")
#define NORM(mine, yours)                                                                                              \
    {                                                                                                                  \
        .ours = mine "_norm.scale", .theirs = yours ".weight"                                                          \
    }
/* scale first, then shift */
#define FINAL(kind)                                                                                                    \
    {                                                                                                                  \
        .ours = "final_layer.adaLN_modulation.1.scale." kind, .theirs = "norm_out.linear." kind, .part = 0, .parts = 2 \
    },                                                                                                                 \
    {                                                                                                                  \
        .ours = "final_layer.adaLN_modulation.1.shift." kind, .theirs = "norm_out.linear." kind, .part = 1, .parts = 2 \
    }
static const tm_hf_tensor hf_tensors[] = {
    BOTH("img_in", "x_embedder"),
    BOTH("txt_in", "context_embedder"),
    EMBEDDER("time_in", "timestep_embedder"),
    EMBEDDER("guidance_in", "guidance_embedder"),
    EMBEDDER("vector_in", "text_embedder"),
    DOUBLE("img_mod.lin", "norm1.linear"),
    DOUBLE("txt_mod.lin", "norm1_context.linear"),
    DOUBLE("img_attn.qkv.q", "attn.to_q"),
    DOUBLE("img_attn.qkv.k", "attn.to_k"),
    DOUBLE("img_attn.qkv.v", "attn.to_v"),
    DOUBLE("txt_attn.qkv.q", "attn.add_q_proj"),
    DOUBLE("txt_attn.qkv.k", "attn.add_k_proj"),
    DOUBLE("txt_attn.qkv.v", "attn.add_v_proj"),
    NORM("double_blocks.{l}.img_attn.norm.query", "transformer_blocks.{l}.attn.norm_q"),
    NORM("double_blocks.{l}.img_attn.norm.key", "transformer_blocks.{l}.attn.norm_k"),
    NORM("double_blocks.{l}.txt_attn.norm.query", "transformer_blocks.{l}.attn.norm_added_q"),
    NORM("double_blocks.{l}.txt_attn.norm.key", "transformer_blocks.{l}.attn.norm_added_k"),
    DOUBLE("img_attn.proj", "attn.to_out.0"),
    DOUBLE("txt_attn.proj", "attn.to_add_out"),
    DOUBLE("img_mlp.0", "ff.net.0.proj"),
    DOUBLE("img_mlp.2", "ff.net.2"),
    DOUBLE("txt_mlp.0", "ff_context.net.0.proj"),
    DOUBLE("txt_mlp.2", "ff_context.net.2"),
    SINGLE("linear1.q", "attn.to_q"),
    SINGLE("linear1.k", "attn.to_k"),
    SINGLE("linear1.v", "attn.to_v"),
    SINGLE("linear1.mlp", "proj_mlp"),
    SINGLE("linear2", "proj_out"),
    SINGLE("modulation.lin", "norm.linear"),
    NORM("single_blocks.{l}.norm.query", "single_transformer_blocks.{l}.attn.norm_q"),
    NORM("single_blocks.{l}.norm.key", "single_transformer_blocks.{l}.attn.norm_k"),
    FINAL("weight"),
    FINAL("bias"),
    BOTH("final_layer.linear", "proj_out"),
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=flux", "model.time_dim=256", "model.rope_theta=10000",
                                        "model.norm_eps=1e-06", NULL };
static const char       *hf_lacks(const tm_model_shape *s)
{
    return s->ffn_dim == 4 * s->dim ? NULL : "its MLP is 4 model.dim wide (model.ffn_dim)";
}

static const tm_hf_form        hf_flux = { .model_type = "FluxTransformer2DModel",
                                           .architecture = "FluxTransformer2DModel",
                                           .diffusers = true,
                                           .pairs = hf_pairs,
                                           .keys = hf_keys,
                                           .tensors = hf_tensors,
                                           .lacks = hf_lacks };
static const tm_hf_form *const hf_forms[] = { &hf_flux, NULL };

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
    .declare = flux_declare,
    .loss = flux_loss,
    .products = products,
    .hf = hf_forms,
};

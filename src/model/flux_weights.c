/* SPDX-License-Identifier: Apache-2.0 */
/* model/flux_weights.c - the parameters of FLUX.1, and their parts where ranks divide matrices. */
#include "model/flux.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* How a matrix begins: Xavier's uniform distribution, 0.02, or zero (what is zero first is learnt from zero). */
typedef enum { BEGIN_XAVIER, BEGIN_SMALL, BEGIN_ZERO } beginning;

/* Of what ranks divide a layer has here all, some rows of each part, or some of the columns `from` ... `from + of` - 1.
 */
typedef enum { ALL_OF_IT, SOME_ROWS, SOME_COLUMNS } share;
typedef struct {
    tm_graph   *graph;
    tm_division ranks;
    int         layer;
} declarer;
typedef struct {
    share   share;
    int64_t from, of;
} part_of;
static const part_of all_of_it = { ALL_OF_IT, 0, 0 }, some_rows = { SOME_ROWS, 0, 0 };

/* A matrix (out, in), or a vector of `out` elements (in 0), of `n` parts with equally many rows, which begin evenly
 * distributed or normal. */
static tm_tensor_id declare_one(const declarer *d, const tm_piece *like, int64_t out, int64_t in,
                                const char *const *names, const char *full, int n, part_of which)
{
    tm_piece    pieces[4];
    tm_division none = { 0 }, by_columns = which.share == SOME_COLUMNS ? d->ranks : none;
    tm_division by_rows = which.share == SOME_ROWS ? d->ranks : none;
    int64_t     row, column, rows = tm_divide(by_rows, out / n, &row);
    int64_t     columns = which.share == SOME_COLUMNS ? tm_divide(by_columns, which.of, &column) : in;
    for (int i = 0; i < n; i++) {
        pieces[i] = *like;
        pieces[i].name = names[i];
        pieces[i].row = i * rows;
        pieces[i].rows = rows;
        pieces[i].begin = i * (out / n) + row;
        pieces[i].first = row;
        pieces[i].whole = tm_divided(by_rows) ? out / n : 0;
    }
    d->graph->layer = d->layer;
    tm_tensor_id id =
        tm_graph_parameter(d->graph, full, in ? tm_shape_2(n * rows, columns) : tm_shape_1(n * rows), pieces, n);
    tm_cut cut = { .axes = d->ranks.axes, .rank = d->ranks.rank, .ranks = d->ranks.ranks };
    cut.whole = in ? tm_shape_2(out, in) : tm_shape_1(out);
    if (which.share == SOME_COLUMNS) cut.column = which.from + column;
    if (tm_divided(d->ranks) && which.share != ALL_OF_IT) tm_graph_cut(d->graph, id, &cut);
    return id;
}

static tm_piece begin_as(beginning begin, int64_t out, int64_t in)
{
    double std = begin == BEGIN_XAVIER ? sqrt(2.0 / (double)(in + out)) : begin == BEGIN_SMALL ? 0.02 : 0;
    return (tm_piece){ .std = std, .uniform = begin == BEGIN_XAVIER };
}

/* Weight and bias of `n` parts. The names are `name`, a part's, and the kind. Of a layer with some columns every rank
 * has the whole bias, and adds its share of it. */
static tm_flux_layer declare_parts(const declarer *d, beginning begin, part_of which, int64_t out, int64_t in,
                                   const char *name, const char *const *parts, int n)
{
    static const char *const kinds[] = { "weight", "bias" };
    tm_piece                 like[] = { begin_as(begin, out, in), begin_as(BEGIN_ZERO, out, in) };
    tm_tensor_id             made[2];
    like[1].uniform = like[0].uniform;
    for (int k = 0; k < 2; k++) {
        const char *names[4];
        part_of     own = k == 1 && which.share == SOME_COLUMNS ? all_of_it : which;
        for (int i = 0; i < n; i++) names[i] = tm_arena_format(d->graph->arena, "%s%s.%s", name, parts[i], kinds[k]);
        const char *full = n == 1 ? names[0] : tm_arena_format(d->graph->arena, "%s.%s", name, kinds[k]);
        made[k] = declare_one(d, &like[k], out, k == 0 ? in : 0, names, full, n, own);
    }
    if (which.share == SOME_COLUMNS && tm_divided(d->ranks)) tm_graph_at(d->graph, made[1])->sums |= d->ranks.axes;
    return (tm_flux_layer){ made[0], made[1] };
}

static tm_flux_layer declare_layer(const declarer *d, beginning begin, part_of which, int64_t out, int64_t in,
                                   const char *format, ...) __attribute__((format(printf, 6, 7)));
static tm_flux_layer declare_layer(const declarer *d, beginning begin, part_of which, int64_t out, int64_t in,
                                   const char *format, ...)
{
    static const char *const whole[] = { "" };
    char                     name[160];
    va_list                  args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return declare_parts(d, begin, which, out, in, name, whole, 1);
}

static part_of some_columns(int64_t from, int64_t of)
{
    return (part_of){ SOME_COLUMNS, from, of };
}

const char *const tm_flux_qkv[] = { ".q", ".k", ".v" };

/* Used for a rank's heads. */
static tm_tensor_id declare_norms(const declarer *d, const tm_model_shape *s, const char *prefix)
{
    tm_graph *graph = d->graph;
    tm_piece  pieces[2];
    for (int i = 0; i < 2; i++)
        pieces[i] =
            (tm_piece){ .name = tm_arena_format(graph->arena, "%snorm.%s_norm.scale", prefix, i ? "key" : "query"),
                        .row = i * s->head_dim,
                        .rows = s->head_dim,
                        .mean = 1 };
    graph->layer = d->layer;
    tm_tensor_id id = tm_graph_parameter(graph, tm_arena_format(graph->arena, "%snorm.scale", prefix),
                                         tm_shape_1(2 * s->head_dim), pieces, 2);
    if (tm_divided(d->ranks)) tm_graph_at(graph, id)->sums |= d->ranks.axes;
    return id;
}

static void declare_stream(const declarer *d, const tm_model_shape *s, const char *name, tm_flux_stream *w)
{
    int64_t     h = s->dim, f = s->ffn_dim;
    const char *prefix = tm_arena_format(d->graph->arena, "double_blocks.%d.%s_", d->layer, name);
    w->mod = declare_layer(d, BEGIN_ZERO, all_of_it, 6 * h, h, "%smod.lin", prefix);
    w->qkv = declare_parts(d, BEGIN_XAVIER, some_rows, 3 * h, h, tm_arena_format(d->graph->arena, "%sattn.qkv", prefix),
                           tm_flux_qkv, 3);
    w->norm = declare_norms(d, s, tm_arena_format(d->graph->arena, "%sattn.", prefix));
    w->proj = declare_layer(d, BEGIN_XAVIER, some_columns(0, h), h, h, "%sattn.proj", prefix);
    w->up = declare_layer(d, BEGIN_XAVIER, some_rows, f, h, "%smlp.0", prefix);
    w->down = declare_layer(d, BEGIN_XAVIER, some_columns(0, f), h, f, "%smlp.2", prefix);
}

/* The first product of a single block has the rows of query, key, value and MLP; here it is two of them. */
static void declare_single(const declarer *d, const tm_model_shape *s, int number, tm_flux_single *w)
{
    int64_t     h = s->dim, f = s->ffn_dim;
    const char *prefix = tm_arena_format(d->graph->arena, "single_blocks.%d.", number);
    const char *name = tm_arena_format(d->graph->arena, "%slinear2.weight", prefix);
    tm_piece    like = begin_as(BEGIN_XAVIER, h, h + f);
    bool        divided = tm_divided(d->ranks);
    w->qkv = declare_parts(d, BEGIN_XAVIER, some_rows, 3 * h, h, tm_arena_format(d->graph->arena, "%slinear1", prefix),
                           tm_flux_qkv, 3);
    w->up = declare_layer(d, BEGIN_XAVIER, some_rows, f, h, "%slinear1.mlp", prefix);
    w->down = declare_layer(d, BEGIN_XAVIER, some_columns(0, divided ? h : h + f), h, h + f, "%slinear2", prefix);
    w->down_mlp = divided ? declare_one(d, &like, h, h + f, &name, name, 1, some_columns(h, f)) : TM_NONE;
    w->norm = declare_norms(d, s, prefix);
    w->mod = declare_layer(d, BEGIN_ZERO, all_of_it, 3 * h, h, "%smodulation.lin", prefix);
}

static void declare_embedder(const declarer *d, const tm_model_shape *s, const char *name, int64_t in, beginning begin,
                             tm_flux_layer w[2])
{
    w[0] = declare_layer(d, begin, all_of_it, s->dim, in, "%s.in_layer", name);
    w[1] = declare_layer(d, begin, all_of_it, s->dim, s->dim, "%s.out_layer", name);
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

/* What lies in front of the blocks, and behind them. */
static void declare_front(const declarer *d, const tm_model_shape *s, tm_flux_weights *w)
{
    const tm_flux_shape *x = &s->flux;
    w->img_in = declare_layer(d, BEGIN_XAVIER, all_of_it, s->dim, x->channels, "img_in");
    w->txt_in = declare_layer(d, BEGIN_XAVIER, all_of_it, s->dim, x->text_dim, "txt_in");
    declare_embedder(d, s, "time_in", x->time_dim, BEGIN_SMALL, w->time);
    if (x->guidance) declare_embedder(d, s, "guidance_in", x->time_dim, BEGIN_SMALL, w->guidance);
    declare_embedder(d, s, "vector_in", x->vector_dim, BEGIN_SMALL, w->vector);
}

static void declare_end(const declarer *d, const tm_model_shape *s, tm_flux_weights *w)
{
    static const char *const halves[] = { ".shift", ".scale" };
    w->final_mod =
        declare_parts(d, BEGIN_ZERO, all_of_it, 2 * s->dim, s->dim, "final_layer.adaLN_modulation.1", halves, 2);
    w->final = declare_layer(d, BEGIN_ZERO, all_of_it, s->flux.channels, s->dim, "final_layer.linear");
}

void tm_flux_declare(tm_graph *graph, const tm_model_shape *s, int64_t seq, tm_model *out)
{
    const tm_flux_shape *x = &s->flux;
    tm_flux_weights     *w = out->own = tm_arena_take(graph->arena, sizeof *w);
    w->img = tm_arena_take(graph->arena, (size_t)s->n_layers * sizeof *w->img);
    w->txt = tm_arena_take(graph->arena, (size_t)s->n_layers * sizeof *w->txt);
    w->singles = tm_arena_take(graph->arena, (size_t)x->n_single * sizeof *w->singles);
    declarer d = { graph, out->parallel.tensor, -1 };
    if (tm_parallel_begins(&out->parallel)) declare_front(&d, s, w);
    for (d.layer = 0; d.layer < s->n_layers; d.layer++) {
        if (!tm_parallel_has(&out->parallel, d.layer)) continue;
        declare_stream(&d, s, "img", &w->img[d.layer]);
        declare_stream(&d, s, "txt", &w->txt[d.layer]);
    }
    for (int i = 0; i < x->n_single; i++, d.layer++)
        if (tm_parallel_has(&out->parallel, d.layer)) declare_single(&d, s, i, &w->singles[i]);
    d.layer = -1;
    if (tm_parallel_ends(&out->parallel)) declare_end(&d, s, w);
    /* a part of a model is planned with fewer tokens: those that come first */
    tm_division own = out->parallel.context;
    int64_t     ranks = own.ranks > 1 ? own.ranks : 1;
    rope_tokens tokens = { *s, x->text_len / ranks, own.rank * (x->rows * x->columns / ranks) };
    out->rope_table = tm_graph_constant(graph, "rope_table", tm_shape_2(seq / ranks, s->head_dim), rope_value, &tokens,
                                        sizeof tokens);
}

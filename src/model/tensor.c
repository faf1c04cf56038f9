/* SPDX-License-Identifier: Apache-2.0 */
/* model/tensor.c - tensor parallel: what ranks that divide the matrices of a model do (Shoeybi et al. 2019; with
 * `rows`, Korthikanti et al. 2022).
 *
 * Of a product that goes into heads or into the width of a feed-forward layer a rank has rows of the matrix, and so
 * some of the results, of all tokens; of the one that leads out again it has the columns that belong to them: its
 * product is one term of a sum over the ranks. With `rows` a rank has a run of the tokens between such a pair: they are
 * gathered in front of it, and the sum is scattered behind.
 */
#include "model/blocks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t tm_divide(tm_division division, int64_t n, int64_t *first)
{
    if (!tm_divided(division)) {
        *first = 0;
        return n;
    }
    int64_t each = (n + division.ranks - 1) / division.ranks, from = each * division.rank;
    *first = from < n ? from : n;
    return n - *first < each ? n - *first : each;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static void set_cut(tm_graph *graph, tm_tensor_id id, tm_division division, tm_shape whole, int64_t column)
{
    tm_cut cut = {
        .axes = division.axes, .rank = division.rank, .ranks = division.ranks, .whole = whole, .column = column
    };
    if (tm_divided(division)) tm_graph_cut(graph, id, &cut);
}

tm_tensor_id tm_declare_fused(tm_graph *graph, const tm_model *model, int layer, const char *name, int64_t columns,
                              const tm_part *parts, int n, bool divided)
{
    tm_division division = divided ? model->parallel.tensor : (tm_division){ 0 };
    tm_piece    pieces[TM_MAX_FUSED];
    int64_t     row = 0, whole = 0, first;
    int         made = 0;
    TM_ASSERT(n <= TM_MAX_FUSED);
    for (int i = 0; i < n; i++) {
        int64_t rows = tm_divide(division, parts[i].rows, &first), of = parts[i].first;
        bool    same = made > 0 && of > 0 && !tm_divided(division); /* runs of one piece, all of them here */
        if (same) {
            pieces[made - 1].rows += rows;
        } else {
            pieces[made] = tm_init_piece(model->shape, parts[i].place, layer, row, rows);
            pieces[made].name = parts[i].name;
            pieces[made].begin = whole + first;
            pieces[made].first = of + first;
            pieces[made++].whole = tm_divided(division) ? of + parts[i].rows : 0;
        }
        row += rows;
        whole += parts[i].rows;
    }
    for (int i = made - 1; i > 0; i--) /* of several runs: as many rows as all of them end with */
        if (pieces[i].name == pieces[i - 1].name) pieces[i - 1].whole = pieces[i].whole;
    graph->layer = layer;
    tm_tensor_id id =
        tm_graph_parameter(graph, name, columns ? tm_shape_2(row, columns) : tm_shape_1(row), pieces, made);
    set_cut(graph, id, division, columns ? tm_shape_2(whole, columns) : tm_shape_1(whole), 0);
    return id;
}

tm_tensor_id tm_declare_rows(tm_graph *graph, const tm_model *model, tm_init_place place, int layer, tm_shape of,
                             const char *format, ...)
{
    char    name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const tm_part part = { .name = name, .rows = of.n[0], .place = place };
    return tm_declare_fused(graph, model, layer, name, of.rank == 2 ? of.n[1] : 0, &part, 1, true);
}

tm_tensor_id tm_declare_columns(tm_graph *graph, const tm_model *model, tm_init_place place, int layer, tm_shape of,
                                const char *format, ...)
{
    char    name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    int64_t  first, columns = tm_divide(model->parallel.tensor, of.n[1], &first);
    tm_piece piece = tm_init_piece(model->shape, place, layer, 0, of.n[0]);
    piece.name = name;
    graph->layer = layer;
    tm_tensor_id id = tm_graph_parameter(graph, name, tm_shape_2(of.n[0], columns), &piece, 1);
    set_cut(graph, id, model->parallel.tensor, of, first);
    return id;
}

static void add_sum(tm_graph *graph, const tm_model *model, tm_tensor_id id)
{
    if (id != TM_NONE && tm_divided(model->parallel.tensor))
        tm_graph_at(graph, id)->sums |= model->parallel.tensor.axes;
}

tm_tensor_id tm_between(tm_graph *graph, const tm_model *model, tm_tensor_id id)
{
    if (model->parallel.rows) add_sum(graph, model, id);
    return id;
}

tm_tensor_id tm_of_heads(tm_graph *graph, const tm_model *model, tm_tensor_id id)
{
    add_sum(graph, model, id);
    return id;
}

int64_t tm_local_heads(const tm_model *model)
{
    int64_t first;
    return tm_divide(model->parallel.tensor, model->shape->n_heads, &first);
}

int64_t tm_local_kv_heads(const tm_model *model)
{
    int64_t first;
    return tm_divide(model->parallel.tensor, model->shape->n_kv_heads, &first);
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

static tm_tensor_id collective(tm_graph *graph, tm_op_id op, tm_division division, const char *what, tm_tensor_id x,
                               int64_t rows)
{
    tm_group_attr attr;
    tm_tensor     of = *tm_graph_at(graph, x);
    memset(&attr, 0, sizeof attr);
    attr.axes = division.axes;
    attr.ranks = division.ranks;
    snprintf(attr.what, sizeof attr.what, "%s of %s", what, graph->module);
    of.shape.n[0] = rows;
    tm_tensor_id in[TM_MAX_IN] = { x }, out[TM_MAX_OUT];
    out[0] = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "%s.%s", graph->module, what), of.role, of.shape,
                                of.dtype);
    tm_graph_add(graph, op, &attr, sizeof attr, in, out, 0);
    return out[0];
}

tm_tensor_id tm_emit_gather(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x)
{
    int64_t rows = tm_graph_at(graph, x)->shape.n[0];
    return tm_divided(division) ? collective(graph, TM_OP_all_gather, division, what, x, rows * division.ranks) : x;
}

tm_tensor_id tm_emit_scatter(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x)
{
    int64_t rows = tm_graph_at(graph, x)->shape.n[0];
    return tm_divided(division) ? collective(graph, TM_OP_reduce_scatter, division, what, x, rows / division.ranks) : x;
}

tm_tensor_id tm_emit_sum(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x)
{
    int64_t rows = tm_graph_at(graph, x)->shape.n[0];
    return tm_divided(division) ? collective(graph, TM_OP_all_reduce, division, what, x, rows) : x;
}

tm_tensor_id tm_emit_shared(tm_graph *graph, tm_division division, const char *what, tm_tensor_id x)
{
    int64_t rows = tm_graph_at(graph, x)->shape.n[0];
    return tm_divided(division) ? collective(graph, TM_OP_share, division, what, x, rows) : x;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

tm_tensor_id tm_enter(tm_graph *graph, const tm_model *model, tm_tensor_id x)
{
    const tm_parallel *p = &model->parallel;
    return p->rows ? tm_emit_gather(graph, p->tensor, "rows", x) : tm_emit_shared(graph, p->tensor, "input", x);
}

static tm_tensor_id leave(tm_graph *graph, const tm_model *model, tm_tensor_id x)
{
    const tm_parallel *p = &model->parallel;
    return p->rows ? tm_emit_scatter(graph, p->tensor, "sum", x) : tm_emit_sum(graph, p->tensor, "sum", x);
}

tm_tensor_id tm_leave(tm_graph *graph, const tm_model *model, tm_tensor_id term, tm_tensor_id bias,
                      tm_tensor_id residual)
{
    tm_tensor_id y = leave(graph, model, term);
    return bias == TM_NONE ? tm_emit(graph, TM_OP_add, NULL, 0, residual, y, TM_NONE, TM_NONE)
                           : tm_emit(graph, TM_OP_add_bias, NULL, 0, residual, y, bias, TM_NONE);
}

tm_tensor_id tm_linear_out(tm_graph *graph, const tm_model *model, tm_tensor_id x, tm_tensor_id w, tm_tensor_id bias,
                           tm_tensor_id residual)
{
    if (!tm_divided(model->parallel.tensor)) return tm_emit(graph, TM_OP_linear, NULL, 0, x, w, bias, residual);
    return tm_leave(graph, model, tm_emit(graph, TM_OP_linear, NULL, 0, x, w, TM_NONE, TM_NONE), bias, residual);
}

tm_tensor_id tm_embed(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
{
    const tm_division *tensor = &model->parallel.tensor;
    tm_embedding_attr  attr = { .seq = model->seq };
    if (tm_divided(*tensor)) {
        int64_t rows = tm_graph_at(graph, tokens)->shape.n[0];
        attr.part = 1;
        tm_divide(*tensor, model->shape->vocab_size, &attr.first);
        if (model->positions != TM_NONE) attr.rows = tm_divide(*tensor, rows, &attr.from);
    }
    tm_tensor_id x = tm_emit(graph, TM_OP_embedding, &attr, sizeof attr, tokens, model->embedding, model->positions,
                             model->positions == TM_NONE ? TM_NONE : model->places);
    return tm_divided(*tensor) ? leave(graph, model, x) : x;
}

/* Rows first .. first + n - 1 of vectors with an element for each row of a micro-batch; TM_NONE stays. */
static tm_tensor_id rows_of(tm_graph *graph, tm_tensor_id id, int64_t first, int64_t n)
{
    if (id == TM_NONE || tm_graph_at(graph, id)->shape.n[0] == n) return id;
    const char *name = tm_arena_format(graph->arena, "%s.%lld", tm_graph_at(graph, id)->name, (long long)first);
    return tm_graph_run(graph, name, id, first, tm_shape_1(n));
}

typedef struct {
    const tm_model *model;
    tm_tensor_id    targets, loss;
    tm_tensor_id losses; /* of rows, of which another loss is made in the place of the sum; TM_NONE: they are summed */
    int64_t      chunk;
    bool         accumulate;
    bool         again; /* the backward pass makes logits again, a chunk at a time, and forward ones are not kept */
} divided_loss;

tm_tensor_id tm_vocabulary_logits(tm_graph *graph, const tm_model *model, int64_t n)
{
    tm_shape shape = tm_shape_2(n, tm_graph_at(graph, model->head)->shape.n[0]);
    return tm_graph_tensor(graph, "output.logits", TM_ROLE_STATISTIC, shape);
}

void tm_vocabulary_parts(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                         const tm_vocabulary_attr *attr, tm_tensor_id z, tm_tensor_id out[2])
{
    tm_tensor_id in[TM_MAX_IN] = { hidden, model->head, TM_NONE, TM_NONE };
    tm_tensor_id logits[TM_MAX_OUT] = { z }, parts[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_graph_add(graph, TM_OP_linear, NULL, 0, in, logits, 0);
    tm_graph_add(graph, TM_OP_vocabulary_parts, attr, sizeof *attr, (tm_tensor_id[TM_MAX_IN]){ z, targets }, parts, 0);
    out[0] = parts[0];
    out[1] = parts[1];
}

/* hidden (n, C): rows first ... */
static void add_chunk(tm_graph *graph, divided_loss *l, tm_tensor_id hidden, int64_t first)
{
    const tm_model    *model = l->model;
    const tm_division *tensor = &model->parallel.tensor;
    tm_vocabulary_attr attr = { .rank = tensor->rank, .ranks = tensor->ranks };
    int64_t            n = tm_graph_at(graph, hidden)->shape.n[0];
    tm_tensor_id       z = tm_vocabulary_logits(graph, model, n), parts[2];
    tm_tensor_id       targets = rows_of(graph, l->targets, first, n);
    tm_tensor_id       rows = l->losses == TM_NONE ? model->row_losses : l->losses;
    tm_tensor_id       out[TM_MAX_OUT] = { l->loss, rows_of(graph, rows, first, n) };
    tm_keep            keep = graph->keep;
    tm_divide(*tensor, model->shape->vocab_size, &attr.first);
    if (l->again) graph->keep = TM_KEEP_NOT;
    tm_vocabulary_parts(graph, model, hidden, targets, &attr, z, parts);
    graph->keep = keep;
    tm_tensor_id all = tm_emit_gather(graph, *tensor, "parts", parts[1]);
    tm_graph_add(graph, TM_OP_vocabulary_loss, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ parts[0], targets, all },
                 out, l->accumulate && l->loss != TM_NONE ? 1U : 0);
    l->accumulate = true;
}

/* Halves until they fit: so what is copied is little more than the rows. */
static void add_rows(tm_graph *graph, divided_loss *l, tm_tensor_id hidden, int64_t first)
{
    int64_t n = tm_graph_at(graph, hidden)->shape.n[0], chunks = (n + l->chunk - 1) / l->chunk;
    if (chunks <= 1) {
        add_chunk(graph, l, hidden, first);
        return;
    }
    tm_join_attr attr = { .samples = 1, .first = (chunks + 1) / 2 * l->chunk };
    attr.second = n - attr.first;
    tm_tensor_id in[TM_MAX_IN] = { hidden }, out[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_graph_add(graph, TM_OP_split, &attr, sizeof attr, in, out, 0);
    add_rows(graph, l, out[0], first);
    add_rows(graph, l, out[1], first + attr.first);
}

bool tm_vocabulary_turned(const tm_graph *graph, const tm_model *model)
{
    const tm_adapter *adapter = tm_graph_at(graph, model->head)->adapter;
    return adapter && adapter->m != TM_NONE;
}

void tm_vocabulary_loss(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                        tm_tensor_id loss, int64_t chunk, bool accumulate)
{
    divided_loss l = { .model = model, .targets = targets, .loss = loss, .chunk = chunk, .accumulate = accumulate };
    l.losses = TM_NONE;
    l.again = tm_vocabulary_turned(graph, model) && tm_graph_at(graph, hidden)->shape.n[0] > chunk;
    add_rows(graph, &l, hidden, 0);
}

void tm_vocabulary_row_losses(tm_graph *graph, const tm_model *model, tm_tensor_id hidden, tm_tensor_id targets,
                              tm_tensor_id losses, int64_t chunk)
{
    divided_loss l = { .model = model, .targets = targets, .loss = TM_NONE, .losses = losses, .chunk = chunk };
    l.again = true;
    add_rows(graph, &l, hidden, 0);
}

/* --- what can be divided ------------------------------------------------------------------------------------------ */

tm_status tm_tensor_does_not_divide(const char *key, int64_t value, int ranks, tm_error *err)
{
    return tm_fail(
        err, TM_INVALID,
        "parallelism.tensor_parallel_degree %d does not divide %s, which is %lld; take a degree that divides "
        "it",
        ranks, key, (long long)value);
}

tm_status tm_model_check_tensor(const tm_model_shape *s, const tm_parallel *parallel, tm_error *err)
{
    int  ranks = parallel->tensor.ranks;
    bool dense = tm_moe_has_plain_layers(s);
    if (ranks <= 1) return TM_OK;
    if (!tm_family_of(s)->divides)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "tensor parallelism (parallelism.tensor_parallel_degree %d) is not supported for the %s family; set "
            "it to 1",
            ranks, tm_model_family_name(s));
    if (s->n_heads % ranks) return tm_tensor_does_not_divide("model.n_heads", s->n_heads, ranks, err);
    if (s->n_kv_heads % ranks) return tm_tensor_does_not_divide("model.n_kv_heads", s->n_kv_heads, ranks, err);
    if (dense && s->ffn_dim % ranks) return tm_tensor_does_not_divide("model.ffn_dim", s->ffn_dim, ranks, err);
    if (!tm_model_images(s) && (s->vocab_size + ranks - 1) / ranks * (ranks - 1) >= s->vocab_size)
        return tm_tensor_does_not_divide("model.vocab_size", s->vocab_size, ranks, err);
    return tm_moe_check_tensor(s, parallel, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/quantize_split.h"

#include "graph/cut.h"
#include "op/attrs.h"

#include <stdio.h>
#include <string.h>

/* What ranks have some of each: rows, columns of a factor; so whether its lines are divided. */
typedef struct {
    bool rows, columns, lines;
} split;

/* Of y = x w^T with rows of w a rank has columns of y and dy; with columns of w those of x. Between such pairs ranks
 * may have rows of x and dy, and all of w: the gradient of w then is a sum over them. Of divided experts each is whole.
 */
static split split_of(const tm_quantize *policy, const tm_tensor *weight, tm_factor factor)
{
    const tm_cut *cut = weight->cut;
    bool          of_w = quantize_of_weight(factor), of_x = quantize_of_x(factor);
    bool          down = factor == TM_FACTOR_W_DX || factor == TM_FACTOR_DY_DW || factor == TM_FACTOR_X_DW;
    split         s = { 0 };
    if (policy->tensor_ranks < 2) return s;
    if (cut && cut->axes == policy->tensor_axes) {
        bool by_columns = tm_cut_by_columns(weight);
        s.rows = of_w && !by_columns;
        s.columns = of_w || of_x ? by_columns : !by_columns;
    } else if (!cut && (weight->sums & policy->tensor_axes)) {
        s.rows = !of_w;
    }
    s.lines = down ? s.rows : s.columns;
    return s;
}

/* --- layers of a fused weight ------------------------------------------------------------------------------------- */

static int experts_of(const tm_tensor *weight)
{
    return weight->shape.rank == 3 ? (int)weight->shape.n[0] : 1;
}

int quantize_experts(const tm_tensor *weight, int *first, int *here)
{
    bool cut = weight->shape.rank == 3 && weight->cut;
    *here = experts_of(weight);
    *first = cut ? (int)(weight->pieces[0].begin / weight->cut->whole.n[1]) : 0;
    return cut ? (int)weight->cut->whole.n[0] : *here;
}

/* Another run of the layer before. */
static bool goes_on(const tm_tensor *weight, int i)
{
    return i > 0 && strcmp(weight->pieces[i].name, weight->pieces[i - 1].name) == 0;
}

int quantize_parts(const tm_tensor *weight)
{
    int n = 0;
    for (int i = 0; i < weight->n_pieces / experts_of(weight); i++) n += !goes_on(weight, i);
    return n > 0 ? n : 1;
}

const tm_piece *quantize_piece(const tm_tensor *weight, int part)
{
    for (int i = 0; i < weight->n_pieces; i++)
        if (!goes_on(weight, i) && part-- == 0) return &weight->pieces[i];
    return NULL;
}

int64_t quantize_inputs(const tm_tensor *weight)
{
    return weight->cut ? tm_piece_row(weight->cut->whole) : tm_piece_row(weight->shape);
}

int64_t quantize_outputs(const tm_tensor *weight, int part)
{
    const tm_piece *piece = quantize_piece(weight, part);
    if (!piece) return weight->shape.n[weight->shape.rank - 2];
    return piece->whole > 0 ? piece->whole : piece->rows;
}

/* How many runs has a layer of the first expert? */
static int runs_of(const tm_tensor *weight, int part)
{
    const tm_piece *first = quantize_piece(weight, part);
    int             i = (int)(first - weight->pieces), n = 1;
    while (i + n < weight->n_pieces / experts_of(weight) && goes_on(weight, i + n)) n++;
    return n;
}

void quantize_describe_parts(const tm_quantize *policy, const tm_tensor *weight, tm_factor factor, tm_shape shape,
                             tm_quantize_attr *attr)
{
    const tm_cut *cut = weight->cut;
    split         s = split_of(policy, weight, factor);
    bool          of_x = quantize_of_x(factor);
    int           parts = of_x || weight->n_pieces == 0 ? 0 : quantize_parts(weight);
    attr->n_parts = 1;
    attr->end[0] = (int32_t)shape.n[shape.rank - (attr->cut_columns ? 1 : 2)];
    for (int i = 0; i < parts; i++) { /* of the first expert, as of all */
        const tm_piece *first = quantize_piece(weight, i), *last = first + runs_of(weight, i) - 1;
        attr->end[i] = (int32_t)(last->row + last->rows);
        attr->n_parts = i + 1;
        if (s.columns && attr->cut_columns) attr->shift[i] = (int32_t)(first->begin - first->row);
    }
    if (s.columns)
        attr->whole_columns =
            (int32_t)(attr->cut_columns ? cut->whole.n[cut->whole.rank - 2] : tm_piece_row(cut->whole));
    if (s.columns && of_x) attr->shift[0] = (int32_t)cut->column;
    if (s.rows && !quantize_of_weight(factor)) attr->first_row = policy->tensor_rank * shape.n[0];
}

/* --- what cannot be divided --------------------------------------------------------------------------------------- */

/* Elements of a line, or lines of a square, that have one scale or are rotated together. */
static int64_t block_of(const tm_quantizer *z, bool along)
{
    bool square = z->scaled == TM_SCALED_SQUARE, block = square || z->scaled == TM_SCALED_BLOCK;
    if (along && block) return z->block;
    if (along && z->rotation != TM_ROTATE_NOT) return TM_ROTATED;
    return !along && square ? z->block : 1;
}

/* Do all ranks' runs of a layer's rows begin at whole blocks? */
static bool rows_fit(const tm_tensor *weight, int part, int64_t block)
{
    const tm_cut   *cut = weight->cut;
    const tm_piece *piece = quantize_piece(weight, part);
    int             n = runs_of(weight, part);
    for (int i = 0; i < n; i++, piece++) {
        int64_t each = n > 1 ? piece->rows : (piece->whole + cut->ranks - 1) / cut->ranks;
        if (each % block != 0 || (piece->first - cut->rank * each) % block != 0) return false;
    }
    return true;
}

typedef struct {
    const tm_quantize      *policy;
    const tm_tensor        *weight;
    const tm_quantize_attr *attr;
    tm_factor               factor;
    tm_shape                shape;
    split                   split;
    const char             *recipe;
} divided;

static bool fits(const divided *d, int part, const tm_quantizer *z)
{
    const bool of_rows = quantize_of_weight(d->factor), down = d->attr->down;
    int64_t    rows = d->shape.n[d->shape.rank - 2], columns = d->shape.n[d->shape.rank - 1];
    if (d->split.rows) {
        int64_t block = block_of(z, down);
        if (of_rows ? !rows_fit(d->weight, part, block) : rows % block != 0) return false;
    }
    if (!d->split.columns) return true;
    int64_t block = block_of(z, !down);
    return d->attr->cut_columns ? rows_fit(d->weight, part, block) : columns % block == 0;
}

/* Elements of a line of the whole tensor. */
static int64_t whole_length(const divided *d, int part)
{
    tm_quantize_part here = tm_quantize_part_of(d->attr, d->shape, part);
    if (!d->split.lines) return here.length;
    if (d->attr->cut_columns ? !d->attr->down : quantize_of_weight(d->factor) && d->attr->down)
        return quantize_outputs(d->weight, part);
    return d->attr->down ? here.length * d->policy->tensor_ranks : quantize_inputs(d->weight);
}

static tm_status refuse(const divided *d, const char *what, const char *way, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "recipe %s is not supported for '%s' among ranks that divide matrices "
                   "(parallelism.tensor_parallel_degree %d): %s; leave it out (quantize.filter_fqns)%s",
                   d->recipe, d->weight->name, d->policy->tensor_ranks, what, way);
}

static tm_status check_divided(const divided *d, int part, const tm_quantizer *z, tm_error *err)
{
    const tm_cut *cut = d->weight->cut;
    char          what[160];
    if (z->scaled == TM_SCALED_NOT) return TM_OK;
    if (d->policy->tensor_ranks > 1 && d->weight->adapts != TM_NONE)
        return refuse(d, "it belongs to an adapter, whose gradients are terms of a sum over them", "", err);
    if (!d->split.rows && !d->split.columns) return TM_OK;
    if (cut && tm_cut_by_columns(d->weight) && tm_piece_row(d->weight->shape) * cut->ranks != tm_piece_row(cut->whole))
        return refuse(d, "a rank has two runs of its columns, which are two products", "", err);
    if (z->stochastic && d->attr->cut_columns && d->split.columns && runs_of(d->weight, part) > 1)
        return refuse(d, "a rank has several runs of its rows, and rounding at random goes by one",
                      ", or set quantize.stochastic_gradients to false", err);
    if (fits(d, part, z)) return TM_OK;
    snprintf(
        what, sizeof what, "the %lld elements that its factor %s is summed over, or its lines, are divided within %s",
        (long long)whole_length(d, part), tm_factor_name(d->factor),
        z->scaled == TM_SCALED_BLOCK || z->scaled == TM_SCALED_SQUARE ? "a block" : "16 that are rotated together");
    return refuse(d, what, ", take a lower degree, or change the size of the model or of the micro-batch", err);
}

tm_status quantize_check_parts(const tm_quantize *policy, const tm_tensor *weight, tm_factor factor, tm_shape shape,
                               const tm_quantize_attr *attr, int which, const char *recipe, tm_error *err)
{
    const tm_quantizer *z = &attr->recipe[which];
    const divided       d = { policy, weight, attr, factor, shape, split_of(policy, weight, factor), recipe };
    for (int part = 0; part < attr->n_parts; part++) {
        tm_quantize_part of = tm_quantize_part_of(attr, shape, part);
        of.length = whole_length(&d, part);
        const char *why = tm_quantize_misfit(z, of);
        if (why)
            return tm_fail(err, TM_UNSUPPORTED,
                           "recipe %s does not fit '%s': its factor %s is summed over %lld elements, and %s; leave it "
                           "out (quantize.filter_fqns) or change the size of the model or of the micro-batch",
                           recipe, weight->name, tm_factor_name(factor), (long long)of.length, why);
        TM_TRY(check_divided(&d, part, z, err));
    }
    return TM_OK;
}

/* --- the largest of all ranks ------------------------------------------------------------------------------------- */

/* Does a scale of this recipe go by what other ranks have? */
static bool goes_by_others(const tm_quantizer *z, split s)
{
    return z->scaled == TM_SCALED_TENSOR || z->rule == TM_RULE_TWO_LEVEL || (z->scaled == TM_SCALED_LINE && s.lines);
}

tm_tensor_id quantize_emit_largest(tm_graph *graph, const tm_quantize *policy, const tm_tensor *weight,
                                   tm_factor factor, tm_quantize_attr *attr, const tm_tensor_id *in, const char *name)
{
    split         s = split_of(policy, weight, factor);
    bool          wanted = false;
    tm_group_attr group;
    if (!s.rows && !s.columns) return TM_NONE;
    for (int r = 0; r < (attr->switch_step < 0 ? 1 : 2); r++) {
        const tm_quantizer *z = &attr->recipe[r];
        if (z->scaled != TM_SCALED_NOT && goes_by_others(z, s)) wanted = true;
        if (z->scaled == TM_SCALED_LINE && s.lines) attr->lines = 1;
    }
    if (!wanted) return TM_NONE;
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE };
    tm_tensor_id of[TM_MAX_IN] = { in[0], in[1], TM_NONE, in[TM_QUANTIZE_OFFSETS] };
    tm_graph_add(graph, TM_OP_quantize_largest, attr, sizeof *attr, of, out, 0);
    memset(&group, 0, sizeof group);
    group.axes = policy->tensor_axes;
    group.ranks = policy->tensor_ranks;
    group.largest = 1;
    snprintf(group.what, sizeof group.what, "largest of %.50s", name);
    tm_graph_add(graph, TM_OP_all_reduce, &group, sizeof group, (tm_tensor_id[TM_MAX_IN]){ out[0] },
                 (tm_tensor_id[TM_MAX_OUT]){ out[0] }, 0);
    return out[0];
}

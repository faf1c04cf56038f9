/* SPDX-License-Identifier: Apache-2.0 */
/* op/embedding.c - rows of a table, chosen by token, plus rows of a table of positions.
 *
 *   y_r = table[token_r] + positions[t_r]
 * A table may be a part of the rows (`part`, `first`), where ranks divide the vocabulary: other tokens have zeros. Of
 * positions that ranks add together each adds those of its rows (`from`, `rows`).
 *
 *   dtable[v] = sum of dy_r over rows with token_r = v,  dpositions[t] = sum of dy_r over rows with t_r = t
 *
 * Row r stands at position t_r = place_r, which starts again with each document of a packed row; without places, at
 * r mod T.
 * tokens (N), table (V, C), [positions (P, C), P >= T], [place (N) int32, below P] -> y (N, C)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static double smaller(int64_t a, int64_t b)
{
    return (double)(a < b ? a : b);
}

static const char *embedding_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_embedding_attr *attr = attr_;
    if (attr->seq < 1) return "the sequence length must be positive";
    if (attr->first < 0 || attr->from < 0 || attr->rows < 0) return "parts begin at 0 or later";
    if (in[0].rank != 1) return "tokens must have one axis";
    if (in[1].rank != 2) return "the table must have two axes (tokens, channels)";
    if (tm_shape_present(in[2])) {
        if (in[2].rank != 2 || in[2].n[1] != in[1].n[1]) return "the positions must have the channels of the table";
        if (!tm_shape_present(in[3]) && in[2].n[0] < attr->seq)
            return "there are fewer positions than tokens in a sequence";
    }
    if (tm_shape_present(in[3]) && !tm_shape_present(in[2])) return "places are of use with a table of positions only";
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], in[0].n[0])) return "place must have one value per token";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], in[1].n[1]), "y must have one row of channels per token");
}

/* Does this rank add the position of row r? */
static bool has_position(const tm_embedding_attr *attr, int64_t r)
{
    return attr->rows == 0 || (r >= attr->from && r < attr->from + attr->rows);
}

static void embedding_reference(const tm_call *call)
{
    const tm_embedding_attr *attr = call->attr;
    int64_t rows = call->in[0].shape.n[0], vocabulary = call->in[1].shape.n[0], channels = call->in[1].shape.n[1];
    const int32_t *tokens = call->in[0].data, *place = call->in[3].data;
    const double  *table = call->in[1].data, *positions = call->in[2].data;
    double        *y = call->out[0].data;
    for (int64_t r = 0; r < rows; r++) {
        int64_t token = tokens[r] - attr->first, position = place ? place[r] : r % attr->seq;
        bool    here = token >= 0 && token < vocabulary, adds = positions && has_position(attr, r);
        TM_ASSERT(here || attr->part);
        TM_ASSERT(!positions || (position >= 0 && position < call->in[2].shape.n[0]));
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] =
                (here ? table[token * channels + c] : 0) + (adds ? positions[position * channels + c] : 0);
    }
}

static void embedding_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     accumulate = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dtable = tm_gradient_parameter(gradient, node->in[1], 0, &accumulate);
    tm_tensor_id dpositions = tm_gradient_parameter(gradient, node->in[2], 1, &accumulate);
    if (dtable == TM_NONE && dpositions == TM_NONE) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[0], node->in[3] }, out[TM_MAX_OUT] = { dtable, dpositions };
    tm_gradient_emit(gradient, TM_OP_embedding_grad, node->attr, node->attr_bytes, in, out, accumulate);
}

/* Rows of the table of positions that can be touched. */
static int64_t rows_of_positions(const tm_embedding_attr *attr, const tm_view *positions, const tm_view *place)
{
    return tm_view_present(place) ? positions->shape.n[0] : attr->seq;
}

/* Of the tables, the rows that can be touched at most are read. */
static tm_cost embedding_cost(const tm_call *call)
{
    const tm_embedding_attr *attr = call->attr;
    double                   channels = (double)call->in[1].shape.n[1];
    double                   rows = smaller(call->in[0].shape.n[0], call->in[1].shape.n[0]);
    double                   bytes = tm_view_bytes(&call->in[0]) + tm_view_bytes(&call->out[0]);
    bytes += rows * channels * (double)tm_dtype_bytes(call->in[1].dtype);
    if (tm_view_present(&call->in[2]))
        bytes += tm_view_bytes(&call->in[3]) +
                 smaller(call->in[0].shape.n[0], rows_of_positions(attr, &call->in[2], &call->in[3])) * channels *
                     (double)tm_dtype_bytes(call->in[2].dtype);
    double added = tm_view_present(&call->in[2]) ? (double)tm_shape_elements(call->out[0].shape) : 0;
    return (tm_cost){ .bytes = bytes, .vector = added };
}

static const struct {
    int64_t batch, seq, vocabulary, channels, positions; /* positions 0: none */
    bool    dtable, places;
} cases[] = { { 1, 1, 1, 1, 0, true, false },      { 2, 3, 7, 9, 3, true, false },
              { 3, 9, 5, 8, 12, true, false }, /* duplicates for sure */
              { 2, 9, 5, 20, 4, true, true },      { 1, 30, 6, 17, 40, false, true },
              { 1, 65, 300, 7, 0, true, false },   { 5, 7, 11, 3, 8, false, false },
              { 2, 70, 3, 33, 70, true, false },   { 1, 63, 37, 16, 0, true, false },
              { 13, 5, 29, 65, 7, true, false },   { 1, 64, 29, 17, 66, false, false },
              { 5, 40, 37, 768, 42, true, false }, { 100, 5, 2, 200, 5, true, false },
              { 2, 20, 9, 19, 20, true, false },   { 3, 21, 7, 33, 40, true, true },
              { 2, 20, 9, 19, 0, true, false } };
/* The last cases are parts: of `all` tokens the table has those from `first` on. */
static const struct {
    int64_t first, all, from, rows;
} partial[] = { { 9, 27, 20, 20 }, { 0, 14, 0, 31 }, { 18, 27, 0, 0 } };

static tm_embedding_attr attr_of(int k)
{
    int               p = k - (TM_COUNT_OF(cases) - TM_COUNT_OF(partial));
    tm_embedding_attr attr = { .seq = cases[k].seq };
    if (p < 0) return attr;
    attr.part = 1;
    attr.first = partial[p].first;
    attr.from = partial[p].from;
    attr.rows = partial[p].rows;
    return attr;
}
static int64_t tokens_of(int k)
{
    int p = k - (TM_COUNT_OF(cases) - TM_COUNT_OF(partial));
    return p < 0 ? cases[k].vocabulary : partial[p].all;
}

static bool embedding_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_embedding_attr attr = attr_of(k);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_int(example, 0, tm_shape_1(cases[k].batch * cases[k].seq), tokens_of(k));
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].vocabulary, cases[k].channels), 0, 1);
    if (cases[k].positions)
        tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_2(cases[k].positions, cases[k].channels), 0, 1);
    if (cases[k].places) tm_example_int(example, 3, tm_shape_1(cases[k].batch * cases[k].seq), cases[k].positions);
    return true;
}

const tm_op tm_op_embedding = {
    .name = "embedding",
    .formula = "y[r] = table[tokens[r]] + positions[place[r] or r mod T]",
    .group = "embedding",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 2 | 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = embedding_infer,
    .reference = embedding_reference,
    .gradient = embedding_gradient,
    .cost = embedding_cost,
    .any_dtype_in = 1U << 1 | 1U << 2,
    .example = embedding_example,
    .rounding = tm_rounding_f64,
    .in_name = { "tokens (N)", "table (V, C)", "[positions (P, C)]", "[place (N)]" },
    .out_name = { "y (N, C)" },
    .attributes = "seq, part, first, from, rows",
};

/* in: dy (N, C), tokens (N), [place (N)]; out: [dtable (V, C)], [dpositions (P, C)], both given by the caller */
static const char *embedding_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_embedding_attr *attr = attr_;
    if (attr->seq < 1) return "the sequence length must be positive";
    if (in[0].rank != 2) return "dy must have two axes (rows, channels)";
    if (!tm_shape_is_vector(in[1], in[0].n[0])) return "tokens must have one value per row of dy";
    if (!tm_shape_present(out[0]) && !tm_shape_present(out[1])) return "neither table's gradient is asked for";
    for (int k = 0; k < 2; k++)
        if (tm_shape_present(out[k]) && (out[k].rank != 2 || out[k].n[1] != in[0].n[1]))
            return "the gradient of a table must have the channels of dy";
    if (tm_shape_present(in[2]) && !tm_shape_is_vector(in[2], in[0].n[0])) return "place must have one value per row";
    if (tm_shape_present(out[1]) && !tm_shape_present(in[2]) && out[1].n[0] < attr->seq)
        return "there are fewer positions than tokens in a sequence";
    return NULL;
}

static void embedding_grad_reference(const tm_call *call)
{
    const tm_embedding_attr *attr = call->attr;
    int64_t                  rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1];
    const double            *dy = call->in[0].data;
    const int32_t           *tokens = call->in[1].data, *place = call->in[2].data;
    double                  *dtable = tm_call_sums(call, 0), *dpositions = tm_call_sums(call, 1);
    for (int64_t r = 0; r < rows; r++) {
        int64_t token = tokens[r] - attr->first;
        bool    here = dtable && token >= 0 && token < call->out[0].shape.n[0];
        TM_ASSERT(!dtable || here || attr->part);
        for (int64_t c = 0; c < channels; c++) {
            if (here) dtable[token * channels + c] += dy[r * channels + c];
            if (dpositions && has_position(attr, r))
                dpositions[(place ? place[r] : r % attr->seq) * channels + c] += dy[r * channels + c];
        }
    }
}

/* A gradient that is overwritten is written whole; of one that is added to, the touched rows are read and written. */
static tm_cost embedding_grad_cost(const tm_call *call)
{
    const tm_embedding_attr *attr = call->attr;
    int64_t                  rows = call->in[0].shape.n[0];
    double                   bytes = 0;
    for (int i = 0; i < 3; i++) bytes += tm_view_bytes(&call->in[i]);
    for (int k = 0; k < 2; k++) {
        const tm_view *out = &call->out[k];
        if (!tm_view_present(out)) continue;
        double touched = smaller(rows, k == 0 ? out->shape.n[0] : rows_of_positions(attr, out, &call->in[2])) /
                         (double)out->shape.n[0];
        bytes += tm_view_bytes(out) * (tm_call_adds(call, k) ? 2 * touched : 1);
    }
    int parts = tm_view_present(&call->out[0]) + tm_view_present(&call->out[1]);
    return (tm_cost){ .bytes = bytes, .vector = parts * (double)tm_shape_elements(call->in[0].shape) };
}

/* A token or a position may be that of every row. */
static tm_rounding embedding_grad_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[0] + 1);
}

static bool embedding_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    int64_t           rows = cases[k].batch * cases[k].seq;
    tm_embedding_attr attr = attr_of(k);
    attr.apart = k % 2;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, cases[k].channels), 0, 1);
    tm_example_int(example, 1, tm_shape_1(rows), tokens_of(k));
    if (cases[k].places) tm_example_int(example, 2, tm_shape_1(rows), cases[k].positions);
    if (cases[k].dtable) example->out[0] = tm_shape_2(cases[k].vocabulary, cases[k].channels);
    if (cases[k].positions) example->out[1] = tm_shape_2(cases[k].positions, cases[k].channels);
    return true;
}

const tm_op tm_op_embedding_grad = {
    .name = "embedding_grad",
    .formula = "dtable[tokens[r]] += dy[r], dpositions[place[r] or r mod T] += dy[r]",
    .group = "embedding",
    .n_in = 3,
    .n_out = 2,
    .optional_in = 1U << 2,
    .optional_out = 1U << 0 | 1U << 1,
    .out_role = { TM_ROLE_GRADIENT, TM_ROLE_GRADIENT },
    .infer = embedding_grad_infer,
    .reference = embedding_grad_reference,
    .cost = embedding_grad_cost,
    .example = embedding_grad_example,
    .rounding = embedding_grad_rounding,
    .in_name = { "dy (N, C)", "tokens (N)", "[place (N)]" },
    .out_name = { "[dtable (V, C)]", "[dpositions (P, C)]" },
    .attributes = "seq, apart, part, first, from, rows",
};

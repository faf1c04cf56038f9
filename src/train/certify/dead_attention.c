/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/dead_attention.c - layers whose attention has nothing to choose from.
 *
 * A query that sees one key weighs it with 1, whatever the query and the key are: no gradient reaches wq and wk. What
 * is computed in their place is rounding. With p = 1 and o = v (op/attention.c)
 *
 *     dq = scale (<do, v> - <do, o>) k,   and each of the two products of D terms is off by at most D u |do| |v|,
 *
 * u = 2^-24, as they are summed in float32 in every format of training. dv = do, and the products with the layer's
 * input that make gradients of weights of dq and dv are the same. So, with scale = 1 / sqrt(D) and |k| = sqrt(D) s_k,
 *
 *     |g_wq| <= 2 D u sqrt(D) s_v s_k |g_wv|,             |g_wk| <= 2 D u sqrt(D) s_v s_q |g_wv|
 *
 * where s is what an element of a query, key or value is in the root of the mean square: of an input that was
 * normalised the length of a row of the weights; of heads that are normalised themselves, 1. Attention that chooses is
 * above that by what its weights spread, in units of 2 D u: with heads of 64 elements a hundred thousand times. */
#include "train/certify/dead_attention.h"

#include "base/arena.h"
#include "base/text.h"
#include "graph/value.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY, KEY, VALUE, PARTS };

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), length = strlen(end);
    return n >= length && strcmp(name + n - length, end) == 0;
}

/* Of the fused matrix of a block; PARTS: none of its. */
static int part_of(const tm_piece *piece)
{
    static const char *const ends[PARTS] = { ".attention.wq.weight", ".attention.wk.weight", ".attention.wv.weight" };
    int                      part = 0;
    while (part < PARTS && !ends_with(piece->name, ends[part])) part++;
    return part;
}

static tm_status add_squares(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *sum,
                             tm_error *err)
{
    enum { CHUNK = 1 << 18 };
    const tm_dtype dtype = tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->dtype;
    const size_t   element = tm_dtype_bytes(dtype);
    char          *chunk = tm_alloc(CHUNK * element);
    tm_status      st = TM_OK;
    for (int64_t at = 0; at < n && st == TM_OK; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        st = tm_trainer_read(trainer, id, (size_t)(first + at) * element, chunk, (size_t)count * element, err);
        for (int64_t i = 0; i < count && st == TM_OK; i++) {
            double value = tm_value_get(chunk, dtype, i);
            *sum += value * value;
        }
    }
    free(chunk);
    return st;
}

/* Squares of the elements of wq, wk and wv in tensor `id`, which is the matrix or its gradient, and their rows; of all
 * ranks that divide it. */
static tm_status sum_parts(const tm_trainer *trainer, const tm_tensor *matrix, tm_tensor_id id, double sums[2 * PARTS],
                           tm_error *err)
{
    int64_t columns = tm_shape_elements(matrix->shape) / matrix->shape.n[0];
    for (int i = 0; i < 2 * PARTS; i++) sums[i] = 0;
    for (int p = 0; p < matrix->n_pieces; p++) {
        const tm_piece *piece = &matrix->pieces[p];
        int             part = part_of(piece);
        TM_ASSERT(part < PARTS);
        TM_TRY(add_squares(trainer, id, piece->row * columns, piece->rows * columns, &sums[part], err));
        sums[PARTS + part] += (double)piece->rows;
    }
    return matrix->cut ? tm_trainer_sum(trainer, matrix->cut->axes, sums, 2 * PARTS, err) : TM_OK;
}

static bool has_all_parts(const tm_tensor *t)
{
    unsigned found = 0;
    for (int p = 0; p < t->n_pieces; p++) found |= 1U << part_of(&t->pieces[p]);
    return found == (1U << PARTS) - 1;
}

static tm_status is_rounding(const tm_trainer *trainer, const tm_model_shape *s, tm_tensor_id id, bool *dead,
                             tm_error *err)
{
    const tm_tensor *t = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    const double     width = (double)s->head_dim, coarse = 0x1p-8;
    double           g[2 * PARTS], w[2 * PARTS], size[PARTS];
    TM_TRY(sum_parts(trainer, t, t->gradient, g, err));
    double most = fmax(g[QUERY], g[KEY]);
    if (!(most < coarse * coarse * g[VALUE])) return TM_OK; /* weights are read where it may be */
    TM_TRY(sum_parts(trainer, t, id, w, err));
    for (int part = 0; part < PARTS; part++)
        size[part] = s->qk_norm && part != VALUE ? 1 : sqrt(w[part] / w[PARTS + part]);
    double unit = 2 * width * 0x1p-24 * sqrt(width) * size[VALUE] * sqrt(g[VALUE]);
    *dead = sqrt(g[QUERY]) <= unit * size[KEY] && sqrt(g[KEY]) <= unit * size[QUERY];
    return TM_OK;
}

/* "0, 2, 4" */
static void name_layers(const int64_t *dead, int64_t n, tm_text *out)
{
    for (int64_t i = 0; i < n; i++)
        if (dead[i]) tm_text_printf(out, "%s%lld", out->length ? ", " : "", (long long)i);
}

tm_status dead_attention_find(const tm_trainer *trainer, const tm_model_shape *s, tm_comm *world, tm_text *layers,
                              tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    const int64_t   n = tm_model_blocks(s);
    int64_t        *dead = tm_alloc((size_t)n * sizeof *dead);
    tm_status       st = TM_OK;
    for (size_t i = 0; i < graph->n_tensors && st == TM_OK; i++) {
        const tm_tensor *t = &graph->tensors[i];
        bool             found = false;
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE || !has_all_parts(t)) continue;
        TM_ASSERT(t->layer >= 0 && t->layer < n);
        st = is_rounding(trainer, s, (tm_tensor_id)i, &found, err);
        if (found) dead[t->layer] = 1;
    }
    if (st == TM_OK) st = agree_max(world, "layers whose attention is dead", dead, (size_t)n, err);
    if (st == TM_OK) name_layers(dead, n, layers);
    free(dead);
    return st;
}

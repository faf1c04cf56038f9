/* SPDX-License-Identifier: Apache-2.0 */
#include "train/motion.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, PIECE = 512 * BLOCK, LANES = 8 }; /* elements */

/* --- what there is ------------------------------------------------------------------------------------------------ */

/* Behind the number of a block, "layers.3." or "h.3."; the name itself, if it has none. */
static const char *behind_block(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.') return dot + digits + 2;
    }
    return name;
}

void tm_motion_group_of(const char *tensor, char out[96])
{
    const char *rest = behind_block(tensor);
    int         n = (int)strcspn(rest, "."), block = (int)(rest - tensor) - 1;
    if (strncmp(rest, "moe.", 4) == 0) n += 1 + (int)strcspn(rest + 4, "."); /* router, experts, shared_experts */
    bool norm = strncmp(rest, "ln_", 3) == 0 || (n >= 4 && strncmp(rest + n - 4, "norm", 4) == 0);
    if (block < 0)
        snprintf(out, 96, "%.*s", n < 90 ? n : 90, rest);
    else
        snprintf(out, 96, "%.*s %.*s", block < 40 ? block : 40, tensor,
                 norm     ? 5
                 : n < 50 ? n
                          : 50,
                 norm ? "norms" : rest);
}

static int group_of(tm_motion *motion, const char *tensor)
{
    char name[96];
    tm_motion_group_of(tensor, name);
    for (size_t i = motion->n_groups; i-- > 0;)
        if (strcmp(motion->groups[i].name, name) == 0) return (int)i;
    motion->groups = tm_grow(motion->groups, &motion->groups_capacity, motion->n_groups, sizeof *motion->groups);
    motion->groups[motion->n_groups] = (tm_motion_group){ 0 };
    memcpy(motion->groups[motion->n_groups].name, name, sizeof name);
    return (int)motion->n_groups++;
}

/* The format of the copy that the products of this parameter take, its own if there is none. */
static tm_dtype format_used(const tm_graph *graph, tm_tensor_id id)
{
    const tm_segment *segment = graph->segments[0];
    for (size_t i = 0; i < segment->n_nodes; i++)
        if (segment->nodes[i].op == TM_OP_cast && segment->nodes[i].in[0] == id)
            return tm_graph_at(graph, segment->nodes[i].out[0])->dtype;
    return tm_graph_at(graph, id)->dtype;
}

void tm_motion_open(tm_trainer *trainer, tm_motion *out)
{
    const tm_step  *step = tm_trainer_step_of(trainer);
    const tm_graph *graph = step->graph;
    *out = (tm_motion){ .trainer = trainer, .step = step };
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_PARAMETER && t->trained && t->gradient == TM_NONE) out->lost = t->name;
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE) continue;
        out->members = tm_grow(out->members, &out->members_capacity, out->n_members, sizeof *out->members);
        out->members[out->n_members++] = (tm_motion_member){ .id = (tm_tensor_id)i,
                                                             .group = group_of(out, t->name),
                                                             .dtype = t->dtype,
                                                             .used = format_used(graph, (tm_tensor_id)i),
                                                             .n = tm_shape_elements(t->shape) };
    }
    for (int k = 0; k < 2; k++) out->piece[k] = tm_alloc(PIECE * sizeof(double));
    out->moved = tm_alloc(PIECE * sizeof(double));
    out->gradient = tm_alloc(PIECE * sizeof *out->gradient);
}

void tm_motion_fini(tm_motion *motion)
{
    for (size_t k = 0; k < motion->n_members; k++) free(motion->members[k].values);
    for (int k = 0; k < 2; k++) free(motion->piece[k]);
    free(motion->moved);
    free(motion->gradient);
    free(motion->members);
    free(motion->groups);
}

static size_t bytes_of(const tm_motion *motion, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(motion->step->graph, id);
    return tm_tensor_bytes(tensor->shape, tensor->dtype);
}

double tm_motion_bytes(const tm_motion *motion)
{
    double bytes = 0;
    for (size_t k = 0; k < motion->n_members; k++) bytes += (double)bytes_of(motion, motion->members[k].id);
    return bytes;
}

tm_status tm_motion_keep(tm_motion *motion, tm_error *err)
{
    for (size_t k = 0; k < motion->n_members; k++) {
        tm_motion_member *m = &motion->members[k];
        m->values = tm_alloc(bytes_of(motion, m->id) + 1);
        TM_TRY(tm_trainer_read(motion->trainer, m->id, 0, m->values, bytes_of(motion, m->id), err));
    }
    return TM_OK;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* n elements from `first` on. */
static void get_values(const char *data, tm_dtype dtype, int64_t first, int64_t n, double *out)
{
    if (dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) out[i] = (double)((const float *)data)[first + i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = tm_value_get(data, dtype, first + i);
}

static void set_values(char *data, tm_dtype dtype, int64_t first, int64_t n, const double *values)
{
    if (dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)data)[first + i] = (float)values[i];
    else
        for (int64_t i = 0; i < n; i++) tm_value_set(data, dtype, first + i, values[i]);
}

static double as_bf16(double x)
{
    return (double)tm_bf16_value(tm_bf16_round((float)x));
}

/* Elements [first, first + n) of a tensor's gradient into motion->gradient: its two parts, where a table is looked up
 * and a factor, too. */
static tm_status read_gradient(tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(motion->step->graph, m->id);
    const tm_dtype   dtype = tm_graph_at(motion->step->graph, t->gradient)->dtype;
    const size_t     element = tm_dtype_bytes(dtype);
    char           **piece = motion->piece;
    TM_TRY(tm_trainer_read(motion->trainer, t->gradient, (size_t)first * element, piece[0], (size_t)n * element, err));
    if (t->lookup_gradient != TM_NONE) {
        TM_TRY(tm_trainer_read(motion->trainer, t->lookup_gradient, (size_t)first * element, piece[1],
                               (size_t)n * element, err));
        for (int64_t i = 0; i < n; i++)
            tm_value_set(piece[0], dtype, i, tm_value_get(piece[0], dtype, i) + tm_value_get(piece[1], dtype, i));
    }
    get_values(piece[0], dtype, 0, n, motion->gradient);
    return TM_OK;
}

/* sum a_i b_i, added up in LANES. */
static double product_of(const double *a, const double *b, int64_t n)
{
    double lanes[LANES] = { 0 }, sum = 0;
    for (int64_t i = 0; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += a[i + k] * b[i + k];
    for (int64_t i = n / LANES * LANES; i < n; i++) sum += a[i] * b[i];
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

static tm_status measure_member(tm_motion *motion, tm_motion_member *m, tm_error *err)
{
    tm_motion_group *group = &motion->groups[m->group];
    double           values = 0, gradient = 0;
    for (int64_t at = 0; at < m->n; at += PIECE) {
        int64_t n = m->n - at < PIECE ? m->n - at : PIECE;
        double  w[BLOCK];
        TM_TRY(read_gradient(motion, m, at, n, err));
        gradient += product_of(motion->gradient, motion->gradient, n);
        for (int64_t block = 0; block < n; block += BLOCK) {
            int64_t count = n - block < BLOCK ? n - block : BLOCK;
            get_values(m->values, m->dtype, at + block, count, w);
            values += product_of(w, w, count);
        }
    }
    m->rms = sqrt(values / (double)m->n);
    if (!(m->rms > 0)) m->rms = 0.02; /* all zeros, as biases begin: the size of usual weights */
    group->norm += gradient;
    group->size += m->rms * m->rms * (double)m->n;
    group->spread += gradient * m->rms * m->rms;
    return TM_OK;
}

tm_status tm_motion_measure(tm_motion *motion, tm_error *err)
{
    for (size_t i = 0; i < motion->n_groups; i++)
        motion->groups[i].norm = motion->groups[i].size = motion->groups[i].spread = 0;
    for (size_t k = 0; k < motion->n_members; k++) TM_TRY(measure_member(motion, &motion->members[k], err));
    for (size_t i = 0; i < motion->n_groups; i++) {
        motion->groups[i].norm = sqrt(motion->groups[i].norm);
        motion->groups[i].size = sqrt(motion->groups[i].size);
        motion->groups[i].spread = sqrt(motion->groups[i].spread);
    }
    return TM_OK;
}

/* --- moved weights ------------------------------------------------------------------------------------------------ */

/* Elements [first, first + n) of a tensor, moved, into motion->moved; returns the sum of g (w' - w). In blocks, one
 * random word each: the loops over a block are the compiler's to vectorize. */
static double move_piece(const tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, double side,
                         uint64_t seed)
{
    const tm_motion_group *group = &motion->groups[m->group];
    const uint64_t         stream = tm_random_stream(tm_graph_at(motion->step->graph, m->id)->name);
    const double           along = side * group->along, apart = side * group->apart * m->rms;
    const bool             rounded = m->used == TM_BF16 && m->dtype != TM_BF16;
    double                 sum = 0;
    for (int64_t block = 0; block < n; block += BLOCK) {
        double         w[BLOCK], moved[BLOCK];
        const int64_t  count = n - block < BLOCK ? n - block : BLOCK;
        const double  *g = motion->gradient + block;
        const uint64_t bits = tm_random_u64(seed, stream, (uint64_t)(first + block) / BLOCK);
        get_values(m->values, m->dtype, first + block, count, w);
        for (int64_t i = 0; i < count; i++) moved[i] = w[i] + along * g[i] + (bits >> i & 1 ? apart : -apart);
        set_values(motion->moved, m->dtype, block, count, moved);
        get_values(motion->moved, m->dtype, block, count, moved);
        for (int64_t i = 0; i < count && rounded; i++) w[i] = as_bf16(w[i]), moved[i] = as_bf16(moved[i]);
        for (int64_t i = 0; i < count; i++) moved[i] -= w[i];
        sum += product_of(g, moved, count);
    }
    return sum;
}

static tm_status move_member(tm_motion *motion, const tm_motion_member *m, double side, uint64_t seed, double *change,
                             tm_error *err)
{
    size_t element = tm_dtype_bytes(m->dtype);
    for (int64_t at = 0; at < m->n; at += PIECE) {
        int64_t n = m->n - at < PIECE ? m->n - at : PIECE;
        TM_TRY(read_gradient(motion, m, at, n, err));
        *change += move_piece(motion, m, at, n, side, seed);
        TM_TRY(tm_trainer_write(motion->trainer, m->id, (size_t)at * element, motion->moved, (size_t)n * element, err));
    }
    return TM_OK;
}

tm_status tm_motion_move(tm_motion *motion, size_t first, size_t last, double side, uint64_t seed, double *change,
                         tm_error *err)
{
    for (size_t k = 0; k < motion->n_members; k++) {
        const tm_motion_member *m = &motion->members[k];
        if ((size_t)m->group < first || (size_t)m->group >= last) continue;
        if (side > 0 || side < 0)
            TM_TRY(move_member(motion, m, side, seed, change, err));
        else
            TM_TRY(tm_trainer_write(motion->trainer, m->id, 0, m->values, bytes_of(motion, m->id), err));
    }
    return TM_OK;
}

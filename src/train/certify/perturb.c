/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/perturb.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"
#include "train/trainer/shards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, PIECE = TM_MOTION_PIECE, LANES = 8 }; /* elements */

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

int tm_motion_group_named(tm_motion *motion, const char name[96])
{
    for (size_t i = motion->n_groups; i-- > 0;)
        if (strcmp(motion->groups[i].name, name) == 0) return (int)i;
    motion->groups = tm_grow(motion->groups, &motion->groups_capacity, motion->n_groups, sizeof *motion->groups);
    motion->groups[motion->n_groups] = (tm_motion_group){ 0 };
    memcpy(motion->groups[motion->n_groups].name, name, sizeof motion->groups[0].name);
    return (int)motion->n_groups++;
}

static int group_of(tm_motion *motion, const char *tensor)
{
    char name[96] = "";
    tm_motion_group_of(tensor, name);
    return tm_motion_group_named(motion, name);
}

/* The format of the copy that the products of this parameter take, its own if there is none. What stands for a shared
 * parameter where it is gathered has its name. Of a pipeline each stage has programs of its own. */
static tm_dtype format_used(const tm_step *step, tm_tensor_id id)
{
    const tm_graph *graph = step->graph;
    const char     *name = tm_graph_at(graph, id)->name;
    for (size_t s = 0; s < graph->n_segments && (s == 0 || !step->first); s++)
        for (size_t i = 0; i < graph->segments[s]->n_nodes; i++) {
            const tm_node *node = &graph->segments[s]->nodes[i];
            if (node->phase == TM_PHASE_UPDATE) break;
            if (node->op == TM_OP_cast && strcmp(tm_graph_at(graph, node->in[0])->name, name) == 0)
                return tm_graph_at(graph, node->out[0])->dtype;
        }
    return tm_graph_at(graph, id)->dtype;
}

void tm_motion_open(tm_trainer *trainer, bool exact, tm_motion *out)
{
    const tm_step  *step = tm_trainer_step_of(trainer);
    const tm_graph *graph = step->graph;
    *out = (tm_motion){ .trainer = trainer, .step = step };
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_PARAMETER && t->trained && t->gradient == TM_NONE) out->lost = t->name;
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE) continue;
        out->members = tm_grow(out->members, &out->members_capacity, out->n_members, sizeof *out->members);
        out->members[out->n_members++] =
            (tm_motion_member){ .id = (tm_tensor_id)i,
                                .group = group_of(out, t->name),
                                .dtype = t->dtype,
                                .used = exact ? t->dtype : format_used(step, (tm_tensor_id)i),
                                .n = tm_shape_elements(t->shape) };
        tm_motion_join(out, &out->members[out->n_members - 1]);
    }
    for (int k = 0; k < 2; k++) out->piece[k] = tm_alloc(PIECE * sizeof(double));
    out->moved = tm_alloc(PIECE * sizeof(double));
    out->gradient = tm_alloc(PIECE * sizeof *out->gradient);
    out->kept = tm_alloc(PIECE * sizeof *out->kept);
    out->reduced = true;
    out->exact = exact;
}

void tm_motion_fini(tm_motion *motion)
{
    for (size_t k = 0; k < motion->n_members; k++) free(motion->members[k].values);
    for (int k = 0; k < 2; k++) free(motion->piece[k]);
    free(motion->moved);
    free(motion->gradient);
    free(motion->kept);
    free(motion->members);
    free(motion->groups);
}

/* Elements [first, first + n) of a tensor: the first one that is here, returned in *from, and how many. They lie in
 * tensor *in from element *at on. */
static int64_t here(const tm_motion *motion, tm_tensor_id id, int64_t first, int64_t n, int64_t *from, tm_tensor_id *in,
                    int64_t *at)
{
    const tm_tensor *tensor = tm_graph_at(motion->step->graph, id);
    *from = *at = first;
    *in = id;
    if (!tm_graph_elsewhere(tensor)) return n;
    *in = tensor->shared->flat;
    int64_t count = tm_held_run(tensor->shared, tensor->shared->rank, first, n, from, at);
    return count > 0 ? count : 0;
}

/* All that is here of a member's weights. */
static int64_t own_of(const tm_motion *motion, const tm_motion_member *m, int64_t *from, tm_tensor_id *in, int64_t *at)
{
    return here(motion, m->id, 0, m->n, from, in, at);
}

static size_t own_bytes(const tm_motion *motion, const tm_motion_member *m)
{
    int64_t      from, at;
    tm_tensor_id in;
    return tm_tensor_bytes(tm_shape_1(own_of(motion, m, &from, &in, &at)), m->dtype);
}

double tm_motion_bytes(const tm_motion *motion)
{
    double bytes = 0;
    for (size_t k = 0; k < motion->n_members; k++) bytes += (double)own_bytes(motion, &motion->members[k]);
    return bytes;
}

tm_status tm_motion_keep(tm_motion *motion, tm_error *err)
{
    TM_TRY(tm_motion_agree(motion, err));
    for (size_t k = 0; k < motion->n_members; k++) {
        tm_motion_member *m = &motion->members[k];
        const size_t      bytes = own_bytes(motion, m);
        int64_t           from, at;
        tm_tensor_id      in;
        m->values = tm_alloc(bytes);
        if (own_of(motion, m, &from, &in, &at) == 0) continue;
        TM_TRY(tm_trainer_read(motion->trainer, in, tm_tensor_bytes(tm_shape_1(at), m->dtype), m->values, bytes, err));
    }
    return TM_OK;
}

static tm_status put_back(tm_motion *motion, const tm_motion_member *m, tm_error *err)
{
    int64_t      from, at;
    tm_tensor_id in;
    if (own_of(motion, m, &from, &in, &at) == 0) return TM_OK;
    return tm_trainer_write(motion->trainer, in, tm_tensor_bytes(tm_shape_1(at), m->dtype), m->values,
                            own_bytes(motion, m), err);
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

/* A weight of bfloat16 moved by d, in whole steps of the format at this weight, the nearer number of them the likelier,
 * by a random number of sixteenths: a motion that is small beside a step happens in some elements and not, by rounding,
 * in none. By -d it moves as many back, so what changes the loss in both directions alike cancels. */
static double dithered(double weight, double d, unsigned sixteenths)
{
    float    power = (float)weight; /* of two, once nothing but the exponent is left */
    uint32_t bits;
    memcpy(&bits, &power, sizeof bits);
    bits &= 0x7f800000u;
    memcpy(&power, &bits, sizeof power);
    const double step = 0x1p-7 * (double)power, steps = fabs(d) / step + (sixteenths + 0.5) / 16;
    if (!(steps < 0x1p20)) return weight + d; /* the weight is nothing, or nearly so */
    return weight + copysign(step * (double)(int32_t)steps, d);
}

/* The sixteenths of a block, which go by the place in the whole tensor as signs do. */
static void dither(const tm_tensor *tensor, uint64_t seed, uint64_t stream, int64_t first, int64_t n,
                   const double *weights, double *moved)
{
    uint64_t bits[4];
    for (unsigned k = 0; k < 4; k++) bits[k] = tm_motion_signs(tensor, seed, stream + 1 + k, first, n);
    for (int64_t i = 0; i < n; i++) {
        unsigned sixteenths = 0;
        for (unsigned k = 0; k < 4; k++) sixteenths |= (unsigned)(bits[k] >> i & 1) << k;
        moved[i] = dithered(weights[i], moved[i] - weights[i], sixteenths);
    }
}

/* Elements [first, first + n) of a member's weights as they were into motion->kept. */
static tm_status read_kept(tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, tm_error *err)
{
    int64_t      own, at, from, unused;
    tm_tensor_id in;
    own_of(motion, m, &own, &in, &unused);
    int64_t count = here(motion, m->id, first, n, &from, &in, &at);
    for (int64_t i = 0; i < n; i++) motion->kept[i] = 0;
    get_values(m->values, m->dtype, from - own, count, motion->kept + (from - first));
    return tm_trainer_sum(motion->trainer, tm_motion_shared(motion, m->id), motion->kept, (size_t)n, err);
}

/* Adds what is here of elements [first, first + n) of a gradient to motion->gradient. */
static tm_status add_here(tm_motion *motion, tm_tensor_id id, int64_t first, int64_t n, tm_error *err)
{
    const tm_dtype dtype = tm_graph_at(motion->step->graph, id)->dtype;
    int64_t        from, at;
    tm_tensor_id   in;
    int64_t        count = here(motion, id, first, n, &from, &in, &at);
    if (count == 0) return TM_OK;
    TM_TRY(tm_trainer_read(motion->trainer, in, tm_tensor_bytes(tm_shape_1(at), dtype), motion->piece[0],
                           tm_tensor_bytes(tm_shape_1(count), dtype), err));
    get_values(motion->piece[0], dtype, 0, count, (double *)motion->piece[1]);
    const double *part = (double *)motion->piece[1];
    for (int64_t i = 0; i < count; i++) motion->gradient[from - first + i] += motion->sizes ? fabs(part[i]) : part[i];
    return TM_OK;
}

/* Elements [first, first + n) of a tensor's gradient into motion->gradient: its two parts, where a table is looked up
 * and a factor, too; of all ranks, and all parts of a step. */
static tm_status read_gradient(tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(motion->step->graph, m->id);
    for (int64_t i = 0; i < n; i++) motion->gradient[i] = 0;
    TM_TRY(add_here(motion, t->gradient, first, n, err));
    if (t->lookup_gradient != TM_NONE) TM_TRY(add_here(motion, t->lookup_gradient, first, n, err));
    TM_TRY(tm_motion_complete(motion, m, n, err));
    return m->earlier == TM_NONE || motion->alone ? TM_OK
                                                  : add_here(motion, m->earlier, m->earlier_first + first, n, err);
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

tm_status tm_motion_gradient(tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, bool sizes,
                             tm_error *err)
{
    TM_ASSERT(n <= PIECE);
    motion->sizes = sizes;
    tm_status st = read_gradient(motion, m, first, n, err);
    motion->sizes = false;
    return st;
}

tm_status tm_motion_norm(tm_motion *motion, double *norm, tm_error *err)
{
    double squares = 0;
    for (size_t k = 0; k < motion->n_members; k++) {
        const tm_motion_member *m = &motion->members[k];
        for (int64_t at = 0; at < m->n; at += PIECE) {
            int64_t n = m->n - at < PIECE ? m->n - at : PIECE;
            TM_TRY(read_gradient(motion, m, at, n, err));
            squares += m->part * product_of(motion->gradient, motion->gradient, n);
        }
    }
    TM_TRY(tm_trainer_sum(motion->trainer, TM_AXES_WORLD, &squares, 1, err));
    *norm = sqrt(squares);
    return TM_OK;
}

static tm_status measure_member(tm_motion *motion, tm_motion_member *m, tm_error *err)
{
    tm_motion_group *group = &motion->groups[m->group];
    double           values[2] = { 0, (double)m->n }, gradient = 0;
    for (int64_t at = 0; at < m->n; at += PIECE) {
        int64_t n = m->n - at < PIECE ? m->n - at : PIECE;
        TM_TRY(read_gradient(motion, m, at, n, err));
        TM_TRY(read_kept(motion, m, at, n, err));
        gradient += product_of(motion->gradient, motion->gradient, n);
        for (int64_t block = 0; block < n; block += BLOCK)
            values[0] += product_of(motion->kept + block, motion->kept + block, n - block < BLOCK ? n - block : BLOCK);
    }
    TM_TRY(tm_motion_sum_parts(motion, m, values, err));
    m->rms = sqrt(values[0] / values[1]);
    if (!(m->rms > 0)) m->rms = 0.02; /* all zeros, as biases begin: the size of usual weights */
    group->norm += m->part * gradient;
    group->size += m->part * (m->rms * m->rms * (double)m->n);
    group->spread += m->part * (gradient * m->rms * m->rms);
    return TM_OK;
}

tm_status tm_motion_measure(tm_motion *motion, tm_error *err)
{
    for (size_t i = 0; i < motion->n_groups; i++)
        motion->groups[i].norm = motion->groups[i].size = motion->groups[i].spread = 0;
    for (size_t k = 0; k < motion->n_members; k++) TM_TRY(measure_member(motion, &motion->members[k], err));
    TM_TRY(tm_motion_sum_groups(motion, err));
    for (size_t i = 0; i < motion->n_groups; i++) {
        motion->groups[i].norm = sqrt(motion->groups[i].norm);
        motion->groups[i].size = sqrt(motion->groups[i].size);
        motion->groups[i].spread = sqrt(motion->groups[i].spread);
    }
    return TM_OK;
}

/* --- moved weights ------------------------------------------------------------------------------------------------ */

/* Elements [first, first + n) of a tensor, moved, into motion->moved; returns the sum of g (w' - w). In blocks, one
 * word of signs each: the loops over a block are the compiler's to vectorize. */
static double move_piece(const tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n, double side,
                         uint64_t seed)
{
    const tm_motion_group *group = &motion->groups[m->group];
    const tm_tensor       *tensor = tm_graph_at(motion->step->graph, m->id);
    const uint64_t         stream = tm_random_stream(tensor->name);
    const double           along = side * group->along, apart = side * group->apart * m->rms;
    const bool             rounded = m->used == TM_BF16 && m->dtype != TM_BF16;
    const bool             dithered = motion->exact && m->used == TM_BF16;
    double                 sum = 0;
    for (int64_t block = 0; block < n; block += BLOCK) {
        double         w[BLOCK], moved[BLOCK];
        const int64_t  count = n - block < BLOCK ? n - block : BLOCK;
        const double  *g = motion->gradient + block;
        const uint64_t bits = tm_motion_signs(tensor, seed, stream, first + block, count);
        memcpy(w, motion->kept + block, (size_t)count * sizeof *w);
        for (int64_t i = 0; i < count; i++) moved[i] = w[i] + along * g[i] + (bits >> i & 1 ? apart : -apart);
        if (dithered) dither(tensor, seed, stream, first + block, count, w, moved);
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
        TM_TRY(read_kept(motion, m, at, n, err));
        *change += m->part * move_piece(motion, m, at, n, side, seed);
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
            TM_TRY(put_back(motion, m, err));
    }
    return TM_OK;
}

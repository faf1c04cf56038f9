/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/replay.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, PARTS_OF_A_PIECE = PIECE_BYTES / TM_REPLAY_PART_BYTES };

/* A tensor with memory of its own that outlives programs, and that the step writes before its update. */
typedef struct {
    tm_tensor_id   id;
    const tm_node *writer; /* the first one, in this program */
    const char    *program;
    int64_t        place;
    char          *kept; /* room for what it was before the step; NULL: it is made anew */
    size_t         bytes, first_part;
} written_tensor;

/* What is known of a part: equal bits, equal numbers. */
typedef struct {
    uint64_t hash, bits; /* bits: its words of 8 bytes xored */
} part_digest;

/* What a rank gave to others in one instruction, and what it had from them. */
typedef struct {
    uint64_t sent, received;
} exchanged;
typedef struct {
    exchanged *list;
    size_t     n, capacity;
} exchanges;

enum { COMPUTATIONS = 3 };
struct tm_replay {
    tm_trainer        *trainer;
    uint64_t           seed;
    int64_t            step, most_bytes, all_bytes;
    written_tensor    *tensors;
    size_t             n, capacity, n_parts;
    part_digest       *digests[COMPUTATIONS]; /* (n_parts) of each computation */
    char              *buffer;                /* PIECE_BYTES */
    tm_watch           watch;                 /* of what ranks exchange, and of products; only on the host's memory */
    tm_checksum       *checksum;              /* NULL: no product is checked */
    tm_replay_products products;
    int64_t            seen;        /* products of this computation */
    int64_t            checking_ns; /* that products took to be checked, in this computation */
    bool               checks;
    tm_hasher         *hasher;
    exchanges          exchanges[2], *now; /* of the first two computations; the one under way */
    bool               several;            /* ranks */
    bool               unseen;             /* rows of experts go to other ranks, in buffers that are not full */
};

/* --- what ranks exchange ------------------------------------------------------------------------------------------ */

static bool is_exchange(const tm_instruction *instruction)
{
    return instruction->stream == TM_ON_COMMUNICATION;
}

static tm_status add_view(tm_replay *replay, const tm_view *view, tm_error *err)
{
    if (view->shape.rank < 0 || !tm_view_dense(view)) return TM_OK;
    const size_t bytes = tm_tensor_bytes(view->shape, view->dtype);
    tm_device   *device = tm_trainer_device(replay->trainer);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        TM_TRY(tm_device_read(device, replay->buffer, (tm_address){ (uintptr_t)view->data + at }, n, err));
        tm_hasher_add(replay->hasher, replay->buffer, n);
    }
    return TM_OK;
}

static tm_status look_at_exchange(tm_replay *replay, const tm_instruction *instruction, bool done, tm_error *err)
{
    exchanges     *to = replay->now;
    const tm_call *call = &instruction->call;
    const tm_op_id op = instruction->node->op;
    if (op == TM_OP_send_rows || op == TM_OP_return_rows) {
        replay->unseen = true;
        return TM_OK;
    }
    tm_hasher_restart(replay->hasher);
    for (int k = 0; k < TM_MAX_IN && k < call->op->n_in && !done; k++) TM_TRY(add_view(replay, &call->in[k], err));
    for (int k = 0; k < TM_MAX_OUT && k < call->op->n_out && done; k++) TM_TRY(add_view(replay, &call->out[k], err));
    if (!done) {
        to->list = tm_grow(to->list, &to->capacity, to->n, sizeof *to->list);
        to->list[to->n++] = (exchanged){ .sent = tm_hasher_value(replay->hasher) };
    } else {
        to->list[to->n - 1].received = tm_hasher_value(replay->hasher);
    }
    return TM_OK;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* One product in so many is checked. */
enum { PRODUCTS = 8 };

static bool is_checked(const tm_replay *replay, const tm_instruction *instruction)
{
    uint64_t stream = tm_random_stream("checked product") + (uint64_t)replay->step;
    return replay->checks && tm_checksum_can(&instruction->call) &&
           tm_random_below(replay->seed, stream, (uint64_t)replay->seen, PRODUCTS) == 0;
}

static tm_status look_at_product(tm_replay *replay, const tm_instruction *instruction, bool done, tm_error *err)
{
    tm_replay_products *to = &replay->products;
    bool                wrong;
    tm_checksum_wrong   how;
    if (!done) return tm_checksum_before(replay->checksum, &instruction->call, err);
    TM_TRY(tm_checksum_after(replay->checksum, &instruction->call, &wrong, &how, err));
    to->products++;
    if (!wrong || to->wrong++ > 0) return TM_OK;
    const tm_node  *node = instruction->node;
    const tm_graph *graph = tm_trainer_step_of(replay->trainer)->graph;
    snprintf(to->tensor, sizeof to->tensor, "%s", tm_graph_at(graph, node->out[0])->name);
    snprintf(to->op, sizeof to->op, "%s", tm_op_get(node->op)->name);
    to->layer = node->layer;
    to->how = how;
    return TM_OK;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static bool is_looked_at(void *context, const tm_instruction *instruction)
{
    tm_replay *replay = context;
    if (is_exchange(instruction)) return replay->hasher;
    replay->seen++;
    return is_checked(replay, instruction);
}

static tm_status look(void *context, const tm_instruction *instruction, bool done, tm_error *err)
{
    tm_replay *replay = context;
    if (is_exchange(instruction)) return look_at_exchange(replay, instruction, done, err);
    int64_t begin = tm_now_ns();
    TM_TRY(look_at_product(replay, instruction, done, err));
    replay->checking_ns += tm_now_ns() - begin;
    return TM_OK;
}

/* From here to stop_watching: what ranks exchange in the first two computations; products in the second one. */
static void watch(tm_replay *replay, int computation)
{
    replay->checks = replay->checksum && computation == 1;
    if (computation > 1 || !(replay->hasher || replay->checks)) return;
    replay->now = &replay->exchanges[computation];
    replay->now->n = 0;
    replay->seen = replay->checking_ns = 0;
    tm_device_watch(tm_trainer_device(replay->trainer), &replay->watch);
}

static void stop_watching(tm_replay *replay)
{
    if (replay->hasher || replay->checksum) tm_device_watch(tm_trainer_device(replay->trainer), NULL);
}

/* Was everything equal that this rank received before it gave others something else, or before what it kept differs? */
static bool is_own(const tm_replay *replay, bool differs)
{
    const exchanges *a = &replay->exchanges[0], *b = &replay->exchanges[1];
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (a->list[i].sent != b->list[i].sent) return true;
        if (a->list[i].received != b->list[i].received) return false;
    }
    return differs;
}

/* --- what a step writes ------------------------------------------------------------------------------------------- */

typedef struct {
    tm_tensor_id base, id; /* id: itself, or a view of it */
    bool         writes;
} access_of;

typedef struct {
    access_of *list;
    size_t     n, capacity;
} accesses;

static void add_access(const tm_plan *plan, accesses *all, tm_tensor_id id, bool writes)
{
    if (id == TM_NONE) return;
    tm_tensor_id base = tm_graph_base(plan->graph, id);
    if (plan->places[base].program != TM_PERSISTENT || tm_graph_elsewhere(tm_graph_at(plan->graph, base))) return;
    all->list = tm_grow(all->list, &all->capacity, all->n, sizeof *all->list);
    all->list[all->n++] = (access_of){ base, id, writes };
}

static void note_writer(tm_replay *replay, const tm_plan *plan, const tm_program *program, const tm_node *node,
                        tm_tensor_id out, int64_t place, int32_t *index)
{
    if (out == TM_NONE) return;
    tm_tensor_id base = tm_graph_base(plan->graph, out);
    if (plan->places[base].program != TM_PERSISTENT || tm_graph_elsewhere(tm_graph_at(plan->graph, base))) return;
    if (index[base] == 0) {
        const tm_tensor *tensor = tm_graph_at(plan->graph, base);
        replay->tensors = tm_grow(replay->tensors, &replay->capacity, replay->n, sizeof *replay->tensors);
        replay->tensors[replay->n++] = (written_tensor){ .id = base,
                                                         .writer = node,
                                                         .program = program->name,
                                                         .place = place,
                                                         .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype) };
        index[base] = (int32_t)replay->n;
    }
}

/* All accesses of the programs of a step before its update, in their order; and what is written. */
static void look_through(tm_replay *replay, accesses *all)
{
    const tm_step          *step = tm_trainer_step_of(replay->trainer);
    const tm_step_schedule *schedule = &step->training;
    int32_t                *index = tm_alloc(step->graph->n_tensors * sizeof *index);
    int64_t                 place = 0;
    for (size_t w = 0; w < schedule->n; w++) {
        const tm_program *program = schedule->work[w].program;
        bool              again = w > 0 && program == schedule->work[w - 1].program;
        for (size_t i = 0; schedule->work[w].micro_batch != TM_NO_MICRO_BATCH && i < program->count && !again; i++) {
            const tm_node *node = program->instructions[i].node;
            for (int k = 0; k < TM_MAX_IN; k++) add_access(step->plan, all, node->in[k], false);
            for (int k = 0; k < TM_MAX_OUT; k++)
                if (node->accumulate >> k & 1) add_access(step->plan, all, node->out[k], false);
            for (int k = 0; k < TM_MAX_OUT; k++) {
                add_access(step->plan, all, node->out[k], true);
                note_writer(replay, step->plan, program, node, node->out[k], place, index);
            }
            place++;
        }
    }
    free(index);
}

/* Are these runs, or columns, of one tensor apart? Not known of others: false. */
static bool disjoint(const tm_tensor *a, const tm_tensor *b)
{
    int64_t from = a->offset, to = b->offset;
    if (a->base == TM_NONE || b->base == TM_NONE || a->ld != b->ld) return false;
    int64_t n = tm_shape_elements(a->shape), m = tm_shape_elements(b->shape);
    if (a->ld > 0) {
        from %= a->ld, to %= b->ld;
        n = a->shape.n[a->shape.rank - 1], m = b->shape.n[b->shape.rank - 1];
    }
    return from + n <= to || to + m <= from;
}

/* Is there something in it that is read before it is written, and written later? list: its accesses. */
static bool is_state(const tm_graph *graph, const access_of *list, size_t n)
{
    for (size_t r = 0; r < n; r++) {
        for (size_t w = r + 1; w < n && !list[r].writes; w++) {
            bool before = !list[w].writes || disjoint(tm_graph_at(graph, list[r].id), tm_graph_at(graph, list[w].id));
            for (size_t k = 0; k < r && !before; k++)
                before = list[k].writes && (list[k].id == list[w].id || list[k].id == list[k].base);
            if (!before) return true;
        }
    }
    return false;
}

/* Brings the accesses of a tensor together, in their order. */
static access_of *sorted(const accesses *all, size_t n_tensors, size_t *first)
{
    access_of *out = tm_alloc((all->n + 1) * sizeof *out);
    for (size_t i = 0; i < all->n; i++) first[all->list[i].base + 1]++;
    for (size_t t = 0; t < n_tensors; t++) first[t + 1] += first[t];
    size_t *next = tm_alloc((n_tensors + 1) * sizeof *next);
    memcpy(next, first, n_tensors * sizeof *next);
    for (size_t i = 0; i < all->n; i++) out[next[all->list[i].base]++] = all->list[i];
    free(next);
    return out;
}

/* State and scalars are small: they are always put back. Of others it is looked at. */
static void find_state(tm_replay *replay, const accesses *all)
{
    const tm_graph *graph = tm_trainer_step_of(replay->trainer)->graph;
    size_t         *first = tm_alloc((graph->n_tensors + 1) * sizeof *first);
    access_of      *list = sorted(all, graph->n_tensors, first);
    for (size_t i = 0; i < replay->n; i++) {
        written_tensor *t = &replay->tensors[i];
        tm_role         role = tm_graph_at(graph, t->id)->role;
        bool            state = role == TM_ROLE_STATE || role == TM_ROLE_SCALAR ||
                     is_state(graph, list + first[t->id], first[t->id + 1] - first[t->id]);
        if (state) t->kept = tm_alloc(t->bytes);
    }
    free(first);
    free(list);
}

tm_replay *tm_replay_create(tm_trainer *trainer, uint64_t seed, int64_t most_bytes)
{
    tm_replay *replay = tm_alloc(sizeof *replay);
    accesses   all = { 0 };
    *replay = (tm_replay){ .trainer = trainer, .seed = seed, .most_bytes = most_bytes };
    look_through(replay, &all);
    find_state(replay, &all);
    free(all.list);
    for (size_t i = 0; i < replay->n; i++) {
        replay->tensors[i].first_part = replay->n_parts;
        replay->n_parts += (replay->tensors[i].bytes + TM_REPLAY_PART_BYTES - 1) / TM_REPLAY_PART_BYTES;
        replay->all_bytes += (int64_t)replay->tensors[i].bytes;
    }
    for (int c = 0; c < COMPUTATIONS; c++)
        replay->digests[c] = tm_alloc((replay->n_parts + 1) * sizeof *replay->digests[c]);
    replay->buffer = tm_alloc(PIECE_BYTES);
    replay->watch = (tm_watch){ replay, is_looked_at, look };
    replay->several = tm_mesh_ranks(&tm_trainer_step_of(trainer)->options.layout.mesh) > 1;
    if (!tm_device_describe(tm_trainer_device(trainer))->own_memory) {
        if (replay->several) replay->hasher = tm_hasher_create();
        replay->checksum = tm_checksum_create(tm_trainer_device(trainer));
    }
    return replay;
}

void tm_replay_destroy(tm_replay *replay)
{
    if (!replay) return;
    for (size_t i = 0; i < replay->n; i++) free(replay->tensors[i].kept);
    for (int c = 0; c < COMPUTATIONS; c++) free(replay->digests[c]);
    for (int c = 0; c < 2; c++) free(replay->exchanges[c].list);
    if (replay->hasher) tm_hasher_destroy(replay->hasher);
    tm_checksum_destroy(replay->checksum);
    free(replay->tensors);
    free(replay->buffer);
    free(replay);
}

int64_t tm_replay_kept_bytes(const tm_replay *replay)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < replay->n; i++) bytes += replay->tensors[i].kept ? (int64_t)replay->tensors[i].bytes : 0;
    return bytes;
}

/* --- state -------------------------------------------------------------------------------------------------------- */

tm_status tm_replay_begin(tm_replay *replay, int64_t step, tm_error *err)
{
    replay->step = step;
    for (size_t i = 0; i < replay->n; i++) {
        written_tensor *t = &replay->tensors[i];
        if (t->kept) TM_TRY(tm_trainer_read(replay->trainer, t->id, 0, t->kept, t->bytes, err));
    }
    watch(replay, 0);
    return TM_OK;
}

static tm_status compute_again(tm_replay *replay, int computation, const tm_micro_batch *batch, tm_error *err)
{
    for (size_t i = 0; i < replay->n; i++) {
        const written_tensor *t = &replay->tensors[i];
        if (t->kept) TM_TRY(tm_trainer_write(replay->trainer, t->id, 0, t->kept, t->bytes, err));
    }
    watch(replay, computation);
    tm_status st = tm_trainer_gradients(replay->trainer, batch, NULL, err);
    stop_watching(replay);
    return st == TM_OK ? tm_device_wait(tm_trainer_device(replay->trainer), err) : st;
}

/* --- digests ------------------------------------------------------------------------------------------------------ */

/* Is this piece of 1 MiB of all tensors compared in this step? */
static bool drawn(const tm_replay *replay, size_t piece)
{
    uint64_t stream = tm_random_stream("replay") + (uint64_t)replay->step;
    if (replay->most_bytes == 0 || replay->all_bytes <= replay->most_bytes) return true;
    return tm_random_uniform(replay->seed, stream, piece) * (double)replay->all_bytes < (double)replay->most_bytes;
}

static part_digest digest_of(const char *data, size_t bytes)
{
    part_digest out = { .hash = tm_hash(data, bytes) };
    for (size_t at = 0; at < bytes; at += sizeof out.bits) {
        uint64_t word = 0;
        memcpy(&word, data + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        out.bits ^= word;
    }
    return out;
}

/* Digests of what the tensors hold now; *bytes: of how many. */
static tm_status digest(tm_replay *replay, int computation, int64_t *bytes, tm_error *err)
{
    part_digest *to = replay->digests[computation];
    *bytes = 0;
    for (size_t i = 0; i < replay->n; i++) {
        const written_tensor *t = &replay->tensors[i];
        for (size_t at = 0; at < t->bytes; at += PIECE_BYTES) {
            size_t n = t->bytes - at < PIECE_BYTES ? t->bytes - at : PIECE_BYTES;
            size_t part = t->first_part + at / TM_REPLAY_PART_BYTES;
            if (!drawn(replay, part)) continue;
            TM_TRY(tm_trainer_read(replay->trainer, t->id, at, replay->buffer, n, err));
            for (size_t k = 0; k < n; k += TM_REPLAY_PART_BYTES)
                to[part + k / TM_REPLAY_PART_BYTES] =
                    digest_of(replay->buffer + k, n - k < TM_REPLAY_PART_BYTES ? n - k : TM_REPLAY_PART_BYTES);
            *bytes += (int64_t)n;
        }
    }
    return TM_OK;
}

static bool equal(const tm_replay *replay, int a, int b)
{
    return replay->n_parts == 0 ||
           memcmp(replay->digests[a], replay->digests[b], replay->n_parts * sizeof *replay->digests[a]) == 0;
}

static int count_bits(uint64_t word)
{
    int n = 0;
    for (; word; word &= word - 1) n++;
    return n;
}

/* Part `part` is the first one that differs, of tensor t. */
static void describe(const tm_replay *replay, const written_tensor *t, size_t part, tm_replay_difference *out)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(replay->trainer)->graph, t->id);
    const int64_t    bits = tm_dtype_bits(tensor->dtype), per_part = 8 * TM_REPLAY_PART_BYTES / bits;
    const int64_t    all = tm_shape_elements(tensor->shape);
    out->place = t->place;
    snprintf(out->tensor, sizeof out->tensor, "%s", tensor->name);
    snprintf(out->op, sizeof out->op, "%s", tm_op_get(t->writer->op)->name);
    snprintf(out->program, sizeof out->program, "%s", t->program);
    out->layer = t->writer->layer;
    out->first = (int64_t)(part - t->first_part) * per_part;
    out->end = out->first + per_part < all ? out->first + per_part : all;
    out->bits = count_bits(replay->digests[0][part].bits ^ replay->digests[1][part].bits);
}

static void find_differences(const tm_replay *replay, tm_replay_difference *out)
{
    for (size_t i = 0; i < replay->n; i++) {
        const written_tensor *t = &replay->tensors[i];
        const size_t          end = i + 1 < replay->n ? replay->tensors[i + 1].first_part : replay->n_parts;
        int64_t               parts = 0;
        for (size_t p = t->first_part; p < end; p++) {
            if (memcmp(&replay->digests[0][p], &replay->digests[1][p], sizeof(part_digest)) == 0) continue;
            if (out->parts + parts == 0) describe(replay, t, p, out);
            parts++;
        }
        out->parts += parts;
        out->tensors += parts > 0;
    }
}

tm_status tm_replay_compare(tm_replay *replay, const tm_micro_batch *batch, tm_replay_compared *compared,
                            tm_replay_difference *difference, tm_error *err)
{
    *difference = (tm_replay_difference){ .layer = -1 };
    *compared = (tm_replay_compared){ .of_bytes = replay->all_bytes };
    for (int c = 0; c < COMPUTATIONS; c++) memset(replay->digests[c], 0, replay->n_parts * sizeof *replay->digests[c]);
    stop_watching(replay);
    replay->products = (tm_replay_products){ .layer = -1 };
    TM_TRY(digest(replay, 0, &compared->bytes, err));
    int64_t begin = tm_now_ns();
    TM_TRY(compute_again(replay, 1, batch, err));
    compared->computed = (double)(tm_now_ns() - begin - replay->checking_ns) * 1e-9;
    compared->products = replay->products;
    TM_TRY(digest(replay, 1, &compared->bytes, err));
    difference->differs = !equal(replay, 0, 1);
    if (difference->differs) find_differences(replay, difference);
    difference->own = is_own(replay, difference->differs);
    difference->traced = (replay->hasher || !replay->several) && !replay->unseen;
    return TM_OK;
}

tm_status tm_replay_decide(tm_replay *replay, const tm_micro_batch *batch, tm_replay_difference *difference,
                           tm_error *err)
{
    int64_t bytes;
    TM_TRY(compute_again(replay, 2, batch, err));
    TM_TRY(digest(replay, 2, &bytes, err));
    if (difference->differs)
        difference->wrong = equal(replay, 1, 2)   ? TM_REPLAY_FIRST_WRONG
                            : equal(replay, 0, 2) ? TM_REPLAY_SECOND_WRONG
                                                  : TM_REPLAY_UNDECIDED;
    return TM_OK;
}

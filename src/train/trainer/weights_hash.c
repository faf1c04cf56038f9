/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/weights_hash.c - checksums of weights, whichever ranks have what of them. */
#include "base/arena.h"
#include "base/hash.h"
#include "graph/cut.h"
#include "train/trainer/shards.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

static const tm_graph *graph_of(const tm_trainer *trainer)
{
    return tm_trainer_step_of(trainer)->graph;
}

static tm_status hash_tensor(const tm_trainer *trainer, tm_tensor_id id, void *buffer, tm_hasher *hasher, tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(graph_of(trainer), id);
    for (size_t done = 0, bytes = tm_tensor_bytes(tensor->shape, tensor->dtype); done < bytes;) {
        size_t n = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        TM_TRY(tm_trainer_read(trainer, id, done, buffer, n, err));
        tm_hasher_add(hasher, buffer, n);
        done += n;
    }
    return TM_OK;
}

/* --- formats of blocks: their codes and the scales of blocks count, whichever groups these are in ----------------- */

/* As NF4_SCALED has what is in NF4_BLOCKS. */
static tm_dtype counted_as(tm_dtype dtype)
{
    return dtype == TM_NF4_BLOCKS ? TM_NF4_SCALED : dtype;
}

/* What is here of a whole: parameters of one name are parts of it. */
typedef struct {
    const tm_tensor *tensor;
    char            *data; /* NULL: none is cut */
} held_part;
enum { MOST_PARTS = 4 };

/* Elements [first, first + n) of the whole of a cut tensor into `to`; `bytes` of them. */
static tm_status gather_blocks(const tm_trainer *trainer, const held_part *parts, int n_parts, int64_t first, int64_t n,
                               int64_t *to, size_t bytes, tm_error *err)
{
    const tm_tensor *t = parts[0].tensor;
    memset(to, 0, (bytes + 7) / 8 * sizeof *to);
    for (int p = 0; p < n_parts; p++)
        for (int64_t k = 0; k < tm_cut_runs(parts[p].tensor); k++) {
            tm_cut_run run = tm_cut_run_at(parts[p].tensor, k);
            int64_t    from = run.whole > first ? run.whole : first, end = run.whole + run.n;
            if (end > first + n) end = first + n;
            if (from < end)
                tm_blocked_copy(t->dtype, parts[p].data, run.here + from - run.whole, counted_as(t->dtype), to,
                                from - first, end - from);
        }
    tm_collective call = { .kind = TM_COMM_ALL_REDUCE, /* no byte comes from two ranks */
                           .op = TM_COMM_SUM,
                           .format = TM_COMM_INT64,
                           .send = to,
                           .receive = to,
                           .count = (bytes + 7) / 8,
                           .what = t->name,
                           .step = -1 };
    return tm_comm_run(tm_device_group(tm_trainer_device(trainer), t->cut->axes), &call, err);
}

/* Groups of a whole tensor, `n` elements from `first` on, as they are counted. */
static tm_status take_groups(const tm_trainer *trainer, tm_tensor_id id, const held_part *parts, int n_parts,
                             int64_t first, int64_t n, void *stored, void *to, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(graph_of(trainer), id);
    size_t           begin = tm_blocked_bytes(t->dtype, first), end = tm_blocked_bytes(t->dtype, first + n);
    size_t           bytes = tm_blocked_bytes(counted_as(t->dtype), n);
    if (t->cut) return gather_blocks(trainer, parts, n_parts, first, n, to, bytes, err);
    TM_TRY(tm_trainer_read(trainer, id, begin, stored, end - begin, err));
    memset(to, 0, bytes);
    tm_blocked_copy(t->dtype, stored, 0, counted_as(t->dtype), to, 0, n);
    return TM_OK;
}

static tm_status read_part(const tm_trainer *trainer, tm_tensor_id id, held_part *out, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(graph_of(trainer), id);
    size_t           here = tm_tensor_bytes(t->shape, t->dtype);
    *out = (held_part){ t, tm_alloc(here) };
    for (size_t done = 0; done < here; done += CHUNK_BYTES)
        TM_TRY(tm_trainer_read(trainer, id, done, out->data + done,
                               here - done < CHUNK_BYTES ? here - done : CHUNK_BYTES, err));
    return TM_OK;
}

/* Parameters of one name are parts of one whole, which other ranks may have parts of, too. */
static bool same_whole(const tm_tensor *a, const tm_tensor *b)
{
    return b->role == TM_ROLE_PARAMETER && b->cut && strcmp(a->name, b->name) == 0;
}

static tm_status hash_blocked(const tm_trainer *trainer, tm_tensor_id id, tm_hasher *hasher, tm_error *err)
{
    enum { AT_ONCE = 64 * TM_NF4_GROUP };
    const tm_graph  *graph = graph_of(trainer);
    const tm_tensor *t = tm_graph_at(graph, id);
    int64_t          all = tm_shape_elements(t->cut ? t->cut->whole : t->shape);
    size_t           room = tm_blocked_bytes(TM_E4M3_BLOCKS, AT_ONCE) + 8;
    char            *stored = tm_alloc(room), *to = tm_alloc(room);
    held_part        parts[MOST_PARTS];
    int              n_parts = 0;
    tm_status        st = TM_OK;
    for (size_t i = (size_t)id; t->cut && i < graph->n_tensors && st == TM_OK; i++) {
        if (!same_whole(t, &graph->tensors[i])) continue;
        TM_ASSERT(n_parts < MOST_PARTS);
        st = read_part(trainer, (tm_tensor_id)i, &parts[n_parts++], err);
    }
    for (int64_t first = 0; first < all && st == TM_OK; first += AT_ONCE) {
        int64_t n = all - first < AT_ONCE ? all - first : AT_ONCE;
        st = take_groups(trainer, id, parts, n_parts, first, n, stored, to, err);
        if (st == TM_OK) tm_hasher_add(hasher, to, tm_blocked_bytes(counted_as(t->dtype), n));
    }
    for (int p = 0; p < n_parts; p++) free(parts[p].data);
    free(stored);
    free(to);
    return st;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* What is here of rows [first, first + rows) of the whole of a cut tensor, into its places among them. */
static tm_status put_rows(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t rows, char *part, char *to,
                          tm_error *err)
{
    const tm_tensor *t = tm_graph_at(graph_of(trainer), id);
    size_t           size = tm_dtype_bytes(t->dtype), here = (size_t)tm_piece_row(t->shape) * size;
    size_t           all = (size_t)tm_piece_row(t->cut->whole) * size;
    for (int p = 0; p < t->n_pieces; p++) {
        const tm_piece *piece = &t->pieces[p];
        int64_t         from = piece->begin > first ? piece->begin : first, end = piece->begin + piece->rows;
        if (end > first + rows) end = first + rows;
        if (from >= end) continue;
        size_t local = (size_t)(piece->row + from - piece->begin) * here;
        TM_TRY(tm_trainer_read(trainer, id, local, part, (size_t)(end - from) * here, err));
        for (int64_t r = from; r < end; r++)
            memcpy(to + (size_t)(r - first) * all + (size_t)t->cut->column * size, part + (size_t)(r - from) * here,
                   here);
    }
    return TM_OK;
}

/* Rows [first, first + rows) of the whole of a cut tensor into `to`: every rank of the group gives what it has of them.
 * `part`: room for what is here. */
static tm_status gather_rows(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t rows, char *part,
                             int64_t *to, tm_error *err)
{
    const tm_graph  *graph = graph_of(trainer);
    const tm_tensor *t = tm_graph_at(graph, id);
    size_t           all = (size_t)tm_piece_row(t->cut->whole) * tm_dtype_bytes(t->dtype);
    size_t           words = ((size_t)rows * all + 7) / 8;
    memset(to, 0, words * sizeof *to);
    for (size_t i = (size_t)id; i < graph->n_tensors; i++)
        if (same_whole(t, &graph->tensors[i]))
            TM_TRY(put_rows(trainer, (tm_tensor_id)i, first, rows, part, (char *)to, err));
    tm_collective  call = { .kind = TM_COMM_ALL_REDUCE, /* no byte comes from two ranks: the others' are 0 */
                            .op = TM_COMM_SUM,
                            .format = TM_COMM_INT64,
                            .send = to,
                            .receive = to,
                            .count = words,
                            .what = t->name,
                            .step = -1 };
    const unsigned group = t->cut->axes ? t->cut->axes : 1U << TM_AXIS_PP; /* a piece of each stage's */
    return tm_comm_run(tm_device_group(tm_trainer_device(trainer), group), &call, err);
}

/* Is there a part of the same whole before it? */
static bool counted(const tm_graph *graph, size_t id)
{
    const tm_tensor *t = &graph->tensors[id];
    for (size_t i = 0; t->cut && i < id; i++)
        if (same_whole(t, &graph->tensors[i])) return true;
    return false;
}

/* As the whole tensor has them. */
static tm_status hash_cut(const tm_trainer *trainer, tm_tensor_id id, tm_hasher *hasher, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(graph_of(trainer), id);
    int64_t          columns = tm_piece_row(t->cut->whole), all = tm_shape_elements(t->cut->whole) / columns;
    size_t           row = (size_t)columns * tm_dtype_bytes(t->dtype);
    int64_t          most = row < CHUNK_BYTES ? (int64_t)(CHUNK_BYTES / row) : 1;
    char            *part = tm_alloc((size_t)most * row);
    int64_t         *rows = tm_alloc(((size_t)most * row + 7) / 8 * sizeof *rows);
    tm_status        st = TM_OK;
    for (int64_t first = 0; first < all && st == TM_OK; first += most) {
        int64_t n = all - first < most ? all - first : most;
        st = gather_rows(trainer, id, first, n, part, rows, err);
        if (st == TM_OK) tm_hasher_add(hasher, rows, (size_t)n * row);
    }
    free(rows);
    free(part);
    return st;
}

/* Is it a piece of what stages divide? */
static bool of_stages(const tm_tensor *tensor)
{
    return tensor->cut && tensor->cut->axes == 0;
}

/* Does its hash count on this rank? Not if it is a copy; pieces of stages all have that of the whole. */
static bool counts(const tm_tensor *tensor)
{
    return !tensor->twin && !(of_stages(tensor) && tensor->cut->rank > 0);
}

tm_status tm_trainer_hashes(const tm_trainer *trainer, uint64_t *hashes, tm_error *err)
{
    tm_hasher *hasher = tm_hasher_create();
    void      *buffer = tm_alloc(CHUNK_BYTES);
    tm_status  st = TM_OK;
    for (size_t i = 0; i < graph_of(trainer)->n_tensors && st == TM_OK; i++) {
        const tm_tensor *tensor = &graph_of(trainer)->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        hashes[i] = 0;
        if (counted(graph_of(trainer), i)) continue;
        tm_hasher_restart(hasher);
        const bool copy = tensor->twin && of_stages(tensor); /* of rows of a whole one: as it is */
        st = tm_dtype_blocked(tensor->dtype) ? hash_blocked(trainer, (tm_tensor_id)i, hasher, err)
             : tensor->cut && !copy          ? hash_cut(trainer, (tm_tensor_id)i, hasher, err)
                                             : hash_tensor(trainer, (tm_tensor_id)i, buffer, hasher, err);
        const uint64_t both[2] = { tm_hash(tensor->name, strlen(tensor->name)), tm_hasher_value(hasher) };
        hashes[i] = tm_hash(both, sizeof both);
    }
    free(buffer);
    tm_hasher_destroy(hasher);
    return st;
}

uint64_t tm_trainer_weights_sum(const tm_trainer *trainer, const uint64_t *hashes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < graph_of(trainer)->n_tensors; i++)
        if (graph_of(trainer)->tensors[i].role == TM_ROLE_PARAMETER && counts(&graph_of(trainer)->tensors[i]))
            sum += hashes[i];
    return sum;
}

tm_status tm_trainer_sum(const tm_trainer *trainer, unsigned axes, double *values, size_t n, tm_error *err)
{
    tm_comm      *comm = axes ? tm_device_group(tm_trainer_device(trainer), axes) : NULL;
    tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                           .op = TM_COMM_SUM,
                           .format = TM_COMM_FLOAT64,
                           .send = values,
                           .receive = values,
                           .count = n,
                           .what = "values of a rank",
                           .step = -1 };
    if (!comm) return TM_OK;
    TM_TRY(
        tm_device_wait(tm_trainer_device(trainer), err)); /* others may wait for what is queued here before they come */
    return tm_comm_run(comm, &call, err);
}

tm_status tm_trainer_sum_stages(const tm_trainer *trainer, uint64_t *sum, tm_error *err)
{
    tm_comm      *stages = tm_device_group(tm_trainer_device(trainer), 1U << TM_AXIS_PP);
    uint64_t      own = *sum;
    tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                           .op = TM_COMM_SUM,
                           .format = TM_COMM_INT64,
                           .send = &own,
                           .receive = sum,
                           .count = 1,
                           .what = "checksums of stages",
                           .step = -1 };
    return stages ? tm_comm_run(stages, &call, err) : TM_OK;
}

tm_status tm_trainer_base_hash(const tm_trainer *trainer, uint64_t *out, tm_error *err)
{
    size_t    n = graph_of(trainer)->n_tensors;
    uint64_t *hashes = tm_alloc(n * sizeof *hashes);
    tm_status st = tm_trainer_hashes(trainer, hashes, err);
    *out = 0;
    for (size_t i = 0; i < n && st == TM_OK; i++)
        if (tm_held_base(tm_trainer_step_of(trainer), &graph_of(trainer)->tensors[i]) &&
            counts(&graph_of(trainer)->tensors[i]))
            *out += hashes[i];
    if (st == TM_OK) st = tm_trainer_sum_stages(trainer, out, err);
    free(hashes);
    return st;
}

tm_status tm_trainer_weights_hash(const tm_trainer *trainer, uint64_t *out, tm_error *err)
{
    uint64_t *hashes = tm_alloc((graph_of(trainer)->n_tensors + 1) * sizeof *hashes);
    tm_status st = tm_trainer_hashes(trainer, hashes, err);
    if (st == TM_OK) *out = tm_trainer_weights_sum(trainer, hashes);
    if (st == TM_OK) st = tm_trainer_sum_stages(trainer, out, err);
    free(hashes);
    return st;
}

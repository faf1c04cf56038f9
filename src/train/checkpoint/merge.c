/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/merge.c - what each rank has written, as one index. */
#include "train/checkpoint/io.h"

#include <stdlib.h>
#include <string.h>

/* A record of a rank. */
typedef struct {
    const tm_checkpoint_record *record;
    const tm_checkpoint_index  *index;
    int                         rank;
    uint32_t                    file; /* of the rank, in the whole index */
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int          names = strcmp(x->record->name, y->record->name);
    if (names) return names;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record; /* of one array */
}

static bool same_tensor(const tm_checkpoint_record *a, const tm_checkpoint_record *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes && a->row_bytes == b->row_bytes &&
           memcmp(a->n, b->n, sizeof a->n) == 0;
}

/* n entries of one name become a record. */
static tm_status merge_tensor(const entry *entries, size_t n, tm_arena *arena, tm_checkpoint_index *out, tm_error *err)
{
    tm_checkpoint_record *record = &out->records[out->count++];
    uint64_t              bytes = 0;
    *record = *entries[0].record;
    record->first_piece = out->n_pieces;
    for (size_t i = 0; i < n; i++) {
        const tm_checkpoint_record *own = entries[i].record;
        if (!same_tensor(own, record))
            return tm_fail(err, TM_INTERNAL,
                           "ranks %d and %d save tensor '%s', but with other formats or shapes (%llu and %llu bytes in "
                           "rows of %llu and %llu)",
                           entries[0].rank, entries[i].rank, record->name, (unsigned long long)record->bytes,
                           (unsigned long long)own->bytes, (unsigned long long)record->row_bytes,
                           (unsigned long long)own->row_bytes);
        for (size_t k = 0; k < own->n_pieces; k++) {
            tm_checkpoint_piece *piece = &out->pieces[out->n_pieces++];
            *piece = entries[i].index->pieces[own->first_piece + k];
            piece->file = entries[i].file;
            bytes += tm_checkpoint_piece_bytes(piece);
        }
    }
    record->n_pieces = out->n_pieces - record->first_piece;
    if (tm_checkpoint_covered(record->bytes, record->row_bytes, out->pieces + record->first_piece, record->n_pieces,
                              arena))
        return TM_OK;
    return tm_fail(err, TM_INTERNAL,
                   "the ranks save %llu bytes in %zu parts of tensor '%s', which are not its %llu bytes once each",
                   (unsigned long long)bytes, record->n_pieces, record->name, (unsigned long long)record->bytes);
}

static bool same_state(const tm_checkpoint_state *a, const tm_checkpoint_state *b)
{
    return a->step == b->step && a->samples_consumed == b->samples_consumed && a->seed == b->seed &&
           a->config_hash == b->config_hash && a->content == b->content && strcmp(a->model, b->model) == 0 &&
           strcmp(a->description, b->description) == 0;
}

/* All records of all ranks; `out` gets the files. */
static tm_status list(unsigned char *const *parts, const size_t *lengths, int ranks, tm_arena *arena, entry **entries,
                      size_t *n, tm_checkpoint_index *out, tm_error *err)
{
    tm_checkpoint_index *own = tm_arena_take(arena, (size_t)ranks * sizeof *own);
    size_t               pieces = 0;
    *n = 0;
    for (int r = 0; r < ranks; r++) {
        TM_TRY(tm_checkpoint_part_decode(parts[r], lengths[r], arena, &own[r], err));
        if (!same_state(&own[0].state, &own[r].state))
            return tm_fail(err, TM_INTERNAL, "rank %d saves another run, or step %lld and rank 0 step %lld", r,
                           (long long)own[r].state.step, (long long)own[0].state.step);
        *n += own[r].count;
        pieces += own[r].n_pieces;
    }
    out->state = own[0].state;
    out->safetensors = own[0].safetensors;
    out->files = tm_arena_take(arena, (size_t)ranks * sizeof *out->files);
    out->records = tm_arena_take(arena, (*n + 1) * sizeof *out->records);
    out->pieces = tm_arena_take(arena, (pieces + 1) * sizeof *out->pieces);
    *entries = tm_arena_take(arena, (*n + 1) * sizeof **entries);
    *n = 0;
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < own[r].count; i++)
            (*entries)[(*n)++] = (entry){ &own[r].records[i], &own[r], r, (uint32_t)out->n_files };
        out->data_bytes += own[r].data_bytes;
        if (own[r].n_files > 0) out->files[out->n_files++] = own[r].files[0];
    }
    return TM_OK;
}

tm_status tm_checkpoint_merge(unsigned char *const *parts, const size_t *lengths, int ranks, tm_arena *arena,
                              tm_checkpoint_index *out, tm_error *err)
{
    entry *entries = NULL;
    size_t n = 0;
    *out = (tm_checkpoint_index){ 0 };
    TM_TRY(list(parts, lengths, ranks, arena, &entries, &n, out, err));
    qsort(entries, n, sizeof *entries, compare_entries);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && strcmp(entries[i].record->name, entries[i + same].record->name) == 0;) same++;
        TM_TRY(merge_tensor(entries + i, same, arena, out, err));
    }
    return TM_OK;
}

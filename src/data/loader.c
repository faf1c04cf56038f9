/* SPDX-License-Identifier: Apache-2.0 */
/* data/loader.c - a thread fills batches ahead of the trainer; with depth 0 the trainer does it itself.
 *
 * A ring of depth + 1 slots: the consumer holds one, up to `depth` are ready or being filled. Batch n lies in slot
 * n mod (depth + 1); counts only grow, and only they are shared: a slot belongs to one side at a time.
 */
#include "data/source.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/source_kind.h"
#include "graph/value.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { WATCHED = TM_LOADER_WATCHED }; /* samples: a power of two */

struct tm_loader {
    const tm_source *source;
    tm_split         split;
    int64_t          batch, first, samples; /* samples: of the split, for validation; INT64_MAX for train */
    int64_t          rows, begin;           /* of the part: its samples of a batch, and where in the batch they begin */
    int64_t          slots;
    tm_batch        *slot;
    size_t           bytes[TM_MAX_FIELDS]; /* of a field of a sample */
    char            *memory;               /* of all slots */
    int64_t         *weight;               /* (slots, rows) */
    int32_t         *sample;               /* (T+1) the thread's own */
    pthread_t        thread;
    pthread_mutex_t  lock;
    pthread_cond_t   filled_more, freed_more;
    int64_t          filled, freed;             /* batches since open; guarded by lock */
    bool             closing;                   /* guarded by lock */
    tm_error         error;                     /* the thread's own until the batch that shows it is handed out */
    int64_t          taken;                     /* the consumer's own */
    uint64_t         samples_seen[2 * WATCHED]; /* hashes; open addressing, 0: free; guarded by lock, as the next */
    int64_t          seen, unique;
};

/* A row that is not there. */
static void fill_empty(const tm_loader *loader, void *const *at)
{
    for (int f = 0; f < loader->source->n_fields; f++) {
        const tm_field *field = &loader->source->fields[f];
        for (int64_t i = 0, n = tm_shape_elements(field->shape); i < n; i++)
            tm_value_set(at[f], field->dtype, i, field->empty);
    }
}

/* Is this sample one that was read before? */
static void watch(tm_loader *loader, void *const *at)
{
    uint64_t hash = 0;
    for (int f = 0; f < loader->source->n_fields; f++) {
        const uint64_t both[2] = { hash, tm_hash(at[f], loader->bytes[f]) };
        hash = tm_hash(both, sizeof both) | 1;
    }
    size_t i = (size_t)(hash >> 20) % (2 * WATCHED);
    pthread_mutex_lock(&loader->lock);
    while (loader->samples_seen[i] && loader->samples_seen[i] != hash) i = (i + 1) % (2 * WATCHED);
    loader->seen++;
    loader->unique += loader->samples_seen[i] == 0;
    loader->samples_seen[i] = hash;
    pthread_mutex_unlock(&loader->lock);
}

static void fill(tm_loader *loader, int64_t n)
{
    tm_batch *out = &loader->slot[n % loader->slots];
    int64_t  *weights = loader->weight + n % loader->slots * loader->rows;
    out->weight = weights;
    out->target_tokens = 0;
    for (int64_t row = 0; row < loader->rows; row++) {
        void   *at[TM_MAX_FIELDS];
        int64_t index = loader->first + n * loader->batch + loader->begin + row, weight = 0;
        for (int f = 0; f < loader->source->n_fields; f++)
            at[f] = (char *)out->field[f] + (size_t)row * loader->bytes[f];
        if (index >= loader->samples || loader->error.status != TM_OK ||
            tm_source_row(loader->source, loader->split, index, loader->sample, at, &weight, &loader->error)) {
            weight = 0;
            fill_empty(loader, at);
        } else if (loader->seen < WATCHED) {
            watch(loader, at);
        }
        weights[row] = weight;
        out->target_tokens += weight;
    }
    out->error = loader->error.status != TM_OK ? &loader->error : NULL;
}

static void *fill_ahead(void *argument)
{
    tm_loader *loader = argument;
    for (int64_t n = 0;; n++) {
        pthread_mutex_lock(&loader->lock);
        while (!loader->closing && n - loader->freed >= loader->slots)
            pthread_cond_wait(&loader->freed_more, &loader->lock);
        bool closing = loader->closing;
        pthread_mutex_unlock(&loader->lock);
        if (closing) return NULL;
        fill(loader, n);
        pthread_mutex_lock(&loader->lock);
        loader->filled = n + 1;
        pthread_cond_signal(&loader->filled_more);
        pthread_mutex_unlock(&loader->lock);
    }
}

static void release(tm_loader *loader)
{
    pthread_cond_destroy(&loader->freed_more);
    pthread_cond_destroy(&loader->filled_more);
    pthread_mutex_destroy(&loader->lock);
    free(loader->memory);
    free(loader->weight);
    free(loader->slot);
    free(loader->sample);
    free(loader);
}

/* Every field of every slot, each at a multiple of 64 bytes. */
static void take_memory(tm_loader *loader)
{
    enum { ALIGN = 64 };
    size_t at[TM_MAX_FIELDS], slot = 0, all = 0;
    for (int f = 0; f < loader->source->n_fields; f++) {
        size_t bytes = 0;
        loader->bytes[f] = tm_tensor_bytes(loader->source->fields[f].shape, loader->source->fields[f].dtype);
        TM_ASSERT(tm_dtype_bits(loader->source->fields[f].dtype) % 8 == 0); /* rows begin at whole bytes */
        TM_ASSERT(!__builtin_mul_overflow((size_t)loader->rows, loader->bytes[f], &bytes) && bytes < SIZE_MAX / 2);
        at[f] = slot;
        slot += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    TM_ASSERT(!__builtin_mul_overflow(slot, (size_t)loader->slots, &all));
    loader->memory = tm_alloc(all);
    loader->weight = tm_alloc((size_t)loader->slots * (size_t)loader->rows * sizeof *loader->weight);
    for (int64_t i = 0; i < loader->slots; i++)
        for (int f = 0; f < loader->source->n_fields; f++)
            loader->slot[i].field[f] = loader->memory + (size_t)i * slot + at[f];
}

static bool start_thread(tm_loader *loader)
{
    sigset_t all, before; /* signals are the main thread's business */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* but not a fault of this thread's own (base/mapped.h) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&loader->thread, NULL, fill_ahead, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

tm_loader *tm_loader_open(const tm_source *source, tm_split split, int64_t batch, int64_t first_sample, int depth)
{
    return tm_loader_open_part(source, split, batch, (tm_loader_part){ .ranks = 1 }, first_sample, depth);
}

tm_loader *tm_loader_open_part(const tm_source *source, tm_split split, int64_t batch, tm_loader_part part,
                               int64_t first_sample, int depth)
{
    TM_ASSERT(source && batch >= 1 && first_sample >= 0 && depth >= 0);
    TM_ASSERT(part.rank >= 0 && part.rank < part.ranks && batch % part.ranks == 0);
    int64_t    slots = depth + 1, rows = batch / part.ranks;
    tm_loader *loader = tm_alloc(sizeof *loader);
    *loader = (tm_loader){ .source = source,
                           .split = split,
                           .batch = batch,
                           .first = first_sample,
                           .rows = rows,
                           .begin = part.rank * rows,
                           .slots = slots };
    loader->samples = split == TM_SPLIT_TRAIN ? INT64_MAX : tm_source_describe(source)->validation_samples;
    loader->slot = tm_alloc((size_t)slots * sizeof *loader->slot);
    loader->sample = tm_alloc((size_t)(tm_source_seq(source) + 1) * sizeof *loader->sample);
    take_memory(loader);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled_more, NULL);
    pthread_cond_init(&loader->freed_more, NULL);
    if (depth > 0 && !start_thread(loader)) {
        release(loader);
        return NULL;
    }
    return loader;
}

void tm_loader_close(tm_loader *loader)
{
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->closing = true;
    pthread_cond_signal(&loader->freed_more);
    pthread_mutex_unlock(&loader->lock);
    if (loader->slots > 1) pthread_join(loader->thread, NULL);
    release(loader);
}

void tm_loader_next(tm_loader *loader, tm_batch *out)
{
    if (loader->slots == 1) { /* no thread */
        fill(loader, loader->taken++);
        *out = loader->slot[0];
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->freed = loader->taken; /* what was handed out before is no longer used */
    pthread_cond_signal(&loader->freed_more);
    while (loader->filled <= loader->taken) pthread_cond_wait(&loader->filled_more, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    *out = loader->slot[loader->taken++ % loader->slots];
}

int64_t tm_loader_consumed(const tm_loader *loader)
{
    return loader->first + loader->taken * loader->batch;
}

void tm_loader_unique(tm_loader *loader, int64_t *seen, int64_t *unique, uint64_t hashes[TM_LOADER_WATCHED])
{
    int64_t n = 0;
    pthread_mutex_lock(&loader->lock);
    *seen = loader->seen;
    *unique = loader->unique;
    for (size_t i = 0; i < 2 * WATCHED && hashes; i++)
        if (loader->samples_seen[i]) hashes[n++] = loader->samples_seen[i];
    pthread_mutex_unlock(&loader->lock);
}

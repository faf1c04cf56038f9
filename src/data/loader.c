/* SPDX-License-Identifier: Apache-2.0 */
/* data/loader.c - a thread fills batches ahead of the trainer.
 *
 * A ring of depth + 1 slots: the consumer holds one, up to `depth` are ready or being filled. Batch n lies in slot
 * n mod (depth + 1); counts only grow, and only they are shared: a slot belongs to one side at a time.
 */
#include "data/source.h"

#include "base/arena.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct tm_loader {
    const tm_source *source;
    tm_split         split;
    int64_t          batch, seq, first, samples; /* samples: of the split, for validation; INT64_MAX for train */
    int64_t          slots;
    tm_batch        *slot;
    int32_t         *sample; /* (T+1) the thread's own */
    pthread_t        thread;
    pthread_mutex_t  lock;
    pthread_cond_t   filled_more, freed_more;
    int64_t          filled, freed; /* batches since open; guarded by lock */
    bool             closing;       /* guarded by lock */
    tm_error         error;         /* the thread's own until the batch that shows it is handed out */
    int64_t          taken;         /* the consumer's own */
};

/* A row without a target. */
static void fill_empty(const tm_loader *loader, int32_t *tokens, int32_t *targets)
{
    for (int64_t t = 0; t < loader->seq; t++) {
        tokens[t] = 0;
        targets[t] = TM_IGNORED_TARGET;
    }
}

static void fill(tm_loader *loader, int64_t n)
{
    tm_batch *out = &loader->slot[n % loader->slots];
    out->target_tokens = 0;
    for (int64_t row = 0; row < loader->batch; row++) {
        int32_t *tokens = out->tokens + row * loader->seq, *targets = out->targets + row * loader->seq;
        int64_t  index = loader->first + n * loader->batch + row;
        if (index >= loader->samples || loader->error.status != TM_OK ||
            tm_source_row(loader->source, loader->split, index, loader->sample, tokens, targets, &loader->error))
            fill_empty(loader, tokens, targets);
        for (int64_t t = 0; t < loader->seq; t++) out->target_tokens += targets[t] != TM_IGNORED_TARGET;
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
    free(loader->slot[0].tokens);
    free(loader->slot);
    free(loader->sample);
    free(loader);
}

tm_loader *tm_loader_open(const tm_source *source, tm_split split, int64_t batch, int64_t first_sample, int depth)
{
    TM_ASSERT(source && batch >= 1 && first_sample >= 0 && depth >= 1);
    int64_t seq = tm_source_seq(source), slots = depth + 1, size = 0;
    TM_ASSERT(!__builtin_mul_overflow(batch, seq, &size) && !__builtin_mul_overflow(size, 2 * slots, &size) &&
              size < INT64_MAX / (int64_t)sizeof(int32_t));
    tm_loader *loader = tm_alloc(sizeof *loader);
    *loader = (tm_loader){
        .source = source, .split = split, .batch = batch, .seq = seq, .first = first_sample, .slots = slots
    };
    loader->samples = split == TM_SPLIT_TRAIN ? INT64_MAX : tm_source_describe(source)->validation_samples;
    loader->slot = tm_alloc((size_t)slots * sizeof *loader->slot);
    loader->sample = tm_alloc((size_t)(seq + 1) * sizeof *loader->sample);
    int32_t *memory = tm_alloc((size_t)size * sizeof *memory);
    for (int64_t i = 0; i < slots; i++) {
        loader->slot[i].tokens = memory + 2 * i * batch * seq;
        loader->slot[i].targets = memory + (2 * i + 1) * batch * seq;
    }
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled_more, NULL);
    pthread_cond_init(&loader->freed_more, NULL);
    sigset_t all, before; /* signals are the main thread's business */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&loader->thread, NULL, fill_ahead, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
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
    pthread_join(loader->thread, NULL);
    release(loader);
}

void tm_loader_next(tm_loader *loader, tm_batch *out)
{
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

/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/reference.c - losses of the reference of a run that learns from pairs, token by token, kept in the data.
 *
 * The reference of a run is the model that it begins with. Its losses are computed before anything is trained, in rows
 * packed as those of training, by the same kernels: a first step then finds no difference at all. A run that goes on
 * from a checkpoint computes them again, from the same weights, before it reads the checkpoint's: to the same bits.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/parallel/agree.h"
#include "train/run/run_state.h"

#include <stdlib.h>

/* The first n samples of a split, data rank d of D reading the batches number d, d + D, ...: all ranks keep all, since
 * another epoch deals them out anew. Without a thread that reads ahead: the source changes meanwhile. */
static tm_status keep_samples(run *r, const tm_source *source, tm_split split, int64_t n, tm_error *err)
{
    const tm_ranks      *ranks = r->options->ranks;
    const tm_loader_part part = run_part(r->options);
    const bool           held_out = split == TM_SPLIT_VALIDATION;
    const int64_t        rows = held_out ? run_validation_rows(r->options) : r->options->step.micro_batch;
    const int64_t        seq = tm_source_seq(source), round = rows * part.ranks;
    tm_loader           *loader = tm_loader_open_part(source, split, round, part, 0, 0);
    float               *own = tm_alloc((size_t)(rows * seq) * sizeof *own);
    float               *all = tm_alloc((size_t)(round * seq) * sizeof *all);
    tm_status            st = TM_OK;
    for (int64_t at = 0; at < n && st == TM_OK; at += round) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        tm_micro_batch fed = run_micro_batch(&batch);
        st = agree_status(run_world(r), "reading pairs", run_check_batch(&batch, err), err);
        if (st == TM_OK) st = tm_trainer_token_losses(r->trainer, &fed, held_out, own, err);
        if (st == TM_OK)
            st = agree_gather(ranks ? ranks->batch : NULL, "losses of the reference", own,
                              (size_t)(rows * seq) * sizeof *own, all, err);
        for (int64_t i = 0; i < round && at + i < n && st == TM_OK; i++)
            tm_source_keep_reference(source, split, at + i, all + i * seq);
    }
    free(all);
    free(own);
    tm_loader_close(loader);
    return st;
}

tm_status run_reference(run *r, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (!(o->step.preference.beta > 0) || o->reference_free) return TM_OK;
    int64_t begin = tm_now_ns(), train = tm_source_describe(r->source)->train_samples, held_out = 0, most;
    if (o->validate) {
        int64_t samples = tm_source_describe(r->held_out)->validation_samples;
        held_out = run_validation_batches(r) * run_validation_rows(o);
        if (held_out > samples) held_out = samples;
    }
    /* a run of less than an epoch needs no more; the certificate after it reads a micro-batch beyond its end */
    if (r->evaluates_only) train = 0; /* only held-out pairs are looked at */
    if (!__builtin_mul_overflow(o->steps + 1, run_global_batch(o), &most) && most < train) train = most;
    TM_TRY(tm_trainer_weights_hash(r->trainer, &r->certified.reference, err));
    TM_TRY(keep_samples(r, r->source, TM_SPLIT_TRAIN, train, err));
    if (held_out > 0) TM_TRY(keep_samples(r, r->held_out, TM_SPLIT_VALIDATION, held_out, err));
    tm_note("the reference, the model that the run begins with, has read %lld rows of training and %lld of validation "
            "in %.1f s",
            (long long)train, (long long)held_out, (double)(tm_now_ns() - begin) * 1e-9);
    return TM_OK;
}

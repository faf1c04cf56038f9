/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/proof_fixture.h - what is said of the steps of a run that is over. */
#ifndef TM_TESTS_TRAIN_PROOF_FIXTURE_H
#define TM_TESTS_TRAIN_PROOF_FIXTURE_H

#include "support/test.h"
#include "support/training.h"
#include "train/run/run_state.h"

#include <stdio.h>
#include <stdlib.h>

/* What such a run is like. */
typedef struct {
    const char   *device;
    int           batches;                                /* of two samples each, that it has read */
    const double *losses;                                 /* of its steps; NULL: zeros */
    void (*spoil)(tm_trainer *trainer, const void *what); /* behind its step; NULL: nobody */
    const void *what;
    bool        looked; /* found: it was certified behind the last step */
} proof;

/* What is said of steps that went as `like` says, behind one that is real; "": nothing. */
static inline const char *proof_says(const tm_run_options *o, const run *like, proof *p)
{
    static char unreal[TM_REASON_BYTES];
    double      none[60] = { 0 };
    run         r = *like;
    uint64_t    hash;
    tm_source  *source;
    tm_error    err = { 0 };
    r.options = o;
    r.device = test_device_open(p->device, 1);
    if (tm_source_open(&o->source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    r.source = source;
    r.trainer = test_trainer_open(r.device, &o->step, 5);
    r.loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, 2, (tm_loader_part){ .ranks = 1 }, 0, 0);
    for (int i = 0; i < p->batches; i++) {
        tm_batch read;
        tm_loader_next(r.loader, &read);
        if (read.error) fail_msg("%s", read.error->text);
    }
    r.progress.first_step = 1, r.progress.losses = p->losses ? (double *)(uintptr_t)p->losses : none;
    if (run_remember(&r, &err) != TM_OK) fail_msg("%s", err.text);
    test_batch batch = test_batch_random(o->step.micro_batch, o->step.seq, o->step.shape.vocab_size, 5);
    test_step(r.trainer, 1, 1e-2, 1, &batch);
    if (p->spoil) p->spoil(r.trainer, p->what);
    if (run_check_proof(&r, &hash, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(hash == test_weights_hash(r.trainer));
    snprintf(unreal, sizeof unreal, "%s", r.certified.not_training);
    p->looked = r.certified.after.done;
    free(r.certified.hashes);
    test_batch_fini(&batch);
    tm_loader_close(r.loader);
    tm_trainer_close(r.trainer);
    tm_source_close(source);
    tm_device_close(r.device);
    return unreal;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/rank_run.h - a run as one rank of a world of threads has it. */
#ifndef TM_TESTS_TRAIN_RANK_RUN_H
#define TM_TESTS_TRAIN_RANK_RUN_H

#include "support/test.h"

#include "../comm/world.h"
#include "train/run/run.h"

/* Fills the mesh of `o`, and its rank; the caller closes `own`. */
static inline void rank_join(tm_comm *comm, tm_run_options *o, tm_ranks *own)
{
    o->step.layout.rank = tm_comm_rank(comm);
    CHECK_OK(tm_mesh_fill(&o->step.layout.mesh, tm_comm_size(comm), err));
    CHECK_OK(tm_ranks_open(&o->step.layout.mesh, comm, own, err));
    o->ranks = own;
}

/* On this device, which is closed. Rank 0 tells `sink`; `comm` NULL: there is no other rank. `evaluation` NULL: it
 * trains. */
static inline tm_status rank_run(tm_comm *comm, const tm_run_options *options, tm_device *device, tm_sink *sink,
                                 const volatile sig_atomic_t *stop, tm_run_evaluation *evaluation, tm_error *found)
{
    static const volatile sig_atomic_t never = 0;
    tm_run_options                     o = *options;
    tm_ranks                           own;
    tm_source                         *source;
    tm_event_bus bus = { .sinks = (tm_sink *[]){ sink }, .count = !comm || tm_comm_rank(comm) == 0 };
    if (comm) {
        rank_join(comm, &o, &own);
        tm_device_join(device, &own.groups);
    }
    CHECK_OK(tm_source_open(&o.source, &source, err));
    if (!stop) stop = &never;
    *found = (tm_error){ 0 };
    tm_status st = evaluation ? tm_run_evaluate(&o, device, source, stop, evaluation, found)
                              : tm_run(&o, device, source, &bus, stop, found);
    tm_source_close(source);
    tm_device_close(device);
    if (comm) tm_ranks_close(&own);
    return st;
}

#endif

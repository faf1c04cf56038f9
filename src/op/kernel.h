/* SPDX-License-Identifier: Apache-2.0 */
/* op/kernel.h - a kernel is a row: which op, what it is called, why it refuses, what it needs, how it runs.
 *
 * Lists are best first and end with .name == NULL. A kernel is chosen at plan time, never per call; `explain` prints
 * the choice and why better ones refused. All scratch memory comes from the plan: a kernel allocates nothing.
 */
#ifndef TM_OP_KERNEL_H
#define TM_OP_KERNEL_H

#include "base/status.h"
#include "op/op.h"

typedef struct {
    tm_op_id    op;
    const char *name; /* "linear/avx512" */
    /* NULL: can do it; else why not. NULL pointer: takes everything. Sees shapes, formats and attributes, no data. */
    const char *(*refuse)(const tm_call *call);
    /* Bytes of scratch for call->threads threads; NULL: none. */
    size_t (*workspace)(const tm_call *call);
    /* Computes it at once and cannot fail. Same bits for any call->threads. */
    void (*run)(const tm_call *call);
    /* Instead of `run`: puts it into call->queue, or does at once what can fail (talks to other ranks). TM_DEVICE: the
     * device or the group has failed. */
    tm_status (*launch)(const tm_call *call, tm_error *err);
    /* Compiles, packs, asks a library: once for each (op, attributes, shapes, formats), when a plan is loaded into a
     * device; calls that are equal in these share what it stores in *state, which then is call->state. NULL: nothing to
     * prepare. `context`: the device's own (tm_chooser.context). */
    tm_status (*prepare)(const void *context, const tm_call *call, void **state, tm_error *err);
    void (*release)(void *state); /* ends what prepare made, also if it failed then */
    unsigned
         rounds;   /* bit k: takes a float32 in[k] that counts as rounded (tm_call.rounded) and rounds it on the way */
    bool host;     /* its launch does what cannot be kept and played again: it counts, or asks the device */
    bool library;  /* it is a library of the device's maker that computes */
    bool two_rows; /* losses: keeps two rows of logits in the place of one, so half a chunk does for as many rows */
} tm_kernel;

/* Runs a kernel of a device that computes at once. */
TM_MUST_USE static inline tm_status tm_kernel_run(const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    if (kernel->launch) return kernel->launch(call, err);
    kernel->run(call);
    return TM_OK;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/leak_probe.h - a batch of a language with other tokens in it, which tells what the losses of its rows
 * depend on. Private to the room.
 *
 * Every second sample has other tokens at its end, behind a random place of its last quarter. The others have them at
 * their end, too, and in a run before a random place of their middle half; what comes between keeps its tokens and
 * looks back at the run, unless it is of a document that begins later. */
#ifndef TM_TRAIN_CERTIFY_LEAK_PROBE_H
#define TM_TRAIN_CERTIFY_LEAK_PROBE_H

#include "train/trainer/trainer.h"

/* What the loss of a target may do when the tokens are replaced. */
typedef enum {
    TM_PROBE_FREE,  /* what it likes: its own token is another one, or it does not count */
    TM_PROBE_STAYS, /* nothing: it sees no token of its sample that is replaced */
    TM_PROBE_LOOKS  /* it sees tokens that are replaced, and its own is not: of all of these some must change */
} tm_probe_place;

typedef struct {
    bool            possible; /* there are tokens, samples are long enough, and some target must stay */
    bool            context;  /* and some target looks back */
    tm_micro_batch  replaced; /* one micro-batch */
    int64_t         rows;     /* tokens of it */
    int32_t        *tokens;
    tm_probe_place *places; /* (rows) */
} tm_probe;

/* Of the first micro-batch of `batch`, which must outlive the probe. */
void tm_probe_make(const tm_step_options *options, const tm_micro_batch *batch, uint64_t seed, tm_probe *out);
void tm_probe_fini(tm_probe *probe);

/* The first target whose loss was to stay and has not, to the bit (-1: none), and whether any that looks back has
 * changed: losses (rows) with the tokens as they were, and with the others. */
int64_t tm_probe_leak(const tm_probe *probe, const double *before, const double *after);
bool    tm_probe_looks(const tm_probe *probe, const double *before, const double *after);

#endif

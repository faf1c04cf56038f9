/* SPDX-License-Identifier: Apache-2.0 */
/* train/probe.h - a batch of a language in three versions that tell what its loss depends on. Private to the room.
 *
 * In every row only the targets of some places [from, to) count, about three quarters of them. Tokens from `to` on must
 * not be seen by any of them, nor by those of other rows; tokens before `from` must be. */
#ifndef TM_TRAIN_PROBE_H
#define TM_TRAIN_PROBE_H

#include "train/trainer.h"

typedef struct {
    bool possible; /* there are tokens, and rows long enough; else `counted` is the batch itself */
    bool context;  /* a counted target may look back at a replaced token of `earlier`: documents begin anywhere */
    tm_micro_batch counted; /* the batch with fewer targets */
    tm_micro_batch later;   /* and other tokens behind them: the same loss, to the bit */
    tm_micro_batch earlier; /* or before them: another loss */
    int32_t       *memory[3];
} tm_probe;

/* Field arrays that stay as they are belong to `batch`, which must outlive the probe. */
void tm_probe_make(const tm_step_options *options, const tm_micro_batch *batch, uint64_t seed, tm_probe *out);
void tm_probe_fini(tm_probe *probe);

#endif

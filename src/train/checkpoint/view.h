/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/view.h - the tensors of a checkpoint one at a time, without memory for all of them: for whoever
 * wants the weights of a run and no more. */
#ifndef TM_TRAIN_CHECKPOINT_VIEW_H
#define TM_TRAIN_CHECKPOINT_VIEW_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tm_checkpoint_view tm_checkpoint_view;

/* The newest usable checkpoint in `folder` (step -1), or that of `step`. Checksums are left to tm_checkpoint_view_find.
 * TM_INVALID: there is none, and what was wrong with the latest. */
TM_MUST_USE tm_status tm_checkpoint_view_open(const char *folder, int64_t step, tm_checkpoint_view **out,
                                              tm_error *err);
void                  tm_checkpoint_view_close(tm_checkpoint_view *view); /* NULL is fine */

/* From here on a tensor NAME that has a state NAME.`state` ("ema") is that one: of weights, their averages. TM_INVALID:
 * the checkpoint has no such state. `state` outlives the view. */
TM_MUST_USE tm_status tm_checkpoint_view_take(tm_checkpoint_view *view, const char *state, tm_error *err);

/* The number format (tm_dtype) and the bytes of a tensor, whose checksum is compared on the way. TM_INVALID: not there;
 * TM_FORMAT: damaged. */
TM_MUST_USE tm_status tm_checkpoint_view_find(tm_checkpoint_view *view, const char *name, int *dtype, size_t *bytes,
                                              tm_error *err);
/* Bytes [offset, offset + bytes) of a tensor that was found. */
TM_MUST_USE tm_status tm_checkpoint_view_read(tm_checkpoint_view *view, const char *name, size_t offset, void *to,
                                              size_t bytes, tm_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* train/settings/save_list.h - what activation_checkpoint.save_ops keeps (private to train/). */
#ifndef TM_TRAIN_SETTINGS_SAVE_LIST_H
#define TM_TRAIN_SETTINGS_SAVE_LIST_H

#include "config/config.h"
#include "graph/passes/passes.h"

/* "attention, linear:2": names of ops that can be recomputed, each with the n of every n-th (1 unless given), into
 * out->save. TM_INVALID with the names that there are. */
TM_MUST_USE tm_status tm_save_list_read(const tm_config *config, tm_recompute *out, tm_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* train/settings/keys.h - the training.*, optimizer.*, lr_scheduler.*, checkpoint.*, validation.* ... rows and their
 * rules. */
#ifndef TM_TRAIN_SETTINGS_KEYS_H
#define TM_TRAIN_SETTINGS_KEYS_H

#include "comm/mesh/mesh.h"
#include "config/config.h"
#include "train/optimizer/optimizer.h"

/* Registers the rows and the rules. After tm_config_finish training.dtype is never null, training.grad_accumulation is
 * at least 1 and training.global_batch_size is local_batch_size x grad_accumulation x data ranks. */
void tm_train_configure(tm_config *config);
/* The mesh of parallelism.*: of parallelism.ranks ranks, or, in a plan that does not say how many, of as many as the
 * degrees multiply to. TM_INVALID: they do not fit together. */
TM_MUST_USE tm_status tm_train_mesh(const tm_config *config, tm_mesh *out, tm_error *err);
/* optimizer.name. TM_UNSUPPORTED: none of that name is built. */
TM_MUST_USE tm_status tm_train_optimizer(const tm_config *config, const tm_optimizer **out, tm_error *err);
/* parallelism.ranks where nothing gives it: the nodes x devices, or processes, of launch.*. TM_UNSUPPORTED: they are
 * what only a launcher starts, and this process is none of those. */
TM_MUST_USE tm_status tm_train_settle_ranks(tm_config *config, tm_error *err);
/* The rules, for tm_train_configure; and the check of what a run reads (tm_run_options_read). */
tm_status tm_train_rules(tm_config *config, tm_error *err);
tm_status tm_train_check(tm_config *config, tm_error *err);

#endif

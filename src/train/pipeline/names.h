/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/names.h - private to the room: stages of a pipeline by the names of their modules. */
#ifndef TM_TRAIN_PIPELINE_NAMES_H
#define TM_TRAIN_PIPELINE_NAMES_H

#include "model/model.h"

/* parallelism.module_fqns_per_model_part, "tok_embeddings|layers.0,layers.1|norm|output": how many stages there are,
 * and with which block each begins, in *first (stages), in the arena. TM_INVALID: a module that there is not, is in two
 * stages, in none, or in the wrong order; with the names. */
TM_MUST_USE tm_status stage_names_read(const char *text, const char *place, const tm_model_shape *shape,
                                       tm_arena *arena, int *stages, const int **first, tm_error *err);

#endif

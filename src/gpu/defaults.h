/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/defaults.h - environment variables that a maker's training pages export and that its libraries read in this
 * program as well. They are set inside, before the libraries are loaded; a value of the user stays. docs/check.md has
 * the others, and why they are not set.
 *
 * TRAINMARK_GPU_VARIABLES names those that were set here, with commas between them: processes that this one starts know
 * them from the user's.
 */
#ifndef TM_GPU_DEFAULTS_H
#define TM_GPU_DEFAULTS_H

#include "gpu/runtime.h"

typedef struct {
    const char  *name, *value;
    tm_gpu_maker maker;
} tm_gpu_default;

const tm_gpu_default *tm_gpu_defaults(size_t *n);

/* Sets those of a maker that are not set. No other thread may be reading the environment. */
void tm_gpu_defaults_set(tm_gpu_maker maker);
/* Removes what was set here: the library was not there. */
void tm_gpu_defaults_unset(tm_gpu_maker maker);
/* Is this variable's value the one that was set here? */
bool tm_gpu_default_is_ours(const char *name);

#endif

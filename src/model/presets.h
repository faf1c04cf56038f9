/* SPDX-License-Identifier: Apache-2.0 */
/* model/presets.h - the models that are known by name. */
#ifndef TM_MODEL_PRESETS_H
#define TM_MODEL_PRESETS_H

#include <stddef.h>

typedef struct {
    const char        *name;  /* file stem of the public name: "llama3.1_8B" */
    const char *const *pairs; /* "model.dim=4096", NULL-terminated */
    const char        *alias; /* another name for it, or NULL */
} tm_preset;

/* The static table of *n presets. */
const tm_preset *tm_model_presets(size_t *n);

#endif

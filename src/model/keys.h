/* SPDX-License-Identifier: Apache-2.0 */
/* model/keys.h - the model.* rows and the compiled-in presets. */
#ifndef TM_MODEL_KEYS_H
#define TM_MODEL_KEYS_H

#include "config/config.h"

const tm_key *tm_model_keys(size_t *n);
/* Registers the rows and the presets. The presets also set training.* and optimizer.* defaults: those rows must be
 * registered before a preset is applied. */
void tm_model_configure(tm_config *config);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* train/settings/quantize.h - private to the room: the keys of products in low precision, of ours and of other
 * programs. */
#ifndef TM_TRAIN_SETTINGS_QUANTIZE_H
#define TM_TRAIN_SETTINGS_QUANTIZE_H

#include "config/config.h"
#include "graph/passes/quantize.h"

/* model.converters, fp8 and fp4 become quantize.recipe; what they say together must be one thing. */
TM_MUST_USE tm_status train_quantize_settle(tm_config *config, tm_error *err);
/* Of a model of `layers` layers. The lists are kept in the arena of the configuration. */
TM_MUST_USE tm_status train_quantize_read(const tm_config *config, int64_t layers, tm_quantize *out, tm_error *err);
/* Formats of 8 bits become FNUZ's where quantize.fnuz leaves them to the device, all but those of MX. Did any? */
bool train_quantize_take_fnuz(tm_quantize *quantize);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* hf/config_keys.h - members that any config.json may have (private to hf/). */
#ifndef TM_HF_CONFIG_KEYS_H
#define TM_HF_CONFIG_KEYS_H

#include "model/hf.h"

/* Ended by a row without key. */
extern const tm_hf_key tm_hf_common_keys[];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* record/keys.h - the metrics.*, log.* and profiling.* rows. */
#ifndef TM_RECORD_KEYS_H
#define TM_RECORD_KEYS_H

#include "config/config.h"

const tm_key *tm_record_keys(size_t *n);
void          tm_record_configure(tm_config *config);

#endif

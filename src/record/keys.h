/* SPDX-License-Identifier: Apache-2.0 */
/* record/keys.h - the metrics.*, log.* and profiling.* rows. */
#ifndef TM_RECORD_KEYS_H
#define TM_RECORD_KEYS_H

#include "config/config.h"

void tm_record_configure(tm_config *config);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* data/keys.h - the data.* rows, and what the public keys (mock_data, dataset_path) mean for data.source. */
#ifndef TM_DATA_KEYS_H
#define TM_DATA_KEYS_H

#include "config/config.h"

/* Registers the rows and the rule that settles data.source and data.path. */
void tm_data_configure(tm_config *config);

#endif

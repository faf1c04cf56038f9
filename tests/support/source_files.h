/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/source_files.h - small files for every source of data, in the folder of the test (support/folder.h). */
#ifndef TM_TESTS_SOURCE_FILES_H
#define TM_TESTS_SOURCE_FILES_H

#include "data/source.h"

#include <math.h>

enum { TEST_SOURCE_T = 24, TEST_SOURCE_ROWS = 7 }; /* tokens of a packed row; rows, and images */

/* Of the images. */
#define TEST_SOURCE_FLOW                                                                                               \
    {                                                                                                                  \
        .rows = 4, .tokens = 16, .channels = 8, .text_len = 2, .text_dim = 6, .vector_dim = 5,                         \
        .protocol = TM_FLOW_FLUXBENCHMARK, .dropout = (double)NAN, .spread = 0.5                                       \
    }
extern const tm_flow_options test_source_flow;

/* text.txt; rows.jsonl and pairs.jsonl for fine-tuning; train.npy (packed); set.idx and set.bin (indexed); images/ with
 * a.safetensors. */
void test_source_files_write(void);

#endif

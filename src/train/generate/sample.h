/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/sample.h - which token follows. */
#ifndef TM_TRAIN_GENERATE_SAMPLE_H
#define TM_TRAIN_GENERATE_SAMPLE_H

#include <stdint.h>

typedef struct {
    double   temperature; /* 0: the most likely token, of equals the first */
    int64_t  top_k;       /* 0: all */
    double   top_p;       /* in (0, 1] */
    uint64_t seed;
} tm_sampler;

/* Draws from softmax(logits / temperature), cut to the top_k most likely tokens, then to the fewest of them that have
 * the share top_p together. The same seed and position give the same draw. logits (vocab) are overwritten. */
int32_t tm_sample(const tm_sampler *sampler, double *logits, int64_t vocab, int64_t position);

#endif

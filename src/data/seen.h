/* SPDX-License-Identifier: Apache-2.0 */
/* data/seen.h - the certificate of the data: was a run fed what its source defines, each sample once an epoch, and
 * evaluated on samples that are kept from training (docs/certificate.md)?
 *
 * A run keeps a hash of every batch, taken after the step that used it. Afterwards batches are read from the source
 * again, by the sample numbers that the run's place in its data says, and hashed again. */
#ifndef TM_DATA_SEEN_H
#define TM_DATA_SEEN_H

#include "base/event.h"
#include "data/source.h"

/* Batches of equal size, as they were fed: batch i has samples first + i stride .. first + i stride + rows - 1. */
typedef struct {
    const tm_source *source;
    tm_split         split;
    int64_t          first, stride, rows;
    const uint64_t  *hashes; /* (n) tm_seen_hash of each batch */
    int64_t          n;
} tm_seen;

/* Of a batch's fields, in the order of tm_source_fields, (rows, ...) each. */
uint64_t tm_seen_hash(const tm_source *source, void *const *fields, int64_t rows);

/* Reads the first batches of both again, and others as long as that takes less than `seconds`; drawn by `seed`.
 * evaluated->n may be 0. What disagrees is in out->reason, and no error. out->done is false where files cannot be read
 * any more. */
void tm_certify_data(const tm_seen *trained, const tm_seen *evaluated, double seconds, uint64_t seed,
                     tm_data_certificate *out);

#endif

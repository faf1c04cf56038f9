/* SPDX-License-Identifier: Apache-2.0 */
/* data/compressed.c - what a compressor makes of the held-out tokens: how predictable they are to somebody who has not
 * been trained. */
#include "base/arena.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>
#include <zstd.h>

enum { MOST_TOKENS = 1 << 18, LEVEL = 12 };

/* One to four bytes per token, by the largest: repetitions are seen at any width, but narrow tokens cost less. (256,
 * the end of a document, may look like 0.) */
static size_t pack(const int32_t *tokens, int64_t n, uint8_t *out)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i++) largest = tokens[i] > largest ? tokens[i] : largest;
    size_t bytes = largest <= 256 ? 1 : largest < 1 << 16 ? 2 : 4, at = 0;
    for (int64_t i = 0; i < n; i++)
        for (size_t b = 0; b < bytes; b++) out[at++] = (uint8_t)((uint32_t)tokens[i] >> 8 * b);
    return at;
}

double tm_source_compressed(const tm_source *source)
{
    int64_t seq = source->options.seq, rows = source->facts.validation_samples;
    if (source->kind->traits.images || rows <= 0) return (double)NAN;
    if (rows > MOST_TOKENS / seq + 1) rows = MOST_TOKENS / seq + 1;
    void    *fields[TM_MAX_FIELDS];
    int32_t *ids = tm_alloc((size_t)(rows * seq) * sizeof *ids),
            *scratch = tm_alloc((size_t)(seq + 1) * sizeof *scratch);
    int64_t  n = 0;
    tm_error err = { 0 };
    for (int f = 0; f < TM_MAX_FIELDS; f++) fields[f] = tm_alloc((size_t)seq * sizeof(int32_t));
    for (int64_t row = 0, weight; row < rows; row++) {
        if (tm_source_row(source, TM_SPLIT_VALIDATION, row, scratch, fields, &weight, &err) != TM_OK) break;
        const int32_t *targets = fields[1];
        for (int64_t t = 0; t < seq; t++)
            if (targets[t] >= 0) ids[n++] = targets[t];
    }
    uint8_t *plain = tm_alloc((size_t)n * 4 + 1);
    size_t   size = pack(ids, n, plain), room = ZSTD_compressBound(size);
    void    *packed = tm_alloc(room);
    size_t   code = ZSTD_compress(packed, room, plain, size, LEVEL);
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(fields[f]);
    free(ids);
    free(scratch);
    free(plain);
    free(packed);
    return n == 0 || ZSTD_isError(code) ? (double)NAN : (double)code * 8 * log(2) / (double)n;
}

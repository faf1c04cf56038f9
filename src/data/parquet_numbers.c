/* SPDX-License-Identifier: Apache-2.0 */
#include "data/parquet_numbers.h"

#include <stddef.h>

static bool run_varint(tm_parquet_runs *r, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

bool tm_parquet_number(tm_parquet_runs *r, uint32_t *out)
{
    while (r->repeat == 0 && r->packed == 0) {
        uint64_t head;
        if (!run_varint(r, &head)) return false;
        if (head & 1) {
            r->packed = head >> 1 > UINT32_MAX ? 0 : (head >> 1) * 8;
            r->bit = 0;
            continue;
        }
        r->repeat = head >> 1;
        r->number = 0;
        for (unsigned i = 0; i < (r->width + 7) / 8; i++) {
            if (r->at == r->end) return false;
            r->number |= (uint32_t)*r->at++ << 8 * i;
        }
    }
    if (r->repeat > 0) {
        r->repeat--;
        *out = r->number;
        return true;
    }
    r->packed--;
    uint32_t number = 0;
    for (unsigned i = 0; i < r->width; i++) {
        if (r->at == r->end) return false;
        number |= (uint32_t)(*r->at >> r->bit & 1) << i;
        if (++r->bit == 8) r->bit = 0, r->at++;
    }
    *out = number;
    return true;
}

/* DELTA_BINARY_PACKED: size of blocks, miniblocks in one, how many numbers, the first; then blocks of a least
 * difference, the widths of its miniblocks, and what is above the least. */
bool tm_parquet_deltas(const uint8_t **at, const uint8_t *end, int64_t wanted, int64_t *out)
{
    tm_parquet_runs r = { .at = *at, .end = end };
    uint64_t        block, minis, count, raw;
    if (!run_varint(&r, &block) || !run_varint(&r, &minis) || !run_varint(&r, &count) || !run_varint(&r, &raw))
        return false;
    if (minis == 0 || minis > 256 || block == 0 || block > 1 << 20 || block % minis || (int64_t)count != wanted)
        return false;
    uint64_t last = (raw >> 1) ^ (0 - (raw & 1));
    int64_t  n = 0;
    if (wanted > 0) out[n++] = (int64_t)last;
    while (n < wanted) {
        if (!run_varint(&r, &raw) || (uint64_t)(r.end - r.at) < minis) return false;
        uint64_t       least = (raw >> 1) ^ (0 - (raw & 1));
        const uint8_t *widths = r.at;
        r.at += minis;
        for (uint64_t m = 0; m < minis && n < wanted; m++) {
            uint64_t values = block / minis;
            if (widths[m] > 64 || (uint64_t)(r.end - r.at) < (values * widths[m] + 7) / 8) return false;
            for (uint64_t v = 0, bit = 0; v < values; v++) {
                uint64_t number = 0;
                for (unsigned i = 0; i < widths[m]; i++, bit++) number |= (uint64_t)(r.at[bit / 8] >> bit % 8 & 1) << i;
                last += least + number;
                if (n < wanted) out[n++] = (int64_t)last;
            }
            r.at += (values * widths[m] + 7) / 8;
        }
    }
    *at = r.at;
    return true;
}

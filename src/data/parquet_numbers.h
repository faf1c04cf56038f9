/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet_numbers.h - the packed numbers of parquet's pages: levels, places in dictionaries, lengths; private to
 * this room. */
#ifndef TM_DATA_PARQUET_NUMBERS_H
#define TM_DATA_PARQUET_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Runs of one number, or of numbers packed bit by bit. */
typedef struct {
    const uint8_t *at, *end;
    unsigned       width;          /* bits of a number, at most 32 */
    uint64_t       repeat, packed; /* left of either */
    uint32_t       number;
    unsigned       bit;
} tm_parquet_runs;

/* false: they end here. */
bool tm_parquet_number(tm_parquet_runs *runs, uint32_t *out);

/* DELTA_BINARY_PACKED: `wanted` numbers; *at moves behind them. false: there are not as many, or they are cut short. */
bool tm_parquet_deltas(const uint8_t **at, const uint8_t *end, int64_t wanted, int64_t *out);

#endif

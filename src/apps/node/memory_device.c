/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/memory_device.c - the memory of a GPU, through the calls of any device: written, copied, read. */
#include "apps/node/memory.h"
#include "apps/node/memory_words.h"

#include "base/arena.h"
#include "base/clock.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 << 20, WORDS = BLOCK / 8, MOST_BLOCKS = 8192, UNKNOWN_BLOCKS = 4, ROUNDS = 8, COPIES = 4, TOLD = 3 };

typedef struct {
    const tm_node_place *place;
    tm_address           blocks[MOST_BLOCKS];
    size_t               n;
    uint64_t             seed, *words; /* one block, in the host's memory */
    int64_t              end_ns;
    size_t               bad, told;
} bench;

/* As many blocks as there are, but a tenth. What the device refuses is no error: others may have memory there. */
static void take(bench *b)
{
    const tm_device_info *info = tm_device_describe(b->place->device);
    size_t most = info->memory_bytes > 0 ? (size_t)(0.9 * (double)info->memory_bytes) / BLOCK : (size_t)UNKNOWN_BLOCKS;
    tm_error ignored = { 0 };
    while (b->n < most && b->n < MOST_BLOCKS &&
           tm_device_alloc(b->place->device, BLOCK, &b->blocks[b->n], &ignored) == TM_OK)
        b->n++;
}

static uint64_t seed_of(const bench *b, size_t block)
{
    return b->seed + ((uint64_t)block << 32);
}

static tm_status write_block(bench *b, size_t block, int pattern, tm_error *err)
{
    tm_memory_fill(b->words, WORDS, pattern, seed_of(b, block));
    TM_TRY(tm_device_write(b->place->device, b->blocks[block], b->words, BLOCK, err));
    return tm_device_wait(b->place->device, err);
}

/* `at` must hold what was written as block `as`. */
static tm_status check_block(bench *b, size_t at, size_t as, int pattern, tm_node_outcome *out, tm_error *err)
{
    size_t first = 0;
    memset(b->words, 0, BLOCK);
    TM_TRY(tm_device_read(b->place->device, b->words, b->blocks[at], BLOCK, err));
    TM_TRY(tm_device_wait(b->place->device, err));
    size_t bad = tm_memory_check(b->words, WORDS, pattern, seed_of(b, as), &first);
    b->bad += bad;
    if (bad > 0 && b->told++ < TOLD)
        tm_node_find(
            out, -1, b->place->name,
            "%zu words of its memory are wrong, the first at byte %zu of 64 MiB block %zu%s: 0x%016llx is read "
            "where 0x%016llx was written",
            bad, 8 * first, at, at == as ? "" : ", a copy", (unsigned long long)b->words[first],
            (unsigned long long)tm_memory_word(first, pattern, seed_of(b, as)));
    return TM_OK;
}

/* All blocks are written before the first is read; as far as time permits, at least one. Returns the blocks in *done.
 */
static tm_status try_pattern(bench *b, int pattern, size_t *done, tm_node_outcome *out, tm_error *err)
{
    const int64_t begun = tm_now_ns();
    size_t        n = 0;
    for (; n < b->n && (n == 0 || tm_now_ns() < begun + (b->end_ns - begun) / 2); n++)
        TM_TRY(write_block(b, n, pattern, err));
    for (size_t i = 0; i < n; i++) TM_TRY(check_block(b, i, i, pattern, out, err));
    *done = n;
    return TM_OK;
}

/* Copies within the device, read back once. */
static tm_status copy(bench *b, tm_node_outcome *out, tm_error *err)
{
    double rates[ROUNDS];
    if (b->n < 2) return TM_OK;
    TM_TRY(write_block(b, 0, TM_MEMORY_HASH, err));
    for (int r = 0; r < ROUNDS; r++) {
        int64_t begun = tm_now_ns();
        for (int i = 0; i < COPIES; i++)
            TM_TRY(tm_device_copy(b->place->device, b->blocks[1 + (size_t)(r * COPIES + i) % (b->n - 1)], b->blocks[0],
                                  BLOCK, err));
        TM_TRY(tm_device_wait(b->place->device, err));
        rates[r] = 2.0 * COPIES * BLOCK / (double)(tm_now_ns() - begun);
    }
    TM_TRY(check_block(b, 1, 0, TM_MEMORY_HASH, out, err));
    tm_interval    interval = tm_stats_median_interval(rates, ROUNDS);
    tm_node_figure f = { .name = "device memory copied",
                         .unit = "GB/s",
                         .sense = TM_NODE_SPEED,
                         .value = tm_stats_median(rates, ROUNDS),
                         .low = interval.lo,
                         .high = interval.hi };
    const double   first = tm_stats_median(rates, ROUNDS / 2), second = tm_stats_median(rates + ROUNDS / 2, ROUNDS / 2);
    snprintf(f.place, sizeof f.place, "%s", b->place->name);
    f.floor = fmax(0.02, fabs(first - second) / f.value);
    tm_node_figure_add(out, &f);
    return TM_OK;
}

static tm_status check_device(bench *b, double *covered, tm_node_outcome *out, tm_error *err)
{
    size_t done;
    if (b->n == 0) return tm_fail(err, TM_UNSUPPORTED, "%s has no 64 MiB of memory left", b->place->name);
    TM_TRY(copy(b, out, err));
    for (int pattern = 0; pattern < TM_MEMORY_PATTERNS && (pattern < 2 || tm_now_ns() < b->end_ns); pattern++) {
        TM_TRY(try_pattern(b, pattern, &done, out, err));
        if ((double)done * BLOCK > *covered) *covered = (double)done * BLOCK;
    }
    return TM_OK;
}

tm_status tm_node_device_memory(const tm_node_place *place, double seconds, uint64_t seed, tm_node_outcome *out,
                                double *covered, tm_error *err)
{
    bench *b = tm_alloc(sizeof *b);
    *b = (bench){ .place = place, .seed = seed, .end_ns = tm_now_ns() + (int64_t)(seconds * 1e9) };
    *covered = 0;
    b->words = tm_alloc(BLOCK);
    take(b);
    tm_status st = check_device(b, covered, out, err);
    for (size_t i = 0; i < b->n; i++) tm_device_release(place->device, b->blocks[i], BLOCK);
    free(b->words);
    free(b);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* data/first_fit.c - the room of rows is kept in a tree of maxima: the first row with room is found by going down. */
#include "data/first_fit.h"

#include "base/arena.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Samples by length, the longest first: counted, not compared. */
static int64_t *by_length(const int32_t *lengths, int64_t n, int64_t width)
{
    int64_t *order = tm_alloc((size_t)(n + 1) * sizeof *order), *at = tm_alloc((size_t)(width + 2) * sizeof *at);
    memset(at, 0, (size_t)(width + 2) * sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        TM_ASSERT(lengths[i] >= 1 && lengths[i] <= width);
        at[width - lengths[i] + 1]++;
    }
    for (int64_t k = 1; k <= width + 1; k++) at[k] += at[k - 1];
    for (int64_t i = 0; i < n; i++) order[at[width - lengths[i]]++] = i;
    free(at);
    return order;
}

/* The first of `leaves` rows with that much room; one has it. */
static int64_t first_with(const int64_t *room, int64_t leaves, int64_t wanted)
{
    int64_t node = 1;
    while (node < leaves) node = room[2 * node] >= wanted ? 2 * node : 2 * node + 1;
    return node - leaves;
}

static void take(int64_t *room, int64_t leaves, int64_t row, int64_t n)
{
    int64_t node = leaves + row;
    room[node] -= n;
    while (node /= 2) room[node] = room[2 * node] > room[2 * node + 1] ? room[2 * node] : room[2 * node + 1];
}

/* Row of each sample, counted into first[row + 1]. */
static void place(const int32_t *lengths, const int64_t *order, int64_t n, tm_first_fit *out, int64_t *row)
{
    int64_t leaves = 1;
    while (leaves < n) leaves *= 2;
    int64_t *room = tm_alloc((size_t)(2 * leaves) * sizeof *room);
    for (int64_t i = 0; i < 2 * leaves; i++) room[i] = out->width;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = order[k], r = first_with(room, leaves, lengths[i]);
        take(room, leaves, r, lengths[i]);
        row[i] = r;
        out->first[r + 1]++;
        if (r >= out->rows) out->rows = r + 1;
    }
    free(room);
}

tm_first_fit tm_first_fit_make(const int32_t *lengths, int64_t n, int64_t width)
{
    tm_first_fit out = { .width = width };
    int64_t     *order = by_length(lengths, n, width), *row = tm_alloc((size_t)(n + 1) * sizeof *row);
    out.first = tm_alloc((size_t)(n + 2) * sizeof *out.first);
    out.samples = tm_alloc((size_t)(n + 1) * sizeof *out.samples);
    memset(out.first, 0, (size_t)(n + 2) * sizeof *out.first);
    place(lengths, order, n, &out, row);
    for (int64_t r = 0; r < out.rows; r++) out.first[r + 1] += out.first[r];
    int64_t *at = tm_alloc((size_t)(out.rows + 1) * sizeof *at);
    memcpy(at, out.first, (size_t)(out.rows + 1) * sizeof *at);
    for (int64_t k = 0; k < n; k++) out.samples[at[row[order[k]]]++] = order[k];
    free(at);
    free(order);
    free(row);
    return out;
}

tm_first_fit tm_first_fit_apart(int64_t n, int64_t width)
{
    tm_first_fit out = { .rows = n, .width = width };
    out.first = tm_alloc((size_t)(n + 1) * sizeof *out.first);
    out.samples = tm_alloc((size_t)(n + 1) * sizeof *out.samples);
    for (int64_t i = 0; i <= n; i++) out.first[i] = out.samples[i] = i;
    return out;
}

void tm_first_fit_free(tm_first_fit *packing)
{
    free(packing->first);
    free(packing->samples);
    *packing = (tm_first_fit){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/* graph/place.c - see place.h.
 *
 * Dynamic storage allocation is NP-hard; first-fit in a good order is nearly always within 2 % for training steps,
 * whose buffers nest (kept activations) or are short (everything else). Orders tried: by lifetime, by size, by area, by
 * time. If none comes within 1 % of the lower bound, the buffers that stick out at the top are moved to the front of
 * the best order and placed again, a fixed number of times. The first order is always placed, in O(n log n); the others
 * and the repairs end when the work is used up, which takes more than 10,000 buffers.
 */
#include "graph/place.h"

#include "base/arena.h"
#include "base/status.h"
#include "graph/occupancy.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t  bytes, offset;
    int32_t first, last;
    int32_t item;
    double  key;
} entry;

static void add_lives(size_t *delta, const tm_interval *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        delta[items[i].first] += items[i].bytes;
        delta[items[i].last + 1] -= items[i].bytes;
    }
}

size_t tm_place_bound_beside(const tm_lenders *lenders, const tm_interval *items, size_t n, int32_t n_instructions)
{
    size_t *delta = tm_alloc(((size_t)n_instructions + 1) * sizeof *delta); /* wraps around, sums are right */
    add_lives(delta, items, n);
    add_lives(delta, lenders->items, lenders->n);
    size_t live = 0, most = lenders->bytes;
    for (int32_t x = 0; x < n_instructions; x++) {
        live += delta[x];
        if (live > most) most = live;
    }
    free(delta);
    return most;
}

size_t tm_place_lower_bound(const tm_interval *items, size_t n, int32_t n_instructions)
{
    return tm_place_bound_beside(&(tm_lenders){ 0 }, items, n, n_instructions);
}

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->key > y->key) return -1;
    if (x->key < y->key) return 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Places the entries in array order at the lowest offset that is free during their lifetime. Gives up (returns
 * SIZE_MAX) above `limit`. */
static size_t first_fit(tm_occupancy *occupancy, const tm_lenders *lenders, entry *entries, size_t n, size_t limit)
{
    size_t top = lenders->bytes;
    tm_occupancy_clear(occupancy);
    for (size_t i = 0; i < lenders->n; i++) {
        const tm_interval *own = &lenders->items[i];
        tm_occupancy_take(occupancy, own->first, own->last, own->offset, own->offset + own->bytes);
    }
    for (size_t i = 0; i < n; i++) {
        entry *e = &entries[i];
        e->offset = tm_occupancy_lowest(occupancy, e->first, e->last, e->bytes);
        size_t end = e->offset + e->bytes;
        if (end > limit) return SIZE_MAX;
        if (end > top) top = end;
        tm_occupancy_take(occupancy, e->first, e->last, e->offset, end);
    }
    return top;
}

enum { ORDERS = 5, REPAIRS = 60, MOST_WORK = 200 * 1000 * 1000 /* blocks looked at: about a second */ };

static double order_key(const tm_interval *item, int order)
{
    double bytes = (double)item->bytes, life = (double)(item->last - item->first + 1);
    switch (order) {
    case 0:
        return life;
    case 1:
        return bytes;
    case 2:
        return bytes * life;
    case 3:
        return -(double)item->first;
    default:
        return (double)item->last;
    }
}

static void keep(tm_interval *items, const entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) items[entries[i].item].offset = entries[i].offset;
}

/* Moves the entries that reach above `bound` to the front. */
static void promote(entry *entries, size_t n, size_t bound)
{
    for (size_t i = 0; i < n; i++)
        entries[i].key = (double)(n - i) + (entries[i].offset + entries[i].bytes > bound ? (double)n : 0);
    qsort(entries, n, sizeof *entries, by_key);
}

static bool goes_on(const tm_occupancy *occupancy, size_t best, size_t good)
{
    return best > good && tm_occupancy_work(occupancy) < MOST_WORK;
}

size_t tm_place_intervals(tm_interval *items, size_t n, int32_t n_instructions)
{
    return tm_place_beside(&(tm_lenders){ 0 }, items, n, n_instructions);
}

size_t tm_place_beside(const tm_lenders *lenders, tm_interval *items, size_t n, int32_t n_instructions)
{
    if (n == 0) return lenders->bytes;
    size_t bound = tm_place_bound_beside(lenders, items, n, n_instructions), good = bound + bound / 100,
           best = SIZE_MAX;
    entry        *entries = tm_alloc(n * sizeof *entries), *best_order = tm_alloc(n * sizeof *entries);
    tm_occupancy *occupancy = tm_occupancy_create(n_instructions);
    for (int order = 0; order < ORDERS && goes_on(occupancy, best, good); order++) {
        for (size_t i = 0; i < n; i++)
            entries[i] = (entry){ .bytes = items[i].bytes,
                                  .first = items[i].first,
                                  .last = items[i].last,
                                  .item = (int32_t)i,
                                  .key = order_key(&items[i], order) };
        qsort(entries, n, sizeof *entries, by_key);
        size_t top = first_fit(occupancy, lenders, entries, n, best - 1);
        if (top >= best) continue;
        best = top;
        keep(items, entries, n);
        memcpy(best_order, entries, n * sizeof *entries);
    }
    memcpy(entries, best_order, n * sizeof *entries);
    for (int repair = 0; repair < REPAIRS && goes_on(occupancy, best, good); repair++) {
        promote(entries, n, bound);
        size_t top = first_fit(occupancy, lenders, entries, n, SIZE_MAX / 2);
        if (top >= best) continue;
        best = top;
        keep(items, entries, n);
    }
    tm_occupancy_destroy(occupancy);
    free(best_order);
    free(entries);
    TM_ASSERT(best != SIZE_MAX && best >= bound);
    return best;
}

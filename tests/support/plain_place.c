/* SPDX-License-Identifier: Apache-2.0 */
#include "support/plain_place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t  bytes, offset;
    int32_t first, last;
    int32_t item;
    double  key;
} entry;

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->key > y->key) return -1;
    if (x->key < y->key) return 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Places the entries in array order at the lowest offset that is free during their lifetime. `placed` is kept sorted by
 * offset. Gives up (returns SIZE_MAX) above `limit`. */
static size_t first_fit(entry *entries, size_t n, entry **placed, size_t limit)
{
    size_t count = 0, top = 0;
    for (size_t i = 0; i < n; i++) {
        entry *e = &entries[i];
        size_t at = 0;
        for (size_t j = 0; j < count; j++) {
            const entry *p = placed[j];
            if (p->first > e->last || p->last < e->first) continue;
            if (p->offset >= at + e->bytes) break;
            if (p->offset + p->bytes > at) at = p->offset + p->bytes;
        }
        if (at + e->bytes > limit) return SIZE_MAX;
        e->offset = at;
        if (at + e->bytes > top) top = at + e->bytes;
        size_t lo = 0, hi = count;
        while (lo < hi) {
            size_t middle = (lo + hi) / 2;
            if (placed[middle]->offset <= at)
                lo = middle + 1;
            else
                hi = middle;
        }
        memmove(placed + lo + 1, placed + lo, (count - lo) * sizeof *placed);
        placed[lo] = e;
        count++;
    }
    return top;
}

enum { ORDERS = 5, REPAIRS = 60 };

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

size_t plain_place(tm_interval *items, size_t n, int32_t n_instructions)
{
    if (n == 0) return 0;
    size_t  bound = tm_place_lower_bound(items, n, n_instructions), good = bound + bound / 100, best = SIZE_MAX;
    entry  *entries = calloc(n, sizeof *entries), *best_order = calloc(n, sizeof *best_order);
    entry **placed = calloc(n, sizeof *placed);
    assert(entries && best_order && placed);
    for (int order = 0; order < ORDERS && best > good; order++) {
        for (size_t i = 0; i < n; i++)
            entries[i] = (entry){ .bytes = items[i].bytes,
                                  .first = items[i].first,
                                  .last = items[i].last,
                                  .item = (int32_t)i,
                                  .key = order_key(&items[i], order) };
        qsort(entries, n, sizeof *entries, by_key);
        size_t top = first_fit(entries, n, placed, best - 1);
        if (top >= best) continue;
        best = top;
        keep(items, entries, n);
        memcpy(best_order, entries, n * sizeof *entries);
    }
    memcpy(entries, best_order, n * sizeof *entries);
    for (int repair = 0; repair < REPAIRS && best > good; repair++) {
        promote(entries, n, bound);
        size_t top = first_fit(entries, n, placed, SIZE_MAX / 2);
        if (top >= best) continue;
        best = top;
        keep(items, entries, n);
    }
    free(placed);
    free(best_order);
    free(entries);
    assert(best != SIZE_MAX);
    return best;
}

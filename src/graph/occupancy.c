/* SPDX-License-Identifier: Apache-2.0 */
/* graph/occupancy.c - see occupancy.h.
 *
 * Nodes are numbered as in a heap: 1 spans all instructions, 2 v and 2 v + 1 the halves of v, leaves + x instruction x.
 * A lifetime splits into its largest nodes, two at most of a level; those `cover` lists know it, and the `begun` lists
 * of what lies above its first instruction. Whoever shares an instruction with [first, last] either lives at `first`,
 * and is in the `cover` list of one node above it, or begins in first + 1 .. last, and is in the `begun` list of one of
 * the nodes that these split into.
 *
 * A list that grows longer than MOST_BLOCKS gives up its smallest hole, which then counts as taken. So the work for a
 * buffer is O(log instructions) whatever the lifetimes are; steps of transformers get by with 7 blocks.
 */
#include "graph/occupancy.h"

#include "base/arena.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t from, to;
} block;

typedef struct {
    block   *blocks; /* ascending, with free bytes between any two */
    uint32_t count, capacity;
} taken;

typedef struct {
    const taken *set;
    size_t       next; /* the blocks before it end at or below the offset in question */
} cursor;

enum { MOST_BLOCKS = 128, LEVELS = 32, CURSORS = 3 * LEVELS, WORK_OF_ADDING = 8 };

struct tm_occupancy {
    size_t   leaves;        /* a power of two */
    taken   *cover, *begun; /* (2 leaves) */
    uint64_t work;
};

tm_occupancy *tm_occupancy_create(int32_t n_instructions)
{
    tm_occupancy *o = tm_alloc(sizeof *o);
    o->leaves = 1;
    while (o->leaves < (size_t)n_instructions) o->leaves *= 2;
    o->cover = tm_alloc(2 * o->leaves * sizeof *o->cover);
    o->begun = tm_alloc(2 * o->leaves * sizeof *o->begun);
    return o;
}

void tm_occupancy_destroy(tm_occupancy *o)
{
    if (!o) return;
    for (size_t v = 0; v < 2 * o->leaves; v++) {
        free(o->cover[v].blocks);
        free(o->begun[v].blocks);
    }
    free(o->cover);
    free(o->begun);
    free(o);
}

void tm_occupancy_clear(tm_occupancy *o)
{
    for (size_t v = 0; v < 2 * o->leaves; v++) o->cover[v].count = o->begun[v].count = 0;
}

uint64_t tm_occupancy_work(const tm_occupancy *o)
{
    return o->work;
}

/* The first block from number `lo` on that ends above `at`. */
static size_t first_above(const taken *set, size_t lo, size_t at)
{
    size_t hi = set->count;
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (set->blocks[middle].to <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* Gives up the smallest hole of a list: the two blocks around it become one. */
static void forget_a_hole(taken *set)
{
    size_t at = 1, least = SIZE_MAX;
    for (size_t i = 1; i < set->count; i++) {
        size_t hole = set->blocks[i].from - set->blocks[i - 1].to;
        if (hole < least) least = hole, at = i;
    }
    set->blocks[at - 1].to = set->blocks[at].to;
    set->count--;
    memmove(set->blocks + at, set->blocks + at + 1, (set->count - at) * sizeof *set->blocks);
}

static void add(tm_occupancy *o, taken *set, size_t from, size_t to)
{
    size_t lo = from > 0 ? first_above(set, 0, from - 1) : 0, hi = lo; /* lo .. hi - 1 touch the new block */
    for (; hi < set->count && set->blocks[hi].from <= to; hi++) {
        if (set->blocks[hi].from < from) from = set->blocks[hi].from;
        if (set->blocks[hi].to > to) to = set->blocks[hi].to;
    }
    o->work += WORK_OF_ADDING;
    if (lo == hi && set->count == set->capacity) {
        set->capacity = set->capacity ? 2 * set->capacity : 2;
        set->blocks = tm_realloc(set->blocks, set->capacity * sizeof *set->blocks);
    }
    memmove(set->blocks + lo + 1, set->blocks + hi, (set->count - hi) * sizeof *set->blocks);
    set->blocks[lo] = (block){ from, to };
    set->count = (uint32_t)(set->count + 1 - (hi - lo));
    if (set->count > MOST_BLOCKS) forget_a_hole(set);
}

/* The nodes that first .. last splits into; none if last < first. */
static size_t split(const tm_occupancy *o, int32_t first, int32_t last, size_t nodes[2 * LEVELS])
{
    size_t n = 0;
    for (size_t a = o->leaves + (size_t)first, b = o->leaves + (size_t)last + 1; a < b; a /= 2, b /= 2) {
        if (a & 1) nodes[n++] = a++;
        if (b & 1) nodes[n++] = --b;
    }
    return n;
}

void tm_occupancy_take(tm_occupancy *o, int32_t first, int32_t last, size_t from, size_t to)
{
    if (from == to) return;
    size_t nodes[2 * LEVELS], n = split(o, first, last, nodes);
    for (size_t i = 0; i < n; i++) add(o, &o->cover[nodes[i]], from, to);
    for (size_t v = o->leaves + (size_t)first; v > 0; v /= 2) add(o, &o->begun[v], from, to);
}

static size_t append(cursor *sets, size_t n, const taken *set)
{
    if (set->count) sets[n++] = (cursor){ .set = set };
    return n;
}

/* Whoever shares an instruction with first .. last is in one of these; the longest lives come first: they lie lowest in
 * the order that is tried first. */
static size_t meeting(const tm_occupancy *o, int32_t first, int32_t last, cursor sets[CURSORS])
{
    size_t nodes[2 * LEVELS], n_nodes = split(o, first + 1, last, nodes), n = 0;
    for (size_t span = o->leaves; span > 0; span /= 2)
        n = append(sets, n, &o->cover[(o->leaves + (size_t)first) / span]);
    while (n_nodes > 0) n = append(sets, n, &o->begun[nodes[--n_nodes]]);
    return n;
}

size_t tm_occupancy_lowest(tm_occupancy *o, int32_t first, int32_t last, size_t bytes)
{
    cursor sets[CURSORS];
    size_t n = meeting(o, first, last, sets), at = 0, agreed = 0; /* sets in a row that are free here */
    for (size_t i = 0; agreed < n; i = i + 1 < n ? i + 1 : 0) {
        cursor *c = &sets[i];
        agreed++;
        o->work++;
        for (; c->next < c->set->count; c->next++) {
            const block *b = &c->set->blocks[c->next];
            o->work++;
            if (b->to <= at) continue;
            if (b->from >= at + bytes) break;
            at = b->to;
            agreed = 1;
        }
    }
    return at;
}

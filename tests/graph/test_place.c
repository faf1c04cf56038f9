/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of buffers with known lifetimes: checked against brute force and against its own plainest form on random
 * sets, and on sets of 200,000. */

#include "support/test.h"

#include "base/random.h"
#include "graph/place.h"
#include "support/plain_place.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETS = 400, MOST = 120 };

static bool meet(const tm_interval *a, const tm_interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static size_t brute_lower_bound(const tm_interval *items, size_t n, int32_t instructions)
{
    size_t most = 0;
    for (int32_t x = 0; x < instructions; x++) {
        size_t live = 0;
        for (size_t i = 0; i < n; i++)
            if (items[i].first <= x && x <= items[i].last) live += items[i].bytes;
        if (live > most) most = live;
    }
    return most;
}

/* No two buffers that live at the same time share a byte; none ends above `top`, one ends there. */
static void check_placement(const tm_interval *items, size_t n, size_t top, uint64_t set)
{
    size_t reached = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = items[i].offset + items[i].bytes;
        if (end > reached) reached = end;
        for (size_t j = i + 1; j < n; j++)
            if (meet(&items[i], &items[j]) && items[i].offset < items[j].offset + items[j].bytes &&
                items[j].offset < end)
                fail_msg("set %llu: buffers %zu and %zu overlap", (unsigned long long)set, i, j);
    }
    if (reached != top)
        fail_msg("set %llu: the highest end is %zu, %zu was returned", (unsigned long long)set, reached, top);
}

/* Shape 0: anything; 1: nested like kept activations; 2: short lives; 3: all at once; 4: no two at once. */
static size_t random_set(uint64_t set, tm_interval *items, int32_t *instructions)
{
    size_t n = 1 + tm_random_below(1, set, 0, MOST);
    int    shape = (int)(set % 5);
    *instructions = shape == 1   ? 2 * (int32_t)n
                    : shape == 4 ? (int32_t)n
                                 : 1 + (int32_t)tm_random_below(1, set, 1, 200);
    for (size_t i = 0; i < n; i++) {
        int32_t a = (int32_t)tm_random_below(2, set, i, (uint64_t)*instructions),
                b = (int32_t)tm_random_below(3, set, i, (uint64_t)*instructions);
        if (shape == 2) b = a + b % 3 < *instructions ? a + b % 3 : a;
        items[i] = (tm_interval){ .bytes = 64 * (1 + tm_random_below(4, set, i, 1u << tm_random_below(5, set, i, 16))),
                                  .first = a < b ? a : b,
                                  .last = a < b ? b : a,
                                  .offset = SIZE_MAX / 4 };
        if (shape == 1) items[i].first = (int32_t)i, items[i].last = *instructions - 1 - (int32_t)i;
        if (shape == 3) items[i].first = 0, items[i].last = *instructions - 1;
        if (shape == 4) items[i].first = items[i].last = (int32_t)i;
    }
    return n;
}

TEST(live_buffers_never_overlap)
{
    for (uint64_t set = 0; set < SETS; set++) {
        tm_interval items[MOST], again[MOST];
        int32_t     instructions;
        size_t      n = random_set(set, items, &instructions);
        memcpy(again, items, sizeof items);
        size_t bound = tm_place_lower_bound(items, n, instructions), top = tm_place_intervals(items, n, instructions);
        assert_true(bound == brute_lower_bound(items, n, instructions));
        assert_true(top >= bound);
        check_placement(items, n, top, set);
        assert_true(tm_place_intervals(again, n, instructions) == top);
        assert_memory_equal(items, again, n * sizeof *items);
    }
}

/* As long as no list of taken blocks gets too long, the fast form gives what the plain one gives, to the byte. */
TEST(places_are_those_of_the_plain_form)
{
    for (uint64_t set = 0; set < SETS; set++) {
        tm_interval items[MOST], plain[MOST];
        int32_t     instructions;
        size_t      n = random_set(set, items, &instructions);
        memcpy(plain, items, sizeof items);
        size_t top = tm_place_intervals(items, n, instructions), expected = plain_place(plain, n, instructions);
        if (top != expected)
            fail_msg("set %llu: %zu bytes, the plain form needs %zu", (unsigned long long)set, top, expected);
        assert_memory_equal(items, plain, n * sizeof *items);
    }
}

/* --- large sets --------------------------------------------------------------------------------------------------- */

static double thread_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const tm_interval *sorted_items;

static int by_first(const void *a, const void *b)
{
    const tm_interval *x = &sorted_items[*(const int32_t *)a], *y = &sorted_items[*(const int32_t *)b];
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_last(const void *a, const void *b)
{
    const tm_interval *x = &sorted_items[*(const int32_t *)a], *y = &sorted_items[*(const int32_t *)b];
    return x->last < y->last ? -1 : x->last > y->last;
}

/* Number of buffers in `live`, which ascends by offset, that lie below `offset`. */
static size_t below(const tm_interval *items, const int32_t *live, size_t n_live, size_t offset)
{
    size_t lo = 0, hi = n_live;
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (items[live[middle]].offset < offset)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* As check_placement, instruction by instruction: a buffer that begins meets its neighbours in memory only. */
static void check_large_placement(const tm_interval *items, size_t n, size_t top, const char *name)
{
    int32_t *begin = malloc(3 * n * sizeof *begin), *end = begin + n, *live = end + n;
    size_t   n_live = 0, ended = 0, reached = 0;
    assert_non_null(begin);
    for (size_t i = 0; i < n; i++) begin[i] = end[i] = (int32_t)i;
    sorted_items = items;
    qsort(begin, n, sizeof *begin, by_first);
    qsort(end, n, sizeof *end, by_last);
    for (size_t i = 0; i < n; i++) {
        const tm_interval *item = &items[begin[i]];
        for (; items[end[ended]].last < item->first; ended++) {
            size_t at = below(items, live, n_live, items[end[ended]].offset);
            assert_true(live[at] == end[ended]);
            memmove(live + at, live + at + 1, (--n_live - at) * sizeof *live);
        }
        size_t at = below(items, live, n_live, item->offset);
        if ((at > 0 && items[live[at - 1]].offset + items[live[at - 1]].bytes > item->offset) ||
            (at < n_live && items[live[at]].offset < item->offset + item->bytes))
            fail_msg("%s: buffer %d overlaps another", name, (int)begin[i]);
        memmove(live + at + 1, live + at, (n_live++ - at) * sizeof *live);
        live[at] = begin[i];
        if (item->offset + item->bytes > reached) reached = item->offset + item->bytes;
    }
    assert_true(reached == top);
    free(begin);
}

/* Places a set; ends the test if buffers overlap, or if it takes more than `seconds` of this thread or more than
 * `ratio` of the lower bound. */
static void check_large(tm_interval *items, size_t n, int32_t instructions, double seconds, double ratio,
                        const char *name)
{
    double begin = thread_seconds();
    size_t top = tm_place_intervals(items, n, instructions);
    double took = thread_seconds() - begin;
    size_t bound = tm_place_lower_bound(items, n, instructions);
    check_large_placement(items, n, top, name);
    if (!(top >= bound && (double)top <= ratio * (double)bound))
        fail_msg("%s: %.4f of the lower bound, expected %g at most", name, (double)top / (double)bound, ratio);
    if (!(took < seconds)) fail_msg("%s: %.2f s of processor time, expected less than %g s", name, took, seconds);
}

/* Layers of 4 instructions forward and 4 backward: two buffers kept from the one to the other, and short ones. */
TEST(a_step_of_200000_buffers_is_placed_at_once)
{
    enum { LAYERS = 20000, PER_LAYER = 10, N = LAYERS * PER_LAYER, INSTRUCTIONS = 8 * LAYERS };
    tm_interval *items = calloc(N, sizeof *items);
    assert_non_null(items);
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        int32_t      f = 4 * layer, b = INSTRUCTIONS - 4 - 4 * layer; /* first instructions of the two passes */
        tm_interval *i = &items[layer * PER_LAYER];
        i[0] = (tm_interval){ .bytes = 64 * 1000, .first = f + 1, .last = b + 2 };
        i[1] = (tm_interval){ .bytes = 64 * (size_t)(1 + layer % 7), .first = f + 2, .last = b + 1 };
        for (int32_t k = 0; k < 4; k++) {
            i[2 + k] = (tm_interval){ .bytes = 64 * (size_t)(100 + 300 * k), .first = f + k, .last = f + (k < 3) + k };
            i[6 + k] = (tm_interval){ .bytes = 64 * (size_t)(900 - 200 * k), .first = b + k, .last = b + (k < 3) + k };
        }
    }
    check_large(items, N, INSTRUCTIONS, 5, 1.01, "a step of 20,000 layers");
    free(items);
}

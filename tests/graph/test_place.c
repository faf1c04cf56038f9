/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of buffers with known lifetimes: random sets against brute force, and a set of 200,000. */

#include "support/test.h"

#include "base/random.h"
#include "graph/occupancy.h"
#include "graph/place.h"

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

/* --- large sets --------------------------------------------------------------------------------------------------- */

static double thread_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_offset(const void *a, const void *b)
{
    const tm_interval *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Of what lives at an instruction no two overlap. Returns the highest end. */
static size_t check_instruction(const tm_interval *items, size_t n, int32_t x, tm_interval *live)
{
    size_t count = 0, top = 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].first <= x && x <= items[i].last) live[count++] = items[i];
    qsort(live, count, sizeof *live, by_offset);
    for (size_t i = 0; i < count; i++) {
        if (live[i].offset < top) fail_msg("two buffers overlap at instruction %d", (int)x);
        top = live[i].offset + live[i].bytes;
    }
    return top;
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
    double begin = thread_seconds();
    size_t top = tm_place_intervals(items, N, INSTRUCTIONS), bound = tm_place_lower_bound(items, N, INSTRUCTIONS);
    assert_true(thread_seconds() - begin < 5);
    assert_true(top >= bound && (double)top <= 1.01 * (double)bound);
    tm_interval *live = calloc(N, sizeof *live);
    assert_non_null(live);
    for (int32_t k = 0; k < 60; k++) assert_true(check_instruction(items, N, k * (INSTRUCTIONS / 60), live) <= top);
    free(live);
    free(items);
}

/* --- which bytes are taken when (occupancy.h) ----------------------------------------------------------------------
 */

/* More blocks in one list than it holds: holes may be lost, small ones first, but what is taken is never given. A
 * question then costs no more than the 128 blocks that are left. */
TEST(a_long_list_forgets_small_holes_only)
{
    enum { BLOCKS = 200, HOLE = 272, END = 608 };
    tm_occupancy *o = tm_occupancy_create(3);
    bool          taken[END] = { false };
    for (size_t i = 0; i < BLOCKS; i++) { /* holes of 1 byte, and one of 10 near the middle */
        size_t from = 3 * i + (i > 90 ? 9 : 0);
        tm_occupancy_take(o, 1, 1, from, from + 2);
        taken[from] = taken[from + 1] = true;
    }
    size_t one = tm_occupancy_lowest(o, 0, 2, 1);
    assert_true(one >= END || !taken[one]);
    for (size_t bytes = 2; bytes <= 20; bytes++)
        assert_int_equal(tm_occupancy_lowest(o, 0, 2, bytes), bytes <= 10 ? HOLE : END);
    uint64_t before = tm_occupancy_work(o);
    assert_int_equal(tm_occupancy_lowest(o, 1, 1, 9999), END);
    assert_true(tm_occupancy_work(o) - before < 128 + 20);
    assert_int_equal(tm_occupancy_lowest(o, 2, 2, 9999), 0);
    tm_occupancy_destroy(o);
}

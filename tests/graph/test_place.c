/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of buffers with known lifetimes: checked against brute force on random sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "graph/place.h"

#include <stdbool.h>
#include <string.h>

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
                                  .first = a < b ? a : b, .last = a < b ? b : a, .offset = SIZE_MAX / 4 };
        if (shape == 1) items[i].first = (int32_t)i, items[i].last = *instructions - 1 - (int32_t)i;
        if (shape == 3) items[i].first = 0, items[i].last = *instructions - 1;
        if (shape == 4) items[i].first = items[i].last = (int32_t)i;
    }
    return n;
}

static void live_buffers_never_overlap(void **state)
{
    (void)state;
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

static void nested_whole_and_disjoint_sets_are_tight(void **state)
{
    (void)state;
    for (uint64_t set = 0; set < SETS; set++) {
        tm_interval items[MOST];
        int32_t     instructions;
        if (set % 5 != 1 && set % 5 < 3) continue;
        size_t n = random_set(set, items, &instructions);
        size_t bound = tm_place_lower_bound(items, n, instructions);
        if (tm_place_intervals(items, n, instructions) > bound + bound / 100)
            fail_msg("set %llu is not within 1 %% of its lower bound", (unsigned long long)set);
    }
}

static void nothing_needs_nothing(void **state)
{
    (void)state;
    assert_int_equal(tm_place_intervals(NULL, 0, 7), 0);
    assert_int_equal(tm_place_lower_bound(NULL, 0, 7), 0);
}

static void a_hole_is_used_again(void **state)
{
    (void)state;
    /* the second dies before the third begins; the third is no larger */
    tm_interval items[] = { { .bytes = 128, .first = 0, .last = 9 },
                            { .bytes = 640, .first = 1, .last = 3 },
                            { .bytes = 640, .first = 4, .last = 8 } };
    assert_int_equal(tm_place_intervals(items, 3, 10), 768);
    assert_true(items[1].offset == items[2].offset);
    /* the same instruction counts as at the same time */
    items[2].first = 3;
    assert_int_equal(tm_place_intervals(items, 3, 10), 1408);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_buffers_never_overlap),
        cmocka_unit_test(nested_whole_and_disjoint_sets_are_tight),
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(a_hole_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

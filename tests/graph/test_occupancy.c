/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are taken when: against a table with one cell per instruction and byte. */

#include "support/test.h"

#include "base/random.h"
#include "graph/occupancy.h"

#include <string.h>

enum { MOST_INSTRUCTIONS = 70, MOST_BYTES = 4096, SETS = 60 };

typedef struct {
    bool taken[MOST_INSTRUCTIONS][MOST_BYTES];
} table;

static void take(table *t, int32_t first, int32_t last, size_t from, size_t to)
{
    for (int32_t x = first; x <= last; x++) memset(&t->taken[x][from], true, to - from);
}

static bool is_free(const table *t, int32_t first, int32_t last, size_t from, size_t to)
{
    for (int32_t x = first; x <= last; x++)
        if (from < MOST_BYTES && memchr(&t->taken[x][from], true, (to < MOST_BYTES ? to : MOST_BYTES) - from))
            return false;
    return true;
}

static size_t lowest(const table *t, int32_t first, int32_t last, size_t bytes)
{
    size_t at = 0;
    while (!is_free(t, first, last, at, at + bytes)) at++;
    return at;
}

/* Any blocks, on top of each other or not, where they fall or at the lowest place: same answers as the table. */
TEST(answers_are_those_of_a_table)
{
    static table t;
    size_t       within = 0; /* answers below something that is taken: a hole was found */
    for (uint64_t set = 0; set < SETS; set++) {
        int32_t       n = 1 + (int32_t)(set % MOST_INSTRUCTIONS);
        tm_occupancy *o = tm_occupancy_create(n);
        for (int round = 0; round < 2; round++) { /* the second after clearing */
            memset(&t, 0, sizeof t);
            tm_occupancy_clear(o);
            for (uint64_t i = 0; i < 60; i++) {
                uint64_t index = 2 * i + (uint64_t)round;
                int32_t  a = (int32_t)tm_random_below(1, set, index, (uint64_t)n),
                        b = (int32_t)tm_random_below(2, set, index, (uint64_t)n);
                int32_t first = a < b ? a : b, last = i % 3 == 0 ? first : a < b ? b : a;
                size_t  bytes = 1 + tm_random_below(3, set, index, 30), at = tm_random_below(4, set, index, 1000);
                size_t  expected = lowest(&t, first, last, bytes), is = tm_occupancy_lowest(o, first, last, bytes);
                if (is != expected)
                    fail_msg("set %llu: %zu bytes during %d-%d fit at %zu, found %zu", (unsigned long long)set, bytes,
                             (int)first, (int)last, expected, is);
                within += !is_free(&t, first, last, is + bytes, MOST_BYTES);
                if (i % 2) at = is;
                tm_occupancy_take(o, first, last, at, at + bytes);
                take(&t, first, last, at, at + bytes);
            }
        }
        tm_occupancy_destroy(o);
    }
    assert_true(within > 1000);
}

/* More blocks in one list than it holds: holes may be lost, small ones first, but what is taken is never given. A
 * question then costs no more than the 128 blocks that are left. */
TEST(a_long_list_forgets_small_holes_only)
{
    static table  t;
    tm_occupancy *o = tm_occupancy_create(3);
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < 200; i++) { /* holes of 1 byte, and one of 10 near the middle */
        size_t from = 3 * i + (i > 90 ? 9 : 0);
        tm_occupancy_take(o, 1, 1, from, from + 2);
        take(&t, 1, 1, from, from + 2);
    }
    assert_true(lowest(&t, 0, 2, 1) == 2);
    for (size_t bytes = 1; bytes <= 20; bytes++) {
        size_t at = tm_occupancy_lowest(o, 0, 2, bytes);
        assert_true(is_free(&t, 0, 2, at, at + bytes));
        if (bytes > 1) assert_true(at == lowest(&t, 0, 2, bytes));
    }
    uint64_t before = tm_occupancy_work(o);
    assert_true(tm_occupancy_lowest(o, 1, 1, 9999) == lowest(&t, 1, 1, 9999));
    assert_true(tm_occupancy_work(o) - before < 128 + 20);
    assert_true(tm_occupancy_lowest(o, 2, 2, 9999) == 0);
    tm_occupancy_destroy(o);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows go where when experts are divided among ranks: every row once, in the same order whatever the number of
 * rounds, no more of them at a time than there is room for. */
#include "base/random.h"
#include "op/exchange.h"
#include "op/op.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { MOST_RANKS = 5, MOST_EXPERTS = 20, PAIRS = 24 };

typedef struct {
    int64_t ranks, experts;
    int32_t counts[MOST_RANKS * MOST_EXPERTS];
} routing;

/* PAIRS rows of each rank to random experts; `kind` 1: all to the last expert, 2: none to the first rank. */
static routing make_routing(int64_t ranks, int64_t each, int kind)
{
    routing r = { .ranks = ranks, .experts = ranks * each };
    for (int64_t s = 0; s < ranks; s++)
        for (int64_t i = 0; i < PAIRS; i++) {
            int64_t e = (int64_t)tm_random_below(7, (uint64_t)(ranks * 100 + each), (uint64_t)(s * PAIRS + i),
                                                 (uint64_t)r.experts);
            if (kind == 1) e = r.experts - 1;
            if (kind == 2 && e < each && ranks > 1) e += each;
            r.counts[s * r.experts + e]++;
        }
    return r;
}

static tm_exchange_attr attr_of(const routing *r, int64_t rank, int64_t rows)
{
    tm_exchange_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.group.ranks = r->ranks;
    attr.rank = rank;
    attr.rows = rows;
    attr.pairs = PAIRS;
    attr.rounds = (r->ranks * PAIRS + rows - 1) / rows;
    return attr;
}

/* What each rank gets, by the definition: by expert, then by rank, then by row. */
static int64_t wanted(const routing *r, int64_t to, int64_t from[], int64_t row[])
{
    int64_t n = 0, each = r->experts / r->ranks;
    for (int64_t e = to * each; e < (to + 1) * each; e++)
        for (int64_t s = 0; s < r->ranks; s++) {
            int64_t first = 0;
            for (int64_t below = 0; below < e; below++) first += r->counts[s * r->experts + below];
            for (int64_t i = 0; i < r->counts[s * r->experts + e]; i++, n++) from[n] = s, row[n] = first + i;
        }
    return n;
}

/* The rows of all rounds, one round after the other, are those wanted, one after the other. */
static void check_rank(const routing *r, int64_t to, int64_t rows)
{
    int64_t          from[MOST_RANKS * PAIRS], row[MOST_RANKS * PAIRS], n = wanted(r, to, from, row), next = 0;
    tm_exchange_attr attr = attr_of(r, to, rows);
    int32_t          places[MOST_RANKS * PAIRS * (MOST_EXPERTS + 1)];
    int64_t          each = r->experts / r->ranks;
    tm_exchange_places(&attr, r->counts, r->experts, places);
    for (attr.round = 0; attr.round < attr.rounds; attr.round++) {
        int64_t          place = 0;
        const int32_t   *begins = places + attr.round * (each + 1);
        tm_exchange_walk walk;
        tm_exchange_run  run;
        tm_exchange_begin(&walk, &attr, r->counts, r->experts, to);
        while (tm_exchange_next(&walk, &run)) {
            int64_t e = run.expert - to * each;
            assert_true(run.to == to && run.rows > 0 && run.place == place && e >= 0 && e < each);
            assert_true(begins[e] <= run.place && run.place + run.rows <= begins[e + 1]);
            for (int64_t i = 0; i < run.rows; i++, next++) {
                assert_true(next < n && from[next] == run.from);
                assert_int_equal(row[next], run.at + i);
            }
            place += run.rows;
        }
        assert_true(place <= rows);
        assert_int_equal(begins[0], 0);
        assert_int_equal(begins[each], place);
        assert_true(place == rows || next == n); /* a round is full before the next one begins */
    }
    assert_int_equal(next, n);
}

TEST(every_row_arrives_once_in_order)
{
    static const int64_t room[] = { 1, 5, 24, 40, MOST_RANKS * PAIRS };
    for (int64_t ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int64_t each = 1; each <= 4; each += 3)
            for (int kind = 0; kind < 3; kind++)
                for (size_t m = 0; m < sizeof room / sizeof room[0]; m++) {
                    routing r = make_routing(ranks, each, kind);
                    for (int64_t to = 0; to < ranks; to++) check_rank(&r, to, room[m]);
                }
}

/* Runs to all ranks are those to each, one rank after the other. */
TEST(runs_to_all_are_those_to_each)
{
    routing          r = make_routing(4, 3, 0);
    tm_exchange_attr attr = attr_of(&r, 2, 10);
    for (attr.round = 0; attr.round < attr.rounds; attr.round++) {
        tm_exchange_walk all, one;
        tm_exchange_run  a, b;
        tm_exchange_begin(&all, &attr, r.counts, r.experts, -1);
        for (int64_t to = 0; to < 4; to++) {
            tm_exchange_begin(&one, &attr, r.counts, r.experts, to);
            while (tm_exchange_next(&one, &b)) {
                assert_true(tm_exchange_next(&all, &a));
                assert_memory_equal(&a, &b, sizeof a);
            }
        }
        assert_false(tm_exchange_next(&all, &a));
    }
}

TEST(costs_are_those_of_the_even_share)
{
    routing          r = make_routing(4, 2, 0);
    tm_exchange_attr attr = attr_of(&r, 0, 20);
    static const int even[] = { 20, 4, 0 };
    for (attr.round = 0; attr.round < 3; attr.round++) {
        assert_int_equal(tm_exchange_even(&attr), even[attr.round]);
        tm_call call = { .op = &tm_op_send_rows, .attr = &attr };
        call.in[0] = (tm_view){ .dtype = TM_BF16, .shape = tm_shape_2(PAIRS, 6) };
        call.in[1] = (tm_view){ .dtype = TM_I32, .shape = tm_shape_2(4, 8) };
        call.in[2].shape.rank = -1;
        call.out[0] = (tm_view){ .dtype = TM_BF16, .shape = tm_shape_2(20, 6) };
        for (int k = 1; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
        for (int k = 3; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
        assert_true(call.op->cost(&call).wire == even[attr.round] * 12 * 3. / 4);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of call against plain loops, bit for bit: all formats, 1 to 16 ranks on one host and on several, buffers
 * that others reach and buffers that they do not, in place and not, counts of every size. */
#include "calls.h"

#include <math.h>
static const size_t few[] = { 0, 1, 17, 700 }, many[] = { 0, 1, 3, 500, 1025, 4099, 9001 };
static void         one_host(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) run_world(ranks, NULL, 60, false, all_calls, OF(many));
    for (int ranks = 7; ranks <= 16; ranks += ranks == 7 ? 1 : 8) run_world(ranks, NULL, 60, false, all_calls, OF(few));
}

static void several_hosts(void **state)
{
    static const int two[] = { 0, 1 }, mixed[] = { 0, 0, 1, 2, 1 }, eight[] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    (void)state;
    run_world(2, two, 60, false, all_calls, OF(many));
    run_world(5, mixed, 60, false, all_calls, OF(many));
    run_world(8, eight, 60, false, all_calls, OF(few));
}

/* A slice of a far sum is longer than what goes at once. */
static void long_sums(void **state)
{
    static const size_t large[] = { 500001 };
    static const int    three[] = { 0, 1, 1 };
    (void)state;
    run_world(3, three, 60, false, all_calls, OF(large));
}

/* NaN wins over everything in max and min, wherever it stands; a sum of bfloat16 is rounded once. */
static void odd_values(tm_comm *comm, void *context)
{
    (void)context;
    int   rank = tm_comm_rank(comm);
    float x[3] = { rank == 1 ? (float)NAN : 5, rank == 0 ? (float)NAN : 5, rank == 2 ? (float)NAN : 5 }, y[3];
    for (int op = TM_COMM_MAX; op <= TM_COMM_MIN; op++) {
        tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                               .op = (tm_comm_op)op,
                               .format = TM_COMM_FLOAT32,
                               .send = x,
                               .receive = y,
                               .count = 3 };
        CHECK_OK(tm_comm_run(comm, &call, err));
        for (int i = 0; i < 3; i++) CHECK(y[i] != y[i]);
    }
    /* 256 + 1 + 1: rounded after each addition it would stay 256. 256 + 1 + 0 and 258 + 1 + 0 are ties: to even. */
    uint16_t h[3] = { 0x3f80, 0x3f80, 0x3f80 }, sum[3];
    if (rank == 0) h[0] = h[1] = 0x4380, h[2] = 0x4381;
    if (rank == 2) h[1] = h[2] = 0;
    tm_collective call = {
        .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_BFLOAT16, .send = h, .receive = sum, .count = 3
    };
    CHECK_OK(tm_comm_run(comm, &call, err));
    CHECK(sum[0] == 0x4381 && sum[1] == 0x4380 && sum[2] == 0x4382);
}

static void values_that_are_odd(void **state)
{
    static const int hosts[] = { 0, 1, 2 };
    (void)state;
    run_world(3, NULL, 60, false, odd_values, NULL);
    run_world(3, hosts, 60, false, odd_values, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(values_that_are_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

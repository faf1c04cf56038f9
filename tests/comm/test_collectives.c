/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of call against plain loops, bit for bit: all formats, 1 to 16 ranks on one host and on several, buffers
 * that others reach and buffers that they do not, in place and not, counts of every size. */
#include "support/test.h"
#include "calls.h"

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

/* Small calls take one step through blocks, larger ones go where they lie, if all can reach it. */
static void ways(tm_comm *world, void *context)
{
    static const struct {
        tm_comm_kind kind;
        size_t       least; /* elements of float32 that are not small any more, of 4 ranks */
    } rows[] = { { TM_COMM_ALL_REDUCE, 1025 },
                 { TM_COMM_ALL_GATHER, 1025 },
                 { TM_COMM_BROADCAST, 2049 },
                 { TM_COMM_REDUCE_SCATTER, 257 },
                 { TM_COMM_ALL_TO_ALL, 257 } };
    enum { ROOM = 4 * 1100 };
    int   rank = tm_comm_rank(world);
    float own[ROOM] = { 0 }, *sent = own, *received;
    void *shared, *other;
    (void)context;
    CHECK(strcmp(tm_comm_way(world), "") == 0);
    CHECK_OK(tm_comm_alloc(world, ROOM * sizeof(float), &shared, err));
    CHECK_OK(tm_comm_alloc(world, ROOM * sizeof(float), &other, err));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int place = 0; place < 4; place++)
            for (size_t count = rows[i].least - 1; count <= rows[i].least; count++) {
                bool writes = rows[i].kind == TM_COMM_ALL_REDUCE, root = rows[i].kind == TM_COMM_BROADCAST;
                /* All is shared; rank 2 sends, or receives, what it alone has; rank 1, the root, sends it. */
                sent = (place == 1 && rank == 2) || (place == 3 && rank == 1) ? own : shared;
                received = place == 2 && rank == 2 ? own : other;
                bool          reached = place == 0 || (place == 1 && root) || (place == 2 && !writes);
                tm_collective call = collective_of(rows[i].kind, TM_COMM_FLOAT32, sent, received, count, NULL, -1);
                call.peer = 1;
                CHECK_OK(tm_comm_run(world, &call, err));
                CHECK(strcmp(tm_comm_way(world), count < rows[i].least || !reached ? "in blocks" : "in place") == 0);
            }
    tm_comm_free(world, shared);
    tm_comm_free(world, other);
}

static void ways_of_calls(void **state)
{
    (void)state;
    run_world(4, NULL, 60, false, ways, NULL);
}

/* Sums from 16 MiB on go past the caches. */
static void sum_large(tm_comm *world, void *context)
{
    enum { N = 4 << 20 };
    size_t rank = (size_t)tm_comm_rank(world), size = (size_t)tm_comm_size(world), of_all = size * (size + 1) / 2;
    void  *memory;
    (void)context;
    CHECK_OK(tm_comm_alloc(world, 2 * N * sizeof(float), &memory, err));
    float        *send = memory, *receive = send + N;
    tm_collective call = collective_of(TM_COMM_REDUCE_SCATTER, TM_COMM_FLOAT32, send, receive, N / size, "large", 1);
    for (size_t i = 0; i < N; i++) send[i] = (float)((i % 251) * (rank + 1));
    CHECK_OK(tm_comm_run(world, &call, err));
    for (size_t k = 0; k < call.count; k++) CHECK(receive[k] == (float)(((rank * call.count + k) % 251) * of_all));
    call.kind = TM_COMM_ALL_REDUCE, call.count = N;
    for (int in_place = 0; in_place < 2; in_place++) {
        float *out = in_place ? send : receive;
        call.receive = out;
        CHECK_OK(tm_comm_run(world, &call, err));
        for (size_t i = 0; i < N; i++) CHECK(out[i] == (float)((i % 251) * of_all));
    }
    tm_comm_free(world, memory);
}

static void large_sums(void **state)
{
    (void)state;
    run_world(2, NULL, 30, false, sum_large, NULL);
}

/* A NaN of any rank is the result, also one whose payload bfloat16 would lose. */
static void not_a_number(void **state)
{
    (void)state;
    for (int op = TM_COMM_SUM; op <= TM_COMM_MIN; op++)
        for (int at = 0; at < 3; at++) {
            float x[3][2] = { { 1, 2 }, { 5, 6 }, { 9, 10 } }, y[2],
                  want = op == TM_COMM_SUM   ? 18
                         : op == TM_COMM_MAX ? 10
                                             : 2;
            double      dx[3][2], dy[2];
            uint16_t    hx[3][2], hy[2];
            const void *in[3], *din[3], *hin[3];
            x[at][0] = (float)NAN;
            for (int r = 0; r < 3; r++) {
                for (int i = 0; i < 2; i++) dx[r][i] = (double)x[r][i], memcpy(&hx[r][i], (char *)&x[r][i] + 2, 2);
                in[r] = x[r], din[r] = dx[r], hin[r] = hx[r];
            }
            hx[at][0] = 0x7f81;
            tm_comm_reduce((tm_comm_op)op, TM_COMM_FLOAT32, in, 3, y, 2);
            tm_comm_reduce((tm_comm_op)op, TM_COMM_FLOAT64, din, 3, dy, 2);
            tm_comm_reduce((tm_comm_op)op, TM_COMM_BFLOAT16, hin, 3, hy, 2);
            assert_true(isnan(y[0]) && isnan(dy[0]) && isnan(widened(hy[0])) && (hy[0] & 0x40));
            assert_true(y[1] == want && dy[1] == (double)want && widened(hy[1]) == want);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_host),      cmocka_unit_test(several_hosts), full_test(long_sums),
    cmocka_unit_test(ways_of_calls), cmocka_unit_test(large_sums),    cmocka_unit_test(not_a_number),
};

TEST_TABLE(tests)

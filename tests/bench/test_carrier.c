/* SPDX-License-Identifier: Apache-2.0 */
/* Where the data of measured calls lie, and by what they are timed; copies among ranks by a clock that only readings
 * move. */
#include "support/test.h"
#include "bench/carrier.h"
#include "table_rules.h"
#include "comm/group.h"

#include <pthread.h>

static const tm_workload *collectives(void)
{
    return tm_workload_find("collectives");
}

TEST(buffers_and_time)
{
    for (int shared = 0; shared < 2; shared++) {
        tm_comm   *world;
        tm_error   err = { 0 };
        tm_carrier c;
        double     seconds = 0;
        tm_config *config = tm_bench_configure(collectives(), "help");
        set_words(config, shared ? "buffers=shared" : "buffers=private");
        assert_int_equal(tm_config_finish(config, &err), TM_OK);
        assert_int_equal(tm_comm_open_threads_on(1, NULL, 60, &world, &err), TM_OK);
        tm_bench bench = { .options = config, .world = world };
        fake_clock_start(1000, 0);
        assert_int_equal(tm_carrier_open_host(&bench, 8192, &c, &err), TM_OK);
        assert_ptr_equal(c.world, world);
        assert_true(fabs(c.least_s - 1e-3) < 1e-12 && c.least_judged == 65536 && !c.on_gpu && c.shared == shared);
        assert_string_equal(c.engine, "threads");
        assert_string_equal(c.buffers, shared ? "shared" : "private");
        assert_ptr_equal(c.receive, c.send + 8192);
        assert_true(c.host_send == c.send && c.host_receive == c.receive && (uintptr_t)c.send % 4096 == 0);
        for (int i = 0; i < 16384; i++) assert_int_equal(c.send[i], 0);
        memset(c.receive, 1, 8192); /* all of it is there, and the spare one */
        memset(c.spare, 2, 8192);
        memset(c.send, 3, 8192);
        assert_int_equal(c.begin(&c, &err), TM_OK);
        fake_clock_pass(2499000);
        assert_int_equal(c.end(&c, &seconds, &err), TM_OK);
        assert_true(fabs(seconds - 2.5e-3) < 1e-12);
        assert_int_equal(c.put(&c, 5, 6, &err), TM_OK);
        assert_int_equal(c.get(&c, 5, &err), TM_OK);
        assert_true(c.send[8191] == 3 && c.receive[0] == 1);
        assert_int_equal(c.copy(&c, c.spare, c.send, 8000, &err), TM_OK);
        assert_true(c.spare[0] == 3 && c.spare[7999] == 3 && c.spare[8000] == 2);
        float         one = 4;
        tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                               .format = TM_COMM_FLOAT32,
                               .send = c.send,
                               .receive = c.receive,
                               .count = 1,
                               .what = "sum",
                               .step = -1 };
        memcpy(c.send, &one, sizeof one);
        assert_int_equal(c.call(&c, &call, &err), TM_OK);
        assert_memory_equal(c.receive, &one, sizeof one);
        c.close(&c);
        fake_clock_stop();
        tm_comm_close(world);
        tm_config_destroy(config);
    }
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

typedef struct {
    trial    what;
    tm_comm *world;
    tried    t;
} a_rank;

static void *run_rank(void *context)
{
    a_rank *r = context;
    r->what.world = r->world;
    r->what.exact = true;
    r->t = try_workload(&r->what);
    tm_comm_close(r->world);
    return NULL;
}

/* A copy takes 80 fs of the test's clock: rates follow from the bytes, as do sizes from the least and the factor. */
TEST(copies)
{
    enum { RANKS = 2 };
    static const struct {
        const char *arguments;
        double      seconds, bytes[4];
        int         n, before; /* samples, calls before the first of them */
        const char *refused;
    } cases[] = {
        { "calls=copy min-bytes=8 max-bytes=100 factor=3", 0, { 8, 24, 72 }, 3, 3, NULL },
        { "calls=copy min-bytes=64 max-bytes=64 warmup-ms=0.0005", 0, { 64 }, 3, 25, NULL },
        { "calls=copy min-bytes=64 max-bytes=64 duration=0.0000003", 0, { 64 }, 14, 3, NULL },
        { "calls=copy min-bytes=64 max-bytes=64 rep-ms=0.0002 precision=0", 0, { 64 }, 10, 3, NULL },
        { "calls=copy,nothing", 0, { 0 }, 0, 0, "--calls: 'nothing' is no call; there are: copy, all-reduce, " },
        { "calls=,copy", 0, { 0 }, 0, 0, "--calls: '' is no call" },
        { "calls=copy,all-gatherer", 0, { 0 }, 0, 0, "--calls: 'all-gatherer' is no call" },
        { "calls=p2p,copy min-bytes=64 max-bytes=63",
          0,
          { 0 },
          0,
          0,
          "--min-bytes (64) is more than --max-bytes (63)" },
        { "calls=copy min-bytes=64 max-bytes=64 format=bfloat16 buffers=private", 0, { 64 }, 3, 3, NULL },
        { "calls=copy min-bytes=9 max-bytes=9 factor=9 format=float64", 0, { 16 }, 3, 3, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        a_rank    rank[RANKS] = { 0 };
        pthread_t thread[RANKS];
        tm_comm  *world[RANKS];
        tm_error  err = { 0 };
        size_t    rows = 0;
        assert_int_equal(tm_comm_open_threads_on(RANKS, NULL, 60, world, &err), TM_OK);
        for (int r = 0; r < RANKS; r++) {
            rank[r].world = world[r];
            rank[r].what = (trial){ collectives(), "cpu", cases[i].arguments, cases[i].seconds, NULL, false };
            assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
        }
        for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
        const tried *t = &rank[0].t;
        assert_int_equal(t->status, cases[i].refused ? TM_USAGE : TM_OK);
        if (cases[i].refused) assert_non_null(strstr(t->err.text, cases[i].refused));
        for (; cases[i].bytes[rows] > 0; rows++) {
            assert_string_equal(words_at(t->table, rows, "call"), "copy");
            assert_true(truth_at(t->table, rows, "correct"));
            cell_is(t->table, rows, "bytes", cases[i].bytes[rows]);
            cell_is(t->table, rows, "median_ms", 8e-11);
            cell_is(t->table, rows, "algorithm_gbps", cases[i].bytes[rows] / 8e-5);
            cell_is(t->table, rows, "bus_gbps", cases[i].bytes[rows] / 8e-5);
            cell_is(t->table, rows, "n", cases[i].n);
            cell_is(t->table, rows, "calls_before", cases[i].before);
            check_intervals(t->table, rows);
        }
        assert_int_equal(tm_table_n_rows(t->table), rows);
        for (int r = 0; r < RANKS; r++) tried_fini(&rank[r].t);
    }
}

TESTS_ALONE

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the data of measured calls lie, and by what they are timed; copies among ranks by a clock that only readings
 * move, to the letter (tests/golden/whole-bench-copies.txt). */
#include "support/test.h"
#include "bench/carrier.h"
#include "bench/tables.h"
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
    tm_text  out;
} a_rank;

static void *run_rank(void *context)
{
    a_rank *r = context;
    r->what.world = r->world;
    r->what.exact = true;
    tell(&r->out, &r->what, "", "", "");
    tm_comm_close(r->world);
    return NULL;
}

TEST(copies)
{
    enum { RANKS = 2 };
    static const struct {
        const char *arguments;
        double      seconds;
    } cases[] = {
        { "calls=copy min-bytes=8 max-bytes=100 factor=3", 0 },
        { "calls=copy min-bytes=64 max-bytes=64 warmup-ms=0.0005", 0 },
        { "calls=copy min-bytes=64 max-bytes=64 duration=0.0000003", 0 },
        { "calls=copy min-bytes=64 max-bytes=64 rep-ms=0.0002 precision=0", 0 },
        { "calls=copy,nothing", 0 },
        { "calls=,copy", 0 },
        { "calls=copy,all-gatherer", 0 },
        { "calls=p2p,copy min-bytes=64 max-bytes=63", 0 },
        { "calls=copy min-bytes=64 max-bytes=64 format=bfloat16 buffers=private", 0 },
        { "calls=copy min-bytes=9 max-bytes=9 factor=9 format=float64", 0 },
    };
    tm_text out = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        a_rank    rank[RANKS] = { 0 };
        pthread_t thread[RANKS];
        tm_comm  *world[RANKS];
        tm_error  err = { 0 };
        assert_int_equal(tm_comm_open_threads_on(RANKS, NULL, 60, world, &err), TM_OK);
        for (int r = 0; r < RANKS; r++) {
            rank[r].world = world[r];
            rank[r].what = (trial){ collectives(), "cpu", cases[i].arguments, cases[i].seconds, NULL, false };
            assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
        }
        for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
        tm_text_add(&out, rank[0].out.data);
        for (int r = 0; r < RANKS; r++) tm_text_fini(&rank[r].out);
    }
    whole_is("tests/golden/whole-bench-copies.txt", &out);
}

TESTS_ALONE

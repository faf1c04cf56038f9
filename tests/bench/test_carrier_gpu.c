/* SPDX-License-Identifier: Apache-2.0 */
/* By what calls on GPUs are timed, over libraries that stand in for CUDA's driver and
 * NCCL (tests/standins); what is given back at the end, and where not all of it could be had. */
#include "support/test.h"
#include "apps/bench/carrier.h"
#include "bench/tables.h"
#include "comm/group.h"
#include "comm/coll/nccl.h"
#include "support/folder.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

enum { ROOM = 8192 };

static int (*held)(void); /* blocks of the GPU's memory that were not given back */

static int idle; /* threads while nobody has a GPU */

static int threads(void)
{
    int  n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *d; (d = readdir(tasks));) n += d->d_name[0] != '.';
    closedir(tasks);
    return n;
}

typedef struct {
    tm_config *config;
    tm_bench   bench;
    tm_carrier carrier;
    tm_status  status;
    tm_error   err;
} opened;

/* A world of one rank; `words` are options: "buffers=private". */
static void open_on_gpu(opened *o, const char *words)
{
    tm_comm *world;
    *o = (opened){ .config = tm_bench_configure(tm_workload_find("collectives"), "help") };
    set_words(o->config, words);
    assert_int_equal(tm_config_finish(o->config, &o->err), TM_OK);
    assert_int_equal(tm_comm_open_threads_on(1, NULL, 60, &world, &o->err), TM_OK);
    o->bench = (tm_bench){ .options = o->config, .world = world, .table = tm_table_create("collectives") };
    assert_int_equal(held(), 0);
    o->status = tm_carrier_open_gpu(&o->bench, ROOM, &o->carrier, &o->err);
}

/* Nothing is left on the GPU, nor anybody who looks after it. */
static void close_all(opened *o)
{
    if (o->status == TM_OK) o->carrier.close(&o->carrier);
    tm_comm_close(o->bench.world);
    tm_table_destroy(o->bench.table);
    tm_config_destroy(o->config);
    assert_int_equal(held(), 0);
    for (int i = 0; threads() > idle && i < 1000; i++) usleep(1000); /* one that has ended is still listed */
    assert_true(threads() <= idle);
}

TEST(calls_and_time)
{
    opened      o;
    tm_carrier *c = &o.carrier;
    float       numbers[2] = { 4, 7 };
    double      seconds = -1, one = -1;
    open_on_gpu(&o, "engine=nccl");
    if (o.status != TM_OK) fail_msg("%s", o.err.text);
    tm_collective sum = { .kind = TM_COMM_ALL_REDUCE,
                          .format = TM_COMM_FLOAT32,
                          .send = c->send,
                          .receive = c->receive,
                          .count = 2,
                          .what = "sum",
                          .step = -1 };
    memcpy(c->host_send, numbers, sizeof numbers);
    assert_int_equal(c->put(c, sizeof numbers, 0, &o.err), TM_OK);
    assert_int_equal(c->begin(c, &o.err), TM_OK);
    assert_int_equal(c->call(c, &sum, &o.err), TM_OK);
    assert_int_equal(c->end(c, &one, &o.err), TM_OK);
    assert_int_equal(c->get(c, sizeof numbers, &o.err), TM_OK);
    assert_memory_equal(c->host_receive, numbers, sizeof numbers);
    /* A copy of the stand-in is at least 0.1 ms late. */
    int64_t begin = tm_now_ns();
    assert_int_equal(c->begin(c, &o.err), TM_OK);
    for (int i = 0; i < 50; i++) assert_int_equal(c->copy(c, c->spare, c->send, 64, &o.err), TM_OK);
    assert_int_equal(c->end(c, &seconds, &o.err), TM_OK);
    assert_true(one >= 0 && seconds > 0.005 && seconds < (double)(tm_now_ns() - begin) * 1e-9);
    close_all(&o);
}

/* The second, the third or the first of the three blocks is not to be had: those before it are given back. The stand-in
 * counts on from one to the next. */
TEST(too_little_memory)
{
    static const char *const fails[] = { "cuMemAlloc_v2@2=2", "cuMemAlloc_v2@5=2", "cuMemAlloc_v2@6=2" };
    opened                   o;
    for (int i = 0; i < 3; i++) {
        setenv("STANDIN_GPU_FAIL", fails[i], 1);
        open_on_gpu(&o, "engine=nccl");
        unsetenv("STANDIN_GPU_FAIL");
        assert_int_equal(o.status, TM_NOMEM);
        close_all(&o);
    }
}

static int begin(void **state)
{
    (void)state;
    setenv("TRAINMARK_NCCL", test_built("standins/nccl.so"), 1);
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    void *library = dlopen(test_built("standins/cuda.so"), RTLD_NOW);
    assert_non_null(library);
    *(void **)&held = dlsym(library, "standin_held");
    assert_non_null(held);
    idle = threads() + 1; /* the default queue of the stand-in stays once it is used */
    return 0;
}

TESTS_ALONE
TEST_FIXTURE(begin, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that wait in a oversubscribed world, one with more ranks than processors: they sleep, and are woken. */
#include "world.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "support/test.h"

/* While it is set, sleeps of the library last so long unless a wake-up ends them. */
static _Atomic bool          only_wake_ups;
static const struct timespec for_ever = { .tv_sec = 20 };

/* Stands in front of the system's. */
long syscall(long number, ...)
{
    static long (*_Atomic own)(long, ...);
    long (*call)(long, ...) = own;
    void   *value[6];
    va_list args;
    if (!call) {
        *(void **)&call = dlsym(RTLD_NEXT, "syscall");
        own = call;
    }
    va_start(args, number);
    for (int i = 0; i < 6; i++) value[i] = va_arg(args, void *);
    va_end(args);
    if (number == SYS_futex && value[3] && only_wake_ups) value[3] = (void *)&for_ever;
    return call(number, value[0], value[1], value[2], value[3], value[4], value[5]);
}

static _Thread_local int yields;

/* The system's, counted. */
int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void rest(double seconds)
{
    nanosleep(&(struct timespec){ .tv_nsec = (long)(seconds * 1e9) }, NULL);
}

/* --- what waits cost ------------------------------------------------------------------------- */

enum { LATE, FULL, WAITS, FEW_YIELDS = 100 };
#define LATE_S 0.3

/* The last rank is late; the others wait for it, each in its own way. */
static void one_is_late(tm_comm *world, void *way)
{
    enum { LETTERS = 12, BYTES = 8000 }; /* more than a ring holds */
    static _Thread_local char data[BYTES];
    int                       rank = tm_comm_rank(world), last = tm_comm_size(world) - 1;
    tm_collective             barrier = { .kind = TM_COMM_BARRIER, .what = "all" };
    world->world->oversubscribed = true;
    CHECK_OK(tm_comm_run(world, &barrier, err));
    if (rank == last) rest(LATE_S);
    double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    yields = 0;
    if (*(int *)way == LATE && rank == 0) {
        tm_collective packet = message_of(world, false, data, 8);
        packet.peer = last;
        CHECK_OK(tm_comm_run(world, &packet, err));
    }
    if (*(int *)way == LATE && rank == last) {
        tm_collective packet = message_of(world, true, data, 8);
        CHECK_OK(tm_comm_run(world, &packet, err));
    }
    for (int i = 0; i < LETTERS && *(int *)way == FULL && (rank == 0 || rank == last); i++) {
        tm_collective packet = message_of(world, rank == 0, data, BYTES);
        packet.peer = rank == 0 ? last : 0;
        CHECK_OK(tm_comm_run(world, &packet, err));
    }
    CHECK_OK(tm_comm_run(world, &barrier, err));
    if (rank == last) return;
    CHECK(seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin < LATE_S / 10);
    CHECK(yields < FEW_YIELDS);
}

TEST(who_waits_takes_no_time_of_processors)
{
    static const int apart[] = { 0, 0, 1 };
    for (int way = 0; way < WAITS; way++) {
        run_world(3, NULL, 60, false, one_is_late, &way);
        run_world(3, apart, 60, false, one_is_late, &way);
    }
}

/* --- wake-ups -------------------------------------------------------------------------------- */

/* Sums of all, packets around a ring of ranks, packets that wait for room, and data that is taken from where it lies.
 */
static void many_waits(tm_comm *world, void *context)
{
    enum { ROUNDS = 100, FLOATS = 20000 };
    int   rank = tm_comm_rank(world), size = tm_comm_size(world);
    void *memory;
    (void)context;
    world->world->oversubscribed = true;
    CHECK_OK(tm_comm_alloc(world, 2 * FLOATS * sizeof(float), &memory, err));
    float *in = memory, *out = in + FLOATS;
    for (int i = 0; i < ROUNDS; i++) {
        size_t        count = i % 3 == 0 ? FLOATS : i % 3 == 1 ? 2000 : 1;
        tm_collective sum = {
            .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .send = in, .receive = out, .count = count, .step = i
        };
        for (size_t k = 0; k < count; k++) in[k] = (float)(rank + i);
        if (rank == i % size) rest(0.0005); /* the others sleep by then */
        CHECK_OK(tm_comm_run(world, &sum, err));
        CHECK(out[0] == (float)(size * (size - 1) / 2 + size * i) && out[count - 1] == out[0]);
        for (int k = 0; k < 2; k++) {
            bool          sends = rank % 2 == k;
            tm_collective packet = message_of(world, sends, sends ? (void *)in : (void *)out, count * sizeof(float));
            if (rank == (i / 2 + k) % size) rest(0.0005);
            packet.peer = (sends ? rank + 1 : rank + size - 1) % size;
            CHECK_OK(tm_comm_run(world, &packet, err));
            if (!sends) CHECK(out[count - 1] == (float)(packet.peer + i));
        }
    }
    tm_comm_free(world, memory);
}

TEST(wake_ups_end_all_waits)
{
    double begin = seconds_of(CLOCK_MONOTONIC);
    only_wake_ups = true;
    run_world(4, NULL, 300, false, many_waits, NULL);
    run_world(2, NULL, 300, false, many_waits, NULL);
    only_wake_ups = false;
    assert_true(seconds_of(CLOCK_MONOTONIC) - begin < 15);
}

TESTS_ALONE

/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/clock.c - the made-up clock: the time of a thread that drives a device is what its work should take.
 *
 * A launch takes the larger of its products at `gflops` and its bytes at `gigabytes` a second, and `latency_us`, with a
 * noise of `noise` percent (a standard deviation). A reading takes 20 ns, so that who waits for a time waits not for
 * ever. A thread that such a thread starts has its time to begin with, and who joins it goes on no earlier than it has
 * ended. Other threads, and what waits inside comm/ and base/process.c, have the machine's clock: it is linked so. */
#include "faults.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "comm/comm.h"
#include "device/ceilings.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { READING_NS = 20, NOISE_STREAM = 7 };

int64_t __real_tm_now_ns(void);
int64_t __wrap_tm_now_ns(void);
int     __real_clock_gettime(clockid_t id, struct timespec *to);
int     __wrap_clock_gettime(clockid_t id, struct timespec *to);

int64_t clock_machine_ns(void)
{
    return __real_tm_now_ns();
}

int64_t __wrap_tm_now_ns(void)
{
    fault_rank *own = faults_rank();
    if (!own->made) return __real_tm_now_ns();
    own->busy_ns += READING_NS;
    return own->now_ns += READING_NS;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *to)
{
    const fault_rank *own = faults_rank();
    if (!own->made || (id != CLOCK_THREAD_CPUTIME_ID && id != CLOCK_PROCESS_CPUTIME_ID))
        return __real_clock_gettime(id, to);
    *to = (struct timespec){ .tv_sec = own->busy_ns / 1000000000, .tv_nsec = own->busy_ns % 1000000000 };
    return 0;
}

void clock_sleep(double seconds)
{
    struct timespec left = { .tv_sec = (time_t)seconds, .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };
    while (nanosleep(&left, &left) != 0) {
    }
}

int64_t clock_since_opened_ns(void)
{
    const fault_rank *own = faults_rank();
    return (own->made ? own->now_ns : clock_machine_ns()) - own->opened_ns;
}

void clock_open(void)
{
    fault_rank *own = faults_rank();
    if (own->opened_ns == 0) own->opened_ns = own->now_ns = clock_machine_ns();
    own->made = faults_planted()->made;
}

void clock_work(int64_t ns)
{
    fault_rank *own = faults_rank();
    own->now_ns += ns;
    own->busy_ns += ns;
}

void clock_wait(int64_t at_ns)
{
    fault_rank *own = faults_rank();
    if (at_ns <= own->now_ns) return;
    own->waited_ns += at_ns - own->now_ns;
    own->now_ns = at_ns;
}

int64_t clock_copy_ns(size_t bytes)
{
    return llround((double)bytes / faults_planted()->clock.gigabytes);
}

int64_t clock_launch_ns(const tm_call *call, int place, int64_t n)
{
    const fault *clock = &faults_planted()->clock;
    uint64_t     who = (uint64_t)faults_rank()->rank << 20 | (uint64_t)place;
    tm_cost      cost = call->op->cost(call);
    double       ns = fmax(cost.flops / clock->gflops, cost.bytes / clock->gigabytes) + clock->latency_us * 1e3;
    double       normal = tm_random_normal(faults_planted()->seed, who << 6 | NOISE_STREAM, (uint64_t)n);
    return llround(ns * fmax(0.01, 1 + clock->noise / 100 * normal));
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

typedef struct {
    void *(*body)(void *);
    void      *argument;
    fault_rank from;
} beginning;

static _Atomic int64_t last_end_ns; /* the latest of all threads that have ended */

static void *begin(void *data)
{
    beginning   b = *(beginning *)data;
    fault_rank *own = faults_rank();
    free(data);
    b.from.calls = (fault_place){ 0 };
    b.from.place = NULL;
    b.from.busy_ns = b.from.waited_ns = 0;
    *own = b.from;
    void   *result = b.body(b.argument);
    int64_t before = last_end_ns;
    while (own->made && own->now_ns > before && !atomic_compare_exchange_weak(&last_end_ns, &before, own->now_ns)) {
    }
    return result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    beginning *b = tm_alloc(sizeof *b);
    *b = (beginning){ body, argument, *faults_rank() };
    int failed = __real_pthread_create(thread, attributes, begin, b);
    if (failed) free(b);
    return failed;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    fault_rank *own = faults_rank();
    int         failed = __real_pthread_join(thread, result);
    int64_t     end = last_end_ns;
    if (own->made && own->now_ns < end) own->now_ns = end;
    return failed;
}

/* --- counts of waiting ----------------------------------------------------------------------------------------------
 */

int64_t __real_tm_comm_waited_ns(const tm_comm *comm) __attribute__((weak));
int64_t __wrap_tm_comm_waited_ns(const tm_comm *comm);
int64_t __wrap_tm_comm_waited_ns(const tm_comm *comm)
{
    return faults_rank()->made ? faults_rank()->waited_ns : __real_tm_comm_waited_ns(comm);
}

/* By the made-up clock a thread that is ready runs. */
int64_t __real_tm_thread_delayed_ns(void) __attribute__((weak));
int64_t __wrap_tm_thread_delayed_ns(void);
int64_t __wrap_tm_thread_delayed_ns(void)
{
    return faults_rank()->made ? 0 : __real_tm_thread_delayed_ns();
}

/* --- what the machine can do at most
 * ---------------------------------------------------------------------------------- */

void __real_tm_device_arithmetic(const tm_device *device, int threads, double seconds, tm_ceilings *out);
void __wrap_tm_device_arithmetic(const tm_device *device, int threads, double seconds, tm_ceilings *out);
/* Twice what the clock takes for a launch: measured by hand, no made-up time would ever pass. */
void __wrap_tm_device_arithmetic(const tm_device *device, int threads, double seconds, tm_ceilings *out)
{
    if (!faults_rank()->made) {
        __real_tm_device_arithmetic(device, threads, seconds, out);
        return;
    }
    double flops = 2e9 * faults_planted()->clock.gflops;
    *out = (tm_ceilings){ .flops = flops, .flops_bf16 = flops, .flops_how = "the made-up clock" };
    clock_work((int64_t)(seconds * 1e9));
}

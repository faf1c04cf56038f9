/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/turn.c - on which rank, when and how often a fault acts; and the log of what it did. */
#include "faults.h"

#include "base/random.h"
#include "comm/comm.h"
#include "train/trainer/trainer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fault_place *place_now(void)
{
    fault_rank *own = faults_rank();
    return own->place ? own->place : &own->calls;
}

fault_rank *faults_rank(void)
{
    static _Thread_local fault_rank own;
    if (own.times != faults_planted()->times) own = (fault_rank){ .times = faults_planted()->times };
    return &own;
}

int fault_core(void)
{
    cpu_set_t mask;
    int       core = 0;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) != 1) return -1;
    while (!CPU_ISSET(core, &mask)) core++;
    return core;
}

bool fault_is_here(const fault *f)
{
    const fault_rank *own = faults_rank();
    bool              any = f->kind == FAULT_LINK; /* its rank is that of the link */
    if (!any && f->rank >= 0 && f->rank != own->rank) return false;
    if (f->core >= 0 && f->core != fault_core()) return false;
    if (f->step > 0 && own->step < f->step) return false;
    return !(f->after > 0) || (double)clock_since_opened_ns() * 1e-9 >= f->after;
}

static uint64_t stream_of(const fault *f, int what)
{
    uint64_t rank = (uint64_t)faults_rank()->rank, place = (uint64_t)place_now()->number;
    return (((uint64_t)f->index << 20 | rank) << 20 | place) << 6 | (uint64_t)what;
}

bool fault_turn(const fault *f)
{
    int64_t n = ++place_now()->seen[f->index];
    if (f->at > 0) return n == f->at;
    return tm_random_below(faults_planted()->seed, stream_of(f, 63), (uint64_t)n, (uint64_t)f->every) == 0;
}

uint64_t fault_draw(const fault *f, int what, uint64_t n)
{
    return tm_random_below(faults_planted()->seed, stream_of(f, what), (uint64_t)place_now()->seen[f->index], n);
}

void fault_tell(const fault *f, const char *format, ...)
{
    static const char *const kinds[] = {
#define X(id, name) name,
        FAULT_KINDS(X)
#undef X
    };
    const fault_rank *own = faults_rank();
    const char       *path = getenv("TM_FAULT_LOG");
    char              line[1024];
    int     n = snprintf(line, sizeof line, "{\"fault\": \"%s\", \"rank\": %d, \"step\": %lld, \"event\": %lld, ",
                         kinds[f->kind], own->rank, (long long)own->step, (long long)place_now()->seen[f->index]);
    va_list args;
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - 4 - (size_t)n, format, args);
    va_end(args);
    if (!path || n > (int)sizeof line - 4) return;
    memcpy(line + n, "}\n", 3);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return;
    if (write(fd, line, (size_t)n + 2) < 0) perror(path);
    close(fd);
}

void fault_hang(const fault *f)
{
    fault_rank *own = faults_rank();
    fault_tell(f, "\"seconds\": %g", f->seconds);
    if (f->seconds > 0 && own->made) {
        own->now_ns += (int64_t)(f->seconds * 1e9);
        return;
    }
    if (f->seconds > 0)
        clock_sleep(f->seconds);
    else
        for (;;) pause();
}

/* --- which rank, which step -----------------------------------------------------------------------------------------
 */

tm_status __real_tm_comm_open(const tm_comm_options *options, tm_comm **world, tm_error *err);
tm_status __wrap_tm_comm_open(const tm_comm_options *options, tm_comm **world, tm_error *err);
tm_status __wrap_tm_comm_open(const tm_comm_options *options, tm_comm **world, tm_error *err)
{
    TM_TRY(__real_tm_comm_open(options, world, err));
    faults_rank()->rank = *world ? tm_comm_rank(*world) : 0;
    clock_open(); /* what ranks tell each other takes made-up time also where they have no device */
    return TM_OK;
}

tm_status __real_tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm,
                                  int64_t total_targets, tm_error *err);
tm_status __wrap_tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm,
                                  int64_t total_targets, tm_error *err);
tm_status __wrap_tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm,
                                  int64_t total_targets, tm_error *err)
{
    faults_rank()->step = t;
    return __real_tm_trainer_begin(trainer, t, learning_rate, max_norm, total_targets, err);
}

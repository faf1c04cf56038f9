/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks count as time that they waited for others, by a clock that goes on whenever it is looked at: a rank that
 * is late makes the others' count grow, not its own.
 */
#include "world.h"

#include "base/clock.h"

#include <sched.h>

#include "support/test.h"

enum { RANKS = 3, LATE = RANKS - 1, LOOK_NS = 1000, LOOKS = 50 };

static _Thread_local _Atomic int64_t *looks; /* of this thread's rank; NULL: of no rank */
static _Atomic int64_t                looks_of[RANKS];

/* This file takes the place of base/clock.c in its program: it defines all that base/clock.h declares. */
int64_t tm_now_ns(void)
{
    return looks ? LOOK_NS * (1 + atomic_fetch_add(looks, 1)) : LOOK_NS;
}

int64_t tm_thread_delayed_ns(void)
{
    return 0;
}

int64_t tm_wall_ms(void)
{
    return 1700000000000;
}

int64_t tm_process_age_ns(void)
{
    return 1;
}

char *tm_wall_text(char out[32])
{
    strcpy(out, "2026-01-31T12:00:00Z");
    return out;
}

/* ---- a late rank ---- */

typedef struct {
    tm_comm_kind kind;
    size_t       count;   /* float32 */
    bool         crowded; /* as if there were more ranks than processors */
    int          waiting; /* ranks that wait for the late one */
    int64_t      waited[RANKS];
} job;

/* Between the late rank, which does what `kind` says, and rank 0. */
static bool is_message(tm_comm_kind kind)
{
    return kind == TM_COMM_SEND || kind == TM_COMM_RECEIVE;
}

static void call(tm_comm *world, const job *j)
{
    enum { LETTERS = 12 }; /* of 2000: more than a ring holds */
    static _Thread_local float from[RANKS << 14], to[RANKS << 14];
    tm_collective              c = collective_of(j->kind, TM_COMM_FLOAT32, from, to, j->count, "all", -1);
    const int                  rank = tm_comm_rank(world);
    bool                       message = is_message(j->kind);
    if (message && rank == 1) return;
    if (message) c.kind = (rank == LATE) == (j->kind == TM_COMM_SEND) ? TM_COMM_SEND : TM_COMM_RECEIVE;
    if (message) c.peer = rank == LATE ? 0 : LATE;
    for (int i = 0; i < (j->kind == TM_COMM_RECEIVE ? LETTERS : 1); i++) CHECK_OK(tm_comm_run(world, &c, err));
}

/* The late one comes when each of the others has looked at its clock so often that it must have waited. */
static void one_is_late(tm_comm *world, void *context)
{
    job          *j = context;
    const int     rank = tm_comm_rank(world);
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .what = "begin", .step = -1 };
    CHECK_OK(tm_comm_run(world, &barrier, err));
    CHECK_OK(tm_comm_run(world, &barrier, err));
    world->world->oversubscribed = j->crowded;
    int64_t before = tm_comm_waited_ns(world);
    looks = &looks_of[rank];
    for (int r = 0; r < j->waiting && rank == LATE; r++)
        while (looks_of[r] < LOOKS) sched_yield();
    call(world, j);
    looks = NULL;
    j->waited[rank] = tm_comm_waited_ns(world) - before;
    world->world->oversubscribed = false;
}

static void late(const int *host, tm_comm_kind kind, size_t count, bool crowded)
{
    job j = { .kind = kind, .count = count, .crowded = crowded, .waiting = is_message(kind) ? 1 : LATE };
    memset((void *)looks_of, 0, sizeof looks_of);
    run_world(RANKS, host, 60, false, one_is_late, &j);
    for (int r = 0; r < j.waiting; r++)
        if (!(j.waited[r] >= (LOOKS - 1) * LOOK_NS && j.waited[r] <= looks_of[r] * LOOK_NS))
            fail_msg("call %d of %zu: rank %d waited %lld ns in %lld looks", kind, count, r, (long long)j.waited[r],
                     (long long)looks_of[r]);
    if (j.waiting == 1) assert_int_equal(j.waited[1], 0);
    /* What comes last finds all others there. Larger calls have steps behind, in which ranks wait for each other. */
    if (count < 100 && !host) assert_int_equal(j.waited[LATE], 0);
}

TEST(the_others_wait_for_a_late_rank)
{
    static const tm_comm_kind kinds[] = { TM_COMM_BARRIER, TM_COMM_ALL_REDUCE, TM_COMM_ALL_GATHER, TM_COMM_SEND };
    static const int          apart[] = { 0, 1, 2 }, pairs[] = { 0, 0, 1 };
    for (int crowded = 0; crowded < 2; crowded++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            size_t large = kinds[k] == TM_COMM_BARRIER ? 0 : 10000, small = kinds[k] == TM_COMM_BARRIER ? 0 : 8;
            late(NULL, kinds[k], small, crowded);
            late(NULL, kinds[k], large, crowded);
            late(apart, kinds[k], small, crowded);
            late(pairs, kinds[k], large, crowded);
        }
    for (int crowded = 0; crowded < 2; crowded++) late(NULL, TM_COMM_RECEIVE, 2000, crowded);
}

TESTS_ALONE

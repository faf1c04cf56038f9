/* SPDX-License-Identifier: Apache-2.0 */
/* comm/watchdog.c - an end for calls of libraries that wait for other ranks and know no deadline. */
#include "comm/group.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 100000000 };

struct tm_comm_watchdog {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  over_now;
    bool            over;
    int             rank;
    double          seconds;
    const char     *what;
};

/* A while from now; true: the end was called. */
static bool wait_a_while(tm_comm_watchdog *g)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    for (int code = 0; !g->over && code != ETIMEDOUT;) code = pthread_cond_timedwait(&g->over_now, &g->lock, &until);
    bool over = g->over;
    pthread_mutex_unlock(&g->lock);
    return over;
}

/* Many short times instead of one moment: while this process is stopped itself, no time goes by. */
static void *watch(void *own)
{
    tm_comm_watchdog *g = own;
    for (double waited = 0; waited < g->seconds; waited += LOOK_NS * 1e-9)
        if (wait_a_while(g)) return NULL;
    fprintf(stderr, "trainmark: rank %d: %s took more than %g s: another rank is gone, stopped, or never came\n",
            g->rank, g->what, g->seconds);
    _exit(1); /* the thread that waits cannot be reached: launchers end the others after this one */
}

tm_comm_watchdog *tm_comm_watchdog_begin(int rank, double seconds, const char *what)
{
    tm_comm_watchdog  *g = calloc(1, sizeof *g);
    pthread_condattr_t monotonic;
    if (!g) return NULL;
    *g = (tm_comm_watchdog){ .rank = rank, .seconds = seconds, .what = what };
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->over_now, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&g->thread, NULL, watch, g) == 0) return g;
    pthread_cond_destroy(&g->over_now);
    pthread_mutex_destroy(&g->lock);
    free(g);
    return NULL;
}

void tm_comm_watchdog_end(tm_comm_watchdog *g)
{
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_signal(&g->over_now);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->over_now);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* comm/guard.c - an end for calls of libraries that wait for other ranks and know no deadline. */
#include "comm/group.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct tm_comm_guard {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  over_now;
    bool            over;
    struct timespec until;
    int             rank;
    double          seconds;
    const char     *what;
};

static void *watch(void *own)
{
    tm_comm_guard *g = own;
    int            code = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->over && code != ETIMEDOUT) code = pthread_cond_timedwait(&g->over_now, &g->lock, &g->until);
    bool over = g->over;
    pthread_mutex_unlock(&g->lock);
    if (over) return NULL;
    fprintf(stderr, "trainmark: rank %d: %s took more than %g s: another rank is gone, stopped, or never came\n",
            g->rank, g->what, g->seconds);
    _exit(1); /* the thread that waits cannot be reached: launchers end the others after this one */
}

tm_comm_guard *tm_comm_guard_begin(int rank, double seconds, const char *what)
{
    tm_comm_guard     *g = calloc(1, sizeof *g);
    pthread_condattr_t monotonic;
    if (!g) return NULL;
    *g = (tm_comm_guard){ .rank = rank, .seconds = seconds, .what = what };
    clock_gettime(CLOCK_MONOTONIC, &g->until);
    g->until.tv_sec += (time_t)seconds;
    g->until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    g->until.tv_sec += g->until.tv_nsec / 1000000000;
    g->until.tv_nsec %= 1000000000;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->over_now, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&g->thread, NULL, watch, g) == 0) return g;
    free(g);
    return NULL;
}

void tm_comm_guard_end(tm_comm_guard *g)
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "record/committer.h"

#include "base/arena.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

struct record_committer {
    const char *path;
    int         fd, interval_ms;
    int (*sync)(int fd);
    pthread_t       thread;
    pthread_mutex_t lock; /* of all below; not held while the disk works */
    pthread_cond_t  wake;
    pthread_mutex_t disk; /* one flush at a time: whoever flushes waits for the one that is under way */
    bool            dirty, closing;
    int             cause;
};

static void note_cause(record_committer *c, int cause)
{
    pthread_mutex_lock(&c->lock);
    if (!c->cause) c->cause = cause;
    pthread_mutex_unlock(&c->lock);
}

/* Also where the folder was moved: what is written goes with it, and nobody who knows the run will find it. */
static bool has_its_name(const record_committer *c)
{
    struct stat own, named;
    return fstat(c->fd, &own) != 0 ||
           (stat(c->path, &named) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino);
}

static void flush_now(record_committer *c)
{
    pthread_mutex_lock(&c->disk);
    pthread_mutex_lock(&c->lock);
    bool due = c->dirty;
    c->dirty = false;
    pthread_mutex_unlock(&c->lock);
    if (due) {
        if (c->sync(c->fd) != 0 && errno != EINVAL && errno != EROFS) note_cause(c, errno); /* pipes cannot */
        if (!has_its_name(c)) note_cause(c, ENOENT);
    }
    pthread_mutex_unlock(&c->disk);
}

static void *commit(void *argument)
{
    record_committer *c = argument;
    for (bool closing = false; !closing;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(c->interval_ms % 1000) * 1000000;
        until.tv_sec += c->interval_ms / 1000 + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&c->lock);
        while (!c->closing && pthread_cond_timedwait(&c->wake, &c->lock, &until) != ETIMEDOUT) continue;
        closing = c->closing;
        pthread_mutex_unlock(&c->lock);
        flush_now(c);
    }
    return NULL;
}

record_committer *record_committer_start(const char *path, int fd, int interval_ms, int (*sync)(int fd))
{
    record_committer  *c = tm_alloc(sizeof *c);
    pthread_condattr_t monotonic;
    *c = (record_committer){ .path = path, .fd = fd, .interval_ms = interval_ms, .sync = sync };
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->disk, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigset_t all, before; /* signals are the main thread's business */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&c->thread, NULL, commit, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return c;
    free(c);
    return NULL;
}

void record_committer_note(record_committer *c)
{
    pthread_mutex_lock(&c->lock);
    c->dirty = true;
    pthread_mutex_unlock(&c->lock);
}

int record_committer_cause(record_committer *c)
{
    pthread_mutex_lock(&c->lock);
    int cause = c->cause;
    pthread_mutex_unlock(&c->lock);
    return cause;
}

int record_committer_flush(record_committer *c)
{
    flush_now(c);
    return record_committer_cause(c);
}

int record_committer_stop(record_committer *c)
{
    if (!c) return 0;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    int cause = record_committer_flush(c);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->disk);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return cause;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/places.c - where a node computes: cores, the CPU, GPUs. */
#include "apps/node/places.h"

#include "base/arena.h"
#include "base/clock.h"
#include "gpu/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- the thread of a core ----------------------------------------------------------------------------------------- */

struct tm_node_worker {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            wanted, done, over; /* a job is there; it is done; there will be none */
    tm_node_work   *work;
    void           *context;
    size_t          place;
    const char     *name; /* of the device that it opens */
    tm_device      *device;
    tm_status       st;
    tm_error        err;
    double          seconds; /* of the last job */
};

static void do_job(tm_node_worker *w)
{
    const int64_t begun = tm_now_ns();
    w->err = (tm_error){ 0 };
    w->st = w->work(w->place, w->context, &w->err);
    w->seconds = (double)(tm_now_ns() - begun) * 1e-9;
}

static void *live(void *data)
{
    tm_node_worker *w = data;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->wanted && !w->over) pthread_cond_wait(&w->changed, &w->lock);
        if (w->over) break;
        w->wanted = false;
        pthread_mutex_unlock(&w->lock);
        do_job(w);
        pthread_mutex_lock(&w->lock);
        w->done = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void give(tm_node_worker *w, size_t place, tm_node_work *work, void *context)
{
    pthread_mutex_lock(&w->lock);
    w->work = work, w->context = context, w->place = place;
    w->wanted = true, w->done = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void await(tm_node_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->done) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* processor: a thread that has never been on another one; -1: on any. */
static tm_status begin_thread(tm_node_worker *w, int processor, tm_error *err)
{
    const size_t   bytes = CPU_ALLOC_SIZE(processor + 1);
    cpu_set_t     *one = processor >= 0 ? CPU_ALLOC(processor + 1) : NULL;
    pthread_attr_t attributes;
    int            failed = 0;
    pthread_attr_init(&attributes);
    if (one) {
        CPU_ZERO_S(bytes, one);
        CPU_SET_S(processor, bytes, one);
        failed = pthread_attr_setaffinity_np(&attributes, bytes, one);
    }
    if (!failed) failed = pthread_create(&w->thread, &attributes, live, w);
    pthread_attr_destroy(&attributes);
    if (one) CPU_FREE(one);
    if (!failed) return TM_OK;
    return tm_fail(err, TM_INTERNAL, "no thread can be bound to processor %d: %s", processor, strerror(failed));
}

static tm_status open_device(size_t place, void *context, tm_error *err)
{
    tm_node_worker *w = context;
    (void)place;
    return tm_device_open(w->name, 1, &w->device, err);
}

static tm_node_place *new_place(tm_node_places *places, const char *name, int processor)
{
    places->items = tm_grow(places->items, &places->room, places->n, sizeof *places->items);
    tm_node_place *place = &places->items[places->n++];
    *place = (tm_node_place){ .processor = processor };
    snprintf(place->name, sizeof place->name, "%s", name);
    return place;
}

/* A place with a thread of its own, which opens the device. */
static tm_status add_worker(tm_node_places *places, const char *name, const char *device, int processor, tm_error *err)
{
    tm_node_worker *w = memset(tm_alloc(sizeof *w), 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    tm_status st = begin_thread(w, processor, err);
    if (st != TM_OK) {
        free(w);
        return st;
    }
    tm_node_place *place = new_place(places, name, processor);
    place->worker = w;
    w->name = device;
    give(w, 0, open_device, w);
    await(w);
    place->device = w->device;
    if (w->st != TM_OK) *err = w->err;
    return w->st;
}

static void end_worker(tm_node_worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* --- which places there are --------------------------------------------------------------------------------------- */

/* Of as many processors as there may be. */
static tm_status add_cores(tm_node_places *places, tm_error *err)
{
    enum { MOST = 1 << 14 };
    const size_t bytes = CPU_ALLOC_SIZE(MOST);
    cpu_set_t   *allowed = CPU_ALLOC(MOST);
    tm_status    st = TM_OK;
    if (!allowed || sched_getaffinity(0, bytes, allowed) != 0)
        st = tm_fail(err, TM_INTERNAL, "the system does not tell which processors may be used: %s", strerror(errno));
    for (int p = 0; p < MOST && st == TM_OK; p++) {
        char name[32];
        snprintf(name, sizeof name, "core %d", p);
        if (CPU_ISSET_S(p, bytes, allowed)) st = add_worker(places, name, "cpu", p, err);
    }
    CPU_FREE(allowed);
    places->cores = places->n;
    return st == TM_OK ? tm_device_open("cpu", 0, &new_place(places, "CPU", -1)->device, err) : st;
}

static tm_status add_gpus(const tm_node_task *task, tm_node_places *places, tm_error *err)
{
    static const struct {
        tm_gpu_maker maker;
        const char  *name;
    } makers[] = { { TM_GPU_CUDA, "cuda" }, { TM_GPU_HIP, "hip" } };
    tm_comm      *world = task->options->world;
    tm_comm_place mine = { .local_size = 1 };
    if (world) mine = tm_comm_place_of(world, task->rank);
    for (int m = 0; m < 2; m++)
        for (int i = mine.local_rank; i < tm_gpu_count(makers[m].maker); i += mine.local_size) {
            char name[32];
            snprintf(name, sizeof name, "%s:%d", makers[m].name, i);
            TM_TRY(add_worker(places, name, name, -1, err));
        }
    return TM_OK;
}

static tm_status add_named(tm_node_places *places, const char *names, tm_error *err)
{
    for (const char *at = names; *at; at += *at == ',') {
        char         name[TM_NODE_PLACE];
        const size_t length = strcspn(at, ",");
        tm_error     why = { 0 };
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        if (strcmp(name, "cpu") == 0) continue; /* is there */
        tm_status st = add_worker(places, name, name, -1, &why);
        if (st != TM_OK) return tm_fail(err, st == TM_INVALID ? TM_USAGE : st, "--devices: %s", why.text);
    }
    return TM_OK;
}

static bool named(const char *names, const char *name)
{
    for (const char *at = names; *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (length == strlen(name) && strncmp(at, name, length) == 0) return true;
        at += length;
    }
    return false;
}

tm_status tm_node_places_open(const tm_node_task *task, tm_node_places *out, tm_error *err)
{
    const char *devices = task->options->devices;
    tm_status   st = TM_OK;
    if (!devices || named(devices, "cpu")) st = add_cores(out, err);
    if (st == TM_OK) st = devices ? add_named(out, devices, err) : add_gpus(task, out, err);
    if (st == TM_OK && out->n == 0) st = tm_fail(err, TM_USAGE, "--devices names no device; leave it out, or give cpu");
    if (st != TM_OK) tm_node_places_close(out);
    return st;
}

void tm_node_places_close(tm_node_places *places)
{
    for (size_t i = 0; i < places->n; i++) {
        end_worker(places->items[i].worker);
        tm_device_close(places->items[i].device);
    }
    free(places->items);
    *places = (tm_node_places){ 0 };
}

/* --- work at all places ------------------------------------------------------------------------------------------- */

/* The first failure counts. */
static void note(const tm_node_worker *w, tm_status *st, tm_error *err)
{
    if (w->st == TM_OK || *st != TM_OK) return;
    *st = w->st;
    *err = w->err;
}

tm_status tm_node_at_places(tm_node_places *places, tm_node_work *work, void *context, tm_error *err)
{
    tm_status st = TM_OK;
    double    longest = 0;
    for (size_t i = 0; i < places->n; i++)
        if (places->items[i].worker) give(places->items[i].worker, i, work, context);
    for (size_t i = 0; i < places->n; i++) {
        tm_node_worker *w = places->items[i].worker;
        if (!w) continue;
        await(w);
        if (w->seconds > longest) longest = w->seconds;
        note(w, &st, err);
    }
    places->spent_s += longest;
    for (size_t i = 0; i < places->n; i++) {
        tm_node_worker own = { .work = work, .context = context, .place = i };
        if (places->items[i].worker) continue;
        do_job(&own);
        places->spent_s += own.seconds;
        note(&own, &st, err);
    }
    return st;
}

double tm_node_thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

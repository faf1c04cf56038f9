/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/step.c - the same training steps at every place, twice and again: whoever has other bits is broken. */
#include "apps/node/checks.h"
#include "apps/node/places.h"
#include "apps/node/training.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/version.h"

#include <gnu/libc-version.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FORMATS = 64, MOST_MODELS = 4, PLAIN_FORMATS = 2, MOST_FINDINGS = 4 };

/* One training at one place. */
typedef struct {
    uint64_t hash; /* of most runs */
    int      runs;
    bool     known, lost, unsupported; /* lost: no two runs agree, or it failed */
} seen;

typedef struct {
    tm_node_places   places;
    uint64_t         seed;
    tm_node_format   formats[MOST_FORMATS];
    int              n_formats, format, model; /* what is trained now */
    seen            *seen;                     /* (n_formats, MOST_MODELS, places) */
    size_t          *findings;                 /* (places) */
    double          *seconds;                  /* (places) in trainings */
    tm_node_outcome *out;
    pthread_mutex_t  lock; /* of `out` */
    int              runs;
    char             missing[96]; /* a format that a place cannot train, and why */
} checker;

static seen *seen_at(const checker *c, int format, int model, size_t place)
{
    return &c->seen[((size_t)format * MOST_MODELS + (size_t)model) * c->places.n + place];
}

/* Only those that have the same kernels' order of sums, the same mathematical functions and the same program give the
 * same bits: their facts have one name. */
static void name_of(const tm_device *device, const tm_node_format *format, char name[TM_NODE_NAME])
{
    const tm_device_info *info = tm_device_describe(device);
    char                  what[256], words[16] = "gpu";
    const char           *sums = info->sums[format->precision->compute == TM_BF16];
    snprintf(what, sizeof what, "%s|%s|%s|%s", TM_VERSION, gnu_get_libc_version(), sums ? sums : "",
             info->model ? info->model : "");
    if (sums) snprintf(words, sizeof words, "%.*s", (int)strcspn(sums, "-"), sums);
    snprintf(name, TM_NODE_NAME, "step in %s, %s %04x", format->name, words,
             (unsigned)(tm_hash(what, strlen(what)) & 0xffff));
}

/* --- what differs ------------------------------------------------------------------------------------------------- */

/* `odd` has other bits than `other`. */
static void find(checker *c, size_t place, const char *who, const tm_node_trace *odd, const tm_node_trace *other)
{
    const tm_node_format *format = &c->formats[c->format];
    tm_node_difference    d;
    if (!tm_node_trace_differs(odd, other, &d)) return;
    pthread_mutex_lock(&c->lock);
    if (c->findings[place]++ < MOST_FINDINGS)
        tm_node_find(c->out, -1, c->places.items[place].name,
                     "%s in %s: %s; step %d, first in %s: %zu bit%s; %zu of %zu tensors; expected: the same bits",
                     tm_node_model_name(c->model), format->name, who, d.part->step, d.part->name, d.bits,
                     d.bits == 1 ? "" : "s", d.different, d.of);
    pthread_mutex_unlock(&c->lock);
}

static tm_status train(checker *c, size_t place, tm_node_trace *out, tm_error *err)
{
    const double begin = tm_node_thread_seconds();
    TM_TRY(tm_node_train(c->places.items[place].device, &c->formats[c->format], c->model, c->seed, out, err));
    seen_at(c, c->format, c->model, place)->runs++;
    c->seconds[place] += tm_node_thread_seconds() - begin;
    return TM_OK;
}

/* Two runs differ. A third one, or those before, say which of them is right. */
static tm_status ask_again(checker *c, size_t place, const tm_node_trace *a, const tm_node_trace *b, tm_error *err)
{
    seen          *s = seen_at(c, c->format, c->model, place);
    tm_node_trace  third = { 0 };
    const uint64_t hash[2] = { tm_node_trace_hash(a), tm_node_trace_hash(b) };
    uint64_t       right = s->hash;
    char           who[64];
    if (!s->known) {
        tm_status st = train(c, place, &third, err);
        right = st == TM_OK ? tm_node_trace_hash(&third) : 0;
        tm_node_trace_fini(&third);
        TM_TRY(st);
    }
    if (right != hash[0] && right != hash[1]) {
        s->lost = true;
        find(c, place, "no two of three runs agree", a, b);
        return TM_OK;
    }
    const bool second = right == hash[0];
    snprintf(who, sizeof who, "run %d differs from the others", s->known ? s->runs - 1 : second ? 2 : 1);
    find(c, place, who, second ? b : a, second ? a : b);
    s->hash = right, s->known = true;
    return TM_OK;
}

static tm_status compare(checker *c, size_t place, tm_node_trace *a, tm_node_trace *b, tm_error *err)
{
    seen *s = seen_at(c, c->format, c->model, place);
    TM_TRY(train(c, place, a, err));
    if (s->known && tm_node_trace_hash(a) == s->hash) return TM_OK;
    TM_TRY(train(c, place, b, err));
    const uint64_t hash = tm_node_trace_hash(b);
    if (tm_node_trace_hash(a) != hash) return ask_again(c, place, a, b, err);
    if (s->known && hash != s->hash) {
        pthread_mutex_lock(&c->lock);
        tm_node_find(c->out, -1, c->places.items[place].name, "%s in %s: from run %d on other bits than before",
                     tm_node_model_name(c->model), c->formats[c->format].name, s->runs - 1);
        pthread_mutex_unlock(&c->lock);
        s->lost = true;
    }
    s->hash = hash, s->known = true;
    return TM_OK;
}

/* The training of now at a place: the first time twice. */
static tm_status look(size_t place, void *context, tm_error *err)
{
    checker      *c = context;
    seen         *s = seen_at(c, c->format, c->model, place);
    tm_node_trace a = { 0 }, b = { 0 };
    tm_error      why = { 0 };
    if (s->unsupported || s->lost) return TM_OK;
    tm_status st = compare(c, place, &a, &b, &why);
    tm_node_trace_fini(&a);
    tm_node_trace_fini(&b);
    if (st == TM_OK) return TM_OK;
    if (st == TM_INTERRUPTED) {
        *err = why;
        return st;
    }
    pthread_mutex_lock(&c->lock);
    s->unsupported = st == TM_UNSUPPORTED, s->lost = st != TM_UNSUPPORTED;
    if (s->unsupported)
        snprintf(c->missing, sizeof c->missing, "%.40s cannot train %.40s", c->places.items[place].name,
                 c->formats[c->format].name);
    else
        tm_node_find(c->out, -1, c->places.items[place].name, "%s in %s: %.150s", tm_node_model_name(c->model),
                     c->formats[c->format].name, why.text);
    pthread_mutex_unlock(&c->lock);
    return TM_OK;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* Is there time for one more, which takes as long as the last? Of plain formats always. */
static bool has_time(const checker *c, int round, double seconds, double last_s)
{
    if (round == 0 && c->format < PLAIN_FORMATS) return true;
    return seconds - c->places.spent_s > (round == 0 ? 1.5 : 1) * last_s;
}

/* Round after round, all formats and models; the first one is complete unless the time is over. */
static tm_status train_all(checker *c, double seconds, tm_error *err)
{
    double last_s = 0;
    for (int round = 0;; round++)
        for (c->format = 0; c->format < c->n_formats; c->format++)
            for (c->model = 0; c->model < c->formats[c->format].models; c->model++) {
                const double before = c->places.spent_s;
                if (!has_time(c, round, seconds, last_s)) return TM_OK;
                TM_TRY(tm_node_at_places(&c->places, look, c, err));
                last_s = c->places.spent_s - before;
            }
}

/* What all runs of a format at a place came to, as a fact. */
static bool add_fact(checker *c, int format, size_t place)
{
    const tm_node_place *at = &c->places.items[place];
    char                 name[TM_NODE_NAME], text[32];
    uint64_t             hash = 0;
    for (int m = 0; m < c->formats[format].models; m++) {
        const seen    *s = seen_at(c, format, m, place);
        const uint64_t both[2] = { hash, s->hash };
        if (!s->known || s->lost) return false;
        hash = tm_hash(both, sizeof both);
    }
    name_of(at->device, &c->formats[format], name);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    tm_node_fact_add(c->out, name, at->name, false, text);
    return true;
}

static void conclude(checker *c)
{
    int    formats = 0, least = 0;
    double seconds = (double)INFINITY;
    for (size_t p = 0; p < c->places.n; p++) seconds = fmin(seconds, c->seconds[p]);
    for (int f = 0; f < c->n_formats; f++) {
        size_t facts = 0;
        for (size_t p = 0; p < c->places.n; p++) facts += add_fact(c, f, p);
        if (facts == 0) continue;
        formats++;
        for (size_t p = 0; p < c->places.n; p++)
            for (int m = 0; m < c->formats[f].models; m++) {
                const int runs = seen_at(c, f, m, p)->runs;
                if (runs > 0 && (least == 0 || runs < least)) least = runs;
            }
    }
    /* No error in t seconds: more than 3 / t of them per second have a probability below 5 % of that. */
    tm_node_reach(c->out,
                  "%d of %d formats, each at least %d times at %zu places; errors more often than one in %.3g s of a "
                  "place are excluded (95 %%)%s%s",
                  formats, c->n_formats, least, c->places.n, seconds / -log(0.05), c->missing[0] ? "; " : "",
                  c->missing);
}

tm_status node_check_step(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    checker c = { .seed = task->options->seed, .out = out, .lock = PTHREAD_MUTEX_INITIALIZER };
    while (c.n_formats < MOST_FORMATS && tm_node_format_at(c.n_formats, &c.formats[c.n_formats])) c.n_formats++;
    TM_TRY(tm_node_places_open(task, &c.places, err));
    for (size_t p = 0; p < c.places.n; p++)
        if (tm_device_describe(c.places.items[p].device)->kind == TM_DEVICE_GPU)
            tm_device_own_kernels(c.places.items[p].device,
                                  true); /* a library may choose another algorithm elsewhere */
    const size_t n = (size_t)c.n_formats * MOST_MODELS * c.places.n;
    c.seen = memset(tm_alloc(n * sizeof *c.seen), 0, n * sizeof *c.seen);
    c.findings = memset(tm_alloc(c.places.n * sizeof *c.findings), 0, c.places.n * sizeof *c.findings);
    c.seconds = memset(tm_alloc(c.places.n * sizeof *c.seconds), 0, c.places.n * sizeof *c.seconds);
    tm_status st = train_all(&c, task->seconds, err);
    if (st == TM_OK) conclude(&c);
    free(c.seen);
    free(c.findings);
    free(c.seconds);
    tm_node_places_close(&c.places);
    return st;
}

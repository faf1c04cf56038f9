/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/disk.c - a checkpoint is written to the disk and read from it; one that is torn is not taken.
 *
 * Two checkpoints of known content are written again and again, each with what the system wants to be sure (fsync).
 * Their pages are given up, so that reading them asks the disk. Then the newer one loses its end, or a bit of it is
 * turned, and what is loaded must be the older one.
 */
#include "apps/node/checks.h"
#include "apps/node/memory_words.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/random.h"
#include "base/root.h"
#include "stats/summary.h"
#include "train/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ROUNDS = 64, PATH = 4096 };

/* Both checkpoints of a round: their tensor is a pattern of words by step. */
typedef struct {
    char      folder[PATH]; /* all of this check's files are below it */
    uint64_t *words;
    size_t    n;
    uint64_t  seed;
    double    written[ROUNDS], read[ROUNDS]; /* GB/s */
    int       rounds;
    int       torn; /* files that were torn and not taken */
} disk;

static tm_status copy_from(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)err;
    memcpy(to, (const char *)memory->context + from.at, bytes);
    return TM_OK;
}

static tm_status copy_to(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                         tm_error *err)
{
    (void)err;
    memcpy((char *)memory->context + to.at, from, bytes);
    return TM_OK;
}

static uint64_t seed_of(const disk *d, int64_t step)
{
    return d->seed + ((uint64_t)step << 32);
}

static tm_status save(disk *d, int64_t step, double *seconds, tm_error *err)
{
    const tm_checkpoint_memory memory = { copy_from, copy_to, d->words };
    tm_checkpoint_tensor       tensor = {
              .name = "pattern", .rank = 1, .n = { (int64_t)d->n }, .bytes = 8 * d->n, .memory = &memory
    };
    tm_checkpoint_state state = { .step = step, .seed = d->seed };
    snprintf(state.model, sizeof state.model, "pattern");
    tm_memory_fill(d->words, d->n, TM_MEMORY_HASH, seed_of(d, step));
    int64_t begun = tm_now_ns();
    TM_TRY(tm_checkpoint_save(d->folder, &state, &tensor, 1, 0, err));
    *seconds = (double)(tm_now_ns() - begun) * 1e-9;
    return TM_OK;
}

/* What is loaded must be the pattern of `expected`; a difference is a finding. */
static tm_status load(disk *d, int64_t expected, const char *what, double *seconds, tm_node_outcome *out, tm_error *err)
{
    const tm_checkpoint_memory memory = { copy_from, copy_to, d->words };
    tm_checkpoint_tensor       tensor = {
              .name = "pattern", .rank = 1, .n = { (int64_t)d->n }, .bytes = 8 * d->n, .memory = &memory
    };
    tm_checkpoint_state *state = tm_alloc(sizeof *state);
    tm_checkpoint_report report;
    size_t               first = 0;
    memset(d->words, 0, 8 * d->n);
    int64_t   begun = tm_now_ns();
    tm_status st = tm_checkpoint_load_newest(d->folder, -1, state, &tensor, 1, &report, err);
    *seconds = (double)(tm_now_ns() - begun) * 1e-9;
    int64_t step = state->step;
    free(state);
    TM_TRY(st);
    size_t bad = tm_memory_check(d->words, d->n, TM_MEMORY_HASH, seed_of(d, expected), &first);
    if (step != expected)
        tm_node_find(out, -1, "disk", "%s: the checkpoint of step %lld was loaded; expected that of step %lld", what,
                     (long long)step, (long long)expected);
    else if (bad > 0)
        tm_node_find(out, -1, "disk", "%s: %zu of %zu words are not what was written, from word %zu on", what, bad,
                     d->n, first);
    return TM_OK;
}

static void tensors_of(const disk *d, int64_t step, char path[PATH + 64])
{
    snprintf(path, PATH + 64, "%s/step-%08lld/tensors.safetensors", d->folder, (long long)step);
}

/* Pages that the system holds would be read instead of the disk. */
static void give_up_pages(const disk *d, int64_t step)
{
    char path[PATH + 64];
    tensors_of(d, step, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Cuts the file of step 2, or turns one bit of it. */
static tm_status tear(const disk *d, uint64_t draw, tm_error *err)
{
    char    path[PATH + 64];
    tm_text content = { 0 };
    tensors_of(d, 2, path);
    tm_status st = tm_file_read(path, SIZE_MAX, &content, err);
    if (st == TM_OK) {
        const uint64_t stream = tm_random_stream("torn checkpoint");
        size_t         at = (size_t)tm_random_below(d->seed, stream, draw, content.length);
        content.data[at] = (char)(content.data[at] ^ 1 << draw % 8);
        st = tm_file_write(path, content.data, draw % 2 == 0 ? at : content.length, err);
    }
    tm_text_fini(&content);
    return st;
}

static tm_status one_round(disk *d, tm_node_outcome *out, tm_error *err)
{
    double seconds[2], read;
    TM_TRY(save(d, 1, &seconds[0], err));
    TM_TRY(save(d, 2, &seconds[1], err));
    give_up_pages(d, 1), give_up_pages(d, 2);
    TM_TRY(load(d, 2, "read again", &read, out, err));
    const double bytes = 8e-9 * (double)d->n;
    d->written[d->rounds] = 2 * bytes / (seconds[0] + seconds[1]);
    d->read[d->rounds++] = bytes / read;
    TM_TRY(tear(d, (uint64_t)d->rounds, err));
    TM_TRY(load(d, 1, "behind a torn one", &read, out, err));
    d->torn++;
    return TM_OK;
}

static void add_figure(const char *name, const double *rates, int n, tm_node_outcome *out)
{
    tm_node_figure f = { .unit = "GB/s",
                         .place = "disk",
                         .sense = TM_NODE_SPEED,
                         .value = tm_stats_median(rates, n),
                         .low = (double)NAN,
                         .high = (double)NAN,
                         .floor = (double)NAN };
    snprintf(f.name, sizeof f.name, "%s", name);
    if (n >= 6) {
        tm_interval i = tm_stats_median_interval(rates, n);
        double      halves = tm_stats_median(rates, n / 2) - tm_stats_median(rates + n / 2, n - n / 2);
        f.low = i.lo, f.high = i.hi;
        f.floor = fmax(0.1, fabs(halves) / f.value); /* disks are shared, and have caches of their own */
    }
    tm_node_figure_add(out, &f);
}

/* Bytes of a checkpoint: two and one that is being replaced are on the disk at a time. 0: too little is free. */
static size_t size_for(const char *folder, double seconds)
{
    const double   least = 1 << 20, most = 1 << 28, per_second = 4 << 20;
    struct statvfs s;
    if (statvfs(folder, &s) != 0) return 0;
    double room = 0.1 * (double)s.f_bavail * (double)s.f_frsize;
    double wanted = fmin(fmax(seconds * per_second, least), most);
    return room < 4 * wanted ? room < 4 * least ? 0 : (size_t)least : (size_t)wanted;
}

static tm_status check_disk(disk *d, double seconds, tm_node_outcome *out, tm_error *err)
{
    char          text[32];
    const int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9);
    int64_t       longest = 0;
    while (d->rounds < ROUNDS && (d->rounds == 0 || tm_now_ns() + longest < end)) {
        int64_t begun = tm_now_ns();
        TM_TRY(one_round(d, out, err));
        if (tm_now_ns() - begun > longest) longest = tm_now_ns() - begun;
    }
    add_figure("checkpoint written", d->written, d->rounds, out);
    add_figure("checkpoint read", d->read, d->rounds, out);
    tm_node_reach(out, "a wrong bit in %s, written and read %d times; a torn checkpoint, %d times",
                  tm_format_bytes(text, 8 * (double)d->n), d->rounds, d->torn);
    return TM_OK;
}

tm_status node_check_disk(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    tm_scratch   scratch = { 0 };
    disk         d = { .seed = task->options->seed };
    const char  *place = task->options->folder;
    const size_t bytes = size_for(place, task->seconds);
    if (!task->first) {
        tm_node_skip(out, "the first rank of the host does it");
        return TM_OK;
    }
    if (bytes == 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s' cannot be used, or has less than 40 MiB left; name another directory "
                       "with --disk-path",
                       place);
    TM_TRY(tm_scratch_make_in(place, "trainmark-certify", &scratch, err));
    snprintf(d.folder, sizeof d.folder, "%s", scratch.path);
    d.n = bytes / 8;
    d.words = tm_alloc(bytes);
    tm_status st = check_disk(&d, task->seconds, out, err);
    tm_scratch_remove(&scratch);
    free(d.words);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/batch.c - training.local_batch_size auto: the largest batch whose plan fits, proven by two steps of it. */
#include "base/lock.h"
#include "base/log.h"
#include "cli/sweep_plan.h"

#include <stdio.h>
#include <string.h>

static const char key[] = "training.local_batch_size", part_key[] = "parallelism.pipeline_parallel_microbatch_size";
static const char given_as[] = "command line ("; /* how an origin names another program's word */
enum { MOST = 1 << 16, MOST_PARTS = 1 << 12 };

bool tm_cli_wants_batch(const tm_config *config)
{
    size_t                n;
    const tm_config_axis *axes = tm_config_axes(config, &n);
    return n == 1 && axes[0].n == 1 && strcmp(axes[0].row, key) == 0 && strcmp(axes[0].values[0], "auto") == 0;
}

static bool has_parts(const tm_config *config)
{
    return tm_config_i64(config, "parallelism.pipeline_parallel_degree") > 1 && tm_config_text(config, part_key);
}

typedef struct {
    const tm_sweep_options *options;
    int64_t                 memory;
    int64_t                 unit;    /* batches are multiples of it */
    int64_t                 most;    /* that is tried */
    int64_t                 global;  /* sequences of a step; 0: as many as the batch */
    int64_t                 bytes;   /* of the last plan */
    tm_error                why;     /* the last plan, if it could not be made */
    tm_error                refused; /* the last one that could not */
} search;

static void name_word(const search *s, int64_t batch, char word[200])
{
    size_t                n;
    const tm_config_axis *axes = tm_config_axes(s->options->config, &n);
    const char           *at = tm_config_origin(s->options->config, key), *name = n > 0 ? axes[0].key : key;
    size_t                length = strlen(name);
    if (n == 0 && strncmp(at, given_as, sizeof given_as - 1) == 0) { /* a command line takes one of its names */
        name = at + sizeof given_as - 1;
        length = strcspn(name, ")");
    }
    snprintf(word, 200, "--%.*s=%lld", length < 150 ? (int)length : 150, name, (long long)batch);
}

/* Does its plan fit? */
static bool fits(search *s, int64_t batch)
{
    char word[200], *more[] = { word };
    if (s->global > 0 && s->global % batch != 0) return false;
    name_word(s, batch, word);
    s->why = (tm_error){ 0 };
    s->bytes = 0;
    tm_status st = sweep_plan_bytes(s->options, more, 1, &s->bytes, &s->why);
    if (st != TM_OK) s->refused = s->why;
    return st == TM_OK && (s->memory <= 0 || s->bytes <= s->memory);
}

/* The largest divisor of the global batch that fits: they are few. */
static int64_t largest_divisor(search *s, int64_t below)
{
    int64_t most = below < s->global ? below : s->global;
    for (int64_t batch = most / s->unit * s->unit; batch >= 1; batch -= s->unit)
        if (s->global % batch == 0 && fits(s, batch)) return batch;
    return 0;
}

/* Of two batches, in units, and their plans: where the memory ends, as the plan grows nearly as the batch does. 0: that
 * is not known. */
static int64_t guess(const search *s, int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes)
{
    if (s->memory <= 0 || a == b || (b_bytes - a_bytes) / (b - a) <= 0) return 0;
    return a + (s->memory - a_bytes) / ((b_bytes - a_bytes) / (b - a));
}

/* From a batch whose plan is known, or one: another batch, what both say and its neighbours; then the gap is halved,
 * from twice as many where there is no end yet. */
static int64_t largest(search *s, int64_t below, int64_t known, int64_t known_bytes)
{
    int64_t good = 0, bad = below / s->unit + 1; /* in units */
    int64_t first = known / s->unit, first_bytes = known_bytes, about = 0, tried = 0;
    if (first > 0 && first < bad && (s->memory <= 0 || known_bytes <= s->memory)) good = first;
    if (first > 0 && first < bad && good == 0) bad = first;
    for (; bad - good > 1; tried++) {
        int64_t n = good == 0                     ? 1
                    : about > good && about < bad ? about
                    : about == good && tried < 4  ? good + 1
                    : about == bad && tried < 4   ? bad - 1
                    : bad > below / s->unit       ? 2 * good
                                                  : good + (bad - good) / 2;
        if (n >= bad) n = bad - 1;
        if (fits(s, n * s->unit))
            good = n;
        else
            bad = n;
        if (first > 0 && !about && s->bytes > 0) about = guess(s, first, first_bytes, n, s->bytes);
        if (first == 0) {
            first = n;
            first_bytes = s->bytes;
        }
    }
    return good * s->unit;
}

/* Two steps of it in a process of its own, which may die of it. */
static tm_status prove(const search *s, int64_t batch, bool *runs, tm_error *err)
{
    char       word[200], *more[] = { word,
                                      (char *)"--training.steps=2",
                                      (char *)"--checkpoint.enable=false",
                                      (char *)"--validation.enable=false",
                                      (char *)"--debug.certificate=false",
                                      (char *)"--store.path=none" };
    tm_scratch scratch;
    child_end  end;
    name_word(s, batch, word);
    TM_TRY(tm_scratch_make("trainmark-batch", &scratch, err));
    tm_text folder = { 0 };
    tm_text_printf(&folder, "%s/run", scratch.path);
    tm_status st = sweep_start(s->options, more, sizeof more / sizeof more[0], folder.data, NULL, &end, err);
    tm_text_fini(&folder);
    tm_scratch_remove(&scratch);
    TM_TRY(st);
    *runs = end.code == 0;
    if (*runs || end.nomem) return TM_OK;
    return tm_fail(err,
                   end.code == 4   ? TM_INVALID
                   : end.code == 3 ? TM_NUMBERS
                                   : TM_INTERNAL,
                   "%s auto: two steps with a batch of %lld ended with exit code %d:\n%s", key, (long long)batch,
                   end.code, end.words);
}

static search search_of(const tm_sweep_options *options)
{
    const char *const global_key = "training.global_batch_size";
    const tm_config  *config = options->config;
    search            s = { .options = options, .memory = sweep_memory(options), .unit = 1 };
    if (tm_config_is_set(config, global_key)) s.global = tm_config_i64(config, global_key);
    if (has_parts(config)) s.unit = tm_config_i64(config, part_key);
    s.most = has_parts(config) && s.unit * MOST_PARTS < MOST ? s.unit * MOST_PARTS : MOST;
    return s;
}

tm_status tm_cli_largest_batch(const tm_sweep_options *options, int64_t now, int64_t bytes, int64_t most,
                               int64_t *batch, tm_error *refused, tm_error *err)
{
    search s = search_of(options);
    if (most > s.most) most = s.most;
    *batch = s.global > 0 ? largest_divisor(&s, most) : largest(&s, most, now, bytes);
    *refused = s.refused;
    return *batch == 0 && s.why.status != TM_OK ? tm_fail(err, s.why.status, "%s", s.why.text) : TM_OK;
}

tm_status tm_cli_find_batch(const tm_sweep_options *options, int64_t *batch, tm_error *err)
{
    search     s = search_of(options);
    const bool parts = has_parts(options->config);
    bool       runs = false;
    for (int64_t below = s.most; !runs; below = *batch - (*batch + 15) / 16) {
        *batch = below < 1 ? 0 : s.global > 0 ? largest_divisor(&s, below) : largest(&s, below, 0, 0);
        if (*batch == 0 && s.why.status != TM_OK) return tm_fail(err, s.why.status, "%s", s.why.text);
        if (*batch == 0) {
            char have[32];
            return tm_fail(err, TM_NOMEM,
                           "%s auto: not even %s%s fits into %s; use a smaller model or a shorter "
                           "training.seq_len",
                           key, parts ? "one micro-batch of " : "one sequence", parts ? part_key : "",
                           tm_format_bytes(have, (double)s.memory));
        }
        if (options->dry_run) break;
        TM_TRY(prove(&s, *batch, &runs, err));
        if (!runs)
            tm_note("a batch of %lld should fit by the plan, but did not run: trying a smaller one", (long long)*batch);
    }
    if (parts && s.global == 0 && *batch == s.most)
        tm_note(
            "%s auto: more than %lld are not tried; with %s the memory of a plan hardly grows with the batch, which "
            "training.global_batch_size can limit",
            key, (long long)s.most, part_key);
    tm_note("%s auto: %lld", key, (long long)*batch);
    return TM_OK;
}

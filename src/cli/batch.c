/* SPDX-License-Identifier: Apache-2.0 */
/* cli/batch.c - training.local_batch_size auto: the largest batch whose plan fits, proven by two steps of it. */
#include "base/lock.h"
#include "base/log.h"
#include "cli/sweep_plan.h"

#include <stdio.h>
#include <string.h>

static const char key[] = "training.local_batch_size", part_key[] = "parallelism.pipeline_parallel_microbatch_size";
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
    int64_t                 unit;   /* batches are multiples of it */
    int64_t                 global; /* sequences of a step; 0: as many as the batch */
    tm_error                why;    /* the last plan that could not be made */
} search;

static void name_word(const search *s, int64_t batch, char word[200])
{
    size_t                n;
    const tm_config_axis *axes = tm_config_axes(s->options->config, &n);
    snprintf(word, 200, "--%.150s=%lld", axes[0].key, (long long)batch);
}

/* Does its plan fit? */
static bool fits(search *s, int64_t batch)
{
    char    word[200], *more[] = { word };
    int64_t bytes = 0;
    if (s->global > 0 && s->global % batch != 0) return false;
    name_word(s, batch, word);
    s->why = (tm_error){ 0 };
    return sweep_plan_bytes(s->options, more, 1, &bytes, &s->why) == TM_OK && (s->memory <= 0 || bytes <= s->memory);
}

/* The largest divisor of the global batch that fits: they are few. */
static int64_t largest_divisor(search *s, int64_t below)
{
    int64_t most = below < s->global ? below : s->global;
    for (int64_t batch = most / s->unit * s->unit; batch >= 1; batch -= s->unit)
        if (s->global % batch == 0 && fits(s, batch)) return batch;
    return 0;
}

/* Doubles until it does not fit, then halves the gap: the plan grows with the batch. */
static int64_t largest(search *s, int64_t below)
{
    int64_t good = 0, bad = below / s->unit + 1; /* in units */
    for (int64_t n = 1; n < bad; n *= 2) {
        if (!fits(s, n * s->unit)) {
            bad = n;
            break;
        }
        good = n;
    }
    while (bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        if (fits(s, middle * s->unit))
            good = middle;
        else
            bad = middle;
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

tm_status tm_cli_find_batch(const tm_sweep_options *options, int64_t *batch, tm_error *err)
{
    const char *const global_key = "training.global_batch_size";
    const tm_config  *config = options->config;
    search            s = { .options = options, .memory = sweep_memory(options), .unit = 1 };
    if (tm_config_is_set(config, global_key)) s.global = tm_config_i64(config, global_key);
    const bool parts = has_parts(config);
    if (parts) s.unit = tm_config_i64(config, part_key);
    const int64_t most = parts && s.unit * MOST_PARTS < MOST ? s.unit * MOST_PARTS : MOST;
    bool          runs = false;
    for (int64_t below = most; !runs; below = *batch - (*batch + 15) / 16) {
        *batch = below < 1 ? 0 : s.global > 0 ? largest_divisor(&s, below) : largest(&s, below);
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
    if (parts && s.global == 0 && *batch == most)
        tm_note(
            "%s auto: more than %lld are not tried; with %s the memory of a plan hardly grows with the batch, which "
            "training.global_batch_size can limit",
            key, (long long)most, part_key);
    tm_note("%s auto: %lld", key, (long long)*batch);
    return TM_OK;
}

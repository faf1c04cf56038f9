/* SPDX-License-Identifier: Apache-2.0 */
/* cli/scaling.c - one experiment on several numbers of ranks, and their table. */
#include "cli/scaling.h"

#include "base/cpu.h"
#include "base/file.h"
#include "base/lock.h"
#include "cli/sweep_plan.h"
#include "record/table.h"
#include "results/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MOST: ranks on one machine; JUDGED: steps whose losses have to be equal. */
enum { MOST_SIZES = 16, MOST = 256, JUDGED = 50 };
static const double loss_bound = 1e-5; /* relative, in float32: what docs/parallelism.md promises of every layout */

static const tm_column columns[] = {
    { "ranks", 0 },
    { "threads", 0 },
    { "global_batch", 0 },
    { "tokens_per_second", 0 },
    { "tokens_per_second_per_rank", 0 },
    { "speedup", 3 },
    { "scaling_efficiency_pct", 3 },
    { "loss", 5 },
    { "loss_difference", 2 },
    { "losses_equal", 0 },
    { "verdict", 0 },
    { "status", 0 },
    { "exit_code", 0 },
};

typedef struct {
    int        ranks;
    child_end  end;
    tm_result *result; /* NULL: it failed */
    double     rate;   /* tokens/s of one rank */
} size_run;

typedef struct {
    const tm_scaling_options *options;
    size_run                  runs[MOST_SIZES];
    int                       n, done;
    int64_t                   threads, batch, local; /* of a rank; of a step on one rank; of a micro-batch */
    tm_arena                 *arena;
} scaling;

/* --- which sizes -------------------------------------------------------------------------------------------------- */

static tm_status read_sizes(scaling *s, tm_error *err)
{
    const char *at = s->options->sizes;
    char       *end;
    for (s->n = 0; s->n < MOST_SIZES; at = end + 1) {
        long ranks = strtol(at, &end, 10);
        if (end == at || ranks < 1 || ranks > MOST || (*end && *end != ',')) break;
        for (int i = 0; i < s->n; i++)
            if (s->runs[i].ranks == ranks) return tm_fail(err, TM_USAGE, "--scaling has %ld twice", ranks);
        s->runs[s->n++].ranks = (int)ranks;
        if (!*end) return TM_OK;
    }
    return tm_fail(err, TM_USAGE, "--scaling takes up to %d numbers of ranks, 1 to %d each, as in 1,2,4; found '%s'",
                   MOST_SIZES, MOST, s->options->sizes);
}

/* Every rank of every size has as many threads, so that more ranks are more of the same. */
static int64_t threads_of(const scaling *s)
{
    int64_t given = tm_config_i64(s->options->run.config, "training.threads"), largest = 1;
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].ranks > largest) largest = s->runs[i].ranks;
    int64_t share = tm_cpu_threads_allowed() / largest;
    return given > 0 ? given : share > 0 ? share : 1;
}

/* The same samples on more ranks: the largest micro-batch, up to that of the experiment, of which every rank has a
 * whole number. */
static tm_status strong_words(const scaling *s, int ranks, char **words, int *n, tm_error *err)
{
    int64_t local = s->local;
    if (s->batch % ranks != 0)
        return tm_fail(err, TM_INVALID,
                       "a step of %lld sequences cannot be divided among %d ranks; set "
                       "training.global_batch_size to a multiple",
                       (long long)s->batch, ranks);
    while (s->batch / ranks % local != 0) local--;
    words[(*n)++] = tm_arena_format(s->arena, "--training.global_batch_size=%lld", (long long)s->batch);
    words[(*n)++] = tm_arena_format(s->arena, "--training.local_batch_size=%lld", (long long)local);
    if (tm_config_is_set(s->options->run.config, "training.grad_accumulation"))
        words[(*n)++] =
            tm_arena_format(s->arena, "--training.grad_accumulation=%lld", (long long)(s->batch / ranks / local));
    return TM_OK;
}

static tm_status words_for(const scaling *s, int ranks, char **words, int *n, tm_error *err)
{
    *n = 0;
    words[(*n)++] = tm_arena_format(s->arena, "--ranks=%d", ranks);
    words[(*n)++] = tm_arena_format(s->arena, "--training.threads=%lld", (long long)s->threads);
    if (s->options->strong) return strong_words(s, ranks, words, n, err);
    if (tm_config_is_set(s->options->run.config, "training.global_batch_size"))
        words[(*n)++] =
            tm_arena_format(s->arena, "--training.global_batch_size=%lld", (long long)s->batch * (long long)ranks);
    return TM_OK;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* The largest relative difference of the losses of the first steps. NAN: they have no step in common. */
static double loss_difference(const tm_result *a, const tm_result *b)
{
    size_t                n, m;
    const tm_result_step *x = tm_result_steps(a, &n), *y = tm_result_steps(b, &m);
    double                most = (double)NAN;
    for (size_t i = 0; i < n && i < m && i < JUDGED; i++) {
        double apart = fabs(y[i].loss - x[i].loss) / fabs(x[i].loss);
        if (!isfinite(apart)) return HUGE_VAL;
        if (isnan(most) || apart > most) most = apart;
    }
    return most;
}

static const size_run *base_of(const scaling *s)
{
    for (int i = 0; i < s->done; i++)
        if (s->runs[i].result) return &s->runs[i];
    return NULL;
}

/* Are losses promised to be equal? Other batches and other formats have others. */
static bool judges_losses(const scaling *s)
{
    return s->options->strong && strcmp(tm_config_text(s->options->run.config, "training.dtype"), "float32") == 0;
}

static void fill_losses(const scaling *s, const size_run *run, const size_run *base, tm_table *table)
{
    size_t                n;
    const tm_result_step *steps = tm_result_steps(run->result, &n);
    if (n > 0) tm_table_f64(table, "loss", steps[n - 1].loss);
    if (!s->options->strong || run == base) return;
    double apart = loss_difference(base->result, run->result);
    tm_table_f64(table, "loss_difference", isfinite(apart) ? apart : (double)NAN);
    if (judges_losses(s)) tm_table_bool(table, "losses_equal", apart <= loss_bound);
}

static void fill_row(const scaling *s, const size_run *run, const size_run *base, tm_table *table)
{
    tm_table_row(table);
    tm_table_i64(table, "ranks", run->ranks);
    tm_table_text(table, "status", run->result ? "done" : run->end.nomem ? "does not fit" : "failed");
    tm_table_i64(table, "exit_code", run->end.code);
    if (!run->result) {
        tm_table_note(table, "%d rank%s: %s", run->ranks, run->ranks > 1 ? "s" : "",
                      run->end.words[0] ? run->end.words : "ended without a word");
        return;
    }
    tm_table_i64(table, "threads", (int64_t)s->threads);
    tm_table_i64(table, "global_batch",
                 (int64_t)strtoll(tm_result_shown(run->result, "configuration/training.global_batch_size"), NULL, 10));
    tm_table_f64(table, "tokens_per_second", run->rate * run->ranks);
    tm_table_f64(table, "tokens_per_second_per_rank", run->rate);
    tm_table_f64(table, "speedup", run->rate * run->ranks / (base->rate * base->ranks));
    tm_table_f64(table, "scaling_efficiency_pct", 100 * (run->rate / base->rate));
    tm_table_text(table, "verdict", tm_result_string(run->result, "verdict"));
    fill_losses(s, run, base, table);
}

static tm_table *make_table(const scaling *s)
{
    static const char *const brief[] = { "ranks",       "tokens_per_second", "scaling_efficiency_pct",
                                         "status",      "speedup",           "verdict",
                                         "loss",        "losses_equal",      "threads",
                                         "global_batch" };
    tm_table                *table = tm_table_create("scaling");
    const size_run          *base = base_of(s);
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    tm_table_brief(table, brief, sizeof brief / sizeof brief[0]);
    for (int i = 0; i < s->done; i++) fill_row(s, &s->runs[i], base, table);
    if (base)
        tm_table_note(table, "efficiency: tokens/s of a rank, of that of a rank of %d; %s", base->ranks,
                      s->options->strong ? "strong scaling: every size has the same global batch"
                                         : "weak scaling: every rank has the same batch, so losses are not compared");
    return table;
}

static tm_status write_table(const scaling *s, const tm_table *table, tm_error *err)
{
    const char *folder = s->options->run.folder;
    TM_TRY(tm_table_write(table, tm_arena_format(s->arena, "%s/scaling.json", folder), err));
    return tm_table_write(table, tm_arena_format(s->arena, "%s/scaling.csv", folder), err);
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static tm_status status_of(const child_end *end)
{
    return end->nomem       ? TM_NOMEM
           : end->code == 3 ? TM_NUMBERS
           : end->code == 4 ? TM_INVALID
           : end->code == 5 ? TM_NEGATIVE
                            : TM_INTERNAL;
}

static tm_status train(scaling *s, size_run *run, tm_error *failure, tm_error *err)
{
    const char *folder = tm_arena_format(s->arena, "%s/ranks-%d", s->options->run.folder, run->ranks);
    const char *log = tm_arena_format(s->arena, "%s/ranks-%d.txt", s->options->run.folder, run->ranks);
    char       *words[8];
    int         n;
    tm_error    own = { 0 };
    tm_status   st = words_for(s, run->ranks, words, &n, &own);
    if (st != TM_OK) {
        run->end.code = tm_status_exit_code(st);
        snprintf(run->end.words, sizeof run->end.words, "%.600s", own.text);
    } else {
        fprintf(stderr, "scaling: %d rank%s, %lld thread%s each\n", run->ranks, run->ranks > 1 ? "s" : "",
                (long long)s->threads, s->threads > 1 ? "s" : "");
        TM_TRY(sweep_start(&s->options->run, words, n, folder, log, &run->end, err));
        if (run->end.code == 130) return tm_fail(err, TM_INTERRUPTED, "interrupted");
        if (run->end.code == 0) st = tm_result_load(folder, NULL, &run->result, &own);
        if (st != TM_OK) snprintf(run->end.words, sizeof run->end.words, "%.600s", own.text);
    }
    if (run->result) run->rate = tm_result_number(run->result, "tokens_per_second_per_device/median");
    if (!run->result)
        (void)tm_fail(failure, status_of(&run->end), "on %d rank%s the run ended with exit code %d; see %s", run->ranks,
                      run->ranks > 1 ? "s" : "", run->end.code, log);
    return TM_OK;
}

static tm_status judge(const scaling *s, tm_error *err)
{
    const size_run *base = base_of(s);
    for (int i = 0; i < s->n && base && judges_losses(s); i++) {
        if (!s->runs[i].result || &s->runs[i] == base) continue;
        double apart = loss_difference(base->result, s->runs[i].result);
        if (apart <= loss_bound) continue;
        if (!isfinite(apart))
            return tm_fail(err, TM_NEGATIVE,
                           "losses of %d and %d ranks cannot be compared: no step in common, or one that is 0 or not "
                           "finite",
                           base->ranks, s->runs[i].ranks);
        return tm_fail(err, TM_NEGATIVE,
                       "losses of %d and %d ranks differ by %.2g in the first %d steps, more than %.0e of them",
                       base->ranks, s->runs[i].ranks, apart, JUDGED, loss_bound);
    }
    return TM_OK;
}

static tm_status print(const scaling *s, const tm_table *table, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, s->options->json, s->options->run.verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status train_all(scaling *s, tm_error *err)
{
    tm_error failure = { 0 };
    for (s->done = 0; s->done < s->n;) {
        TM_TRY(train(s, &s->runs[s->done], &failure, err));
        s->done++;
        tm_table *table = make_table(s);
        tm_status st = write_table(s, table, err);
        if (st == TM_OK && s->done == s->n) st = print(s, table, err);
        tm_table_destroy(table);
        TM_TRY(st);
    }
    if (failure.status != TM_OK) return tm_fail(err, failure.status, "%s", failure.text);
    return judge(s, err);
}

static tm_status run_locked(scaling *s, tm_error *err)
{
    tm_folder_lock lock = { .fd = -1, .folder = -1 };
    TM_TRY(tm_folder_make(s->options->run.folder, err));
    TM_TRY(tm_folder_lock_take(s->options->run.folder, &lock, err));
    tm_status st = train_all(s, err);
    tm_folder_lock_release(&lock);
    return st;
}

tm_status tm_cli_scaling(const tm_scaling_options *options, tm_error *err)
{
    scaling s = { .options = options };
    TM_TRY(read_sizes(&s, err));
    s.threads = threads_of(&s);
    s.local = tm_config_i64(options->run.config, "training.local_batch_size");
    s.batch = tm_config_i64(options->run.config, "training.global_batch_size");
    s.arena = tm_arena_create();
    tm_status st = run_locked(&s, err);
    for (int i = 0; i < s.n; i++) tm_result_destroy(s.runs[i].result);
    tm_arena_destroy(s.arena);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/sweep.c - every combination of the axes, one run after the other, and their summary. */
#include "base/clock.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/lock.h"
#include "cli/sweep_plan.h"
#include "record/table.h"
#include "results/result.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 10000, WARMUP_STEPS = 5, TAIL = 10, SUMMARY_LIMIT = 64 << 20, MOST_AXES = 64 };

static const char batch_row[] = "training.local_batch_size";

typedef enum { NOT_RUN, SUCCESS, OOM, OOM_SKIPPED, ERROR, STATES } run_state;
static const char *const state_names[STATES] = { "not_run", "success", "oom", "oom-skipped", "error" };

typedef struct {
    int         number; /* from 1 */
    const char *name;
    const char *values[MOST_AXES];
    run_state   state;
    bool        earlier; /* done by an earlier call */
    tm_text     line;    /* of the summary, without line feed; empty: not run */
} sweep_run;

typedef struct {
    const tm_sweep_options *options;
    const tm_config_axis   *axes;
    size_t                  n_axes;
    sweep_run              *runs;
    int                     n;
    tm_arena               *arena;
} sweep;

/* --- the runs ----------------------------------------------------------------------------------------------------- */

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* "local_batch_size=4_seq_len=128": for files, so that nothing but letters, digits and .-+=_ is in it. */
static const char *name_of(const sweep *s, const sweep_run *run)
{
    tm_text text = { 0 };
    for (size_t i = 0; i < s->n_axes; i++)
        tm_text_printf(&text, "%s%s=%s", i ? "_" : "", last_part(s->axes[i].key), run->values[i]);
    for (char *c = text.data; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-+=_", *c)) *c = '-';
    if (text.length > 150) text.data[150] = '\0';
    const char *name = tm_arena_text(s->arena, text.data);
    tm_text_fini(&text);
    return name;
}

/* The last axis is the fastest. */
static tm_status make_runs(sweep *s, tm_error *err)
{
    int64_t n = 1;
    for (size_t i = 0; i < s->n_axes; i++) n = n > MOST_RUNS ? n : n * (int64_t)s->axes[i].n;
    if (n > MOST_RUNS || s->n_axes > MOST_AXES)
        return tm_fail(err, TM_INVALID, "the lists of this experiment (%s: '%s', ...) make more than %d runs",
                       s->axes[0].place, s->axes[0].key, MOST_RUNS);
    s->n = (int)n;
    s->runs = tm_arena_take(s->arena, (size_t)n * sizeof *s->runs);
    for (int r = 0; r < s->n; r++) {
        int rest = r;
        for (size_t i = s->n_axes; i-- > 0;) {
            s->runs[r].values[i] = s->axes[i].values[rest % (int)s->axes[i].n];
            rest /= (int)s->axes[i].n;
        }
        s->runs[r].number = r + 1;
        s->runs[r].name = name_of(s, &s->runs[r]);
    }
    return TM_OK;
}

/* Equal but for a smaller batch, and that did not fit. */
static bool is_hopeless(const sweep *s, const sweep_run *run)
{
    for (const sweep_run *other = s->runs; other < run; other++) {
        bool smaller = false, same = true;
        for (size_t i = 0; i < s->n_axes; i++) {
            bool batch = strcmp(s->axes[i].row, batch_row) == 0;
            if (batch)
                smaller = strtoll(other->values[i], NULL, 10) < strtoll(run->values[i], NULL, 10);
            else
                same = same && strcmp(other->values[i], run->values[i]) == 0;
        }
        if (same && smaller && (other->state == OOM || other->state == OOM_SKIPPED)) return true;
    }
    return false;
}

/* --- the summary -------------------------------------------------------------------------------------------------- */

static void add_header(const sweep *s, tm_text *out)
{
    static const char *const before[] = { "run_id", "run_name", "timestamp" }, *const after[] = { "total_elapsed_time",
                                                                                                  "avg_loss",
                                                                                                  "std_loss",
                                                                                                  "avg_loss_tail",
                                                                                                  "std_loss_tail",
                                                                                                  "avg_step_time_total",
                                                                                                  "std_step_time_total",
                                                                                                  "avg_step_time_gpu",
                                                                                                  "std_step_time_gpu",
                                                                                                  "avg_fps_gpu",
                                                                                                  "std_fps_gpu",
                                                                                                  "avg_tflops",
                                                                                                  "std_tflops",
                                                                                                  "num_samples",
                                                                                                  "status",
                                                                                                  "git_hash",
                                                                                                  "git_user",
                                                                                                  "tokens_per_second",
                                                                                                  "verdict",
                                                                                                  "exit_code" };
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) tm_csv_add(out, before[i], i == 0);
    for (size_t i = 0; i < s->n_axes; i++) tm_csv_add(out, s->axes[i].key, false);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) tm_csv_add(out, after[i], false);
}

static void add_number(tm_text *out, double value)
{
    char text[32];
    tm_csv_add(out, isfinite(value) ? tm_format_double(text, value) : "", false);
}

typedef struct {
    double  sum, squares;
    int64_t n;
} moments;

static void take(moments *m, double value)
{
    if (!isfinite(value)) return;
    m->sum += value;
    m->squares += value * value;
    m->n++;
}

static void add_moments(tm_text *out, const moments *m)
{
    double n = (double)m->n, mean = m->sum / n, spread = m->squares / n - mean * mean;
    add_number(out, m->n ? mean : (double)NAN);
    add_number(out, m->n > 1 ? sqrt(spread > 0 ? spread : 0) : (double)NAN);
}

/* Tokens of a sample: of an image where there are images, else of a sequence. */
static double sample_tokens(const tm_result *result)
{
    double      images = tm_result_number(result, "images_per_second_per_device/median");
    const char *length = tm_result_shown(result, "configuration/training.seq_len");
    if (images > 0) return tm_result_number(result, "tokens_per_second_per_device/median") / images;
    return *length ? strtod(length, NULL) : (double)NAN;
}

/* avg_loss ... num_samples, of the steps after the warm-up. */
static void add_figures(const tm_result *result, tm_text *out)
{
    size_t                n = 0;
    const tm_result_step *steps = result ? tm_result_steps(result, &n) : NULL;
    moments               loss = { 0 }, tail = { 0 }, seconds = { 0 }, rate = { 0 }, flops = { 0 }, none = { 0 };
    double                per_token = result ? tm_result_flops(result, "titan") : (double)NAN;
    double                sample = result ? sample_tokens(result) : (double)NAN;
    size_t                first = n > WARMUP_STEPS ? WARMUP_STEPS : 0;
    for (size_t i = first; i < n; i++) {
        take(&loss, steps[i].loss);
        if (i + TAIL >= n) take(&tail, steps[i].loss);
        take(&seconds, steps[i].seconds);
        take(&rate, steps[i].tokens / sample / steps[i].seconds);
        take(&flops, per_token * steps[i].tokens / steps[i].seconds / 1e12);
    }
    add_moments(out, &loss);
    add_moments(out, &tail);
    add_moments(out, &seconds);
    add_moments(out, &none); /* of a GPU alone: not measured */
    add_moments(out, &rate);
    add_moments(out, &flops);
    add_number(out, (double)seconds.n);
}

static void add_line(const sweep *s, sweep_run *run, const child_end *end, const tm_result *result)
{
    char        number[24], now[32];
    const char *user = getenv("USER");
    tm_text    *out = &run->line;
    snprintf(number, sizeof number, "%04d", run->number);
    tm_csv_add(out, number, true);
    tm_csv_add(out, run->name, false);
    tm_csv_add(out, tm_wall_text(now), false);
    for (size_t i = 0; i < s->n_axes; i++) tm_csv_add(out, run->values[i], false);
    add_number(out, end ? end->seconds : (double)NAN);
    add_figures(result, out);
    tm_csv_add(out, state_names[run->state], false);
    const char *build = result ? tm_result_string(result, "environment/build/commit") : NULL;
    tm_csv_add(out, build ? build : "", false);
    tm_csv_add(out, user ? user : "", false);
    add_number(out, result ? tm_result_number(result, "tokens_per_second_per_device/median") : (double)NAN);
    const char *verdict = result ? tm_result_string(result, "verdict") : NULL;
    tm_csv_add(out, verdict ? verdict : "", false);
    add_number(out, end ? end->code : (double)NAN);
}

static const char *summary_path(const sweep *s)
{
    return tm_arena_format(s->arena, "%s/runs_summary.csv", s->options->folder);
}

static tm_status write_summary(const sweep *s, tm_error *err)
{
    tm_text text = { 0 };
    add_header(s, &text);
    tm_text_add(&text, "\n");
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].line.length) tm_text_printf(&text, "%s\n", s->runs[i].line.data);
    tm_status st = tm_file_write(summary_path(s), text.data, text.length, err);
    tm_text_fini(&text);
    return st;
}

/* What an earlier call has done: rows of the same names whose status is final. */
static tm_status read_summary(sweep *s, tm_error *err)
{
    enum { COLUMNS = MOST_AXES + 32 };
    tm_text   text = { 0 }, storage = { 0 }, header = { 0 };
    size_t    offsets[COLUMNS], n, status = 3 + s->n_axes + 14;
    tm_status st = TM_OK;
    if (!tm_file_exists(summary_path(s))) return TM_OK;
    TM_TRY(tm_file_read(summary_path(s), SUMMARY_LIMIT, &text, err));
    add_header(s, &header);
    const char *cursor = text.data;
    if (strncmp(cursor, header.data, header.length) != 0)
        st = tm_fail(err, TM_INVALID, "'%s' belongs to another sweep; name another directory with --out",
                     summary_path(s));
    for (const char *line = cursor; st == TM_OK && (n = tm_csv_read(&cursor, &storage, offsets, COLUMNS)) > 0;
         line = cursor) {
        int number = n > status ? atoi(storage.data) : 0;
        if (number < 1 || number > s->n) continue; /* the header, too */
        sweep_run *run = &s->runs[number - 1];
        for (int i = SUCCESS; i <= OOM_SKIPPED; i++) {
            bool same = strcmp(storage.data + offsets[1], run->name) == 0 &&
                        strcmp(storage.data + offsets[status], state_names[i]) == 0;
            if (!same) continue;
            run->state = (run_state)i;
            run->earlier = true;
            tm_text_add_n(&run->line, line, strcspn(line, "\r\n"));
        }
    }
    tm_text_fini(&text);
    tm_text_fini(&storage);
    tm_text_fini(&header);
    return st;
}

/* The folder belongs to one command: runs of another would be counted as its own. */
static tm_status claim(const sweep *s, tm_error *err)
{
    tm_text     words = { 0 }, there = { 0 };
    const char *path = tm_arena_format(s->arena, "%s/command.txt", s->options->folder);
    tm_status   st;
    tm_text_add(&words, "");
    for (int i = 0; i < s->options->argc; i++) tm_text_printf(&words, "%s\n", s->options->argv[i]);
    for (size_t i = 0; i < s->n_axes; i++) {
        tm_text_printf(&words, "%s:", s->axes[i].key);
        for (size_t k = 0; k < s->axes[i].n; k++) tm_text_printf(&words, " %s", s->axes[i].values[k]);
        tm_text_add(&words, "\n");
    }
    if (!tm_file_exists(path)) {
        st = tm_file_write(path, words.data, words.length, err);
    } else {
        st = tm_file_read(path, SUMMARY_LIMIT, &there, err);
        if (st == TM_OK && strcmp(there.data, words.data) != 0)
            st = tm_fail(err, TM_INVALID, "'%s' holds runs of another command (%s); name another directory with --out",
                         s->options->folder, path);
    }
    tm_text_fini(&words);
    tm_text_fini(&there);
    return st;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static char **override_words(const sweep *s, const sweep_run *run, int *n)
{
    const char *slash = strrchr(s->options->folder, '/');
    char      **words = tm_arena_take(s->arena, (s->n_axes + 2) * sizeof *words);
    *n = 0;
    for (size_t i = 0; i < s->n_axes; i++)
        words[(*n)++] = tm_arena_format(s->arena, "--%s=%s", s->axes[i].key, run->values[i]);
    if (!tm_config_text(s->options->config, "store.label"))
        words[(*n)++] = tm_arena_format(s->arena, "--store.label=%s/%04d_%s", slash ? slash + 1 : s->options->folder,
                                        run->number, run->name);
    return words;
}

static tm_status report(const sweep *s, const sweep_run *run, const char *what, tm_error *err)
{
    tm_text text = { 0 };
    tm_text_printf(&text, "run %d of %d: %s: %s\n", run->number, s->n, run->name, what);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* The configuration that was run, beside its log. */
static tm_status copy_config(const sweep *s, const sweep_run *run, const char *folder, tm_error *err)
{
    tm_text     text = { 0 };
    const char *from = tm_arena_format(s->arena, "%s/config.yaml", folder);
    tm_status   st = TM_OK;
    if (tm_file_exists(from)) {
        st = tm_file_read(from, SUMMARY_LIMIT, &text, err);
        if (st == TM_OK)
            st = tm_file_write(
                tm_arena_format(s->arena, "%s/%04d_config_%s.yaml", s->options->folder, run->number, run->name),
                text.data, text.length, err);
    }
    tm_text_fini(&text);
    return st;
}

static tm_status train(sweep *s, sweep_run *run, tm_error *failure, tm_error *err)
{
    const char *folder = tm_arena_format(s->arena, "%s/%04d_%s", s->options->folder, run->number, run->name);
    const char *log = tm_arena_format(s->arena, "%s/%04d_logs_%s.txt", s->options->folder, run->number, run->name);
    child_end   end;
    tm_result  *result = NULL;
    tm_error    ignored = { 0 };
    int         n;
    char      **words = override_words(s, run, &n);
    TM_TRY(sweep_start(s->options, words, n, folder, log, &end, err));
    if (end.code == 130) return tm_fail(err, TM_INTERRUPTED, "interrupted; the same command continues from here");
    run->state = end.code == 0 ? SUCCESS : end.nomem ? OOM : ERROR;
    if (run->state != OOM && tm_result_load(folder, NULL, &result, &ignored) != TM_OK) result = NULL;
    add_line(s, run, &end, result);
    tm_result_destroy(result);
    if (run->state == ERROR)
        (void)tm_fail(failure,
                      end.code == 3   ? TM_NUMBERS
                      : end.code == 4 ? TM_INVALID
                                      : TM_INTERNAL,
                      "run %d (%s) ended with exit code %d; see %s", run->number, run->name, end.code, log);
    TM_TRY(copy_config(s, run, folder, err));
    TM_TRY(write_summary(s, err));
    return report(s, run, state_names[run->state], err);
}

static tm_status train_all(sweep *s, tm_error *err)
{
    tm_error failure = { 0 };
    for (int i = 0; i < s->n; i++) {
        sweep_run *run = &s->runs[i];
        if (run->earlier) {
            TM_TRY(report(s, run, "done already", err));
        } else if (is_hopeless(s, run)) {
            run->state = OOM_SKIPPED;
            add_line(s, run, NULL, NULL);
            TM_TRY(write_summary(s, err));
            TM_TRY(report(s, run, "skipped: a smaller batch did not fit", err));
        } else {
            TM_TRY(train(s, run, &failure, err));
        }
    }
    return failure.status == TM_OK ? TM_OK : tm_fail(err, failure.status, "%s", failure.text);
}

/* --- a plan of all of it ------------------------------------------------------------------------------------------ */

static tm_status list(const sweep *s, tm_error *err)
{
    tm_table *table = tm_table_create("sweep");
    tm_text   text = { 0 };
    int64_t   memory = sweep_memory(s->options);
    tm_table_column(table, "run_id", 0);
    for (size_t i = 0; i < s->n_axes; i++) tm_table_column(table, s->axes[i].key, 0);
    tm_table_column(table, "plan_bytes", 12);
    tm_table_column(table, "fits", 0);
    for (int r = 0; r < s->n; r++) {
        int      n;
        char   **words = override_words(s, &s->runs[r], &n);
        int64_t  bytes = 0;
        tm_error own = { 0 };
        tm_table_row(table);
        tm_table_i64(table, "run_id", r + 1);
        for (size_t i = 0; i < s->n_axes; i++) tm_table_text(table, s->axes[i].key, s->runs[r].values[i]);
        if (sweep_plan_bytes(s->options, words, n, &bytes, &own) == TM_OK) {
            tm_table_i64(table, "plan_bytes", bytes);
            tm_table_text(table, "fits", bytes <= memory || memory <= 0 ? "yes" : "no");
        } else {
            tm_table_text(table, "fits", "cannot be planned");
            tm_table_note(table, "run %d: %s", r + 1, own.text);
        }
    }
    tm_table_note(table, "%d runs; nothing was trained: --dry-run", s->n);
    tm_cli_add_table(table, false, s->options->verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    return st;
}

static tm_status run_sweep(sweep *s, tm_error *err)
{
    tm_folder_lock lock = { .fd = -1, .folder = -1 };
    TM_TRY(make_runs(s, err));
    if (s->options->dry_run) return list(s, err);
    TM_TRY(tm_folder_make(s->options->folder, err));
    TM_TRY(tm_folder_lock_take(s->options->folder, &lock, err));
    tm_status st = claim(s, err);
    if (st == TM_OK) st = read_summary(s, err);
    if (st == TM_OK) st = train_all(s, err);
    tm_folder_lock_release(&lock);
    return st;
}

tm_status tm_cli_sweep(const tm_sweep_options *options, tm_error *err)
{
    sweep s = { .options = options, .arena = tm_arena_create() };
    s.axes = tm_config_axes(options->config, &s.n_axes);
    tm_status st = run_sweep(&s, err);
    for (int i = 0; i < s.n; i++) tm_text_fini(&s.runs[i].line);
    tm_arena_destroy(s.arena);
    return st;
}

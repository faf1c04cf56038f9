/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/startup.c - from exec to the end of the first step: this program, started again and again as
 * `run MODEL --training.steps 1` (docs/bench-startup.md). */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/root.h"
#include "apps/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* clang-format off */
static const tm_key options[] = {
    { .name = "model", .kind = TM_KEY_TEXT, .fallback = "tiny-llama", .help = "model: a preset or an experiment file" },
    { .name = "arguments", .kind = TM_KEY_TEXT, .fallback = "",
      .help = "further arguments of `run`: \"training.seq_len=64 data.source=mock\"" },
    { .name = "runs", .kind = TM_KEY_I64, .fallback = "5", .lo = 1, .hi = 10000, .help = "number of starts of each kind" },
    { .name = "cache", .kind = TM_KEY_CHOICE, .fallback = "both", .choices = "warm|cold|both",
      .help = "cold: the page cache is dropped before each start, which needs root" },
};

static const tm_column columns[] = {
    { "host", 0 }, { "model", 0 }, { "cache", 0 }, { "threads", 0 }, { "first_step_s", 4 }, { "step_s", 4 },
    { "startup_s", 4 }, { "exit_s", 4 }, { "bytes_read", 0 }, { "bytes_from_disk", 0 }, { "resident_bytes", 0 },
    { "minor_faults", 0 }, { "major_faults", 0 }, { "executable_bytes", 0 }, { "skipped", 0 },
};
static const char *const brief[] = { "model", "cache", "startup_s", "first_step_s", "skipped", "step_s", "exit_s", "bytes_read", "bytes_from_disk", "resident_bytes" };
/* clang-format on */

enum { WARM, COLD, KINDS };

/* One start. Seconds; bytes. */
typedef struct {
    double first_step; /* exec to the end of the first step, by the child's clock and the system's start time */
    double step;       /* the first step itself */
    double exit;       /* spawn to the end of the process, by ours */
    double read, from_disk, resident, minor, major;
} start;

typedef struct {
    tm_bench  *bench;
    char      *argv[64];
    tm_scratch folder;
    char       out[4200], result[4300];
    int64_t    n[KINDS];
    start     *starts[KINDS];
} work;

/* --- one start ------------------------------------------------------------------------------- */

/* Executable, libraries and all else must come from the disk again. */
static tm_status drop_page_cache(tm_error *err)
{
    sync();
    return tm_root_write("", "/proc/sys/vm/drop_caches", "3")
               ? TM_OK
               : tm_fail(err, TM_IO, "cannot drop the page cache (/proc/sys/vm/drop_caches): %s", strerror(errno));
}

static tm_status spawn(const work *w, pid_t *pid, tm_error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    char log[4200];
    snprintf(log, sizeof log, "%s/log", w->folder.path);
    int words = tm_file_open_lock(log); /* of one start after the other */
    if (words >= 0 && ftruncate(words, 0) == 0) posix_spawn_file_actions_adddup2(&actions, words, STDERR_FILENO);
    int failed = posix_spawn(pid, "/proc/self/exe", &actions, NULL, w->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (words >= 0) close(words);
    return failed ? tm_fail(err, TM_IO, "cannot start /proc/self/exe: %s", strerror(failed)) : TM_OK;
}

/* A field of /proc/PID/io; NAN where it cannot be read. */
static double io_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? (double)strtoll(at + strlen(name), NULL, 10) : (double)NAN;
}

/* Waits for the end; the accounts of an ended process can be read until it is reaped. */
static tm_status reap(const work *w, pid_t pid, start *s, tm_error *err)
{
    char          path[64], log[4200], words[400] = "";
    siginfo_t     info;
    struct rusage usage;
    int           status;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    char  line[512] = "";
    FILE *f = fopen(path, "re");
    if (f) line[fread(line, 1, sizeof line - 1, f)] = '\0';
    if (f) fclose(f);
    s->read = io_field(line, "rchar: ");
    s->from_disk = io_field(line, "\nread_bytes: ");
    while (wait4(pid, &status, 0, &usage) != pid && errno == EINTR) continue;
    s->resident = (double)usage.ru_maxrss * 1024;
    s->minor = (double)usage.ru_minflt;
    s->major = (double)usage.ru_majflt;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return TM_OK;
    if (w->bench->stop && *w->bench->stop) return tm_fail(err, TM_INTERRUPTED, "stopped while a run was starting");
    snprintf(log, sizeof log, "%s/log", w->folder.path);
    (void)tm_file_read_line(log, words, sizeof words);
    if (WIFEXITED(status))
        return tm_fail(err, TM_INVALID, "the started run ended with exit code %d: %s", WEXITSTATUS(status), words);
    return tm_fail(err, TM_INTERNAL, "the started run was ended by signal %d: %s", WTERMSIG(status), words);
}

static tm_status read_result(const work *w, start *s, tm_error *err)
{
    json_error_t problem;
    json_t      *root = json_load_file(w->result, 0, &problem);
    if (!root) return tm_fail(err, TM_FORMAT, "%s: %s", w->result, problem.text);
    s->first_step = json_number_value(json_object_get(root, "first_step_seconds"));
    s->step = json_number_value(json_array_get(json_object_get(root, "step_seconds"), 0));
    json_decref(root);
    if (s->first_step > 0 && s->step > 0) return TM_OK;
    return tm_fail(err, TM_FORMAT, "%s has no first_step_seconds or no step_seconds", w->result);
}

static tm_status start_once(work *w, int kind, tm_error *err)
{
    start s;
    pid_t pid;
    if (kind == COLD) TM_TRY(drop_page_cache(err));
    int64_t begin = tm_now_ns();
    TM_TRY(spawn(w, &pid, err));
    TM_TRY(reap(w, pid, &s, err));
    s.exit = (double)(tm_now_ns() - begin) * 1e-9;
    TM_TRY(read_result(w, &s, err));
    tm_folder_remove(w->out);
    if (kind < KINDS) w->starts[kind][w->n[kind]++] = s;
    return TM_OK;
}

/* --- rows ------------------------------------------------------------------------------------ */

static double median_of(const work *w, int kind, size_t member)
{
    int64_t n = w->n[kind];
    double *x = tm_alloc((size_t)n * sizeof *x), median = (double)NAN;
    bool    known = true;
    for (int64_t i = 0; i < n; i++) {
        x[i] = *(const double *)((const char *)&w->starts[kind][i] + member);
        known = known && !isnan(x[i]);
    }
    if (known) median = tm_stats_median(x, n);
    free(x);
    return median;
}

static void start_row(const work *w, int kind)
{
    struct stat info;
    tm_table   *t = w->bench->table;
    tm_table_row(t);
    tm_table_text(t, "host", w->bench->host);
    tm_table_text(t, "model", tm_config_text(w->bench->options, "model"));
    tm_table_text(t, "cache", kind == COLD ? "cold" : "warm");
    tm_table_i64(t, "threads", w->bench->threads);
    if (stat("/proc/self/exe", &info) == 0) tm_table_i64(t, "executable_bytes", (int64_t)info.st_size);
}

static void put_row(const work *w, int kind)
{
    static const struct {
        const char *column;
        size_t      member;
    } medians[] = {
        { "first_step_s", offsetof(start, first_step) },
        { "step_s", offsetof(start, step) },
        { "exit_s", offsetof(start, exit) },
        { "bytes_read", offsetof(start, read) },
        { "bytes_from_disk", offsetof(start, from_disk) },
        { "resident_bytes", offsetof(start, resident) },
        { "minor_faults", offsetof(start, minor) },
        { "major_faults", offsetof(start, major) },
    };
    tm_table *t = w->bench->table;
    int64_t   n = w->n[kind];
    double   *seconds = tm_alloc((size_t)n * sizeof *seconds), *before = tm_alloc((size_t)n * sizeof *before);
    for (int64_t i = 0; i < n; i++) {
        seconds[i] = w->starts[kind][i].first_step;
        before[i] = seconds[i] - w->starts[kind][i].step;
    }
    for (size_t k = 0; k < sizeof medians / sizeof medians[0]; k++)
        tm_table_f64(t, medians[k].column, median_of(w, kind, medians[k].member));
    tm_table_f64(t, "startup_s", tm_stats_median(before, n));
    tm_interval       interval = tm_stats_median_interval(seconds, n);
    tm_sample_summary summary = { .n = n,
                                  .median = tm_stats_median(seconds, n),
                                  .p5 = tm_stats_percentile(seconds, n, 0.05),
                                  .p95 = tm_stats_percentile(seconds, n, 0.95),
                                  .variation = tm_stats_variation(seconds, n) };
    summary.half_width = (interval.hi - interval.lo) / 2 / summary.median;
    bool all = n == tm_config_i64(w->bench->options, "runs");
    tm_bench_put(t, &(tm_measurement){ .summary = summary,
                                       .calls = 1,
                                       .loops = 1,
                                       .stop = all ? TM_STOP_SAMPLES : TM_STOP_NO,
                                       .verdict = TM_VERDICT_NOT_JUDGED,
                                       .reason = "another process is measured" });
    free(seconds);
    free(before);
}

/* --- the workload ---------------------------------------------------------------------------- */

static bool wants(const work *w, int kind)
{
    const char *cache = tm_config_text(w->bench->options, "cache");
    return strcmp(cache, "both") == 0 || strcmp(cache, kind == COLD ? "cold" : "warm") == 0;
}

/* Warm and cold starts in turn; one before all that does not count fills the page cache. */
static tm_status take_starts(work *w, bool cold, tm_error *err)
{
    TM_TRY(start_once(w, KINDS, err));
    for (int64_t i = 0; i < tm_config_i64(w->bench->options, "runs") && tm_bench_left(w->bench) > 0; i++) {
        if (wants(w, WARM)) {
            if (i > 0 && cold) TM_TRY(start_once(w, KINDS, err)); /* the cold start took the libraries with it */
            TM_TRY(start_once(w, WARM, err));
        }
        if (cold) TM_TRY(start_once(w, COLD, err));
    }
    return w->bench->stop && *w->bench->stop ? tm_fail(err, TM_INTERRUPTED, "stopped between two starts") : TM_OK;
}

static tm_status measure(work *w, tm_error *err)
{
    int64_t  runs = tm_config_i64(w->bench->options, "runs");
    tm_error why = { 0 };
    bool     cold = wants(w, COLD) && drop_page_cache(&why) == TM_OK;
    for (int k = 0; k < KINDS; k++) w->starts[k] = tm_alloc((size_t)runs * sizeof *w->starts[k]);
    tm_status st = wants(w, WARM) || cold ? take_starts(w, cold, err) : TM_OK;
    for (int k = 0; k < KINDS && (st == TM_OK || st == TM_INTERRUPTED); k++) {
        if (!wants(w, k)) continue;
        start_row(w, k);
        if (w->n[k] > 0)
            put_row(w, k);
        else
            tm_table_text(w->bench->table, "skipped",
                          k == COLD && !cold ? why.text : "the budget ended before a start");
    }
    for (int k = 0; k < KINDS; k++) free(w->starts[k]);
    return st;
}

/* The command line, in place: words of `arguments` are cut out of `words`. */
static tm_status make_arguments(work *w, char *words, char threads[24], tm_error *err)
{
    enum { MOST = sizeof w->argv / sizeof w->argv[0] - 1 };
    const char *const fixed[] = { "trainmark",
                                  "run",
                                  tm_config_text(w->bench->options, "model"),
                                  "--training.steps",
                                  "1",
                                  "--training.stop_at_target=false",
                                  "--validation.enable=false",
                                  "--checkpoint.enable=false",
                                  "--debug.certificate=false",
                                  "--training.threads",
                                  threads,
                                  "--device",
                                  tm_config_text(w->bench->options, "device"),
                                  "--out",
                                  w->out };
    const size_t      own = sizeof fixed / sizeof fixed[0];
    size_t            n = 0;
    for (size_t i = 0; i < own; i++) w->argv[n++] = (char *)(size_t)fixed[i]; /* never written to */
    snprintf(threads, 24, "%d", w->bench->threads);
    for (char *rest = words, *word; (word = strsep(&rest, " "));) {
        if (!*word) continue;
        if (n == MOST) return tm_fail(err, TM_USAGE, "--arguments has more than %d words", (int)(MOST - own));
        w->argv[n++] = word;
    }
    w->argv[n] = NULL;
    return TM_OK;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    work    w = { .bench = bench };
    char    threads[24];
    tm_text words = { 0 };
    TM_TRY(tm_scratch_make("trainmark-startup", &w.folder, err));
    snprintf(w.out, sizeof w.out, "%s/run", w.folder.path);
    snprintf(w.result, sizeof w.result, "%s/result.json", w.out);
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(bench->table);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    tm_text_add(&words, tm_config_text(bench->options, "arguments"));
    tm_status st = make_arguments(&w, words.data, threads, err);
    if (st == TM_OK) st = measure(&w, err);
    tm_text_fini(&words);
    tm_scratch_remove(&w.folder);
    return st;
}

const tm_workload tm_workload_startup = {
    .name = "startup",
    .summary = "measure the time from exec to the end of the first training step, bytes read, resident size",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};

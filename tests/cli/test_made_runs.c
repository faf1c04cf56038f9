/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs of one command whose runs are made up: what a table of scaling, a sweep and the search for a batch ask
 * for and make of the ends, to the letter (tests/golden/whole-made-*.txt). The runs themselves: test_search.sh,
 * test_sweep.sh, test_scaling.sh. */
#include "support/test.h"
#include "base/cpu.h"
#include "cli/scaling.h"
#include "cli/sweep_plan.h"
#include "support/fake_clock.h"
#include "told.h"

#include <signal.h>

/* Everything happens at one time, and no disk is waited for. */
time_t time(time_t *out)
{
    if (out) *out = FAKE_WALL_S;
    return FAKE_WALL_S;
}

int fsync(int fd)
{
    (void)fd;
    return 0;
}

/* --- runs that are made up ---------------------------------------------------------------------------------------- */

/* How a run ends; with steps it leaves a result (-1: of none). */
typedef struct {
    int         code;
    bool        nomem;
    const char *words;
    double      rate; /* tokens/s of a device */
    int         batch, steps;
    double      apart; /* of the losses, relative, from step `from` on */
    int         from;
    const char *verdict;
} made_end;

static const made_end *script; /* one after the other; after the last: the last again */
static int             n_script, started;
static int64_t         bytes_of_one; /* a plan's bytes of each sequence; 0: as run number N has N of them */
static int64_t         most_planned; /* a larger batch cannot be planned; 0: any */
static int             plans;

static void write_result(const char *folder, const made_end *e)
{
    tm_text  result = { 0 }, metrics = { 0 };
    tm_error err = { 0 };
    char     path[300];
    tm_text_printf(
        &result,
        "{\"format\": \"trainmark.result/1\", \"verdict\": \"%s\", \"tokens_per_second_per_device\": {\"median\": "
        "%.17g}, \"flops\": [{\"convention\": \"6n\", \"per_token\": 1}, {\"convention\": \"titan\", "
        "\"per_token\": 2e9}], \"configuration\": {\"training.global_batch_size\": %d, "
        "\"training.seq_len\": 16}, \"environment\": {\"build\": {\"commit\": \"c0ffee\"}}}\n",
        e->verdict ? e->verdict : "valid", e->rate, e->batch);
    for (int i = 1; i <= e->steps; i++)
        tm_text_printf(&metrics, "{\"step\": %d, \"loss\": %.17g, \"tokens\": %d, \"seconds\": %.17g}\n", i,
                       (4 + 1.0 / i) * (e->from && i >= e->from ? 1 + e->apart : 1), 64 + i % 3, 0.25 + i % 4 * 0.125);
    assert_int_equal(tm_folder_make(folder, &err), TM_OK);
    snprintf(path, sizeof path, "%s/result.json", folder);
    assert_int_equal(tm_file_write(path, result.data, result.length, &err), TM_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (e->steps > 0) assert_int_equal(tm_file_write(path, metrics.data, metrics.length, &err), TM_OK);
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    assert_int_equal(tm_file_write(path, folder, strlen(folder), &err), TM_OK);
    tm_text_fini(&result);
    tm_text_fini(&metrics);
}

int64_t sweep_memory(const tm_sweep_options *o)
{
    return o->memory_bytes;
}

tm_status sweep_plan_bytes(const tm_sweep_options *o, char *const *more, int n, int64_t *bytes, tm_error *err)
{
    const char *value = strchr(more[0], '=');
    int64_t     batch = value ? strtoll(value + 1, NULL, 10) : 0;
    assert_true(n > 0 && o->argc >= 0);
    plans++;
    if (bytes_of_one == 0) {
        tm_text_printf(&told, "  plans");
        for (int i = 0; i < n; i++) tm_text_printf(&told, " %s", more[i]);
        tm_text_add(&told, "\n");
        batch = plans;
    }
    if (most_planned > 0 && batch > most_planned)
        return tm_fail(err, TM_INVALID, "%lld are too many", (long long)batch);
    *bytes = batch * (bytes_of_one ? bytes_of_one : 1000);
    return TM_OK;
}

tm_status sweep_start(const tm_sweep_options *o, char *const *more, int n, const char *folder, const char *log,
                      child_end *end, tm_error *err)
{
    const made_end *e = &script[started < n_script ? started : n_script - 1];
    bool            scratch = strstr(folder, "trainmark-batch") != NULL;
    started++;
    tm_text_printf(&told, "  starts");
    for (int i = 0; i < o->argc; i++) tm_text_printf(&told, " %s", o->argv[i]);
    tm_text_add(&told, " |");
    for (int i = 0; i < n; i++) tm_text_printf(&told, " %s", more[i]);
    tm_text_printf(&told, " | %s, log %s\n", scratch ? strrchr(folder, '/') : folder, log ? log : "none");
    *end = (child_end){ .code = e->code, .nomem = e->nomem, .seconds = 1.5 * started };
    snprintf(end->words, sizeof end->words, "%s", e->words ? e->words : "");
    if (e->steps != 0) write_result(folder, e);
    return e->code == -9 ? tm_fail(err, TM_IO, "it cannot be started") : TM_OK;
}

/* --- what is asked for -------------------------------------------------------------------------------------------- */

typedef struct {
    tm_cli_options cli;
    tm_arena      *arena;
    tm_config     *config;
    char          *argv[32];
    int            argc;
} asked;

/* "--a b --c" behind `run`. */
static void ask(asked *a, const char *words)
{
    tm_error err = { 0 };
    *a = (asked){ .cli = { .axes = true }, .arena = tm_arena_create() };
    char *rest = tm_arena_text(a->arena, words);
    a->argv[a->argc++] = (char *)"run";
    for (char *word; (word = strsep(&rest, " "));) a->argv[a->argc++] = word;
    tm_cli_line line = { .command = &tm_command_run,
                         .name = "run",
                         .argc = a->argc,
                         .argv = a->argv,
                         .options = &a->cli,
                         .arena = a->arena };
    line.words = tm_arena_take(a->arena, 40 * sizeof *line.words);
    if (tm_cli_configure(&line, "tiny-llama", false, &a->config, &err) != TM_OK) fail_msg("%s", err.text);
}

static void done(asked *a)
{
    tm_config_destroy(a->config);
    tm_arena_destroy(a->arena);
}

static void play(const made_end *ends, int n)
{
    script = ends, n_script = n, started = plans = 0;
    fake_clock_start(1000, 0);
}
#define PLAY(ends) play(ends, sizeof(ends) / sizeof(ends)[0])

/* --- scaling ------------------------------------------------------------------------------------------------------ */

static const char small[] = "--training.threads 3 --training.local_batch_size 4 --training.global_batch_size 24";

static void scale(const char *name, const char *words, const char *sizes, bool strong, bool json)
{
    asked    a;
    tm_error err = { 0 };
    char     path[100];
    ask(&a, words);
    char              *argv[] = { (char *)"--its", (char *)"words" };
    tm_scaling_options o = { .run = { .config = a.config, .argc = 2, .argv = argv, .folder = name },
                             .sizes = sizes,
                             .strong = strong,
                             .json = json };
    tm_text_printf(&told, "== %s: %s, %s\n", name, sizes, strong ? "strong" : "weak");
    told_begin();
    tm_status st = tm_cli_scaling(&o, &err);
    told_end(st, &err);
    snprintf(path, sizeof path, "%s/scaling.csv", name);
    told_file(path);
    done(&a);
}

static void tables_of_scaling(void **state)
{
    (void)state;
    static const made_end good[] = { { .rate = 100, .batch = 24, .steps = 3 },
                                     { .rate = 90, .batch = 48, .steps = 2, .verdict = "noisy" },
                                     { .rate = 60.5, .batch = 96, .steps = 4 } };
    PLAY(good), scale("weak", small, "1,2,4", false, false);
    PLAY(good), scale("json", "--training.threads 1 --training.local_batch_size 4", "2,4,1", false, true);
    PLAY(good), scale("strong", small, "1,2,4", true, false);
    PLAY(good),
        scale("accumulates", "--training.threads 1 --training.local_batch_size 4 --training.grad_accumulation 6",
              "1,2,8", true, false);
    /* Losses: the bound itself, one above it, only behind the steps that count, and of other formats. */
    static const made_end at[] = { { .rate = 1, .steps = 60 },
                                   { .rate = 1, .steps = 60, .apart = 0.99e-5, .from = 50 } };
    static const made_end above[] = { { .rate = 1, .steps = 60 },
                                      { .rate = 1, .steps = 60, .apart = 1.01e-5, .from = 50 } };
    static const made_end below[] = { { .rate = 1, .steps = 60 },
                                      { .rate = 1, .steps = 50, .apart = -3e-5, .from = 2 } };
    static const made_end late[] = { { .rate = 1, .steps = 60 }, { .rate = 1, .steps = 60, .apart = 1, .from = 51 } };
    static const made_end zero[] = { { .rate = 1, .steps = 3, .apart = -1, .from = 2 }, { .rate = 1, .steps = 3 } };
    static const made_end empty[] = { { .rate = 1, .steps = 3 }, { .rate = 1, .steps = -1 } };
    PLAY(at), scale("at", small, "1,2", true, false);
    PLAY(above), scale("above", small, "1,2", true, false);
    PLAY(below), scale("below", small, "1,2", true, false);
    PLAY(late), scale("late", small, "1,2", true, false);
    PLAY(zero), scale("zero", small, "1,2", true, false);
    PLAY(empty), scale("empty", small, "1,2", true, false);
    PLAY(above), scale("bfloat16", "--training.threads 1 --training.local_batch_size 4 --training.dtype bfloat16",
                       "1,2", true, false);
    PLAY(above), scale("weak-losses", small, "1,2", false, false);
    /* Failures of every kind; the base is the first that ran. */
    static const made_end bad[] = { { .code = 4, .nomem = true, .words = "out of memory" },
                                    { .rate = 10, .batch = 8, .steps = 1 },
                                    { .code = -1 },
                                    { .code = 3, .words = "numbers" } };
    PLAY(bad), scale("bad", small, "1,2,3,4", false, false);
    for (int code = 1; code <= 6; code++) {
        char     name[24];
        made_end one[] = { { .code = code, .words = "why" } };
        snprintf(name, sizeof name, "code-%d", code);
        PLAY(one), scale(name, small, "2", false, false);
    }
    static const made_end none[] = { { .code = 0 } };
    PLAY(none), scale("without", small, "1", false, false);
    static const made_end stopped[] = { { .rate = 1, .steps = 1 }, { .code = 130 } };
    PLAY(stopped), scale("stopped", small, "1,2,4", false, false);
    static const made_end never[] = { { .code = -9 } };
    PLAY(never), scale("never", small, "1", false, false);
    PLAY(good), scale("uneven", small, "5,2,7", true, false);
    told_is("tests/golden/whole-made-scaling.txt");
}

/* Processors are shared among the ranks of the largest size, unless the experiment says how many. */
static void threads_of_ranks(void **state)
{
    static const made_end good[] = { { .rate = 1, .steps = 1 } };
    char                  wanted[80];
    (void)state;
    int allowed = tm_cpu_threads_allowed();
    for (int ranks = 1; ranks <= 256; ranks *= 16) {
        char sizes[24];
        snprintf(sizes, sizeof sizes, "1,%d", ranks + 1 > 256 ? 256 : ranks + 1);
        int share = allowed / (ranks + 1 > 256 ? 256 : ranks + 1);
        PLAY(good), scale("threads", "--training.local_batch_size 4", sizes, false, false);
        snprintf(wanted, sizeof wanted, "| --ranks=1 --training.threads=%d | threads/ranks-1, log",
                 share > 0 ? share : 1);
        assert_non_null(strstr(told.data, wanted));
        tm_text_fini(&told);
        told = (tm_text){ 0 };
    }
}

/* --- sweeps ------------------------------------------------------------------------------------------------------- */

static tm_status sweep_of(const char *folder, const char *words, bool dry_run, int64_t memory, const char *argument)
{
    asked    a;
    tm_error err = { 0 };
    char     path[100];
    ask(&a, words);
    char            *argv[] = { (char *)argument };
    tm_sweep_options o = {
        .config = a.config, .argc = 1, .argv = argv, .folder = folder, .dry_run = dry_run, .memory_bytes = memory
    };
    tm_text_printf(&told, "== %s: %s\n", folder, words);
    told_begin();
    tm_status st = tm_cli_sweep(&o, &err);
    told_end(st, &err);
    snprintf(path, sizeof path, "%s/runs_summary.csv", folder);
    if (!dry_run) told_file(path);
    done(&a);
    return st;
}

static const char axes[] = "--training.local_batch_size=[2,4,8] --optimizer.lr=[1e-3,0.002]";

static void sweeps_are_summed_up(void **state)
{
    (void)state;
    static const made_end ends[] = { { .rate = 100, .batch = 2, .steps = 17 },
                                     { .code = 4, .nomem = true, .steps = 2, .rate = 7 },
                                     { .code = 3, .words = "numbers", .steps = 5, .rate = 3, .verdict = "invalid" },
                                     { .rate = 120.5, .batch = 8, .steps = 6 } };
    PLAY(ends), sweep_of("runs/many", axes, false, 0, "--word");
    told_file("runs/many/command.txt");
    told_file("runs/many/0001_config_local_batch_size=2_lr=0.001.yaml");
    told_file("runs/many/0002_config_local_batch_size=2_lr=0.002.yaml");
    /* Again: what has an end is not done again, what failed is. */
    static const made_end rest[] = { { .rate = 90, .batch = 4, .steps = 1 } };
    PLAY(rest), sweep_of("runs/many", axes, false, 0, "--word");
    PLAY(rest), sweep_of("runs/many", axes, false, 0, "--word");
    PLAY(rest), sweep_of("runs/many", axes, false, 0, "--other");
    PLAY(rest),
        sweep_of("runs/many", "--training.local_batch_size=[2,4,8] --optimizer.lr=[1e-3,0.003]", false, 0, "--word");
    /* Codes. */
    static const made_end codes[] = { { .code = 1 }, { .code = 4 }, { .code = 5 }, { .code = -1, .nomem = true } };
    PLAY(codes), sweep_of("codes", "--debug.seed=[1,2,3,4]", false, 0, "--word");
    static const made_end invalid[] = { { .code = 4 } };
    PLAY(invalid), sweep_of("code-4", "--debug.seed=[1]", false, 0, "--word");
    static const made_end stopped[] = { { .rate = 1, .steps = 1 }, { .code = 130 } };
    PLAY(stopped), sweep_of("stopped", "--debug.seed=[1,2,3]", false, 0, "--word");
    PLAY(rest), sweep_of("labelled", "--debug.seed=[1,2] --store.label mine", false, 0, "--word");
    /* Three axes with the batch in the middle: only what is alike but for it is hopeless. */
    static const made_end large[] = { { .code = 1, .nomem = true } };
    PLAY(large),
        sweep_of("large", "--debug.seed=[1,2] --training.local_batch_size=[8,2,16] --exp_name=[a,b]", false, 0, "-");
    told_is("tests/golden/whole-made-sweeps.txt");
}

/* Rows of a summary that are no run's are left out; what an editor made of its line ends does no harm. */
static void summaries_that_were_changed(void **state)
{
    (void)state;
    tm_error              err = { 0 };
    static const made_end good[] = { { .rate = 1, .steps = 1 } };
    PLAY(good), sweep_of("changed", "--debug.seed=[1,2,3]", false, 0, "--word");
    tm_text text = fake_read("changed/runs_summary.csv"), out = { 0 };
    int     number = 0;
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        int n = (int)(end - line);
        if (number == 0) tm_text_printf(&out, "%.*s\n", n, line);
        if (number == 1) tm_text_printf(&out, "%.*s\r\n", n, line);
        if (number == 2)
            tm_text_printf(&out, "0000%.*s\n0004%.*s\n-001%.*s\n0002,other%.*s\n", n - 4, line + 4, n - 4, line + 4,
                           n - 4, line + 4, n - 4, line + 4);
        if (number == 3) tm_text_printf(&out, "0003,debug\n%.*s\n", n, line);
    }
    assert_int_equal(tm_file_write("changed/runs_summary.csv", out.data, out.length, &err), TM_OK);
    tm_text_fini(&text);
    tm_text_fini(&out);
    PLAY(good), sweep_of("changed", "--debug.seed=[1,2,3]", false, 0, "--word");
    told_is("tests/golden/whole-made-summaries.txt");
}

static void plans_of_sweeps(void **state)
{
    (void)state;
    static const made_end none[] = { { .code = 1 } };
    PLAY(none), sweep_of("plan", axes, true, 3000, "--word");
    PLAY(none), sweep_of("plan", axes, true, 0, "--word");
    most_planned = 4;
    PLAY(none), sweep_of("a/plan", "--debug.seed=[1,2] --training.steps=[3,4,5]", true, 2999, "--word");
    most_planned = 0;
    assert_int_equal(started, 0);
    assert_false(tm_file_exists("plan"));
    told_is("tests/golden/whole-made-plans.txt");
}

/* --- the batch that fits ------------------------------------------------------------------------------------------ */

static void find(const char *words, int64_t memory, bool dry_run)
{
    asked    a;
    tm_error err = { 0 };
    int64_t  batch = -1;
    ask(&a, words);
    char            *argv[] = { (char *)"--word" };
    tm_sweep_options o = { .config = a.config, .argc = 1, .argv = argv, .dry_run = dry_run, .memory_bytes = memory };
    tm_text_printf(&told, "== in %lld: %s\n", (long long)memory, words);
    assert_true(tm_cli_wants_batch(a.config));
    told_begin();
    tm_status st = tm_cli_find_batch(&o, &batch, &err);
    printf("%lld after %d plans\n", (long long)batch, plans);
    told_end(st, &err);
    done(&a);
}

static void batches_are_found(void **state)
{
    (void)state;
    static const char     any[] = "--training.local_batch_size auto";
    static const made_end runs[] = { { .code = 0 } };
    bytes_of_one = 10;
    static const int64_t memories[] = { 9, 10, 19, 20, 1290, 1289, 655360, 1 << 30, 0 };
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) PLAY(runs), find(any, memories[i], true);
    PLAY(runs), find("--training.local_batch_size auto --training.global_batch_size 360", 1000, true);
    PLAY(runs), find("--training.local_batch_size auto --training.global_batch_size 131072", 1 << 30, true);
    PLAY(runs), find("--training.local_batch_size auto --training.global_batch_size 7", 60, true);
    PLAY(runs), find("--micro_batch_size auto", 333, true);
    /* Proven by two steps; what does not run is made smaller by a sixteenth, at least by one. */
    PLAY(runs), find(any, 330, false);
    static const made_end later[] = {
        { .code = 1, .nomem = true }, { .code = -1, .nomem = true }, { .code = 4, .nomem = true }, { .code = 0 }
    };
    PLAY(later), find(any, 330, false);
    PLAY(later), find("--training.local_batch_size auto --training.global_batch_size 48", 330, false);
    static const made_end never[] = { { .code = 1, .nomem = true } };
    PLAY(never), find(any, 40, false);
    for (int code = 1; code <= 5; code++) {
        made_end one[] = { { .code = code, .words = "the\nreason" } };
        PLAY(one), find(any, 50, false);
    }
    static const made_end lost[] = { { .code = -9 } };
    PLAY(lost), find(any, 50, false);
    most_planned = 5;
    PLAY(runs), find(any, 1000, true);
    most_planned = -1; /* not even one */
    bytes_of_one = 1000;
    PLAY(runs), find(any, 999, true);
    most_planned = bytes_of_one = 0;
    told_is("tests/golden/whole-made-batches.txt");
}

/* A list, a number or another key is no search. */
static void what_is_no_search(void **state)
{
    static const struct {
        const char *words;
        bool        search;
    } rows[] = { { "--training.local_batch_size auto", true },
                 { "--training.local_batch_size=[auto]", true },
                 { "--training.local_batch_size=[auto,2]", false },
                 { "--training.local_batch_size=[2]", false },
                 { "--training.local_batch_size 2", false },
                 { "--training.local_batch_size auto --debug.seed=[1,2]", false },
                 { "--debug.seed=[1]", false } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        asked a;
        ask(&a, rows[i].words);
        if (tm_cli_wants_batch(a.config) != rows[i].search) fail_msg("%s", rows[i].words);
        done(&a);
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(tables_of_scaling),
                                           cmocka_unit_test(threads_of_ranks),
                                           cmocka_unit_test(sweeps_are_summed_up),
                                           cmocka_unit_test(plans_of_sweeps),
                                           cmocka_unit_test(summaries_that_were_changed),
                                           cmocka_unit_test(batches_are_found),
                                           cmocka_unit_test(what_is_no_search) };

TM_TESTS_ALONE(tests, told_enter, told_leave)

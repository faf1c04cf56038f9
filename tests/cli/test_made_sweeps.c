/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps and the search for a batch, of runs that are made up: what is started and what is not, figures of the summary
 * from the records, plans. The runs themselves: test_sweep.sh. */
#include "support/test.h"
#include "base/csv.h"
#include "made_starts.h"

/* --- sweeps ------------------------------------------------------------------------------------------------------- */

static tm_status sweep_of(const char *folder, const char *words, bool dry_run, int64_t memory, const char *argument)
{
    asked    a;
    tm_error err = { 0 };
    ask(&a, words);
    char            *argv[] = { (char *)argument };
    tm_sweep_options o = {
        .config = a.config, .argc = 1, .argv = argv, .folder = folder, .dry_run = dry_run, .memory_bytes = memory
    };
    told_begin();
    tm_status st = tm_cli_sweep(&o, &err);
    told_end(st, &err);
    done(&a);
    return st;
}

/* The summary, a row for each run that has an end. */
typedef struct {
    char names[40][64], cells[16][40][160];
    int  columns, rows;
} summary;

static void read_summary(const char *folder, summary *out)
{
    char        path[100];
    tm_text     storage = { 0 };
    size_t      offsets[40], n;
    const char *cursor;
    snprintf(path, sizeof path, "%s/runs_summary.csv", folder);
    tm_text text = fake_read(path);
    cursor = text.data;
    memset(out, 0, sizeof *out);
    out->columns = (int)tm_csv_read(&cursor, &storage, offsets, 40);
    for (int c = 0; c < out->columns; c++)
        snprintf(out->names[c], sizeof out->names[c], "%s", storage.data + offsets[c]);
    for (; out->rows < 16 && (n = tm_csv_read(&cursor, &storage, offsets, 40)) > 0; out->rows++) {
        assert_int_equal(n, out->columns);
        for (int c = 0; c < out->columns; c++)
            snprintf(out->cells[out->rows][c], sizeof out->cells[0][c], "%s", storage.data + offsets[c]);
    }
    if (strstr(text.data, "nan") || strstr(text.data, "inf")) fail_msg("%s", text.data);
    tm_text_fini(&text);
    tm_text_fini(&storage);
}

static const char *cell_of(const summary *s, int row, const char *name)
{
    for (int c = 0; c < s->columns; c++)
        if (strcmp(s->names[c], name) == 0) return s->cells[row][c];
    fail_msg("no column %s", name);
    return "";
}

static void number_is(const summary *s, int row, const char *name, double wanted)
{
    const char *cell = cell_of(s, row, name);
    double      is = *cell ? strtod(cell, NULL) : (double)NAN;
    if (!(isnan(is) && isnan(wanted)) && !(fabs(is - wanted) <= 1e-9 * fmax(1e-3, fabs(wanted))))
        fail_msg("row %d, %s: %s, wanted %.12g", row, name, cell, wanted);
}

/* Mean and deviation, by two passes; of one value there is no deviation. */
static void moments_are(const summary *s, int row, const char *name, const double *x, int n)
{
    char   column[64];
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean) / n;
    snprintf(column, sizeof column, "avg_%s", name);
    number_is(s, row, column, n ? mean : (double)NAN);
    snprintf(column, sizeof column, "std_%s", name);
    number_is(s, row, column, n > 1 ? sqrt(squares) : (double)NAN);
}

/* Figures of a run that ended so, of the steps behind the first five, if there are more. */
static void figures_are(const summary *s, int row, const made_end *e)
{
    double loss[64], tail[64], seconds[64], rate[64], flops[64];
    int    first = e && e->steps > 5 ? 6 : 1, last = e ? e->steps : 0, n = 0, t = 0;
    for (int i = first; i <= last; i++, n++) {
        double tokens = 64 + i % 3;
        loss[n] = loss_of(e, i);
        seconds[n] = 0.25 + i % 4 * 0.125;
        rate[n] = tokens / 16 / seconds[n]; /* sequences of 16 tokens */
        flops[n] = 2e9 * tokens / seconds[n] / 1e12;
        if (last - i < 10) tail[t++] = loss[n];
    }
    moments_are(s, row, "loss", loss, n);
    moments_are(s, row, "loss_tail", tail, t);
    moments_are(s, row, "step_time_total", seconds, n);
    moments_are(s, row, "step_time_gpu", NULL, 0);
    moments_are(s, row, "fps_gpu", rate, n);
    moments_are(s, row, "tflops", flops, n);
    number_is(s, row, "num_samples", n);
}

/* The runs of a sweep: each has its status of the list, figures of its end, what it was started with. */
static void summary_is(const char *folder, const char *statuses)
{
    summary s;
    char    list[300], *rest = list;
    int     row = 0, ends = 0;
    read_summary(folder, &s);
    snprintf(list, sizeof list, "%s", statuses);
    for (char *status; (status = strsep(&rest, " ")); row++) {
        char            number[16], prefix[120], line[400];
        bool            ran = strcmp(status, "oom-skipped") != 0;
        const made_end *e = ran ? &script[ends < n_script ? ends : n_script - 1] : NULL;
        assert_true(row < s.rows);
        snprintf(number, sizeof number, "%04d", row + 1);
        assert_string_equal(cell_of(&s, row, "run_id"), number);
        if (strcmp(cell_of(&s, row, "status"), status) != 0)
            fail_msg("%s, run %d: %s", folder, row + 1, cell_of(&s, row, "status"));
        assert_string_equal(cell_of(&s, row, "timestamp"), "2026-01-31T12:00:00Z");
        assert_string_equal(cell_of(&s, row, "git_user"), "somebody");
        bool told_of = ran && (e->code == 0 || e->code == 3) && e->steps; /* numbers that are wrong are numbers */
        figures_are(&s, row, told_of ? e : NULL);
        number_is(&s, row, "total_elapsed_time", ran ? 1.5 * (ends + 1) : (double)NAN);
        number_is(&s, row, "exit_code", ran ? e->code : (double)NAN);
        if (!ran) continue;
        line_at(&starts, ends++, line, sizeof line);
        snprintf(prefix, sizeof prefix, "| %s/%s_%s %s/%s_logs_%s.txt", folder, number, cell_of(&s, row, "run_name"),
                 folder, number, cell_of(&s, row, "run_name"));
        if (!strstr(line, prefix)) fail_msg("'%s' has no '%s'", line, prefix);
        for (int c = 3; strcmp(s.names[c], "total_elapsed_time") != 0; c++) {
            char word[256];
            snprintf(word, sizeof word, " --%s=%s ", s.names[c], s.cells[row][c]);
            if (!strstr(line, word)) fail_msg("'%s' has no '%s'", line, word);
        }
        assert_int_equal(strcmp(status, "success") == 0, e->code == 0);
        assert_string_equal(cell_of(&s, row, "git_hash"), told_of ? "c0ffee" : "");
        number_is(&s, row, "tokens_per_second", told_of ? e->rate : (double)NAN);
        assert_string_equal(cell_of(&s, row, "verdict"), !told_of ? "" : e->verdict ? e->verdict : "valid");
    }
    assert_int_equal(s.rows, row);
    assert_int_equal(started, ends);
}

static const char axes[] = "--training.local_batch_size=[2,4,8] --optimizer.lr=[1e-3,0.002]";

/* What does not fit makes the larger batches hopeless; what has an end is not done again, what failed is. */
TEST(sweeps_are_summed_up)
{
    static const made_end ends[] = { { .rate = 100, .batch = 2, .steps = 17 },
                                     { .code = 4, .nomem = true, .steps = 2, .rate = 7 },
                                     { .code = 3, .words = "numbers", .steps = 5, .rate = 3, .verdict = "invalid" },
                                     { .rate = 120.5, .batch = 8, .steps = 6 } };
    static const made_end rest[] = { { .rate = 90, .batch = 4, .steps = 1 } };
    static const char     other[] =
        "'runs/many' holds runs of another command (runs/many/command.txt); name another directory with --out";
    summary s;
    char    line[400];
    PLAY(ends), assert_int_equal(sweep_of("runs/many", axes, false, 0, "--word"), TM_NUMBERS);
    assert_non_null(strstr(told.data, "run 3 (local_batch_size=4_lr=0.001) ended with exit code 3; see "
                                      "runs/many/0003_logs_local_batch_size=4_lr=0.001.txt"));
    assert_non_null(
        strstr(told.data, "run 4 of 6: local_batch_size=4_lr=0.002: skipped: a smaller batch did not fit\n"));
    summary_is("runs/many", "success oom error oom-skipped success oom-skipped");
    line_at(&starts, 3, line, sizeof line);
    assert_string_equal(
        line, "--word  --training.local_batch_size=8 --optimizer.lr=0.001 "
              "--store.label=many/0005_local_batch_size=8_lr=0.001 "
              "| runs/many/0005_local_batch_size=8_lr=0.001 runs/many/0005_logs_local_batch_size=8_lr=0.001.txt");
    tm_text command = fake_read("runs/many/command.txt"),
            config = fake_read("runs/many/0001_config_local_batch_size=2_lr=0.001.yaml");
    assert_string_equal(command.data, "--word\ntraining.local_batch_size: 2 4 8\noptimizer.lr: 0.001 0.002\n");
    assert_string_equal(config.data, "runs/many/0001_local_batch_size=2_lr=0.001"); /* that of the run */
    tm_text_fini(&command);
    tm_text_fini(&config);
    PLAY(rest), assert_int_equal(sweep_of("runs/many", axes, false, 0, "--word"), TM_OK);
    assert_int_equal(started, 1);
    assert_non_null(strstr(line_at(&starts, 0, line, sizeof line), "runs/many/0003_local_batch_size=4_lr=0.001 "));
    assert_non_null(strstr(told.data, "run 1 of 6: local_batch_size=2_lr=0.001: done already\n"));
    read_summary("runs/many", &s);
    figures_are(&s, 0, &ends[0]);
    figures_are(&s, 2, &rest[0]);
    assert_string_equal(cell_of(&s, 2, "status"), "success");
    assert_int_equal(s.rows, 6);
    PLAY(rest), assert_int_equal(sweep_of("runs/many", axes, false, 0, "--word"), TM_OK);
    assert_int_equal(started, 0);
    PLAY(rest), assert_int_equal(sweep_of("runs/many", axes, false, 0, "--other"), TM_INVALID);
    assert_non_null(strstr(told.data, other));
    PLAY(rest),
        assert_int_equal(sweep_of("runs/many", "--training.local_batch_size=[2,4,8] --optimizer.lr=[1e-3,0.003]", false,
                                  0, "--word"),
                         TM_INVALID);
    assert_non_null(strstr(told.data, other));
}

TEST(ends_become_statuses)
{
    static const made_end codes[] = { { .code = 1 }, { .code = 4 }, { .code = 5 }, { .code = -1, .nomem = true } };
    static const made_end invalid[] = { { .code = 4 } }, stopped[] = { { .rate = 1, .steps = 1 }, { .code = 130 } };
    static const made_end rest[] = { { .rate = 90, .batch = 4, .steps = 1 } },
                          large[] = { { .code = 1, .nomem = true } };
    char line[400];
    PLAY(codes), assert_int_equal(sweep_of("codes", "--debug.seed=[1,2,3,4]", false, 0, "--word"), TM_INTERNAL);
    summary_is("codes", "error error error oom");
    assert_non_null(strstr(told.data, "run 1 (seed=1) ended with exit code 1; see codes/0001_logs_seed=1.txt"));
    PLAY(invalid), assert_int_equal(sweep_of("code-4", "--debug.seed=[1]", false, 0, "--word"), TM_INVALID);
    summary_is("code-4", "error");
    PLAY(stopped), assert_int_equal(sweep_of("stopped", "--debug.seed=[1,2,3]", false, 0, "--word"), TM_INTERRUPTED);
    assert_int_equal(started, 2);
    assert_non_null(strstr(told.data, "interrupted; the same command continues from here"));
    PLAY(rest),
        assert_int_equal(sweep_of("labelled", "--debug.seed=[1,2] --store.label mine", false, 0, "--word"), TM_OK);
    assert_string_equal(line_at(&starts, 1, line, sizeof line),
                        "--word  --debug.seed=2 | labelled/0002_seed=2 labelled/0002_logs_seed=2.txt");
    /* Three axes with the batch in the middle: only what is alike but for it is hopeless. */
    PLAY(large),
        assert_int_equal(sweep_of("large", "--debug.seed=[1,2] --training.local_batch_size=[8,2,16] --exp_name=[a,b]",
                                  false, 0, "-"),
                         TM_OK);
    summary_is("large", "oom oom oom oom oom-skipped oom-skipped oom oom oom oom oom-skipped oom-skipped");
}

/* --- the batch that fits ------------------------------------------------------------------------------------------ */

static tm_status find(const char *words, int64_t memory, bool dry_run, int64_t *batch)
{
    asked    a;
    tm_error err = { 0 };
    *batch = -1;
    ask(&a, words);
    char            *argv[] = { (char *)"--word" };
    tm_sweep_options o = { .config = a.config, .argc = 1, .argv = argv, .dry_run = dry_run, .memory_bytes = memory };
    assert_true(tm_cli_wants_batch(a.config));
    told_begin();
    tm_status st = tm_cli_find_batch(&o, batch, &err);
    told_end(st, &err);
    done(&a);
    return st;
}

static const char any[] = "--training.local_batch_size auto";

/* The largest batch that fits, that divides the global one, up to 65536; another way: one after the other. */
static int64_t largest(int64_t global, int64_t memory)
{
    int64_t best = 0;
    for (int64_t b = 1; b <= 65536; b++)
        if ((memory == 0 || b * bytes_of_one <= memory) && (global == 0 || global % b == 0)) best = b;
    return best;
}

TEST(the_largest_batch_is_found)
{
    static const made_end runs[] = { { .code = 0 } };
    static const struct {
        const char *words;
        int64_t     global, memory;
    } cases[] = {
        { any, 0, 10 },
        { any, 0, 19 },
        { any, 0, 1290 },
        { any, 0, 655360 },
        { any, 0, 0 },
        { "--micro_batch_size auto", 0, 333 },
        { "--training.local_batch_size auto --training.global_batch_size 360", 360, 1000 },
        { "--training.local_batch_size auto --training.global_batch_size 131072", 131072, 1 << 30 },
        { "--training.local_batch_size auto --training.global_batch_size 7", 7, 60 },
    };
    int64_t batch;
    char    said[96];
    bytes_of_one = 10;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t wanted = largest(cases[i].global, cases[i].memory);
        PLAY(runs);
        tm_status st = find(cases[i].words, cases[i].memory, true, &batch);
        if (batch != wanted || st != (wanted ? TM_OK : TM_NOMEM))
            fail_msg("%s in %lld: %lld: %s", cases[i].words, (long long)cases[i].memory, (long long)batch, told.data);
        assert_true(plans > 0 && plans <= 2 * 17);
        assert_int_equal(started, 0);
        snprintf(said, sizeof said, "note: training.local_batch_size auto: %lld\n", (long long)wanted);
        if (wanted) assert_non_null(strstr(told.data, said));
        if (!wanted)
            assert_non_null(strstr(
                told.data, "not even one sequence fits into 9 B; use a smaller model or a shorter training.seq_len"));
    }
    most_planned = 5;
    PLAY(runs), assert_int_equal(find(any, 1000, true, &batch), TM_OK);
    assert_int_equal(batch, 5);
    most_planned = -1; /* not even one */
    bytes_of_one = 1000;
    PLAY(runs), assert_int_equal(find(any, 999, true, &batch), TM_NOMEM);
    most_planned = bytes_of_one = 0;
}

/* Proven by two steps; what does not run is made smaller by a sixteenth, at least by one. */
TEST(batches_are_proven)
{
    static const made_end runs[] = { { .code = 0 } }, never[] = { { .code = 1, .nomem = true } },
                          lost[] = { { .code = -9 } };
    static const made_end later[] = {
        { .code = 1, .nomem = true }, { .code = -1, .nomem = true }, { .code = 4, .nomem = true }, { .code = 0 }
    };
    static const struct {
        const char     *words;
        const made_end *ends;
        int             n;
        int64_t         memory;
        const char     *tried;
        tm_status       status;
    } cases[] = {
        { any, runs, 1, 330, "33", TM_OK },
        { any, later, 4, 330, "33 30 28 26", TM_OK },
        { "--training.local_batch_size auto --training.global_batch_size 48", later, 4, 330, "24 16 12 8", TM_OK },
        { any, never, 1, 40, "4 3 2 1", TM_NOMEM },
        { any, lost, 1, 50, "5", TM_IO },
    };
    int64_t batch;
    bytes_of_one = 10;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char list[40], line[400], wanted[300], *rest = list;
        int  n = 0;
        snprintf(list, sizeof list, "%s", cases[i].tried);
        play(cases[i].ends, cases[i].n);
        assert_int_equal(find(cases[i].words, cases[i].memory, false, &batch), cases[i].status);
        for (char *one; (one = strsep(&rest, " ")); n++) {
            snprintf(wanted, sizeof wanted,
                     "--word  --training.local_batch_size=%s --training.steps=2 --checkpoint.enable=false "
                     "--validation.enable=false "
                     "--debug.certificate=false --store.path=none | scratch -",
                     one);
            assert_string_equal(line_at(&starts, n, line, sizeof line), wanted);
            snprintf(wanted, sizeof wanted, "note: a batch of %s should fit by the plan, but did not run", one);
            bool failed = rest || cases[i].status == TM_NOMEM;
            if ((strstr(told.data, wanted) != NULL) != failed) fail_msg("%s: %s", wanted, told.data);
            if (cases[i].status == TM_OK && !rest) assert_int_equal(batch, atoi(one));
        }
        assert_int_equal(started, n);
    }
    bytes_of_one = 0;
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)

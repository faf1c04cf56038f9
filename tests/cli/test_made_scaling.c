/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of scaling follow from the runs, which are made up: what each was started with, rates, efficiencies, losses.
 * The runs themselves: test_scaling.sh. */
#include "support/test.h"
#include "made_starts.h"

#include <jansson.h>

static const char small[] = "--training.threads 3 --training.local_batch_size 4 --training.global_batch_size 24";

/* The largest relative difference of the first 50 losses; NAN: none can be compared. */
static double losses_apart(const made_end *a, const made_end *b)
{
    double most = (double)NAN;
    for (int step = 1; step <= a->steps && step <= b->steps && step <= 50; step++)
        most = fmax(most, fabs(loss_of(b, step) - loss_of(a, step)) / fabs(loss_of(a, step)));
    return isinf(most) ? (double)NAN : most;
}

static double number_of(json_t *row, const char *name)
{
    json_t *value = json_object_get(row, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void number_is(json_t *row, const char *name, double wanted)
{
    double is = number_of(row, name);
    if (!(isnan(is) && isnan(wanted)) && !(fabs(is - wanted) <= 1e-9 * fmax(1e-6, fabs(wanted))))
        fail_msg("%s is %.12g, wanted %.12g", name, is, wanted);
}

/* Every row from the end of its run; the base is the first that has a result. */
static void table_follows(const char *folder, const int *ranks, int n, bool strong, bool float32)
{
    char path[100];
    snprintf(path, sizeof path, "%s/scaling.json", folder);
    json_t         *table = json_load_file(path, 0, NULL), *rows = json_object_get(table, "rows");
    const made_end *base = NULL;
    int             base_ranks = 0, start = 0;
    assert_int_equal(json_array_size(rows), n);
    for (int i = 0; i < n; i++) {
        json_t *row = json_array_get(rows, (size_t)i);
        bool    divides = !strong || 24 % ranks[i] == 0;
        if (!divides) { /* is not started */
            assert_string_equal(json_string_value(json_object_get(row, "status")), "failed");
            number_is(row, "exit_code", 4);
            continue;
        }
        const made_end *e = &script[start < n_script ? start : n_script - 1];
        bool            has = e->code == 0 && e->steps != 0;
        start++;
        if (has && !base) base = e, base_ranks = ranks[i];
        number_is(row, "ranks", ranks[i]);
        number_is(row, "exit_code", e->code);
        assert_string_equal(json_string_value(json_object_get(row, "status")), has        ? "done"
                                                                               : e->nomem ? "does not fit"
                                                                                          : "failed");
        const double none = has ? 0 : (double)NAN;
        number_is(row, "tokens_per_second", e->rate * ranks[i] + none);
        number_is(row, "tokens_per_second_per_rank", e->rate + none);
        number_is(row, "global_batch", e->batch + none);
        number_is(row, "loss", has && e->steps > 0 ? loss_of(e, e->steps) : (double)NAN);
        if (!has) continue;
        number_is(row, "speedup", e->rate * ranks[i] / (base->rate * base_ranks));
        number_is(row, "scaling_efficiency_pct", 100 * e->rate / base->rate);
        assert_string_equal(json_string_value(json_object_get(row, "verdict")), e->verdict ? e->verdict : "valid");
        double  apart = strong && e != base ? losses_apart(base, e) : (double)NAN;
        json_t *equal = json_object_get(row, "losses_equal");
        number_is(row, "loss_difference", apart);
        if (strong && float32 && e != base)
            assert_int_equal(json_is_true(equal), apart <= 1e-5);
        else
            assert_true(json_is_null(equal));
    }
    json_decref(table);
}

/* `first` (NULL: any): the words of the first start. */
static tm_status scale(const char *name, const char *words, const char *sizes, bool strong, bool json,
                       const char *first)
{
    asked    a;
    tm_error err = { 0 };
    int      ranks[8], n = 0;
    char     line[400];
    ask(&a, words);
    char              *argv[] = { (char *)"--its", (char *)"words" };
    tm_scaling_options o = { .run = { .config = a.config, .argc = 2, .argv = argv, .folder = name },
                             .sizes = sizes,
                             .strong = strong,
                             .json = json };
    told_begin();
    tm_status st = tm_cli_scaling(&o, &err);
    told_end(st, &err);
    for (const char *at = sizes; *at; at += strcspn(at, ","), at += *at == ',') ranks[n++] = atoi(at);
    if (st != TM_INTERRUPTED && st != TM_IO) {
        table_follows(name, ranks, n, strong, strcmp(tm_config_text(a.config, "training.dtype"), "float32") == 0);
    }
    if (strong) assert_null(strstr(told.data, "nan"));
    if (first && strcmp(line_at(&starts, 0, line, sizeof line), first) != 0) fail_msg("%s: '%s'", name, line);
    done(&a);
    return st;
}

static const made_end good[] = { { .rate = 100, .batch = 24, .steps = 3 },
                                 { .rate = 90, .batch = 48, .steps = 2, .verdict = "noisy" },
                                 { .rate = 60.5, .batch = 96, .steps = 4 } };

/* Weak: the batch grows with the ranks. Strong: it stays, and so does the micro-batch as far as it divides. */
TEST(batches_are_divided)
{
    static const char one[] = "--training.threads 1 --training.local_batch_size 4",
                      accumulates[] =
                          "--training.threads 1 --training.local_batch_size 4 --training.grad_accumulation 6";
    static const struct {
        const char *name, *words, *sizes;
        bool        strong, json;
        int         start; /* the start whose words are these */
        const char *wanted;
    } rows[] = {
        { "weak", small, "1,2,4", false, false, 2,
          "--ranks=4 --training.threads=3 --training.global_batch_size=96 | weak/ranks-4 weak/ranks-4.txt" },
        { "json", one, "2,4,1", false, true, 0, "--ranks=2 --training.threads=1 | json/ranks-2 json/ranks-2.txt" },
        { "strong", small, "1,2,4", true, false, 2,
          "--ranks=4 --training.threads=3 --training.global_batch_size=24 --training.local_batch_size=3 | "
          "strong/ranks-4 strong/ranks-4.txt" },
        { "accumulates", accumulates, "1,2,8", true, false, 1,
          "--ranks=2 --training.threads=1 --training.global_batch_size=24 --training.local_batch_size=4 "
          "--training.grad_accumulation=3 | accumulates/ranks-2 accumulates/ranks-2.txt" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[400];
        PLAY(good), assert_int_equal(
                        scale(rows[i].name, rows[i].words, rows[i].sizes, rows[i].strong, rows[i].json, NULL), TM_OK);
        line_at(&starts, rows[i].start, line, sizeof line);
        if (!strstr(line, rows[i].wanted)) fail_msg("'%s', wanted '%s'", line, rows[i].wanted);
        if (!rows[i].json) continue;
        json_t *printed = json_loads(strstr(told.data, "{\n"), JSON_DISABLE_EOF_CHECK, NULL),
               *file = json_load_file("json/scaling.json", 0, NULL);
        assert_true(printed && json_equal(printed, file));
        json_decref(printed), json_decref(file);
    }
    PLAY(good), assert_int_equal(scale("uneven", small, "5,2,7", true, false, NULL), TM_INVALID);
    assert_int_equal(started, 1);
    assert_non_null(strstr(told.data, "5 ranks: a step of 24 sequences cannot be divided among 5 ranks"));
}

/* Losses: within the bound and above it, only in the steps that count, of float32 and of strong scaling alone. */
TEST(losses_are_compared)
{
    static const char bf16[] = "--training.threads 1 --training.local_batch_size 4 --training.dtype bfloat16";
    static const struct {
        const char *name, *words;
        made_end    second;
        bool        strong;
        const char *said; /* NULL: they are equal enough, or are not compared */
    } rows[] = {
        { "at", small, { .rate = 1, .steps = 60, .apart = 0.99e-5, .from = 50 }, true, NULL },
        { "above",
          small,
          { .rate = 1, .steps = 60, .apart = 1.01e-5, .from = 50 },
          true,
          "losses of 1 and 2 ranks differ by 1e-05 in the first 50 steps, more than 1e-05 of them" },
        { "below", small, { .rate = 1, .steps = 50, .apart = -3e-5, .from = 2 }, true, "differ by 3e-05" },
        { "late", small, { .rate = 1, .steps = 60, .apart = 1, .from = 51 }, true, NULL },
        { "empty", small, { .rate = 1, .steps = -1 }, true, "losses of 1 and 2 ranks cannot be compared" },
        { "bfloat16", bf16, { .rate = 1, .steps = 60, .apart = 1, .from = 2 }, true, NULL },
        { "weak-losses", small, { .rate = 1, .steps = 60, .apart = 1, .from = 2 }, false, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const made_end ends[] = { { .rate = 1, .steps = 60 }, rows[i].second };
        PLAY(ends);
        tm_status st = scale(rows[i].name, rows[i].words, "1,2", rows[i].strong, false, NULL);
        if (st != (rows[i].said ? TM_NEGATIVE : TM_OK) || (rows[i].said && !strstr(told.data, rows[i].said)))
            fail_msg("%s: %s", rows[i].name, told.data);
    }
}

/* Failures of every kind; the base is the first that ran. */
TEST(failures_end_it_late)
{
    static const made_end  bad[] = { { .code = 4, .nomem = true, .words = "out of memory" },
                                     { .rate = 10, .batch = 8, .steps = 1 },
                                     { .code = -1 },
                                     { .code = 3, .words = "numbers" } };
    static const tm_status of_codes[] = { TM_OK,      TM_INTERNAL, TM_INTERNAL, TM_NUMBERS,
                                          TM_INVALID, TM_NEGATIVE, TM_INTERNAL };
    static const made_end  none[] = { { .code = 0 } }, never[] = { { .code = -9 } };
    static const made_end  stopped[] = { { .rate = 1, .steps = 1 }, { .code = 130 } };
    PLAY(bad), assert_int_equal(scale("bad", small, "1,2,3,4", false, false, NULL), TM_NOMEM);
    assert_non_null(strstr(told.data, "on 1 rank the run ended with exit code 4; see bad/ranks-1.txt"));
    assert_non_null(strstr(told.data, "1 rank: out of memory\n"));
    assert_non_null(strstr(told.data, "3 ranks: ended without a word\n"));
    assert_non_null(strstr(told.data, "of that of a rank of 2;"));
    for (int code = 1; code <= 6; code++) {
        char     name[24];
        made_end one[] = { { .code = code, .words = "why" } };
        snprintf(name, sizeof name, "code-%d", code);
        PLAY(one), assert_int_equal(scale(name, small, "2", false, false, NULL), of_codes[code]);
    }
    PLAY(none), assert_int_equal(scale("without", small, "1", false, false, NULL), TM_INTERNAL);
    PLAY(stopped), assert_int_equal(scale("stopped", small, "1,2,4", false, false, NULL), TM_INTERRUPTED);
    assert_int_equal(started, 2);
    PLAY(never), assert_int_equal(scale("never", small, "1", false, false, NULL), TM_IO);
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)

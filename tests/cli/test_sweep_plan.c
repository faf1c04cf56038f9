/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a sweep needs, and that run as a process, which is this program: what is told of each way to end. */
#include "support/test.h"
#include "base/cpu.h"
#include "base/log.h"
#include "cli/sweep_plan.h"
#include "told.h"

#include <signal.h>

/* --- the program that is started ---------------------------------------------------------------------------------- */

static int be_run(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "";
    for (int i = 0; i < argc; i++) printf("%s%s", i ? " " : "", i ? argv[i] : "program");
    printf("\n");
    fflush(stdout);
    if (strcmp(how, "long") == 0)
        for (int i = 0; i < 3000; i++)
            printf("%d of so many lines that they do not fit into what is read at a time\n", i);
    if (strcmp(how, "nomem") == 0) fprintf(stderr, "a note\ntrainmark: does not fit in memory: 3 bytes");
    if (strcmp(how, "starved") == 0) fprintf(stderr, "trainmark: out of memory: cannot allocate 3 bytes\n");
    if (strcmp(how, "words") == 0) fprintf(stderr, "the reason\n");
    fflush(NULL);
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "term") == 0) raise(SIGTERM);
    if (strcmp(how, "sleep") == 0) sleep(100);
    return argc > 3 ? atoi(argv[3]) : 0;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

typedef struct {
    tm_arena        *arena;
    tm_config       *config;
    tm_cli_options   cli;
    char            *argv[32];
    tm_sweep_options o;
} asked;

/* "--a b --c" behind `run`. */
static void ask(asked *a, const char *words)
{
    tm_error err = { 0 };
    int      argc = 0;
    *a = (asked){ .arena = tm_arena_create(), .cli = { .axes = true } };
    char *rest = tm_arena_text(a->arena, words);
    a->argv[argc++] = (char *)"run";
    for (char *word; (word = strsep(&rest, " "));) a->argv[argc++] = word;
    tm_cli_line line = {
        .command = &tm_command_run, .name = "run", .argc = argc, .argv = a->argv, .options = &a->cli, .arena = a->arena
    };
    line.words = tm_arena_take(a->arena, 40 * sizeof *line.words);
    if (tm_cli_configure(&line, "tiny-llama", false, &a->config, &err) != TM_OK) fail_msg("%s", err.text);
    a->o = (tm_sweep_options){ .config = a->config, .argc = argc - 1, .argv = a->argv + 1 };
}

static void done(asked *a)
{
    tm_config_destroy(a->config);
    tm_arena_destroy(a->arena);
}

/* Which of two messages are told. */
static const char *loudness(void)
{
    told_begin();
    tm_note("a note");
    tm_warn("a warning");
    tm_error nothing = { 0 };
    size_t   before = told.length;
    told_end(TM_OK, &nothing);
    bool note = strstr(told.data + before, "a note") != NULL, warning = strstr(told.data + before, "a warning") != NULL;
    const char *what = note ? "notes" : warning ? "warnings" : "errors";
    told.length = before;
    told.data[before] = '\0';
    return what;
}

TEST(what_runs_need)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    static const char *const after[] = { "notes", "notes", "warnings", "errors" };
    char                    *two[] = { (char *)"--training.local_batch_size=2" };
    char                    *four[] = { (char *)"--training.local_batch_size=4", (char *)"--training.seq_len=1024" };
    char                    *wrong[] = { (char *)"--model.n_heads=3" };
    tm_text_add(&told, "");
    for (int i = 0; i < 4; i++) {
        asked    a;
        int64_t  small = 0, large = 0, none = 77;
        tm_error err = { 0 };
        char     words[200];
        snprintf(words, sizeof words,
                 "--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --training.threads 1 --log.level %s",
                 levels[i]);
        ask(&a, words);
        assert_int_equal(sweep_plan_bytes(&a.o, two, 1, &small, &err), TM_OK);
        assert_int_equal(sweep_plan_bytes(&a.o, four, 2, &large, &err), TM_OK);
        assert_true(small > 10000 && large > small);
        assert_int_equal(sweep_plan_bytes(&a.o, four, 1, &none, &err), TM_OK);
        assert_true(none > small && none < large);
        none = 77;
        assert_int_not_equal(sweep_plan_bytes(&a.o, wrong, 1, &none, &err), TM_OK);
        assert_non_null(strstr(err.text, "n_heads"));
        assert_int_equal(none, 77);
        assert_string_equal(loudness(), after[i]);
        a.o.memory_bytes = 12345;
        assert_int_equal(sweep_memory(&a.o), 12345);
        a.o.memory_bytes = 0;
        double share = (double)sweep_memory(&a.o) / (double)tm_memory_available_bytes("");
        assert_true(share > 0.9 && share < 0.99);
        done(&a);
    }
    tm_log_set_level(TM_LOG_INFO);
}

/* What is told of the configuration is told once, by the command itself, not for every run that is planned. */
TEST(notes_are_told_once)
{
    tm_error err = { 0 };
    asked    a;
    int64_t  bytes;
    char    *more[] = { (char *)"--training.local_batch_size=2" };
    told_begin();
    ask(&a, "--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --training.threads 1 --comm.init_timeout_seconds 9");
    told_end(TM_OK, &err);
    assert_non_null(strstr(told.data, "comm.init_timeout_seconds"));
    told.length = 0;
    told_begin();
    assert_int_equal(sweep_plan_bytes(&a.o, more, 1, &bytes, &err), TM_OK);
    told_end(TM_OK, &err);
    assert_string_equal(told.data, "-> ok\n\n");
    told.length = 0;
    assert_string_equal(loudness(), "notes");
    done(&a);
}

/* A device that is opened and not what is needed is closed again. */
TEST(devices_that_cannot_be)
{
    static const struct {
        const char *words[2];
        const char *why;
    } cases[] = {
        { { "--isa=none-such", "--device=cpu" }, "no 'none-such' kernels (--isa)" },
        { { "--debug.microscope=1", "--device=reference" },
          "debug.microscope compares with float32, --device reference computes in float64; leave one of the two out" },
        { { "--device=none-such", "--debug.seed=1" }, "none-such" },
    };
    tm_text_add(&told, "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        asked    a;
        int64_t  bytes = 77;
        tm_error err = { 0 };
        char    *more[] = { (char *)(size_t)cases[i].words[0], (char *)(size_t)cases[i].words[1] };
        ask(&a, "--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --training.threads 1");
        assert_int_not_equal(sweep_plan_bytes(&a.o, more, 2, &bytes, &err), TM_OK);
        if (!strstr(err.text, cases[i].why)) fail_msg("%s", err.text);
        assert_int_equal(bytes, 77);
        done(&a);
    }
    tm_log_set_level(TM_LOG_INFO);
}

/* A run that ends like this: its code, whether memory lacked, the last words, and what its log has behind the command
 * line. */
static void ends(const char *how, const char *code, int wanted, bool nomem, const char *words, const char *log,
                 const char *logged)
{
    tm_error         err = { 0 };
    child_end        end;
    char            *argv[] = { (char *)how, (char *)code }, *more[] = { (char *)"--more", (char *)"--most" };
    tm_sweep_options o = { .argc = code ? 2 : 1, .argv = argv };
    char             text[400];
    memset(&end, 0xff, sizeof end);
    told_begin();
    tm_status st = sweep_start(&o, more, 2, "folder", log, &end, &err);
    told_end(st, &err);
    assert_int_equal(st, TM_OK);
    if (end.code != wanted || end.nomem != nomem || strcmp(end.words, words) != 0)
        fail_msg("%s: code %d, memory %d, '%s'", how, end.code, end.nomem, end.words);
    assert_true(end.seconds > 0 && end.seconds < 60);
    assert_string_equal(told.data, "-> ok\n\n"); /* nothing else is printed */
    told.length = 0;
    if (!log) return;
    snprintf(text, sizeof text, "program run %s%s%s --more --most --out folder\n%s", how, code ? " " : "",
             code ? code : "", logged);
    tm_text is = fake_read(log);
    assert_string_equal(is.data, text);
    tm_text_fini(&is);
}

/* It is not begun, or not ended. */
static void fails(const char *how, const char *log, tm_status wanted, const char *words)
{
    tm_error         err = { 0 };
    child_end        end = { 0 };
    char            *argv[] = { (char *)how, (char *)"130" };
    tm_sweep_options o = { .argc = 2, .argv = argv };
    assert_int_equal(sweep_start(&o, NULL, 0, "folder", log, &end, &err), wanted);
    assert_non_null(strstr(err.text, words));
    assert_false(tm_file_exists(log));
}

TEST(every_end_of_a_run)
{
    static const char lacks[] = "trainmark: does not fit in memory: 3 bytes",
                      starves[] = "trainmark: out of memory: cannot allocate 3 bytes";
    ends("well", NULL, 0, false, "", "log", "");
    ends("words", "3", 3, false, "the reason", "log3", "the reason");
    ends("words", "4", 4, false, "the reason", NULL, "");
    ends("nomem", "4", 4, true, lacks, "log4", "a note\ntrainmark: does not fit in memory: 3 bytes");
    ends("nomem", "3", 3, false, lacks, NULL, "");
    ends("starved", "1", 1, true, starves, NULL, "");
    ends("starved", "4", 4, false, starves, NULL, "");
    ends("kill", NULL, -1, true, "", "logk", "");
    ends("term", NULL, -1, false, "", NULL, "");
    fails("well", "no/where/log", TM_INVALID, "cannot create 'no/where/log': directory 'no/where'");
    tm_cli_stop = 1;
    fails("sleep", "stopped", TM_INTERRUPTED, "interrupted; the same command continues from here");
    tm_cli_stop = 0;
    tm_error         err = { 0 };
    child_end        end;
    char            *argv[] = { (char *)"long" };
    tm_sweep_options o = { .argc = 1, .argv = argv };
    assert_int_equal(sweep_start(&o, NULL, 0, "folder", "long", &end, &err), TM_OK);
    tm_text text = fake_read("long");
    int     lines = 0;
    for (const char *at = text.data; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 3001);
    tm_text_fini(&text);
}

TM_TEST_ROLE("run", be_run)

TEST_FIXTURE(told_enter, told_leave)

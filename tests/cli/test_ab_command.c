/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark ab` without its session: what of the command line becomes of it, what is refused, kept and said of a
 * record, to the letter (tests/golden/whole-ab-command.txt). Sessions: tests/bench/test_ab_*.c; from the outside:
 * test_ab.sh. */
#include "support/test.h"
#include "bench/ab.h"
#include "cli/cli.h"
#include "told.h"

#include <signal.h>

extern const tm_cli_command tm_command_ab;
/* --- a session that is made up ------------------------------------------------------------------------------------ */

static double    slower;      /* B's time of A's */
static tm_status ends;        /* how it ends */
static char      folder[300]; /* of its runs */

bool tm_ab_build_parse(const char *answer, tm_text *out)
{
    tm_text_add(out, answer);
    return true;
}

tm_status tm_ab_build_read(const char *binary, const char *flag, const volatile sig_atomic_t *stop, tm_text *out,
                           tm_error *err)
{
    assert_ptr_equal(stop, &tm_cli_stop);
    if (strstr(binary, "none")) return tm_fail(err, TM_INVALID, "%s: no answer of '%s'", flag, binary);
    tm_text_printf(out, "build of %s", strstr(binary, "test_ab_command") ? "this" : binary);
    return TM_OK;
}

static void tell_program(const char *name, const tm_ab_program *p)
{
    tm_text_printf(&told, "  %s '%s'%s%s%s%s%s:", name, p->text, p->turns ? ", takes turns" : "", p->build ? ", " : "",
                   p->build ? p->build : "", p->pattern ? ", steps " : "", p->pattern ? p->pattern : "");
    for (int i = 0; p->argv[i]; i++)
        tm_text_printf(&told, " [%s]", i == 0 && strstr(p->argv[0], "test_ab_command") ? "SELF" : p->argv[i]);
    tm_text_add(&told, "\n");
}

static void add_turns(tm_ab_session *s)
{
    static const tm_ab_side order[6] = { TM_AB_A, TM_AB_B, TM_AB_AGAIN, TM_AB_AGAIN, TM_AB_B, TM_AB_A };
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 6; i++) {
            double     steps[] = { order[i] == TM_AB_B ? 0.5 * slower : 0.5 };
            tm_ab_turn turn = {
                .round = round, .block = round, .side = order[i], .first_step = 1, .n = 1, .seconds = steps, .work = 64
            };
            tm_ab_session_add(s, &turn);
        }
}

static char *copy_of(const char *text)
{
    return text ? strcpy(malloc(strlen(text) + 1), text) : NULL;
}

tm_status tm_ab_run(const tm_ab_options *o, tm_ab_session *out, tm_error *err)
{
    bool scratch = strstr(o->folder, "trainmark-ab") != NULL;
    tell_program("A", &o->a);
    tell_program("B", &o->b);
    tm_text_printf(
        &told, "  turns of %g s%s, budget %g s, target %g, %lld pairs, least difference %g, seed %llu, in %s\n",
        o->turn_seconds, o->whole_runs ? ", whole runs" : "", o->budget_seconds, o->target, (long long)o->least_pairs,
        o->least_difference, (unsigned long long)o->seed, scratch ? "a folder for a while" : o->folder);
    assert_true(o->stop == &tm_cli_stop && !o->progress && tm_file_exists(o->folder));
    snprintf(folder, sizeof folder, "%s", o->folder);
    *out = (tm_ab_session){ .a = copy_of(o->a.text),
                            .b = copy_of(o->b.text),
                            .a_build = copy_of(o->a.build),
                            .b_build = copy_of(o->b.build),
                            .whole_runs = o->whole_runs,
                            .turn_seconds = o->turn_seconds,
                            .budget_seconds = o->budget_seconds,
                            .target = o->target,
                            .least_pairs = o->least_pairs,
                            .least_difference = o->least_difference,
                            .seed = o->seed,
                            .end = ends == TM_INTERRUPTED ? TM_AB_END_INTERRUPTED : TM_AB_END_BUDGET,
                            .seconds = 12.25 };
    add_turns(out);
    return ends == TM_OK ? TM_OK : tm_fail(err, ends, "it went wrong");
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Of words between bars. */
static tm_status call_ab(const char *words)
{
    char     copy[700], *rest = copy, *argv[40];
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "ab|%s", words);
    for (char *word; (word = strsep(&rest, "|"));) argv[argc++] = word;
    argv[argc] = NULL;
    tm_text_printf(&told, "> %s\n", words);
    folder[0] = '\0';
    told_begin();
    tm_status st = tm_cli_call(&tm_command_ab, "ab", argc, argv, &err);
    told_end(st, &err);
    if (strstr(folder, "trainmark-ab")) assert_false(tm_file_exists(folder));
    return st;
}

#define MODEL "--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --training.threads 1"
#define SMALL MODEL "|--b|" MODEL

static void what_becomes_of_words(void **state)
{
    (void)state;
    static const char *const all[] = {
        "--a|" SMALL,
        "--b|" MODEL " --debug.seed 2|--a|" MODEL
        "|--turn|0.05|--budget|1|--target|0|--min-pairs|6|--least-difference|0",
        "--a|" SMALL "|--turn|run|--seed|9|--target|2.5|--least-difference|1.25|--budget|30|--json",
        "--a|" SMALL "|--turn|1e6|--out|given",
        "--a|" MODEL " --job.description 'two words'|--b-binary|./other",
        "--a-binary|./one|--b-binary|./other|--b|any\\ thing \"at all\"",
        "--a-binary|./one|--a|x|--b-command|sh -c 'echo 1; echo 2'|--step-pattern|^[0-9]$",
        "--a-command|one|--b-command|'an other'  \"of words\" \\'|--turn|run",
    };
    slower = 1.25, ends = TM_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) assert_int_equal(call_ab(all[i]), TM_OK);
    told_file("given/result.json");
    assert_true(tm_file_exists("given/session.jsonl"));
    told_is("tests/golden/whole-ab-command.txt");
}

static void what_is_refused(void **state)
{
    (void)state;
    static const char *const all[] = {
        "--json",
        "--a|" SMALL "|--turn|0.0499",
        "--a|" SMALL "|--turn|1000001",
        "--a|" SMALL "|--turn|runs",
        "--a|" SMALL "|--turn|0.1s",
        "--b-command|x",
        "--a-command|x",
        "--b|x",
        "--a-command|x|--b-binary|y",
        "--a-binary|x",
        "--b-binary|x",
        "--a-command|x|--a|x|--b|x",
        "--a-command|x|--a-binary|x|--b|x",
        "--b-command|x|--b|x|--a|" MODEL,
        "--b-command|x|--b-binary|x|--a|" MODEL,
        "--a-command||--b-command|x",
        "--a-command|x|--b-command|  ",
        "--a-command|x 'y|--b-command|x",
        "--a-command|x|--b-command|\"",
        "--a|x 'y",
        "--a|" MODEL "|--b|x \\",
        "--a|" SMALL "|--step-pattern|x",
        "--a|" MODEL "|--b|--model.dimm 3",
        "--a|--out x|--b|" MODEL,
        "--a|" MODEL "|--b|--dry-run",
        "--a|" MODEL "|--b|--training.dtype nothing",
        "--a|" MODEL "|--a-binary|none|--b-binary|x",
        "--a|" MODEL "|--b-binary|none",
        "--a|" SMALL "|--out|/dev/null/x",
        "--from|nowhere",
    };
    slower = 1.25, ends = TM_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (call_ab(all[i]) == TM_OK) fail_msg("%s passes", all[i]);
        assert_string_equal(folder, "");
    }
    told_is("tests/golden/whole-ab-refused.txt");
}

/* Any option but two is the session's own. */
static void a_record_is_judged_as_it_was(void **state)
{
    (void)state;
    slower = 1.25, ends = TM_OK;
    assert_int_equal(call_ab("--a|" SMALL "|--out|record"), TM_OK);
    told.length = 0;
    for (size_t i = 0; i < tm_command_ab.n_options; i++) {
        const tm_option *o = &tm_command_ab.options[i];
        char             words[100];
        bool             judges = strcmp(o->name, "json") == 0 || strcmp(o->name, "fail-if-slower") == 0;
        if (strcmp(o->name, "from") == 0) continue;
        snprintf(words, sizeof words, "--from|record|--%s%s%s", o->name, o->value ? "|" : "", o->value ? "50" : "");
        tm_status st = call_ab(words);
        if (st != (judges ? TM_OK : TM_USAGE)) fail_msg("%s: %s", words, tm_status_text(st));
        assert_string_equal(folder, "");
    }
    assert_int_equal(call_ab("--from|record/session.jsonl"), TM_OK);
    assert_int_equal(call_ab("--from|record/result.json"), TM_FORMAT);
    /* A gate of exactly what B is slower by closes; one above it does not, nor where B is as fast, or faster. */
    assert_int_equal(call_ab("--from|record|--fail-if-slower|25"), TM_NEGATIVE);
    assert_int_equal(call_ab("--from|record|--fail-if-slower|25.001"), TM_OK);
    assert_int_equal(call_ab("--from|record|--fail-if-slower|0|--json"), TM_NEGATIVE);
    slower = 1;
    assert_int_equal(call_ab("--a|" SMALL "|--fail-if-slower|0"), TM_OK);
    slower = 0.5;
    assert_int_equal(call_ab("--a|" SMALL "|--fail-if-slower|0"), TM_OK);
    told_is("tests/golden/whole-ab-judged.txt");
}

static void what_is_kept(void **state)
{
    (void)state;
    slower = 1.25, ends = TM_INTERRUPTED;
    assert_int_equal(call_ab("--a|" SMALL "|--out|stopped"), TM_INTERRUPTED);
    assert_true(tm_file_exists("stopped/session.jsonl") && tm_file_exists("stopped/result.json"));
    assert_int_equal(call_ab("--a|" SMALL), TM_INTERRUPTED);
    ends = TM_OK;
    assert_int_equal(call_ab("--from|stopped"), TM_OK);
    assert_non_null(strstr(told.data, "ended      after 12.2 s: interrupted"));
    ends = TM_INVALID;
    assert_int_equal(call_ab("--a|" SMALL "|--out|failed"), TM_INVALID);
    assert_false(tm_file_exists("failed/session.jsonl") || tm_file_exists("failed/result.json"));
    /* What cannot be kept is an error, if there is none yet. */
    tm_error err = { 0 };
    ends = TM_OK;
    assert_int_equal(tm_folder_make("full/session.jsonl", &err), TM_OK);
    tm_status st = call_ab("--a|" SMALL "|--out|full");
    assert_true(st != TM_OK && st != TM_INTERRUPTED);
    assert_non_null(strstr(told.data, "full/session.jsonl"));
    assert_false(tm_file_exists("full/result.json"));
    ends = TM_INTERRUPTED;
    assert_int_equal(call_ab("--a|" SMALL "|--out|full"), TM_INTERRUPTED);
    told.length = 0;
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(what_becomes_of_words), cmocka_unit_test(what_is_refused),
                                           cmocka_unit_test(a_record_is_judged_as_it_was),
                                           cmocka_unit_test(what_is_kept) };

TM_TESTS_ALONE(tests, told_enter, told_leave)

/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark ab` without its session: the options that its words become, what is refused, kept and printed of a record.
 * Sessions and reports: tests/bench/test_ab_*.c; from the outside: test_ab.sh. */
#include "support/test.h"
#include "apps/bench/ab.h"
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

/* What the session was asked for, and its reports, for people and for programs. */
static struct {
    tm_text       programs[2];
    tm_ab_options options;
    tm_text       reports[2];
} asked;

static void tell_program(tm_text *out, const tm_ab_program *p)
{
    out->length = 0;
    tm_text_printf(out, "%s|%s|%s|%s|", p->text, p->turns ? "turns" : "", p->build ? p->build : "",
                   p->pattern ? p->pattern : "");
    for (int i = 0; p->argv[i]; i++)
        tm_text_printf(out, "[%s]", i == 0 && strstr(p->argv[0], "test_ab_command") ? "SELF" : p->argv[i]);
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
    tell_program(&asked.programs[0], &o->a);
    tell_program(&asked.programs[1], &o->b);
    asked.options = *o;
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
    for (int i = 0; i < 2; i++) asked.reports[i].length = 0;
    tm_ab_print_text(out, &asked.reports[0]);
    tm_ab_print_json(out, &asked.reports[1]);
    return ends == TM_OK ? TM_OK : tm_fail(err, ends, "it went wrong");
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Of words between bars. */
static tm_status call_ab(const char *words)
{
    told.length = 0;
    folder[0] = '\0';
    tm_status st = told_call(&tm_command_ab, words, "|");
    if (strstr(folder, "trainmark-ab")) assert_false(tm_file_exists(folder));
    return st;
}

#define MODEL "--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --training.threads 1"
#define SMALL MODEL "|--b|" MODEL

/* What the last call printed ends with the report. */
static void printed(const char *report)
{
    if (strncmp(told.data, report, strlen(report)) != 0) fail_msg("printed:\n%s\nwanted:\n%s", told.data, report);
}

#define RUN(text, build, binary, more)                                                                                 \
    text "|turns|" build "||[" binary                                                                                  \
         "][run][--model.dim][32][--model.n_heads][2][--model.n_kv_heads][1][--training.threads][1]" more
#define OWN RUN("trainmark run " MODEL, "", "SELF", "")
#define JOB " --job.description 'two words'"

TEST(words_become_options)
{
    static const struct {
        const char *words, *a, *b;
        double      turn, budget, target, least;
        long long   pairs, seed;
        bool        whole, json;
        const char *out;
    } all[] = {
        { "--a|" SMALL, OWN, OWN, 0.2, 120, 0.01, 0.005, 12, 1, false, false, NULL },
        { "--b|" MODEL " --debug.seed 2|--a|" MODEL
          "|--turn|0.05|--budget|1|--target|0|--min-pairs|6|--least-difference|0",
          OWN, RUN("trainmark run " MODEL " --debug.seed 2", "", "SELF", "[--debug.seed][2]"), 0.05, 1, 0, 0, 6, 1,
          false, false, NULL },
        { "--a|" SMALL "|--turn|run|--seed|9|--target|2.5|--least-difference|1.25|--budget|30|--json", OWN, OWN,
          30.0 / 160, 30, 0.025, 0.0125, 12, 9, true, true, NULL },
        { "--a|" SMALL "|--turn|1e6|--out|given", OWN, OWN, 1e6, 120, 0.01, 0.005, 12, 1, false, false, "given" },
        { "--a|" MODEL JOB "|--b-binary|./other",
          RUN("trainmark run " MODEL JOB, "build of this", "SELF", "[--job.description][two words]"),
          RUN("./other run " MODEL JOB, "build of ./other", "./other", "[--job.description][two words]"), 0.2, 120,
          0.01, 0.005, 12, 1, false, false, NULL },
        { "--a-binary|./one|--b-binary|./other|--b|any\\ thing \"at all\"",
          "./one run any\\ thing \"at all\"|turns|build of ./one||[./one][run][any thing][at all]",
          "./other run any\\ thing \"at all\"|turns|build of ./other||[./other][run][any thing][at all]", 0.2, 120,
          0.01, 0.005, 12, 1, false, false, NULL },
        { "--a-binary|./one|--a|x|--b-command|sh -c 'echo 1; echo 2'|--step-pattern|^[0-9]$",
          "./one run x|turns|build of ./one||[./one][run][x]",
          "sh -c 'echo 1; echo 2'|||^[0-9]$|[sh][-c][echo 1; echo 2]", 0.2, 120, 0.01, 0.005, 12, 1, false, false,
          NULL },
        { "--a-command|one|--b-command|'an other'  \"of words\" \\'|--turn|run", "one||||[one]",
          "'an other'  \"of words\" \\'||||[an other][of words][']", 0.2, 120, 0.01, 0.005, 12, 1, true, false, NULL },
    };
    slower = 1.25, ends = TM_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const tm_ab_options *o = &asked.options;
        assert_int_equal(call_ab(all[i].words), TM_OK);
        assert_string_equal(asked.programs[0].data, all[i].a);
        assert_string_equal(asked.programs[1].data, all[i].b);
        double is[] = { o->turn_seconds, o->budget_seconds, o->target, o->least_difference },
               wanted[] = { all[i].turn, all[i].budget, all[i].target, all[i].least };
        for (int k = 0; k < 4; k++)
            if (!(fabs(is[k] - wanted[k]) <= 1e-12 * wanted[k])) fail_msg("%s: %d is %g", all[i].words, k, is[k]);
        assert_int_equal(o->least_pairs, all[i].pairs);
        assert_int_equal(o->seed, all[i].seed);
        assert_int_equal(o->whole_runs, all[i].whole);
        assert_true(all[i].out ? strcmp(folder, all[i].out) == 0 : strstr(folder, "trainmark-ab") != NULL);
        printed(asked.reports[all[i].json].data);
    }
    assert_int_equal(call_ab("--a|" SMALL "|--out|given"), TM_OK);
    tm_text kept = fake_read("given/result.json");
    assert_string_equal(kept.data, asked.reports[1].data);
    assert_true(tm_file_exists("given/session.jsonl"));
    tm_text_fini(&kept);
}

#define TURN "option '--turn' must be a number from 0.05 to 1e6, or run; found '"
#define OPEN ": a quote is not closed, or a backslash ends the text: '"
#define GIVE_A "give A: --a, --a-binary or --a-command (`trainmark ab --help`)"
#define NO_ARGS "give --a or --b, the arguments of `trainmark run`"

TEST(what_is_refused)
{
    static const struct {
        const char *words, *wanted;
        tm_status   status;
    } all[] = {
        { "--json", GIVE_A, TM_USAGE },
        { "--a|" SMALL "|--turn|0.0499", TURN "0.0499'", TM_USAGE },
        { "--a|" SMALL "|--turn|runs", TURN "runs'", TM_USAGE },
        { "--a|" SMALL "|--turn|0.1s", TURN "0.1s'", TM_USAGE },
        { "--a-command|x", "give B: --b, --b-binary or --b-command (`trainmark ab --help`)", TM_USAGE },
        { "--a-command|x|--b-binary|y", NO_ARGS, TM_USAGE },
        { "--a-command|x|--a|x|--b|x", "--a-command cannot be given with --a or --a-binary; give one", TM_USAGE },
        { "--b-command|x|--b|x|--a|" MODEL, "--b-command cannot be given with --b or --b-binary; give one", TM_USAGE },
        { "--a-command||--b-command|x", "--a-command is empty; give a program and its arguments", TM_USAGE },
        { "--a-command|x 'y|--b-command|x", "--a-command" OPEN "'y'", TM_INVALID },
        { "--a|x 'y", "--a" OPEN "'y'", TM_INVALID },
        { "--a|" SMALL "|--step-pattern|x", "--step-pattern is for --a-command and --b-command", TM_USAGE },
        { "--a|" MODEL "|--b|--model.dimm 3", "did you mean 'model.dim'?", TM_INVALID },
        { "--a|" MODEL "|--b|--dry-run", "unknown option '--dry-run'", TM_USAGE },
        { "--a|" MODEL "|--b-binary|none", "--b-binary: no answer of 'none'", TM_INVALID },
        { "--a|" SMALL "|--out|/dev/null/x", "cannot create directory '/dev/null/x'", TM_INVALID },
        { "--from|nowhere", "cannot open 'nowhere'", TM_INVALID },
    };
    slower = 1.25, ends = TM_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_status st = call_ab(all[i].words);
        if (st != all[i].status || !strstr(told.data, all[i].wanted)) fail_msg("%s: %s", all[i].words, told.data);
        assert_string_equal(folder, "");
    }
}

/* Any option but two is the session's own. */
TEST(a_record_is_judged_as_it_was)
{
    slower = 1.25, ends = TM_OK;
    assert_int_equal(call_ab("--a|" SMALL "|--out|record"), TM_OK);
    for (size_t i = 0; i < tm_command_ab.n_options; i++) {
        const tm_option *o = &tm_command_ab.options[i];
        char             words[100];
        bool             judges = strcmp(o->name, "json") == 0 || strcmp(o->name, "fail-if-slower") == 0;
        if (strcmp(o->name, "from") == 0) continue;
        snprintf(words, sizeof words, "--from|record|--%s%s%s", o->name, o->value ? "|" : "", o->value ? "50" : "");
        tm_status st = call_ab(words);
        if (st != (judges ? TM_OK : TM_USAGE)) fail_msg("%s: %s", words, tm_status_text(st));
        if (!judges) assert_non_null(strstr(told.data, "only --json and --fail-if-slower may be given with it"));
        if (judges) printed(asked.reports[strcmp(o->name, "json") == 0].data);
        assert_string_equal(folder, "");
    }
    assert_int_equal(call_ab("--from|record/session.jsonl"), TM_OK);
    printed(asked.reports[0].data);
    assert_int_equal(call_ab("--from|record/result.json"), TM_FORMAT);
    assert_non_null(strstr(told.data, "'record/result.json', line 1"));
    /* A gate of exactly what B is slower by closes; one above it does not, nor where B is as fast, or faster. */
    assert_int_equal(call_ab("--from|record|--fail-if-slower|25"), TM_NEGATIVE);
    printed(asked.reports[0].data);
    assert_non_null(strstr(told.data, ": B is slower by 25.00 %, the limit (--fail-if-slower) is 25 %"));
    assert_int_equal(call_ab("--from|record|--fail-if-slower|25.001"), TM_OK);
    assert_int_equal(call_ab("--from|record|--fail-if-slower|0|--json"), TM_NEGATIVE);
    printed(asked.reports[1].data);
    slower = 1;
    assert_int_equal(call_ab("--a|" SMALL "|--fail-if-slower|0"), TM_OK);
    slower = 0.5;
    assert_int_equal(call_ab("--a|" SMALL "|--fail-if-slower|0"), TM_OK);
}

TEST(what_is_kept)
{
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
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)

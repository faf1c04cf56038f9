/* SPDX-License-Identifier: Apache-2.0 */
/* All that a check of a submitter's folder says, sentence by sentence, of folders in which nearly everything is odd:
 * tests/mlperf/whole-package.txt. And limits that take many files. */
#include "support/folder.h"
#include "support/mllogs.h"
#include "support/whole.h"

#include "base/file.h"
#include "mlperf/package.h"
#include "mlperf/package_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static char *top;

static const char *at(const char *name)
{
    static char paths[8][700];
    static int  next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[0], "%s/%s", top, name);
    return paths[next];
}

static void folder(const char *name)
{
    tm_error err = { 0 };
    assert_int_equal(tm_folder_make(at(name), &err), TM_OK);
}

static void put(const char *name, const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(at(name), text, strlen(text), &err), TM_OK);
}

/* Runs first..last of a result; samples rise by `step`. */
static void put_logs(const char *name, const char *benchmark, int first, int last, int64_t samples, int64_t step)
{
    folder(name);
    for (int i = first; i <= last; i++) {
        test_mllog log = test_mllog_good(benchmark, 8, samples + step * i, i);
        test_mllog_write(&log, at(name), i);
    }
}

static void add_notes(tm_text *out, const char *what, const tm_notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) {
        tm_text_printf(out, "  %s: ", what);
        for (const char *text = notes->items[i]; *text;) {
            bool here = strncmp(text, top, strlen(top)) == 0;
            tm_text_add_n(out, here ? "TOP" : text, here ? 3 : 1);
            text += here ? strlen(top) : 1;
        }
        tm_text_add(out, "\n");
    }
}

static void add_check(tm_text *out, const char *what, tm_ruleset ruleset, bool write)
{
    tm_package *p;
    tm_error    err = { 0 };
    tm_text     own = { 0 };
    tm_text_printf(out, "== %s\n", what);
    if (tm_package_check(at("pkg"), ruleset, NULL, write, &p, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_printf(out, "  %s, %zu systems, %zu results\n", p->passed ? "passed" : "failed", p->n_systems, p->n);
    add_notes(out, "error", &p->errors);
    add_notes(out, "warning", &p->warnings);
    add_notes(out, "repository", &p->repository);
    for (size_t i = 0; i < p->n_systems; i++) {
        tm_text_printf(out, " system %s%s\n", p->systems[i].name, p->systems[i].closed ? ", closed" : "");
        add_notes(out, "error", &p->systems[i].errors);
        add_notes(out, "warning", &p->systems[i].warnings);
    }
    for (size_t i = 0; i < p->n; i++) {
        const tm_package_result *r = &p->results[i];
        tm_text_printf(out, " result %s %s: system %s, %zu files, %zu fail%s%s, scaling %d\n", r->system, r->benchmark,
                       r->desc ? r->desc->name : "none", r->files, r->failing, r->looked_at ? ", looked at" : "",
                       r->bypassed ? ", bypassed" : "", (int)r->scaling);
        if (r->looked_at && r->desc->closed)
            tm_text_printf(out, "  %zu seeds%s; %s, factor %.12g, %s\n", r->seeds.n, r->seeds.passed ? "" : " fail",
                           r->score.rcp_word, r->score.factor, r->score.valid ? "valid" : "not valid");
        add_notes(out, "error", &r->errors);
        add_notes(out, "warning", &r->warnings);
        add_notes(out, "notice", &r->notices);
    }
    tm_text_fini(&own);
    tm_package_free(p);
}

static const char *const members[] = {
    "submitter",
    "system_name",
    "host_processor_model_name",
    "host_processor_core_count",
    "host_processor_vcpu_count",
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "host_memory_capacity",
    "host_storage_type",
    "host_storage_capacity",
    "host_networking",
    "host_networking_topology",
    "host_memory_configuration",
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "cooling",
    "hw_notes",
    "framework",
    "other_software_stack",
    "operating_system",
    "sw_notes",
};

static void put_system(const char *name, const char *division)
{
    tm_text text = { 0 };
    tm_text_printf(&text,
                   "{\"division\": \"%s\", \"status\": \"Preview\", \"number_of_nodes\": \"1\", "
                   "\"host_processors_per_node\": \"2\", \"accelerators_per_node\": \"8\"",
                   division);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) tm_text_printf(&text, ", \"%s\": \"\"", members[i]);
    tm_text_add(&text, "}");
    put(name, text.data);
    tm_text_fini(&text);
}

#define LORA "llama2_70b_lora"

static void folders_to_the_letter(void **state)
{
    tm_text out = { 0 };
    (void)state;
    folder("pkg");
    add_check(&out, "nothing", TM_RULESET_5_1_0, true);
    put("pkg/systems", "no folder");
    put("pkg/results", "no folder");
    add_check(&out, "files for folders", TM_RULESET_5_1_0, true);
    unlink(at("pkg/systems"));
    unlink(at("pkg/results"));
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put_system("pkg/systems/B.json", "open");
    put("pkg/systems/C.json", "[");
    put("pkg/systems/D.jsonl", "");
    put("pkg/systems/.json", "");
    put("pkg/systems/x.json.gz", "");
    folder("pkg/systems/E.json");
    folder("pkg/results/nothing here");
    put("pkg/results/file", "");
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3072, 0);
    put_logs("pkg/results/B/" LORA, LORA, 0, 8, 2688, 8);
    put_logs("pkg/results/C/" LORA, LORA, 0, 9, 3072, 8);
    put_logs("pkg/results/F/" LORA, LORA, 0, 9, 3072, 8);
    folder("pkg/results/A/retinanet");
    folder("pkg/results/A/qwen35_397b_grpo");
    folder("pkg/results/A/bert");
    folder("pkg/results/A/flux1");
    put("pkg/results/A/file", "");
    add_check(&out, "systems and benchmarks", TM_RULESET_5_1_0, false);
    /* One result with all that is odd. */
    test_tree_remove(strdup(at("pkg/results")));
    put_logs("pkg/results/A/" LORA, LORA, 0, 6, 3072, 128);
    put("pkg/results/A/" LORA "/result_8.txt.gz", "");
    put("pkg/results/A/" LORA "/result_.txt", "no log");
    put("pkg/results/A/" LORA "/result_.tx", "too short");
    put("pkg/results/A/" LORA "/result_9.log", "");
    put("pkg/results/A/" LORA "/scaling.json", "{}");
    put("pkg/results/A/" LORA "/package_checker_params", "nothing");
    folder("pkg/results/A/" LORA "/power");
    folder("pkg/results/A/" LORA "/result_11.txt");
    assert_int_equal(symlink(at("pkg/systems/C.json"), at("pkg/results/A/" LORA "/result_12.txt")), 0);
    assert_int_equal(symlink("/", at("pkg/results/A/" LORA "/result_13.txt")), 0);
    assert_int_equal(mkfifo(at("pkg/results/A/" LORA "/result_14.txt"), 0600), 0);
    add_check(&out, "odd files", TM_RULESET_5_1_0, false);
    for (int i = 0; i < 3; i++) {
        static const char *const odd[] = { "result_11.txt", "result_13.txt", "result_14.txt" };
        char                     name[200];
        snprintf(name, sizeof name, "pkg/results/A/" LORA "/%s", odd[i]);
        assert_int_equal(i ? unlink(at(name)) : rmdir(at(name)), 0);
    }
    unlink(at("pkg/results/A/" LORA "/result_8.txt.gz"));
    add_check(&out, "logs that are none", TM_RULESET_5_1_0, false);
    /* Runs that were aborted, that repeat seeds, of another division and benchmark. */
    test_tree_remove(strdup(at("pkg/results")));
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3072, 0);
    put_logs("pkg/results/B/llama31_8b", LORA, 0, 9, 3072, 0);
    for (int i = 7; i < 10; i++) {
        test_mllog log = test_mllog_good(LORA, 8, 3072, i);
        log.status = i == 7 ? "aborted" : "success";
        log.loss = i == 7 ? 0.95 : 0.92;
        log.seed = i == 8 ? -1 : 1003;
        test_mllog_write(&log, at("pkg/results/A/" LORA), i);
    }
    add_check(&out, "runs", TM_RULESET_5_1_0, true);
    put("pkg/results/A/package_checker_params", "rcp-bypass\nseed-checker-bypass");
    add_check(&out, "seeds let pass", TM_RULESET_6_1_0, true);
    put("pkg/results/A/package_checker_params", "seed-checker-bypass\nrcp-bypass\n");
    put("pkg/results/A/" LORA "/package_checker_params", "rcp-bypas\r\nseed-checker-bypass2\r\nrcp-bypass\r\n");
    folder("pkg/package_checker_params");
    add_check(&out, "words that are not seen", TM_RULESET_5_1_0, true);
    rmdir(at("pkg/package_checker_params"));
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 1000, 0);
    unlink(at("pkg/results/A/" LORA "/package_checker_params"));
    put("pkg/package_checker_params", "x\nrcp-bypass\ny\n");
    add_check(&out, "too fast, let pass", TM_RULESET_5_1_0, true);
    /* Lines that stop the convergence test, in two of the logs. */
    for (int i = 3; i < 9; i += 5) {
        char  name[200];
        FILE *log;
        snprintf(name, sizeof name, "pkg/results/A/" LORA "/result_%d.txt", i);
        log = fopen(at(name), "a");
        assert_non_null(log);
        fputs(i == 3 ? ":::MLLOG {\"global_batch_size\n" : ":::MLLOG {\"key\": \"global_batch_size\"}\n", log);
        assert_int_equal(fclose(log), 0);
    }
    add_check(&out, "no convergence test", TM_RULESET_5_1_0, true);
    test_tree_remove(strdup(at("pkg")));
    whole_is("tests/mlperf/whole-package.txt", &out);
}

/* The log of a run without its lines that have `word`; with `more` before its last line. */
static void change_log(const char *name, const char *word, const char *more)
{
    tm_text  text = { 0 }, out = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_file_read(at(name), 1 << 20, &text, &err), TM_OK);
    for (const char *line = text.data; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        if (!line[n]) tm_text_add(&out, more);
        if (!memmem(line, n, word, strlen(word))) tm_text_add_n(&out, line, n);
        line += n;
    }
    put(name, out.data);
    tm_text_fini(&text);
    tm_text_fini(&out);
}

/* Parameters that cannot be read, or say nearly what counts; logs that name neither benchmark nor division, or two
 * seeds; results that their own records judge. */
static void odd_parameters_and_logs_to_the_letter(void **state)
{
    tm_text out = { 0 };
    char    long_text[65538];
    (void)state;
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 1000, 0);
    memset(long_text, 'x', sizeof long_text);
    long_text[65537] = '\0';
    put("pkg/package_checker_params", long_text);
    put("pkg/results/A/package_checker_params", "rcp-bypasz\nseed-checker-bypasz\nrcp-bypass");
    assert_int_equal(symlink("nowhere", at("pkg/results/A/" LORA "/package_checker_params")), 0);
    add_check(&out, "one byte too many, and a link to nothing", TM_RULESET_5_1_0, false);
    long_text[65536] = '\0';
    put("pkg/package_checker_params", long_text);
    unlink(at("pkg/results/A/" LORA "/package_checker_params"));
    put("pkg/results/A/package_checker_params", "rcp-bypass\nrcp-bypasz");
    put("pkg/results/A/" LORA "/package_checker_params", "seed-checker-bypasz\nrcp-bypazz\n");
    add_check(&out, "as long as may be", TM_RULESET_5_1_0, false);
    test_tree_remove(strdup(at("pkg/results")));
    unlink(at("pkg/package_checker_params"));
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3072, 0);
    for (int i = 0; i < 10; i++) {
        char name[200];
        snprintf(name, sizeof name, "pkg/results/A/" LORA "/result_%d.txt", i);
        change_log(name, i == 3 ? "\"opt_base" : "submission_",
                   i == 5 ? ":::MLLOG {\"time_ms\": 1, \"key\": \"seed\", "
                            "\"value\": 77, \"metadata\": {\"file\": \"x\", \"lineno\": 5}}\n"
                          : "");
        if (i == 3) change_log(name, "submission_", "");
    }
    add_check(&out, "neither benchmark nor division", TM_RULESET_5_1_0, false);
    test_tree_remove(strdup(at("pkg")));
    whole_is("tests/mlperf/whole-package-odd.txt", &out);
}

/* Failures of the convergence test that a word lets pass, and those that none does. */
static void bypasses_to_the_letter(void **state)
{
    static const int64_t batches[] = { 8, 12, 4, 100000 };
    tm_text              out = { 0 };
    (void)state;
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put("pkg/package_checker_params", "rcp-bypass\n");
    for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
        folder("pkg/results/A/" LORA);
        for (int i = 0; i < 10; i++) {
            test_mllog log = test_mllog_good(LORA, batches[k], 500, i);
            test_mllog_write(&log, at("pkg/results/A/" LORA), i);
        }
        add_check(&out, "too fast", TM_RULESET_5_1_0, false);
    }
    for (int i = 0; i < 10; i++) {
        test_mllog log = test_mllog_good(LORA, 8 + i % 2, 500, i);
        test_mllog_write(&log, at("pkg/results/A/" LORA), i);
    }
    add_check(&out, "of two batches", TM_RULESET_5_1_0, false);
    test_tree_remove(strdup(at("pkg")));
    whole_is("tests/mlperf/whole-package-bypassed.txt", &out);
}

#define FOUR "\"samples to converge\": [3000, 3010, 3020, 3030]"

/* Records that are given judge the results of their benchmark, and no others. */
static void records_that_are_given_judge_their_own(void **state)
{
    static const char *const names[] = { LORA, "llama31_8b" };
    tm_arena                *arena = tm_arena_create();
    (void)state;
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3072, 0);
    for (int i = 0; i < 2; i++) {
        char                text[200];
        const tm_reference *given;
        tm_package         *p;
        tm_error            err = { 0 };
        snprintf(text, sizeof text, "{\"a\": {\"Benchmark\": \"%s\", \"BS\": 8, \"Hyperparams\": {}, " FOUR "}}",
                 names[i]);
        assert_int_equal(tm_reference_parse("own", text, strlen(text), arena, &given, &err), TM_OK);
        assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, given, false, &p, &err), TM_OK);
        assert_int_equal(p->n, 1);
        assert_true(p->results[0].score.rcp.judged);
        assert_true((p->results[0].score.rcp.record.mean < 3020) == (i == 0)); /* that built in: 3178.7 */
        tm_package_free(p);
        if (i == 1) continue;
        /* The folder is of their benchmark, the logs are not. */
        put_logs("pkg/results/A/" LORA, "llama31_8b", 0, 9, 3072, 0);
        assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, given, false, &p, &err), TM_OK);
        const tm_package_result *r = &p->results[0];
        assert_false(r->looked_at);
        assert_string_equal(
            r->errors.items[r->errors.n - 1],
            "the reference records are of 'llama2_70b_lora', the logs of 'llama31_8b'; give records of the same");
        tm_package_free(p);
        put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3072, 0);
    }
    tm_package_free(NULL);
    tm_arena_destroy(arena);
}

/* A factor of an earlier check that cannot be taken away ends the check. */
static void an_old_factor_that_stays_is_a_failure(void **state)
{
    tm_package *p = NULL;
    tm_error    err = { 0 };
    char        wanted[800];
    (void)state;
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put_logs("pkg/results/A/" LORA, LORA, 0, 9, 3840, 0);
    folder("pkg/results/A/" LORA "/scaling.json");
    assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, false, &p, &err), TM_OK);
    assert_int_equal(p->results[0].scaling, TM_SCALING_REMOVE);
    tm_package_free(p);
    assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, true, &p, &err), TM_IO);
    snprintf(wanted, sizeof wanted, "cannot remove the old '%s': Is a directory",
             at("pkg/results/A/" LORA "/scaling.json"));
    assert_string_equal(err.text, wanted);
}

/* Depth and number of directories and files that are gone through. */
static void limits_of_the_repository(void **state)
{
    tm_arena *arena = tm_arena_create();
    tm_notes  notes = { 0 };
    tm_text   path = { 0 };
    size_t    n;
    (void)state;
    folder("deep");
    tm_text_add(&path, "deep");
    for (int i = 0; i <= PACKAGE_DEPTH; i++) tm_text_add(&path, "/d");
    folder(path.data);
    char *root = realpath(at("deep"), NULL);
    package_check_repository(root, PACKAGE_ALL, &notes, arena);
    assert_int_equal(notes.n, 1);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "/d: directories more than %d deep", PACKAGE_DEPTH);
    assert_non_null(strstr(notes.items[0], wanted));
    assert_int_equal(rmdir(at(path.data)), 0);
    notes = (tm_notes){ 0 };
    package_check_repository(root, PACKAGE_ALL, &notes, arena);
    assert_int_equal(notes.n, 0);
    notes = (tm_notes){ 0 };
    package_check_repository(at("nowhere"), PACKAGE_ALL, &notes, arena);
    assert_int_equal(notes.n, 1);
    snprintf(wanted, sizeof wanted, ".: cannot be read, or has more than %d entries", PACKAGE_ENTRIES);
    assert_string_equal(notes.items[0], wanted);
    assert_null(package_list(root, at("nowhere"), arena, &n));
    assert_int_equal(n, 0);
    package_entry root_entry = package_look("/", "/dev/null", "x", arena);
    assert_true(root_entry.kind == ENTRY_OTHER && !root_entry.link); /* below "/" lies everything */
    package_entry beside = package_look("/de", "/dev/null", "x", arena);
    assert_int_equal(beside.kind, ENTRY_OUTSIDE);
    package_entry itself = package_look("/dev", "/dev", "x", arena);
    assert_int_equal(itself.kind, ENTRY_FOLDER);
    free(root);
    tm_text_fini(&path);
    tm_arena_destroy(arena);
}

static void entries_have_a_limit(void **state)
{
    tm_arena *arena = tm_arena_create();
    size_t    n;
    (void)state;
    put("file", "");
    folder("many");
    for (int i = 0; i < PACKAGE_ENTRIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/%d", i);
        assert_int_equal(link(at("file"), at(name)), 0);
    }
    assert_non_null(package_list(top, at("many"), arena, &n));
    assert_int_equal(n, PACKAGE_ENTRIES);
    assert_int_equal(link(at("file"), at("many/more")), 0);
    assert_null(package_list(top, at("many"), arena, &n));
    tm_arena_destroy(arena);
    /* In the place of each of the folders of a package. */
    tm_text out = { 0 };
    folder("pkg/systems");
    folder("pkg/results");
    put_system("pkg/systems/A.json", "closed");
    static const char *const places[] = { "pkg/results/A", "pkg/results/A/" LORA, "pkg/results", "pkg/systems" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (i == 1) folder("pkg/results/A");
        if (i == 2) assert_true(rmdir(at("pkg/results/A")) == 0 && rmdir(at("pkg/results")) == 0);
        if (i == 3) assert_true(unlink(at("pkg/systems/A.json")) == 0 && rmdir(at("pkg/systems")) == 0);
        assert_int_equal(rename(at("many"), at(places[i])), 0);
        add_check(&out, places[i], TM_RULESET_5_1_0, false);
        assert_int_equal(rename(at(places[i]), at("many")), 0);
    }
    whole_is("tests/mlperf/whole-package-full.txt", &out);
}

static int set_up(void **state)
{
    (void)state;
    top = test_tree_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(top);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(folders_to_the_letter, set_up, tear_down),
    cmocka_unit_test_setup_teardown(odd_parameters_and_logs_to_the_letter, set_up, tear_down),
    cmocka_unit_test_setup_teardown(bypasses_to_the_letter, set_up, tear_down),
    cmocka_unit_test_setup_teardown(records_that_are_given_judge_their_own, set_up, tear_down),
    cmocka_unit_test_setup_teardown(an_old_factor_that_stays_is_a_failure, set_up, tear_down),
    cmocka_unit_test_setup_teardown(limits_of_the_repository, set_up, tear_down),
    cmocka_unit_test_setup_teardown(entries_have_a_limit, set_up, tear_down),
};

TM_TESTS(tests, NULL, NULL)

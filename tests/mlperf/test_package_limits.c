/* SPDX-License-Identifier: Apache-2.0 */
/* Packages that other records judge, that a word lets pass, that nothing can be written to; limits that take many
 * files. */
#include "support/folder.h"
#include "support/mllogs.h"

#include "base/file.h"
#include "mlperf/package.h"
#include "mlperf/package_files.h"

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

/* Checks the package; of what is noted about all of it and about each result, one thing has `part`. */
static void check_says(const char *part)
{
    tm_package *p;
    tm_error    err = { 0 };
    int         found = 0;
    if (tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, false, &p, &err) != TM_OK) fail_msg("%s", err.text);
    assert_false(p->passed);
    for (size_t i = 0; i < p->errors.n; i++) found += strstr(p->errors.items[i], part) != NULL;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->results[i].errors.n; k++)
            found += strstr(p->results[i].errors.items[k], part) != NULL;
    if (found != 1) fail_msg("'%s' is said %d times", part, found);
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

/* Failures of the convergence test that a word lets pass, and one that none does. */
TEST(failures_that_a_word_lets_pass)
{
    static const struct {
        int64_t     batch, other; /* of even and of odd runs */
        const char *word, *warning;
    } rows[] = {
        { 8, 8, "Fail", "RCP test: RCP found passed using rcp_bypass" },
        { 12, 12, "Interp. Fail", "RCP test: RCP Interpolation passed using rcp_bypass" },
        { 4, 4, "Missing", "RCP test: Missing RCP, please submit RCP with BS = 4 passed using rcp_bypass" },
        { 100000, 100000, "Missing",
          "RCP test: Missing RCP, please submit RCP with BS = 100000 passed using rcp_bypass" },
        { 8, 9, "Unknown state", NULL },
    };
    folder("pkg/systems");
    put_system("pkg/systems/A.json", "closed");
    put("pkg/package_checker_params", "rcp-bypass\n");
    folder("pkg/results/A/" LORA);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        tm_package *p;
        tm_error    err = { 0 };
        for (int i = 0; i < 10; i++) {
            test_mllog log = test_mllog_good(LORA, i % 2 ? rows[k].other : rows[k].batch, 500, i);
            test_mllog_write(&log, at("pkg/results/A/" LORA), i);
        }
        assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, false, &p, &err), TM_OK);
        const tm_package_result *r = &p->results[0];
        assert_string_equal(r->score.rcp_word, rows[k].word);
        assert_true(p->passed == (rows[k].warning != NULL) && r->bypassed == p->passed);
        assert_true(r->looked_at && !r->score.valid && r->score.factor == 1 && r->seeds.n == 10);
        assert_int_equal(r->warnings.n, p->passed);
        assert_int_equal(r->errors.n, !p->passed);
        if (p->passed)
            assert_string_equal(r->warnings.items[0], rows[k].warning);
        else
            assert_string_equal(r->errors.items[0], "RCP test: Batch sizes in files do not match.");
        tm_package_free(p);
    }
}

#define FOUR "\"samples to converge\": [3000, 3010, 3020, 3030]"

/* Records that are given judge the results of their benchmark, and no others. */
TEST(records_that_are_given_judge_their_own)
{
    static const char *const names[] = { LORA, "llama31_8b" };
    tm_arena                *arena = tm_arena_create();
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
TEST(an_old_factor_that_stays_is_a_failure)
{
    tm_package *p = NULL;
    tm_error    err = { 0 };
    char        wanted[800];
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
TEST(limits_of_the_repository)
{
    tm_arena *arena = tm_arena_create();
    tm_notes  notes = { 0 };
    tm_text   path = { 0 };
    size_t    n;
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

TEST(entries_have_a_limit)
{
    tm_arena *arena = tm_arena_create();
    size_t    n;
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
    folder("pkg/systems");
    folder("pkg/results");
    put_system("pkg/systems/A.json", "closed");
    static const char *const places[] = { "pkg/results/A", "pkg/results/A/" LORA, "pkg/results", "pkg/systems" };
    static const char *const said[] = { "results/A cannot be read", "the directory cannot be read",
                                        "there is no directory 'results'", "there is no directory 'systems'" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (i == 1) folder("pkg/results/A");
        if (i == 2) assert_true(rmdir(at("pkg/results/A")) == 0 && rmdir(at("pkg/results")) == 0);
        if (i == 3) assert_true(unlink(at("pkg/systems/A.json")) == 0 && rmdir(at("pkg/systems")) == 0);
        assert_int_equal(rename(at("many"), at(places[i])), 0);
        check_says(said[i]);
        assert_int_equal(rename(at(places[i]), at("many")), 0);
    }
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

TEST_FIXTURE(set_up, tear_down)

/* SPDX-License-Identifier: Apache-2.0 */
/* A submitter's folder: what is checked, what is written, and that nothing outside of it is touched. */
#include "support/test.h"

#include "base/file.h"
#include "mlperf/package.h"
#include "support/folder.h"
#include "support/mllogs.h"
#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *top; /* holds "pkg" and, beside it, what must not be touched */

static const char good_system[] =
    "{\"submitter\": \"S\", \"division\": \"closed\", \"status\": \"Preview\", \"system_name\": \"Box\", "
    "\"number_of_nodes\": \"2\", \"host_processors_per_node\": \"2\", \"host_processor_model_name\": \"\", "
    "\"host_processor_core_count\": \"\", \"host_processor_vcpu_count\": \"\", \"host_processor_frequency\": \"\", "
    "\"host_processor_caches\": \"\", \"host_processor_interconnect\": \"\", \"host_memory_capacity\": \"\", "
    "\"host_storage_type\": \"\", \"host_storage_capacity\": \"\", \"host_networking\": \"\", "
    "\"host_networking_topology\": \"\", \"host_memory_configuration\": \"\", \"accelerators_per_node\": \"8\", "
    "\"accelerator_model_name\": \"\", \"accelerator_host_interconnect\": \"\", \"accelerator_frequency\": \"\", "
    "\"accelerator_on-chip_memories\": \"\", \"accelerator_memory_configuration\": \"\", "
    "\"accelerator_memory_capacity\": \"\", \"accelerator_interconnect\": \"\", "
    "\"accelerator_interconnect_topology\": \"\", \"cooling\": \"\", \"hw_notes\": \"\", \"framework\": \"\", "
    "\"other_software_stack\": \"\", \"operating_system\": \"\", \"sw_notes\": \"\"}";

static const char *at(const char *name)
{
    static char paths[4][600];
    static int  next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[0], "%s/%s", top, name);
    return paths[next];
}

static void put(const char *name, const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(at(name), text, strlen(text), &err), TM_OK);
}

static bool holds(const char *name, const char *text)
{
    tm_text  found = { 0 };
    tm_error err = { 0 };
    bool     same = tm_file_read(at(name), 1000, &found, &err) == TM_OK && strcmp(found.data, text) == 0;
    tm_text_fini(&found);
    return same;
}

#define LORA "pkg/results/BOX/llama2_70b_lora"
#define SCALING LORA "/scaling.json"

static void write_lora(int run, int64_t samples)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, samples, run);
    test_mllog_write(&log, at(LORA), run);
}

static int set_up(void **state)
{
    (void)state;
    tm_error err = { 0 };
    top = test_tree_make();
    if (tm_folder_make(at("pkg/systems"), &err) != TM_OK || tm_folder_make(at(LORA), &err) != TM_OK) return 1;
    put("pkg/systems/BOX.json", good_system);
    for (int i = 0; i < 10; i++) write_lora(i, 3072);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(top);
    return 0;
}

static tm_package *check(bool write)
{
    tm_package *p;
    tm_error    err = { 0 };
    if (tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, write, &p, &err) != TM_OK) fail_msg("%s", err.text);
    return p;
}

static bool says(const tm_notes *notes, const char *part)
{
    for (size_t i = 0; i < notes->n; i++)
        if (strstr(notes->items[i], part)) return true;
    return false;
}

/* Checks, expects failure, and that some error of the first result says so. */
static void fails(const char *part)
{
    tm_package *p = check(true);
    assert_false(p->passed);
    assert_true(p->n > 0);
    if (!says(&p->results[0].errors, part) && !says(&p->errors, part))
        fail_msg("no error says '%s', but: %s", part,
                 p->results[0].errors.n ? p->results[0].errors.items[0] : "nothing");
    tm_package_free(p);
}

TEST(a_good_package)
{
    tm_package *p = check(false);
    assert_true(p->passed && p->n == 1 && p->n_systems == 1 && p->repository.n == 0);
    assert_int_equal(p->results[0].scaling, TM_SCALING_WRITE);
    assert_false(tm_file_exists(at(SCALING))); /* --no-write */
    assert_int_equal(tm_system_desc_product(&p->systems[0], "accelerators_per_node", "number_of_nodes", p->arena), 16);
    tm_package_free(p);
    p = check(true);
    assert_true(p->passed && p->results[0].score.valid);
    assert_true(holds(SCALING, "{\"scaling_factor\": 1.034722222222222}"));
    tm_package_free(p);
    p = check(true); /* its own file is no stranger */
    assert_int_equal(p->results[0].warnings.n, 0);
    tm_package_free(p);
}

TEST(old_factors_go)
{
    put(SCALING, "{\"scaling_factor\": 7}");
    for (int i = 0; i < 10; i++) write_lora(i, 3456); /* slower than the reference: no factor */
    tm_package *p = check(false);
    assert_int_equal(p->results[0].scaling, TM_SCALING_REMOVE);
    assert_true(holds(SCALING, "{\"scaling_factor\": 7}"));
    tm_package_free(p);
    p = check(true);
    assert_true(p->passed);
    assert_false(tm_file_exists(at(SCALING)));
    tm_package_free(p);
    put(SCALING, "{\"scaling_factor\": 7}");
    for (int i = 0; i < 10; i++) write_lora(i, 2688); /* too fast: fails */
    p = check(true);
    assert_false(p->passed || tm_file_exists(at(SCALING)));
    assert_true(says(&p->results[0].errors, "RCP test: RCP found"));
    tm_package_free(p);
}

TEST(runs_that_fail)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3072, 3);
    log.loss = 0.93;
    test_mllog_write(&log, at(LORA), 3);
    tm_package *p = check(true);
    assert_true(p->passed);
    assert_true(says(&p->results[0].warnings, "1 file does not comply, accepting this under olympic scoring"));
    tm_package_free(p);
    log = test_mllog_good("llama2_70b_lora", 8, 3072, 4);
    log.loss = 0.93;
    test_mllog_write(&log, at(LORA), 4);
    fails("2 files do not comply, directory cannot be accepted");
}

TEST(number_and_names_of_files)
{
    write_lora(10, 3072);
    fails("found 11, expected 10");
    unlink(at(LORA "/result_10.txt"));
    unlink(at(LORA "/result_9.txt"));
    fails("found 9, expected 10");
    write_lora(9, 3072);
    put(LORA "/notes.txt", "");
    tm_package *p = check(true);
    assert_true(p->passed);
    assert_true(says(&p->results[0].warnings, "1 other files"));
    tm_package_free(p);
    put(LORA "/result_9.txt.gz", "");
    fails("found 11");
}

TEST(seeds_and_bypasses)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3072, 3);
    log.seed = 1004; /* the one of run 4 */
    test_mllog_write(&log, at(LORA), 3);
    fails("seed check failed");
    fails("However, result file result_3.txt already logs the same seed");
    put(LORA "/package_checker_params", "seed-checker-bypass\n"); /* the public checker does not see it */
    fails("seed check failed");
    put(LORA "/package_checker_params", "seed-checker-bypass");
    tm_package *p = check(true);
    assert_true(p->passed);
    assert_true(says(&p->results[0].warnings, "passed using seed-checker-bypass"));
    tm_package_free(p);
    for (int i = 0; i < 10; i++) write_lora(i, 2688);
    fails("RCP test: RCP found");
    put("pkg/package_checker_params", "seed-checker-bypass\nrcp-bypass\n"); /* at the top every line counts */
    p = check(true);
    assert_true(p->passed && p->results[0].bypassed);
    assert_true(says(&p->results[0].warnings, "RCP found passed using rcp_bypass"));
    tm_package_free(p);
    for (int i = 0; i < 2; i++) unlink(at(i ? LORA "/result_1.txt" : LORA "/result_0.txt"));
    log.status = "aborted";
    log.seed = 1;
    test_mllog_write(&log, at(LORA), 0);
    log.seed = 2;
    test_mllog_write(&log, at(LORA), 1);
    fails("RCP test: Insufficient convergence"); /* no bypass for that */
    unlink(at("pkg/package_checker_params"));
    put("pkg/results/BOX/package_checker_params", "x\nrcp-bypass");
    for (int i = 0; i < 10; i++) write_lora(i, 2688);
    p = check(true);
    assert_true(p->passed);
    tm_package_free(p);
}

TEST(open_division)
{
    tm_text text = { 0 };
    tm_text_add(&text, good_system);
    memcpy(strstr(text.data, "closed"), "opened", 6);
    put("pkg/systems/BOX.json", text.data);
    tm_text_fini(&text);
    for (int i = 0; i < 10; i++) write_lora(i, 2688); /* too fast for the closed division */
    tm_package *p = check(true);
    assert_true(p->passed);
    assert_true(says(&p->results[0].warnings, "the logs say division 'closed'"));
    assert_false(p->results[0].score.closed || tm_file_exists(at(SCALING)));
    tm_package_free(p);
}

TEST(systems)
{
    const struct {
        const char *from, *to, *error;
    } rows[] = {
        { "\"Preview\"", "\"preview\"", "status is none of" },
        { "\"cooling\"", "\"warming\"", "'cooling' is missing" },
        { "\"number_of_nodes\": \"2\"", "\"number_of_nodes\": \"x\"", "'number_of_nodes' does not read as an integer" },
        { "\"submitter\": \"S\"", "\"submitter\": {S}", "is not JSON" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text     text = { 0 };
        const char *place = strstr(good_system, rows[i].from);
        tm_text_add_n(&text, good_system, (size_t)(place - good_system));
        tm_text_printf(&text, "%s%s", rows[i].to, place + strlen(rows[i].from));
        put("pkg/systems/BOX.json", text.data);
        tm_package *p = check(true);
        assert_false(p->passed);
        if (!says(&p->systems[0].errors, rows[i].error)) fail_msg("row %zu: '%s' is not said", i, rows[i].error);
        tm_package_free(p);
        tm_text_fini(&text);
    }
    put("pkg/systems/BOX.json", "[]");
    tm_package *p = check(true);
    assert_true(says(&p->systems[0].errors, "holds no object"));
    tm_package_free(p);
    rename(at("pkg/systems/BOX.json"), at("pkg/systems/OTHER.json"));
    put("pkg/systems/OTHER.json", good_system);
    fails("there is no systems/BOX.json");
}

TEST(benchmarks)
{
    tm_error err = { 0 };
    assert_int_equal(tm_folder_make(at("pkg/results/BOX/minigo"), &err), TM_OK);
    tm_package *p = check(true);
    assert_true(p->passed && says(&p->warnings, "Skipping benchmark: minigo"));
    tm_package_free(p);
    assert_int_equal(tm_folder_make(at("pkg/results/BOX/rgat"), &err), TM_OK);
    fails("results/BOX/rgat: the rules of this benchmark are not known here");
    rmdir(at("pkg/results/BOX/rgat"));
    assert_int_equal(tm_folder_make(at("pkg/results/BOX/llama31_8b"), &err), TM_OK);
    p = check(true); /* an empty folder */
    assert_false(p->passed);
    assert_int_equal(p->n, 2);
    assert_true(says(&p->results[1].errors, "found 0, expected 10"));
    tm_package_free(p);
    for (int i = 0; i < 10; i++) {
        test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3072, i);
        test_mllog_write(&log, at("pkg/results/BOX/llama31_8b"), i);
    }
    p = check(true);
    assert_true(
        says(&p->results[1].errors, "the logs are of benchmark 'llama2_70b_lora', the directory is 'llama31_8b'"));
    tm_package_free(p);
}

TEST(nothing_there)
{
    tm_package *p = NULL;
    tm_error    err = { 0 };
    assert_int_equal(tm_package_check(at("nowhere"), TM_RULESET_5_1_0, NULL, true, &p, &err), TM_INVALID);
    err = (tm_error){ 0 };
    assert_int_equal(tm_package_check(at("pkg/systems/BOX.json"), TM_RULESET_5_1_0, NULL, true, &p, &err), TM_INVALID);
    tm_error own = { 0 };
    assert_int_equal(tm_folder_make(at("empty"), &own), TM_OK);
    assert_int_equal(tm_package_check(at("empty"), TM_RULESET_5_1_0, NULL, true, &p, &own), TM_OK);
    assert_false(p->passed);
    assert_true(says(&p->errors, "'systems'") && says(&p->errors, "'results'") &&
                says(&p->errors, "no result was checked"));
    tm_package_free(p);
    put(LORA "/result_4.txt", "\x1f\x8b no log at all");
    p = check(true);
    assert_int_equal(p->results[0].failing, 1); /* which may be, but it has no batch either */
    assert_true(says(&p->results[0].errors, "RCP test: Batch sizes in files do not match."));
    tm_package_free(p);
    unlink(at(LORA "/result_4.txt"));
    put(LORA "/result_4.txt.gz", "no gzip");
    fails("result_4.txt.gz");
}

TEST(repository)
{
    tm_error err = { 0 };
    assert_int_equal(tm_folder_make(at("pkg/benchmarks/.git"), &err), TM_OK);
    put("pkg/benchmarks/a name.py", "");
    assert_int_equal(symlink("nothing", at("pkg/benchmarks/broken")), 0);
    assert_int_equal(symlink("../systems", at("pkg/benchmarks/inside")), 0);
    FILE *f = fopen(at("pkg/benchmarks/large"), "w");
    assert_true(f && ftruncate(fileno(f), 52428801) == 0 && fclose(f) == 0);
    f = fopen(at("pkg/benchmarks/just"), "w");
    assert_true(f && ftruncate(fileno(f), 52428800) == 0 && fclose(f) == 0);
    tm_package *p = check(true);
    assert_true(p->passed); /* another step */
    assert_int_equal(p->repository.n, 4);
    assert_true(says(&p->repository, "benchmarks/.git: the name begins with '.'"));
    assert_true(says(&p->repository, "benchmarks/a name.py: the name has a space"));
    assert_true(says(&p->repository, "benchmarks/broken: a link that leads nowhere"));
    assert_true(says(&p->repository, "benchmarks/large: 52428801 bytes"));
    tm_package_free(p);
}

/* Links that lead out: named, never followed. */
TEST(links_out)
{
    tm_error err = { 0 };
    /* a whole result beside the package */
    assert_int_equal(rename(at(LORA), at("elsewhere")), 0);
    assert_int_equal(symlink("../../../elsewhere", at(LORA)), 0);
    tm_package *p = check(true);
    assert_false(p->passed || tm_file_exists(at("elsewhere/scaling.json")));
    assert_int_equal(p->n, 0);
    assert_true(says(&p->errors, "results/BOX/llama2_70b_lora leads out of the package"));
    assert_true(says(&p->repository, "a link that leads out of the package"));
    tm_package_free(p);
    unlink(at(LORA));
    assert_int_equal(rename(at("elsewhere"), at(LORA)), 0);
    /* one log */
    assert_int_equal(rename(at(LORA "/result_2.txt"), at("secret.txt")), 0);
    assert_int_equal(symlink(at("secret.txt"), at(LORA "/result_2.txt")), 0);
    fails("result_2.txt leads out of the package");
    unlink(at(LORA "/result_2.txt"));
    /* a link that stays inside is followed */
    assert_int_equal(rename(at("secret.txt"), at("pkg/kept.txt")), 0);
    assert_int_equal(symlink("../../../kept.txt", at(LORA "/result_2.txt")), 0);
    p = check(false);
    assert_true(p->passed);
    tm_package_free(p);
    /* scaling.json is replaced, what it led to is not touched */
    put("victim", "mine");
    assert_int_equal(symlink(at("victim"), at(SCALING)), 0);
    p = check(true);
    assert_true(p->passed && holds("victim", "mine"));
    assert_true(holds(SCALING, "{\"scaling_factor\": 1.034722222222222}"));
    tm_package_free(p);
    unlink(at(SCALING));
    assert_int_equal(symlink(at("victim"), at(SCALING)), 0);
    for (int i = 0; i < 10; i++)
        if (i != 2) write_lora(i, 3840);
    p = check(true); /* removed: the link, not the file */
    assert_true(holds("victim", "mine") && access(at(SCALING), F_OK) != 0);
    tm_package_free(p);
    /* systems */
    assert_int_equal(rename(at("pkg/systems"), at("systems-elsewhere")), 0);
    assert_int_equal(symlink("../systems-elsewhere", at("pkg/systems")), 0);
    fails("the directory 'systems' leads out of the package");
    unlink(at("pkg/systems"));
    assert_int_equal(tm_folder_make(at("pkg/systems"), &err), TM_OK);
    assert_int_equal(symlink("../../systems-elsewhere/BOX.json", at("pkg/systems/BOX.json")), 0);
    p = check(true);
    assert_true(!p->passed && says(&p->systems[0].errors, "leads out of the package"));
    tm_package_free(p);
}

TEST_FIXTURE(set_up, tear_down)

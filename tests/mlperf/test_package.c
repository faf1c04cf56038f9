/* SPDX-License-Identifier: Apache-2.0 */
/* A submitter's folder: what is checked, what is written, what a word lets pass, that nothing outside of it is touched;
 * what is in its folders, and all that is wrong with names, sizes, links, depths and numbers. */
#include "support/folder.h"
#include "support/mllogs.h"

#include "base/file.h"
#include "apps/mlperf/package.h"
#include "apps/mlperf/package_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

#define LORA "pkg/results/BOX/llama2_70b_lora"
#define SCALING LORA "/scaling.json"

static tm_arena *arena;
static char     *top; /* holds "pkg" and, beside it, what must not be touched */
static char      good_system[2048];

static const char *at(const char *name)
{
    static char paths[4][700];
    static int  next;
    next = (next + 1) % 4;
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

static void put_sized(const char *name, off_t bytes)
{
    put(name, "");
    assert_int_equal(truncate(at(name), bytes), 0);
}

static void points(const char *name, const char *to)
{
    assert_int_equal(symlink(to, at(name)), 0);
}

static void moves(const char *from, const char *to)
{
    assert_int_equal(rename(at(from), at(to)), 0);
}

static bool holds(const char *name, const char *text)
{
    tm_text  found = { 0 };
    tm_error err = { 0 };
    bool     same = tm_file_read(at(name), 1000, &found, &err) == TM_OK && strcmp(found.data, text) == 0;
    tm_text_fini(&found);
    return same;
}

static void write_lora(int run, int64_t samples)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, samples, run);
    test_mllog_write(&log, at(LORA), run);
}

static void write_ten(const char *name, const char *benchmark, int64_t samples)
{
    for (int i = 0; i < 10; i++) {
        test_mllog log = test_mllog_good(benchmark, 8, samples, i);
        test_mllog_write(&log, at(name), i);
    }
}

static int set_up(void **state)
{
    (void)state;
    static const char members[] =
        "submitter system_name host_processor_model_name host_processor_core_count host_processor_vcpu_count "
        "host_processor_frequency host_processor_caches host_processor_interconnect host_memory_capacity "
        "host_storage_type host_storage_capacity host_networking host_networking_topology host_memory_configuration "
        "accelerator_model_name accelerator_host_interconnect accelerator_frequency accelerator_on-chip_memories "
        "accelerator_memory_configuration accelerator_memory_capacity accelerator_interconnect "
        "accelerator_interconnect_topology cooling hw_notes framework other_software_stack operating_system sw_notes ";
    snprintf(good_system, sizeof good_system,
             "{\"division\": \"closed\", \"status\": \"Preview\", \"number_of_nodes\": \"2\", "
             "\"host_processors_per_node\": \"2\", \"accelerators_per_node\": \"8\"");
    for (const char *m = members; *m; m += strcspn(m, " ") + 1) {
        strcat(good_system, ", \"");
        strncat(good_system, m, strcspn(m, " "));
        strcat(good_system, "\": \"\"");
    }
    strcat(good_system, "}");
    arena = tm_arena_create();
    top = test_tree_make();
    folder("pkg/systems");
    folder(LORA);
    put("pkg/systems/BOX.json", good_system);
    write_ten(LORA, "llama2_70b_lora", 3072);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(top);
    tm_arena_destroy(arena);
    return 0;
}

static tm_package *check_by(const tm_reference *given, bool write)
{
    tm_package *p;
    tm_error    err = { 0 };
    if (tm_package_check(at("pkg"), TM_RULESET_5_1_0, given, write, &p, &err) != TM_OK) fail_msg("%s", err.text);
    return p;
}

static tm_package *check(bool write)
{
    return check_by(NULL, write);
}

static size_t said(const tm_notes *notes, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < notes->n; i++) n += strstr(notes->items[i], part) != NULL;
    return n;
}

/* Checks; what is wrong, of all of it or of one system or result, is said once. */
static void fails(const char *part)
{
    tm_package *p = check(true);
    size_t      n = said(&p->errors, part);
    for (size_t i = 0; i < p->n; i++) n += said(&p->results[i].errors, part);
    for (size_t i = 0; i < p->n_systems; i++) n += said(&p->systems[i].errors, part);
    if (p->passed || n != 1) fail_msg("passed %d, '%s' is said %zu times", p->passed, part, n);
    tm_package_free(p);
}

static void passes(const char *warning)
{
    tm_package *p = check(true);
    size_t      n = said(&p->warnings, warning);
    for (size_t i = 0; i < p->n; i++) n += said(&p->results[i].warnings, warning);
    if (!p->passed || n < (*warning != '\0')) fail_msg("passed %d, '%s' is said %zu times", p->passed, warning, n);
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
    tm_package_free(NULL);
}

TEST(old_factors_go)
{
    tm_error err = { 0 };
    put(SCALING, "{\"scaling_factor\": 7}");
    write_ten(LORA, "llama2_70b_lora", 3456); /* slower than the reference: no factor */
    tm_package *p = check(false);
    assert_int_equal(p->results[0].scaling, TM_SCALING_REMOVE);
    assert_true(holds(SCALING, "{\"scaling_factor\": 7}"));
    tm_package_free(p);
    passes("");
    assert_false(tm_file_exists(at(SCALING)));
    folder(SCALING); /* one that stays ends the check */
    assert_int_equal(tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, true, &p, &err), TM_IO);
    assert_string_equal(err.text, tm_arena_format(arena, "cannot remove the old '%s': Is a directory", at(SCALING)));
    rmdir(at(SCALING));
    put(SCALING, "{\"scaling_factor\": 7}");
    write_ten(LORA, "llama2_70b_lora", 2688);
    fails("RCP test: RCP found"); /* too fast */
    assert_false(tm_file_exists(at(SCALING)));
}

TEST(runs_that_fail)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3072, 3);
    log.loss = 0.93;
    test_mllog_write(&log, at(LORA), 3);
    passes("1 file does not comply, accepting this under olympic scoring");
    log.seed = 1234567;
    test_mllog_write(&log, at(LORA), 4);
    fails("2 files do not comply, directory cannot be accepted");
    write_ten(LORA, "llama2_70b_lora", 3072);
    put(LORA "/result_4.txt", "\x1f\x8b no log at all");
    tm_package *p = check(true);
    assert_int_equal(p->results[0].failing, 1); /* which may be, but it has no batch either */
    tm_package_free(p);
    fails("RCP test: Batch sizes in files do not match.");
    unlink(at(LORA "/result_4.txt"));
    put(LORA "/result_4.txt.gz", "no gzip");
    fails("result_4.txt.gz");
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
    passes("1 other files");
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
    passes("passed using seed-checker-bypass");
    write_ten(LORA, "llama2_70b_lora", 2688);
    fails("RCP test: RCP found");
    put("pkg/package_checker_params", "seed-checker-bypass\nrcp-bypass\n"); /* at the top every line counts */
    passes("RCP found passed using rcp_bypass");
    log.status = "aborted";
    for (int i = 0; i < 2; i++) {
        log.seed = i + 1;
        test_mllog_write(&log, at(LORA), i);
    }
    fails("RCP test: Insufficient convergence"); /* no bypass for that */
    unlink(at("pkg/package_checker_params"));
    put("pkg/results/BOX/package_checker_params", "x\nrcp-bypass");
    write_ten(LORA, "llama2_70b_lora", 2688);
    passes("");
}

TEST(open_division)
{
    char text[sizeof good_system];
    strcpy(text, good_system);
    memcpy(strstr(text, "closed"), "opened", 6);
    put("pkg/systems/BOX.json", text);
    write_ten(LORA, "llama2_70b_lora", 2688); /* too fast for the closed division */
    passes("the logs say division 'closed'");
    tm_package *p = check(true);
    assert_false(p->results[0].score.closed || tm_file_exists(at(SCALING)));
    tm_package_free(p);
}

TEST(systems)
{
    static const char *const rows[][3] = {
        { "\"Preview\"", "\"preview\"", "status is none of" },
        { "\"cooling\"", "\"warming\"", "'cooling' is missing" },
        { "\"number_of_nodes\": \"2\"", "\"number_of_nodes\": \"x\"", "'number_of_nodes' does not read as an integer" },
        { "\"submitter\": \"\"", "\"submitter\": {S}", "is not JSON" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *place = strstr(good_system, rows[i][0]);
        put("pkg/systems/BOX.json", tm_arena_format(arena, "%.*s%s%s", (int)(place - good_system), good_system,
                                                    rows[i][1], place + strlen(rows[i][0])));
        fails(rows[i][2]);
    }
    put("pkg/systems/BOX.json", "[]");
    fails("holds no object");
    moves("pkg/systems/BOX.json", "pkg/systems/OTHER.json");
    put("pkg/systems/OTHER.json", good_system);
    fails("there is no systems/BOX.json");
}

TEST(benchmarks)
{
    folder("pkg/results/BOX/minigo");
    passes("Skipping benchmark: minigo");
    folder("pkg/results/BOX/rgat");
    fails("results/BOX/rgat: the rules of this benchmark are not known here");
    rmdir(at("pkg/results/BOX/rgat"));
    folder("pkg/results/BOX/llama31_8b");
    fails("found 0, expected 10");
    write_ten("pkg/results/BOX/llama31_8b", "llama2_70b_lora", 3072);
    fails("the logs are of benchmark 'llama2_70b_lora', the directory is 'llama31_8b'");
}

TEST(nothing_there)
{
    static const char *const none[] = { "nowhere", "pkg/systems/BOX.json" };
    for (int i = 0; i < 2; i++) {
        tm_package *p = NULL;
        tm_error    err = { 0 };
        assert_int_equal(tm_package_check(at(none[i]), TM_RULESET_5_1_0, NULL, true, &p, &err), TM_INVALID);
    }
    moves("pkg", "aside");
    folder("pkg");
    fails("'systems'");
    fails("'results'");
    fails("no result was checked");
}

/* Links that lead out: named, never followed. */
TEST(links_out)
{
    moves(LORA, "elsewhere"); /* a whole result beside the package */
    points(LORA, "../../../elsewhere");
    tm_package *p = check(true);
    assert_false(p->passed || tm_file_exists(at("elsewhere/scaling.json")));
    assert_int_equal(p->n, 0);
    assert_int_equal(said(&p->repository, "a link that leads out of the package"), 1);
    tm_package_free(p);
    fails("results/BOX/llama2_70b_lora leads out of the package");
    unlink(at(LORA));
    moves("elsewhere", LORA);
    moves(LORA "/result_2.txt", "secret.txt"); /* one log */
    points(LORA "/result_2.txt", at("secret.txt"));
    fails("result_2.txt leads out of the package");
    unlink(at(LORA "/result_2.txt"));
    moves("secret.txt", "pkg/kept.txt"); /* a link that stays inside is followed */
    points(LORA "/result_2.txt", "../../../kept.txt");
    passes("");
    unlink(at(SCALING));
    put("victim", "mine"); /* scaling.json is replaced, what it led to is not touched */
    points(SCALING, at("victim"));
    passes("");
    assert_true(holds("victim", "mine") && holds(SCALING, "{\"scaling_factor\": 1.034722222222222}"));
    unlink(at(SCALING));
    points(SCALING, at("victim"));
    for (int i = 0; i < 10; i++)
        if (i != 2) write_lora(i, 3840);
    passes(""); /* removed: the link, not the file */
    assert_true(holds("victim", "mine") && access(at(SCALING), F_OK) != 0);
    moves("pkg/systems", "systems-elsewhere");
    points("pkg/systems", "../systems-elsewhere");
    fails("the directory 'systems' leads out of the package");
    unlink(at("pkg/systems"));
    folder("pkg/systems");
    points("pkg/systems/BOX.json", "../../systems-elsewhere/BOX.json");
    fails("leads out of the package");
}

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
    put("pkg/package_checker_params", "rcp-bypass\n");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int i = 0; i < 10; i++) {
            test_mllog log = test_mllog_good("llama2_70b_lora", i % 2 ? rows[k].other : rows[k].batch, 500, i);
            test_mllog_write(&log, at(LORA), i);
        }
        tm_package              *p = check(false);
        const tm_package_result *r = &p->results[0];
        const tm_notes          *told = p->passed ? &r->warnings : &r->errors;
        assert_string_equal(r->score.rcp_word, rows[k].word);
        assert_true(p->passed == (rows[k].warning != NULL) && r->bypassed == p->passed);
        assert_true(r->looked_at && !r->score.valid && r->score.factor == 1 && r->seeds.n == 10);
        assert_int_equal(r->warnings.n + r->errors.n, 1);
        assert_string_equal(told->items[0],
                            p->passed ? rows[k].warning : "RCP test: Batch sizes in files do not match.");
        tm_package_free(p);
    }
}

/* Records that are given judge the results of their benchmark, and no others. */
TEST(records_that_are_given_judge_their_own)
{
    const tm_reference *given[2];
    tm_error            err = { 0 };
    for (int i = 0; i < 2; i++) {
        const char *text = tm_arena_format(arena,
                                           "{\"a\": {\"Benchmark\": \"%s\", \"BS\": 8, \"Hyperparams\": {}, "
                                           "\"samples to converge\": [3000, 3010, 3020, 3030]}}",
                                           i ? "llama31_8b" : "llama2_70b_lora");
        assert_int_equal(tm_reference_parse("own", text, strlen(text), arena, &given[i], &err), TM_OK);
        tm_package *p = check_by(given[i], false);
        assert_true(p->n == 1 && p->results[0].score.rcp.judged);
        assert_true((p->results[0].score.rcp.record.mean < 3020) == (i == 0)); /* that built in: 3178.7 */
        tm_package_free(p);
    }
    write_ten(LORA, "llama31_8b", 3072); /* the folder is of their benchmark, the logs are not */
    tm_package              *p = check_by(given[0], false);
    const tm_package_result *r = &p->results[0];
    assert_false(r->looked_at);
    assert_string_equal(
        r->errors.items[r->errors.n - 1],
        "the reference records are of 'llama2_70b_lora', the logs of 'llama31_8b'; give records of the same");
    tm_package_free(p);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

TEST(folders_are_listed)
{
    size_t n = 7;
    folder("list/c");
    put("list/b", "x");
    put("list/a", "12345");
    points("list/d", "a");
    points("list/e", "c");
    points("list/f", "nowhere");
    points("list/g", "/");
    assert_int_equal(mkfifo(at("list/h"), 0600), 0);
    static const struct {
        const char *name, *target;
        entry_kind  kind;
        bool        link;
    } rows[] = { { "a", "a", ENTRY_FILE, false },   { "b", "b", ENTRY_FILE, false },  { "c", "c", ENTRY_FOLDER, false },
                 { "d", "a", ENTRY_FILE, true },    { "e", "c", ENTRY_FOLDER, true }, { "f", "f", ENTRY_BROKEN, true },
                 { "g", "g", ENTRY_OUTSIDE, true }, { "h", "h", ENTRY_OTHER, false } };
    char          *root = realpath(at("list"), NULL);
    package_entry *entries = package_list(root, root, arena, &n);
    assert_non_null(entries);
    assert_int_equal(n, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(entries[i].name, rows[i].name);
        assert_string_equal(entries[i].path, tm_arena_format(arena, "%s/%s", root, rows[i].target));
        assert_int_equal(entries[i].kind, rows[i].kind);
        assert_int_equal(entries[i].link, rows[i].link);
    }
    assert_true(entries[0].bytes == 5 && entries[1].bytes == 1 && entries[3].bytes == 5);
    const char *none = tm_arena_format(arena, "%s/none", root);
    assert_int_equal(package_look(root, none, "none", arena).kind, ENTRY_BROKEN);
    assert_false(package_look(root, none, "none", arena).link);
    assert_null(package_list(root, none, arena, &n));
    assert_int_equal(n, 0);
    assert_non_null(package_list(root, entries[2].path, arena, &n)); /* an empty one is no failure */
    assert_int_equal(n, 0);
    package_entry null = package_look("/", "/dev/null", "x", arena); /* below "/" lies everything */
    assert_true(null.kind == ENTRY_OTHER && !null.link);
    assert_int_equal(package_look("/de", "/dev/null", "x", arena).kind, ENTRY_OUTSIDE);
    assert_int_equal(package_look("/dev", "/dev", "x", arena).kind, ENTRY_FOLDER);
    free(root);
}

/* What is said of the folder, a note a line. */
static void finds(const char *name, size_t most, const char *wanted)
{
    tm_notes errors = { 0 };
    tm_text  all = { 0 };
    char    *root = realpath(at(name), NULL);
    tm_text_add(&all, "");
    package_check_repository(root ? root : at(name), most, &errors, arena);
    for (size_t i = 0; i < errors.n; i++) tm_text_printf(&all, "%s\n", errors.items[i]);
    assert_string_equal(all.data, wanted);
    tm_text_fini(&all);
    free(root);
}

TEST(all_that_is_wrong_is_found)
{
    folder("all/deep");
    put("all/fine", "");
    put("all/.hidden", "");
    put("all/a file", "");
    put_sized("all/just", 50 << 20);
    put_sized("all/large", (50 << 20) + 1);
    put("all/deep/.x y", "");
    points("all/deep/out", "/usr");
    points("all/lost", "gone");
    points("all/twice", "deep"); /* what a link leads to is looked at once */
    static const char all[] = ".hidden: the name begins with '.'\na file: the name has a space\n"
                              "deep/.x y: the name begins with '.'\ndeep/.x y: the name has a space\n"
                              "deep/out: a link that leads out of the package\n"
                              "large: 52428801 bytes, more than 50 MiB\nlost: a link that leads nowhere\n";
    /* Ten entries are looked at; where fewer may be, the first of them. */
    static const struct {
        size_t      most, found;
        const char *from;
    } limits[] = { { PACKAGE_ALL, 7, NULL }, { 10, 7, NULL },      { 9, 7, "twice" },
                   { 8, 6, "lost" },         { 4, 4, "deep/out" }, { 0, 0, ".hidden" } };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *end = all;
        for (size_t k = 0; k < limits[i].found; k++) end = strchr(end, '\n') + 1;
        finds("all", limits[i].most,
              tm_arena_format(arena, limits[i].from ? "%.*stoo many files: from %s on they were not checked\n" : "%.*s",
                              (int)(end - all), all, limits[i].from));
    }
    finds("nowhere", PACKAGE_ALL,
          tm_arena_format(arena, ".: cannot be read, or has more than %d entries\n", PACKAGE_ENTRIES));
    const char *path = "deep";
    for (int i = 0; i <= PACKAGE_DEPTH; i++) path = tm_arena_format(arena, "%s/d", path);
    folder(path);
    finds("deep", PACKAGE_ALL, tm_arena_format(arena, "%s: directories more than %d deep\n", path + 5, PACKAGE_DEPTH));
    assert_int_equal(rmdir(at(path)), 0);
    finds("deep", PACKAGE_ALL, "");
    folder("pkg/benchmarks");
    put("pkg/benchmarks/a name.py", "");
    tm_package *p = check(true);
    assert_true(p->passed); /* another step */
    assert_int_equal(p->repository.n, 1);
    assert_string_equal(p->repository.items[0], "benchmarks/a name.py: the name has a space");
    tm_package_free(p);
}

TEST(entries_have_a_limit)
{
    static const char *const places[] = { "pkg/results/BOX", LORA, "pkg/results", "pkg/systems" };
    static const char *const wrong[] = { "results/BOX cannot be read", "the directory cannot be read",
                                         "there is no directory 'results'", "there is no directory 'systems'" };
    size_t                   n;
    folder("many");
    put("file", "");
    for (int i = 0; i < PACKAGE_ENTRIES; i++)
        assert_int_equal(link(at("file"), tm_arena_format(arena, "%s/many/%d", top, i)), 0);
    assert_non_null(package_list(top, at("many"), arena, &n));
    assert_int_equal(n, PACKAGE_ENTRIES);
    assert_int_equal(link(at("file"), at("many/more")), 0);
    assert_null(package_list(top, at("many"), arena, &n));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) { /* in the place of each of the folders of a package */
        moves(places[i], "aside");
        moves("many", places[i]);
        fails(wrong[i]);
        moves(places[i], "many");
        moves("aside", places[i]);
    }
}

TEST_FIXTURE(set_up, tear_down)

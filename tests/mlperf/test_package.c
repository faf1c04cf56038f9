/* SPDX-License-Identifier: Apache-2.0 */
/* A submitter's folder: what is checked, what is written, what a word lets pass, that nothing outside of it is touched;
 * what is in its folders, and all that is wrong with names, sizes, links, depths and numbers. */
#include "support/folder.h"
#include "support/mllogs.h"

#include "base/file.h"
#include "apps/mlperf/package.h"
#include "apps/mlperf/package_files.h"

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
    test_put(top, name, text);
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
    tm_text  system = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_file_read("tests/mlperf/example/systems/BOX.json", 2000, &system, &err), TM_OK);
    snprintf(good_system, sizeof good_system, "%s", system.data);
    tm_text_fini(&system);
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

static tm_package *check(void)
{
    tm_package *p;
    tm_error    err = { 0 };
    if (tm_package_check(at("pkg"), TM_RULESET_5_1_0, NULL, true, &p, &err) != TM_OK) fail_msg("%s", err.text);
    return p;
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
    tm_package *p = check();
    size_t      n = said(&p->errors, part);
    for (size_t i = 0; i < p->n; i++) n += said(&p->results[i].errors, part);
    for (size_t i = 0; i < p->n_systems; i++) n += said(&p->systems[i].errors, part);
    if (p->passed || n != 1) fail_msg("passed %d, '%s' is said %zu times", p->passed, part, n);
    tm_package_free(p);
}

static void passes(const char *warning)
{
    tm_package *p = check();
    size_t      n = said(&p->warnings, warning);
    for (size_t i = 0; i < p->n; i++) n += said(&p->results[i].warnings, warning);
    if (!p->passed || n < (*warning != '\0')) fail_msg("passed %d, '%s' is said %zu times", p->passed, warning, n);
    tm_package_free(p);
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
    tm_package *p = check();
    assert_int_equal(p->results[0].failing, 1); /* which may be, but it has no batch either */
    tm_package_free(p);
    fails("RCP test: Batch sizes in files do not match.");
    unlink(at(LORA "/result_4.txt"));
    fails("found 9, expected 10");
    put(LORA "/result_4.txt.gz", "no gzip");
    fails("result_4.txt.gz");
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
    tm_package *p = check();
    assert_false(p->results[0].score.closed || tm_file_exists(at(SCALING)));
    tm_package_free(p);
}

TEST(systems)
{
    static const char *const rows[][3] = {
        { "\"Preview\"", "\"preview\"", "status is none of" },
        { "\"cooling\"", "\"warming\"", "'cooling' is missing" },
        { "\"number_of_nodes\": \"1\"", "\"number_of_nodes\": \"x\"", "'number_of_nodes' does not read as an integer" },
        { "\"submitter\": \"", "\"submitter\": {\"", "is not JSON" },
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
    tm_package *p = check();
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

/* --- files -------------------------------------------------------------------------------------------------------- */

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
    finds("all", PACKAGE_ALL, all);
    finds("all", 10, all); /* as many as there are */
    finds("all", 9, tm_arena_format(arena, "%stoo many files: from twice on they were not checked\n", all));
    finds("nowhere", PACKAGE_ALL,
          tm_arena_format(arena, ".: cannot be read, or has more than %d entries\n", PACKAGE_ENTRIES));
    const char *path = "deep";
    for (int i = 0; i <= PACKAGE_DEPTH; i++) path = tm_arena_format(arena, "%s/d", path);
    folder(path);
    finds("deep", PACKAGE_ALL, tm_arena_format(arena, "%s: directories more than %d deep\n", path + 5, PACKAGE_DEPTH));
    assert_int_equal(rmdir(at(path)), 0);
    finds("deep", PACKAGE_ALL, "");
}

TEST_FIXTURE(set_up, tear_down)

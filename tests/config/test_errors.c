/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong configurations that are no lines of refused.txt: bytes, variables, files, names of models; each is told with
 * the way out. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/full_config.h"

/* "FILE" with this text, or variables of the environment; `says`: parts of the message, "|" between them. */
static const struct {
    const char *file, *variable, *says;
} cases[] = {
    { "\177ELF\001\002\001", NULL, "not a YAML text file|UTF-8" },
    { "exp_name: \xff\xfe\xfd\n", NULL, "not a YAML text file|UTF-8" },
    { NULL, "WORLD_SIZE=8", "environment WORLD_SIZE|ranks are started with --ranks, torchrun|unset the variable" },
    { NULL, "NNODES=2", "environment NNODES|ranks" },
    { NULL, "NODE_RANK=1", "environment NODE_RANK|unset the variable" },
    { NULL, "PRIMUS_SEQ_LENGTH=long", "'training.seq_len' (environment PRIMUS_SEQ_LENGTH) must be an integer" },
    { NULL, "PRIMUS_TP=4", "tp 4|start 4 ranks" },
    { NULL, "EXP=/gone/x.yaml", "/gone/x.yaml" },
};

TEST(each_wrong_configuration_says_so)
{
    char *folder = test_tree_make();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char      *variables[] = { (char *)(size_t)cases[i].variable, NULL }, says[200], *rest = NULL;
        tm_config *config = test_full_config();
        tm_error   err = { 0 };
        tm_status  st = TM_OK;
        if (cases[i].file) st = tm_config_load_file(config, test_file_write(folder, "x.yaml", cases[i].file), &err);
        if (st == TM_OK) st = tm_config_apply_environment(config, variables, &err);
        if (st == TM_OK) st = tm_config_finish(config, &err);
        refusal_is_sound(&err);
        assert_int_equal(tm_status_exit_code(st), 4);
        strcpy(says, cases[i].says);
        for (char *w = strtok_r(says, "|", &rest); w; w = strtok_r(NULL, "|", &rest))
            if (!strstr(err.text, w)) fail_msg("%zu: wanted '%s': %s", i, w, err.text);
        tm_config_destroy(config);
    }
    test_tree_remove(folder);
}

/* A thousand wrong keys make a message of one page that says how many there are. */
TEST(the_message_is_bounded)
{
    tm_text    text = { 0 };
    tm_error   err = { 0 };
    char      *folder = test_tree_make();
    tm_config *config = test_full_config();
    for (int i = 0; i < 1000; i++) tm_text_printf(&text, "zzzz.qqqqqqq%d: 1\n", i);
    tm_text_add(&text, "training.steps: 1\n");
    assert_int_equal(tm_config_load_file(config, test_file_write(folder, "x.yaml", text.data), &err), TM_OK);
    assert_int_equal(tm_config_finish(config, &err), TM_INVALID);
    assert_int_equal(strncmp(err.text, "1000 problems\n", 14), 0);
    assert_non_null(strstr(err.text, "\n  ... and 9"));
    assert_true(strlen(err.text) < 4096);
    tm_config_destroy(config);
    tm_text_fini(&text);
    test_tree_remove(folder);
}

static void file_refused(const char *path, const char *says)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    assert_int_equal(tm_config_load_file(config, path, &err), TM_INVALID);
    refusal_is_sound(&err);
    if (!strstr(err.text, says)) fail_msg("wanted '%s' in: %s", says, err.text);
    tm_config_destroy(config);
}

TEST(what_is_no_file_is_refused)
{
    char  path[600];
    char *folder = test_tree_make();
    file_refused(folder, "is a directory; name a YAML file in it");
    snprintf(path, sizeof path, "%s/none.yaml", folder);
    file_refused(path, "check the path");
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    file_refused(path, "not a regular file");
    snprintf(path, sizeof path, "%s/loop", folder);
    assert_int_equal(symlink("loop", path), 0);
    file_refused(path, "cannot open configuration");
    test_tree_remove(folder);
}

/* A name that is not there: what is near in its folder is meant, a model by its name, and nothing else. */
TEST(near_files_are_named)
{
    static const char *const there[] = { "deepseek_v3_16b-BF16-pretrain.yaml", "llama-3.1-8b-4k.json", "run.yaml",
                                         "rows.yml" };
    static const struct {
        const char *given, *near, *model; /* NULL: none */
    } all[] = {
        { "deepseek_v3_16b-pretrain.yaml", "deepseek_v3_16b-BF16-pretrain.yaml", "deepseek_v3_16B" },
        { "DeepSeek_v3_16b-pretrain.yaml", "deepseek_v3_16b-BF16-pretrain.yaml", "deepseek_v3_16B" },
        { "deepseek_v3_16b-pretrain.json", NULL, "deepseek_v3_16B" },
        { "llama3.1-8b-4k.json", "llama-3.1-8b-4k.json", "llama3.1_8B" },
        { "llama-3.1-8b-8k.json", NULL, "llama3.1_8B" }, /* a number is no spelling */
        { "llama3.1_70B-BF16-pretrain.yaml", NULL, "llama3.1_70B" },
        { "runs.yaml", "run.yaml", NULL },
        { "nothing.yaml", NULL, NULL },
        { "r.yaml", NULL, NULL },
        { "raws.yml", "rows.yml", NULL },
        { "my-llama3.1_8B.yaml", NULL, NULL },
    };
    char *folder = test_tree_make();
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) test_file_write(folder, there[i], "");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char path[600], wanted[700], model[100];
        snprintf(path, sizeof path, "%s/%s", folder, all[i].given);
        snprintf(model, sizeof model, " the model itself is called '%s'", all[i].model ? all[i].model : "");
        const char *end = all[i].model ? model : "";
        if (all[i].near)
            snprintf(wanted, sizeof wanted, "No such file or directory; did you mean '%s/%s'?%s", folder, all[i].near,
                     end);
        else
            snprintf(wanted, sizeof wanted, "No such file or directory; check the path%s%s", *end ? ";" : "", end);
        tm_config *config = test_full_config();
        tm_error   err = { 0 };
        assert_int_equal(tm_config_load_file(config, path, &err), TM_INVALID);
        const char *told = strstr(err.text, "No such file");
        if (!told || strcmp(told, wanted) != 0) fail_msg("%s: '%s', wanted '%s'", all[i].given, err.text, wanted);
        tm_config_destroy(config);
    }
    test_tree_remove(folder);
}

TEST(large_files_are_refused)
{
    tm_text text = { 0 };
    char   *folder = test_tree_make();
    while (text.length <= 1 << 20) tm_text_add(&text, "# a comment that goes on and on and on and on\n");
    file_refused(test_file_write(folder, "x.yaml", text.data), "more than the limit");
    tm_text_fini(&text);
    test_tree_remove(folder);
}

TEST(long_circles_and_towers_of_extends_are_refused)
{
    char  name[32], text[128];
    char *folder = test_tree_make();
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d.yaml", i);
        snprintf(text, sizeof text, "extends: t%d.yaml\n", i + 1);
        test_file_write(folder, name, text);
        snprintf(name, sizeof name, "d%d.yaml", i);
        snprintf(text, sizeof text, "extends: [d%d.yaml, d%d.yaml]\n", i + 1, i + 1);
        test_file_write(folder, name, i < 8 ? text : "training.steps: 1\n");
    }
    snprintf(name, sizeof name, "%s", "c.yaml");
    test_file_write(folder, "c2.yaml", "extends: ./c.yaml\n");
    file_refused(test_file_write(folder, "c.yaml", "extends: [c2.yaml]\n"), "extends is circular");
    file_refused(test_file_write(folder, "x.yaml", "extends: t0.yaml\n"), "nested deeper than 16 files");
    file_refused(test_file_write(folder, "x.yaml", "extends: d0.yaml\n"), "more than 64 files");
    test_tree_remove(folder);
}

/* A name or synonym that two rows claim would go to one of them at random. */
TEST(no_two_rows_share_a_name)
{
    tm_config *config = test_full_config();
    tm_text    table = { 0 };
    tm_config_print_reference(config, &table);
    int  names = 0;
    char seen[800][100];
    for (char *line = strtok(table.data, "\n"); line; line = strtok(NULL, "\n")) {
        char *cell = strrchr(line, '|');
        if (strncmp(line, "| `", 3) != 0) continue;
        *cell = '\0';
        char *synonyms = strrchr(line, '|');
        char *stop = strchr(line + 3, '`');
        *stop = '\0';
        snprintf(seen[names++], sizeof seen[0], "%s", line + 3);
        for (char *p = synonyms; (p = strchr(p, '`')); p++) {
            char *end = strchr(p + 1, '`');
            snprintf(seen[names++], sizeof seen[0], "%.*s", (int)(end - p - 1), p + 1);
            p = end;
        }
        assert_true(names < 790);
    }
    assert_true(names > 200);
    for (int i = 0; i < names; i++)
        for (int j = 0; j < i; j++)
            if (tm_names_equal(seen[i], seen[j])) fail_msg("two rows share '%s'", seen[i]);
    tm_text_fini(&table);
    tm_config_destroy(config);
}

/* --- keys that would change nothing: refused where they are given (refused.txt) ----------------------------------- */

/* The keys of a condition have rows: a misspelt one would hold always. */
TEST(conditions_name_keys)
{
    tm_config *config = test_full_config();
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        for (const char *p = key->when; p && *p;) {
            char   name[160];
            size_t n;
            p += *p == '!';
            n = strcspn(p, "!=,|");
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            if (!tm_config_is_row(config, name)) fail_msg("%s counts with %s, which is no key", key->name, name);
            p += n;
            p += strcspn(p, ",|");
            p += *p != '\0';
        }
    }
    tm_config_destroy(config);
}

/* Of a file, in a folder of its own, with words on the command line. */
static tm_config *configured(const char *file, const char *words, tm_status wanted, tm_error *err)
{
    tm_config *config = test_full_config();
    assert_int_equal(tm_config_load_file(config, test_file_write(test_folder(), "keys.yaml", file), err), TM_OK);
    test_apply_words(config, words);
    assert_int_equal(tm_config_finish(config, err), wanted);
    return config;
}

TEST_WITH(what_a_higher_layer_switches_off_is_noted, NULL, test_folder_teardown)
{
    static const char file[] = "validation: {freq: 7}\nmodel: {rope_scaling: yarn, rope_beta_fast: 4}\n";
    tm_error          err = { 0 };
    tm_config        *config = configured(file, "--validation.enable false --model.rope_scaling none", TM_OK, &err);
    const char       *notes = tm_config_notes(config);
    assert_non_null(strstr(notes, "ignored: "));
    assert_non_null(strstr(notes, "validation.freq (applies only with validation.enable)"));
    assert_non_null(strstr(notes, "model.rope_beta_fast (applies only with model.rope_scaling yarn)"));
    assert_null(strstr(notes, "accepted and ignored")); /* of keys that nobody gave nothing is said */
    tm_text printed = { 0 };
    tm_config_print_yaml(config, &printed, false);
    assert_null(strstr(printed.data, "rope_beta_fast")); /* what is printed loads again */
    tm_config *again = configured(printed.data, "", TM_OK, &err);
    assert_true(tm_config_hash(again) == tm_config_hash(config));
    tm_config_destroy(again);
    tm_config_destroy(config);
    tm_text_fini(&printed);
    config = configured("validation: {freq: 7, enable: false}\nmodel: {rope_beta_fast: 4, rope_scaling: none}\n", "",
                        TM_INVALID, &err);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "'model.rope_beta_fast' = '4' ("));
    assert_non_null(strstr(err.text, "/keys.yaml:2) has no effect"));
    tm_config_destroy(config);
}

/* A preset says all of its family; what takes its place does not have to. */
TEST(presets_are_not_judged)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    assert_int_equal(tm_config_apply_preset(config, "llama3.1_8B", &err), TM_OK);
    test_apply_words(config, "--model.rope_scaling none --data.source mock");
    if (tm_config_finish(config, &err) != TM_OK) fail_msg("%s", err.text);
    tm_config_destroy(config);
}

TESTS_IN_ORDER

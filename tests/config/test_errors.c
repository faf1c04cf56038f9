/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong configurations: each has its status, and a message that holds what is wrong and the way out. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/full_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEEP8 "{a: {a: {a: {a: {a: {a: {a: {a: "
#define END8 "}}}}}}}}"

/* A file, or variables; `says` are parts of the message. Lines of text: refused.txt. */
typedef struct {
    const char *file;
    const char *variables[2];
    tm_status   status;
    const char *says[3];
} wrong;

static const wrong cases[] = {
    { .file = "training:\n\tsteps: 1\n", .status = TM_FORMAT, .says = { "x.yaml:2:1", "spaces, not with tabs" } },
    { .file = "\177ELF\001\002\001", .status = TM_FORMAT, .says = { "not a YAML text file", "UTF-8" } },
    { .file = "exp_name: \xff\xfe\xfd\n", .status = TM_FORMAT, .says = { "not a YAML text file", "UTF-8" } },
    { .file = "exp_name: \"a\\0b\"\n", .status = TM_FORMAT, .says = { "NUL" } },
    { .status = TM_FORMAT,
      .says = { "aliases (*name) expand to more than 10000 values" },
      .file =
          "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
          "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n" },
    { .file = DEEP8 DEEP8 DEEP8 DEEP8 "1" END8 END8 END8 END8,
      .status = TM_FORMAT,
      .says = { "nested deeper than 32 levels; flatten" } },
    { .file = "extends: x.yaml\n", .status = TM_INVALID, .says = { "extends is circular" } },
    { .file = "# nothing\n", .status = TM_FORMAT, .says = { "x.yaml' is empty" } },
    { .file = "training: {stepz: 1, steps: many, seq_len: 0}\nfp16: true\n",
      .status = TM_INVALID,
      .says = { "4 problems\n  unknown key 'training.stepz' (x.yaml:1); did you mean 'training.steps'?\n",
                "found 'many'\n", "float16 training is not supported" } },
    { .file = "optimizer: {name: SGD, kahan_sum: true, beta1: 0.5, eps: 1}\nfp16: true\nmin_lr: 1\n"
              "training: {global_batch_size: 3, local_batch_size: 2}\nlr_scheduler: {form: nemo, decay_ratio: 0.5}\n",
      .status = TM_UNSUPPORTED,
      .says = { "8 problems\n  'fp16' = 'true' (x.yaml:2): float16 training is not supported",
                "\n  'optimizer.eps' (x.yaml:1) is of optimizer.name AdamW, this run has SGD; leave one of the two "
                "out\n",
                "\n  optimizer.kahan_sum (x.yaml:1)" } },
    { .file = "optimizer: {name: SGD, kahan_sum: true, beta1: 0.5, eps: 1}\nfp16: true\nmin_lr: 1\n"
              "training: {global_batch_size: 3, local_batch_size: 2}\nlr_scheduler: {form: nemo, decay_ratio: 0.5}\n",
      .status = TM_UNSUPPORTED,
      .says = { "\n  training.global_batch_size 3 (x.yaml:4) is not a multiple", "\n  min_lr 1 (x.yaml:3)",
                "\n  lr_scheduler.form nemo (x.yaml:5)" } },
    { .variables = { "WORLD_SIZE=8" },
      .status = TM_UNSUPPORTED,
      .says = { "environment WORLD_SIZE", "ranks are started with --ranks, torchrun", "unset the variable" } },
    { .variables = { "NNODES=2" }, .status = TM_UNSUPPORTED, .says = { "environment NNODES", "ranks" } },
    { .variables = { "NODE_RANK=1" },
      .status = TM_UNSUPPORTED,
      .says = { "environment NODE_RANK", "unset the variable" } },
    { .variables = { "PRIMUS_SEQ_LENGTH=long" },
      .status = TM_INVALID,
      .says = { "'training.seq_len' (environment PRIMUS_SEQ_LENGTH) must be an integer" } },
    { .variables = { "PRIMUS_TP=4" }, .status = TM_INVALID, .says = { "tp 4", "start 4 ranks" } },
    { .variables = { "EXP=/gone/x.yaml" }, .status = TM_INVALID, .says = { "/gone/x.yaml" } },
};

static void remove_all(char *text, const char *part)
{
    for (char *p; (p = strstr(text, part));) memmove(p, p + strlen(part), strlen(p + strlen(part)) + 1);
}

static tm_status try_case(const wrong *w, const char *folder, tm_error *err)
{
    char       *none[] = { NULL };
    tm_config  *config = test_full_config();
    const char *path = w->file ? test_file_write(folder, "x.yaml", w->file) : NULL;
    tm_status   st = path ? tm_config_load_file(config, path, err) : TM_OK;
    if (st == TM_OK)
        st = tm_config_apply_environment(config, w->variables[0] ? (char *const *)w->variables : none, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    tm_config_destroy(config);
    return st;
}

static void each_wrong_configuration_says_so(void **state)
{
    char prefix[520];
    int  bad = 0;
    (void)state;
    char *folder = test_tree_make();
    snprintf(prefix, sizeof prefix, "%s/", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const wrong *w = &cases[i];
        tm_error     err = { 0 };
        tm_status    st = try_case(w, folder, &err);
        remove_all(err.text, prefix);
        bool ok = st == w->status && err.status == st && w->says[0];
        refusal_is_sound(&err);
        for (int s = 0; s < 3 && w->says[s]; s++) ok = ok && strstr(err.text, w->says[s]);
        if (ok) continue;
        print_message("%zu: status %d, wanted %d: %s\n", i, (int)st, (int)w->status, err.text);
        bad++;
    }
    test_tree_remove(folder);
    assert_int_equal(bad, 0);
    assert_int_equal(tm_status_exit_code(TM_INVALID), 4);
    assert_int_equal(tm_status_exit_code(TM_FORMAT), 4);
    assert_int_equal(tm_status_exit_code(TM_UNSUPPORTED), 4);
    assert_int_equal(tm_status_exit_code(TM_USAGE), 2);
}

static void assert_refused(const char *path, const char *says)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    assert_int_equal(tm_config_load_file(config, path, &err), TM_INVALID);
    refusal_is_sound(&err);
    if (!strstr(err.text, says)) fail_msg("wanted '%s' in: %s", says, err.text);
    tm_config_destroy(config);
}

static void what_is_no_file_is_refused(void **state)
{
    char path[600];
    (void)state;
    char *folder = test_tree_make();
    assert_refused(folder, "is a directory; name a YAML file in it");
    snprintf(path, sizeof path, "%s/none.yaml", folder);
    assert_refused(path, "check the path");
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "not a regular file");
    snprintf(path, sizeof path, "%s/loop", folder);
    assert_int_equal(symlink("loop", path), 0);
    assert_refused(path, "cannot open configuration");
    test_tree_remove(folder);
}

/* A name that is not there: what is near in its folder is meant, a model by its name, and nothing else. */
static void near_files_are_named(void **state)
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
    (void)state;
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

static void large_files_are_refused(void **state)
{
    tm_text text = { 0 };
    (void)state;
    char *folder = test_tree_make();
    while (text.length <= 1 << 20) tm_text_add(&text, "# a comment that goes on and on and on and on\n");
    assert_refused(test_file_write(folder, "x.yaml", text.data), "more than the limit");
    tm_text_fini(&text);
    test_tree_remove(folder);
}

static void long_circles_and_towers_of_extends_are_refused(void **state)
{
    char name[32], text[128];
    (void)state;
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
    assert_refused(test_file_write(folder, "c.yaml", "extends: [c2.yaml]\n"), "extends is circular");
    assert_refused(test_file_write(folder, "x.yaml", "extends: t0.yaml\n"), "nested deeper than 16 files");
    assert_refused(test_file_write(folder, "x.yaml", "extends: d0.yaml\n"), "more than 64 files");
    test_tree_remove(folder);
}

/* A name or synonym that two rows claim would go to one of them at random. */
static void no_two_rows_share_a_name(void **state)
{
    (void)state;
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

/* A short form of names is told the shortest of those; its numbers are whole numbers there. */
static void a_short_name_of_a_model_is_told_the_models(void **state)
{
    static const struct {
        const char *name, *told;
    } rows[] = { { "gpt2", "'; did you mean 'gpt2-124M'? `" },
                 { "llama3", "'; did you mean 'llama3_8B', 'llama3_70B' or 'llama3.1_8B'? `" },
                 { "llama-8b", "'; did you mean 'llama3_8B' or 'llama3.1_8B'? `" },
                 { "tiny", "'; did you mean 'tiny-flux' or 'tiny-llama'? `" },
                 { "llama3.1_7B", "'; `" },
                 { "llama31_80B", "'; `" },
                 { "8B", "'; `" } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_config *config = test_full_config();
        tm_error   err = { 0 };
        assert_int_equal(tm_config_apply_preset(config, rows[i].name, &err), TM_INVALID);
        const char *told = strstr(err.text, rows[i].name);
        if (!told || strncmp(told + strlen(rows[i].name), rows[i].told, strlen(rows[i].told)) != 0)
            fail_msg("%s: %s", rows[i].name, err.text);
        tm_config_destroy(config);
    }
}

/* What a run computes is counted, where it writes and how it is started is not. */
static void quiet_keys_change_no_result(void **state)
{
    static const char *const counted[] = { "optimizer.", "lr_scheduler.", "model.dim", "training.seq_len",
                                           "debug.seed" };
    static const char *const quiet[] = { "log.", "launch.", "comm.", "platform.", "job." };
    tm_config               *config = test_full_config();
    (void)state;
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->state != TM_KEY_USED) continue;
        for (size_t k = 0; k < sizeof counted / sizeof counted[0]; k++)
            if (strncmp(key->name, counted[k], strlen(counted[k])) == 0 && key->quiet) fail_msg("%s", key->name);
        for (size_t k = 0; k < sizeof quiet / sizeof quiet[0]; k++)
            if (strncmp(key->name, quiet[k], strlen(quiet[k])) == 0 && !key->quiet) fail_msg("%s", key->name);
    }
    tm_config_destroy(config);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_wrong_configuration_says_so),
    cmocka_unit_test(what_is_no_file_is_refused),
    cmocka_unit_test(near_files_are_named),
    cmocka_unit_test(large_files_are_refused),
    cmocka_unit_test(long_circles_and_towers_of_extends_are_refused),
    cmocka_unit_test(no_two_rows_share_a_name),
    cmocka_unit_test(quiet_keys_change_no_result),
    cmocka_unit_test(a_short_name_of_a_model_is_told_the_models),
};

TEST_TABLE(tests)
TESTS_IN_ORDER

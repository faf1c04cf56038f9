/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration holds after it was filled: precedence, origins, presets, substitution, the printed form. */
#include "support/test.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/secret.h"
#include "../support/folder.h"
#include "../support/full_config.h"

/* The example of the experiment file's description. */
static const char example[] = "work_group: ${PRIMUS_TEAM:amd}          # output path segment 1\n"
                              "user_name: ${PRIMUS_USER:root}\n"
                              "exp_name: ${PRIMUS_EXP_NAME:my-run}\n"
                              "workspace: ${PRIMUS_WORKSPACE:./output}\n"
                              "platform: {config: platform_local.yaml}\n"
                              "\n"
                              "modules:\n"
                              "  pre_trainer:\n"
                              "    framework: torchtitan\n"
                              "    config: pre_trainer.yaml\n"
                              "    model: llama3.1_8B.yaml\n"
                              "    overrides:\n"
                              "      training: {local_batch_size: 4, seq_len: 8192, steps: 50, mock_data: true}\n"
                              "      metrics: {log_freq: 1}\n"
                              "      lr_scheduler: {warmup_steps: 10}\n"
                              "      activation_checkpoint: {mode: none}\n";

typedef struct {
    tm_config *config;
    char      *folder;
    tm_error   err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->config = test_full_config();
    f->folder = test_tree_make();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tm_config_destroy(f->config);
    test_tree_remove(f->folder);
    free(f);
    return 0;
}

static void load(fixture *f, const char *name, const char *text)
{
    tm_status st = tm_config_load_file(f->config, test_file_write(f->folder, name, text), &f->err);
    if (st != TM_OK) fail_msg("%s", f->err.text);
}

static void arguments(fixture *f, int n, const char *const *words)
{
    tm_status st = tm_config_apply_arguments(f->config, n, (char **)words, &f->err);
    if (st != TM_OK) fail_msg("%s", f->err.text);
}
#define ARGUMENTS(f, ...)                                                                                              \
    arguments((f), (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)), (const char *[]){ __VA_ARGS__ })

static void finish(fixture *f)
{
    if (tm_config_finish(f->config, &f->err) != TM_OK) fail_msg("%s", f->err.text);
}

static void assert_origin(fixture *f, const char *key, const char *wanted)
{
    char        place[1200];
    const char *origin = tm_config_origin(f->config, key);
    if (strncmp(wanted, "file ", 5) == 0) {
        snprintf(place, sizeof place, "file %s/%s", f->folder, wanted + 5);
        assert_string_equal(origin, place);
    } else {
        assert_string_equal(origin, wanted);
    }
}

TEST(layers_decide_in_their_order)
{
    fixture    *f = *test_state;
    char *const environment[] = { "PRIMUS_SEQ_LENGTH=2048", "PRIMUS_GLOBAL_BATCH_SIZE=32", NULL };
    assert_int_equal(tm_config_i64(f->config, "training.steps"), 10000);
    assert_origin(f, "training.steps", "default");
    ARGUMENTS(f, "--training.global_batch_size=16", "--training.steps", "20"); /* first, and still above all */
    assert_int_equal(tm_config_apply_environment(f->config, environment, &f->err), TM_OK);
    load(f, "x.yaml", example);
    finish(f);
    assert_int_equal(tm_config_i64(f->config, "training.steps"), 20);
    assert_origin(f, "training.steps", "command line");
    assert_int_equal(tm_config_i64(f->config, "training.seq_len"), 2048);
    assert_origin(f, "training.seq_len", "environment PRIMUS_SEQ_LENGTH");
    assert_int_equal(tm_config_i64(f->config, "training.global_batch_size"), 16);
    assert_int_equal(tm_config_i64(f->config, "training.local_batch_size"), 4);
    assert_origin(f, "training.local_batch_size", "file x.yaml:13");
    assert_int_equal(tm_config_i64(f->config, "model.dim"), 4096);
    assert_origin(f, "model.dim", "preset llama3.1_8B");
    assert_float_equal(tm_config_f64(f->config, "optimizer.lr"), 8e-4, 0); /* of their preset of trainers */
    assert_string_equal(tm_config_origin(f->config, "optimizer.lr"), "default of torchtitan");
    assert_int_equal(tm_config_i64(f->config, "training.grad_accumulation"), 4);
    assert_true(tm_config_is_set(f->config, "training.seq_len"));
    assert_true(tm_config_is_set(f->config, "metrics.log_freq"));
    assert_false(tm_config_is_set(f->config, "model.dim"));
    assert_false(tm_config_is_set(f->config, "training.grad_accumulation"));
    assert_false(tm_config_is_set(f->config, "optimizer.beta1"));
    assert_string_equal(tm_config_preset(f->config), "llama3.1_8B");
    assert_string_equal(tm_config_text(f->config, "data.source"), "mock");
    assert_string_equal(tm_config_text(f->config, "training.dtype"), "bfloat16");
}

TEST(the_printed_form_loads_again)
{
    fixture *f = *test_state;
    tm_text  first = { 0 }, second = { 0 }, origins = { 0 };
    load(f, "x.yaml", example);
    ARGUMENTS(f, "--training.steps", "20", "--data.path=/a ${b}: #\"c\\", "--data.source=text", "--job.description",
              "null hypothesis - 1e5", "--optimizer.eps=1.0e-5", "--user_name", "007");
    finish(f);
    assert_string_equal(tm_config_text(f->config, "data.path"), "/a ${b}: #\"c\\");
    tm_config_print_yaml(f->config, &first, false);
    assert_non_null(strstr(first.data, "\n  eps: 1.0e-05\n")); /* a number for every YAML reader */
    tm_config_print_yaml(f->config, &origins, true);
    assert_non_null(strstr(origins.data, "\n  steps: 20  # command line\n"));
    assert_non_null(strstr(origins.data, "x.yaml:13\n"));
    tm_text_fini(&origins);
    uint64_t hash = tm_config_hash(f->config);
    tm_config_destroy(f->config);
    f->config = test_full_config();
    load(f, "again.yaml", first.data);
    finish(f);
    tm_config_print_yaml(f->config, &second, false);
    assert_string_equal(tm_config_text(f->config, "data.path"), "/a ${b}: #\"c\\");
    assert_string_equal(tm_config_text(f->config, "job.description"), "null hypothesis - 1e5");
    assert_string_equal(tm_config_text(f->config, "user_name"), "007");
    assert_string_equal(first.data, second.data);
    assert_int_equal(tm_config_hash(f->config), hash);
    tm_text_fini(&first);
    tm_text_fini(&second);
}

TEST(variables_are_replaced_before_types)
{
    fixture           *f = *test_state;
    static char *const environment[] = { "LR=1.0e-5", "EMPTY=", "NAME=a b", "${X}=no", NULL };
    tm_config_use_environment(f->config, environment);
    load(f, "v.yaml",
         "training: {steps: \"${UNSET:3}\", max_norm: \"${LR}\"}\n"
         "exp_name: ${UNSET:}\n"
         "user_name: x${NAME}-${EMPTY}-${UNSET:y${NAME}}z\n"
         "job.description: $${NAME} $NAME $\n"
         "lr_scheduler.decay_ratio: ${UNSET:}\n"
         "workspace: ${UNSET:null}\n");
    assert_int_equal(tm_config_i64(f->config, "training.steps"), 3);
    assert_float_equal(tm_config_f64(f->config, "training.max_norm"), 1e-5, 0);
    assert_string_equal(tm_config_text(f->config, "exp_name"), "");
    assert_string_equal(tm_config_text(f->config, "user_name"), "xa b--ya bz");
    assert_string_equal(tm_config_text(f->config, "job.description"), "${NAME} $NAME $");
    assert_null(tm_config_text(f->config, "lr_scheduler.decay_ratio"));
    assert_true(isnan(tm_config_f64(f->config, "lr_scheduler.decay_ratio")));
}

TEST(a_file_beside_the_experiment_wins)
{
    fixture *f = *test_state;
    test_file_write(f->folder, "llama3.1_8B.yaml",
                    "extends: [base.yaml]\nmodel: {name: llama3, flavor: 8B}\ntraining.steps: 77\n");
    test_file_write(f->folder, "base.yaml", "model.n_layers: 2\ntraining: {seq_len: 64, max_norm: 9}\n");
    test_file_write(f->folder, "pre_trainer.yaml", "training.max_norm: 5\n");
    load(f, "x.yaml", example);
    finish(f);
    tm_arena *others = tm_arena_create(); /* takes what loading has given back */
    for (int i = 0; i < 4096; i++) memset(tm_arena_take(others, 256), 'x', 256);
    assert_string_equal(tm_config_module(f->config), "pre_trainer");
    tm_arena_destroy(others);
    assert_int_equal(tm_config_i64(f->config, "model.n_layers"), 2);         /* base.yaml */
    assert_int_equal(tm_config_i64(f->config, "model.dim"), 4096);           /* llama3 8B, by name and flavor */
    assert_int_equal(tm_config_i64(f->config, "training.steps"), 50);        /* overrides */
    assert_int_equal(tm_config_i64(f->config, "training.seq_len"), 8192);    /* overrides */
    assert_float_equal(tm_config_f64(f->config, "training.max_norm"), 5, 0); /* trainer preset over model preset */
    assert_false(tm_config_is_set(f->config, "model.n_layers"));
    assert_origin(f, "model.n_layers", "file base.yaml:1");
}

TEST(a_second_preset_leaves_nothing_of_the_first)
{
    fixture *f = *test_state;
    assert_int_equal(tm_config_apply_preset(f->config, "llama3.1_8B", &f->err), TM_OK);
    assert_int_equal(tm_config_apply_preset(f->config, "GPT_Small", &f->err), TM_OK);
    assert_string_equal(tm_config_text(f->config, "model.rope_scaling"), "none");
    assert_origin(f, "model.rope_scaling", "default");
    assert_string_equal(tm_config_origin(f->config, "model.dim"), "preset gpt-small");
    assert_string_equal(tm_config_find_preset(f->config, "dir/LLAMA2-70b.yaml"), "llama2_70B");
    assert_null(tm_config_find_preset(f->config, "llama9"));
}

TEST(secrets_are_masked_wherever_they_come_out)
{
    fixture           *f = *test_state;
    static char *const environment[] = { "MY_Api_Key=hunter2-value", "HF_TOKEN=77777", NULL };
    tm_text            out = { 0 };
    tm_config_use_environment(f->config, environment);
    load(f, "s.yaml",
         "job.description: by ${MY_API_KEY:nobody} or ${MY_Api_Key}\nexp_name: ${HF_TOKEN}\nwork_group: w\n"
         "training.steps: ${HF_TOKEN}\n");
    assert_string_equal(tm_config_text(f->config, "job.description"), "by nobody or hunter2-value");
    assert_string_equal(tm_config_shown(f->config, "job.description"), "***");
    tm_config_print_yaml(f->config, &out, true);
    tm_config_print_reference(f->config, &out);
    assert_null(strstr(out.data, "hunter2"));
    assert_null(strstr(out.data, "77777"));
    assert_non_null(strstr(out.data, "description: \"***\""));
    tm_text_fini(&out);
    tm_config_mask(f->config, "cannot open 'by nobody or hunter2-value' 77777", &out);
    assert_string_equal(out.data, "cannot open '***' ***");
    tm_text_fini(&out);
    assert_true(tm_secret_name("GH_TOKEN") && tm_secret_name("dbPassword"));
    assert_true(tm_secret_name("SECRETS") && tm_secret_name("ssh_key_file"));
    assert_false(tm_secret_name("OMP_NUM_THREADS") || tm_secret_name("KE") || tm_secret_name(""));
}

TEST(messages_do_not_betray_secrets)
{
    fixture                 *f = *test_state;
    static char *const       environment[] = { "API_TOKEN=swordfish", "PASSNUMBER=123456", NULL };
    static const char *const files[] = {
        "training.steps: ${API_TOKEN}\n",
        "optimizer.decay: ${API_TOKEN}\n",
        "model: ${API_TOKEN}\n",
        "extends: ${API_TOKEN}\n",
        "modules: {pre_trainer: {framework: '${API_TOKEN}'}}\n",
        "training.local_batch_size: ${PASSNUMBER}\ntraining.global_batch_size: 7\n",
        "optimizer.beta1: ${PASSNUMBER}\n",
        "fp8: ${API_TOKEN}\n",
        "activation_checkpoint: {mode: selective, selective_ac_option: '${API_TOKEN}'}\n"
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tm_error err = { 0 };
        tm_config_destroy(f->config);
        f->config = test_full_config();
        tm_config_use_environment(f->config, environment);
        tm_status st = tm_config_load_file(f->config, test_file_write(f->folder, "s.yaml", files[i]), &err);
        if (st == TM_OK) st = tm_config_finish(f->config, &err);
        assert_int_not_equal(st, TM_OK);
        if (strstr(err.text, "swordfish") || strstr(err.text, "123456")) fail_msg("%zu: %s", i, err.text);
    }
}

TEST(the_hash_is_of_what_changes_results)
{
    fixture *f = *test_state;
    uint64_t plain = tm_config_hash(f->config);
    ARGUMENTS(f, "--optimizer.lr=0.00080", "--training.threads=2", "--metrics.log_freq=3", "--compile.enable=true");
    assert_int_equal(tm_config_hash(f->config), plain); /* the default, written otherwise; and what changes no number */
    ARGUMENTS(f, "--optimizer.lr=0.00081");
    assert_int_not_equal(tm_config_hash(f->config), plain);
    tm_config *other = test_full_config();
    tm_config_set(other, "optimizer.lr", "8.1e-4", "test");
    assert_int_equal(tm_config_hash(f->config), tm_config_hash(other));
    tm_config_destroy(other);
}

/* docs/configuration.md ends with the generated tables. TM_UPDATE_DOCS=1 writes them. */
TEST(the_page_holds_the_generated_tables)
{
    fixture          *f = *test_state;
    static const char marker[] = "<!-- generated from the key tables; do not edit below -->\n";
    tm_text           page = { 0 }, table = { 0 };
    if (!tm_file_exists("docs/configuration.md")) {
        print_message("docs/configuration.md is not below the working folder\n");
        skip();
    }
    assert_int_equal(tm_file_read("docs/configuration.md", 1 << 20, &page, &f->err), TM_OK);
    char *tail = strstr(page.data, marker);
    assert_non_null(tail);
    tm_config_print_reference(f->config, &table);
    if (getenv("TM_UPDATE_DOCS")) {
        page.length = (size_t)(tail - page.data) + strlen(marker);
        tm_text_add(&page, table.data);
        assert_int_equal(tm_file_write("docs/configuration.md", page.data, page.length, &f->err), TM_OK);
    } else if (strcmp(tail + strlen(marker), table.data) != 0) {
        fail_msg("docs/configuration.md is out of date; run this test with TM_UPDATE_DOCS=1");
    }
    tm_text_fini(&page);
    tm_text_fini(&table);
}

TEST_FIXTURE(set_up, tear_down)

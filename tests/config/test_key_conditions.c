/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that would change nothing: noted where a higher layer switches them off, and no matter in a preset. Where they
 * are given they are refused: refused.txt. */
#include <stdio.h>
#include <string.h>

#include "support/test.h"

#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"

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

/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what a stranger's configuration file goes through: YAML, substitution, rows, rules, and the printed form,
 * which must load again and resolve to the same configuration. */
#include "fuzz.h"

#include "../support/full_config.h"

#include "base/log.h"

#define SECRET "a-secret-word"

static char *const environment[] = { "HOME=/home/x", "N=3", "MY_TOKEN=" SECRET, "EMPTY=", NULL };

/* `spoken`: the file itself holds the secret word, not by way of the variable. */
static tm_config *load(const char *path, bool finish, bool spoken, tm_error *err)
{
    tm_config *config = test_full_config();
    tm_config_use_environment(config, environment);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    fuzz_told(st, err, "");
    TM_ASSERT(st == TM_OK || *err->text);
    TM_ASSERT(spoken || !strstr(err->text, SECRET));
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_log_set_level(TM_LOG_ERROR);
    bool       spoken = memmem(data, size, SECRET, strlen(SECRET)) != NULL;
    tm_error   err = { 0 };
    tm_config *first = load(fuzz_file("x.yaml", data, size), true, spoken, &err);
    if (err.status == TM_OK) {
        tm_text printed = { 0 }, reprinted = { 0 };
        tm_config_print_yaml(first, &printed, true);
        TM_ASSERT(spoken || !strstr(printed.data, SECRET));
        tm_config *second = load(fuzz_file("again.yaml", printed.data, printed.length), false, true, &err);
        if (!strstr(printed.data, "\"***\"")) { /* a masked value may be of the wrong kind */
            if (err.status != TM_OK) tm_assert_failed(err.text, "the printed form does not load", 0);
            tm_config_print_yaml(first, &reprinted, false);
            printed.length = 0;
            tm_config_print_yaml(second, &printed, false);
            TM_ASSERT(strcmp(printed.data, reprinted.data) == 0);
        }
        tm_text_fini(&printed);
        tm_text_fini(&reprinted);
        tm_config_destroy(second);
    }
    tm_config_destroy(first);
    return 0;
}

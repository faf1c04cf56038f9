/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what a stranger's configuration file goes through: YAML, substitution, rows, rules, and the printed form,
 * which must load again and resolve to the same configuration.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. Without: -DTM_FUZZ_STANDALONE, see standalone.h.
 */
#include "../support/full_config.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "a-secret-word"

static char *const environment[] = { "HOME=/home/x", "N=3", "MY_TOKEN=" SECRET, "EMPTY=", NULL };

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "w");
    TM_ASSERT(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* `spoken`: the file itself holds the secret word, not by way of the variable. */
static tm_config *load(const char *path, bool finish, bool spoken, tm_error *err)
{
    tm_config *config = test_full_config();
    tm_config_use_environment(config, environment);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    TM_ASSERT((st == TM_OK) == (err->status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err->text));
    TM_ASSERT(spoken || !strstr(err->text, SECRET));
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[64];
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tm-fuzz-XXXXXX" : "/tmp/tm-fuzz-XXXXXX");
        TM_ASSERT(mkdtemp(folder));
        tm_log_set_level(TM_LOG_ERROR);
    }
    char path[96], again[96];
    snprintf(path, sizeof path, "%s/x.yaml", folder);
    snprintf(again, sizeof again, "%s/again.yaml", folder);
    write_file(path, data, size);
    bool       spoken = memmem(data, size, SECRET, strlen(SECRET)) != NULL;
    tm_error   err = { 0 };
    tm_config *first = load(path, true, spoken, &err);
    if (err.status == TM_OK) {
        tm_text printed = { 0 }, reprinted = { 0 };
        tm_config_print_yaml(first, &printed, true);
        TM_ASSERT(spoken || !strstr(printed.data, SECRET));
        write_file(again, printed.data, printed.length);
        tm_config *second = load(again, false, true, &err);
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
    unlink(path);
    unlink(again);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const yaml_words[] = {
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "&a ",
    "*a",
    "${N}",
    "${MY_TOKEN}",
    "${",
    "}",
    "'",
    "\"",
    "extends: x.yaml\n",
    "model: ",
    "training.steps: ",
    "null",
    "1e9",
    "-1",
    "gpt-small",
    "modules: {pre_trainer: {",
    "\t",
    "|\n",
    ">-\n",
    "? ",
    "#",
    "%YAML",
    "---\n",
    "\\0",
    "\xc3",
    "data.path: ",
    "!!str ",
    "<<: *a",
};
#define FUZZ_WORDS yaml_words
#include "standalone.h"
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what files of other programs go through: TOML, recipes, experiments, their translation and the rules. The
 * first byte says how the file ends, the rest is the file. What loads is printed and must load again. */
#include "../support/full_config.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "w");
    TM_ASSERT(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static tm_status load(tm_config *config, const char *path, bool finish, tm_error *err)
{
    static char *const environment[] = { "N=3", "EMPTY=", NULL };
    tm_config_use_environment(config, environment);
    tm_config_allow_unbuilt(config, true);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    TM_ASSERT((st == TM_OK) == (err->status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err->text));
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char              folder[64];
    static const char *const names[] = { "x.toml", "x.json", "x.yaml" };
    if (size == 0) return 0;
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tm-fuzz-XXXXXX" : "/tmp/tm-fuzz-XXXXXX");
        TM_ASSERT(mkdtemp(folder));
        tm_log_set_level(TM_LOG_ERROR);
    }
    char path[96], again[96];
    snprintf(path, sizeof path, "%s/%s", folder, names[data[0] % 3]);
    snprintf(again, sizeof again, "%s/again.yaml", folder);
    write_file(path, data + 1, size - 1);
    tm_error   err = { 0 };
    tm_config *first = test_full_config(), *second = test_full_config();
    if (load(first, path, true, &err) == TM_OK) {
        tm_text printed = { 0 };
        tm_config_print_yaml(first, &printed, true);
        write_file(again, printed.data, printed.length);
        if (load(second, again, false, &err) != TM_OK) tm_assert_failed(err.text, "the printed form does not load", 0);
        /* Not the text: keys without effect are printed only where they have their own default. */
        TM_ASSERT(tm_config_hash(first) == tm_config_hash(second));
        tm_text_fini(&printed);
    }
    tm_config_destroy(first);
    tm_config_destroy(second);
    unlink(path);
    unlink(again);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const foreign_words[] = {
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "\"\"\"",
    "'''",
    "\"",
    "'",
    " = ",
    "\n",
    "\\u00e9",
    "1_000",
    "0x1f",
    "true",
    "[model]\n",
    "[training]\n",
    "name = \"llama3\"\n",
    "flavor = \"8B\"\n",
    "_component_: ",
    "${batch_size}",
    "${a.b}",
    "null",
    "num_experts: ",
    "vocab_size: ",
    "make_vocab_size_divisible_by: ",
    "optimizer: ",
    "lr_decay_style: ",
    "train_iters: ",
    "\"num_layers\": ",
    "model.converters = [",
    "moe_",
    "overrides:\n",
    "extends: x.yaml\n",
    "99999999999999999999",
    "-1",
    "\xc3",
};
#define FUZZ_WORDS foreign_words
#include "standalone.h"
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what files of other programs go through: TOML, recipes, experiments, their translation and the rules. The
 * first byte says how the file ends, the rest is the file. What loads is printed and must load again. */
#include "fuzz.h"

#include "../support/full_config.h"

#include "base/log.h"

static tm_status load(tm_config *config, const char *path, bool finish, tm_error *err)
{
    static char *const environment[] = { "N=3", "EMPTY=", NULL };
    tm_config_use_environment(config, environment);
    tm_config_allow_unbuilt(config, true);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    fuzz_told(st, err, "");
    TM_ASSERT(st == TM_OK || *err->text);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "x.toml", "x.json", "x.yaml" };
    if (size == 0) return 0;
    tm_log_set_level(TM_LOG_ERROR);
    tm_error   err = { 0 };
    tm_config *first = test_full_config(), *second = test_full_config();
    if (load(first, fuzz_file(names[data[0] % 3], data + 1, size - 1), true, &err) == TM_OK) {
        tm_text printed = { 0 };
        tm_config_print_yaml(first, &printed, true);
        const char *again = fuzz_file("again.yaml", printed.data, printed.length);
        if (load(second, again, false, &err) != TM_OK) tm_assert_failed(err.text, "the printed form does not load", 0);
        /* Not the text: keys without effect are printed only where they have their own default. */
        TM_ASSERT(tm_config_hash(first) == tm_config_hash(second));
        tm_text_fini(&printed);
    }
    tm_config_destroy(first);
    tm_config_destroy(second);
    return 0;
}

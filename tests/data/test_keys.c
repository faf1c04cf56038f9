/* SPDX-License-Identifier: Apache-2.0 */
/* Which source a run reads, by its keys and where they stand: every mix of data.source, training.mock_data and
 * data.path, in one layer or in two, with a data set that is not here or with held-out data of its own. After a change
 * that is meant: TM_RECORD=1 build/release/tests/data/test_keys; git diff tests/data/whole-keys.txt
 */
#include "base/log.h"
#include "base/text.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

enum { SOURCE, MOCK, PATH, MORE, KEYS };

static const char *const keys[KEYS] = { "data.source", "training.mock_data", "data.path", NULL };

/* The value of each key; the last is one of further keys. */
typedef struct {
    const char *value[KEYS];
    int         in_file; /* the key that stands in a file; KEYS: all are words */
} mix;

static tm_status read_mix(const mix *m, tm_config *config, tm_error *err)
{
    tm_text   file = { 0 };
    char      word[2 * KEYS][64], *argv[2 * KEYS];
    int       n = 0;
    tm_status st = TM_OK;
    for (int k = 0; k < KEYS; k++) {
        const char *value = m->value[k], *blank = value && k == MORE ? strchr(value, ' ') : NULL;
        if (!value) continue;
        if (k == m->in_file) {
            tm_text_printf(&file, "%s: %s\n", keys[k], value);
            continue;
        }
        snprintf(word[n], sizeof word[n], "--%.*s", blank ? (int)(blank - value) : 40, blank ? value : keys[k]);
        snprintf(word[n + 1], sizeof word[n + 1], "%s", blank ? blank + 1 : value);
        argv[n] = word[n], argv[n + 1] = word[n + 1];
        n += 2;
    }
    if (file.data) st = tm_config_load_file(config, test_file_write(".", "keys.yaml", file.data), err);
    tm_text_fini(&file);
    if (st == TM_OK) st = tm_config_apply_arguments(config, n, argv, err);
    return st == TM_OK ? tm_config_finish(config, err) : st;
}

static void add_mix(tm_text *out, const mix *m)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    for (int k = 0; k < KEYS; k++)
        if (m->value[k])
            tm_text_printf(out, "%s%s%s ", m->value[k],
                           k == MOCK   ? " mocked"
                           : k == PATH ? "/"
                                       : "",
                           k == m->in_file ? " (file)" : "");
    tm_status st = read_mix(m, config, &err);
    if (st != TM_OK)
        tm_text_printf(out, "> %d %s\n", st, err.text);
    else
        tm_text_printf(out, "> %s, %s\n", tm_config_text(config, "data.source"),
                       tm_config_place(config, "data.source"));
    for (const char *note = tm_config_notes(config), *end; st == TM_OK && *note; note = end + (*end != '\0')) {
        end = note + strcspn(note, "\n");
        if (strncmp(note, "training.mixed_precision", 24) != 0) /* says another room, each time */
            tm_text_printf(out, "  %.*s\n", (int)(end - note), note);
    }
    tm_config_destroy(config);
}

static void sources_are_chosen_as_recorded(void **state)
{
    static const char *const sources[] = { NULL, "text", "mock", "synthetic", "preference", "gaussians" };
    static const char *const mocks[] = { NULL, "true", "false" }, *const paths[] = { NULL, "docs", "set" };
    static const char *const more[] = { NULL, "training.dataset c4", "data.validation_path held" };
    char                    *back = getcwd(NULL, 0), record[4096];
    tm_text                  out = { 0 };
    (void)state;
    assert_int_equal(chdir(test_folder()), 0);
    test_file_write(".", "set.idx", "");
    for (int i = 0; i < 6 * 3 * 3 * 3; i++)
        for (int in_file = SOURCE; in_file <= KEYS; in_file++) {
            mix m = { { sources[i / 27], mocks[i / 9 % 3], paths[i / 3 % 3], more[i % 3] }, in_file };
            if (in_file == MORE || (in_file < KEYS && !m.value[in_file])) continue;
            if (in_file < KEYS && i % 3 > 0) continue;
            add_mix(&out, &m);
        }
    assert_int_equal(chdir(back), 0);
    snprintf(record, sizeof record, "%s/tests/data/whole-keys.txt", back);
    free(back);
    whole_is(record, &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sources_are_chosen_as_recorded),
};

TM_TESTS(tests, NULL, test_folder_teardown)

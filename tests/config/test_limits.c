/* SPDX-License-Identifier: Apache-2.0 */
/* How much a configuration may hold: as much as that is taken, and one more is refused with its place. */
#include "support/folder.h"
#include "support/full_config.h"
#include "base/log.h"

#include "support/test.h"

static char *const *environment;

static void load(const char *text, tm_status wanted, const char *message)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    tm_config_allow_unknown(config, true);
    tm_config_use_environment(config, environment);
    test_file_write(".", "x.yaml", text);
    tm_status st = tm_config_load_file(config, "x.yaml", &err);
    if (st != wanted || strcmp(err.text, message) != 0) fail_msg("%d: %s, wanted %s", (int)st, err.text, message);
    tm_config_destroy(config);
}

/* So many sections of so many keys. */
static void add_sections(tm_text *out, int sections, int keys)
{
    for (int s = 0; s < sections; s++) {
        tm_text_printf(out, "s%d: {", s);
        for (int i = 0; i < keys; i++) tm_text_printf(out, "%sk%d: 1", i ? ", " : "", i);
        tm_text_add(out, "}\n");
    }
}

/* Of a file, and of what files hold together: of these a wrong item behind them is told where they are not too many. */
TEST(values_are_counted)
{
    tm_text text = { 0 };
    for (int more = 0; more < 2; more++) {
        text.length = 0;
        tm_text_add(&text, "a: [1");
        for (int i = 1; i < 9998 + more; i++) tm_text_add(&text, ",1");
        tm_text_add(&text, "]\n");
        load(text.data, more ? TM_FORMAT : TM_OK,
             more ? "x.yaml:1: holds more than 10000 values; shorten the file" : "");
    }
    text.length = 0;
    add_sections(&text, 100, 98);
    test_file_write(".", "many.yaml", text.data);
    for (int more = 0; more < 2; more++) {
        text.length = 0;
        tm_text_add(&text, "extends: [many.yaml, many.yaml]\n");
        add_sections(&text, 4, 100);
        tm_text_add(&text, more ? "more: 1\n" : "wrong: [[1]]\n");
        load(text.data, more ? TM_FORMAT : TM_INVALID,
             more ? "'x.yaml' and what it extends hold more than 20000 values"
                  : "'wrong' (x.yaml:6) must be a list of plain values, found a list or map in it");
    }
    tm_text_fini(&text);
}

TEST(lengths_are_counted)
{
    enum { LONGEST = 1 << 16, LONGEST_VALUES = (8 << 20) / LONGEST };
    tm_text text = { 0 }, variable = { 0 };
    tm_text_add(&variable, "B=");
    for (int i = 0; i < LONGEST / 16; i++) tm_text_add(&variable, "0123456789abcdef");
    char *variables[] = { variable.data, NULL };
    environment = variables;
    load("job.description: ${B}\n", TM_OK, "");
    load("\njob.description: x${B}\n", TM_INVALID, "value is longer than 65536 bytes after substitution (x.yaml:2)");
    load("lora.targets: ['${B}']\n", TM_OK, "");
    for (int more = 0; more < 2; more++) {
        text.length = 0;
        for (int i = 0; i < LONGEST_VALUES; i++) tm_text_printf(&text, "a%d: ${B}\n", i);
        tm_text_add(&text, more ? "b: x\n" : "b: ''\n");
        load(text.data, more ? TM_FORMAT : TM_OK,
             more ? "x.yaml:129: the values of this file add up to more than 8388608 bytes" : "");
    }
    environment = NULL;
    tm_text_fini(&text);
    tm_text_fini(&variable);
}

/* Keys of YAML that are none. */
TEST(keys_are_words)
{
    static const char *const rows[][2] = {
        { "a: \"x\\0y\"\n", "x.yaml:1: a value holds a NUL character; remove the \\0" },
        { "\n? [a]\n: 1\n",
          "x.yaml:2: a key must be plain text, found a list, map or alias; quote it if it begins with one of [{*&" },
        { "a: 1\n'': 1\n", "x.yaml:2: a key must have 1 to 200 characters, found 0" },
        { "\"a\\0b\": 1\n", "x.yaml:1: a key must have 1 to 200 characters, found 3" },
        { "a: &x {b: 1}\nc: {<<: *x}\n", "x.yaml:2: merge keys (<<) are not supported; use extends: [file.yaml]" },
        { "a: &x [*x]\n", "x.yaml:1: alias '*x' is inside its own anchor; write the value out" },
        { "a: 1\nb: *x\n", "x.yaml:2: alias '*x' has no anchor '&x' before it; define it or quote the value" },
    };
    char key[210];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) load(rows[i][0], TM_FORMAT, rows[i][1]);
    snprintf(key, sizeof key, "%0200d: 1\n", 1);
    load(key, TM_OK, "");
    snprintf(key, sizeof key, "%0201d: 1\n", 1);
    load(key, TM_FORMAT, "x.yaml:1: a key must have 1 to 200 characters, found 201");
}

static int enter(void **state)
{
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    test_folder_enter();
    return 0;
}

TEST_FIXTURE(enter, test_folder_teardown)

/* SPDX-License-Identifier: Apache-2.0 */
/* The whole outcome of configurations, to the letter: every key that is not at its default, with its origin; what is
 * noted, left out, refused; all forms in which a table of keys is printed.
 * After a change that is meant:
 *     TM_RECORD=1 build/release/tests/config/test_whole; git diff tests/config/whole*.txt
 */
#include "whole_cases.h"

#include "../support/folder.h"
#include "../support/full_config.h"
#include "../support/whole.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

/* ---- configurations ---- */

static void add_lines(tm_text *out, const char *what, const char *lines)
{
    if (*lines) tm_text_printf(out, "  %s:\n", what);
    for (const char *p = lines; *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] == '\n'))
        tm_text_printf(out, "    %.*s\n", (int)strcspn(p, "\n"), p);
}

static void add_keys(tm_text *out, const tm_config *config)
{
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const char *key = tm_config_key_at(config, i)->name;
        if (tm_config_rank(config, key) == 0) continue;
        const char *shown = tm_config_shown(config, key);
        tm_text_printf(out, "  %s = %s (%s; %s; rank %d%s%s)\n", key, shown ? shown : "null",
                       tm_config_origin(config, key), tm_config_place(config, key), tm_config_rank(config, key),
                       tm_config_is_set(config, key) ? ", set" : "",
                       tm_config_is_changed(config, key) ? ", changed" : "");
    }
}

static void add_axes(tm_text *out, const tm_config *config)
{
    size_t                n;
    const tm_config_axis *axes = tm_config_axes(config, &n);
    for (size_t i = 0; i < n; i++) {
        tm_text_printf(out, "  axis %s of %s (%s):", axes[i].key, axes[i].row, axes[i].place);
        for (size_t k = 0; k < axes[i].n; k++) tm_text_printf(out, " %s", axes[i].values[k]);
        tm_text_add(out, "\n");
    }
}

static tm_status fill(tm_config *config, const whole_case *c, tm_error *err)
{
    char *words[16];
    int   n = 0;
    while (c->words[n]) words[n] = strdup(c->words[n]), n++;
    for (int i = 0; c->beside[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(c->beside[i], "\n"), c->beside[i]);
        test_file_write(".", name, strchr(c->beside[i], '\n') + 1);
    }
    if (c->file) test_file_write(".", c->file, c->text);
    tm_config_allow_unbuilt(config, c->plan);
    tm_config_allow_axes(config, c->axes);
    tm_config_allow_unknown(config, c->unknown);
    tm_config_use_environment(config, (char *const *)(uintptr_t)c->variables);
    tm_status st = TM_OK;
    if (c->early) st = tm_config_apply_environment(config, (char *const *)(uintptr_t)c->variables, err);
    if (st == TM_OK && c->file && !c->late) st = tm_config_load_file(config, c->file, err);
    if (st == TM_OK && c->late) st = tm_config_apply_arguments(config, n, words, err);
    if (st == TM_OK && !c->early) st = tm_config_apply_environment(config, (char *const *)(uintptr_t)c->variables, err);
    if (st == TM_OK && !c->late) st = tm_config_apply_arguments(config, n, words, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    for (int i = 0; i < n; i++) free(words[i]);
    for (int i = 0; c->beside[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(c->beside[i], "\n"), c->beside[i]);
        unlink(name);
    }
    if (c->file) unlink(c->file);
    return st;
}

static void outcomes_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    char    back[4096];
    (void)state;
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < sizeof whole_cases / sizeof whole_cases[0]; i++) {
        const whole_case *c = &whole_cases[i];
        tm_config        *config = test_full_config();
        tm_error          err = { 0 };
        tm_status         st = fill(config, c, &err);
        tm_text_printf(&out, "\n%s: exit %d, file %s, preset %s, module %s, framework %s, failed %d\n", c->name,
                       st == TM_OK ? 0 : tm_status_exit_code(st),
                       tm_config_from_file(config) ? tm_config_file(config) : "-",
                       tm_config_preset(config) ? tm_config_preset(config) : "-",
                       tm_config_module(config) ? tm_config_module(config) : "-",
                       tm_config_framework(config) ? tm_config_framework(config) : "-", tm_config_failed(config));
        if (st != TM_OK) add_lines(&out, "refused", err.text);
        if (st == TM_OK) add_keys(&out, config);
        add_axes(&out, config);
        add_lines(&out, "notes", tm_config_notes(config));
        add_lines(&out, "accepted", tm_config_accepted(config));
        add_lines(&out, "not supported", tm_config_unbuilt(config));
        tm_config_destroy(config);
    }
    assert_int_equal(chdir(back), 0);
    whole_is("tests/config/whole.txt", &out);
}

/* ---- a small table in every form ---- */

static const tm_key small[] = {
    { .name = "zeta", .kind = TM_KEY_TEXT, .fallback = "", .help = "an empty text" },
    { .name = "a.b.on", .kind = TM_KEY_BOOL, .fallback = "false", .help = "a switch", .synonyms = "on,a.on" },
    { .name = "a.b.count",
      .kind = TM_KEY_I64,
      .fallback = "3",
      .lo = 1,
      .hi = 64,
      .help = "a number of things | of many" },
    { .name = "a.b.open", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1e12, .help = "a number without an end" },
    { .name = "a.b.shut", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 999999999999, .help = "one with an end" },
    { .name = "a.rate", .kind = TM_KEY_F64, .fallback = "1e-08", .help = "a small number", .when = "a.b.on,!a.c" },
    { .name = "a.mode",
      .kind = TM_KEY_CHOICE,
      .fallback = "one",
      .choices = "one=1=uno|two=2|three",
      .help = "one of three",
      .when = "a.b.on=true|a.b.count!=3/4" },
    { .name = "a.c", .kind = TM_KEY_LIST, .fallback = "", .help = "a list", .when = "!a.b.on" },
    { .name = "a.maps", .kind = TM_KEY_MAPS, .help = "maps" },
    { .name = "a.none", .kind = TM_KEY_F64, .help = "a number that may be missing" },
    { .name = "b.quiet", .kind = TM_KEY_TEXT, .fallback = "x", .quiet = true, .help = "a name" },
    { .name = "b.ignored", .kind = TM_KEY_TEXT, .state = TM_KEY_IGNORED, .help = "not looked at" },
    { .name = "b.later",
      .kind = TM_KEY_I64,
      .fallback = "1",
      .lo = 1,
      .hi = 8,
      .choices = "2|4",
      .state = TM_KEY_UNBUILT,
      .feature = "more than one",
      .help = "something for later" },
    { .name = "b.much_longer_than_the_forty_letters_of_a_column",
      .kind = TM_KEY_TEXT,
      .help = "words that go on and on until they no longer fit into the line that they began in, and then some more" },
    { .name = "c.*", .kind = TM_KEY_TEXT, .state = TM_KEY_UNBUILT, .feature = "all of c", .help = "everything below" },
};

static void add_forms(tm_text *out, tm_config *config)
{
    tm_json json = { .out = out, .indent = true };
    tm_config_print_yaml(config, out, true);
    tm_text_add(out, "--\n");
    tm_config_print_yaml(config, out, false);
    tm_json_open(&json, NULL, '{');
    tm_config_print_json(config, &json);
    tm_json_close(&json, '}');
    tm_text_printf(out, "\nhash %016llx\n", (unsigned long long)tm_config_hash(config));
}

static tm_config *small_config(void)
{
    static const char *const pairs[] = { "a.b.on=true", "a.b.count=5", "zeta=from a preset", NULL };
    static char *const       empty[] = { NULL };
    tm_config               *config = tm_config_create_options("trainmark small --help");
    tm_config_add_keys(config, small, sizeof small / sizeof small[0]);
    tm_config_add_preset(config, "big-one", "big", pairs);
    tm_config_use_environment(config, empty);
    return config;
}

static void tables_are_printed_as_recorded(void **state)
{
    static const char *const words[][10] = {
        { "--a.b.on" },
        { "--model", "Big.yaml", "--a.rate=2.5e-7", "--a.mode", "UNO", "--zeta=on" },
        { "on=1", "--a.maps=[{x: 1, y: [a, b]}, {x: 2}]", "--a.none=-1.5e300", "--zeta=${x}", "--b.quiet=NULL" },
        { "--a.c=[a, 'b c', null, \"${d}\"]", "--zeta", "a\001b", "--a.none=1e5", "--a.mode=three", "--b.ignored=1" },
        { "--a.on=no", "--a.b.count=64", "--a.b.open=9007199254740993", "--a.b.shut=0.5", "--b.later=4",
          "--zeta=Null" },
        { "--a.b.count=65" },
        { "--a.b.count=0", "--a.b.shut=1e12", "--a.none=nan", "--a.mode=tow", "--a.b.on=2", "--b.later=3",
          "--c.d.e=1" },
        { "--c.d=0", "--c.e=none", "--c.f=", "--b.later=2", "--a.c=[]" },
        { "--a.rate=3", "--a.mode=two" },
        { "--a.b.on", "--a.c=[x]" },
        { "--a.rat=1" },
        { "--nothing.like_it=1" },
        { "--a.b=1" },
        { "--model=biggest" },
        { "--model=[1]" },
        { "--zeta" },
    };
    tm_text out = { 0 };
    (void)state;
    tm_config *config = small_config();
    tm_config_print_reference(config, &out);
    tm_text_add(&out, "\n");
    tm_config_print_help(config, NULL, 120, &out);
    tm_text_add(&out, "--\n");
    tm_config_print_help(config, "a.b", 120, &out);
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        tm_config_describe_key(tm_config_key_at(config, i), &out);
        tm_text_add(&out, "\n");
    }
    tm_config_destroy(config);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char    *argv[10];
        int      argc = 0;
        tm_error err = { 0 };
        config = small_config();
        tm_text_add(&out, "\n");
        for (; argc < 10 && words[i][argc]; argc++) {
            argv[argc] = strdup(words[i][argc]);
            tm_text_printf(&out, "%s%s (%d words)", argc ? " " : "", words[i][argc],
                           tm_config_argument_words(config, words[i][argc], words[i][argc + 1]));
        }
        tm_text_add(&out, "\n");
        tm_status st = tm_config_apply_arguments(config, argc, argv, &err);
        if (st == TM_OK) st = tm_config_finish(config, &err);
        if (st != TM_OK) tm_text_printf(&out, "exit %d: %s\n", tm_status_exit_code(st), err.text);
        add_forms(&out, config);
        tm_text_add(&out, tm_config_notes(config));
        tm_config_destroy(config);
        for (int k = 0; k < argc; k++) free(argv[k]);
    }
    whole_is("tests/config/whole-forms.txt", &out);
}

/* Keys whose values change no result: names and places. */
static void quiet_keys_are_as_recorded(void **state)
{
    tm_text    out = { 0 };
    tm_config *config = test_full_config();
    (void)state;
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->quiet) tm_text_printf(&out, "%s\n", key->name);
    }
    tm_config_destroy(config);
    whole_is("tests/config/whole-quiet.txt", &out);
}

/* The first rows that have the words, with the lines on which they go on. */
static void add_rows_with(tm_text *out, const char *printed, const char *words)
{
    int n = 0;
    for (const char *row = printed, *end; *row && n < 6; row = end) {
        end = row + strcspn(row, "\n") + 1;
        while (*end == ' ') end += strcspn(end, "\n") + 1;
        const char *at = strstr(row, words);
        if (!at || at >= end) continue;
        tm_text_add_n(out, row, (size_t)(end - row));
        n++;
    }
}

static void frameworks_are_printed_as_recorded(void **state)
{
    tm_text  out = { 0 };
    tm_error err = { 0 };
    (void)state;
    const char *what;
    for (size_t i = 0; tm_config_framework_at(i, &what); i++) {
        tm_text printed = { 0 }, json = { 0 };
        assert_int_equal(tm_config_print_framework(tm_config_framework_at(i, &what), &printed, &err), TM_OK);
        assert_int_equal(tm_config_framework_json(tm_config_framework_at(i, &what), &json, &err), TM_OK);
        tm_text_printf(&out, "%s: %s\n", tm_config_framework_at(i, &what), what);
        const char *end = strrchr(printed.data, '\n');
        for (int lines = 0; end > printed.data && lines < 3; end--) lines += end[-1] == '\n';
        tm_text_printf(&out, "%.600s...\n%s%.900s...\n%s", printed.data, end + 1, json.data,
                       json.data + json.length - 40);
        add_rows_with(&out, printed.data, " or ");
        add_rows_with(&out, printed.data, "; accepted: ");
        tm_text_fini(&printed);
        tm_text_fini(&json);
    }
    assert_int_equal(tm_config_print_framework("nemo", &out, &err), TM_USAGE);
    tm_text_printf(&out, "%s\n", err.text);
    whole_is("tests/config/whole-frameworks.txt", &out);
}

static int quiet(void **state)
{
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(outcomes_are_as_recorded),
    cmocka_unit_test(tables_are_printed_as_recorded),
    cmocka_unit_test(frameworks_are_printed_as_recorded),
    cmocka_unit_test(quiet_keys_are_as_recorded),
};

TM_TESTS(tests, quiet, test_folder_teardown)

/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of keys in every form: what is printed is read back, each row has its facts, sums are counted again; tables of
 * commands. */
#include "../support/folder.h"
#include "../support/foreign.h"
#include "config/foreign.h"

#include <jansson.h>

#include "support/test.h"

/* A key, and what is said of it beside its help: "VALUES~DEFAULT~CONDITION~STATE~SYNONYMS", the last ones as cells. */
static const struct {
    tm_key      key;
    const char *said;
} rows[] = {
    { { .name = "zeta", .kind = TM_KEY_TEXT, .fallback = "", .help = "an empty text" }, "text~\"\"~~~" },
    { { .name = "a.b.on", .kind = TM_KEY_BOOL, .fallback = "false", .help = "a switch", .synonyms = "on,a.on" },
      "true or false~false~~~`on`, `a.on`" },
    { { .name = "a.b.count", .kind = TM_KEY_I64, .fallback = "3", .lo = 1, .hi = 64, .help = "things | of many" },
      "integer, 1 to 64~3~~~" },
    { { .name = "a.b.open", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1e12, .help = "without an end" },
      "integer, at least 0~0~~~" },
    { { .name = "a.b.shut", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 999999999999, .help = "with an end" },
      "number, 0 to 999999999999~0~~~" },
    { { .name = "a.rate", .kind = TM_KEY_F64, .fallback = "1e-08", .help = "a number", .when = "a.b.on,!a.c" },
      "number~1e-08~applies only with a.b.on and without a.c~~" },
    { { .name = "a.mode",
        .kind = TM_KEY_CHOICE,
        .fallback = "one",
        .choices = "one=1=uno|two=2|three",
        .help = "one of three",
        .when = "a.b.on=true|a.b.count!=3/4" },
      "one, two, three~one~applies only with a.b.on true or with a.b.count other than 3 or 4~~" },
    { { .name = "a.c", .kind = TM_KEY_LIST, .fallback = "", .help = "a list", .when = "!a.b.on" },
      "list~[]~applies only without a.b.on~~" },
    { { .name = "a.maps", .kind = TM_KEY_MAPS, .help = "maps" }, "list of maps~null~~~" },
    { { .name = "a.none", .kind = TM_KEY_F64, .help = "a number or none" }, "number~null~~~" },
    { { .name = "b.quiet", .kind = TM_KEY_TEXT, .fallback = "x", .quiet = true, .help = "a name" }, "text~x~~~" },
    { { .name = "b.ignored", .kind = TM_KEY_TEXT, .state = TM_KEY_IGNORED, .help = "not looked at" },
      "text~null~~ *(accepted and ignored)*~" },
    { { .name = "b.later",
        .kind = TM_KEY_I64,
        .fallback = "1",
        .lo = 1,
        .hi = 8,
        .choices = "2|4",
        .state = TM_KEY_UNBUILT,
        .feature = "more than one",
        .help = "something for later" },
      "integer, 1 to 8~1~~ *(not supported: more than one)*~" },
    { { .name = "b.much_longer_than_the_forty_letters_of_a_column",
        .kind = TM_KEY_TEXT,
        .help = "words that go on and on until they no longer fit into the line that they began in, and then on" },
      "text~null~~~" },
    { { .name = "c.*", .kind = TM_KEY_TEXT, .state = TM_KEY_UNBUILT, .feature = "all of c", .help = "all below" },
      "text~null~~ *(not supported: all of c)*~" },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static tm_config *small_config(void)
{
    static char *const empty[] = { NULL };
    tm_config         *config = tm_config_create_options("trainmark small --help");
    for (size_t i = 0; i < ROWS; i++) tm_config_add_keys(config, &rows[i].key, 1);
    tm_config_use_environment(config, empty);
    return config;
}

static tm_status give(tm_config *config, const char *const *words, tm_error *err)
{
    char *argv[10];
    int   argc = 0;
    for (; argc < 10 && words[argc]; argc++) argv[argc] = strdup(words[argc]);
    tm_status st = tm_config_apply_arguments(config, argc, argv, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    while (argc > 0) free(argv[--argc]);
    return st;
}

/* Runs of blanks as one. Returns what strstr finds of them. */
static char *squeezed(const char *text)
{
    char *out = malloc(strlen(text) + 1), *to = out;
    for (; *text; text++)
        if (!strchr(" \n", *text) || (to > out && to[-1] != ' ')) *to++ = *text == '\n' ? ' ' : *text;
    *to = '\0';
    return out;
}

static void has(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void has(const char *text, const char *format, ...)
{
    char    wanted[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    if (!strstr(text, wanted)) fail_msg("'%s' is not in:\n%s", wanted, text);
}

/* But for single words that are longer. */
static void lines_fit(const char *text, size_t width)
{
    for (const char *p = text; *p; p += strcspn(p, "\n") + 1)
        if (strcspn(p, "\n") > width && strcspn(p + strspn(p, " "), " ") < width - 62) fail_msg("longer: %.200s", p);
}

TEST(every_row_has_its_facts)
{
    tm_config *config = small_config();
    tm_text    table = { 0 }, help = { 0 }, part = { 0 };
    tm_config_print_reference(config, &table);
    tm_config_print_help(config, NULL, 120, &help);
    tm_config_print_help(config, "a.b", 120, &part);
    lines_fit(help.data, 120);
    char *flat = squeezed(help.data), *flat_part = squeezed(part.data);
    has(table.data,
        "\n### without a section\n\n| key | default | values | meaning | synonyms |\n|---|---|---|---|---|\n"
        "| `zeta`");
    has(table.data, "\n\n### a\n\n| key");
    has(table.data, "\n\n### c\n\n| key");
    for (size_t i = 0; i < ROWS; i++) {
        char        parts[256], *rest = parts;
        const char *p[5];
        strcpy(parts, rows[i].said);
        for (int k = 0; k < 5; k++) p[k] = strsep(&rest, "~");
        const char *values = p[0], *otherwise = p[1], *when = p[2], *state = p[3], *synonyms = p[4];
        const char *bar = strchr(rows[i].key.help, '|'), *help_text = rows[i].key.help;
        int         before = bar ? (int)(bar - help_text) : (int)strlen(help_text);
        char        said[512], option[640];
        tm_text     described = { 0 };
        tm_config_describe_key(&rows[i].key, &described);
        snprintf(said, sizeof said, "%s (%s; default %s%s%s)", help_text, values, otherwise, *when ? "; " : "", when);
        assert_string_equal(described.data, said);
        tm_text_fini(&described);
        has(table.data, "\n| `%s` | `%s` | %s | %.*s%s%s%s%s%s%s | %s |\n", rows[i].key.name, otherwise, values, before,
            help_text, bar ? "\\" : "", bar ? bar : "", *when ? "; *" : "", when, *when ? "*" : "", state, synonyms);
        snprintf(option, sizeof option, "--%s %s", rows[i].key.name, said);
        assert_int_equal(strstr(flat, option) != NULL, rows[i].key.state == TM_KEY_USED);
        assert_int_equal(strstr(flat_part, option) != NULL, strncmp(rows[i].key.name, "a.b.", 4) == 0);
    }
    free(flat);
    free(flat_part);
    tm_text_fini(&table);
    tm_text_fini(&help);
    tm_text_fini(&part);
    tm_config_destroy(config);
}

/* Read back from a file it is the same: values, hash, and both forms of JSON. */
static void is_read_back(const tm_config *config, bool with_origins)
{
    tm_config *other = small_config();
    tm_error   err = { 0 };
    tm_text    yaml = { 0 }, json[2] = { { 0 }, { 0 } };
    tm_config_print_yaml(config, &yaml, with_origins);
    FILE *file = fopen(test_in_folder("printed.yaml"), "w");
    assert_non_null(file);
    assert_int_equal(fputs(yaml.data, file) < 0 || fclose(file) != 0, false);
    if (tm_config_load_file(other, test_in_folder("printed.yaml"), &err) != TM_OK ||
        tm_config_finish(other, &err) != TM_OK)
        fail_msg("%s\n%s", err.text, yaml.data);
    assert_true(tm_config_hash(other) == tm_config_hash(config));
    for (int k = 0; k < 2; k++) {
        tm_json out = { .out = &json[k], .indent = true };
        tm_json_open(&out, NULL, '{');
        tm_config_print_json(k ? other : config, &out);
        tm_json_close(&out, '}');
    }
    assert_string_equal(json[0].data, json[1].data);
    for (const char *p = yaml.data; *p; p += strcspn(p, "\n") + 1) {
        bool has_value = p[strcspn(p, ":\n")] == ':' && p[strcspn(p, ":") + 1] == ' ';
        bool has_origin = memmem(p, strcspn(p, "\n"), "  # ", 4) != NULL;
        assert_int_equal(has_origin, has_value && with_origins);
    }
    tm_text_fini(&yaml);
    tm_text_fini(&json[0]);
    tm_text_fini(&json[1]);
    tm_config_destroy(other);
}

TEST(printed_values_are_read_back)
{
    static const struct {
        const char *words[8], *json; /* members of the JSON, as jansson reads them */
    } cases[] = {
        { { "--a.b.on" },
          "{\"a.b.on\": true, \"a.b.count\": 3, \"zeta\": \"\", \"a.none\": null, \"b.quiet\": \"x\"}" },
        { { "--a.on=yes", "--a.rate=2.5e-7", "--a.mode", "UNO", "--zeta=on" },
          "{\"a.rate\": 2.5e-07, \"a.mode\": \"one\", \"zeta\": \"on\"}" },
        { { "on=1", "--a.none=-1.5e300", "--zeta=${x}", "--b.quiet=nulls" },
          "{\"a.b.on\": true, \"a.none\": -1.5e300, \"zeta\": \"${x}\"}" },
        { { "--a.c=[a, 'b c', \"${d}\"]", "--zeta", "a\"b\\", "--a.none=1e5" },
          "{\"a.c\": \"a,b c,${d}\", \"zeta\": \"a\\\"b\\\\\", \"a.none\": 100000}" },
        { { "--a.on=no", "--a.b.count=64", "--a.b.open=1000000000000", "--a.b.shut=0.5" },
          "{\"a.b.on\": false, \"a.b.count\": 64, \"a.b.open\": 1000000000000, \"a.b.shut\": 0.5}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_config  *config = small_config();
        tm_error    err = { 0 };
        tm_text     text = { 0 };
        tm_json     out = { .out = &text };
        const char *key;
        json_t     *value;
        if (give(config, cases[i].words, &err) != TM_OK) fail_msg("case %zu: %s", i, err.text);
        tm_json_open(&out, NULL, '{');
        tm_config_print_json(config, &out);
        tm_json_close(&out, '}');
        json_t *found = json_loads(text.data, 0, NULL), *wanted = json_loads(cases[i].json, 0, NULL);
        assert_non_null(found);
        assert_non_null(wanted);
        json_object_foreach(wanted, key, value) if (!json_equal(json_object_get(found, key), value))
            fail_msg("case %zu: %s in %s", i, key, text.data);
        assert_null(json_object_get(found, "b.ignored"));
        is_read_back(config, true);
        is_read_back(config, false);
        json_decref(found);
        json_decref(wanted);
        tm_text_fini(&text);
        tm_config_destroy(config);
    }
}

/* "hip:1": of a row that says so, in any case, and only with digits behind it. */
TEST(a_choice_may_have_a_number)
{
    tm_error err = { 0 };
    static const struct {
        const char *text, *wanted; /* NULL: it is none */
    } cases[] = {
        { "hip", "hip" },    { "HIP:1", "hip:1" }, { "cuda:0012", "cuda:0012" }, { "null", "null" },
        { "hip:", NULL },    { "hip:x", NULL },    { "hip:1x", NULL },           { "hip:12345", NULL },
        { "hip:1:2", NULL }, { "hop:1", NULL },    { "hip:-1", NULL },
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        bool       numbered = i % 2;
        tm_key     row = { .name = "device",
                           .kind = TM_KEY_CHOICE,
                           .fallback = "cpu",
                           .choices = "cpu|cuda|hip|null",
                           .numbered = numbered,
                           .help = "a device" };
        char      *words[] = { "--device", (char *)cases[i / 2].text };
        tm_config *options = tm_config_create_options("tool --help");
        bool       good = cases[i / 2].wanted && (numbered || !strchr(words[1], ':'));
        tm_config_add_keys(options, &row, 1);
        err = (tm_error){ 0 };
        tm_status st = tm_config_apply_arguments(options, 2, words, &err);
        if (st == TM_OK) st = tm_config_finish(options, &err);
        assert_int_equal(st, good ? TM_OK : TM_INVALID);
        if (good) assert_string_equal(tm_config_text(options, "device"), cases[i / 2].wanted);
        if (!good) assert_int_equal(strstr(err.text, "null, also NAME:NUMBER; found '") != NULL, numbered);
        tm_config_destroy(options);
    }
}

/* --- other programs' keys ------------------------------------------------------------------------------------------
 */

static void text_is(const json_t *object, const char *name, const char *wanted)
{
    const char *found = json_string_value(json_object_get(object, name));
    if (!found != !wanted || (found && strcmp(found, wanted) != 0))
        fail_msg("%s is %s, wanted %s", name, found ? found : "null", wanted ? wanted : "null");
}

/* Each row is in the list, whole, and in the text, in its order. */
TEST(frameworks_are_printed_whole)
{
    tm_error err = { 0 };
    for (size_t f = 0; tm_framework_at(f); f++) {
        const tm_framework *framework = tm_framework_at(f);
        tm_text             printed = { 0 }, json = { 0 };
        assert_int_equal(tm_config_print_framework(framework->name, &printed, &err), TM_OK);
        assert_int_equal(tm_config_framework_json(framework->name, &json, &err), TM_OK);
        json_t *list = json_loads(json.data, 0, NULL);
        char   *flat = squeezed(printed.data), *at = flat;
        lines_fit(printed.data, 120);
        assert_int_equal(json_array_size(list), framework->n);
        for (size_t i = 0; i < framework->n; i++) {
            const tm_foreign_key *row = &framework->keys[i];
            const json_t         *object = json_array_get(list, i);
            bool                  mapped = row->kind == TM_FOREIGN_MAPPED;
            const char           *values = row->values && *row->values ? row->values : NULL;
            text_is(object, "name", row->name);
            text_is(object, "meaning", row->words);
            text_is(object, "default", row->fallback);
            text_is(object, "with", row->with);
            text_is(object, mapped ? "mapped_to" : "accepted", values);
            at = strstr(at, row->name);
            if (!at) fail_msg("%s: %s is not printed", framework->name, row->name);
        }
        free(flat);
        json_decref(list);
        tm_text_fini(&printed);
        tm_text_fini(&json);
    }
    assert_int_equal(tm_config_print_framework("nemo", &(tm_text){ 0 }, &err), TM_USAGE);
    for (size_t f = 0; tm_framework_at(f); f++) has(err.text, "%s", tm_framework_at(f)->name);
}

TEST_FIXTURE(NULL, test_folder_teardown)

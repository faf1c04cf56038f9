/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of data for fine-tuning, every form of them (sft/rows.txt): what is read and what is learned, as text, as JSON
 * and as ids; what is cut off; and what is refused, with its place. */
#include "data/preview.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/refusal.h"

#include <jansson.h>

#include "support/test.h"

/* What holds for the lines of the file that follow. */
typedef struct {
    char           map[100], template[400];
    tm_sft_options sft;
} rules;

/* With line feeds in the place of "<nl>". */
static void with_lines(char *text)
{
    char *to = text;
    for (; *text; text++)
        if (strncmp(text, "<nl>", 4) == 0)
            *to++ = '\n', text += 3;
        else
            *to++ = *text;
    *to = '\0';
}

static json_t *previewed(tm_preview_options o, const char *line)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    o.json = true;
    if (tm_data_preview(&o, &text, &err) != TM_OK) fail_msg("%s: %s", line, err.text);
    json_t *all = json_loadb(text.data, text.length, 0, NULL), *samples = json_incref(json_object_get(all, "samples"));
    assert_true(json_is_string(json_object_get(all, "format")) && json_array_size(samples) > 0);
    json_decref(all);
    tm_text_fini(&text);
    return samples;
}

static int64_t number(json_t *sample, const char *name)
{
    return json_integer_value(json_object_get(sample, name));
}

/* Appends a sample's parts, "[[read]]learned"; they are its ids, which are bytes and the end, by its mask. */
static void add_parts(json_t *sample, tm_text *out)
{
    json_t *ids = json_object_get(sample, "ids"), *mask = json_object_get(sample, "mask"), *part;
    size_t  i, at = 0;
    int64_t targets = 0;
    json_array_foreach(json_object_get(sample, "parts"), i, part)
    {
        const bool  target = json_is_true(json_object_get(part, "target"));
        const char *text = json_string_value(json_object_get(part, "text"));
        tm_text_printf(out, target ? "%s" : "[[%s]]", text);
        while (*text) {
            const bool end = strncmp(text, "<|end|>", 7) == 0 && json_integer_value(json_array_get(ids, at)) == 256;
            assert_int_equal(json_integer_value(json_array_get(ids, at)), end ? 256 : (unsigned char)*text);
            assert_int_equal(json_integer_value(json_array_get(mask, at)), target);
            text += end ? 7 : 1;
            targets += target && at > 0; /* nothing predicts the first one */
            at++;
        }
    }
    assert_true(at == json_array_size(ids) && at == json_array_size(mask));
    assert_int_equal(number(sample, "tokens"), at);
    assert_int_equal(number(sample, "targets"), targets);
}

/* As people see it: a line on each sample, and its parts. */
static void is_printed(const tm_preview_options *o, json_t *samples)
{
    tm_text wanted = { 0 }, found = { 0 };
    json_t *sample;
    size_t  i;
    json_array_foreach(samples, i, sample)
    {
        const char *answer = json_string_value(json_object_get(sample, "answer"));
        tm_text_printf(&wanted, "%s%s%s%s: %lld tokens, %lld of them targets", i ? "\n" : "",
                       json_string_value(json_object_get(sample, "place")), answer ? ", " : "", answer ? answer : "",
                       (long long)number(sample, "tokens"), (long long)number(sample, "targets"));
        if (number(sample, "truncated"))
            tm_text_printf(&wanted, "; %lld more are cut off", (long long)number(sample, "truncated"));
        tm_text_add(&wanted, "\n");
        add_parts(sample, &wanted);
        tm_text_add(&wanted, "\n");
    }
    assert_ok(tm_data_preview(o, &found, err));
    assert_string_equal(found.data, wanted.data);
    tm_text_fini(&wanted);
    tm_text_fini(&found);
}

/* Samples of SEQ + 1 tokens, or answers of half of it, are the beginnings of the whole ones. */
static void is_cut(tm_preview_options o, const char *line, json_t *whole)
{
    o.seq = 6;
    json_t *cut = previewed(o, line), *sample, *id;
    size_t  i, k;
    json_array_foreach(cut, i, sample)
    {
        json_t       *all = json_array_get(whole, i);
        const int64_t most = json_object_get(sample, "answer") ? 4 : 7, n = number(all, "tokens");
        assert_int_equal(number(sample, "tokens"), n < most ? n : most);
        assert_int_equal(number(sample, "truncated"), n - number(sample, "tokens"));
        json_array_foreach(json_object_get(sample, "ids"), k, id)
            assert_true(json_equal(id, json_array_get(json_object_get(all, "ids"), k)));
    }
    is_printed(&o, cut);
    json_decref(cut);
}

static void is_shown(const rules *r, const char *path, const char *line, const char *wanted, bool whole)
{
    tm_preview_options o = { .path = path, .sft = r->sft, .first = 1, .n = 2 };
    json_t            *samples = previewed(o, line), *sample;
    tm_text            found = { 0 };
    size_t             i;
    json_array_foreach(samples, i, sample)
    {
        add_parts(sample, &found);
        tm_text_add(&found, "\n");
    }
    if (whole ? strcmp(found.data, wanted) != 0 : !strstr(found.data, wanted))
        fail_msg("%s: '%s', wanted '%s'", line, found.data, wanted);
    is_printed(&o, samples);
    is_cut(o, line, samples);
    json_decref(samples);
    tm_text_fini(&found);
}

static void is_refused(const rules *r, const char *path, const char *line, const char *words)
{
    const bool        pairs = r->sft.format == TM_SFT_PREFERENCE;
    tm_source_options o = { .name = pairs ? "preference" : "sft", .path = path, .seq = pairs ? 40 : 64, .sft = r->sft };
    tm_source        *source;
    tm_error          err = { 0 };
    const tm_status   st = tm_source_open(&o, &source, &err);
    if (tm_status_exit_code(st) != 4 || !strstr(err.text, words) || !strstr(err.text, strrchr(path, '/')))
        fail_msg("%s: wanted '%s' in: %s", line, words, err.text);
    refusal_is_sound(&err);
}

/* "@ map a=b", "@ map -", "@ map - all", "@ template TEXT", "@ overlong", "@ pairs" */
static void add_rule(rules *r, const char *rule)
{
    char all[8] = "";
    if (strncmp(rule, "template ", 9) == 0) snprintf(r->template, sizeof r->template, "%s", rule + 9);
    if (sscanf(rule, "map %99s %7s", r->map, all) > 0) {
        r->sft.column_map = *r->map == '-' ? NULL : r->map;
        r->sft.train_on_input = strcmp(all, "all") == 0;
    }
    if (strcmp(rule, "overlong") == 0) r->sft.overlong = TM_OVERLONG_ERROR;
    if (strcmp(rule, "pairs") == 0) r->sft.format = TM_SFT_PREFERENCE;
}

TEST(rows_are_what_the_file_says)
{
    FILE *file = fopen("tests/data/sft/rows.txt", "r");
    char  line[2000], path[256];
    int   n = 0;
    rules r = { 0 };
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!*line || *line == '#') continue;
        if (*line == '@') {
            add_rule(&r, line + 2);
            continue;
        }
        char *at = strstr(line, " => ")   ? strstr(line, " => ")
                   : strstr(line, " ~> ") ? strstr(line, " ~> ")
                                          : strstr(line, " !> ");
        assert_non_null(at);
        *at = '\0';
        with_lines(at + 4);
        snprintf(path, sizeof path, "%s", test_in_folder("a.data"));
        r.sft.chat_template = test_file_write(test_folder(), "chat.jinja", r.template);
        if (strncmp(line, "file:", 5) == 0)
            snprintf(path, sizeof path, "tests/data/parquet/rows_%.40s.parquet", line + 5);
        else
            with_lines(line), test_file_write(test_folder(), "a.data", line);
        if (at[1] == '!')
            is_refused(&r, path, line, at + 4);
        else
            is_shown(&r, path, line, at + 4, at[1] == '=');
        n++;
    }
    assert_true(n > 90);
    fclose(file);
}

TEST_FIXTURE(NULL, test_folder_teardown)

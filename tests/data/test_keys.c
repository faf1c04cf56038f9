/* SPDX-License-Identifier: Apache-2.0 */
/* Which source a run reads: every mix of data.source, training.mock_data and data.path, in one layer or in two, with a
 * data set that is not here or with held-out data of its own, is settled as the rule below says.
 */
#include "base/text.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"

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

/* What comes of a mix: a source, and the key that it is derived from (NULL: none); or a refusal that says `says`, and
 * perhaps also what `also` says. */
typedef struct {
    const char *source, *from, *says, *also;
} outcome;

static bool is(const char *text, const char *wanted)
{
    return text && strcmp(text, wanted) == 0;
}

/* 0: not given, 1: in the file, 2: by words. */
static int layer(const mix *m, int key)
{
    return !m->value[key] ? 0 : m->in_file == key ? 1 : 2;
}

/* The key of the higher layer decides; in one layer data.source before training.mock_data before data.path. Images have
 * a mock of their own; pairs stay pairs, wherever they lie. */
static outcome rule(const mix *m)
{
    const char *source = m->value[SOURCE] ? m->value[SOURCE] : "synthetic";
    const bool  mocked = is(m->value[MOCK], "true"), real = is(m->value[MOCK], "false");
    const bool  pairs = is(source, "preference"), images = is(source, "gaussians");
    const int   by = layer(m, SOURCE), mock = layer(m, MOCK), path = layer(m, PATH);
    const bool  named = m->value[MORE] && strstr(m->value[MORE], "dataset c4");
    outcome     o = { .source = source };
    if (real && is(source, "mock") && mock == by) o.says = "give one of the two";
    if (mocked && pairs) o.says = "training.mock_data (", o.also = "compares answers";
    if (o.says) return o;
    if (mocked && mock > by && mock >= path)
        o.source = images ? "gaussians" : "mock", o.from = keys[MOCK];
    else if (path > by && !pairs)
        o.source = is(m->value[PATH], "set") ? "megatron" : "text", o.from = keys[PATH];
    if (real && mock > by && !path) o.says = "training.mock_data is false (", o.also = "no local data is named";
    if (o.says) return o;
    const tm_source_traits *traits = tm_source_traits_of(o.source);
    if (named && !mocked && !path && (by < 2 || traits->needs_path)) /* what a data set is named for has files */
        o.says = "training.dataset is c4", o.also = "is not downloaded: give data.path";
    else if (traits->needs_path && !path)
        o.says = "but data.path names no file or directory", o.also = o.source;
    return o;
}

static void wants(const char *what, const char *text, const char *part, bool wanted)
{
    if (part && (strstr(text, part) != NULL) != wanted)
        fail_msg("%s: %s'%s' in: %s", what, wanted ? "" : "no ", part, text);
}

static void check_mix(const mix *m)
{
    tm_config    *config = test_full_config();
    tm_error      err = { 0 };
    const outcome o = rule(m);
    char          what[256], from[64];
    snprintf(what, sizeof what, "source %s, mock %s, path %s, %s, in the file: %s", m->value[SOURCE], m->value[MOCK],
             m->value[PATH], m->value[MORE], m->in_file < KEYS ? keys[m->in_file] : "none");
    const tm_source_traits *traits = tm_source_traits_of(o.source);
    const int               by = layer(m, SOURCE), mock = layer(m, MOCK), path = layer(m, PATH);
    /* A path that is read by nobody is a mistake, but where it stands below what decides. */
    const bool idle = path > 0 && !traits->needs_path, meant = idle && path < (is(o.from, keys[MOCK]) ? mock : by);
    const bool held = m->value[MORE] && strstr(m->value[MORE], "validation_path") && !traits->takes_validation_path;
    const tm_status st = read_mix(m, config, &err);
    if ((st != TM_OK) != (o.says || held || (idle && !meant))) fail_msg("%s: %d %s", what, st, err.text);
    wants(what, err.text, o.says, true);
    wants(what, err.text, o.says ? o.also : NULL, true);
    wants(what, err.text, "data.validation_path (command line) is for data.source govreport and latents",
          held && !o.says);
    wants(what, err.text, "'data.path' = '",
          idle && !meant && (!o.from || !held)); /* what is derived is checked last */
    if (st == TM_OK) {
        const char *place = tm_config_place(config, keys[SOURCE]), *notes = tm_config_notes(config);
        const char *given = by == 0 ? "default" : by == 1 ? "./keys.yaml:1" : "command line";
        snprintf(from, sizeof from, "derived from %s (", o.from);
        if (!is(tm_config_text(config, keys[SOURCE]), o.source))
            fail_msg("%s: %s", what, tm_config_text(config, keys[SOURCE]));
        if (o.from)
            wants(what, place, from, true);
        else
            assert_string_equal(place, given);
        wants(what, notes, "ignored: data.path", meant);
        wants(what, notes, "but data.source counts",
              is(m->value[MOCK], "true") && mock == by && !is(o.source, "mock") && !traits->images);
    }
    tm_config_destroy(config);
}

TEST(sources_are_chosen_by_the_rule)
{
    static const char *const sources[] = { NULL, "text", "mock", "synthetic", "preference", "gaussians" };
    static const char *const mocks[] = { NULL, "true", "false" }, *const paths[] = { NULL, "docs", "set" };
    static const char *const more[] = { NULL, "training.dataset c4", "data.validation_path held" };
    char                    *back = getcwd(NULL, 0);
    assert_int_equal(chdir(test_folder()), 0);
    test_file_write(".", "set.idx", "");
    for (int i = 0; i < 6 * 3 * 3 * 3; i++)
        for (int in_file = SOURCE; in_file <= KEYS; in_file++) {
            mix m = { { sources[i / 27], mocks[i / 9 % 3], paths[i / 3 % 3], more[i % 3] }, in_file };
            if ((i + in_file) % 2 && !test_is_full()) continue;
            if (in_file != MORE && (in_file == KEYS || m.value[in_file])) check_mix(&m);
        }
    assert_int_equal(chdir(back), 0);
    free(back);
}

/* What `data tokenize` and `data pack` write is known by its name, where it is there. Rows for fine-tuning are read
 * with the tokenizer of the model, others are not. */
TEST(paths_tell_their_source)
{
    static const char *const paths[][2] = { { "set", "megatron" },     { "set.idx", "megatron" },
                                            { "set.bin", "megatron" }, { "gone.bin", "text" },
                                            { "gone.idx", "text" },    { "both", "text" },
                                            { "x.npy", "govreport" },  { ".npy", "text" },
                                            { "x.np", "text" },        { "docs.txt", "text" } };
    static const char *const read_by[][2] = { { "sft", "assets" }, { "preference", "assets" }, { "text", "byte" } };
    char                    *back = getcwd(NULL, 0);
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < 3; i++) test_file_write(".", (const char *[]){ "set.idx", "set.bin", "both.idx" }[i], "");
    test_file_write(".", "both", "a text");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        tm_config *config = test_full_config();
        char       words[64];
        tm_error   err = { 0 };
        snprintf(words, sizeof words, "--data.path %s", paths[i][0]);
        test_apply_words(config, words);
        if (tm_config_finish(config, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
        if (!is(tm_config_text(config, keys[SOURCE]), paths[i][1]))
            fail_msg("%s: %s", words, tm_config_text(config, keys[SOURCE]));
        tm_config_destroy(config);
    }
    for (size_t i = 0; i < sizeof read_by / sizeof read_by[0]; i++) {
        tm_config *config = test_full_config();
        char       words[128];
        tm_error   err = { 0 };
        snprintf(words, sizeof words, "--data.source %s --data.path docs --model.hf_assets_path assets", read_by[i][0]);
        test_apply_words(config, words);
        if (tm_config_finish(config, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
        assert_string_equal(tm_config_text(config, "data.tokenizer"), read_by[i][1]);
        tm_config_destroy(config);
    }
    assert_int_equal(chdir(back), 0);
    free(back);
}

TEST_FIXTURE(NULL, test_folder_teardown)

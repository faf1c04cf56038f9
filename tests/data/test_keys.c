/* SPDX-License-Identifier: Apache-2.0 */
/* Which source a run reads: the key of the higher layer decides, words before a file; in one layer data.source before
 * training.mock_data before data.path. Images have a mock of their own; pairs stay pairs, wherever they lie. */
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "support/test.h"

/* Words of a command line and lines of a file, "--" left out in both; the source and the key that it is derived from,
 * or what the refusal says; a part of the notes. */
static const struct {
    const char *words, *file, *source, *from, *refused, *note;
} mixes[] = {
    { "", "", "synthetic", NULL, NULL, NULL },
    { "data.source mock", "", "mock", NULL, NULL, NULL },
    { "", "data.source: mock", "mock", NULL, NULL, NULL },
    { "training.mock_data true", "", "mock", "training.mock_data", NULL, NULL },
    { "training.mock_data true", "data.source: preference", "", NULL, "compares answers", NULL },
    { "training.mock_data true", "data.source: gaussians", "gaussians", "training.mock_data", NULL, NULL },
    { "training.mock_data true data.source synthetic", "", "synthetic", NULL, NULL, "but data.source counts" },
    { "training.mock_data true data.source mock", "", "mock", NULL, NULL, NULL },
    { "training.mock_data true data.source gaussians", "", "gaussians", NULL, NULL, NULL },
    { "training.mock_data true", "data.source: text", "mock", "training.mock_data", NULL, NULL },
    { "data.source synthetic", "training.mock_data: true", "synthetic", NULL, NULL, NULL },
    { "training.mock_data false data.source mock", "", "", NULL, "give one of the two", NULL },
    { "training.mock_data false", "data.source: mock", "", NULL, "no local data is named", NULL },
    { "training.mock_data false", "", "", NULL, "no local data is named", NULL },
    { "training.mock_data false data.path docs", "", "text", "data.path", NULL, NULL },
    { "data.path docs", "", "text", "data.path", NULL, NULL },
    { "data.path docs", "data.source: mock", "text", "data.path", NULL, NULL },
    { "data.path docs", "data.source: preference", "preference", NULL, NULL, NULL },
    { "data.path docs data.source preference", "", "preference", NULL, NULL, NULL },
    { "data.path docs data.source text", "", "text", NULL, NULL, NULL },
    { "data.path docs data.source mock", "", "", NULL, "'data.path' = 'docs'", NULL },
    { "data.source mock", "data.path: docs", "mock", NULL, NULL, "ignored: data.path" },
    { "data.path docs training.mock_data true", "", "", NULL, "'data.path' = 'docs'", NULL },
    { "data.path docs", "training.mock_data: true", "text", "data.path", NULL, NULL },
    { "training.mock_data true", "data.path: docs", "mock", "training.mock_data", NULL, "ignored: data.path" },
    { "data.source text", "", "", NULL, "but data.path names no file or directory", NULL },
    { "data.source preference", "", "", NULL, "but data.path names no file or directory", NULL },
    { "training.dataset c4", "", "", NULL, "is not downloaded: give data.path", NULL },
    { "training.dataset c4 training.mock_data true", "", "mock", "training.mock_data", NULL, NULL },
    { "training.dataset c4 data.source mock", "", "mock", NULL, NULL, NULL },
    { "training.dataset c4 data.source text", "", "", NULL, "is not downloaded: give data.path", NULL },
    { "training.dataset c4", "data.source: mock", "", NULL, "is not downloaded: give data.path", NULL },
    { "training.dataset c4 data.path docs", "", "text", "data.path", NULL, NULL },
    { "data.validation_path held", "", "", NULL, "data.validation_path (command line) is for data.source", NULL },
    { "data.validation_path held data.path set", "", "megatron", "data.path", NULL, NULL },
    { "data.validation_path held data.source text data.path docs", "", "", NULL, "is for data.source govreport", NULL },
    /* What `data tokenize` and `data pack` write is known by its name, where it is there. */
    { "data.path set", "", "megatron", "data.path", NULL, NULL },
    { "data.path set.idx", "", "megatron", "data.path", NULL, NULL },
    { "data.path set.bin", "", "megatron", "data.path", NULL, NULL },
    { "data.path gone.bin", "", "text", "data.path", NULL, NULL },
    { "data.path gone.idx", "", "text", "data.path", NULL, NULL },
    { "data.path both", "", "text", "data.path", NULL, NULL },
    { "data.path x.npy", "", "govreport", "data.path", NULL, NULL },
    { "data.path .npy", "", "text", "data.path", NULL, NULL },
    { "data.path x.np", "", "text", "data.path", NULL, NULL },
};

static void is_settled(size_t i)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    char       words[200], from[64], *argv[16], *rest = words;
    int        n = 0;
    tm_status  st = TM_OK;
    snprintf(words, sizeof words, "%s", mixes[i].words);
    for (char *word; *words && (word = strsep(&rest, " ")); n++) {
        argv[n] = calloc(1, 80);
        snprintf(argv[n], 80, "%s%s", n % 2 ? "" : "--", word);
    }
    if (*mixes[i].file) st = tm_config_load_file(config, test_file_write(".", "keys.yaml", mixes[i].file), &err);
    if (st == TM_OK) st = tm_config_apply_arguments(config, n, argv, &err);
    if (st == TM_OK) st = tm_config_finish(config, &err);
    if ((st != TM_OK) != (mixes[i].refused != NULL) || (st != TM_OK && !strstr(err.text, mixes[i].refused)))
        fail_msg("%s, %s: '%s'", mixes[i].words, mixes[i].file, err.text);
    if (st == TM_OK) {
        const char *given = strstr(mixes[i].words, "data.source") ? "command line"
                            : strstr(mixes[i].file, "source")     ? "./keys.yaml:1"
                                                                  : "default";
        snprintf(from, sizeof from, "derived from %s (", mixes[i].from ? mixes[i].from : "");
        assert_string_equal(tm_config_text(config, "data.source"), mixes[i].source);
        const char *place = tm_config_place(config, "data.source"), *notes = tm_config_notes(config);
        assert_true(mixes[i].from ? strstr(place, from) != NULL : strcmp(place, given) == 0);
        assert_true((strstr(notes, "ignored: data.path") || strstr(notes, "source counts")) == (mixes[i].note != NULL));
        assert_true(!mixes[i].note || strstr(notes, mixes[i].note));
    }
    while (n > 0) free(argv[--n]);
    tm_config_destroy(config);
}

TEST(sources_are_chosen_by_the_rule)
{
    test_folder_enter();
    for (size_t i = 0; i < 3; i++) test_file_write(".", (const char *[]){ "set.idx", "set.bin", "both.idx" }[i], "");
    test_file_write(".", "both", "a text");
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) is_settled(i);
    test_folder_leave();
}

/* Rows for fine-tuning are read with the tokenizer of the model, others are not. */
TEST(rows_have_the_tokenizer_of_the_model)
{
    static const char *const read_by[][2] = { { "sft", "assets" }, { "preference", "assets" }, { "text", "byte" } };
    for (size_t i = 0; i < sizeof read_by / sizeof read_by[0]; i++) {
        tm_config *config = test_full_config();
        char       words[128];
        snprintf(words, sizeof words, "--data.source %s --data.path docs --model.hf_assets_path assets", read_by[i][0]);
        test_apply_words(config, words);
        assert_ok_of(words, tm_config_finish(config, err));
        assert_string_equal(tm_config_text(config, "data.tokenizer"), read_by[i][1]);
        tm_config_destroy(config);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)

/* SPDX-License-Identifier: Apache-2.0 */
#include "full_config.h"

#include "support/test.h"

#include "data/keys.h"
#include "apps/mlperf/keys.h"
#include "model/keys.h"
#include "record/keys.h"
#include "train/settings/keys.h"

#include <zlib.h>

tm_config *test_full_config(void)
{
    static char *const empty[] = { NULL };
    tm_config         *config = tm_config_create();
    tm_model_configure(config);
    tm_data_configure(config);
    tm_train_configure(config);
    tm_record_configure(config);
    tm_mlperf_configure(config);
    tm_config_use_environment(config, empty);
    return config;
}

enum { WORDS_BYTES = 4096, MOST_WORDS = 200 };

/* Cuts `copy`. */
static int split_words(const char *words, char copy[WORDS_BYTES], char *argv[MOST_WORDS])
{
    int n = 0;
    TM_ASSERT(snprintf(copy, WORDS_BYTES, "%s", words) < WORDS_BYTES);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        TM_ASSERT(n < MOST_WORDS);
        argv[n++] = word;
    }
    return n;
}

tm_status test_read_run(tm_config *config, const char *words, tm_run_options *out, tm_error *err)
{
    char copy[WORDS_BYTES], *argv[MOST_WORDS];
    int  argc = split_words(words, copy, argv);
    TM_TRY(tm_config_apply_preset(config, argv[0], err));
    TM_TRY(tm_config_apply_arguments(config, argc - 1, argv + 1, err));
    TM_TRY(tm_config_finish(config, err));
    return tm_run_options_read(config, out, err);
}

tm_config *test_run_of(const char *words, tm_run_options *out)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    if (test_read_run(config, words, out, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    return config;
}

void test_apply_words(tm_config *config, const char *words)
{
    char      copy[WORDS_BYTES], *argv[MOST_WORDS];
    tm_error  err = { 0 };
    int       argc = split_words(words, copy, argv);
    tm_status st = tm_config_apply_arguments(config, argc, argv, &err);
    if (st != TM_OK) fprintf(stderr, "%s: %s\n", words, err.text);
    TM_ASSERT(st == TM_OK);
}

const char *test_file_write(const char *folder, const char *name, const char *text)
{
    static char paths[8][1024];
    static int  turn;
    char       *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    TM_ASSERT(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

void test_file_pack(const char *path, const char *text)
{
    gzFile f = gzopen(path, "wb");
    TM_ASSERT(f && gzwrite(f, text, (unsigned)strlen(text)) == (int)strlen(text) && gzclose(f) == Z_OK);
}

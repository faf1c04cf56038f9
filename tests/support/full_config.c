/* SPDX-License-Identifier: Apache-2.0 */
#include "full_config.h"

#include "data/keys.h"
#include "mlperf/keys.h"
#include "model/keys.h"
#include "record/keys.h"
#include "train/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void test_apply_words(tm_config *config, const char *words)
{
    char     copy[2048], *argv[96];
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/launched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

void launched_begin(char path[PATH_MAX])
{
    strcpy(path, "/tmp/trainmark-launched-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("STANDIN_GPU_LAUNCHED", path, 1);
}

static bool has_line(FILE *file, const char *wanted)
{
    char line[MODULE_LINE];
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (strcmp(line, wanted) == 0) return true;
    return false;
}

static bool is_wanted(const char *line, const char *maker, const char *texts)
{
    char of[8], text[40], word[44];
    if (sscanf(line, "%7s %39s", of, text) != 2 || strcmp(of, maker) != 0) return false;
    snprintf(word, sizeof word, " %s ", text);
    return !texts || strstr(texts, word) != NULL;
}

int launched_all(const char *maker, const char *texts, const char *path)
{
    FILE *list = fopen(MODULE_LIST, "r"), *launched = fopen(path, "r");
    char  line[MODULE_LINE];
    int   right = 0, missing = 0;
    if (!list || !launched) fail_msg("no %s, or nothing was launched", MODULE_LIST);
    while (fgets(line, sizeof line, list)) {
        if (!is_wanted(line, maker, texts)) continue;
        bool was = has_line(launched, line);
        right += was;
        missing += !was;
        if (!was) print_error("not launched: %s", line);
    }
    fclose(list), fclose(launched);
    unlink(path);
    assert_true(right > 0);
    assert_int_equal(missing, 0);
    return right;
}

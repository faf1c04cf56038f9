/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/trees.h - made-up machines as trees of files below `machine_root`. */
#ifndef TM_TESTS_CHECK_TREES_H
#define TM_TESTS_CHECK_TREES_H

#include "../support/folder.h"
#include "base/file.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char machine_root[512];

/* The path of a file whose folder is there from now on. */
static void tree_path(const char *path, char out[1024])
{
    static char last[1024]; /* files of a folder come one after the other */
    char        folder[1024];
    snprintf(out, 1024, "%s%s", machine_root, path);
    snprintf(folder, sizeof folder, "%s", out);
    *strrchr(folder, '/') = '\0';
    if (strcmp(folder, last) == 0 && access(folder, F_OK) == 0) return;
    assert_int_equal(tm_folder_make(folder, NULL), TM_OK);
    snprintf(last, sizeof last, "%s", folder);
}

static void put_bytes(const char *path, const void *bytes, size_t n)
{
    char full[1024];
    tree_path(path, full);
    unlink(full);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* put("FILE %d=CONTENT", n): what stands before the first '='. A path that ends in '/' is an empty folder. */
static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    char    entry[4096], full[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(entry, sizeof entry, format, args);
    va_end(args);
    assert_true(n > 0 && n < (int)sizeof entry);
    char *content = strchr(entry, '='), *arrow = strstr(entry, "->");
    if (arrow && (!content || arrow < content)) {
        *arrow = '\0';
        tree_path(entry, full);
        unlink(full);
        assert_int_equal(symlink(arrow + 2, full), 0);
    } else if (content) {
        *content = '\0';
        put_bytes(entry, content + 1, strlen(content + 1));
    } else {
        assert_true(entry[n - 1] == '/');
        entry[n - 1] = '\0';
        tree_path(entry, full);
        assert_int_equal(tm_folder_make(full, NULL), TM_OK);
    }
}

#endif

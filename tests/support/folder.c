/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "support/test.h"

#include "base/file.h"
#include "base/program.h"

#include <ftw.h>

char *test_tree_make(void)
{
    const char *base = getenv("TMPDIR");
    char        name[512];
    snprintf(name, sizeof name, "%s/trainmark-test-XXXXXX", base && *base ? base : "/tmp");
    TM_ASSERT(mkdtemp(name));
    return strdup(name);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void test_tree_remove(char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

void test_put(const char *root, const char *path, const char *content)
{
    char     name[2048];
    tm_error err = { 0 };
    TM_ASSERT((size_t)snprintf(name, sizeof name, "%s/%s", root, path) < sizeof name);
    char *last = strrchr(name, '/');
    *last = '\0';
    TM_ASSERT(tm_folder_make(name, &err) == TM_OK);
    *last = '/';
    FILE *file = fopen(name, "w");
    TM_ASSERT(file && fputs(content, file) >= 0 && fclose(file) == 0);
}

static char *own, *outside; /* where the test was before it entered its own */

const char *test_folder(void)
{
    if (!own) own = test_tree_make();
    return own;
}

static const char *in(const char *folder, const char *name)
{
    static char     path[8][TM_PROGRAM_PATH];
    static unsigned turn;
    turn = (turn + 1) % 8;
    TM_ASSERT((size_t)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name) < sizeof path[turn]);
    return path[turn];
}

const char *test_in_folder(const char *name)
{
    return in(test_folder(), name);
}

const char *test_built(const char *name)
{
    char folder[TM_PROGRAM_PATH];
    TM_ASSERT(tm_program_path(folder, NULL) == TM_OK);
    for (int i = 0; i < 2; i++) *strrchr(folder, '/') = '\0';
    return in(folder, name);
}

void test_folder_enter(void)
{
    outside = getcwd(NULL, 0);
    TM_ASSERT(outside && chdir(test_folder()) == 0);
}

void test_folder_leave(void)
{
    TM_ASSERT(!outside || chdir(outside) == 0);
    free(outside);
    outside = NULL;
}

void test_folder_remove(void)
{
    test_folder_leave();
    if (own) test_tree_remove(own);
    own = NULL;
}

int test_folder_teardown(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

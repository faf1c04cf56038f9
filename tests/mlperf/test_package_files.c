/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the folders of a package, and all that its check finds of names, sizes, links and depths. */
#include "support/folder.h"

#include "base/arena.h"
#include "base/file.h"
#include "mlperf/package_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static void file_of(const char *name, off_t bytes)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder(name), "x", 1, &err), TM_OK);
    if (bytes > 1) assert_int_equal(truncate(test_in_folder(name), bytes), 0);
}

static char *root_of(void)
{
    const char *inside = test_in_folder("x");
    char        path[512];
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(inside, '/') - inside), inside);
    return realpath(path, NULL);
}

TEST(folders_are_listed)
{
    tm_arena *arena = tm_arena_create();
    size_t    n = 7;
    char      wanted[600], *root = root_of();
    file_of("b", 1);
    file_of("a", 5);
    assert_int_equal(mkdir(test_in_folder("c"), 0755), 0);
    assert_int_equal(symlink("a", test_in_folder("d")), 0);
    assert_int_equal(symlink("c", test_in_folder("e")), 0);
    assert_int_equal(symlink("nowhere", test_in_folder("f")), 0);
    assert_int_equal(symlink("/", test_in_folder("g")), 0);
    assert_int_equal(mkfifo(test_in_folder("h"), 0600), 0);
    static const struct {
        const char *name, *target; /* NULL: its own path */
        entry_kind  kind;
        bool        link;
    } rows[] = { { "a", "a", ENTRY_FILE, false },   { "b", "b", ENTRY_FILE, false },  { "c", "c", ENTRY_FOLDER, false },
                 { "d", "a", ENTRY_FILE, true },    { "e", "c", ENTRY_FOLDER, true }, { "f", "f", ENTRY_BROKEN, true },
                 { "g", "g", ENTRY_OUTSIDE, true }, { "h", "h", ENTRY_OTHER, false } };
    package_entry *entries = package_list(root, root, arena, &n);
    assert_non_null(entries);
    assert_int_equal(n, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        snprintf(wanted, sizeof wanted, "%s/%s", root, rows[i].target);
        assert_string_equal(entries[i].name, rows[i].name);
        assert_string_equal(entries[i].path, wanted);
        assert_int_equal(entries[i].kind, rows[i].kind);
        assert_int_equal(entries[i].link, rows[i].link);
    }
    assert_true(entries[0].bytes == 5 && entries[1].bytes == 1 && entries[3].bytes == 5);
    snprintf(wanted, sizeof wanted, "%s/none", root);
    assert_int_equal(package_look(root, wanted, "none", arena).kind, ENTRY_BROKEN);
    assert_false(package_look(root, wanted, "none", arena).link);
    assert_null(package_list(root, wanted, arena, &n));
    assert_int_equal(n, 0);
    snprintf(wanted, sizeof wanted, "%s/c", root);
    assert_non_null(package_list(root, wanted, arena, &n)); /* an empty one is no failure */
    assert_int_equal(n, 0);
    free(root);
    tm_arena_destroy(arena);
    test_folder_remove();
}

TEST(all_that_is_wrong_is_found)
{
    static const char *const wanted[] = {
        ".hidden: the name begins with '.'",
        "a file: the name has a space",
        "deep/.x y: the name begins with '.'",
        "deep/.x y: the name has a space",
        "deep/out: a link that leads out of the package",
        "large: 52428801 bytes, more than 50 MiB",
        "lost: a link that leads nowhere",
    };
    tm_arena *arena = tm_arena_create();
    tm_notes  errors = { 0 };
    char     *root = root_of();
    file_of("fine", 1);
    file_of(".hidden", 1);
    file_of("a file", 1);
    file_of("just", 50 << 20);
    file_of("large", (50 << 20) + 1);
    assert_int_equal(mkdir(test_in_folder("deep"), 0755), 0);
    file_of("deep/.x y", 1);
    assert_int_equal(symlink("/usr", test_in_folder("deep/out")), 0);
    assert_int_equal(symlink("gone", test_in_folder("lost")), 0);
    assert_int_equal(symlink("deep", test_in_folder("twice")), 0); /* what a link leads to is looked at once */
    package_check_repository(root, PACKAGE_ALL, &errors, arena);
    for (size_t i = 0; i < errors.n && i < sizeof wanted / sizeof *wanted; i++)
        assert_string_equal(errors.items[i], wanted[i]);
    assert_int_equal(errors.n, sizeof wanted / sizeof *wanted);
    /* Ten entries are looked at; where fewer may be, the first of them. */
    static const struct {
        size_t      most, found;
        const char *from;
    } limits[] = { { 10, 7, NULL }, { 9, 8, "twice" }, { 8, 7, "lost" }, { 4, 5, "deep/out" }, { 0, 1, ".hidden" } };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char said[120];
        errors = (tm_notes){ 0 };
        package_check_repository(root, limits[i].most, &errors, arena);
        snprintf(said, sizeof said, "too many files: from %s on they were not checked", limits[i].from);
        assert_int_equal(errors.n, limits[i].found);
        assert_true((strcmp(errors.items[errors.n - 1], said) == 0) == (limits[i].from != NULL));
    }
    errors = (tm_notes){ 0 };
    package_check_repository("/no/such/folder", PACKAGE_ALL, &errors, arena);
    assert_int_equal(errors.n, 1);
    assert_non_null(strstr(errors.items[0], ".: cannot be read, or has more than "));
    free(root);
    tm_arena_destroy(arena);
    test_folder_remove();
}

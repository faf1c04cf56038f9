/* SPDX-License-Identifier: Apache-2.0 */
/* Files below another root: links and ".." stay inside, with openat2 and without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[512];

static const char *at(const char *path)
{
    static char full[1024];
    snprintf(full, sizeof full, "%s%s", root, path);
    return full;
}

static void put(const char *path, const char *content)
{
    FILE *f = fopen(at(path), "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
}

static void put_link(const char *path, const char *target)
{
    assert_int_equal(symlink(target, at(path)), 0);
}

/* root/ is inside; the file beside it must never be seen. */
static int make_tree(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s", test_in_folder("outer/root"));
    assert_int_equal(tm_folder_make(at("/a/b/c"), NULL), TM_OK);
    assert_int_equal(tm_folder_make(at("/etc"), NULL), TM_OK);
    put("/../secret", "outside\n");
    put("/etc/secret", "inside\n");
    put("/a/b/file", "file\n");
    put_link("/a/up", "../../../../../../etc/secret");
    put_link("/a/absolute", "/etc/secret");
    put_link("/a/folder", "/a/b");
    put_link("/a/chain1", "chain2");
    put_link("/a/chain2", "/a/folder/../up");
    put_link("/a/loop", "loop");
    put_link("/a/ring1", "/a/ring2");
    put_link("/a/ring2", "ring1");
    put_link("/a/nowhere", "/x/y");
    put_link("/a/beside", "../../secret");
    put_link("/a/slashes", "//a///b/./file");
    put_link("/a/self", ".");
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

static const struct {
    const char *path, *content; /* NULL: cannot be read */
    int         cause;
} rows[] = {
    { "/a/b/file", "file", 0 },
    { "/a/up", "inside", 0 },
    { "/a/absolute", "inside", 0 },
    { "/a/folder/file", "file", 0 },
    { "/a/folder/../absolute", "inside", 0 }, /* ".." of where the link leads */
    { "/a/chain1", "inside", 0 },
    { "/../../../etc/secret", "inside", 0 },
    { "/a/b/c/../../../../etc/secret", "inside", 0 },
    { "/../secret", NULL, ENOENT },
    { "/a/beside", NULL, ENOENT },
    { "/a/slashes", "file", 0 },
    { "/a/self/self/self/b/file", "file", 0 },
    { "/a/loop", NULL, ELOOP },
    { "/a/ring1", NULL, ELOOP },
    { "/a/nowhere", NULL, ENOENT },
    { "/a/b", NULL, EISDIR },
    { "/a/folder", NULL, EISDIR },
    { "/", NULL, EISDIR },
    { "/a/b/file/", NULL, ENOTDIR },
    { "/a/b/file/..", NULL, ENOTDIR },
    { "/a/b/file/x", NULL, ENOTDIR },
    { "/none/x", NULL, ENOENT },
};

static void check_row(size_t i, int fd, int cause, const char *way)
{
    char    text[64] = "";
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0 && n < 0) cause = errno;
    if (fd >= 0) close(fd);
    text[strcspn(text, "\n")] = '\0';
    if (rows[i].content ? n < 0 || strcmp(text, rows[i].content) != 0 : n >= 0 || cause != rows[i].cause)
        fail_msg("%s, %s: '%s', %s", way, rows[i].path, text, n < 0 ? strerror(cause) : "read");
}

static void links_stay_inside(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int fd = tm_root_open(root, rows[i].path, O_RDONLY);
        check_row(i, fd, errno, "openat2");
        fd = tm_root_open_by_hand(root, rows[i].path, O_RDONLY);
        check_row(i, fd, errno, "by hand");
    }
}

static void whole_files(void **state)
{
    (void)state;
    tm_text text = { 0 };
    char    line[8];
    put("/long", "0123456789 \n");
    assert_true(tm_root_read(root, "/a/absolute", 100, &text));
    assert_string_equal(text.data, "inside\n");
    assert_false(tm_root_read(root, "/long", 5, &text));
    assert_int_equal(errno, EFBIG);
    assert_true(tm_root_read_line(root, "/long", line, sizeof line));
    assert_string_equal(line, "0123456");
    put("/one", "1");
    assert_true(tm_root_read_line(root, "/one", line, sizeof line));
    assert_string_equal(line, "1");
    errno = 0;
    assert_false(tm_root_read_line(root, "/a", line, sizeof line));
    assert_int_equal(errno, EISDIR);
    assert_string_equal(line, "");
    assert_int_equal(mkfifo(at("/fifo"), 0666), 0);
    assert_false(tm_root_read_line(root, "/fifo", line, sizeof line)); /* at once */
    assert_int_equal(errno, EINVAL);
    assert_true(tm_root_exists(root, "/a/up"));
    assert_false(tm_root_exists(root, "/a/beside"));
    char target[64];
    tm_root_link(root, "/a/folder", target, sizeof target);
    assert_string_equal(target, "/a/b");
    tm_root_link(root, "/a/b/file", target, sizeof target);
    assert_string_equal(target, "");
    assert_true(tm_root_write(root, "/a/absolute", "new"));
    assert_true(tm_root_read_line(root, "/etc/secret", line, sizeof line));
    assert_string_equal(line, "new");
    assert_false(tm_root_write(root, "/a/beside", "x")); /* nothing is made */
    assert_false(tm_root_exists(root, "/secret"));
    tm_text_fini(&text);
}

static void lists(void **state)
{
    (void)state;
    size_t    n;
    tm_arena *arena = tm_arena_create();
    put("/a/b/cpu10", "");
    put("/a/b/cpu9", "");
    const char **names = tm_root_list(root, "/a/folder", 100, arena, &n);
    assert_int_equal(n, 4);
    assert_string_equal(names[0], "c");
    assert_string_equal(names[1], "cpu9");
    assert_string_equal(names[2], "cpu10");
    assert_non_null(tm_root_list(root, "/a/b", 2, arena, &n));
    assert_int_equal(n, 2);
    assert_null(tm_root_list(root, "/a/b/file", 100, arena, &n));
    assert_int_equal(n, 0);
    assert_non_null(tm_root_list("", "/proc/self", 1000, arena, &n));
    assert_true(n > 5);
    tm_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_stay_inside, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(whole_files, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(lists, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Files below another root: links and ".." stay inside, with openat2 and without it. */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

TEST(links_stay_inside)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int fd = tm_root_open(root, rows[i].path, O_RDONLY);
        check_row(i, fd, errno, "openat2");
        fd = tm_root_open_by_hand(root, rows[i].path, O_RDONLY);
        check_row(i, fd, errno, "by hand");
    }
}

/* Both ways of opening: the same file, or the same cause. */
static void open_alike(const char *path, int flags, int cause)
{
    int by_system = tm_root_open(root, path, flags), why = errno;
    int by_hand = tm_root_open_by_hand(root, path, flags), why_by_hand = errno;
    if (cause == 0 ? by_system < 0 || by_hand < 0 : why != cause || why_by_hand != cause)
        fail_msg("%.40s: openat2 %d (%s), by hand %d (%s)", path, by_system, strerror(why), by_hand,
                 strerror(why_by_hand));
    struct stat a, b;
    if (cause == 0)
        assert_true(fstat(by_system, &a) == 0 && fstat(by_hand, &b) == 0 && a.st_ino == b.st_ino &&
                    a.st_dev == b.st_dev);
    if (by_system >= 0) close(by_system);
    if (by_hand >= 0) close(by_hand);
}

/* Of a link itself, of folders, below a root that is none, and a target that makes the path too long. */
TEST(what_is_opened_is_what_is_asked_for)
{
    struct stat info;
    open_alike("/a/absolute", O_PATH | O_NOFOLLOW, 0);
    open_alike("/a/folder/../up", O_PATH | O_NOFOLLOW, 0);
    int fd = tm_root_open_by_hand(root, "/a/absolute", O_PATH | O_NOFOLLOW);
    assert_true(fd >= 0 && fstat(fd, &info) == 0 && S_ISLNK(info.st_mode));
    close(fd);
    open_alike("/a/absolute", O_RDONLY | O_NOFOLLOW, ELOOP);
    open_alike("/a/self/b", O_RDONLY | O_DIRECTORY, 0);
    open_alike("/a/b/file", O_RDONLY | O_DIRECTORY, ENOTDIR);
    open_alike("/a/b/", O_RDONLY, 0);
    open_alike("/a/b/.", O_RDONLY, 0);
    open_alike("/a/b/c/..", O_RDONLY, 0);
    open_alike("/..", O_RDONLY, 0);
    open_alike("/a/b/file/.", O_RDONLY, ENOTDIR);
    open_alike("/a/folder/", O_RDONLY, 0);
    enum { TARGET = 1000, ROOM = 4096 };
    char target[TARGET + 1], path[ROOM] = "/long";
    for (int i = 0; i < TARGET; i++) target[i] = i % 2 ? '.' : '/';
    target[TARGET] = '\0';
    put_link("/long", target);
    while (strlen(path) + TARGET + 2 < ROOM + strlen("/long")) strcat(path, "/.");
    open_alike(path, O_RDONLY, 0);
    strcat(path, "/.");
    assert_int_equal(tm_root_open_by_hand(root, path, O_RDONLY), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(tm_root_open_by_hand(at("/none"), "/a", O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(tm_root_open(at("/a/b/file"), "/a", O_RDONLY), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_true(tm_root_exists("", "/proc/self/exe"));
    fd = tm_root_open_by_hand("", "/proc/self/exe", O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
}

TEST_FIXTURE(make_tree, remove_tree)

/* SPDX-License-Identifier: Apache-2.0 */
/* Files below another root: links and ".." stay inside, with openat2 and without it. */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "base/root.h"

#include <errno.h>
#include <fcntl.h>

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

/* Links of links, and paths that are long: where the system gives up. */
TEST(limits_are_those_of_the_system)
{
    enum { LINKS = 40, LONGEST = 4096, DEEPEST = 63 };
    char path[LONGEST + 1];
    put_link("/l0", "etc/secret");
    for (int i = 1; i <= LINKS; i++) {
        char name[16], target[16];
        snprintf(name, sizeof name, "/l%d", i);
        snprintf(target, sizeof target, "l%d", i - 1);
        put_link(name, target);
    }
    open_alike("/l39", O_RDONLY, 0);
    open_alike("/l40", O_RDONLY, ELOOP);
    memset(path, '/', LONGEST);
    strcpy(path + LONGEST - 1 - strlen("a/b/file"), "a/b/file");
    open_alike(path, O_RDONLY, 0);
    memmove(path + 1, path, LONGEST);
    open_alike(path, O_RDONLY, ENAMETOOLONG);
    /* By hand each folder on the way stays open: so many at most, the root among them. */
    path[0] = '\0';
    for (int i = 0; i < DEEPEST; i++) strcat(path, "/d");
    assert_int_equal(tm_folder_make(at(path), NULL), TM_OK);
    strcat(path, "/f");
    put(path, "deep\n");
    open_alike(path, O_RDONLY, 0);
    strcpy(path + strlen(path) - 1, "d/f");
    *strrchr(path, '/') = '\0';
    assert_int_equal(mkdir(at(path), 0777), 0);
    open_alike(path, O_RDONLY, 0);
    strcat(path, "/f");
    put(path, "deeper\n");
    assert_int_equal(tm_root_open_by_hand(root, path, O_RDONLY), -1);
    assert_int_equal(errno, ENAMETOOLONG);
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

static void line_is(const char *path, size_t size, const char *wanted)
{
    char line[64];
    assert_true(tm_root_read_line(root, path, line, size));
    assert_string_equal(line, wanted);
}

static void link_is(const char *path, size_t size, const char *wanted)
{
    char target[64];
    memset(target, 'x', sizeof target);
    tm_root_link(root, path, target, size);
    assert_string_equal(target, wanted);
}

/* Reads a line and the file, and writes it, if it can be; what does not go tells why. */
static void says_why_not(const char *from, const char *path, int no_line, int no_file, int no_write)
{
    char    line[64] = "x";
    tm_text text = { 0 };
    errno = 0;
    assert_int_equal(tm_root_read_line(from, path, line, sizeof line), no_line == 0);
    assert_int_equal(errno, no_line);
    if (no_line) assert_string_equal(line, "");
    assert_int_equal(tm_root_read(from, path, 5, &text), no_file == 0);
    assert_int_equal(errno, no_file);
    assert_int_equal(tm_root_write(from, path, "x"), no_write == 0);
    assert_int_equal(errno, no_write);
    tm_text_fini(&text);
}

TEST(files_are_read_and_written)
{
    tm_text text = { 0 };
    put("/long", "0123456789 \n");
    put("/five", "12345");
    put("/blanks", " \t a b \n\n\t");
    assert_int_equal(mkfifo(at("/fifo"), 0666), 0);
    line_is("/long", 8, "0123456");
    line_is("/blanks", 64, " \t a b");
    line_is("/blanks", 1, "");
    assert_true(tm_root_read(root, "/five", 5, &text));
    assert_string_equal(text.data, "12345");
    text.length = 0;
    assert_true(tm_root_read(root, "/a/absolute", 100, &text));
    assert_string_equal(text.data, "inside\n");
    tm_text_fini(&text);
    says_why_not(root, "/five", 0, 0, 0);
    line_is("/five", 64, "x"); /* what is written replaces what was there */
    says_why_not(root, "/long", 0, EFBIG, 0);
    says_why_not(root, "/none", ENOENT, ENOENT, ENOENT);
    says_why_not(root, "/no/setting", ENOENT, ENOENT, ENOENT);
    says_why_not(root, "/a/beside", ENOENT, ENOENT, ENOENT); /* nothing is made */
    says_why_not(root, "/a/b", EISDIR, EISDIR, EISDIR);
    says_why_not("", "/dev/full", EINVAL, EINVAL, ENOSPC);
    says_why_not(root, "/a/absolute", 0, EFBIG, 0);
    line_is("/etc/secret", 64, "x");
    char line[8];
    assert_false(tm_root_read_line(root, "/fifo", line, sizeof line)); /* at once */
    assert_int_equal(errno, EINVAL);
    assert_true(tm_root_exists(root, "/a/up"));
    assert_false(tm_root_exists(root, "/a/beside") || tm_root_exists(root, "/secret"));
    link_is("/a/up", 16, "../../../../../"); /* what has room */
    link_is("/a/folder", 64, "/a/b");
    link_is("/a/b/file", 64, "");
    link_is("/none", 64, "");
}

/* Where standard input is closed the first file that is opened has its number, 0. */
TEST(a_file_may_have_the_number_0)
{
    size_t    n;
    char      line[16];
    tm_text   text = { 0 };
    tm_arena *arena = tm_arena_create();
    char      file[1024], folder[1024], link[1024];
    int       kept = dup(0);
    strcpy(file, at("/a/b/file"));
    strcpy(folder, at("/a/b"));
    strcpy(link, at("/a/folder"));
    close(0);
    bool        there = tm_root_exists("", file), read = tm_root_read("", file, 100, &text);
    bool        one = tm_root_read_line("", file, line, sizeof line), put_it = tm_root_write("", file, "x");
    const char *name = tm_root_list("", folder, 9, arena, &n) ? "list" : "";
    char        target[64];
    tm_root_link("", link, target, sizeof target);
    int fd = tm_root_open("", file, O_RDONLY);
    close(fd);
    if (kept >= 0) {
        dup2(kept, 0);
        close(kept);
    }
    assert_true(there && read && one && put_it && fd == 0);
    assert_string_equal(text.data, "file\n");
    assert_string_equal(line, "file");
    assert_string_equal(name, "list");
    assert_int_equal(n, 2);
    assert_string_equal(target, "/a/b");
    tm_arena_destroy(arena);
    tm_text_fini(&text);
}

TEST(lists)
{
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

TEST_FIXTURE(make_tree, remove_tree)

/* SPDX-License-Identifier: Apache-2.0 */
/* Writing into a folder that somebody else has prepared: links are replaced or refused, never written through. */
#include "support/folder.h"

#include "support/test.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

static const char treasure[] = "do not overwrite me";

/* A file of the user, and links to it in the places that a run writes. */
static const char *plant(void)
{
    const char *victim = test_in_folder("victim");
    assert_ok(tm_file_write(victim, treasure, sizeof treasure - 1, err));
    return victim;
}

static void expect_content(const char *path, const char *wanted)
{
    tm_text text = { 0 };
    assert_ok(tm_file_read(path, 1 << 20, &text, err));
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
}

static size_t entries(const char *folder)
{
    size_t n = 0;
    DIR   *dir = opendir(folder);
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

TEST_WITH(a_link_is_replaced, NULL, test_folder_teardown)
{
    const char *victim = plant(), *path = test_in_folder("result.json");
    assert_int_equal(symlink(victim, path), 0);
    assert_ok(tm_file_write(path, "new", 3, err));
    assert_false(is_link(path));
    expect_content(path, "new");
    expect_content(victim, treasure);
    assert_int_equal(entries(test_folder()), 2);
}

/* Two drafts of one file do not know of each other, and neither name could be known before. */
TEST_WITH(drafts_have_random_names, NULL, test_folder_teardown)
{
    tm_file_draft a, b;
    const char   *path = test_in_folder("data.bin");
    assert_ok(tm_file_draft_open(path, &a, err));
    assert_ok(tm_file_draft_open(path, &b, err));
    assert_string_not_equal(a.temporary, b.temporary);
    char pid[32];
    snprintf(pid, sizeof pid, ".%ld", (long)getpid());
    assert_null(strstr(a.temporary, pid));
    assert_ok(tm_file_draft_add(&a, "a", 1, err));
    assert_ok(tm_file_draft_add(&b, "b", 1, err));
    assert_false(tm_file_exists(path));
    int fd = -1;
    assert_ok(tm_file_draft_publish(&a, &fd, err));
    assert_int_equal(write(fd, "+", 1), 1); /* lines behind what was published */
    close(fd);
    expect_content(path, "a+");
    tm_file_draft_discard(&a); /* nothing */
    tm_file_draft_discard(&b);
    expect_content(path, "a+");
    assert_int_equal(entries(test_folder()), 1);
}

TEST_WITH(a_failed_write_leaves_nothing, NULL, test_folder_teardown)
{
    tm_error      err = { 0 };
    const char   *path = test_in_folder("big");
    struct rlimit before, small = { 100, 100 };
    static char   bytes[4096];
    assert_int_equal(tm_file_write(path, "old", 3, &err), TM_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tm_status st = tm_file_write(path, bytes, sizeof bytes, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, TM_IO);
    assert_non_null(strstr(err.text, "cannot write '"));
    expect_content(path, "old");
    assert_int_equal(entries(test_folder()), 1);
    err = (tm_error){ 0 };
    assert_int_equal(tm_file_write("/nowhere/at/all", "x", 1, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "cannot create '/nowhere/at/all': directory '/nowhere/at'"));
}

TEST_WITH(lines_are_not_added_through_a_link, NULL, test_folder_teardown)
{
    const char *victim = plant(), *path = test_in_folder("perf.csv");
    int         fd = -1;
    assert_int_equal(symlink(victim, path), 0);
    assert_refused(tm_file_open_append(path, &fd, err), TM_INVALID, "it is a symbolic link");
    expect_content(victim, treasure);
    unlink(path);
    assert_ok(tm_file_open_append(path, &fd, err));
    assert_int_equal(write(fd, "1\n", 2), 2);
    close(fd);
    assert_ok(tm_file_open_append(path, &fd, err));
    assert_int_equal(write(fd, "2\n", 2), 2);
    close(fd);
    expect_content(path, "1\n2\n");
}

/* A second name of a file of somebody else: neither lines nor an owner are written to it. */
TEST_WITH(a_second_name_keeps_its_content, NULL, test_folder_teardown)
{
    const char *victim = plant(), *path = test_in_folder("perf.csv");
    tm_error    err = { 0 };
    int         fd = 0;
    assert_int_equal(link(victim, path), 0);
    assert_int_equal(tm_file_open_append(path, &fd, &err), TM_INVALID);
    assert_int_equal(fd, -1);
    char wanted[400];
    snprintf(wanted, sizeof wanted,
             "cannot add to '%s': it has a second name (a hard link), and what it leads to would change; put a copy in "
             "its place, or remove it",
             path);
    assert_string_equal(err.text, wanted);
    assert_int_equal(tm_file_open_lock(path), -1);
    assert_int_equal(errno, EMLINK);
    expect_content(victim, treasure);
    unlink(victim); /* now it has one */
    fd = tm_file_open_lock(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tm_file_open_append(path, &fd, &err), TM_OK);
    close(fd);
}

/* Whoever puts a pipe where lines go does not stop the program; with a reader it is as good as a file. */
TEST_WITH(lines_go_to_a_pipe_that_is_read, NULL, test_folder_teardown)
{
    const char *path = test_in_folder("fifo");
    int         fd = -1;
    char        read_back[3] = "";
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_refused(tm_file_open_append(path, &fd, err), TM_INVALID, "fifo': it is a pipe that nobody reads");
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_ok(tm_file_open_append(path, &fd, err));
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0); /* waits for a slow one */
    assert_int_equal(write(fd, "1\n", 2), 2);
    assert_int_equal(read(reader, read_back, 2), 2);
    assert_string_equal(read_back, "1\n");
    close(fd);
    close(reader);
}

TEST_WITH(new_files_and_locks_follow_no_link, NULL, test_folder_teardown)
{
    const char *victim = plant(), *link_path = test_in_folder("link"), *away = test_in_folder("away");
    assert_int_equal(symlink(victim, link_path), 0);
    assert_int_equal(tm_file_open_new(link_path), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(tm_file_open_lock(link_path), -1);
    assert_int_equal(errno, ELOOP);
    unlink(link_path);
    assert_int_equal(symlink(test_in_folder("made"), link_path), 0); /* to nothing */
    assert_int_equal(tm_file_open_lock(link_path), -1);
    assert_false(tm_file_exists(test_in_folder("made")));
    assert_int_equal(mkdir(away, 0777), 0);
    assert_int_equal(symlink(away, test_in_folder("folder")), 0);
    assert_int_equal(tm_file_open_new(test_in_folder("folder/file")), -1);
    assert_int_equal(entries(away), 0);
    int fd = tm_file_open_new(test_in_folder("away/file"));
    assert_true(fd >= 0);
    close(fd);
    int nameless = tm_file_open_nameless(away);
    assert_true(nameless >= 0);
    assert_int_equal(entries(away), 1);
    struct stat info;
    assert_int_equal(fstat(nameless, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    close(nameless);
}

/* What Git LFS leaves in place of a file is no content. */
TEST_WITH(a_pointer_of_git_lfs_is_named, NULL, test_folder_teardown)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                                  "size 12345\n";
    tm_text           text = { 0 };
    tm_error          err = { 0 };
    char              path[300];
    snprintf(path, sizeof path, "%s", test_in_folder("model.safetensors"));
    assert_int_equal(tm_file_write(path, pointer, sizeof pointer - 1, &err), TM_OK);
    assert_int_equal(tm_file_read(path, 1000, &text, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "model.safetensors' is a pointer of Git LFS"));
    assert_non_null(strstr(err.text, "git lfs pull"));
    tm_text_fini(&text);
}

/* What a killed process left of a file is removed by whoever writes it next: of this name, unless somebody has it
 * locked, and nothing that only looks like it. */
TEST_WITH(a_draft_of_a_process_that_is_gone_is_removed, NULL, test_folder_teardown)
{
    static const char *const stays[] = { "other.json.tmp.0123456789abcdef",
                                         "result.json.tmp.0123456789abcde",
                                         "result.json.tmp.0123456789abcdef0",
                                         "result.json.tmp.0123456789abcdeF",
                                         "result.json.tmp.1234",
                                         "xresult.json.tmp.0123456789abcdef" };
    enum { STAYS = sizeof stays / sizeof *stays };
    tm_file_draft live;
    char          left[400], held[400], folder[400], path[300];
    snprintf(path, sizeof path, "%s", test_in_folder("result.json"));
    snprintf(left, sizeof left, "%s.tmp.0123456789abcdef", path);
    snprintf(held, sizeof held, "%s.tmp.fedcba9876543210", path);
    snprintf(folder, sizeof folder, "%s.tmp.00000000000000ff", path);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < STAYS; i++) close(creat(test_in_folder(stays[i]), 0666));
    close(creat(left, 0666));
    int lock = open(held, O_RDWR | O_CREAT, 0666);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_ok(tm_file_draft_open(path, &live, err));
    assert_false(tm_file_exists(left));
    assert_ok(tm_file_write(path, "new", 3, err)); /* beside the draft, which is of a living process */
    assert_ok(tm_file_draft_add(&live, "newer", 5, err));
    assert_ok(tm_file_draft_publish(&live, NULL, err));
    expect_content(path, "newer");
    assert_true(tm_file_exists(held));
    assert_true(tm_file_exists(folder));
    for (int i = 0; i < STAYS; i++) assert_true(tm_file_exists(test_in_folder(stays[i])));
    close(lock);
    assert_ok(tm_file_write(path, "new", 3, err));
    assert_false(tm_file_exists(held));
}

static int begin(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    return 0;
}

/* A file, a new one in a folder, one beside the program; in no folder that there is. */
TEST_WITH(a_place_for_a_file_is_looked_at, NULL, test_folder_teardown)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_check_writable(test_in_folder("new"), "--out", &err), TM_OK);
    assert_int_equal(tm_file_check_writable("new", "--out", &err), TM_OK);
    assert_int_equal(tm_file_check_writable("/dev/null", "--out", &err), TM_OK);
    assert_int_not_equal(tm_file_check_writable("/nowhere/new", "--out", &err), TM_OK);
    assert_non_null(strstr(err.text, "cannot write to '/nowhere' (--out /nowhere/new): No such file"));
}

TEST_FIXTURE(begin, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* One process at a time in a folder, and folders that outlive nobody. */
#include "support/folder.h"

#include "support/test.h"

#include "base/file.h"
#include "base/lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void expect_text(const tm_error *err, const char *words)
{
    if (!strstr(err->text, words)) fail_msg("'%s' lacks '%s'", err->text, words);
}

/* A child that holds the lock until it is killed. */
static pid_t start_owner(const char *folder, const char *host, bool network)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tm_folder_lock lock;
        tm_status      st = tm_folder_lock_take_as(folder, host, network, &lock, NULL);
        if (write(ready[1], &(char){ st == TM_OK }, 1) == 1) pause();
        _exit(1);
    }
    char good = 0;
    assert_int_equal(read(ready[0], &good, 1), 1);
    assert_true(good);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

TEST_WITH(a_folder_has_one_owner, NULL, test_folder_teardown)
{
    tm_folder_lock lock;
    tm_error       err = { 0 };
    char           words[64];
    pid_t          owner = start_owner(test_folder(), "box", false);
    assert_int_equal(tm_folder_lock_take_as(test_folder(), "box", false, &lock, &err), TM_INVALID);
    snprintf(words, sizeof words, "is in use by process %ld on host box since 20", (long)owner);
    expect_text(&err, words);
    expect_text(&err, "--out DIR");
    end(owner); /* killed: its name is there, its lock is not */
    err = (tm_error){ 0 };
    if (tm_folder_lock_take_as(test_folder(), "box", false, &lock, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_folder_lock_check(&lock, &err), TM_OK);
    tm_folder_lock_release(&lock);
    assert_false(tm_file_exists(test_in_folder("run.lock")));
    tm_folder_lock_release(&lock); /* nothing */
}

/* There, locks may hold on one host only: a name of another one that was never taken away counts. */
TEST_WITH(on_a_network_the_name_counts_too, NULL, test_folder_teardown)
{
    tm_folder_lock lock;
    tm_error       err = { 0 };
    end(start_owner(test_folder(), "elsewhere", true));
    assert_int_equal(tm_folder_lock_take_as(test_folder(), "else", true, &lock, &err), TM_INVALID);
    expect_text(&err, "on host elsewhere");
    expect_text(&err, "run.lock'");
    assert_int_equal(tm_folder_lock_take_as(test_folder(), "elsewhere", true, &lock, &err), TM_OK); /* its own */
    tm_folder_lock_release(&lock);
    assert_int_equal(tm_folder_lock_take_as(test_folder(), "else", true, &lock, &err), TM_OK); /* ended well */
    tm_folder_lock_release(&lock);
    end(start_owner(test_folder(), "elsewhere", false));
    assert_int_equal(tm_folder_lock_take_as(test_folder(), "else", false, &lock, &err),
                     TM_OK); /* a disk of this host */
    tm_folder_lock_release(&lock);
}

/* On a file system with locks there is nothing to say. */
TEST_WITH(locks_are_taken_without_a_word, NULL, test_folder_teardown)
{
    tm_folder_lock lock;
    tm_error       err = { 0 };
    tm_text        owner = { 0 };
    char           wanted[64];
    fflush(stderr);
    int kept = dup(STDERR_FILENO), file = open(test_in_folder("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    tm_status st = tm_folder_lock_take_as(test_folder(), "box", false, &lock, &err);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    assert_int_equal(st, TM_OK);
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    close(file);
    snprintf(wanted, sizeof wanted, "process %ld on host box since 20", (long)getpid());
    assert_int_equal(tm_file_read(test_in_folder("run.lock"), 1000, &owner, &err), TM_OK);
    assert_memory_equal(owner.data, wanted, strlen(wanted));
    assert_int_equal(owner.length, strlen(wanted) + strlen("26-11-23T07:48:49Z\n"));
    tm_text_fini(&owner);
    tm_folder_lock_release(&lock);
    char folder[4096 + 7];
    memset(folder, 'x', sizeof folder);
    folder[sizeof folder - 1] = '\0';
    assert_int_equal(tm_folder_lock_take_as(folder, "box", false, &lock, &err), TM_IO);
    expect_text(&err, "cannot lock 'xxx");
    err = (tm_error){ 0 };
    char longer[4096 + 8];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(tm_folder_lock_take_as(longer, "box", false, &lock, &err), TM_INVALID);
    expect_text(&err, "path is too long: 'xxx");
    err = (tm_error){ 0 };
    assert_int_equal(tm_folder_lock_take_as("/nowhere/at/all", "box", false, &lock, &err), TM_IO);
    assert_string_equal(err.text, "cannot lock '/nowhere/at/all' (run.lock): No such file or directory; name another "
                                  "directory with --out");
}

TEST_WITH(a_folder_that_is_removed_is_noticed, NULL, test_folder_teardown)
{
    tm_folder_lock lock;
    const char    *folder = test_in_folder("run");
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_ok(tm_folder_lock_take(folder, &lock, err));
    tm_folder_remove(folder);
    assert_refused(tm_folder_lock_check(&lock, err), TM_IO, "was removed or replaced during the run");
    assert_int_equal(mkdir(folder, 0777), 0); /* another of the same name, as saving a checkpoint makes it */
    assert_int_equal(tm_folder_lock_check(&lock, NULL), TM_IO);
    tm_folder_lock_release(&lock);
}

static size_t scratch_folders(void)
{
    size_t n = 0;
    DIR   *dir = opendir(test_folder());
    for (const struct dirent *d; (d = readdir(dir));) n += strncmp(d->d_name, "tm-ab-", 6) == 0;
    closedir(dir);
    return n;
}

TEST_WITH(what_the_dead_left_is_removed, NULL, test_folder_teardown)
{
    tm_scratch mine;
    int        ready[2];
    assert_int_equal(setenv("TMPDIR", test_folder(), 1), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        tm_scratch theirs;
        char       path[4200];
        if (tm_scratch_make("tm-ab", &theirs, NULL) != TM_OK) _exit(1);
        snprintf(path, sizeof path, "%s/data", theirs.path);
        if (tm_file_write(path, "x", 1, NULL) == TM_OK && symlink("/", strcat(path, ".link")) == 0 &&
            write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &(char){ 0 }, 1), 1);
    assert_int_equal(mkdir(test_in_folder("tm-ab-fresh"), 0777), 0); /* just being made: no lock yet */
    assert_int_equal(mkdir(test_in_folder("tm-abc-other"), 0777), 0);
    assert_ok(tm_scratch_make("tm-ab", &mine, err));
    assert_int_equal(scratch_folders(), 3); /* the living keep theirs */
    tm_scratch_remove(&mine);
    assert_int_equal(scratch_folders(), 2);
    end(child);
    assert_ok(tm_scratch_make("tm-ab", &mine, err));
    assert_int_equal(scratch_folders(), 2); /* mine, and the fresh one */
    tm_scratch_remove(&mine);
    tm_scratch_remove(&mine); /* nothing */
    assert_true(tm_file_exists(test_in_folder("tm-abc-other")));
    close(ready[0]);
    close(ready[1]);
    unsetenv("TMPDIR");
}

/* Older than ten minutes and without a lock: nobody is making it any more. */
TEST_WITH(old_folders_without_a_lock_go, NULL, test_folder_teardown)
{
    static const char *const names[] = { "tm-ab-old", "tm-ab-young" };
    tm_scratch               mine;
    tm_error                 err = { 0 };
    time_t                   now;
    do { /* within one second of the clock */
        now = time(NULL);
        for (int i = 0; i < 2; i++) {
            struct timespec times[2] = { { .tv_sec = now - 601 + i }, { .tv_sec = now - 601 + i } };
            if (!tm_file_exists(test_in_folder(names[i]))) assert_int_equal(mkdir(test_in_folder(names[i]), 0777), 0);
            assert_int_equal(utimensat(AT_FDCWD, test_in_folder(names[i]), times, 0), 0);
        }
        assert_int_equal(tm_scratch_make_in(test_folder(), "tm-ab", &mine, &err), TM_OK);
        tm_scratch_remove(&mine);
    } while (time(NULL) != now);
    assert_false(tm_file_exists(test_in_folder(names[0])));
    assert_true(tm_file_exists(test_in_folder(names[1])));
    assert_int_equal(tm_scratch_make_in("/nowhere", "tm-ab", &mine, &err), TM_IO);
    assert_string_equal(err.text, "cannot make a directory in '/nowhere': No such file or directory");
    assert_string_equal(mine.path, "");
    assert_int_equal(mine.lock, -1);
    tm_scratch_remove(&mine); /* nothing */
}

/* Where nobody names a place for temporary files they are in /tmp. */
TEST(folders_for_a_while_are_in_tmp)
{
    static const char prefix[] = "tm-lock-test", place[] = "/tmp/tm-lock-test-";
    char             *kept = getenv("TMPDIR"), was[4096] = "";
    if (kept) snprintf(was, sizeof was, "%s", kept);
    for (int set = 0; set < 2; set++) {
        tm_scratch  mine;
        struct stat info;
        if (set)
            setenv("TMPDIR", "", 1);
        else
            unsetenv("TMPDIR");
        assert_ok(tm_scratch_make(prefix, &mine, err));
        assert_memory_equal(mine.path, place, strlen(place));
        assert_int_equal(strlen(mine.path), strlen(place) + 6);
        assert_true(stat(mine.path, &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & 0777) == 0700);
        tm_scratch_remove(&mine);
        assert_int_equal(mine.lock, -1);
        assert_string_equal(mine.path, "");
    }
    if (kept)
        setenv("TMPDIR", was, 1);
    else
        unsetenv("TMPDIR");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes a file so that it outlives a power cut flushes it before it gets its name, and its folder after that. The
 * calls of the program are watched: this program's own fsync stands before the library's. */
#include "support/folder.h"

#include "base/file.h"
#include "train/checkpoint/io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "support/test.h"

static struct {
    ino_t inode;
    bool  folder, published; /* was the name there by then? */
} calls[8];
static int         n_calls;
static int         signals; /* so many flushes are cut short from now on */
static const char *watched; /* the final name */

int fsync(int fd)
{
    struct stat info;
    if (signals > 0) {
        signals--;
        errno = EINTR;
        return -1;
    }
    if (fstat(fd, &info) == 0 && n_calls < 8) {
        calls[n_calls].inode = info.st_ino;
        calls[n_calls].folder = S_ISDIR(info.st_mode);
        calls[n_calls++].published = watched && access(watched, F_OK) == 0;
    }
    return (int)syscall(SYS_fsync, fd);
}

static ino_t inode_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

TEST(a_file_is_flushed_then_named_then_its_folder_flushed)
{
    watched = test_in_folder("file");
    n_calls = 0;
    assert_ok(tm_file_write(watched, "abc", 3, err));
    assert_int_equal(n_calls, 2);
    assert_true(!calls[0].folder && !calls[0].published && calls[0].inode == inode_of(watched));
    assert_true(calls[1].folder && calls[1].published && calls[1].inode == inode_of(test_folder()));
}

/* tests/train/test_checkpoint_faults.c shows that a save asks for each of them at the right time. */
TEST(a_checkpoint_reaches_the_disk_by_fsync)
{
    const tm_checkpoint_io *io = &tm_checkpoint_system_io;
    const char             *path = test_in_folder("part");
    int                     fd = io->create(io->context, path);
    assert_true(fd >= 0);
    n_calls = 0;
    assert_int_equal(io->sync(io->context, fd), 0);
    assert_int_equal(n_calls, 1);
    assert_true(calls[0].inode == inode_of(path));
    assert_int_equal(io->sync_folder(io->context, test_folder()), 0);
    assert_int_equal(n_calls, 2);
    assert_true(calls[1].inode == inode_of(test_folder()));
    assert_int_equal(io->close(io->context, fd), 0);
}

/* A signal may come in the middle of it: that is no failure of the disk. */
TEST(a_flush_that_a_signal_ends_is_made_again)
{
    const tm_checkpoint_io *io = &tm_checkpoint_system_io;
    for (int n = 1; n <= 3; n++) {
        n_calls = 0;
        signals = n;
        watched = test_in_folder("signalled");
        assert_ok(tm_file_write(watched, "abc", 3, err));
        assert_int_equal(signals, 0);
        assert_int_equal(n_calls, 2); /* that got through */
        int fd = io->create(io->context, test_in_folder("part"));
        signals = n;
        assert_int_equal(io->sync(io->context, fd), 0);
        signals = n;
        assert_int_equal(io->sync_folder(io->context, test_folder()), 0);
        assert_int_equal(io->close(io->context, fd), 0);
        assert_int_equal(unlink(test_in_folder("part")), 0);
    }
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)

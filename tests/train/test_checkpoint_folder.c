/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of checkpoints: paths as long as the system takes them; what is flushed when it is made. */
#include "checkpoint_fixture.h"

#include <errno.h>
#include <limits.h>

/* The test's folder with so many more "/." that "lock" in it has `length` characters. */
static const char *folder_of_length(size_t length)
{
    static char path[PATH_MAX + 64];
    size_t      n = length - strlen("/lock");
    strcpy(path, test_folder());
    if ((n - strlen(path)) % 2) strcat(path, "/");
    while (strlen(path) < n) strcat(path, "/.");
    assert_int_equal(strlen(path), n);
    return path;
}

static void fails_with(int result, int cause)
{
    assert_int_equal(result, -1);
    assert_int_equal(errno, cause);
}

TEST_WITH(paths_are_as_long_as_the_system_takes_them, NULL, test_folder_teardown)
{
    const tm_checkpoint_io *io = &tm_checkpoint_system_io;
    char                    path[PATH_MAX + 64];
    int                     lock = tm_checkpoint_lock(folder_of_length(PATH_MAX - 1), 0);
    assert_true(lock >= 0);
    fails_with(tm_checkpoint_lock(test_folder(), 0), EWOULDBLOCK);
    tm_checkpoint_unlock(lock);
    tm_checkpoint_unlock(-1);
    for (size_t more = 0; more < 12; more++)
        fails_with(tm_checkpoint_lock(folder_of_length(PATH_MAX + more), 0), ENAMETOOLONG);
    snprintf(path, sizeof path, "%s/lock", folder_of_length(PATH_MAX - 1));
    assert_int_equal(io->remove_file(io->context, path), 0);
    assert_false(tm_file_exists(test_in_folder("lock")));
    fails_with(io->remove_file(io->context, path), ENOENT);
    fails_with(io->remove_file(io->context, "no-folder"), ENAMETOOLONG);
    test_put(test_folder(), "there", "");
    assert_int_equal(symlink(test_folder(), test_in_folder("link")), 0);
    fails_with(io->remove_file(io->context, test_in_folder("link/there")), ENOTDIR); /* never through a link */
    assert_true(tm_file_exists(test_in_folder("there")));
    fails_with(io->sync_folder(io->context, test_in_folder("there")), ENOTDIR);
    fails_with(io->sync_folder(io->context, test_in_folder("nowhere")), ENOENT);
    assert_int_equal(io->sync_folder(io->context, test_folder()), 0);
    fails_with(io->open(io->context, test_folder()), EINVAL); /* a file's bytes are read, and nothing else */
    fails_with(io->open(io->context, test_in_folder("nowhere")), ENOENT);
}

/* The directories that were flushed, up to the checkpoint's own. */
static char flushed[2000];

static int note_folder(void *context, const char *path)
{
    size_t n = strlen(flushed);
    (void)context;
    if (!strstr(flushed, "step-"))
        snprintf(flushed + n, sizeof flushed - n, "%s", strstr(path, "step-") ? "step-" : path);
    if (!strstr(flushed, "step-")) strcat(flushed, ";");
    return tm_checkpoint_system_io.sync_folder(NULL, path);
}

/* A power cut must not take a directory that was made, which is a name in the one above it: that one is flushed. */
TEST_WITH(what_a_new_directory_lies_in_is_flushed, NULL, test_folder_teardown)
{
    static const struct {
        const char *folder, *wanted;
        bool        absolute; /* below the test's folder */
    } cases[] = {
        { "saved", ".;step-", false },
        { "saved", "step-", false }, /* it is there */
        { "saved/more/and-more", "saved;saved/more;step-", false },
        { "one/two/three", ".;one;one/two;step-", false },
        { "./here", ".;step-", false },
        { "seven//eight", ".;seven;seven/;step-", false },
        { "five", ";step-", true },
    };
    tm_checkpoint_io io = tm_checkpoint_system_io;
    char             before[PATH_MAX], wanted[600];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_folder()), 0);
    io.sync_folder = note_folder;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *folder = cases[i].absolute ? test_in_folder(cases[i].folder) : cases[i].folder;
        snprintf(wanted, sizeof wanted, "%s%s", cases[i].absolute ? test_folder() : "", cases[i].wanted);
        flushed[0] = '\0';
        assert_ok(save_with(&io, folder, 1, 1, 1, err));
        assert_string_equal(flushed, wanted);
        load_and_expect(folder, 1, 1);
    }
    assert_int_equal(chdir(before), 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of checkpoints: paths as long as the system takes them; what is flushed when it is made; what is said of
 * what cannot be removed. */
#include "support/test.h"
#include "checkpoint_fixture.h"
#include "support/folder.h"
#include "support/whole.h"

#include "base/file.h"
#include "train/checkpoint/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* The folder's name with so many more blanks' worth of "/." that `name` in it has `length` characters. */
static const char *folder_of_length(size_t length, const char *name)
{
    static char path[PATH_MAX + 64];
    size_t      n = length - strlen(name) - 1;
    strcpy(path, test_folder());
    if ((n - strlen(path)) % 2) strcat(path, "/");
    while (strlen(path) < n) strcat(path, "/.");
    assert_int_equal(strlen(path), n);
    return path;
}

TEST_WITH(paths_are_as_long_as_the_system_takes_them, NULL, test_folder_teardown)
{
    char path[PATH_MAX + 64];
    int  lock = tm_checkpoint_lock(folder_of_length(PATH_MAX - 1, "lock"), 0);
    assert_true(lock >= 0);
    errno = 0;
    assert_int_equal(tm_checkpoint_lock(test_folder(), 0), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    tm_checkpoint_unlock(lock);
    tm_checkpoint_unlock(-1);
    for (size_t more = 0; more < 12; more++) {
        errno = 0;
        assert_int_equal(tm_checkpoint_lock(folder_of_length(PATH_MAX + more, "lock"), 0), -1);
        assert_int_equal(errno, ENAMETOOLONG);
    }
    const tm_checkpoint_io *io = &tm_checkpoint_system_io;
    snprintf(path, sizeof path, "%s/lock", folder_of_length(PATH_MAX - 1, "lock"));
    assert_int_equal(io->remove_file(io->context, path), 0);
    assert_false(tm_file_exists(test_in_folder("lock")));
    assert_int_equal(io->remove_file(io->context, path), -1);
    assert_int_equal(errno, ENOENT);
    errno = 0;
    assert_int_equal(io->remove_file(io->context, "no-folder"), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(tm_file_write(test_in_folder("there"), "", 0, NULL), TM_OK); /* never through a link */
    assert_int_equal(symlink(test_folder(), test_in_folder("link")), 0);
    assert_int_equal(io->remove_file(io->context, test_in_folder("link/there")), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_true(tm_file_exists(test_in_folder("there")));
    assert_int_equal(io->sync_folder(io->context, test_in_folder("there")), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(io->sync_folder(io->context, test_in_folder("nowhere")), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(io->sync_folder(io->context, test_folder()), 0);
    assert_int_equal(io->open(io->context, test_folder()), -1); /* a file's bytes are read, and nothing else */
    assert_int_equal(errno, EINVAL);
    assert_int_equal(io->open(io->context, test_in_folder("nowhere")), -1);
    assert_int_equal(errno, ENOENT);
}

/* The directories that were flushed, up to the checkpoint's own. */
static char flushed[2000];

static int note_folder(void *context, const char *path)
{
    size_t n = strlen(flushed);
    (void)context;
    if (!strstr(path, "step-") && !strstr(flushed, "step-"))
        snprintf(flushed + n, sizeof flushed - n, "%s;", path);
    else if (!strstr(flushed, "step-"))
        snprintf(flushed + n, sizeof flushed - n, "step-");
    return tm_checkpoint_system_io.sync_folder(NULL, path);
}

/* A power cut must not take a directory that was made, which is a name in the one above it: that one is flushed. */
TEST_WITH(what_a_new_directory_lies_in_is_flushed, NULL, test_folder_teardown)
{
    static const struct {
        const char *folder, *wanted; /* absolute: "*" stands for the test's folder */
    } cases[] = {
        { "saved", ".;" },
        { "saved", "" }, /* it is there */
        { "saved/more/and-more", "saved;saved/more;" },
        { "one/two/three", ".;one;one/two;" },
        { "./here", ".;" },
        { "*/five/six", "*;*/five;" },
        { "seven//eight", ".;seven;seven/;" },
        { "*/five/seven", "*/five;" },
    };
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_folder()), 0);
    tm_checkpoint_io io = tm_checkpoint_system_io;
    io.sync_folder = note_folder;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture  f = { 0 };
        tm_error err = { 0 };
        tm_text  wanted = { 0 };
        for (const char *c = cases[i].wanted; *c; c++)
            tm_text_printf(&wanted, *c == '*' ? "%s" : "%.1s", *c == '*' ? test_folder() : c);
        tm_text_printf(&wanted, "step-");
        snprintf(f.folder, sizeof f.folder, "%s%s", *cases[i].folder == '*' ? test_folder() : "",
                 cases[i].folder + (*cases[i].folder == '*'));
        set_tensors(&f);
        fill(&f, 1, 1);
        flushed[0] = '\0';
        if (tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, 1, &err) != TM_OK)
            fail_msg("%s", err.text);
        assert_string_equal(flushed, wanted.data);
        load_and_expect(&f, 1, 1);
        tm_text_fini(&wanted);
    }
    assert_int_equal(chdir(before), 0);
}

static int remove_errno;

static int removes_none_of_ranks(void *context, const char *path)
{
    if (!strstr(path, "tensors-")) return tm_checkpoint_system_io.remove_file(context, path);
    errno = remove_errno;
    return -1;
}

static int removes_no_folder(void *context, const char *path)
{
    (void)context, (void)path;
    errno = remove_errno;
    return -1;
}

/* What somebody else has removed is gone, as wanted; what others have put there stays and with it the directory. */
TEST(what_is_not_removed_is_said_or_not)
{
    static const struct {
        bool folder, said;
        int  cause;
    } cases[] = {
        { false, true, EIO },  { false, true, ENOTEMPTY }, { false, false, ENOENT },   { true, true, EIO },
        { true, true, EBUSY }, { true, false, ENOENT },    { true, false, ENOTEMPTY }, { true, false, EEXIST }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_checkpoint_io io = tm_checkpoint_system_io;
        fixture          f = new_fixture();
        tm_error         err = { 0 };
        tm_text          said = { 0 };
        char             path[500], wanted[600] = "";
        if (cases[i].folder)
            io.remove_folder = removes_no_folder;
        else
            io.remove_file = removes_none_of_ranks;
        remove_errno = cases[i].cause;
        save(&f, 1, 1, 0);
        snprintf(path, sizeof path, "%s/step-00000001/tensors-00002.bin", f.folder);
        assert_int_equal(tm_file_write(path, "x", 1, &err), TM_OK);
        fill(&f, 2, 1);
        whole_log_open();
        assert_int_equal(tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, 1, &err), TM_OK);
        whole_log_take(&said);
        whole_log_close();
        if (cases[i].said)
            snprintf(wanted, sizeof wanted, "cannot remove '%s/step-00000001': %s\n", f.folder,
                     strerror(cases[i].cause));
        const char *found = said.data ? strstr(said.data, "cannot remove") : NULL;
        assert_string_equal(found ? found : "", wanted);
        assert_true(exists(&f, "step-00000001"));
        assert_int_equal(exists(&f, "step-00000001/tensors-00002.bin"), !cases[i].folder);
        tm_text_fini(&said);
        clear(f.folder);
    }
}

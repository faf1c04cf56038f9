/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of checkpoints: which names count, in which order; paths as long as the system takes them; what is flushed
 * when it is made. */
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

TEST_WITH(names_count_in_an_order, NULL, test_folder_teardown)
{
    static const char *const others[] = { "lock",
                                          "step-",
                                          "step-1",
                                          "step-0000001",
                                          "step-000000011",
                                          "step-000000000",
                                          "step-a0000001",
                                          "step-:0000001",
                                          "step- 0000001",
                                          "step-9999999999999999999",
                                          "step-00000001.",
                                          "step-00000001.ol",
                                          "step-00000001.old1",
                                          "step--0000001",
                                          "step-+0000001",
                                          "step-00000001.tmp",
                                          "step-00000001.tmp.",
                                          "step-00000001.tmp.-5",
                                          "step-00000001.tmp.5x",
                                          "step-00000001.tmp.x5",
                                          "step-00000001.tmp.:",
                                          "step-00000001.tmp.+5",
                                          "step-00000001.tmp. 5",
                                          "step-00000001.tmq.5",
                                          "stop-00000001",
                                          "step-99999999999999999999",
                                          "step-00000001.tmp.99999999999999999999" };
    static const struct {
        const char        *name;
        int64_t            step;
        tm_checkpoint_kind kind;
        int64_t            process;
    } wanted[] = {
        { "step-123456789", 123456789, TM_CHECKPOINT_FINAL, 0 },
        { "step-00000020", 20, TM_CHECKPOINT_FINAL, 0 },
        { "step-00000003", 3, TM_CHECKPOINT_FINAL, 0 },
        { "step-00000003.old", 3, TM_CHECKPOINT_OLD, 0 },
        { "step-00000003.tmp.7", 3, TM_CHECKPOINT_TEMPORARY, 7 },
        { "step-00000003.tmp.12", 3, TM_CHECKPOINT_TEMPORARY, 12 },
        { "step-00000003.tmp.300", 3, TM_CHECKPOINT_TEMPORARY, 300 },
        { "step-00000000.old", 0, TM_CHECKPOINT_OLD, 0 },
    };
    enum { N = sizeof wanted / sizeof wanted[0] };
    tm_arena            *arena = tm_arena_create();
    tm_checkpoint_entry *items;
    size_t               n = 99;
    tm_error             err = { 0 };
    char                 path[400];
    assert_int_equal(tm_checkpoint_list(test_folder(), arena, &items, &n, &err), TM_OK);
    assert_int_equal(n, 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(tm_file_write(test_in_folder(others[i]), "", 0, &err), TM_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(tm_file_write(test_in_folder(wanted[5 * i % N].name), "", 0, &err), TM_OK);
    assert_int_equal(tm_checkpoint_list(test_folder(), arena, &items, &n, &err), TM_OK);
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++) {
        snprintf(path, sizeof path, "%s/%s", test_folder(), wanted[i].name);
        assert_string_equal(items[i].path, path);
        assert_int_equal(items[i].step, wanted[i].step);
        assert_int_equal(items[i].kind, wanted[i].kind);
        assert_int_equal(items[i].process, wanted[i].process);
    }
    snprintf(path, sizeof path, "cannot read checkpoint directory '%s/none': No such file or directory", test_folder());
    assert_int_equal(tm_checkpoint_list(test_in_folder("none"), arena, &items, &n, &err), TM_INVALID);
    assert_string_equal(err.text, path);
    snprintf(path, sizeof path, "/a/step-00000042.tmp.%ld", (long)getpid());
    assert_string_equal(tm_checkpoint_path(arena, "/a", 42, TM_CHECKPOINT_TEMPORARY), path);
    assert_string_equal(tm_checkpoint_path(arena, "/a", 42, TM_CHECKPOINT_OLD), "/a/step-00000042.old");
    assert_string_equal(tm_checkpoint_path(arena, "/a", 123456789, TM_CHECKPOINT_FINAL), "/a/step-123456789");
    assert_string_equal(tm_checkpoint_file_name(arena, -1, true), "tensors.safetensors");
    assert_string_equal(tm_checkpoint_file_name(arena, -1, false), "tensors.bin");
    assert_string_equal(tm_checkpoint_file_name(arena, 7, false), "tensors-00007.bin");
    assert_string_equal(tm_checkpoint_file_name(arena, 0, true), "tensors-00000.safetensors");
    tm_arena_destroy(arena);
}

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

/* One character more, and no path of a file in it would fit. */
TEST_WITH(a_folder_has_at_most_4000_characters, NULL, test_folder_teardown)
{
    fixture     f = { 0 };
    tm_error    err = { 0 };
    char        wanted[200];
    const char *longest = folder_of_length(4000 + strlen("/lock"), "lock");
    set_tensors(&f);
    fill(&f, 7, 1);
    if (tm_checkpoint_save(longest, &f.state, f.tensors, N_TENSORS, 1, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(tm_file_exists(test_in_folder("step-00000007")));
    longest = folder_of_length(4001 + strlen("/lock"), "lock");
    snprintf(wanted, sizeof wanted, "checkpoint.folder '%.100s' has 4001 characters, 1 to 4000 wanted", longest);
    assert_int_equal(tm_checkpoint_save(longest, &f.state, f.tensors, N_TENSORS, 1, &err), TM_INVALID);
    assert_string_equal(err.text, wanted);
    err = (tm_error){ 0 };
    assert_int_equal(tm_checkpoint_save("", &f.state, f.tensors, N_TENSORS, 1, &err), TM_INVALID);
    assert_string_equal(err.text, "checkpoint.folder '' has 0 characters, 1 to 4000 wanted");
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

static int removes_file(void *context, const char *path)
{
    int failed = tm_checkpoint_system_io.remove_file(context, path);
    if (!failed) errno = EIO; /* which says nothing */
    return failed;
}

/* Files of ranks go, too; what errno is counts only where something failed. */
TEST(files_of_ranks_are_removed)
{
    static const char *const names[] = { "tensors-00000.bin", "tensors-00003.safetensors",
                                         "tensors-123456.safetensors" };
    tm_checkpoint_io         io = tm_checkpoint_system_io;
    fixture                  f = new_fixture();
    tm_error                 err = { 0 };
    tm_text                  said = { 0 };
    char                     path[500];
    io.remove_file = removes_file;
    save(&f, 1, 1, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/step-00000001/%s", f.folder, names[i]);
        assert_int_equal(tm_file_write(path, "x", 1, &err), TM_OK);
    }
    fill(&f, 2, 1);
    whole_log_open();
    assert_int_equal(tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, 1, &err), TM_OK);
    whole_log_take(&said);
    whole_log_close();
    assert_string_equal(said.data ? said.data : "", "");
    assert_false(exists(&f, "step-00000001"));
    tm_text_fini(&said);
    clear(f.folder);
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

static int create_errno;

static int creates_nothing(void *context, const char *path)
{
    (void)context, (void)path;
    errno = create_errno;
    return -1;
}

TEST(every_cause_has_its_cure)
{
    static const char space[] = "; free some space there, keep fewer checkpoints (checkpoint.keep_latest_k) or choose "
                                "another checkpoint.folder";
    static const char limit[] = "; raise the file-size limit (ulimit -f) or choose another checkpoint.folder";
    static const char rights[] = "; choose a checkpoint.folder that can be written";
    const struct {
        int         cause;
        const char *cure;
    } cases[] = { { EIO, "" },        { ENOSPC, space }, { EDQUOT, space }, { EFBIG, limit },
                  { EACCES, rights }, { EPERM, rights }, { EROFS, rights }, { ENOENT, "" } };
    tm_checkpoint_io io = tm_checkpoint_system_io;
    io.create = creates_nothing;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture  f = new_fixture();
        tm_error err = { 0 };
        char     wanted[700];
        set_tensors(&f);
        fill(&f, 3, 1);
        create_errno = cases[i].cause;
        assert_int_equal(tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, 1, &err), TM_IO);
        snprintf(
            wanted, sizeof wanted,
            "cannot create '%s/step-00000003.tmp.%ld/tensors.safetensors': %s%s; earlier checkpoints are unchanged",
            f.folder, (long)getpid(), strerror(cases[i].cause), cases[i].cure);
        assert_string_equal(err.text, wanted);
        assert_int_equal(count_entries(&f, TM_CHECKPOINT_TEMPORARY), 0);
        clear(f.folder);
    }
}

TEST(a_lock_that_cannot_be_opened_is_said)
{
    fixture  f = new_fixture();
    tm_error err = { 0 };
    char     path[500], wanted[600];
    snprintf(path, sizeof path, "%s/lock", f.folder);
    assert_int_equal(mkdir(path, 0777), 0);
    set_tensors(&f);
    fill(&f, 1, 1);
    assert_int_equal(tm_checkpoint_save(f.folder, &f.state, f.tensors, N_TENSORS, 1, &err), TM_IO);
    snprintf(wanted, sizeof wanted, "cannot write to directory '%s': Is a directory; earlier checkpoints are unchanged",
             f.folder);
    assert_string_equal(err.text, wanted);
    assert_false(exists(&f, "step-00000001"));
    clear(f.folder);
}

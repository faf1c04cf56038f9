/* SPDX-License-Identifier: Apache-2.0 */
/* A mapped file that is cut short ends the program with its name, not with a bare SIGBUS. */
#include "support/folder.h"

#include "support/test.h"

#include "base/file.h"
#include "base/mapped.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PAGES = 4 };

/* Three files of four pages, mapped and cut; the second is forgotten and the third takes its place; of each only the
 * two pages in the middle are known. What a child says that reads byte `at` of file `which`. */
static int read_one_of_several(int which, size_t at, char said[512])
{
    static const char *const names[] = { "o\033e", "two", "three" };
    static char              zeros[PAGES * 65536], path[3][256];
    size_t                   page = (size_t)sysconf(_SC_PAGESIZE), bytes = PAGES * page;
    const volatile char     *map[3];
    int                      ends[2], status;
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s", test_in_folder(names[i]));
        assert_ok(tm_file_write(path[i], zeros, bytes, err));
    }
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(ends[1], STDERR_FILENO);
        for (int i = 0; i < 3; i++) {
            int fd = open(path[i], O_RDONLY);
            map[i] = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
            if (i == 2) tm_mapped_remove((const void *)(map[1] + page));
            tm_mapped_add((const void *)(map[i] + page), 2 * page, names[i]);
            if (truncate(path[i], 0) != 0) _exit(50);
        }
        tm_mapped_remove(zeros); /* nobody's */
        _exit(60 + map[which][at]);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], said + used, 511 - used)) > 0;) used += (size_t)n;
    said[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

#define SAID(name)                                                                                                     \
    "trainmark: invalid configuration or input: '" name "' was truncated during the run, or its disk cannot be read; " \
    "keep data unchanged\n"

TEST(the_right_one_of_several_is_named)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const struct {
        int         which;
        size_t      at;
        const char *named; /* NULL: not ours */
    } rows[] = { { 0, page, SAID("o?e") },   { 0, 3 * page - 1, SAID("o?e") },
                 { 0, page - 1, NULL },      { 0, 3 * page, NULL },
                 { 1, page, NULL },          { 1, 3 * page - 1, NULL },
                 { 2, page, SAID("three") }, { 2, 2 * page, SAID("three") },
                 { 2, 3 * page, NULL } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char said[512];
        int  status = read_one_of_several(rows[i].which, rows[i].at, said);
        if (rows[i].named) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
            assert_string_equal(said, rows[i].named);
        } else {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
            assert_string_equal(said, "");
        }
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)

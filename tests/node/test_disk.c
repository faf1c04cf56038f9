/* SPDX-License-Identifier: Apache-2.0 */
/* The check of the disk: a disk that keeps its bytes passes, one that returns others does not. */
#include "support/test.h"

#include "one_check.h"

#include <dirent.h>
#include <fcntl.h>

/* A disk that has forgotten something: what is loaded lacks a bit, or is the newest one though it is torn. */
typedef enum { WELL, ONE_BIT, FORGETS } damage;
static damage broken;

/* Between the check and the words: behind a load the words are looked at with these. */
#define tm_memory_check check_well
#include "../../src/apps/node/memory_words.c"
#undef tm_memory_check

size_t tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad);
size_t tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad)
{
    if (broken == ONE_BIT) ((uint64_t *)(uintptr_t)words)[n / 2] ^= 1;
    return check_well(words, n, pattern, seed, first_bad);
}

/* The check gives up the pages of what it has written: the moment at which this disk forgets the end of the newer one.
 */
int posix_fadvise(int fd, off_t offset, off_t length, int advice);
int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    char link[64], path[4096];
    (void)offset, (void)length, (void)advice;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (broken == FORGETS && strstr(path, "step-00000002")) assert_int_equal(truncate(path, 4096), 0);
    return 0;
}

static void certify(const char *folder, tm_node_outcome *disk)
{
    run_one_check(&(tm_node_options){ .only = "disk", .minutes = 0.001, .seed = 3, .folder = folder, .sysroot = "" },
                  disk);
}

static int files_in(const char *folder)
{
    int  n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

TEST(a_disk_that_keeps_its_bytes)
{
    char            folder[] = "/tmp/trainmark-disk-XXXXXX";
    tm_node_outcome o;
    assert_non_null(mkdtemp(folder));
    certify(folder, &o);
    assert_int_equal(o.verdict, TM_NODE_PASS);
    assert_int_equal(o.n_figures, 2);
    assert_non_null(strstr(o.reach, "a torn checkpoint, "));
    assert_int_equal(files_in(folder), 0);
    tm_node_outcome_fini(&o);
    broken = ONE_BIT;
    certify(folder, &o);
    assert_int_equal(o.verdict, TM_NODE_FAIL);
    assert_non_null(
        strstr(o.findings[0].text, "read again: 1 of 131072 words are not what was written, from word 65536"));
    assert_int_equal(files_in(folder), 0);
    tm_node_outcome_fini(&o);
    broken = FORGETS;
    certify(folder, &o);
    assert_int_equal(o.verdict, TM_NODE_FAIL);
    assert_non_null(strstr(o.findings[0].text, "the checkpoint of step 1 was loaded; expected that of step 2"));
    tm_node_outcome_fini(&o);
    rmdir(folder);
}

TESTS_ALONE

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of a host have in common: files without names and who may map them, how many there
 * may be, and that nothing of it is left. */
#include "support/test.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* Mappings of such files in this process. */
static int files_mapped(void)
{
    char  line[512];
    int   n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) n += strstr(line, "memfd:trainmark") != NULL;
    fclose(maps);
    return n;
}

TEST(files)
{
    static const size_t sizes[] = { 1, PAGE, 2 * HUGE_PAGE + 3 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t       bytes = sizes[i];
        tm_comm_file file = tm_comm_file_make(bytes), other[4];
        void        *where[2];
        assert_true(file.fd >= 0 && file.why == 0 && file.bytes == bytes && file.pid == getpid());
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tm_comm_file_map(&file, getpid(), &where[k]), 0);
            assert_int_equal((uintptr_t)where[k] % HUGE_PAGE, 0);
        }
        ((char *)where[0])[bytes - 1] = 5; /* one and the same */
        assert_int_equal(((char *)where[1])[bytes - 1], 5);
        for (int k = 0; k < 2; k++) munmap(where[k], bytes);
        /* What another process, or another file, would be. */
        for (int k = 0; k < 4; k++) other[k] = file;
        other[0].inode++, other[1].device++, other[2].bytes++, other[3].fd = 987654;
        static const int wanted[] = { ESRCH, ESRCH, EPERM, ENOENT };
        for (int k = 0; k < 4; k++) assert_int_equal(tm_comm_file_map(&other[k], getpid(), &where[0]), wanted[k]);
        assert_null(where[0]);
        assert_int_equal(tm_comm_file_map(&file, getppid(), &where[0]),
                         EPERM);                          /* of a process that is not the rank's */
        assert_int_equal(ftruncate((int)file.fd, 0), -1); /* its size stays */
        assert_int_equal(ftruncate((int)file.fd, (off_t)bytes + 1), -1);
        close((int)file.fd);
    }
    assert_int_equal(files_mapped(), 0);
}

/* What a rank may have open that is no such file: one that could become smaller, one on a disk. */
TEST(other_files)
{
    void *where = &where;
    int   fd[2] = { memfd_create("trainmark", MFD_CLOEXEC | MFD_ALLOW_SEALING), open("/proc/self/exe", O_RDWR) };
    char  name[] = "/tmp/tm-memory-XXXXXX";
    if (fd[1] < 0) fd[1] = mkstemp(name), unlink(name);
    for (int i = 0; i < 2; i++) {
        struct stat facts;
        assert_true(fd[i] >= 0 && (i == 1 || ftruncate(fd[i], PAGE) == 0) && fstat(fd[i], &facts) == 0);
        tm_comm_file file = {
            .pid = getpid(), .fd = fd[i], .device = facts.st_dev, .inode = facts.st_ino, .bytes = PAGE
        };
        assert_int_equal(tm_comm_file_map(&file, getpid(), &where), EPERM);
        assert_null(where);
        close(fd[i]);
    }
    assert_int_equal(files_mapped(), 0);
}

/* Shared again and again, given back each time or not. */
static void too_often(tm_comm *world, void *context)
{
    void    *memory[TM_COMM_WINDOWS + 1];
    tm_error failure = { 0 };
    (void)context;
    for (int i = 0; i < TM_COMM_WINDOWS; i++) {
        CHECK_OK(tm_comm_alloc(world, 10, &memory[i], err));
        if (i % 2) tm_comm_free(world, memory[i]);
    }
    CHECK(tm_comm_alloc(world, 10, &memory[TM_COMM_WINDOWS], &failure) == TM_INVALID && !memory[TM_COMM_WINDOWS]);
    CHECK(strcmp(failure.text, "memory was shared 64 times in a world, more is not supported") == 0);
}

static void too_much(tm_comm *world, void *context)
{
    void    *memory = world;
    tm_error failure = { 0 };
    (void)context;
    CHECK(tm_comm_alloc(world, (size_t)1 << 60, &memory, &failure) == TM_NOMEM && memory == NULL);
    /* The first that says so is heard by both. */
    CHECK(strstr(failure.text, " cannot reserve 1024.00 PiB for collective calls: Cannot allocate memory"));
}

TEST(memory_has_an_end)
{
    run_world(2, NULL, 20, false, too_often, NULL);
    run_world(2, NULL, 20, false, too_much, NULL);
    assert_int_equal(files_mapped(), 0);
}

/* --- what the system refuses ---------------------------------------------------------------------- */

/* Of this thread, the call that fails, after `refused_later` that do not, and with which errno. */
enum { NOTHING, MEMFD, OPEN, MAP, RESERVE };
static _Thread_local int refused, refused_later, refused_errno;

static bool is_refused(int call)
{
    if (refused != call || refused_later-- > 0) return false;
    errno = refused_errno;
    return true;
}

static void *next_of(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    CHECK(symbol);
    return symbol;
}

int memfd_create(const char *name, unsigned flags)
{
    int (*make)(const char *, unsigned);
    void *symbol = next_of("memfd_create");
    memcpy(&make, &symbol, sizeof make);
    return is_refused(MEMFD) ? -1 : make(name, flags);
}

int open(const char *path, int flags, ...)
{
    int (*open_it)(const char *, int, ...);
    void   *symbol = next_of("open");
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    memcpy(&open_it, &symbol, sizeof open_it);
    return strncmp(path, "/proc/", 6) == 0 && is_refused(OPEN) ? -1 : open_it(path, flags, mode);
}

/* Of files in place of what there was; of memory that nobody needs yet. */
void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t at)
{
    void *(*map)(void *, size_t, int, int, int, off_t);
    void *symbol = next_of("mmap");
    memcpy(&map, &symbol, sizeof map);
    if ((flags & MAP_FIXED) && (flags & MAP_SHARED) && is_refused(MAP)) return MAP_FAILED;
    if ((flags & MAP_NORESERVE) && protection != PROT_NONE && is_refused(RESERVE)) return MAP_FAILED;
    return map(where, bytes, protection, flags, fd, at);
}

typedef struct {
    int         call, later, code;
    tm_status   status;
    const char *said;
} refusal;

/* Rank 1 of 3 gets no more: all hear of it, and what they have stays theirs. */
static void refuse_one(tm_comm *world, void *context)
{
    const refusal *r = context;
    int            rank = tm_comm_rank(world), share = -1;
    tm_error       failure = { 0 };
    char          *span = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char          *memory = span + (HUGE_PAGE - (uintptr_t)span % HUGE_PAGE) % HUGE_PAGE;
    CHECK(span != MAP_FAILED);
    memset(memory, 20 + rank, 3 * PAGE);
    if (rank == 1) refused = r->call, refused_later = r->later, refused_errno = r->code;
    tm_status st = tm_comm_share(world, &(tm_comm_range){ memory, 3 * PAGE }, 1, &share, &failure);
    refused = NOTHING;
    if (st != r->status && st != TM_OK) fprintf(stderr, "rank %d: %d: %s\n", rank, (int)st, failure.text);
    /* Of a place that is not given hear the others at their next call. */
    CHECK(st == r->status || (st == TM_OK && r->status == TM_NOMEM && rank != 1));
    if (st != TM_OK && strcmp(failure.text, r->said) != 0) fprintf(stderr, "%s\n", failure.text);
    CHECK(st == TM_OK || strcmp(failure.text, r->said) == 0);
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    failure = (tm_error){ 0 };
    tm_status then = tm_comm_run(world, &barrier, &failure);
    CHECK(then == (r->status == TM_UNSUPPORTED ? TM_OK : r->status));
    CHECK(then == TM_OK || strcmp(failure.text, r->said) == 0);
    if (then == TM_OK) {
        CHECK_OK(tm_comm_share(world, &(tm_comm_range){ memory, 3 * PAGE }, 1, &share, err));
        CHECK(share == 0);
        memset(memory, 30 + rank, 3 * PAGE);
    }
    for (int i = 0; i < 3 * PAGE && rank != 1; i++)
        CHECK(memory[i] == (then == TM_OK ? 30 + rank : st == TM_OK ? 0 : 20 + rank));
    munmap(span, 2 * HUGE_PAGE);
}

TEST(what_the_system_refuses)
{
#define CANNOT_REACH "rank 1 cannot reach the memory of the ranks of its host: "
#define HINT " (they have to see each other's processes in /proc, as the same user)"
    static const refusal rows[] = {
        { OPEN, 0, EACCES, TM_UNSUPPORTED, CANNOT_REACH "Permission denied" HINT },
        { OPEN, 1, EMFILE, TM_UNSUPPORTED, CANNOT_REACH "Too many open files" },
        { MAP, 0, ENOMEM, TM_UNSUPPORTED, CANNOT_REACH "Cannot allocate memory" },
        { MAP, 1, ENOMEM, TM_UNSUPPORTED, CANNOT_REACH "Cannot allocate memory" },
        { MAP, 2, ENOMEM, TM_NOMEM, "rank 1 cannot share 12288 bytes of memory: Cannot allocate memory" },
        { MEMFD, 0, EMFILE, TM_UNSUPPORTED,
          "rank 0 cannot reach the memory of the ranks of its host: Too many open files" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        refusal r = rows[i];
        run_world(3, NULL, 2, false, refuse_one, &r);
        assert_int_equal(files_mapped(), 0);
    }
}

TESTS_ALONE

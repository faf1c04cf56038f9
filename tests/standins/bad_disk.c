/* SPDX-License-Identifier: Apache-2.0 */
/* tests/standins/bad_disk.c - a library to be preloaded (tests/cli/test_bad_disk.sh): the disk fails once. Calls that
 * change files below BAD_DISK_BELOW, or flush or close them, are counted; call BAD_DISK_AT goes wrong as BAD_DISK_HOW
 * says:
 *
 *   EIO, ENOSPC, EINTR   it fails so, and nothing is done (a file is closed all the same, as Linux does)
 *   short                a write takes half of what it is given, 1 byte at least; other calls are done
 *   kill                 the process is killed before it; of a write half is done first
 *   full                 BAD_DISK_AT bytes can be written in all, from then on there is no space left
 *
 * Each counted call is a line of BAD_DISK_LOG: its name and the path. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GOES_WELL, FAILS, SHORT, KILLED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long            count;
static size_t          taken; /* bytes, by a disk that gets full */

#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static void path_of(int fd, char out[PATH_MAX])
{
    char    link[40];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
}

static void write_log(const char *call, const char *path)
{
    const char *name = getenv("BAD_DISK_LOG");
    char        line[PATH_MAX + 40];
    int         n = snprintf(line, sizeof line, "%s %s\n", call, path);
    long        fd = name ? syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    (void)!syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

/* What becomes of this call; errno is set where it fails. */
static int turn(const char *call, const char *path)
{
    static const struct {
        const char *name;
        int         cause;
    } causes[] = { { "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EINTR", EINTR } };
    const char *below = getenv("BAD_DISK_BELOW"), *at = getenv("BAD_DISK_AT"), *how = getenv("BAD_DISK_HOW");
    if (!below || strncmp(path, below, strlen(below)) != 0) return GOES_WELL;
    pthread_mutex_lock(&lock);
    bool now = ++count == (at ? atol(at) : 0);
    write_log(call, path);
    pthread_mutex_unlock(&lock);
    if (!now || !how || strcmp(how, "full") == 0) return GOES_WELL;
    for (int i = 0; i < 3; i++)
        if (strcmp(how, causes[i].name) == 0) return errno = causes[i].cause, FAILS;
    return strcmp(how, "kill") == 0 ? KILLED : SHORT;
}

static int turn_of(const char *call, int fd)
{
    char path[PATH_MAX];
    int  before = errno;
    path_of(fd, path);
    errno = before;
    return turn(call, path);
}

/* How much of a write there is room for; n, unless the disk gets full. */
static size_t room_for(int fd, size_t n)
{
    const char *below = getenv("BAD_DISK_BELOW"), *at = getenv("BAD_DISK_AT"), *how = getenv("BAD_DISK_HOW");
    char        path[PATH_MAX];
    int         before = errno;
    path_of(fd, path);
    errno = before;
    if (!below || !how || strcmp(how, "full") != 0 || strncmp(path, below, strlen(below)) != 0) return n;
    pthread_mutex_lock(&lock);
    size_t room = at && (size_t)atol(at) > taken ? (size_t)atol(at) - taken : 0;
    if (n > room) n = room;
    taken += n;
    pthread_mutex_unlock(&lock);
    if (n == 0) errno = ENOSPC;
    return n;
}

/* A path as it is given, in a folder. */
static int turn_at(const char *call, int folder, const char *path)
{
    char whole[2 * PATH_MAX], base[PATH_MAX] = "";
    if (path[0] != '/' && folder == AT_FDCWD && !getcwd(base, sizeof base)) base[0] = '\0';
    if (path[0] != '/' && folder != AT_FDCWD) path_of(folder, base);
    snprintf(whole, sizeof whole, "%s%s%s", base, base[0] ? "/" : "", path);
    return turn(call, whole);
}

static void die(void)
{
    raise(SIGKILL);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Writes all of it, or as much as the disk takes. */
#define WRITES(call, name, n, ...)                                                                                     \
    int its = turn_of(call, fd);                                                                                       \
    if (its == FAILS) return -1;                                                                                       \
    if ((its == SHORT || its == KILLED) && n > 1) n /= 2;                                                              \
    if (n > 0 && (n = room_for(fd, n)) == 0) return -1;                                                                \
    ssize_t done = NEXT(name)(fd, data, n __VA_ARGS__);                                                                \
    if (its == KILLED) die();                                                                                          \
    return done

ssize_t write(int fd, const void *data, size_t n)
{
    WRITES("write", write, n, );
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
    WRITES("pwrite", pwrite64, n, , offset);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    return pwrite64(fd, data, n, offset);
}

#define OF_DESCRIPTOR(name)                                                                                            \
    int name(int fd)                                                                                                   \
    {                                                                                                                  \
        int its = turn_of(#name, fd);                                                                                  \
        if (its == KILLED) die();                                                                                      \
        return its == FAILS ? -1 : NEXT(name)(fd);                                                                     \
    }
OF_DESCRIPTOR(fsync)
OF_DESCRIPTOR(fdatasync)

int close(int fd)
{
    int its = turn_of("close", fd), cause = errno;
    if (its == KILLED) die();
    int failed = NEXT(close)(fd);
    if (its == FAILS) errno = cause;
    return its == FAILS ? -1 : failed;
}

int ftruncate64(int fd, off64_t length)
{
    int its = turn_of("ftruncate", fd);
    if (its == KILLED) die();
    return its == FAILS ? -1 : NEXT(ftruncate64)(fd, length);
}
int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

/* The mode behind the flags of a file that may be made. */
#define TAKE_MODE(mode)                                                                                                \
    va_list more;                                                                                                      \
    va_start(more, flags);                                                                                             \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                            \
    va_end(more)

int openat64(int folder, const char *path, int flags, ...)
{
    TAKE_MODE(mode);
    bool counts = flags & (O_CREAT | O_WRONLY | O_RDWR | O_DIRECTORY);
    int  its = counts ? turn_at("open", folder, path) : GOES_WELL;
    if (its == KILLED) die();
    return its == FAILS ? -1 : NEXT(openat64)(folder, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...)
{
    TAKE_MODE(mode);
    return openat64(folder, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    TAKE_MODE(mode);
    return openat64(AT_FDCWD, path, flags, mode);
}
int open(const char *path, int flags, ...)
{
    TAKE_MODE(mode);
    return openat64(AT_FDCWD, path, flags, mode);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    int its = turn_at("rename", to_folder, to);
    if (its == KILLED) die();
    return its == FAILS ? -1 : NEXT(renameat)(from_folder, from, to_folder, to);
}
int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char *path, mode_t mode)
{
    int its = turn_at("mkdir", AT_FDCWD, path);
    if (its == KILLED) die();
    return its == FAILS ? -1 : NEXT(mkdir)(path, mode);
}

int unlinkat(int folder, const char *path, int flags)
{
    int its = turn_at("unlink", folder, path);
    if (its == KILLED) die();
    return its == FAILS ? -1 : NEXT(unlinkat)(folder, path, flags);
}
int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}
int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/again.h"
#include "base/root.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, DEPTH = 64, LINKS = 40 };

/* --- resolving by hand ----------------------------------------------------------------------- */

/* The folders from the root to where the walk stands, open: ".." goes back to one of them and so never above the root,
 * whatever is renamed meanwhile. */
typedef struct {
    int  fd[DEPTH];
    int  depth; /* fd[0] is the root */
    int  links;
    char rest[PATH_BYTES]; /* of the path */
} walk;

static int walk_fail(int cause)
{
    errno = cause;
    return -1;
}

static void walk_up_to(walk *w, int depth)
{
    while (w->depth > depth) close(w->fd[w->depth--]);
}

/* Puts the target of the link `name` in front of the rest. */
static int walk_link(walk *w, const char *name)
{
    char    target[PATH_BYTES], joined[PATH_BYTES];
    ssize_t n = readlinkat(w->fd[w->depth], name, target, sizeof target - 1);
    if (n < 0) return -1;
    target[n] = '\0';
    if (++w->links > LINKS) return walk_fail(ELOOP);
    if ((size_t)snprintf(joined, sizeof joined, "%s%s", target, w->rest) >= sizeof joined)
        return walk_fail(ENAMETOOLONG);
    memcpy(w->rest, joined, sizeof joined);
    if (target[0] == '/') walk_up_to(w, 0);
    return 0;
}

/* Takes the next name off the rest; false at its end. */
static bool walk_next(walk *w, char name[PATH_BYTES])
{
    const char *from = w->rest + strspn(w->rest, "/");
    size_t      n = strcspn(from, "/");
    memcpy(name, from, n);
    name[n] = '\0';
    memmove(w->rest, from + n, strlen(from + n) + 1);
    return n > 0;
}

static bool walk_at_end(const walk *w)
{
    return w->rest[strspn(w->rest, "/")] == '\0';
}

/* One step; *out is the opened file when the path ends here. */
static int walk_step(walk *w, const char *name, int flags, int *out)
{
    struct stat info;
    if (strcmp(name, ".") == 0) return 0;
    if (strcmp(name, "..") == 0) {
        if (w->depth > 0) walk_up_to(w, w->depth - 1);
        return 0;
    }
    if (fstatat(w->fd[w->depth], name, &info, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    bool last = walk_at_end(w);
    if (S_ISLNK(info.st_mode) && !(last && (flags & O_NOFOLLOW))) return walk_link(w, name);
    if (last && !S_ISDIR(info.st_mode) && *w->rest == '/') return walk_fail(ENOTDIR);
    if (last) {
        *out = openat(w->fd[w->depth], name, flags | O_NOFOLLOW | O_CLOEXEC);
        return *out < 0 ? -1 : 0;
    }
    if (w->depth + 1 == DEPTH) return walk_fail(ENAMETOOLONG);
    int fd = openat(w->fd[w->depth], name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    w->fd[++w->depth] = fd;
    return 0;
}

int tm_root_open_by_hand(const char *sysroot, const char *path, int flags)
{
    walk w = { .depth = 0 };
    char name[PATH_BYTES];
    int  fd = -1, failed = 0;
    if (strlen(path) >= sizeof w.rest) return walk_fail(ENAMETOOLONG);
    strcpy(w.rest, path);
    w.fd[0] = open(*sysroot ? sysroot : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w.fd[0] < 0) return -1;
    while (fd < 0 && !failed && walk_next(&w, name)) failed = walk_step(&w, name, flags | O_NONBLOCK, &fd);
    if (fd < 0 && !failed) fd = openat(w.fd[w.depth], ".", flags | O_NONBLOCK | O_CLOEXEC); /* it ended on a folder */
    int cause = errno;
    walk_up_to(&w, 0);
    close(w.fd[0]);
    errno = cause;
    return fd;
}

/* --- opening --------------------------------------------------------------------------------- */

int tm_root_open(const char *sysroot, const char *path, int flags)
{
    if (!*sysroot) return open(path, flags | O_NONBLOCK | O_CLOEXEC);
    int root = open(sysroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return -1;
    struct open_how how = { .flags = (unsigned)(flags | O_NONBLOCK | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT };
    if (flags & O_PATH) how.flags &= ~(unsigned long long)O_NONBLOCK; /* openat2 refuses the pair */
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    int cause = errno;
    close(root);
    if (fd < 0 && (cause == ENOSYS || cause == EPERM || cause == EAGAIN))
        return tm_root_open_by_hand(sysroot, path, flags);
    errno = cause;
    return fd;
}

bool tm_root_exists(const char *sysroot, const char *path)
{
    int fd = tm_root_open(sysroot, path, O_PATH);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* --- whole files ----------------------------------------------------------------------------- */

static int open_regular(const char *sysroot, const char *path)
{
    struct stat info;
    int         fd = tm_root_open(sysroot, path, O_RDONLY | O_NOCTTY);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
    close(fd);
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return -1;
}

bool tm_root_read(const char *sysroot, const char *path, size_t limit, tm_text *out)
{
    char part[16384];
    int  fd = open_regular(sysroot, path), cause = 0;
    if (fd < 0) return false;
    tm_text_add(out, "");
    for (size_t total = 0; cause == 0;) {
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) cause = errno;
        if (n <= 0) break;
        total += (size_t)n;
        if (total > limit) cause = EFBIG;
        tm_text_add_n(out, part, (size_t)n);
    }
    close(fd);
    errno = cause;
    return cause == 0;
}

bool tm_root_read_line(const char *sysroot, const char *path, char *out, size_t size)
{
    out[0] = '\0';
    int fd = open_regular(sysroot, path);
    if (fd < 0) return false;
    size_t  used = 0;
    ssize_t n = 0;
    while (used < size - 1 && ((n = read(fd, out + used, size - 1 - used)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) used += (size_t)n;
    int cause = errno;
    close(fd);
    if (n < 0) used = 0;
    while (used > 0 && isspace((unsigned char)out[used - 1])) used--;
    out[used] = '\0';
    errno = cause;
    return n >= 0;
}

void tm_root_link(const char *sysroot, const char *path, char *out, size_t size)
{
    int     fd = tm_root_open(sysroot, path, O_PATH | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", out, size - 1);
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
}

bool tm_root_write(const char *sysroot, const char *path, const char *content)
{
    int fd = tm_root_open(sysroot, path, O_WRONLY | O_TRUNC);
    if (fd < 0) return false;
    ssize_t n = write(fd, content, strlen(content));
    int     cause = n < 0 ? errno : n == (ssize_t)strlen(content) ? 0 : EIO;
    if (tm_again_close(fd) != 0 && cause == 0) cause = errno;
    errno = cause;
    return cause == 0;
}

/* --- folders --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

const char **tm_root_list(const char *sysroot, const char *path, size_t limit, tm_arena *arena, size_t *n)
{
    *n = 0;
    int  fd = tm_root_open(sysroot, path, O_RDONLY | O_DIRECTORY);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    const char **names = NULL;
    size_t       capacity = 0;
    for (struct dirent *entry; *n < limit && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        names = tm_grow(names, &capacity, *n, sizeof *names);
        names[(*n)++] = tm_arena_text(arena, entry->d_name);
    }
    closedir(folder);
    if (*n > 0) qsort(names, *n, sizeof *names, by_name);
    const char **out = tm_arena_take(arena, (*n + 1) * sizeof *out);
    if (*n > 0) memcpy(out, names, *n * sizeof *out);
    free(names);
    return out;
}

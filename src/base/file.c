/* SPDX-License-Identifier: Apache-2.0 */
#include "base/again.h"
#include "base/file.h"

#include "base/arena.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* A path that cannot be is wrong input; a disk that is full or broken is not. */
static tm_status status_of(int cause)
{
    static const int of_paths[] = { EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EISDIR, EEXIST, ELOOP, ENAMETOOLONG, ENXIO };
    for (size_t i = 0; i < sizeof of_paths / sizeof of_paths[0]; i++)
        if (cause == of_paths[i]) return TM_INVALID;
    return TM_IO;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* The folder of `path` and the name in it. */
static tm_status open_folder_of(const char *path, int *folder, const char **name, tm_error *err)
{
    char        text[4096];
    const char *slash = strrchr(path, '/');
    size_t      n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof text) return tm_fail(err, TM_INVALID, "path is too long: '%s'", path);
    if (n > 0)
        memcpy(text, path, n);
    else
        text[n++] = slash ? '/' : '.';
    text[n] = '\0';
    *name = slash ? slash + 1 : path;
    *folder = tm_again_open(AT_FDCWD, text, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (*folder < 0)
        return tm_fail(err, status_of(errno), "cannot create '%s': directory '%s': %s", path, text, strerror(errno));
    return TM_OK;
}

/* NAME.tmp. and 16 hexadecimal digits? `name` NULL: of any name. */
static bool is_random_name(const char *entry, const char *name)
{
    enum { DIGITS = 16, SUFFIX = 5 + DIGITS };
    size_t n = strlen(entry), length = n > SUFFIX ? n - SUFFIX : 0;
    if (length == 0 || strncmp(entry + length, ".tmp.", 5) != 0) return false;
    if (strspn(entry + length + 5, "0123456789abcdef") != DIGITS) return false;
    return !name || (strlen(name) == length && strncmp(entry, name, length) == 0);
}

/* Whoever writes such a file has it locked: what can be locked is of a process that is gone. */
static void remove_if_left(int folder, const char *entry)
{
    struct stat info;
    int         fd = tm_again_open(folder, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, entry, 0);
    tm_again_close(fd);
}

/* What processes that were killed have left of this file. */
static void remove_left(int folder, const char *name)
{
    int  own = tm_again_open(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = own >= 0 ? fdopendir(own) : NULL;
    if (!dir && own >= 0) tm_again_close(own);
    for (const struct dirent *d; dir && (d = readdir(dir));)
        if (is_random_name(d->d_name, name)) remove_if_left(folder, d->d_name);
    if (dir) closedir(dir);
}

void tm_file_remove_left(const char *folder)
{
    int fd = tm_again_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return;
    remove_left(fd, NULL);
    tm_again_close(fd);
}

/* Locked, and still there: another process may have taken it for one that was left. */
static bool keep(int fd)
{
    struct stat info;
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) continue; /* without locks nobody removes anything */
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

int tm_file_open_random(int folder, const char *name, mode_t mode, char *out, size_t size)
{
    enum { TRIES = 16 };
    remove_left(folder, name);
    for (int i = 0; i < TRIES; i++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) return -1;
        if ((size_t)snprintf(out, size, "%s.tmp.%016llx", name, (unsigned long long)number) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = tm_again_open(folder, out, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0 && keep(fd)) return fd;
        if (fd >= 0) tm_again_close(fd);
        if (fd < 0 && errno != EEXIST) return fd;
        errno = EEXIST;
    }
    return -1;
}

tm_status tm_file_draft_open(const char *path, tm_file_draft *draft, tm_error *err)
{
    const char *name;
    *draft = (tm_file_draft){ .fd = -1, .folder = -1 };
    TM_TRY(open_folder_of(path, &draft->folder, &name, err));
    struct stat there;
    if (fstatat(draft->folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(there.st_mode) &&
        !S_ISLNK(there.st_mode)) { /* a device or fifo must not be replaced by a file; a link may */
        tm_again_close(draft->folder);
        *draft = (tm_file_draft){ .fd = -1, .folder = -1 };
        return tm_fail(err, TM_INVALID, "cannot replace '%s': it is not a regular file; name another", path);
    }
    draft->fd = tm_file_open_random(draft->folder, name, 0666, draft->temporary, sizeof draft->temporary);
    if (draft->fd < 0) {
        int cause = errno;
        tm_again_close(draft->folder);
        *draft = (tm_file_draft){ .fd = -1, .folder = -1 };
        return tm_fail(err, status_of(cause), "cannot create '%s': %s", path, strerror(cause));
    }
    draft->path = tm_alloc(strlen(path) + 1);
    strcpy(draft->path, path);
    return TM_OK;
}

tm_status tm_file_draft_add(tm_file_draft *draft, const void *data, size_t bytes, tm_error *err)
{
    if (tm_again_write(draft->fd, data, bytes)) return TM_OK;
    return tm_fail(err, TM_IO, "cannot write '%s': %s", draft->path, strerror(errno));
}

static void forget(tm_file_draft *draft)
{
    if (draft->fd >= 0) tm_again_close(draft->fd);
    tm_again_close(draft->folder);
    free(draft->path);
    *draft = (tm_file_draft){ .fd = -1, .folder = -1 };
}

void tm_file_draft_discard(tm_file_draft *draft)
{
    if (!draft->path) return;
    unlinkat(draft->folder, draft->temporary, 0);
    forget(draft);
}

/* The steps of publishing; `cause` names the one that failed. */
static const char *publish(tm_file_draft *draft, const char *name)
{
    if (tm_again_sync(draft->fd) != 0) return "flush";
    if (tm_again_rename(draft->folder, draft->temporary, name) != 0) return "rename";
    draft->temporary[0] = '\0';
    if (tm_again_sync(draft->folder) != 0 && errno != EINVAL)
        return "flush the directory of"; /* some file systems cannot */
    return NULL;
}

tm_status tm_file_draft_publish(tm_file_draft *draft, int *appends, tm_error *err)
{
    const char *slash = strrchr(draft->path, '/'), *failed = publish(draft, slash ? slash + 1 : draft->path);
    tm_status   st = TM_OK;
    if (!failed && appends && fcntl(draft->fd, F_SETFL, O_APPEND) != 0) failed = "add lines to";
    if (!failed && appends) (void)flock(draft->fd, LOCK_UN); /* it has its name */
    if (failed) st = tm_fail(err, TM_IO, "cannot %s '%s': %s", failed, draft->path, strerror(errno));
    if (st == TM_OK && appends) {
        *appends = draft->fd;
        draft->fd = -1;
    } else if (tm_again_close(draft->fd) != 0 && st == TM_OK) {
        st = tm_fail(err, TM_IO, "cannot close '%s': %s", draft->path, strerror(errno));
    }
    draft->fd = -1;
    if (st != TM_OK && draft->temporary[0]) unlinkat(draft->folder, draft->temporary, 0);
    forget(draft);
    return st;
}

tm_status tm_file_write(const char *path, const void *data, size_t bytes, tm_error *err)
{
    tm_file_draft draft;
    TM_TRY(tm_file_draft_open(path, &draft, err));
    tm_status st = tm_file_draft_add(&draft, data, bytes, err);
    if (st == TM_OK) return tm_file_draft_publish(&draft, NULL, err);
    tm_file_draft_discard(&draft);
    return st;
}

/* A file that has a second name may be anybody's: what is written under this name would be written there, too. */
static bool has_two_names(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 1;
}

tm_status tm_file_open_append(const char *path, int *fd, tm_error *err)
{
    *fd = tm_again_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd >= 0 && has_two_names(*fd)) {
        tm_again_close(*fd);
        *fd = -1;
        return tm_fail(err, TM_INVALID,
                       "cannot add to '%s': it has a second name (a hard link), and what it leads to would change; "
                       "put a copy in its place, or remove it",
                       path);
    }
    if (*fd >= 0 && fcntl(*fd, F_SETFL, O_APPEND) == 0) return TM_OK; /* that nobody reads a pipe is known by now */
    if (errno == ENXIO) return tm_fail(err, TM_INVALID, "cannot add to '%s': it is a pipe that nobody reads", path);
    if (errno == ELOOP)
        return tm_fail(err, TM_INVALID,
                       "cannot add to '%s': it is a symbolic link; name the file that it leads to, or remove it", path);
    return tm_fail(err, status_of(errno), "cannot open '%s': %s", path, strerror(errno));
}

int tm_file_open_new(const char *path)
{
    char        text[4096];
    const char *slash = strrchr(path, '/');
    size_t      n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof text) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(text, n > 0 ? path : slash ? "/" : ".", n > 0 ? n : 1);
    text[n > 0 ? n : 1] = '\0';
    int folder = tm_again_open(AT_FDCWD, text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (folder < 0) return -1;
    int fd =
        tm_again_open(folder, slash ? slash + 1 : path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int cause = errno;
    tm_again_close(folder);
    errno = cause;
    return fd;
}

int tm_file_open_lock(const char *path)
{
    int fd = tm_again_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0 || !has_two_names(fd)) return fd;
    tm_again_close(fd);
    errno = EMLINK;
    return -1;
}

int tm_file_open_nameless(const char *folder)
{
    char name[64];
    int  at = tm_again_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (at < 0) return -1;
    int fd = tm_file_open_random(at, "trainmark-offload", 0600, name, sizeof name), cause = errno;
    if (fd >= 0 && unlinkat(at, name, 0) != 0) {
        cause = errno;
        tm_again_close(fd);
        fd = -1;
    }
    tm_again_close(at);
    errno = cause;
    return fd;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

tm_status tm_file_check_fetched(const char *path, const void *bytes, size_t n, tm_error *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    if (n < sizeof pointer - 1 || memcmp(bytes, pointer, sizeof pointer - 1) != 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%s' is a pointer of Git LFS, the file itself was not fetched; run 'git lfs pull' where it is",
                   path);
}

tm_status tm_file_read(const char *path, size_t limit, tm_text *out, tm_error *err)
{
    size_t before = out->length;
    int    fd =
        tm_again_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* non-blocking: a fifo must not hang us */
    if (fd < 0) return tm_fail(err, TM_INVALID, "cannot open '%s': %s", path, strerror(errno));
    struct stat info;
    tm_status   st = TM_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        st = tm_fail(err, TM_INVALID, "'%s' is not a regular file; name one that is", path);
    else if ((unsigned long long)info.st_size > limit)
        st = tm_fail(err, TM_INVALID, "'%s' has %lld bytes, more than the limit of %zu; name a shorter file", path,
                     (long long)info.st_size, limit);
    char   part[16384];
    size_t total = 0;
    while (st == TM_OK) {
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = tm_fail(err, TM_INVALID, "cannot read '%s': %s", path, strerror(errno));
        if (n <= 0) break;
        total += (size_t)n;
        if (total > limit) st = tm_fail(err, TM_INVALID, "'%s' is longer than the limit of %zu bytes", path, limit);
        tm_text_add_n(out, part, (size_t)n);
    }
    tm_again_close(fd);
    if (st == TM_OK) tm_text_add(out, "");
    return st == TM_OK ? tm_file_check_fetched(path, out->data + before, out->length - before, err) : st;
}

bool tm_file_read_line(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(out, 1, size - 1, f);
    bool   ok = !ferror(f);
    fclose(f);
    while (n > 0 && isspace((unsigned char)out[n - 1])) n--;
    out[n] = '\0';
    return ok;
}

tm_status tm_folder_make(const char *path, tm_error *err)
{
    char part[4096];
    if (strlen(path) >= sizeof part || !*path)
        return tm_fail(err, TM_INVALID, "not a usable directory name: '%s'", path);
    strcpy(part, path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return tm_fail(err, status_of(errno), "cannot create directory '%s': %s; name another one", part,
                           strerror(errno));
        *p = was;
        if (!was) break;
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return tm_fail(err, TM_INVALID, "'%s' exists and is not a directory; name another one", path);
    return TM_OK;
}

bool tm_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

tm_status tm_file_check_writable(const char *path, const char *key, tm_error *err)
{
    tm_text     folder = { 0 };
    const char *slash = strrchr(path, '/');
    tm_text_add_n(&folder, slash ? path : ".", slash > path ? (size_t)(slash - path) : 1);
    const char *place = tm_file_exists(path) ? path : folder.data;
    tm_status   st = TM_OK;
    if (access(place, W_OK) != 0)
        st = tm_fail(err, status_of(errno), "cannot write to '%s' (%s %s): %s; name another file", place, key, path,
                     strerror(errno));
    tm_text_fini(&folder);
    return st;
}

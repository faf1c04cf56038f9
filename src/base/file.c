/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/arena.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tm_status write_all(int fd, const char *data, size_t bytes, const char *path, tm_error *err)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return tm_fail(err, TM_IO, "cannot write '%s': %s", path, strerror(errno));
        data += n;
        bytes -= (size_t)n;
    }
    if (fsync(fd) != 0) return tm_fail(err, TM_IO, "cannot flush '%s' to disk: %s", path, strerror(errno));
    return TM_OK;
}

tm_status tm_folder_sync_of(const char *path, tm_error *err)
{
    char        folder[4096];
    const char *slash = strrchr(path, '/');
    size_t      n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) return tm_fail(err, TM_INVALID, "path is too long: '%s'", path);
    if (n > 0)
        memcpy(folder, path, n);
    else
        folder[n++] = slash ? '/' : '.';
    folder[n] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tm_fail(err, TM_IO, "cannot open folder '%s': %s", folder, strerror(errno));
    int failed = fsync(fd) != 0 && errno != EINVAL; /* some file systems cannot sync a folder */
    int cause = errno;
    close(fd);
    return failed ? tm_fail(err, TM_IO, "cannot flush folder '%s': %s", folder, strerror(cause)) : TM_OK;
}

tm_status tm_file_write(const char *path, const void *data, size_t bytes, tm_error *err)
{
    char temporary[4096];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid()) >= sizeof temporary)
        return tm_fail(err, TM_INVALID, "path is too long: '%s'", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return tm_fail(err, TM_IO, "cannot create '%s': %s", temporary, strerror(errno));
    tm_status st = write_all(fd, data, bytes, temporary, err);
    if (close(fd) != 0 && st == TM_OK) st = tm_fail(err, TM_IO, "cannot close '%s': %s", temporary, strerror(errno));
    if (st == TM_OK && rename(temporary, path) != 0)
        st = tm_fail(err, TM_IO, "cannot rename '%s' to '%s': %s", temporary, path, strerror(errno));
    if (st != TM_OK) {
        unlink(temporary);
        return st;
    }
    return tm_folder_sync_of(path, err);
}

tm_status tm_file_read(const char *path, size_t limit, tm_text *out, tm_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* non-blocking: a fifo must not hang us */
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
    close(fd);
    if (st == TM_OK) tm_text_add(out, "");
    return st;
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
    if (strlen(path) >= sizeof part || !*path) return tm_fail(err, TM_INVALID, "not a usable folder name: '%s'", path);
    strcpy(part, path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return tm_fail(err, TM_IO, "cannot create folder '%s': %s; name another one", part, strerror(errno));
        *p = was;
        if (!was) break;
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return tm_fail(err, TM_IO, "'%s' exists and is not a folder; name another one", path);
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
        st = tm_fail(err, TM_IO, "cannot write to '%s' (%s %s): %s; name another file", place, key, path,
                     strerror(errno));
    tm_text_fini(&folder);
    return st;
}

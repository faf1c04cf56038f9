/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/io.h"

#include "base/again.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int system_create(void *context, const char *path)
{
    (void)context;
    return tm_file_open_new(path);
}

static ssize_t system_write(void *context, int fd, const void *data, size_t bytes)
{
    (void)context;
    return write(fd, data, bytes);
}

static int system_sync(void *context, int fd)
{
    (void)context;
    return tm_again_sync(fd);
}

static int system_close(void *context, int fd)
{
    (void)context;
    return tm_again_close(fd);
}

static int system_make_folder(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0777);
}

static int system_sync_folder(void *context, const char *path)
{
    (void)context;
    int fd = tm_again_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int failed = tm_again_sync(fd) != 0 && errno != EINVAL; /* some file systems cannot sync a folder */
    int cause = errno;
    close(fd);
    errno = cause;
    return failed ? -1 : 0;
}

static int system_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return tm_again_rename(AT_FDCWD, from, to);
}

/* Never through a link in the place of the checkpoint: it may lead to somebody else's files. */
static int system_remove_file(void *context, const char *path)
{
    char        folder[4096 + 64];
    const char *slash = strrchr(path, '/');
    (void)context;
    if (!slash || (size_t)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = tm_again_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int failed = unlinkat(fd, slash + 1, 0), cause = errno;
    close(fd);
    errno = cause;
    return failed;
}

static int system_remove_folder(void *context, const char *path)
{
    (void)context;
    return rmdir(path);
}

static int system_open(void *context, const char *path)
{
    (void)context;
    int fd =
        tm_again_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* non-blocking: a fifo must not hang us */
    if (fd < 0) return -1;
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static int64_t system_size(void *context, int fd)
{
    (void)context;
    struct stat info;
    return fstat(fd, &info) == 0 ? (int64_t)info.st_size : -1;
}

static ssize_t system_read_at(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    (void)context;
    return pread(fd, data, bytes, (off_t)offset);
}

const tm_checkpoint_io tm_checkpoint_system_io = {
    .lock_wait_ms = 10000,
    .create = system_create,
    .write = system_write,
    .sync = system_sync,
    .close = system_close,
    .make_folder = system_make_folder,
    .sync_folder = system_sync_folder,
    .rename = system_rename,
    .remove_file = system_remove_file,
    .remove_folder = system_remove_folder,
    .open = system_open,
    .size = system_size,
    .read_at = system_read_at,
};

const char *tm_checkpoint_path(tm_arena *arena, const char *folder, int64_t step, tm_checkpoint_kind kind)
{
    if (kind == TM_CHECKPOINT_TEMPORARY)
        return tm_arena_format(arena, "%s/step-%08" PRId64 ".tmp.%ld", folder, step, (long)getpid());
    return tm_arena_format(arena, "%s/step-%08" PRId64 "%s", folder, step, kind == TM_CHECKPOINT_OLD ? ".old" : "");
}

const char *tm_checkpoint_file_name(tm_arena *arena, int64_t writer, bool safetensors)
{
    if (writer < 0) return safetensors ? TM_CHECKPOINT_DATA : TM_CHECKPOINT_OLD_DATA;
    return tm_arena_format(arena, "tensors-%05d.%s", (int)writer, safetensors ? "safetensors" : "bin");
}

/* Is it a name that tm_checkpoint_path makes? */
static bool parse_name(const char *name, tm_checkpoint_entry *out)
{
    char canonical[64];
    if (strncmp(name, "step-", 5) != 0 || name[5] == '-') return false;
    char *end;
    errno = 0;
    out->step = strtoll(name + 5, &end, 10);
    int digits = snprintf(canonical, sizeof canonical, "step-%08" PRId64, out->step);
    if (end - name != digits || strncmp(name, canonical, (size_t)digits) != 0) return false;
    out->process = 0;
    out->kind = *end == '\0' ? TM_CHECKPOINT_FINAL : TM_CHECKPOINT_OLD;
    if (*end == '\0' || strcmp(end, ".old") == 0) return true;
    out->kind = TM_CHECKPOINT_TEMPORARY;
    if (strncmp(end, ".tmp.", 5) != 0 || end[5] < '0') return false;
    out->process = strtoll(end + 5, &end, 10);
    return *end == '\0' && errno == 0;
}

static int compare_entries(const void *a, const void *b)
{
    const tm_checkpoint_entry *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return (x->process > y->process) - (x->process < y->process);
}

tm_status tm_checkpoint_list(const char *folder, tm_arena *arena, tm_checkpoint_entry **out, size_t *count,
                             tm_error *err)
{
    DIR *dir = opendir(folder);
    if (!dir) return tm_fail(err, TM_INVALID, "cannot read checkpoint directory '%s': %s", folder, strerror(errno));
    tm_checkpoint_entry *items = NULL, entry;
    size_t               capacity = 0, n = 0;
    errno = 0;
    for (struct dirent *d; (d = readdir(dir)); errno = 0) {
        if (!parse_name(d->d_name, &entry)) continue;
        entry.path = tm_arena_format(arena, "%s/%s", folder, d->d_name);
        items = tm_grow(items, &capacity, n, sizeof *items);
        items[n++] = entry;
    }
    int cause = errno;
    closedir(dir);
    *out = tm_arena_take(arena, (n + 1) * sizeof *items);
    if (n > 0) {
        memcpy(*out, items, n * sizeof *items);
        qsort(*out, n, sizeof *items, compare_entries);
    }
    free(items);
    *count = n;
    if (cause) return tm_fail(err, TM_INVALID, "cannot read checkpoint directory '%s': %s", folder, strerror(cause));
    return TM_OK;
}

int tm_checkpoint_lock(const char *folder, int wait_ms)
{
    char path[4096 + 8];
    if ((size_t)snprintf(path, sizeof path, "%s/lock", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = tm_file_open_lock(path);
    if (fd < 0) return -1;
    for (;; wait_ms -= 20) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        if (errno != EWOULDBLOCK && errno != EINTR) {
            close(fd);
            return -2;
        }
        if (wait_ms <= 0) break;
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

void tm_checkpoint_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

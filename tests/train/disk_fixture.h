/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/disk_fixture.h - a disk under checkpoints that fails at one call or takes the process along, and notes
 * what was asked of it. */
#ifndef TM_TESTS_DISK_FIXTURE_H
#define TM_TESTS_DISK_FIXTURE_H

#include "checkpoint_fixture.h"

#include <errno.h>

enum { MOST_NOTES = 400, PATH_ROOM = 400 };

/* A call that was done. */
typedef struct {
    const char *name;
    int         fd;
    char        path[PATH_ROOM], to[PATH_ROOM];
} note;

typedef struct {
    bool   crashes; /* the failing call and all later ones do nothing; else one fails or, with error 0, ends early */
    int    error;   /* of the failing call */
    int    fail_at; /* 1 is the first call; 0: never */
    int    calls;
    bool   is_dead;
    size_t most;      /* bytes of a single read; 0: any */
    bool   needed;    /* only calls without which nothing can be saved fail */
    const char *name; /* of the call that failed */
    note        notes[MOST_NOTES];
    size_t      n_notes;
} disk;

/* Notes a call that is done. */
static inline bool fails(disk *d, const char *name, int fd, const char *path, const char *to)
{
    static const char other[] = "close remove_file remove_folder open size read_at";
    bool              counts = !d->needed || !strstr(other, name);
    d->calls += counts;
    if (d->is_dead || (counts && d->calls == d->fail_at)) {
        d->name = name;
        d->is_dead = d->crashes;
        errno = d->is_dead ? EIO : d->error;
        return true;
    }
    if (d->n_notes == MOST_NOTES) return false;
    note *n = &d->notes[d->n_notes++];
    n->name = name, n->fd = fd;
    snprintf(n->path, sizeof n->path, "%s", path ? path : "");
    snprintf(n->to, sizeof n->to, "%s", to ? to : "");
    return false;
}

static inline int disk_create(void *context, const char *path)
{
    disk *d = context;
    if (fails(d, "create", -1, path, NULL)) return -1;
    int fd = tm_checkpoint_system_io.create(NULL, path);
    if (d->n_notes < MOST_NOTES) d->notes[d->n_notes - 1].fd = fd;
    return fd;
}

static inline ssize_t disk_write(void *context, int fd, const void *data, size_t bytes)
{
    disk *d = context;
    if (fails(d, "write", fd, NULL, NULL)) return d->is_dead || d->error ? -1 : 0;
    return tm_checkpoint_system_io.write(NULL, fd, data, bytes);
}

static inline int disk_sync(void *context, int fd)
{
    return fails(context, "sync", fd, NULL, NULL) ? -1 : tm_checkpoint_system_io.sync(NULL, fd);
}

static inline int disk_close(void *context, int fd)
{
    int failed = fails(context, "close", fd, NULL, NULL), cause = errno;
    int result = tm_checkpoint_system_io.close(NULL, fd); /* close gives the descriptor back even when it fails */
    errno = cause;
    return failed ? -1 : result;
}

static inline int disk_make_folder(void *context, const char *path)
{
    return fails(context, "make_folder", -1, path, NULL) ? -1 : tm_checkpoint_system_io.make_folder(NULL, path);
}

static inline int disk_sync_folder(void *context, const char *path)
{
    return fails(context, "sync_folder", -1, path, NULL) ? -1 : tm_checkpoint_system_io.sync_folder(NULL, path);
}

static inline int disk_rename(void *context, const char *from, const char *to)
{
    return fails(context, "rename", -1, from, to) ? -1 : tm_checkpoint_system_io.rename(NULL, from, to);
}

static inline int disk_remove_file(void *context, const char *path)
{
    return fails(context, "remove_file", -1, path, NULL) ? -1 : tm_checkpoint_system_io.remove_file(NULL, path);
}

static inline int disk_remove_folder(void *context, const char *path)
{
    return fails(context, "remove_folder", -1, path, NULL) ? -1 : tm_checkpoint_system_io.remove_folder(NULL, path);
}

static inline int disk_open(void *context, const char *path)
{
    return fails(context, "open", -1, path, NULL) ? -1 : tm_checkpoint_system_io.open(NULL, path);
}

static inline int64_t disk_size(void *context, int fd)
{
    disk *d = context;
    if (!fails(d, "size", fd, NULL, NULL)) return tm_checkpoint_system_io.size(NULL, fd);
    return d->is_dead || d->error ? -1 : tm_checkpoint_system_io.size(NULL, fd) - 1;
}

static inline ssize_t disk_read_at(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    disk *d = context;
    if (fails(d, "read_at", fd, NULL, NULL)) return d->is_dead || d->error ? -1 : 0;
    return tm_checkpoint_system_io.read_at(NULL, fd, data, d->most && d->most < bytes ? d->most : bytes, offset);
}

static inline tm_checkpoint_io table_of(disk *d)
{
    return (tm_checkpoint_io){ d,
                               .create = disk_create,
                               .write = disk_write,
                               .sync = disk_sync,
                               .close = disk_close,
                               .make_folder = disk_make_folder,
                               .sync_folder = disk_sync_folder,
                               .rename = disk_rename,
                               .remove_file = disk_remove_file,
                               .remove_folder = disk_remove_folder,
                               .open = disk_open,
                               .size = disk_size,
                               .read_at = disk_read_at };
}

#endif

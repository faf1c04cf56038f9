/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/disk_fixture.h - a disk under checkpoints that fails at one call, takes the process along or loses power.
 */
#ifndef TM_TESTS_DISK_FIXTURE_H
#define TM_TESTS_DISK_FIXTURE_H

#include "checkpoint_fixture.h"

#include <errno.h>

enum { MAX_NODES = 64, MAX_FDS = 1024, PATH_ROOM = 512 };

typedef enum {
    FAIL_ONCE, /* the k-th call fails or, with error 0, ends early; the process lives on */
    CRASH,     /* the k-th and all later calls do nothing: the process is dead, what it wrote is there */
    POWER_CUT, /* like CRASH, and what was not flushed is lost */
} fault_kind;

/* A file or folder that was made through the table, and how much of it would survive a power cut. */
typedef struct {
    char path[PATH_ROOM];
    bool is_live, is_folder;
    bool is_flushed; /* its content */
    bool is_linked;  /* its name: the folder above was flushed */
} node;

typedef struct {
    char from[PATH_ROOM], to[PATH_ROOM];
} move;

typedef struct {
    fault_kind  kind;
    int         error;   /* of the failing call */
    int         fail_at; /* 1 is the first call; 0: never */
    int         calls;
    bool        is_dead;
    size_t      most;   /* bytes of a single read; 0: any */
    bool        needed; /* only calls without which nothing can be saved fail */
    const char *name;   /* of the call that failed */
    node        nodes[MAX_NODES];
    size_t      n_nodes;
    int         node_of_fd[MAX_FDS];
    move        moves[8]; /* renames whose folder was not flushed yet */
    size_t      n_moves;
} disk;

static inline bool fails(disk *d, const char *name)
{
    static const char other[] = "close remove_file remove_folder open size read_at";
    if (d->needed && strstr(other, name)) return false;
    d->calls++;
    bool now = d->is_dead || d->calls == d->fail_at;
    if (now) d->name = name;
    if (now && d->kind != FAIL_ONCE) d->is_dead = true;
    if (now) errno = d->is_dead ? EIO : d->error;
    return now;
}

static inline node *add_node(disk *d, const char *path, bool is_folder)
{
    assert_true(d->n_nodes < MAX_NODES);
    node *n = &d->nodes[d->n_nodes++];
    *n = (node){ .is_live = true, .is_folder = is_folder, .is_flushed = is_folder };
    snprintf(n->path, sizeof n->path, "%s", path);
    return n;
}

static inline bool is_inside(const char *path, const char *folder, bool directly)
{
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0 || path[length] != '/') return false;
    return !directly || !strchr(path + length + 1, '/');
}

static inline int disk_create(void *context, const char *path)
{
    disk *d = context;
    if (fails(d, "create")) return -1;
    int fd = tm_checkpoint_system_io.create(NULL, path);
    if (fd >= 0) {
        assert_true(fd < MAX_FDS);
        d->node_of_fd[fd] = (int)(add_node(d, path, false) - d->nodes);
    }
    return fd;
}

static inline ssize_t disk_write(void *context, int fd, const void *data, size_t bytes)
{
    disk *d = context;
    if (fails(d, "write")) return d->is_dead || d->error ? -1 : 0;
    d->nodes[d->node_of_fd[fd]].is_flushed = false;
    return tm_checkpoint_system_io.write(NULL, fd, data, bytes);
}

static inline int disk_sync(void *context, int fd)
{
    disk *d = context;
    if (fails(d, "sync")) return -1;
    d->nodes[d->node_of_fd[fd]].is_flushed = true;
    return tm_checkpoint_system_io.sync(NULL, fd);
}

static inline int disk_close(void *context, int fd)
{
    int failed = fails(context, "close"), cause = errno;
    int result = tm_checkpoint_system_io.close(NULL, fd); /* close gives the descriptor back even when it fails */
    errno = cause;
    return failed ? -1 : result;
}

static inline int disk_make_folder(void *context, const char *path)
{
    disk *d = context;
    if (fails(d, "make_folder")) return -1;
    add_node(d, path, true);
    return tm_checkpoint_system_io.make_folder(NULL, path);
}

static inline int disk_sync_folder(void *context, const char *path)
{
    disk *d = context;
    if (fails(d, "sync_folder")) return -1;
    for (size_t i = 0; i < d->n_nodes; i++)
        if (is_inside(d->nodes[i].path, path, true)) d->nodes[i].is_linked = true;
    if (d->n_moves > 0 && is_inside(d->moves[0].to, path, true)) d->n_moves = 0; /* all are in one folder */
    return tm_checkpoint_system_io.sync_folder(NULL, path);
}

static inline void rename_nodes(disk *d, const char *from, const char *to)
{
    for (size_t i = 0; i < d->n_nodes; i++) {
        char was[PATH_ROOM];
        memcpy(was, d->nodes[i].path, sizeof was);
        if (strcmp(was, from) == 0 || is_inside(was, from, false))
            snprintf(d->nodes[i].path, PATH_ROOM, "%.200s%.300s", to, was + strlen(from));
    }
}

static inline int disk_rename(void *context, const char *from, const char *to)
{
    disk *d = context;
    if (fails(d, "rename")) return -1;
    int result = tm_checkpoint_system_io.rename(NULL, from, to);
    if (result != 0) return result;
    rename_nodes(d, from, to);
    move *m = &d->moves[d->n_moves++];
    snprintf(m->from, sizeof m->from, "%s", from);
    snprintf(m->to, sizeof m->to, "%s", to);
    return 0;
}

static inline void forget(disk *d, const char *path)
{
    for (size_t i = 0; i < d->n_nodes; i++)
        if (strcmp(d->nodes[i].path, path) == 0) d->nodes[i].is_live = false;
}

static inline int disk_remove_file(void *context, const char *path)
{
    if (fails(context, "remove_file")) return -1;
    forget(context, path);
    return tm_checkpoint_system_io.remove_file(NULL, path);
}

static inline int disk_remove_folder(void *context, const char *path)
{
    if (fails(context, "remove_folder")) return -1;
    forget(context, path);
    return tm_checkpoint_system_io.remove_folder(NULL, path);
}

static inline int disk_open(void *context, const char *path)
{
    return fails(context, "open") ? -1 : tm_checkpoint_system_io.open(NULL, path);
}

static inline int64_t disk_size(void *context, int fd)
{
    disk *d = context;
    if (!fails(d, "size")) return tm_checkpoint_system_io.size(NULL, fd);
    return d->is_dead || d->error ? -1 : tm_checkpoint_system_io.size(NULL, fd) - 1;
}

static inline ssize_t disk_read_at(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    disk *d = context;
    if (fails(d, "read_at")) return d->is_dead || d->error ? -1 : 0;
    return tm_checkpoint_system_io.read_at(NULL, fd, data, d->most && d->most < bytes ? d->most : bytes, offset);
}

static inline tm_checkpoint_io table_of(disk *d)
{
    return (tm_checkpoint_io){
        .context = d,
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
        .read_at = disk_read_at,
    };
}

/* What a file system may make of it: the last `undone` renames did not happen, names that were not flushed are gone,
 * files that were not flushed are half as long (or, every other time, full of zeros). */
static inline void cut_power(disk *d, size_t undone, bool zeros)
{
    while (d->n_moves > 0 && undone-- > 0) {
        move *m = &d->moves[--d->n_moves];
        assert_int_equal(rename(m->to, m->from), 0);
        rename_nodes(d, m->to, m->from);
    }
    for (size_t i = 0; i < d->n_nodes; i++) {
        node       *n = &d->nodes[i];
        struct stat info;
        if (!n->is_live) continue;
        if (!n->is_linked && !(n->is_folder && d->n_moves > 0)) {
            test_tree_remove(strdup(n->path));
        } else if (!n->is_flushed && stat(n->path, &info) == 0) {
            assert_int_equal(truncate(n->path, zeros ? 0 : info.st_size / 2), 0);
            if (zeros) assert_int_equal(truncate(n->path, info.st_size), 0);
        }
    }
}

#endif

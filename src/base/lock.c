/* SPDX-License-Identifier: Apache-2.0 */
#include "base/again.h"
#include "base/lock.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME "run.lock"

/* --- a folder's owner --------------------------------------------------------------------------------------------- */

bool tm_folder_on_network(const char *folder)
{
    /* nfs, smb, cifs, smb2, afs, ceph, lustre, gpfs, beegfs, panfs, ocfs2, gfs2, 9p, fuse (sshfs, glusterfs) */
    static const unsigned magic[] = { 0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x5346414F,
                                      0x00C36400, 0x0BD00BD0, 0x47504653, 0x19830326, 0xAAD7AAEA,
                                      0x7461636F, 0x01161970, 0x01021997, 0x65735546 };
    struct statfs         info;
    if (statfs(folder, &info) != 0) return false;
    for (size_t i = 0; i < sizeof magic / sizeof magic[0]; i++)
        if ((unsigned)info.f_type == magic[i]) return true;
    return false;
}

static bool same_file(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

/* What the file says: "process 123 on host box since ...", "" if nobody is named. */
static void read_owner(int fd, char out[200])
{
    ssize_t n = pread(fd, out, 199, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static bool names_host(const char *owner, const char *host)
{
    const char *at = strstr(owner, " on host ");
    size_t      n = strlen(host);
    return at && strncmp(at + 9, host, n) == 0 && (at[9 + n] == ' ' || !at[9 + n]);
}

static tm_status in_use(const char *folder, const char *owner, tm_error *err)
{
    return tm_fail(err, TM_INVALID, "'%s' is in use by %s; give each run a directory of its own (--out DIR)", folder,
                   *owner ? owner : "another process");
}

/* Whoever had it may just have removed or renamed the file: then the next one counts. */
int tm_file_lock(const char *path, int *fd, int *cause)
{
    for (;;) {
        *fd = tm_file_open_lock(path);
        if (*fd < 0) return *cause = errno, 0;
        while (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EINTR) continue;
            return *cause = errno, errno == EWOULDBLOCK ? -1 : 0;
        }
        if (same_file(*fd, path)) return 1;
        close(*fd);
    }
}

static void write_owner(int fd, const char *host)
{
    char text[200], now[32];
    int  n =
        snprintf(text, sizeof text, "process %ld on host %.80s since %s\n", (long)getpid(), host, tm_wall_text(now));
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) return; /* the lock counts, not the words */
    (void)tm_again_sync(fd);                                                  /* other hosts read it */
}

tm_status tm_folder_lock_take_as(const char *folder, const char *host, bool network, tm_folder_lock *out, tm_error *err)
{
    char path[4096 + 16], owner[200];
    int  cause = 0;
    *out = (tm_folder_lock){ .fd = -1, .folder = -1 };
    if ((size_t)snprintf(path, sizeof path, "%s/" LOCK_NAME, folder) >= sizeof path)
        return tm_fail(err, TM_INVALID, "path is too long: '%s'", folder);
    int locked = tm_file_lock(path, &out->fd, &cause);
    if (out->fd < 0)
        return tm_fail(err, TM_IO, "cannot lock '%s' (" LOCK_NAME "): %s; name another directory with --out", folder,
                       strerror(cause));
    read_owner(out->fd, owner);
    bool foreign = network && *owner && !names_host(owner, host);
    if (locked < 0 || foreign) {
        close(out->fd);
        *out = (tm_folder_lock){ .fd = -1, .folder = -1 };
        if (locked < 0) return in_use(folder, owner, err);
        return tm_fail(
            err, TM_INVALID,
            "'%s' lies on a network file system and names %s as its owner, which did not end well or is still "
            "there; if it is gone, remove '%s'",
            folder, owner, path);
    }
    if (locked == 0)
        tm_warn("'%s' is on a file system without locks (%s): another run could write there at the same time", folder,
                strerror(cause));
    write_owner(out->fd, host);
    out->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    out->path = tm_alloc(strlen(folder) + 1);
    strcpy(out->path, folder);
    return TM_OK;
}

tm_status tm_folder_lock_take(const char *folder, tm_folder_lock *out, tm_error *err)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "unknown");
    return tm_folder_lock_take_as(folder, host, tm_folder_on_network(folder), out, err);
}

tm_status tm_folder_lock_check(const tm_folder_lock *lock, tm_error *err)
{
    if (lock->folder < 0 || same_file(lock->folder, lock->path)) return TM_OK;
    return tm_fail(
        err, TM_IO,
        "'%s' was removed or replaced during the run: its records are lost; do not remove the directory of a run",
        lock->path);
}

void tm_folder_lock_release(tm_folder_lock *lock)
{
    if (!lock->path) return;
    char path[4096 + 16];
    snprintf(path, sizeof path, "%s/" LOCK_NAME, lock->path);
    if (same_file(lock->fd, path)) unlink(path);
    close(lock->fd);
    if (lock->folder >= 0) close(lock->folder);
    free(lock->path);
    *lock = (tm_folder_lock){ .fd = -1, .folder = -1 };
}

/* --- folders for a while ------------------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void tm_folder_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Ours, and of a process that is gone? One that has no lock yet may be just being made. */
static bool left_behind(const char *path)
{
    enum { YOUNG_SECONDS = 600 };
    struct stat info;
    int         folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool        gone = false;
    if (folder < 0) return false;
    if (fstat(folder, &info) == 0 && info.st_uid == geteuid()) {
        int lock = openat(folder, LOCK_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        gone = lock >= 0 ? flock(lock, LOCK_EX | LOCK_NB) == 0 : info.st_mtime + YOUNG_SECONDS < time(NULL);
        if (lock >= 0) close(lock);
    }
    close(folder);
    return gone;
}

static void sweep(const char *base, const char *prefix)
{
    size_t n = strlen(prefix);
    DIR   *dir = opendir(base);
    if (!dir) return;
    for (const struct dirent *d; (d = readdir(dir));) {
        char path[4096];
        if (strncmp(d->d_name, prefix, n) != 0 || d->d_name[n] != '-') continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", base, d->d_name) >= sizeof path) continue;
        if (left_behind(path)) tm_folder_remove(path);
    }
    closedir(dir);
}

tm_status tm_scratch_make(const char *prefix, tm_scratch *out, tm_error *err)
{
    const char *base = getenv("TMPDIR");
    return tm_scratch_make_in(base && *base ? base : "/tmp", prefix, out, err);
}

tm_status tm_scratch_make_in(const char *base, const char *prefix, tm_scratch *out, tm_error *err)
{
    *out = (tm_scratch){ .lock = -1 };
    sweep(base, prefix);
    if ((size_t)snprintf(out->path, sizeof out->path - 16, "%s/%s-XXXXXX", base, prefix) < sizeof out->path - 16 &&
        mkdtemp(out->path)) {
        char path[4096];
        strcpy(path, out->path);
        strcat(path, "/" LOCK_NAME);
        out->lock = tm_file_open_lock(path);
        if (out->lock >= 0) (void)flock(out->lock, LOCK_EX | LOCK_NB);
        return TM_OK;
    }
    tm_status st = tm_fail(err, TM_IO, "cannot make a directory in '%s': %s", base, strerror(errno));
    out->path[0] = '\0';
    return st;
}

void tm_scratch_remove(tm_scratch *scratch)
{
    if (!scratch->path[0]) return;
    tm_folder_remove(scratch->path);
    if (scratch->lock >= 0) close(scratch->lock);
    *scratch = (tm_scratch){ .lock = -1 };
}

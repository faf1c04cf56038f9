/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/kept.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tm_gpu_kept_find(tm_gpu_kept *kept)
{
    const char *given = getenv("TRAINMARK_KERNELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char        path[PATH_MAX];
    struct stat about;
    int         n = -1;
    kept->folder[0] = '\0';
    if (given)
        n = snprintf(path, sizeof path, "%s", given);
    else if (cache && *cache == '/')
        n = snprintf(path, sizeof path, "%s/trainmark/kernels", cache);
    else if (home && *home == '/')
        n = snprintf(path, sizeof path, "%s/.cache/trainmark/kernels", home);
    if (n <= 0 || (size_t)n >= sizeof path) return;
    if (!tm_file_exists(path)) {
        tm_error ignored = { 0 };
        if (tm_folder_make(path, &ignored) != TM_OK || chmod(path, 0700) != 0) return;
    }
    if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077))
        return;
    memcpy(kept->folder, path, (size_t)n + 1);
}

/* A file: these, then the bytes. */
typedef struct {
    char     magic[8];
    uint64_t key, bytes, hash;
} header;

static const char magic[8] = "TMKERN1";

static bool path_of(const tm_gpu_kept *kept, uint64_t key, char path[PATH_MAX])
{
    if (!*kept->folder) return false;
    return snprintf(path, PATH_MAX, "%s/%016llx", kept->folder, (unsigned long long)key) < PATH_MAX;
}

static bool read_all(int fd, void *to, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t n = read(fd, (char *)to + have, bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return true;
}

bool tm_gpu_kept_recall(const tm_gpu_kept *kept, uint64_t key, void **data, size_t *bytes)
{
    enum { LIMIT = 256 << 20 };
    char   path[PATH_MAX];
    header h;
    int    fd = path_of(kept, key, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0) return false;
    void *read = NULL;
    bool  good = read_all(fd, &h, sizeof h) && memcmp(h.magic, magic, sizeof magic) == 0 && h.key == key &&
                h.bytes > 0 && h.bytes <= LIMIT;
    if (good) {
        read = tm_alloc(h.bytes);
        good = read_all(fd, read, h.bytes) && tm_hash(read, h.bytes) == h.hash;
    }
    close(fd);
    if (!good) {
        free(read);
        return false;
    }
    *data = read;
    *bytes = h.bytes;
    return true;
}

void tm_gpu_kept_store(const tm_gpu_kept *kept, uint64_t key, const void *data, size_t bytes)
{
    char     path[PATH_MAX];
    header   h = { .key = key, .bytes = bytes, .hash = tm_hash(data, bytes) };
    tm_error ignored = { 0 };
    if (!path_of(kept, key, path)) return;
    memcpy(h.magic, magic, sizeof magic);
    char *all = tm_alloc(sizeof h + bytes);
    memcpy(all, &h, sizeof h);
    memcpy(all + sizeof h, data, bytes);
    tm_status st = tm_file_write(path, all, sizeof h + bytes, &ignored);
    (void)st;
    free(all);
}

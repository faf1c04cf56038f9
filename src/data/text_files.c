/* SPDX-License-Identifier: Apache-2.0 */
/* data/text_files.c - walks a folder in a fixed order and reads or maps its files.
 *
 * What a file is, is asked before it is opened (opening a device may act on it) and again after (it may have been
 * changed in between); it is opened non-blocking, so that nothing waits for a fifo's other end.
 */
#include "data/text_files.h"

#include "base/file.h"
#include "base/mapped.h"
#include "base/text.h"
#include "base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    dev_t device;
    ino_t inode;
    bool  used;
} identity;

typedef struct {
    tm_text_files *out;
    identity      *seen; /* open addressing; size is a power of two */
    size_t         seen_size, seen_count;
    identity       stack[TM_TEXT_MAX_DEPTH + 1]; /* the folders we are in */
    tm_error      *err;
} walk;

static tm_status visit(walk *w, const char *path, int depth);

static bool same(const identity *a, const struct stat *b)
{
    return a->used && a->device == b->st_dev && a->inode == b->st_ino;
}

static identity *find(identity *table, size_t size, const struct stat *info)
{
    uint64_t h = ((uint64_t)info->st_ino ^ (uint64_t)info->st_dev << 40) * 0x9E3779B97F4A7C15u;
    size_t   i = (size_t)(h >> 32) & (size - 1);
    while (table[i].used && !same(&table[i], info)) i = (i + 1) & (size - 1);
    return &table[i];
}

/* True the second time. */
static bool seen_before(walk *w, const struct stat *info)
{
    if (2 * (w->seen_count + 1) > w->seen_size) {
        size_t    size = w->seen_size ? 2 * w->seen_size : 256;
        identity *table = tm_alloc(size * sizeof *table);
        for (size_t i = 0; i < w->seen_size; i++) {
            struct stat old = { .st_dev = w->seen[i].device, .st_ino = w->seen[i].inode };
            if (w->seen[i].used) *find(table, size, &old) = w->seen[i];
        }
        free(w->seen);
        w->seen = table;
        w->seen_size = size;
    }
    identity *place = find(w->seen, w->seen_size, info);
    if (place->used) return true;
    *place = (identity){ info->st_dev, info->st_ino, true };
    w->seen_count++;
    return false;
}

static const char *kind_of(mode_t mode)
{
    if (S_ISFIFO(mode)) return "a fifo";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "neither a file nor a directory";
}

static tm_status cannot_reach(walk *w, const char *path, int cause)
{
    struct stat link;
    bool        is_link = lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    if (is_link && cause == ELOOP)
        return tm_fail(w->err, TM_INVALID, "'%s' is a symbolic link that leads back to itself; remove it", path);
    if (is_link && cause == ENOENT)
        return tm_fail(w->err, TM_INVALID, "'%s' is a dangling symbolic link; remove it or fix its target", path);
    if (cause == EACCES)
        return tm_fail(w->err, TM_INVALID, "cannot reach '%s': %s; give read permission or leave it out of data.path",
                       path, strerror(cause));
    return tm_fail(w->err, TM_INVALID, "cannot reach '%s': %s; wanted a file or a directory of text", path,
                   strerror(cause));
}

static int64_t changed_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* Bytes read; fewer than `size`: the file ends there. -1 and errno. */
static int64_t read_all(int fd, uint8_t *to, int64_t size)
{
    int64_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, to + done, (size_t)(size - done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += n;
    }
    return done;
}

static tm_status copy_file(walk *w, const char *path, int fd, tm_text_file *file)
{
    uint8_t *bytes = tm_alloc((size_t)file->size);
    int64_t  n = read_all(fd, bytes, file->size);
    file->bytes = bytes;
    if (n == file->size) return TM_OK;
    free(bytes);
    if (n < 0) return tm_fail(w->err, TM_INVALID, "cannot read '%s': %s", path, strerror(errno));
    return tm_fail(w->err, TM_INVALID, "'%s' was truncated while it was read; keep data.path unchanged during a run",
                   path);
}

static tm_status take_file(walk *w, const char *path, int fd, const struct stat *info)
{
    tm_text_files *out = w->out;
    tm_text_file   file = { .size = info->st_size, .changed_ns = changed_ns(info) };
    file.mapped = file.size > TM_TEXT_COPY_BYTES - out->copied;
    if (file.mapped) {
        void *bytes = mmap(NULL, (size_t)file.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            return tm_fail(w->err, TM_INVALID,
                           "cannot map '%s' (%lld bytes) into memory: %s; join small files or leave it out", path,
                           (long long)file.size, strerror(errno));
        file.bytes = bytes;
    } else {
        TM_TRY(copy_file(w, path, fd, &file));
        out->copied += file.size;
    }
    file.path = tm_alloc(strlen(path) + 1);
    strcpy(file.path, path);
    if (file.mapped) tm_mapped_add(file.bytes, (size_t)file.size, file.path);
    out->files = tm_grow(out->files, &out->capacity, out->count, sizeof *out->files);
    out->files[out->count++] = file;
    TM_TRY(tm_file_check_fetched(path, file.bytes, (size_t)file.size, w->err));
    out->bytes += file.size;
    out->content = tm_fingerprint(out->content, file.bytes, file.size);
    return TM_OK;
}

static tm_status open_file(walk *w, const char *path)
{
    tm_text_files *out = w->out;
    struct stat    info;
    if (out->count >= TM_TEXT_MAX_FILES)
        return tm_fail(w->err, TM_INVALID,
                       "more than %d files of text, the last of them '%s'; join them into fewer files",
                       TM_TEXT_MAX_FILES, path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return tm_fail(w->err, TM_INVALID, "cannot read '%s': %s; give read permission or leave it out of data.path",
                       path, strerror(errno));
    tm_status st = TM_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        st = tm_fail(w->err, TM_INVALID, "'%s' is no longer a regular file; keep data.path unchanged during a run",
                     path);
    } else if (info.st_size == 0) {
        out->empty++;
    } else {
        st = take_file(w, path, fd, &info);
    }
    close(fd);
    return st;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder, sorted, hidden ones left out; free each and the list. */
static tm_status list_folder(walk *w, const char *path, char ***out, size_t *n_out)
{
    char **names = NULL;
    size_t count = 0, capacity = 0;
    DIR   *folder = opendir(path);
    if (!folder)
        return tm_fail(w->err, TM_INVALID,
                       "cannot read directory '%s': %s; give read permission or leave it out of data.path", path,
                       strerror(errno));
    tm_status st = TM_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry) {
            if (errno) st = tm_fail(w->err, TM_INVALID, "cannot read directory '%s': %s", path, strerror(errno));
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (entry->d_name[0] == '.') {
            w->out->hidden++;
            continue;
        }
        size_t bytes = strlen(entry->d_name) + 1;
        names = tm_grow(names, &capacity, count, sizeof *names);
        names[count] = tm_alloc(bytes);
        memcpy(names[count++], entry->d_name, bytes);
    }
    closedir(folder);
    if (count > 0) qsort(names, count, sizeof *names, by_bytes);
    *out = names;
    *n_out = count;
    return st;
}

static tm_status visit_folder(walk *w, const char *path, const struct stat *info, int depth)
{
    for (int i = 0; i < depth; i++)
        if (same(&w->stack[i], info))
            return tm_fail(w->err, TM_INVALID,
                           "'%s' is a symbolic link to a directory that it lies in: a loop; remove it", path);
    if (depth > TM_TEXT_MAX_DEPTH)
        return tm_fail(w->err, TM_INVALID,
                       "directory '%s' is more than %d levels deep; give a directory closer to the text", path,
                       TM_TEXT_MAX_DEPTH);
    if (seen_before(w, info)) {
        w->out->repeated++;
        return TM_OK;
    }
    w->stack[depth] = (identity){ info->st_dev, info->st_ino, true };
    char    **names = NULL;
    size_t    count = 0;
    tm_status st = list_folder(w, path, &names, &count);
    for (size_t i = 0; i < count; i++) {
        if (st == TM_OK) {
            tm_text child = { 0 };
            tm_text_printf(&child, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", names[i]);
            st = visit(w, child.data, depth + 1);
            tm_text_fini(&child);
        }
        free(names[i]);
    }
    free(names);
    return st;
}

static tm_status visit(walk *w, const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0) return cannot_reach(w, path, errno);
    if (S_ISDIR(info.st_mode)) return visit_folder(w, path, &info, depth);
    if (!S_ISREG(info.st_mode))
        return tm_fail(w->err, TM_INVALID,
                       "'%s' is %s, wanted a regular file of text; remove it or choose another data.path", path,
                       kind_of(info.st_mode));
    if (seen_before(w, &info)) {
        w->out->repeated++;
        return TM_OK;
    }
    return open_file(w, path);
}

tm_status tm_text_files_open(const char *path, tm_text_files *out, tm_error *err)
{
    *out = (tm_text_files){ 0 };
    walk      w = { .out = out, .err = err };
    tm_status st = visit(&w, path, 0);
    free(w.seen);
    if (st != TM_OK) tm_text_files_close(out);
    return st;
}

bool tm_text_file_unchanged(const tm_text_file *file)
{
    struct stat info;
    return stat(file->path, &info) == 0 && info.st_size == file->size && changed_ns(&info) == file->changed_ns;
}

tm_status tm_text_file_check(const tm_text_file *file, tm_error *err)
{
    if (!file->mapped || tm_text_file_unchanged(file)) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' was changed during the run; keep data.path unchanged", file->path);
}

void tm_text_files_close(tm_text_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        tm_text_file *file = &files->files[i];
        if (file->mapped) {
            tm_mapped_remove(file->bytes);
            munmap((void *)file->bytes, (size_t)file->size);
        } else {
            free((void *)file->bytes);
        }
        free(file->path);
    }
    free(files->files);
    *files = (tm_text_files){ 0 };
}

bool tm_is_binary(const char *bytes, size_t n)
{
    size_t bad = 0;
    if (memchr(bytes, 0, n)) return true;
    for (size_t i = 0, length; i + 4 < n; i += length ? length : 1) {
        length = tm_utf8_length((const unsigned char *)bytes + i);
        bad += length == 0;
    }
    return bad > n / 10;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), e = strlen(ending);
    return n > e && strcmp(path + n - e, ending) == 0;
}

tm_status tm_text_files_check(const tm_text_files *files, tm_error *err)
{
    static const char *const packed[] = { ".jsonl", ".gz", ".zst", ".parquet" };
    enum { LOOK = 1 << 16 };
    for (size_t i = 0; i < files->count; i++) {
        const tm_text_file *f = &files->files[i];
        size_t              look = f->size < LOOK ? (size_t)f->size : LOOK;
        for (size_t k = 0; k < sizeof packed / sizeof packed[0]; k++)
            if (ends_in(f->path, packed[k]))
                return tm_fail(err, TM_INVALID,
                               "'%s' is not plain text (%s); make tokens of it: trainmark data tokenize %s -o PREFIX "
                               "--tokenizer FILE, then data.source megatron, data.path PREFIX; rows for fine-tuning: "
                               "data.source sft",
                               f->path, packed[k], f->path);
        if (tm_is_binary((const char *)f->bytes, look))
            return tm_fail(
                err, TM_INVALID,
                "'%s' is a binary file, wanted text; move it elsewhere, or leave it out with `trainmark data "
                "tokenize`; token files are for data.source megatron and govreport",
                f->path);
    }
    return TM_OK;
}

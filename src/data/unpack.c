/* SPDX-License-Identifier: Apache-2.0 */
#include "data/unpack.h"

#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { PART = 1 << 17 };

struct tm_unpack {
    char *path;
    int   fd;
    enum { PLAIN, GZIP, ZSTD } kind;
    int64_t       place;
    uint8_t      *part; /* packed bytes */
    size_t        at, have;
    z_stream      gzip;
    ZSTD_DStream *zstd;
    bool          inside; /* a packed stream has begun and not ended */
};

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

tm_status tm_unpack_open(const char *path, tm_unpack **out, tm_error *err)
{
    struct stat info;
    int         fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return tm_fail(err, TM_INVALID, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tm_fail(err, TM_INVALID, "'%s' is not a regular file", path);
    }
    tm_unpack *u = tm_alloc(sizeof *u);
    u->fd = fd;
    u->path = tm_alloc(strlen(path) + 1);
    strcpy(u->path, path);
    u->part = tm_alloc(PART);
    u->kind = ends_in(path, ".gz") ? GZIP : ends_in(path, ".zst") ? ZSTD : PLAIN;
    if (u->kind == GZIP) TM_ASSERT(inflateInit2(&u->gzip, 15 + 16) == Z_OK);
    if (u->kind == ZSTD) TM_ASSERT((u->zstd = ZSTD_createDStream()) != NULL);
    *out = u;
    return TM_OK;
}

void tm_unpack_close(tm_unpack *unpack)
{
    if (!unpack) return;
    if (unpack->kind == GZIP) inflateEnd(&unpack->gzip);
    ZSTD_freeDStream(unpack->zstd);
    close(unpack->fd);
    free(unpack->part);
    free(unpack->path);
    free(unpack);
}

int64_t tm_unpack_place(const tm_unpack *unpack)
{
    return unpack->place;
}

static tm_status read_file(tm_unpack *u, void *out, size_t n, size_t *got, tm_error *err)
{
    ssize_t r;
    do r = read(u->fd, out, n);
    while (r < 0 && errno == EINTR);
    if (r < 0) return tm_fail(err, TM_INVALID, "cannot read '%s': %s", u->path, strerror(errno));
    *got = (size_t)r;
    u->place += r;
    return TM_OK;
}

static tm_status damaged(const tm_unpack *u, const char *why, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s', near byte %lld: %s; it is damaged or truncated", u->path, (long long)u->place,
                   why);
}

/* One call of the library; *got bytes came out. Several packed streams one after another are one text. */
static tm_status step(tm_unpack *u, void *out, size_t n, size_t *got, tm_error *err)
{
    if (u->kind == GZIP) {
        if (!u->inside) inflateReset(&u->gzip);
        u->gzip.next_in = u->part + u->at;
        u->gzip.avail_in = (uInt)(u->have - u->at);
        u->gzip.next_out = out;
        u->gzip.avail_out = (uInt)n;
        int code = inflate(&u->gzip, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return damaged(u, u->gzip.msg ? u->gzip.msg : "not a gzip file", err);
        u->at = u->have - u->gzip.avail_in;
        *got = n - u->gzip.avail_out;
        u->inside = code != Z_STREAM_END;
        return TM_OK;
    }
    ZSTD_inBuffer  in = { u->part + u->at, u->have - u->at, 0 };
    ZSTD_outBuffer to = { out, n, 0 };
    size_t         code = ZSTD_decompressStream(u->zstd, &to, &in);
    if (ZSTD_isError(code)) return damaged(u, ZSTD_getErrorName(code), err);
    u->at += in.pos;
    *got = to.pos;
    u->inside = code != 0;
    return TM_OK;
}

tm_status tm_unpack_read(tm_unpack *u, void *out, size_t n, size_t *got, tm_error *err)
{
    if (n > 1 << 30) n = 1 << 30;
    if (u->kind == PLAIN) return read_file(u, out, n, got, err);
    for (*got = 0; *got == 0;) {
        bool ended = false;
        if (u->at == u->have) {
            u->at = 0;
            TM_TRY(read_file(u, u->part, PART, &u->have, err));
            ended = u->have == 0;
        }
        if (ended && !u->inside) return TM_OK;
        TM_TRY(step(u, out, n, got, err));
        if (ended && *got == 0) return damaged(u, "it ends in the middle", err);
    }
    return TM_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "data/output.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tm_status tm_output_open(const char *path, tm_output *out, tm_error *err)
{
    size_t room = strlen(path) + 32;
    *out = (tm_output){ .path = tm_alloc(room), .temporary = tm_alloc(room) };
    strcpy(out->path, path);
    snprintf(out->temporary, room, "%s.tmp.%ld", path, (long)getpid());
    out->file = fopen(out->temporary, "wbe");
    if (out->file) return TM_OK;
    tm_status st = tm_fail(err, TM_IO, "cannot create '%s': %s", out->temporary, strerror(errno));
    tm_output_abandon(out);
    return st;
}

void tm_output_bytes(tm_output *out, const void *bytes, size_t n)
{
    errno = 0;
    if (n > 0 && fwrite(bytes, 1, n, out->file) != n && !out->cause) out->cause = errno ? errno : EIO;
}

void tm_output_number(tm_output *out, uint64_t value, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++) little[i] = (uint8_t)(value >> 8 * i);
    tm_output_bytes(out, little, (size_t)bytes);
}

void tm_output_abandon(tm_output *out)
{
    if (out->file) {
        fclose(out->file);
        unlink(out->temporary);
    }
    free(out->path);
    free(out->temporary);
    *out = (tm_output){ 0 };
}

tm_status tm_output_close(tm_output *out, tm_error *err)
{
    errno = 0;
    if ((fflush(out->file) != 0 || fsync(fileno(out->file)) != 0) && !out->cause) out->cause = errno ? errno : EIO;
    if (!out->cause && rename(out->temporary, out->path) != 0) out->cause = errno;
    if (out->cause) {
        tm_status st = tm_fail(err, TM_IO, "cannot write '%s': %s", out->path, strerror(out->cause));
        tm_output_abandon(out);
        return st;
    }
    fclose(out->file);
    out->file = NULL;
    tm_status st = tm_folder_sync_of(out->path, err);
    tm_output_abandon(out);
    return st;
}

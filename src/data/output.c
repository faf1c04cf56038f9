/* SPDX-License-Identifier: Apache-2.0 */
#include "data/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

tm_status tm_output_open(const char *path, tm_output *out, tm_error *err)
{
    *out = (tm_output){ 0 };
    TM_TRY(tm_file_draft_open(path, &out->draft, err));
    int fd = fcntl(out->draft.fd, F_DUPFD_CLOEXEC, 0);
    out->file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (out->file) return TM_OK;
    tm_status st = tm_fail(err, TM_IO, "cannot create '%s': %s", path, strerror(errno));
    if (fd >= 0) close(fd);
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
    if (out->file) fclose(out->file);
    tm_file_draft_discard(&out->draft);
    *out = (tm_output){ 0 };
}

tm_status tm_output_close(tm_output *out, tm_error *err)
{
    errno = 0;
    if (fclose(out->file) != 0 && !out->cause) out->cause = errno ? errno : EIO;
    out->file = NULL;
    if (!out->cause) return tm_file_draft_publish(&out->draft, NULL, err);
    tm_status st = tm_fail(err, TM_IO, "cannot write '%s': %s", out->draft.path, strerror(out->cause));
    tm_output_abandon(out);
    return st;
}

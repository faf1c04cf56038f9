/* SPDX-License-Identifier: Apache-2.0 */
/* data/text_files.h - the regular files under a path, memory-mapped, in a fixed order; private to this room. */
#ifndef TM_DATA_TEXT_FILES_H
#define TM_DATA_TEXT_FILES_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_TEXT_MAX_FILES = 50000, TM_TEXT_MAX_DEPTH = 32 }; /* Linux allows a process 65530 mappings */
enum { TM_TEXT_COPY_BYTES = 64 << 20 };                     /* of all files together */

typedef struct {
    const uint8_t *bytes;
    int64_t        size; /* > 0 */
    char          *path;
    int64_t        changed_ns; /* time of the last change, since 1970 */
    bool           mapped;     /* else a copy */
} tm_text_file;

typedef struct {
    tm_text_file *files;
    size_t        count, capacity;
    int64_t       bytes;                   /* of all files */
    int64_t       copied;                  /* bytes of those that were read into memory */
    uint64_t      content;                 /* of all of them, in their order (tm_fingerprint) */
    int64_t       hidden, empty, repeated; /* left out: names with a leading dot, empty files, files seen before */
} tm_text_files;

/* Reads `path`, or each file under it: names in byte order, folders depth first. The first 64 MiB are copied, and so
 * safe from whatever happens to the files; what does not fit is mapped. A file or folder reached twice (links) counts
 * once. TM_INVALID with the cure for anything else than readable regular files and folders, for a link that closes a
 * loop, and beyond the limits above; *out is empty then. Mapped files must not change while they are open. */
TM_MUST_USE tm_status tm_text_files_open(const char *path, tm_text_files *out, tm_error *err);
/* Is the file, mapped or copied, as it was? One system call. */
bool tm_text_file_unchanged(const tm_text_file *file);
/* TM_INVALID if a mapped file is not. */
TM_MUST_USE tm_status tm_text_file_check(const tm_text_file *file, tm_error *err);
/* The beginning of a file: does it hold a zero, or a tenth of bytes that are not UTF-8? */
bool tm_is_binary(const char *bytes, size_t n);
/* Where bytes are tokens: packed files would be noise, and JSON lines would teach quotes and keys. TM_INVALID names the
 * first such file, and what to do with it. */
TM_MUST_USE tm_status tm_text_files_check(const tm_text_files *files, tm_error *err);
void                  tm_text_files_close(tm_text_files *files);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/package_files.h - private to the room: the folders of a package, without a way out of it. */
#ifndef TM_MLPERF_PACKAGE_FILES_H
#define TM_MLPERF_PACKAGE_FILES_H

#include "apps/mlperf/notes.h"

#include <stdbool.h>

enum { PACKAGE_ENTRIES = 20000, PACKAGE_DEPTH = 64, PACKAGE_FILE_BYTES = 52428800, PACKAGE_ALL = 1000000 };

typedef enum { ENTRY_FILE, ENTRY_FOLDER, ENTRY_OTHER, ENTRY_OUTSIDE, ENTRY_BROKEN } entry_kind;

typedef struct {
    const char *name, *path;
    entry_kind  kind; /* of what a link leads to */
    bool        link;
    long long   bytes;
} package_entry;

/* What is in a folder, by name, without . and ..; NULL if it cannot be read or has more than PACKAGE_ENTRIES. `root` is
 * the real path of the package. */
package_entry *package_list(const char *root, const char *path, tm_arena *arena, size_t *n);
/* What `path` is; ENTRY_BROKEN also if there is nothing. */
package_entry package_look(const char *root, const char *path, const char *name, tm_arena *arena);
/* The repository check: names, sizes, links of everything below `root`, and whether that is more than `most` entries.
 */
void package_check_repository(const char *root, size_t most, tm_notes *errors, tm_arena *arena);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/launched.h - is every kernel of src/device/gpu/source/modules.txt among those that were launched? */
#ifndef TESTS_GPU_LAUNCHED_H
#define TESTS_GPU_LAUNCHED_H

#include <limits.h>

#define MODULE_LIST "src/device/gpu/source/modules.txt"
enum { MODULE_LINE = 320 };

/* From here on launches are noted in a new file, whose name is `path` (STANDIN_GPU_LAUNCHED). */
void launched_begin(char path[PATH_MAX]);

/* Lines "MAKER TEXT DEFINITIONS: KERNEL" of the list are in that file, which is removed. texts: of these only, a blank
 * before and behind each; NULL: of all. Returns how many. */
int launched_all(const char *maker, const char *texts, const char *path);

#endif

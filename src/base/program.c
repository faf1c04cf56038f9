/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program.h"

#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

tm_status tm_program_path(char out[TM_PROGRAM_PATH], tm_error *err)
{
    ssize_t length = readlink("/proc/self/exe", out, TM_PROGRAM_PATH - 1);
    out[length < 0 ? 0 : length] = '\0';
    return length > 0 ? TM_OK
                      : tm_fail(err, TM_INTERNAL, "cannot find this program: /proc/self/exe: %s", strerror(errno));
}

uint64_t tm_program_hash(void)
{
    char       part[65536];
    FILE      *file = fopen("/proc/self/exe", "re");
    tm_hasher *hasher = tm_hasher_create();
    for (size_t n; file && (n = fread(part, 1, sizeof part, file)) > 0;) tm_hasher_add(hasher, part, n);
    uint64_t hash = tm_hasher_value(hasher);
    if (file) fclose(file);
    tm_hasher_destroy(hasher);
    return hash;
}

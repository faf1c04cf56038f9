/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program.h"

#include "base/hash.h"

#include <stdio.h>

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

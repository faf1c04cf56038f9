/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzzers share (fuzz.c is their program). A target is
 *
 *     FUZZ(name)
 *     {
 *         ... data, size ...
 *     }
 */
#ifndef TM_FUZZ_H
#define TM_FUZZ_H

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t size);
    struct fuzz_target *next;
} fuzz_target;

void fuzz_add_target(fuzz_target *target);

#define FUZZ(f)                                                                                                        \
    static void                              fuzz_##f(const uint8_t *data, size_t size);                               \
    __attribute__((constructor)) static void add_##f(void)                                                             \
    {                                                                                                                  \
        static fuzz_target target = { #f, fuzz_##f, NULL };                                                            \
        fuzz_add_target(&target);                                                                                      \
    }                                                                                                                  \
    static void fuzz_##f(const uint8_t *data, size_t size)

/* A refusal has exit code 4 and names the file. */
void fuzz_told(tm_status st, const tm_error *err, const char *file);
void fuzz_utf8(const char *text);
/* A folder of this process, removed at its end; a file of these bytes in it, its path until the next call. */
const char *fuzz_folder(void);
const char *fuzz_file(const char *name, const void *data, size_t size);

#endif

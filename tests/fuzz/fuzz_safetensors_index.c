/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of an index of shards, which lie in a folder of their own: nothing beside the index is opened. */
#include "base/file.h"
#include "data/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/one", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/i.json", folder);
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    char                   path[96];
    tm_tensor_heading      heading = { .name = "a", .dtype = TM_U8, .rank = 1, .n = { 1 } };
    tm_safetensors_writer *writer;
    tm_error               err = { 0 };
    snprintf(folder, sizeof folder, "/tmp/trainmark-fuzz-index-%ld", (long)getpid());
    TM_ASSERT(tm_folder_make(folder, &err) == TM_OK);
    atexit(remove_folder);
    snprintf(path, sizeof path, "%s/one", folder);
    TM_ASSERT(tm_safetensors_create(path, &heading, 1, NULL, &writer, &err) == TM_OK);
    tm_safetensors_write(writer, "x", 1);
    TM_ASSERT(tm_safetensors_finish(writer, &err) == TM_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char            path[96];
    tm_safetensors *set;
    tm_error        err = { 0 };
    if (!folder[0]) make_folder();
    snprintf(path, sizeof path, "%s/i.json", folder);
    FILE *file = fopen(path, "wb");
    TM_ASSERT(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    tm_status st = tm_safetensors_open(path, &set, &err);
    TM_ASSERT(st == TM_OK || ((st == TM_FORMAT || st == TM_INVALID) && strstr(err.text, folder)));
    if (st != TM_OK) return 0;
    TM_ASSERT(tm_safetensors_find(set, "a"));
    tm_safetensors_close(set);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const words[] = {
    "\"weight_map\":", "{\"a\":\"one\"}", "\"one\"", "\"i.json\"", "../", "/", "{", "}", "\""
};
#define FUZZ_WORDS words
#include "standalone.h"
#endif

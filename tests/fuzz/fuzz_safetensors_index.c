/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of an index of shards, which lie in a folder of their own: nothing beside the index is opened. */
#include "fuzz.h"

#include "data/safetensors.h"

static void make_folder(void)
{
    char                   path[96];
    tm_tensor_heading      heading = { .name = "a", .dtype = TM_U8, .rank = 1, .n = { 1 } };
    tm_safetensors_writer *writer;
    tm_error               err = { 0 };
    snprintf(path, sizeof path, "%s/one", fuzz_folder());
    TM_ASSERT(tm_safetensors_create(path, &heading, 1, NULL, &writer, &err) == TM_OK);
    tm_safetensors_write(writer, "x", 1);
    TM_ASSERT(tm_safetensors_finish(writer, &err) == TM_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    if (!*fuzz_folder_path) make_folder();
    tm_status st = tm_safetensors_open(fuzz_file("i.json", data, size), &set, &err);
    fuzz_told(st, &err, fuzz_folder());
    if (st != TM_OK) return 0;
    TM_ASSERT(tm_safetensors_find(set, "a"));
    tm_safetensors_close(set);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes lists of checksums: whatever is accepted has 32 digits and a name in each line. */
#include "fuzz.h"

#include "data/md5_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_md5_list list;
    tm_error    err = { 0 };
    tm_status   st = tm_md5_list_parse("x.md5", (const char *)data, size, &list, &err);
    fuzz_told(st, &err, "x.md5");
    for (size_t i = 0; i < list.count; i++) {
        TM_ASSERT(strlen(list.lines[i].md5) == 32 && strspn(list.lines[i].md5, "0123456789abcdef") == 32);
        TM_ASSERT(*list.lines[i].name);
    }
    TM_ASSERT((st == TM_OK) == (list.count > 0));
    tm_md5_list_free(&list);
    return 0;
}

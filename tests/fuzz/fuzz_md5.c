/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes lists of checksums: whatever is accepted has 32 digits and a name in each line. */
#include "base/status.h"
#include "data/md5_list.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_md5_list list;
    tm_error    err = { 0 };
    tm_status   st = tm_md5_list_parse("x.md5", (const char *)data, size, &list, &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    TM_ASSERT(st == TM_OK || (st == TM_FORMAT && strstr(err.text, "x.md5")));
    for (size_t i = 0; i < list.count; i++) {
        TM_ASSERT(strlen(list.lines[i].md5) == 32 && strspn(list.lines[i].md5, "0123456789abcdef") == 32);
        TM_ASSERT(*list.lines[i].name);
    }
    TM_ASSERT((st == TM_OK) == (list.count > 0));
    tm_md5_list_free(&list);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const md5_words[] = {
    "d41d8cd98f00b204e9800998ecf8427e", "  ", " *", "\n", "\\", "\\n", "\\\\", "x.bin"
};
#define FUZZ_WORDS md5_words
#include "standalone.h"
#endif

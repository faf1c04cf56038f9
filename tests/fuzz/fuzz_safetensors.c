/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of safetensors. Of whatever is accepted every byte can be read, in one piece. */
#include "fuzz.h"

#include "data/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    tm_status       st = tm_safetensors_parse("x.safetensors", data, size, &set, &err);
    fuzz_told(st, &err, "x.safetensors");
    if (st != TM_OK) return 0;
    size_t                  n, bytes = 0;
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    volatile uint8_t        sum = 0;
    for (size_t i = 0; i < n; i++) {
        char text[192];
        TM_ASSERT(tm_safetensors_find(set, all[i].name) == &all[i]);
        for (size_t k = 0; k < all[i].bytes; k++) sum = (uint8_t)(sum + all[i].data[k]);
        bytes += all[i].bytes;
        tm_stored_shape_text(text, &all[i]);
    }
    TM_ASSERT(bytes < size);
    tm_safetensors_metadata(set, "format");
    tm_safetensors_close(set);
    return 0;
}

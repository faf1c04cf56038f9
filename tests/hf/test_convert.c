/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of files in formats of the program: whatever the pair, the same as one element after the other. */
#include "hf/convert.h"

#include "support/test.h"

enum { N = 37, FIRST = 3, AT = 2 };

TEST(every_pair_is_converted_by_element)
{
    static const tm_dtype formats[] = { TM_F64, TM_F32, TM_BF16, TM_F16, TM_E4M3, TM_I32 };
    enum { FORMATS = sizeof formats / sizeof formats[0] };
    for (int a = 0; a < FORMATS; a++)
        for (int b = 0; b < FORMATS; b++)
            for (int64_t step = 1; step < 4; step++) {
                unsigned char    bytes[8 * (N + FIRST) * 3 + 1];
                uint64_t         out[N + AT], wanted[N + AT];
                tm_stored_tensor t = { .dtype = formats[a], .data = bytes + 1 }; /* at any address */
                const size_t     size = (size_t)tm_dtype_bits(formats[a]) / 8;
                for (int64_t i = 0; i < (N + FIRST) * 3; i++) {
                    uint64_t one;
                    tm_value_set(&one, formats[a], 0, (i % 2 ? -1 : 1) * (0.1 * (double)i + 1.0 / 3));
                    memcpy(bytes + 1 + (size_t)i * size, &one, size);
                }
                memset(out, 0x5a, sizeof out);
                memset(wanted, 0x5a, sizeof wanted);
                for (int64_t k = 0; k < N; k++)
                    tm_value_set(wanted, formats[b], AT + k, tm_stored_value(&t, FIRST + k * step));
                tm_stored_convert(&t, FIRST, step, N, formats[b], out, AT);
                if (memcmp(out, wanted, sizeof out) != 0)
                    fail_msg("%s to %s, every %d", tm_dtype_name(formats[a]), tm_dtype_name(formats[b]), (int)step);
            }
}

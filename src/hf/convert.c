/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/convert.h"

static void widen_bf16(const uint8_t *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        to[i] = tm_bf16_value(bits);
    }
}

static void round_f32(const uint8_t *from, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, from + 4 * i, sizeof value);
        to[i] = tm_bf16_round(value);
    }
}

void tm_stored_convert(const tm_stored_tensor *t, int64_t first, int64_t step, int64_t n, tm_dtype to, void *out,
                       int64_t at)
{
    size_t bits = (size_t)tm_dtype_bits(to);
    if (step == 1 && t->dtype == to && bits % 8 == 0)
        memcpy((char *)out + (size_t)at * bits / 8, t->data + (size_t)first * bits / 8, (size_t)n * bits / 8);
    else if (step == 1 && t->dtype == TM_BF16 && to == TM_F32)
        widen_bf16(t->data + 2 * first, (float *)out + at, n);
    else if (step == 1 && t->dtype == TM_F32 && to == TM_BF16)
        round_f32(t->data + 4 * first, (uint16_t *)out + at, n);
    else
        for (int64_t k = 0; k < n; k++) tm_value_set(out, to, at + k, tm_stored_value(t, first + k * step));
}

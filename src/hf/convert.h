/* SPDX-License-Identifier: Apache-2.0 */
/* hf/convert.h - elements of stored tensors in formats of ours (private to hf/). */
#ifndef TM_HF_CONVERT_H
#define TM_HF_CONVERT_H

#include "data/safetensors.h"
#include "graph/value.h"

/* Element i of a stored tensor, which is at any address. */
static inline double tm_stored_value(const tm_stored_tensor *t, int64_t i)
{
    uint64_t element;
    size_t   size = (size_t)tm_dtype_bits(t->dtype) / 8;
    if (size == 0) return tm_value_get(t->data, t->dtype, i); /* parts of bytes have no alignment */
    memcpy(&element, t->data + (size_t)i * size, size);
    return tm_value_get(&element, t->dtype, 0);
}

/* out[at + k] = element first + k step of the tensor, k < n; `out` holds the format `to`. */
void tm_stored_convert(const tm_stored_tensor *t, int64_t first, int64_t step, int64_t n, tm_dtype to, void *out,
                       int64_t at);

#endif

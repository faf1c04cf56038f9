/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/encoders.h - what the ops of frozen encoders share (encoders.c, attention_stored.c): kernels of one text,
 * and products whose kernel the maker's library has, or this folder. Private to device/gpu/. */
#ifndef TM_DEVICE_GPU_ENCODERS_H
#define TM_DEVICE_GPU_ENCODERS_H

#include "device/gpu/own.h"

/* Says who computes a product. */
typedef tm_gpu_product_of tm_gpu_chooser(const tm_call *call, tm_gpu_product_of p);
tm_gpu_product_of         tm_gpu_library_product(const tm_call *call, tm_gpu_product_of p);
tm_gpu_product_of         tm_gpu_own_product(const tm_call *call, tm_gpu_product_of p);

/* Of the text of encoders; x: format of activations, w: of weights, unit: bytes that are copied at once. */
void tm_gpu_note_encoders(const void *device, tm_dtype x, tm_dtype w, int unit, const char *kernel, void **state);

static inline int64_t tm_gpu_over(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}
static inline int64_t tm_gpu_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
/* As parts of a workspace begin. */
static inline int64_t tm_gpu_rounded(int64_t bytes)
{
    return tm_gpu_over(bytes, 256) * 256;
}
/* Of the device. */
static inline void *tm_gpu_behind(const void *address, int64_t bytes)
{
    return address ? (void *)((uintptr_t)address + (size_t)bytes) : NULL; // NOLINT(performance-no-int-to-ptr)
}
/* Element i of a view. */
static inline void *tm_gpu_element(const tm_view *view, int64_t i)
{
    return tm_gpu_behind(view->data, i * (int64_t)tm_dtype_bytes(view->dtype));
}

#endif

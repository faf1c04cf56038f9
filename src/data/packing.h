/* SPDX-License-Identifier: Apache-2.0 */
/* data/packing.h - the latents of a picture as tokens: one is 2 x 2 of all channels, as FLUX.1 packs them. */
#ifndef TM_DATA_PACKING_H
#define TM_DATA_PACKING_H

#include <stdint.h>

/* Where latents (channels, 2 rows, 2 columns) lie in tokens (rows x columns, 4 channels). */
static inline int64_t tm_packed_place(int64_t channel, int64_t y, int64_t x, int64_t columns, int64_t channels)
{
    return (y / 2 * columns + x / 2) * 4 * channels + channel * 4 + y % 2 * 2 + x % 2;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/nf4.h - what the codes of a block are multiplied with, in both formats of NF4 (graph/nf4.h,
 * graph/blocks.h). */
#ifndef TM_DEVICE_CPU_NF4_H
#define TM_DEVICE_CPU_NF4_H

#include "device/cpu/simd/common.h"
#include "graph/blocks.h"

#include <string.h>

/* Of block `block` of a group; `map`: of NF4_BLOCKS (tm_nf4_map). `scaled`: it is NF4_SCALED. */
TM_INLINE float nf4_factor(const uint8_t *group, const float *map, int64_t block, const bool scaled)
{
    float mean, scale;
    if (scaled) {
        memcpy(&scale, group + block * (int64_t)sizeof scale, sizeof scale);
        return scale;
    }
    memcpy(&mean, group, sizeof mean);
    memcpy(&scale, group + 4, sizeof scale);
    float factor = map[group[8 + block]] * scale;
    return factor + mean;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* model/qwen3.c - Qwen3: Llama's blocks, with an RMSNorm of each query and key head before the rotation. */
#include "model/blocks.h"

const tm_family tm_family_qwen3 = {
    .name = "qwen3",
    .qk_norm = true,
    TM_LLAMA_CALLS,
};

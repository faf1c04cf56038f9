/* SPDX-License-Identifier: Apache-2.0 */
/* model/qwen2.c - Qwen2 and Qwen2.5: Llama's blocks, with biases of query, key and value. */
#include "model/blocks.h"

const tm_family tm_family_qwen2 = {
    .name = "qwen2",
    .bias = TM_BIAS_QKV,
    TM_LLAMA_CALLS,
};

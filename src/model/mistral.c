/* SPDX-License-Identifier: Apache-2.0 */
/* model/mistral.c - Mistral 7B: Llama's blocks; model.sliding_window limits what a token sees. */
#include "model/blocks.h"

const tm_family tm_family_mistral = {
    .name = "mistral",
    TM_LLAMA_CALLS,
};

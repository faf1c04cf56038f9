/* SPDX-License-Identifier: Apache-2.0 */
/* hf/lora_file.h - an adapter of an image model in one file without a configuration, as diffusers and the trainers of
 * FLUX keep it (private to hf/).
 *
 *     transformer.MODULE.lora_A.weight (r, in), .lora_B.weight (out, r), .alpha, .lora_magnitude_vector   diffusers
 *     lora_unet_MODULE.lora_down.weight (r, in), .lora_up.weight (out, r), .alpha                         sd-scripts
 *
 * MODULE is a name of diffusers ("transformer_blocks.0.attn.to_q"), or of the first release of FLUX, whose matrices
 * hold several of these one under the other ("double_blocks.0.img_attn.qkv"); sd-scripts writes "_" for ".". Files of
 * the names with dots may also begin with "diffusion_model.", "base_model.model." or nothing. The factor is alpha / r;
 * a module without alpha has that of the metadata (lora_adapter_metadata), else 1. */
#ifndef TM_HF_LORA_FILE_H
#define TM_HF_LORA_FILE_H

#include "hf/adapter.h"
#include "hf/layout.h"

/* The file that `path` names: itself, or pytorch_lora_weights.safetensors of a folder, appended to *out; false: neither
 * is there, or it holds no tensor of an adapter. */
bool tm_hf_lora_file(const char *path, tm_text *out);
/* Opens it: weights under PEFT's names, fused matrices in their parts, and the modules with their ranks and alphas. Of
 * *adapter arena, file and folder are set. TM_UNSUPPORTED: what is no linear layer of the model, by name; TM_FORMAT: a
 * half is missing or has another shape. */
TM_MUST_USE tm_status tm_hf_lora_open(tm_hf_adapter *adapter, const tm_hf_form *form, tm_error *err);
/* Writes the tensors of an adapter's layout into pytorch_lora_weights.safetensors of a folder, float32, by
 * memory->read. B is multiplied by the factor, so that it is 1 in the file. */
TM_MUST_USE tm_status tm_hf_lora_write(const tm_hf_memory *memory, const tm_hf_layout *layout, const char *folder,
                                       tm_hf_report *report, tm_error *err);

#endif

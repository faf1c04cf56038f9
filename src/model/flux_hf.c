/* SPDX-License-Identifier: Apache-2.0 */
/* model/flux_hf.c - diffusers' FluxTransformer2DModel: its keys, and the names of its tensors. */
#include "model/flux.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_WANTS("patch_size", "1", "1"),
    TM_HF_IS_OR("in_channels|out_channels", "channels", "64"), /* as many numbers out as in */
    TM_HF_IS_OR("num_layers", "n_layers", "19"),
    TM_HF_IS_OR("num_single_layers", "n_single_layers", "38"),
    TM_HF_IS_OR("attention_head_dim", "head_dim", "128"),
    TM_HF_IS_OR("num_attention_heads", "n_heads", "24"),
    { .kind = TM_HF_PRODUCT, .key = "", .name = "model.dim", .values = "model.n_heads|model.head_dim" },
    TM_HF_IS_OR("joint_attention_dim", "text_dim", "4096"),
    TM_HF_IS_OR("pooled_projection_dim", "vector_dim", "768"),
    TM_HF_IS_OR("guidance_embeds", "guidance_embed", "false"),
    { .kind = TM_HF_LIST, .key = "axes_dims_rope", .name = "model.rope_axes", .absent = "16,56,56" },
    TM_HF_IDLE("_class_name"),
    TM_HF_IDLE("_diffusers_version"),
    { .key = NULL },
};
#define BOTH(mine, yours)                                                                                              \
    { .ours = mine ".weight", .theirs = yours ".weight" },                                                             \
    {                                                                                                                  \
        .ours = mine ".bias", .theirs = yours ".bias"                                                                  \
    }
#define DOUBLE(mine, yours) BOTH("double_blocks.{l}." mine, "transformer_blocks.{l}." yours)
#define SINGLE(mine, yours) BOTH("single_blocks.{l}." mine, "single_transformer_blocks.{l}." yours)
#define EMBEDDER(mine, yours)                                                                                          \
    BOTH(mine ".in_layer", "time_text_embed." yours ".linear_1"),                                                      \
        BOTH(mine ".out_layer", "time_text_embed." yours ".linear_2")
#define NORM(mine, yours)                                                                                              \
    {                                                                                                                  \
        .ours = mine "_norm.scale", .theirs = yours ".weight"                                                          \
    }
/* scale first, then shift */
#define FINAL(kind)                                                                                                    \
    {                                                                                                                  \
        .ours = "final_layer.adaLN_modulation.1.scale." kind, .theirs = "norm_out.linear." kind, .part = 0, .parts = 2 \
    },                                                                                                                 \
    {                                                                                                                  \
        .ours = "final_layer.adaLN_modulation.1.shift." kind, .theirs = "norm_out.linear." kind, .part = 1, .parts = 2 \
    }
static const tm_hf_tensor hf_tensors[] = {
    BOTH("img_in", "x_embedder"),
    BOTH("txt_in", "context_embedder"),
    EMBEDDER("time_in", "timestep_embedder"),
    EMBEDDER("guidance_in", "guidance_embedder"),
    EMBEDDER("vector_in", "text_embedder"),
    DOUBLE("img_mod.lin", "norm1.linear"),
    DOUBLE("txt_mod.lin", "norm1_context.linear"),
    DOUBLE("img_attn.qkv.q", "attn.to_q"),
    DOUBLE("img_attn.qkv.k", "attn.to_k"),
    DOUBLE("img_attn.qkv.v", "attn.to_v"),
    DOUBLE("txt_attn.qkv.q", "attn.add_q_proj"),
    DOUBLE("txt_attn.qkv.k", "attn.add_k_proj"),
    DOUBLE("txt_attn.qkv.v", "attn.add_v_proj"),
    NORM("double_blocks.{l}.img_attn.norm.query", "transformer_blocks.{l}.attn.norm_q"),
    NORM("double_blocks.{l}.img_attn.norm.key", "transformer_blocks.{l}.attn.norm_k"),
    NORM("double_blocks.{l}.txt_attn.norm.query", "transformer_blocks.{l}.attn.norm_added_q"),
    NORM("double_blocks.{l}.txt_attn.norm.key", "transformer_blocks.{l}.attn.norm_added_k"),
    DOUBLE("img_attn.proj", "attn.to_out.0"),
    DOUBLE("txt_attn.proj", "attn.to_add_out"),
    DOUBLE("img_mlp.0", "ff.net.0.proj"),
    DOUBLE("img_mlp.2", "ff.net.2"),
    DOUBLE("txt_mlp.0", "ff_context.net.0.proj"),
    DOUBLE("txt_mlp.2", "ff_context.net.2"),
    SINGLE("linear1.q", "attn.to_q"),
    SINGLE("linear1.k", "attn.to_k"),
    SINGLE("linear1.v", "attn.to_v"),
    SINGLE("linear1.mlp", "proj_mlp"),
    SINGLE("linear2", "proj_out"),
    SINGLE("modulation.lin", "norm.linear"),
    NORM("single_blocks.{l}.norm.query", "single_transformer_blocks.{l}.attn.norm_q"),
    NORM("single_blocks.{l}.norm.key", "single_transformer_blocks.{l}.attn.norm_k"),
    FINAL("weight"),
    FINAL("bias"),
    BOTH("final_layer.linear", "proj_out"),
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=flux", "model.time_dim=256", "model.rope_theta=10000",
                                        "model.norm_eps=1e-06", NULL };
static const char       *hf_lacks(const tm_model_shape *s)
{
    return s->ffn_dim == 4 * s->dim ? NULL : "its MLP is 4 model.dim wide (model.ffn_dim)";
}

static const tm_hf_form hf_flux = { .model_type = "FluxTransformer2DModel",
                                    .architecture = "FluxTransformer2DModel",
                                    .diffusers = true,
                                    .pairs = hf_pairs,
                                    .keys = hf_keys,
                                    .tensors = hf_tensors,
                                    .lacks = hf_lacks };
const tm_hf_form *const tm_flux_forms[] = { &hf_flux, NULL };

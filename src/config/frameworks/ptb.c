/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/ptb.c - pytorch-training-benchmark: its model files (JSON) and the flags behind them.
 *
 * An iteration there is one micro-batch; weights are updated after grad_accumlate_pre_steps of them. Its optimizer is
 * AdamW with PyTorch's defaults at a constant rate. Initial weights are those of our model.init. */
#include "config/foreign.h"

#include <stdlib.h>

static const char *updates(const tm_config *config, const char *value)
{
    char       *end;
    const char *passes = tm_foreign_text(config, "grad_accumlate_pre_steps");
    long long   n = strtoll(value, &end, 10), each = passes ? strtoll(passes, NULL, 10) : 1;
    if (*end || n < 1 || each < 1) return value; /* refused as a number of steps */
    return n < each ? NULL : tm_arena_format(config->arena, "%lld", n / each);
}

/* clang-format off */
static const tm_foreign_key keys[] = {
    MAPPED("model_name",
           "llama:model.family=llama;model.rope_theta=500000;model.rope_layout=interleaved|"
           "mistral:model.family=mistral;model.rope_theta=10000;model.rope_layout=interleaved",
           .fallback = "llama", .words = "another model (the word after the file)"),
    MAPPED("arch_name", "llama:|mistral:", .words = "another architecture"),
    MAPPED("num_layers", "model.n_layers"),
    MAPPED("num_heads", "model.n_heads"),
    MAPPED("num_kv_heads", "model.n_kv_heads"),
    MAPPED("embedding_dim", "model.dim"),
    MAPPED("hidden_dim", "model.ffn_dim"),
    MAPPED("vocab_size", "model.vocab_size"),
    MAPPED("max_seq_len", "model.max_seq_len=*;training.seq_len=*"),
    MAPPED("eps", "model.norm_eps"),
    HARMLESS("rope_base", "its program takes 500000 for llama and 10000 for mistral, whatever stands here"),
    MAPPED("window_size", "0:|*:model.sliding_window"),
    MAPPED("batch_size", "training.local_batch_size", .fallback = "1"),
    MAPPED("num_iteration", "training.steps", .fallback = "128", .convert = updates,
           .words = "fewer iterations than grad_accumlate_pre_steps: no step would be made"),
    MAPPED("grad_accumlate_pre_steps",
           "training.grad_accumulation;training.mock_data=true;model.tied=false;optimizer.name=AdamW;"
           "optimizer.lr=1e-3;optimizer.beta1=0.9;optimizer.beta2=0.999;optimizer.eps=1e-8;"
           "optimizer.weight_decay=0.01;lr_scheduler.warmup_steps=0;lr_scheduler.decay_ratio=0;training.max_norm=1;"
           "training.dtype=bfloat16;training.mixed_precision_reduce=bfloat16;validation.enable=false",
           .fallback = "8"),
    HARMLESS("reduce_pre_steps", "how often the mean loss is gathered"),
    MAPPED("enable_fp8", "true:fp8=hybrid;fp8_recipe=delayed;fp8_amax_history_len=16;fp8_amax_compute_algo=max|false:", .fallback = "false"),
    SPEED("enable_compile", "steps are always compiled into programs"),
    MAPPED("seed", "debug.seed", .fallback = "1024"),
    HARMLESS("num_epochs", "num_iteration ends the run"),
    UNBUILT("dummy_data", "true", "its text data set; give --data.path DIR"),
};
/* clang-format on */

const tm_framework tm_framework_ptb = { "pytorch-training-benchmark",
                                        "pytorch-training-benchmark: its model files and flags",
                                        keys,
                                        sizeof keys / sizeof keys[0],
                                        NULL,
                                        false };

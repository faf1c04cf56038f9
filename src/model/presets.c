/* SPDX-License-Identifier: Apache-2.0 */
/* model/presets.c - the compiled-in models.
 *
 * GPT: the size table of a published 8-GPU report: two-matrix FFN of the listed width, tied head, learned positions of
 * the table's length, vocabulary 50257, one bias vector per layer beside the LayerNorms'; batch and length are the
 * table's. gpt2-124M is the real GPT-2 with all its biases. Llama: dimensions of the published configurations; batch
 * and length are those of the usual throughput runs, learning rates those of the usual recipes.
 * tiny-llama is the model of the built-in job.
 */
#include "model/presets.h"

/* clang-format off */
#define LLAMA(n, f, layers, width, heads, kv, ffn, vocabulary, positions)                                              \
    "model.family=llama", "model.name=" n, "model.flavor=" f, "model.n_layers=" #layers, "model.dim=" #width,          \
    "model.n_heads=" #heads, "model.n_kv_heads=" #kv, "model.ffn_dim=" #ffn, "model.vocab_size=" #vocabulary,          \
    "model.max_seq_len=" #positions, "model.norm_eps=1e-5"
#define LLAMA3_ROPE(factor)                                                                                            \
    "model.rope_theta=500000", "model.rope_scaling=llama3", "model.rope_scaling_factor=" #factor,                      \
    "model.rope_low_freq_factor=1", "model.rope_high_freq_factor=4", "model.rope_original_max_seq_len=8192"
#define GPT(n, f, layers, heads, width, ffn, positions, biases)                                                        \
    "model.family=gpt", "model.name=" n, "model.flavor=" f, "model.n_layers=" #layers, "model.n_heads=" #heads,        \
    "model.dim=" #width, "model.ffn_dim=" #ffn, "model.max_seq_len=" #positions, "model.vocab_size=50257",             \
    "model.norm_eps=1e-5", "model.tied=true", "model.bias=" biases, "model.init=gpt2"
#define TRAIN(batch, length, rate)                                                                                     \
    "training.local_batch_size=" #batch, "training.seq_len=" #length, "optimizer.lr=" #rate

static const char *const gpt_small[] = {
    GPT("gpt", "small", 6, 6, 384, 1536, 512, "mi350x_table"), TRAIN(32, 512, 6e-4), NULL
};
static const char *const gpt_medium[] = {
    GPT("gpt", "medium", 12, 12, 768, 3072, 512, "mi350x_table"), TRAIN(16, 512, 6e-4), NULL
};
static const char *const gpt_large[] = {
    GPT("gpt", "large", 24, 16, 1024, 4096, 512, "mi350x_table"), TRAIN(8, 512, 3e-4), NULL
};
static const char *const gpt_xl[] = {
    GPT("gpt", "xl", 36, 20, 1280, 5120, 512, "mi350x_table"), TRAIN(4, 512, 2.5e-4), NULL
};
static const char *const gpt_1_5b[] = {
    GPT("gpt", "1.5b", 48, 24, 1536, 6144, 512, "mi350x_table"), TRAIN(4, 512, 2e-4), NULL
};
static const char *const gpt_3b[] = {
    GPT("gpt", "3b", 32, 32, 2560, 10240, 512, "mi350x_table"), TRAIN(2, 512, 1.6e-4), NULL
};
static const char *const gpt_7b[] = {
    GPT("gpt", "7b", 32, 32, 4096, 11008, 1024, "mi350x_table"), TRAIN(8, 1024, 1.2e-4), NULL
};
static const char *const gpt_13b[] = {
    GPT("gpt", "13b", 40, 40, 5120, 13824, 1024, "mi350x_table"), TRAIN(4, 1024, 1e-4), NULL
};
static const char *const gpt2_124m[] = {
    GPT("gpt2", "124M", 12, 12, 768, 3072, 1024, "all"), TRAIN(4, 1024, 6e-4), NULL
};
static const char *const llama2_7b[] = {
    LLAMA("llama2", "7B", 32, 4096, 32, 32, 11008, 32000, 4096),
    "model.rope_theta=10000", "model.tied=false", TRAIN(4, 4096, 3e-4), NULL
};
static const char *const llama2_13b[] = {
    LLAMA("llama2", "13B", 40, 5120, 40, 40, 13824, 32000, 4096),
    "model.rope_theta=10000", "model.tied=false", TRAIN(4, 4096, 3e-4), NULL
};
static const char *const llama2_70b[] = {
    LLAMA("llama2", "70B", 80, 8192, 64, 8, 28672, 32000, 4096),
    "model.rope_theta=10000", "model.tied=false", TRAIN(4, 4096, 1.5e-4), NULL
};
static const char *const llama3_1_8b[] = {
    LLAMA("llama3", "8B", 32, 4096, 32, 8, 14336, 128256, 131072),
    LLAMA3_ROPE(8), "model.tied=false", TRAIN(4, 8192, 3e-4), NULL
};
static const char *const llama3_1_70b[] = {
    LLAMA("llama3", "70B", 80, 8192, 64, 8, 28672, 128256, 131072),
    LLAMA3_ROPE(8), "model.tied=false", TRAIN(4, 8192, 1.5e-4), NULL
};
static const char *const llama3_1_405b[] = {
    LLAMA("llama3", "405B", 126, 16384, 128, 8, 53248, 128256, 131072),
    LLAMA3_ROPE(8), "model.tied=false", TRAIN(1, 8192, 8e-5), NULL
};
static const char *const llama3_3_70b[] = {
    LLAMA("llama3", "70B", 80, 8192, 64, 8, 28672, 128256, 131072),
    LLAMA3_ROPE(8), "model.tied=false", TRAIN(4, 8192, 1.5e-4), NULL
};
static const char *const llama3_8b[] = {
    LLAMA("llama3", "8B", 32, 4096, 32, 8, 14336, 128256, 8192),
    "model.rope_theta=500000", "model.tied=false", TRAIN(4, 8192, 3e-4), NULL
};
static const char *const llama3_70b[] = {
    LLAMA("llama3", "70B", 80, 8192, 64, 8, 28672, 128256, 8192),
    "model.rope_theta=500000", "model.tied=false", TRAIN(4, 8192, 1.5e-4), NULL
};
static const char *const llama3_debug[] = {
    LLAMA("llama3", "debugmodel", 6, 256, 16, 16, 768, 2048, 131072),
    "model.rope_theta=500000", "model.tied=false", TRAIN(8, 2048, 8e-4), NULL
};
static const char *const llama3_2_1b[] = {
    LLAMA("llama3", "1B", 16, 2048, 32, 8, 8192, 128256, 131072),
    LLAMA3_ROPE(32), "model.tied=true", TRAIN(4, 8192, 3e-4), NULL
};
static const char *const llama3_2_3b[] = {
    LLAMA("llama3", "3B", 28, 3072, 24, 8, 8192, 128256, 131072),
    LLAMA3_ROPE(32), "model.tied=true", TRAIN(4, 8192, 3e-4), NULL
};
static const char *const tiny_llama[] = {
    "model.family=llama", "model.name=tiny-llama", "model.n_layers=4", "model.dim=256", "model.n_heads=4",
    "model.n_kv_heads=2", "model.ffn_dim=768", "model.vocab_size=64", "model.max_seq_len=256", "model.norm_eps=1e-5",
    "model.rope_theta=10000", "model.tied=false", TRAIN(16, 256, 3e-3), "training.steps=250",
    "lr_scheduler.warmup_steps=20", "training.stop_at_target=true", "validation.freq=25", NULL
};
/* clang-format on */

static const tm_preset presets[] = {
    { "tiny-llama", tiny_llama },
    { "gpt-small", gpt_small },
    { "gpt-medium", gpt_medium },
    { "gpt-large", gpt_large },
    { "gpt-xl", gpt_xl },
    { "gpt-1.5b", gpt_1_5b },
    { "gpt-3b", gpt_3b },
    { "gpt-7b", gpt_7b },
    { "gpt-13b", gpt_13b },
    { "gpt2-124M", gpt2_124m },
    { "llama2_7B", llama2_7b },
    { "llama2_13B", llama2_13b },
    { "llama2_70B", llama2_70b },
    { "llama3.1_8B", llama3_1_8b },
    { "llama3.1_70B", llama3_1_70b },
    { "llama3.1_405B", llama3_1_405b },
    { "llama3.3_70B", llama3_3_70b },
    { "llama3_8B", llama3_8b },
    { "llama3_70B", llama3_70b },
    { "llama3_debugmodel", llama3_debug },
    { "llama3.2_1B", llama3_2_1b },
    { "llama3.2_3B", llama3_2_3b },
};

const tm_preset *tm_model_presets(size_t *n)
{
    *n = sizeof presets / sizeof presets[0];
    return presets;
}

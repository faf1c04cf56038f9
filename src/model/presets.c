/* SPDX-License-Identifier: Apache-2.0 */
/* model/presets.c - the compiled-in models.
 *
 * GPT: the size table of a published 8-GPU report: two-matrix FFN of the listed width, tied head, learned positions of
 * the table's length, vocabulary 50257, one bias vector per layer beside the LayerNorms'; batch and length are the
 * table's. gpt2-124M is the real GPT-2 with all its biases. Llama: dimensions of the published configurations; batch
 * and length are those of the usual throughput runs, learning rates those of the usual recipes. llama3_8B is Llama 3 as
 * it first came, 8192 positions without scaling; model.name llama3 with a flavor means the later ones, as in
 * torchtitan. Qwen2 has the sizes of Qwen2.5. tiny-llama is the model of the built-in job.
 */
#include "model/presets.h"

/* clang-format off */
#define DECODER(family, n, f, layers, width, heads, kv, ffn, vocabulary, positions, eps)                               \
    "model.family=" family, "model.name=" n, "model.flavor=" f, "model.n_layers=" #layers, "model.dim=" #width,        \
    "model.n_heads=" #heads, "model.n_kv_heads=" #kv, "model.ffn_dim=" #ffn, "model.vocab_size=" #vocabulary,          \
    "model.max_seq_len=" #positions, "model.norm_eps=" #eps
#define LLAMA(n, f, layers, width, heads, kv, ffn, vocabulary, positions)                                              \
    DECODER("llama", n, f, layers, width, heads, kv, ffn, vocabulary, positions, 1e-5)
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
static const char *const code_llama2_7b[] = {
    LLAMA("code_llama2", "7B", 32, 4096, 32, 32, 11008, 32016, 16384),
    "model.rope_theta=1000000", "model.tied=false", TRAIN(4, 4096, 3e-4), NULL
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
static const char *const mistral_7b[] = {
    DECODER("mistral", "mistral", "7B", 32, 4096, 32, 8, 14336, 32000, 32768, 1e-5),
    "model.head_dim=128", "model.rope_theta=10000", "model.sliding_window=4096", "model.tied=false",
    TRAIN(3, 8192, 3e-4), NULL
};
static const char *const mistral_7b_v3[] = {
    DECODER("mistral", "mistral", "7B_v0.3", 32, 4096, 32, 8, 14336, 32768, 32768, 1e-5),
    "model.head_dim=128", "model.rope_theta=1000000", "model.tied=false", TRAIN(3, 8192, 3e-4), NULL
};
#define QWEN2_5(f, layers, width, heads, kv, ffn, vocabulary, positions, eps, shared, rate)                            \
    {                                                                                                                  \
        DECODER("qwen2", "qwen2.5", f, layers, width, heads, kv, ffn, vocabulary, positions, eps),                     \
            "model.rope_theta=1000000", "model.tied=" shared, TRAIN(4, 2048, rate), NULL                               \
    }
static const char *const qwen2_5_0_5b[] =
    QWEN2_5("0.5B", 24, 896, 14, 2, 4864, 151936, 32768, 1e-6, "true", 3e-4);
static const char *const qwen2_5_1_5b[] =
    QWEN2_5("1.5B", 28, 1536, 12, 2, 8960, 151936, 131072, 1e-6, "true", 3e-4);
static const char *const qwen2_5_3b[] =
    QWEN2_5("3B", 36, 2048, 16, 2, 11008, 151936, 32768, 1e-6, "true", 3e-4);
static const char *const qwen2_5_7b[] =
    QWEN2_5("7B", 28, 3584, 28, 4, 18944, 152064, 131072, 1e-6, "false", 3e-4);
static const char *const qwen2_5_14b[] =
    QWEN2_5("14B", 48, 5120, 40, 8, 13824, 152064, 131072, 1e-5, "false", 3e-4);
static const char *const qwen2_5_32b[] =
    QWEN2_5("32B", 64, 5120, 40, 8, 27648, 152064, 131072, 1e-5, "false", 1.5e-4);
static const char *const qwen2_5_72b[] =
    QWEN2_5("72B", 80, 8192, 64, 8, 29568, 152064, 131072, 1e-5, "false", 1.5e-4);
#define QWEN3(f, layers, width, heads, kv, ffn, vocabulary, positions, shared, length, rate)                           \
    {                                                                                                                  \
        DECODER("qwen3", "qwen3", f, layers, width, heads, kv, ffn, vocabulary, positions, 1e-6),                      \
            "model.head_dim=128", "model.rope_theta=1000000", "model.tied=" shared, TRAIN(4, length, rate), NULL       \
    }
static const char *const qwen3_debug[] =
    QWEN3("debugmodel", 8, 256, 16, 8, 3072, 2048, 4096, "true", 2048, 3e-4);
static const char *const qwen3_0_6b[] =
    QWEN3("0.6B", 28, 1024, 16, 8, 3072, 151936, 40960, "true", 4096, 3e-4);
static const char *const qwen3_1_7b[] =
    QWEN3("1.7B", 28, 2048, 16, 8, 6144, 151936, 40960, "true", 4096, 3e-4);
static const char *const qwen3_4b[] =
    QWEN3("4B", 36, 2560, 32, 8, 9728, 151936, 40960, "true", 4096, 3e-4);
static const char *const qwen3_8b[] =
    QWEN3("8B", 36, 4096, 32, 8, 12288, 151936, 40960, "false", 8192, 3e-4);
static const char *const qwen3_14b[] =
    QWEN3("14B", 40, 5120, 40, 8, 17408, 151936, 40960, "false", 8192, 3e-4);
static const char *const qwen3_32b[] =
    QWEN3("32B", 64, 5120, 64, 8, 25600, 151936, 40960, "false", 8192, 1.5e-4);
#define EXPERTS(n, k, width)                                                                                           \
    "model.n_experts=" #n, "model.n_experts_per_token=" #k, "model.moe_ffn_dim=" #width
static const char *const mixtral_8x7b[] = {
    DECODER("mixtral", "mixtral", "8x7B", 32, 4096, 32, 8, 14336, 32000, 32768, 1e-5), EXPERTS(8, 2, 14336),
    "model.rope_theta=1000000", "model.tied=false", TRAIN(2, 4096, 1e-4), NULL
};
static const char *const mixtral_8x22b[] = {
    DECODER("mixtral", "mixtral", "8x22B", 56, 6144, 48, 8, 16384, 32000, 65536, 1e-5), EXPERTS(8, 2, 16384),
    "model.rope_theta=1000000", "model.tied=false", TRAIN(2, 8192, 1e-4), NULL
};
static const char *const qwen3_30b_a3b[] = {
    DECODER("qwen3_moe", "qwen3", "30B-A3B", 48, 2048, 32, 4, 6144, 151936, 40960, 1e-6), EXPERTS(128, 8, 768),
    "model.head_dim=128", "model.rope_theta=1000000", "model.tied=false", TRAIN(2, 4096, 3e-4), NULL
};
static const char *const qwen3_235b_a22b[] = {
    DECODER("qwen3_moe", "qwen3", "235B-A22B", 94, 4096, 64, 4, 12288, 151936, 40960, 1e-6), EXPERTS(128, 8, 1536),
    "model.head_dim=128", "model.rope_theta=1000000", "model.tied=false", TRAIN(1, 4096, 1.5e-4), NULL
};
#define GPT_OSS(f, layers, experts)                                                                                    \
    DECODER("gpt_oss", "gpt_oss", f, layers, 2880, 64, 8, 2880, 201088, 131072, 1e-5), EXPERTS(experts, 4, 2880),      \
        "model.head_dim=64", "model.rope_theta=150000", "model.rope_scaling=yarn", "model.rope_scaling_factor=32",     \
        "model.rope_original_max_seq_len=4096", "model.rope_truncate=false", "model.sliding_window=128",               \
        "model.sliding_window_every=2", "model.tied=false"
/* As MLPerf's reference for gpt_oss_20b has it: the tokenizer of Llama 3.1, plain SwiGLU, no YaRN, sinks or biases; its
 * window of 128 tokens does not count the token itself. */
static const char *const gpt_oss_20b_mlperf[] = {
    DECODER("gpt_oss", "gpt_oss", "20B_mlperf", 24, 2880, 64, 8, 2880, 128256, 131072, 1e-5), EXPERTS(32, 4, 2880),
    "model.head_dim=64", "model.rope_theta=150000", "model.sliding_window=129", "model.sliding_window_every=2",
    "model.sinks=false", "model.activation=swiglu", "model.bias=none", "model.tied=false", "model.init=gpt2",
    "model.init_std=0.008", TRAIN(2, 8192, 4e-4), NULL
};
static const char *const gpt_oss_20b[] = { GPT_OSS("20B", 24, 32), TRAIN(2, 8192, 4e-4), NULL };
static const char *const gpt_oss_120b[] = { GPT_OSS("120B", 36, 128), TRAIN(1, 8192, 4e-4), NULL };
#define DEEPSEEK(n, f, layers, width, heads, ffn, vocabulary, eps, mscale)                                             \
    "model.family=deepseek", "model.name=" n, "model.flavor=" f, "model.n_layers=" #layers, "model.dim=" #width,       \
        "model.n_heads=" #heads, "model.ffn_dim=" #ffn, "model.vocab_size=" #vocabulary, "model.max_seq_len=163840",   \
        "model.norm_eps=" #eps, "model.rope_theta=10000", "model.rope_scaling=yarn", "model.rope_scaling_factor=40",   \
        "model.rope_original_max_seq_len=4096", "model.rope_mscale=" #mscale, "model.rope_mscale_all_dim=" #mscale,    \
        "model.kv_lora_rank=512", "model.qk_nope_head_dim=128", "model.qk_rope_head_dim=64", "model.v_head_dim=128",   \
        "model.tied=false"
#define SHARED(n, dense) "model.n_shared_experts=" #n, "model.n_dense_layers=" #dense
static const char *const deepseek_v2_lite[] = {
    DEEPSEEK("deepseek_v2", "lite", 27, 2048, 16, 10944, 102400, 1e-6, 0.707), EXPERTS(64, 6, 1408), SHARED(2, 1),
    "model.moe_aux_loss=0.001", TRAIN(4, 4096, 2.2e-4), NULL
};
static const char *const deepseek_v2[] = {
    DEEPSEEK("deepseek_v2", "236B", 60, 5120, 128, 12288, 102400, 1e-6, 0.707), EXPERTS(160, 6, 1536), SHARED(2, 1),
    "model.q_lora_rank=1536", "model.n_expert_groups=8", "model.n_limited_groups=3", "model.moe_scale=16",
    "model.moe_aux_loss=0.001", TRAIN(1, 4096, 2.4e-4), NULL
};
static const char *const deepseek_v3[] = {
    DEEPSEEK("deepseek_v3", "671B", 61, 7168, 128, 18432, 129280, 1e-6, 1), EXPERTS(256, 8, 2048), SHARED(1, 3),
    "model.q_lora_rank=1536", "model.n_expert_groups=8", "model.n_limited_groups=4", "model.expert_group_best=2",
    "model.moe_score=sigmoid", "model.moe_normalise=true", "model.moe_scale=2.5", "model.moe_bias_rate=0.001",
    TRAIN(1, 4096, 2.2e-4), NULL
};
static const char *const deepseek_v3_16b[] = {
    DEEPSEEK("deepseek_v3", "16B", 27, 2048, 16, 10944, 102400, 1e-5, 0.7), EXPERTS(64, 6, 1408), SHARED(2, 1),
    "model.moe_bias_rate=0.001", TRAIN(4, 4096, 2.2e-4), NULL
};
static const char *const deepseek_v3_236b[] = {
    DEEPSEEK("deepseek_v3", "236B", 60, 5120, 128, 12288, 102400, 1e-5, 1), EXPERTS(160, 6, 1536), SHARED(2, 1),
    "model.q_lora_rank=1536", "model.n_expert_groups=8", "model.n_limited_groups=3", "model.expert_group_best=2",
    "model.moe_scale=16", "model.moe_bias_rate=0.001", TRAIN(1, 4096, 2.2e-4), NULL
};
#define FLUX(f, doubles, singles, width, heads, size, text, guided, batch, rate)                                       \
    {                                                                                                                  \
        "model.family=flux", "model.name=flux", "model.flavor=" f, "model.n_layers=" #doubles,                         \
            "model.n_single_layers=" #singles, "model.dim=" #width, "model.n_heads=" #heads, "model.head_dim=128",     \
            "model.image_size=" #size, "model.text_len=" #text, "model.norm_eps=1e-6", "model.rope_theta=10000",       \
            "model.guidance_embed=" guided, "data.source=gaussians", "training.local_batch_size=" #batch,              \
            "optimizer.lr=" #rate, NULL                                                                                \
    }
static const char *const flux1_dev[] = FLUX("1_dev", 19, 38, 3072, 24, 512, 512, "true", 10, 1e-5);
static const char *const flux_dev[] = FLUX("dev", 19, 38, 3072, 24, 256, 512, "false", 32, 1e-4);
static const char *const flux_schnell[] = FLUX("schnell", 19, 38, 3072, 24, 256, 256, "false", 64, 2e-4);
static const char *const flux_535m[] = FLUX("535m", 1, 1, 3072, 24, 256, 256, "false", 2, 1e-4);
static const char *const tiny_flux[] = {
    "model.family=flux", "model.name=tiny-flux", "model.n_layers=2", "model.n_single_layers=2", "model.dim=128",
    "model.n_heads=4", "model.head_dim=32", "model.rope_axes=8,12,12", "model.image_size=64", "model.text_len=8",
    "model.text_dim=64", "model.vector_dim=32", "model.channels=16", "model.time_dim=64", "model.norm_eps=1e-6",
    "data.source=gaussians", "data.text_dropout=0", "training.local_batch_size=32", "optimizer.lr=2e-3",
    "training.steps=400", "lr_scheduler.warmup_steps=20", "training.stop_at_target=true", "validation.freq=50",
    "validation.steps=8", NULL
};
static const char *const tiny_llama[] = {
    "model.family=llama", "model.name=tiny-llama", "model.n_layers=4", "model.dim=256", "model.n_heads=4",
    "model.n_kv_heads=2", "model.ffn_dim=768", "model.vocab_size=64", "model.max_seq_len=256", "model.norm_eps=1e-5",
    "model.rope_theta=10000", "model.tied=false", TRAIN(16, 256, 3e-3), "training.steps=250",
    "lr_scheduler.warmup_steps=20", "training.stop_at_target=true", "validation.freq=25", NULL
};
static const char *const micro_llama[] = {
    "model.family=llama", "model.name=micro-llama", "model.n_layers=4", "model.dim=128", "model.n_heads=4",
    "model.n_kv_heads=2", "model.ffn_dim=384", "model.vocab_size=64", "model.max_seq_len=256", "model.norm_eps=1e-5",
    "model.rope_theta=10000", "model.tied=false", TRAIN(16, 256, 3e-3), "training.steps=250",
    "lr_scheduler.warmup_steps=20", "training.stop_at_target=true", "validation.freq=25", NULL
};
/* clang-format on */

static const tm_preset presets[] = {
    { "tiny-llama", tiny_llama, NULL },
    { "micro-llama", micro_llama, NULL },
    { "gpt-small", gpt_small, NULL },
    { "gpt-medium", gpt_medium, NULL },
    { "gpt-large", gpt_large, NULL },
    { "gpt-xl", gpt_xl, NULL },
    { "gpt-1.5b", gpt_1_5b, NULL },
    { "gpt-3b", gpt_3b, NULL },
    { "gpt-7b", gpt_7b, NULL },
    { "gpt-13b", gpt_13b, NULL },
    { "gpt2-124M", gpt2_124m, NULL },
    { "llama2_7B", llama2_7b, NULL },
    { "llama2_13B", llama2_13b, NULL },
    { "llama2_70B", llama2_70b, NULL },
    { "code_llama2_7B", code_llama2_7b, NULL },
    { "llama3.1_8B", llama3_1_8b, "llama31_8B" },
    { "llama3.1_70B", llama3_1_70b, "llama31_70B" },
    { "llama3.1_405B", llama3_1_405b, NULL },
    { "llama3.3_70B", llama3_3_70b, NULL },
    { "llama3.2_1B", llama3_2_1b, NULL },
    { "llama3.2_3B", llama3_2_3b, NULL },
    { "llama3_8B", llama3_8b, NULL },
    { "llama3_70B", llama3_70b, NULL },
    { "llama3_debugmodel", llama3_debug, NULL },
    { "mistral_7B", mistral_7b, "mistral_7B_v0.1" },
    { "mistral_7B_v0.3", mistral_7b_v3, NULL },
    { "qwen2.5_0.5B", qwen2_5_0_5b, "qwen2_0.5B" },
    { "qwen2.5_1.5B", qwen2_5_1_5b, "qwen2_1.5B" },
    { "qwen2.5_3B", qwen2_5_3b, NULL },
    { "qwen2.5_7B", qwen2_5_7b, "qwen2_7B" },
    { "qwen2.5_14B", qwen2_5_14b, NULL },
    { "qwen2.5_32B", qwen2_5_32b, NULL },
    { "qwen2.5_72B", qwen2_5_72b, NULL },
    { "qwen3_debugmodel", qwen3_debug, NULL },
    { "qwen3_0.6B", qwen3_0_6b, NULL },
    { "qwen3_1.7B", qwen3_1_7b, NULL },
    { "qwen3_4B", qwen3_4b, NULL },
    { "qwen3_8B", qwen3_8b, NULL },
    { "qwen3_14B", qwen3_14b, NULL },
    { "qwen3_32B", qwen3_32b, NULL },
    { "qwen3_30B-A3B", qwen3_30b_a3b, "qwen3_30B_A3B" },
    { "qwen3_235B-A22B", qwen3_235b_a22b, "qwen3_235B_A22B" },
    { "mixtral_8x7B", mixtral_8x7b, "mixtral_8x7B_v0.1" },
    { "mixtral_8x22B", mixtral_8x22b, "mixtral_8x22B_v0.1" },
    { "deepseek_v2_lite", deepseek_v2_lite, "deepseek_v2_16B" },
    { "deepseek_v2", deepseek_v2, "deepseek_v2_236B" },
    { "deepseek_v3", deepseek_v3, "deepseek_v3_671B" },
    { "deepseek_v3_16B", deepseek_v3_16b, NULL },
    { "deepseek_v3_236B", deepseek_v3_236b, NULL },
    { "gpt_oss_20B", gpt_oss_20b, "gpt-oss-20b" },
    { "gpt_oss_20B_mlperf", gpt_oss_20b_mlperf, NULL },
    { "gpt_oss_120B", gpt_oss_120b, "gpt-oss-120b" },
    { "tiny-flux", tiny_flux, NULL },
    { "flux.1_dev", flux1_dev, NULL },
    { "flux_dev", flux_dev, NULL },
    { "flux_12b", flux_schnell, "flux_schnell" },
    { "flux_535m", flux_535m, NULL },
};

const tm_preset *tm_model_presets(size_t *n)
{
    *n = sizeof presets / sizeof presets[0];
    return presets;
}

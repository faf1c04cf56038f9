/* SPDX-License-Identifier: Apache-2.0 */
/* plan/published_models.c - models by the names that papers and pages give them. */
#include "model/presets.h"
#include "plan/rows.h"
#include "data/keys.h"
#include "model/keys.h"
#include "train/settings/keys.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Of papers only, all with two-matrix feed-forward layers of four widths: layers, width, heads, vocabulary. */
typedef struct {
    const char *name;
    int64_t     layers, width, heads, vocabulary, seq;
} gpt_row;

/* clang-format off */
static const gpt_row papers[] = {
    /* Narayanan et al. 2021, table 1 */
    { "GPT-1.7B", 24, 2304, 24, 51200, 2048 },   { "GPT-3.6B", 30, 3072, 32, 51200, 2048 },
    { "GPT-7.5B", 36, 4096, 32, 51200, 2048 },   { "GPT-18.4B", 40, 6144, 48, 51200, 2048 },
    { "GPT-39.1B", 48, 8192, 64, 51200, 2048 },  { "GPT-76.1B", 60, 10240, 80, 51200, 2048 },
    { "GPT-145.6B", 80, 12288, 96, 51200, 2048 },{ "GPT-310.1B", 96, 16384, 128, 51200, 2048 },
    { "GPT-529.6B", 105, 20480, 128, 51200, 2048 }, { "GPT-1008B", 128, 25600, 160, 51200, 2048 },
    /* Korthikanti et al. 2022, table 3 */
    { "GPT-22B", 48, 6144, 64, 51200, 2048 },    { "GPT-175B", 96, 12288, 96, 51200, 2048 },
    { "GPT-530B", 105, 20480, 128, 51200, 2048 },{ "GPT-1T", 128, 25600, 160, 51200, 2048 },
    { "GPT-3 175B", 96, 12288, 96, 51200, 2048 },{ "MT-NLG-530B", 105, 20480, 128, 50257, 2048 },
    { "BLOOM-176B", 70, 14336, 112, 250880, 2048 }, { "OPT-175B", 96, 12288, 96, 50272, 2048 },
    { "GPT-NeoX-20B", 44, 6144, 64, 50432, 2048 },
    /* MosaicML llm-foundry */
    { "MPT-125m", 12, 768, 12, 50368, 2048 },    { "MPT-350m", 24, 1024, 16, 50368, 2048 },
    { "MPT-760m", 24, 1536, 12, 50368, 2048 },   { "MPT-1b", 24, 2048, 16, 50368, 2048 },
    { "MPT-3b", 32, 2560, 20, 50368, 2048 },     { "MPT-7b", 32, 4096, 32, 50368, 2048 },
    { "MPT-13b", 40, 5120, 40, 50368, 2048 },    { "MPT-30b", 48, 7168, 56, 50368, 2048 },
    { "MPT-70b", 80, 8192, 64, 50368, 2048 },
};

/* Other names of presets. */
static const char *const names[][2] = {
    { "GPT-30M", "gpt-small" },   { "GPT-124M", "gpt-medium" }, { "GPT-354M", "gpt-large" },
    { "GPT-773M", "gpt-xl" },     { "GPT-1.44B", "gpt-1.5b" },  { "GPT-1.4B", "gpt-1.5b" },
    { "GPT-1.437B", "gpt-1.5b" }, { "GPT-2.65B", "gpt-3b" },    { "GPT-5.24B", "gpt-7b" },
    { "GPT-10.12B", "gpt-13b" },  { "DeepSeek-16B", "deepseek_v2_lite" }, { "DeepSeek-V3-16B", "deepseek_v3_16B" },
    { "Mixtral-8x7B-v0.1", "mixtral_8x7B" }, { "Llama-3.3-70B-Instruct", "llama3.3_70B" },
};
/* clang-format on */

/* Letters and digits alone, whatever their case. */
static bool same(const char *a, const char *b)
{
    for (;;) {
        while (*a && !isalnum((unsigned char)*a)) a++;
        while (*b && !isalnum((unsigned char)*b)) b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
        a++;
        b++;
    }
}

static bool read_preset(const char *name, tm_model_shape *out, int64_t *seq)
{
    tm_config *config = tm_config_create();
    tm_error   own = { 0 };
    tm_train_configure(config);
    tm_data_configure(config);
    tm_model_configure(config);
    bool good = tm_config_apply_preset(config, name, &own) == TM_OK && tm_config_finish(config, &own) == TM_OK &&
                tm_model_shape_read(config, out, &own) == TM_OK;
    *seq = good ? tm_config_i64(config, "training.seq_len") : 0;
    tm_config_destroy(config);
    return good;
}

static void read_paper(const gpt_row *row, tm_model_shape *out, int64_t *seq)
{
    *out = (tm_model_shape){ .family = TM_FAMILY_GPT, .vocab_size = row->vocabulary, .dim = row->width };
    out->n_layers = row->layers;
    out->n_heads = out->n_kv_heads = row->heads;
    out->head_dim = row->width / row->heads;
    out->ffn_dim = 4 * row->width;
    out->max_seq_len = *seq = row->seq;
    out->tied = true;
}

/* Mixtures that no preset has, from their config.json: Llama 4 (Meta, 2025) and Kimi K2 (Moonshot AI, 2025). */
typedef struct {
    const char *name;
    int64_t     layers, width, heads, key_heads, inner, vocabulary; /* inner: of dense layers */
    int64_t     experts, top_k, expert_width, shared, dense;
    const char *pattern;
    bool        latent; /* attention as DeepSeek-V3 has it */
} mixture_row;

static const mixture_row mixtures[] = {
    { "Llama4-Scout", 48, 5120, 40, 8, 0, 202048, 16, 1, 8192, 1, 0, "", false },
    { "Llama4-Maverick", 48, 5120, 40, 8, 16384, 202048, 128, 1, 8192, 1, 0, "01", false },
    { "Kimi-K2", 61, 7168, 64, 64, 18432, 163840, 384, 8, 2048, 1, 1, "", true },
};

static void read_mixture(const mixture_row *row, tm_model_shape *out, int64_t *seq)
{
    *out = (tm_model_shape){ .family = row->latent ? TM_FAMILY_DEEPSEEK : TM_FAMILY_MIXTRAL,
                             .vocab_size = row->vocabulary };
    out->dim = row->width;
    out->n_layers = row->layers;
    out->n_heads = row->heads;
    out->n_kv_heads = row->key_heads;
    out->head_dim = 128;
    out->ffn_dim = row->inner;
    out->moe = (tm_moe_shape){ .experts = row->experts, .top_k = row->top_k, .ffn_dim = row->expert_width };
    out->moe.shared = row->shared;
    out->moe.dense_layers = row->dense;
    snprintf(out->moe.pattern, sizeof out->moe.pattern, "%s", row->pattern);
    if (row->latent) out->mla = (tm_mla_shape){ .q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .v = 128 };
    *seq = 4096;
}

bool tm_published_model(const char *name, tm_model_shape *out, int64_t *seq)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    for (size_t i = 0; i < sizeof papers / sizeof papers[0]; i++)
        if (same(papers[i].name, name)) return read_paper(&papers[i], out, seq), true;
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        if (same(mixtures[i].name, name)) return read_mixture(&mixtures[i], out, seq), true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (same(names[i][0], name)) name = names[i][1];
    for (size_t i = 0; i < n; i++)
        if (same(presets[i].name, name) || (presets[i].alias && same(presets[i].alias, name)))
            return read_preset(presets[i].name, out, seq);
    return false;
}

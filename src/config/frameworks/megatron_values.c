/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron_values.c - what values of Megatron-LM's arguments are in ours. */
#include "config/frameworks/megatron_values.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Embedding rows of published models, by the end of their tokenizer's name. */
static const struct {
    const char *name, *rows;
} vocabularies[] = {
    { "Llama-2-", "32000" },
    { "Llama-3", "128256" },
    { "Llama-4", "202048" },
    { "Mixtral-8x", "32000" },
    { "Mistral-7B", "32000" },
    { "Qwen2.5-0.5B", "151936" },
    { "Qwen2.5-1.5B", "151936" },
    { "Qwen2.5-3B", "151936" },
    { "Qwen2.5-", "152064" },
    { "Qwen3-", "151936" },
    { "DeepSeek-R1-Distill-Qwen-1.5B", "151936" },
    { "DeepSeek-R1-Distill-Qwen-", "152064" },
    { "DeepSeek-V2", "102400" },
    { "Kimi-K2", "163840" },
    { "glm-4-9b", "151552" },
    { "GLM-4.", "151552" },
    { "GLM-5", "154880" },
    { "MiniMax-M2", "200064" },
    { "DeepSeek-V3", "129280" },
    { "gpt-oss-", "201088" },
    { "gpt-neox-20b", "50432" },
};

const char *tm_megatron_rows_of_tokenizer(const tm_config *config, const char *value)
{
    const char *best = "";
    size_t      longest = 0;
    (void)config;
    for (size_t i = 0; i < sizeof vocabularies / sizeof vocabularies[0]; i++) {
        size_t n = strlen(vocabularies[i].name);
        if (!strstr(value, vocabularies[i].name) || n <= longest) continue;
        longest = n;
        best = vocabularies[i].rows;
    }
    return best;
}

static int64_t number_of(const tm_config *config, const char *name, int64_t fallback)
{
    const char *text = tm_foreign_text(config, name);
    int64_t     n = text ? strtoll(text, NULL, 10) : fallback;
    return n > 0 ? n : fallback;
}

/* Rows are added until several devices can share them. */
const char *tm_megatron_padded(const tm_config *config, const char *value)
{
    char   *end;
    int64_t rows = strtoll(value, &end, 10), step;
    if (*end || rows < 1 || rows > 1 << 24) return value; /* refused as a vocabulary */
    if (__builtin_mul_overflow(number_of(config, "make_vocab_size_divisible_by", 128),
                               number_of(config, "tensor_model_parallel_size", 1), &step))
        return NULL;
    if (step > 1 << 24) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)((rows + step - 1) / step * step));
}

/* Shared experts are one FFN: so many times as wide as an expert. */
const char *tm_megatron_shared_experts(const tm_config *config, const char *value)
{
    const char *of_one = tm_foreign_text(config, "moe_ffn_hidden_size"),
               *dense = tm_foreign_text(config, "ffn_hidden_size");
    int64_t width = of_one  ? number_of(config, "moe_ffn_hidden_size", 1)
                    : dense ? number_of(config, "ffn_hidden_size", 1)
                            : 0;
    char   *end;
    int64_t all = strtoll(value, &end, 10);
    if (*end) return value; /* refused as a number */
    if (width < 1 || all < 0 || all % width) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)(all / width));
}

/* A group is judged by so many of its best. */
const char *tm_megatron_group_best(const tm_config *config, const char *value)
{
    int64_t groups = strtoll(value, NULL, 10), best = groups > 0 ? number_of(config, "moe_router_topk", 2) / groups : 0;
    return best < 1 ? NULL : tm_arena_format(config->arena, "%lld", (long long)best);
}

/* Positions, attention and loss by document: all three or none. */
const char *tm_megatron_documents(const tm_config *config, const char *value)
{
    static const char *const keys[] = { "reset_position_ids", "reset_attention_mask", "eod_mask_loss" };
    int                      on = 0;
    if (strchr("fF0", value[0])) return "false";
    for (int i = 0; i < 3; i++) {
        const char *given = tm_foreign_given(config, keys[i]);
        on += given && strcmp(given, "true") == 0;
    }
    return on == 0 || on == 3 ? value : NULL;
}

static bool family_is_latent(const tm_config *config)
{
    const char *family = tm_config_text(config, "model.family");
    return family && strcmp(family, "deepseek") == 0;
}

/* Said by the file; else a preset of ours has it or not. */
bool tm_megatron_has_latent(const tm_config *config)
{
    const char *given = tm_foreign_given(config, "multi_latent_attention");
    return given ? strcmp(given, "true") == 0 : family_is_latent(config);
}

/* A preset of ours with latent attention loses it. */
const char *tm_megatron_latent(const tm_config *config, const char *value)
{
    const char *given = tm_foreign_given(config, "multi_latent_attention");
    return given && strcmp(given, "false") == 0 && family_is_latent(config) ? "lost" : value;
}

/* What counts with latent attention only, or without it only: cases "plain" and "latent". */
const char *tm_megatron_if_latent(const tm_config *config, const char *value)
{
    return tm_megatron_has_latent(config) ? value : "plain";
}

const char *tm_megatron_unless_latent(const tm_config *config, const char *value)
{
    return tm_megatron_has_latent(config) ? "latent" : value;
}

static bool is_one(const char *number)
{
    char  *end;
    double x = strtod(number, &end);
    return *number && !*end && x <= 1 && x >= 1;
}

/* Positions divided by a factor; latent attention does not look at it, and beside Llama 3's scaling both count. */
const char *tm_megatron_interpolated(const tm_config *config, const char *value)
{
    const char *llama3 = tm_foreign_given(config, "use_rope_scaling");
    bool        alone = !tm_megatron_has_latent(config) && !(llama3 && strcmp(llama3, "true") == 0);
    return alone || is_one(value) ? value : NULL;
}

const char *tm_megatron_scaling(const tm_config *config, const char *value)
{
    const char *factor = tm_foreign_given(config, "rotary_seq_len_interpolation_factor");
    if (tm_megatron_has_latent(config)) return "latent";
    return strcmp(value, "false") == 0 && factor && !is_one(factor) ? "interpolated" : value;
}

/* Norms of query and key: of heads; or of what both are computed from, which our latent attention always has. */
const char *tm_megatron_norms(const tm_config *config, const char *value)
{
    const char *given = tm_foreign_given(config, "qk_layernorm");
    if (!tm_megatron_has_latent(config)) return value;
    return !given || strcmp(given, "true") == 0 ? "latent" : NULL;
}

/* Latent attention has YaRN's positions, others the plain ones. */
const char *tm_megatron_positions(const tm_config *config, const char *value)
{
    return strcmp(value, tm_megatron_has_latent(config) ? "yarn" : "rope") == 0 ? value : NULL;
}

/* Their windows count the tokens before a token, ours the token, too. "128,0" -> "129", "-1,0" -> "none". */
const char *tm_megatron_window(const tm_config *config, const char *value)
{
    long long before, behind = 0;
    int       used = 0;
    if (sscanf(value, "%9lld%n,%9lld%n", &before, &used, &behind, &used) < 1 || value[used] || behind > 0) return NULL;
    return before < 0 ? "none" : tm_arena_format(config->arena, "%lld", before + 1);
}

/* Which blocks have a window: "1,0,1,0", or n: all but the last of every n. Ours: every first of n. */
const char *tm_megatron_window_blocks(const tm_config *config, const char *value)
{
    int64_t every = 0, blocks = 0;
    if (strcmp(value, "all") == 0) return value;
    if (!strchr(value, ',')) return strcmp(value, "2") == 0 ? "2" : NULL;
    for (const char *p = value; *p; p += *p == ',') { /* the distance of the first two with a window */
        if ((*p != '0' && *p != '1') || (p[1] && p[1] != ',')) return NULL;
        if (*p++ == '1' && blocks > 0 && every == 0) every = blocks;
        blocks++;
    }
    if (every == 0) return NULL;
    for (int64_t i = 0; i < blocks; i++)
        if ((value[2 * i] == '1') != (i % every == 0)) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)every);
}

/* What counts with sinks only; case "off". */
const char *tm_megatron_if_sinks(const tm_config *config, const char *value)
{
    static const char *const switches[] = { "use_turbo_attention", "use_sink_attention" };
    for (int i = 0; i < 2; i++) {
        const char *given = tm_foreign_given(config, switches[i]);
        if (!given || strcmp(given, "true") != 0) return "off";
    }
    return value;
}

const char *tm_megatron_sink_window(const tm_config *config, const char *value)
{
    char   *end;
    int64_t before = strtoll(value, &end, 10);
    if (*end || before < 1) return value; /* none, or refused as a number */
    value = tm_megatron_if_sinks(config, value);
    return strcmp(value, "off") == 0 ? value : tm_arena_format(config->arena, "%lld", (long long)before + 1);
}

/* The rows of the stage sft, where they are a file: NULL for the name of a data set of a hub. */
static const char *rows_of(const tm_config *config)
{
    static const char *const ends[] = { ".jsonl", ".json" };
    const char              *name = tm_foreign_text(config, "sft_dataset_name");
    size_t                   n = name ? strlen(name) : 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0) return name;
    return name && tm_file_exists(name) ? name : NULL;
}

const char *tm_megatron_stage(const tm_config *config, const char *value)
{
    const char *rows = rows_of(config);
    if (strcmp(value, "pretrain") == 0) return value;
    return strcmp(value, "sft") != 0 ? NULL : rows ? rows : "hub";
}

/* A folder of packed sequences says its form itself. */
const char *tm_megatron_rows_format(const tm_config *config, const char *value)
{
    const char *rows = rows_of(config);
    if (!rows) return "hub";
    return tm_file_exists(tm_arena_format(config->arena, "%s/train.npy", rows)) ? "packed" : value;
}

const char *tm_megatron_rows_encoder(const tm_config *config, const char *value)
{
    const char *model = tm_foreign_text(config, "tokenizer_model");
    return rows_of(config) && strcmp(value, "NullTokenizer") != 0 && model ? model : "";
}

/* "PREFIX" or "WEIGHT PREFIX": one set of text. Several need weights, images are in sets of another kind. */
const char *tm_megatron_data(const tm_config *config, const char *value)
{
    const char *type = tm_foreign_text(config, "model_type");
    if (type && strcmp(type, "gpt") != 0) return NULL;
    char *end;
    value += strspn(value, " \n");
    size_t n = strcspn(value, " ,\n"), rest = n + strspn(value + n, " ,\n");
    (void)strtod(value, &end);
    if (value[rest] && end == value + n) { /* the weight of a single one says nothing */
        value += rest;
        n = strcspn(value, " ,\n");
        rest = n + strspn(value + n, " ,\n");
    }
    return value[rest] ? NULL : tm_arena_text_n(config->arena, value, n);
}

/* Megatron-LM asserts that they are given. */
const char *tm_megatron_wsd_steps(const tm_config *config, const char *value)
{
    (void)config;
    return strcmp(value, "none") == 0 ? NULL : value;
}

/* Without tensor parallelism matrices are whole: case "whole". */
const char *tm_megatron_muon_parts(const tm_config *config, const char *value)
{
    return number_of(config, "tensor_model_parallel_size", 1) == 1 ? "whole" : value;
}

/* Stages of a rank as blocks of a stage; 1 stage: as it is anyway. */
const char *tm_megatron_stage_blocks(const tm_config *config, const char *value)
{
    const tm_entry *ours = tm_entry_find(config, "model.n_layers");
    const char     *text = ours ? tm_entry_value(ours)->text : NULL;
    int64_t         layers = number_of(config, "num_layers", text ? strtoll(text, NULL, 10) : 0);
    int64_t         each = strtoll(value, NULL, 10), ranks = number_of(config, "pipeline_model_parallel_size", 1);
    if (each == 1) return "1 stage";
    if (each < 1 || each > layers || ranks > layers || layers % (ranks * each) != 0) return NULL;
    return tm_arena_format(config->arena, "%lld", (long long)(layers / (ranks * each)));
}

/* --- data parallel layouts: one of the keys decides --------------------------------------------------------------- */

static bool is_true(const tm_config *config, const char *name)
{
    const char *value = tm_foreign_given(config, name);
    return value && strcmp(value, "true") == 0;
}

static bool has_fsdp(const tm_config *config)
{
    return is_true(config, "use_megatron_fsdp") || is_true(config, "use_custom_fsdp");
}

/* Ranks that divide experts are those of one copy, here: copies become the layout that is next to them. */
static bool divides_experts(const tm_config *config)
{
    const tm_entry *ours = tm_entry_find(config, "parallelism.expert_parallel_degree"); /* of a variable, an option */
    const char     *text = ours ? tm_entry_value(ours)->text : NULL;
    return number_of(config, "expert_model_parallel_size", 1) > 1 || (text && strtoll(text, NULL, 10) > 1);
}

const char *tm_megatron_distributed(const tm_config *config, const char *value)
{
    bool torch = is_true(config, "use_torch_fsdp2"), distributed = is_true(config, "use_distributed_optimizer");
    if (torch && distributed) return NULL;
    if (torch || has_fsdp(config)) return "elsewhere";
    return !distributed && divides_experts(config) ? "experts" : value;
}

/* Copies are of another key, if it is given. */
const char *tm_megatron_fsdp2(const tm_config *config, const char *value)
{
    bool on = is_true(config, "use_torch_fsdp2");
    return on && tm_foreign_given(config, "data_parallel_replicate_degree") ? "hybrid" : value;
}

/* Counts with Megatron's own FSDP only. */
const char *tm_megatron_sharding(const tm_config *config, const char *value)
{
    if (!has_fsdp(config)) return "elsewhere";
    return strcmp(value, "no_shard") == 0 && divides_experts(config) ? "experts" : value;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron_adapters.c - what Megatron-LM's keys of adapters are in ours. */
#include "config/frameworks/megatron_values.h"

#include <string.h>

static bool is_true(const tm_config *config, const char *name)
{
    const char *value = tm_foreign_given(config, name);
    return value && strcmp(value, "true") == 0;
}

/* The modules of a block, by their names there: of which attention each is. */
enum { ANY = 0, PLAIN = 1, LATENT = 2, LATENT_WHOLE = 3, LATENT_PARTS = 4 };
static const struct {
    const char *theirs, *ours;
    int         of;
} modules[] = {
    { "linear_qkv", "wqkv", PLAIN },
    { "linear_proj", "wo", ANY },
    { "linear_fc1", "w13", ANY },
    { "linear_fc2", "w2", ANY },
    { "linear_q_proj", "wq", LATENT_WHOLE }, /* without q_lora_rank */
    { "linear_q_down_proj", "wq_a", LATENT_PARTS },
    { "linear_q_up_proj", "wq_b", LATENT_PARTS },
    { "linear_kv_down_proj", "wkv_a", LATENT },
    { "linear_kv_up_proj", "wkv_b", LATENT },
};

/* Names of the other attention name nothing there, and are passed over. */
static bool is_there(const tm_config *config, int of)
{
    bool latent = tm_megatron_has_latent(config), parts = tm_foreign_text(config, "q_lora_rank") != NULL;
    if (of == ANY || of == PLAIN) return of == ANY || !latent;
    return latent && (of == LATENT || (of == LATENT_PARTS) == parts);
}

const char *tm_megatron_adapted(const tm_config *config, const char *value)
{
    const char *targets = "";
    while (*value) {
        size_t      n = strcspn(value, ",");
        const char *ours = NULL;
        for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
            if (strlen(modules[i].theirs) != n || strncmp(modules[i].theirs, value, n) != 0) continue;
            ours = is_there(config, modules[i].of) ? modules[i].ours : "";
        }
        if (!ours) return NULL;
        if (*ours) targets = tm_arena_format(config->arena, "%s%s%s", targets, *targets ? "," : "", ours);
        value += n + (value[n] == ',');
    }
    return *targets ? targets : NULL;
}

/* One module of all experts of a rank has one adapter; experts that are modules each have one each; experts that are
 * parameters (the legacy form) have none. */
const char *tm_megatron_expert_adapters(const tm_config *config, const char *value)
{
    const char *names = tm_foreign_text(config, "lora.target_modules");
    bool        said = tm_foreign_given(config, "moe_grouped_gemm") != NULL; /* else: files of mixtures set it */
    bool        grouped = said ? is_true(config, "moe_grouped_gemm") : config->preset != NULL;
    (void)value;
    if (!is_true(config, "lora.enabled") || !names || !strstr(names, "linear_fc")) return "plain";
    if (!grouped) return "each";
    return is_true(config, "moe_use_legacy_grouped_gemm") ? "none" : "shared";
}

/* Products of adapters are not among those that it makes in low precision. */
const char *tm_megatron_low_precision(const tm_config *config, const char *value)
{
    return is_true(config, "lora.enabled") ? tm_arena_format(config->arena, "%s beside adapters", value) : value;
}

/* "adapters": what they have where nothing is given. */
const char *tm_megatron_alpha(const tm_config *config, const char *value)
{
    if (strcmp(value, "adapters") != 0) return value;
    return is_true(config, "lora.enabled") ? "32" : "";
}

/* With bf16 weights are bfloat16, and those that are trained have float32 ones in the optimizer beside them: what is
 * frozen beside adapters has none. */
const char *tm_megatron_base(const tm_config *config, const char *value)
{
    const char *given = tm_foreign_given(config, "bf16");
    return is_true(config, "lora.enabled") && (!given || strcmp(given, "true") == 0) ? "base" : value;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "train/settings/quantize.h"

#include <stdio.h>
#include <string.h>

static bool is(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_text(config, key);
    return text && strcmp(text, value) == 0;
}

/* Is the word in the list "a,b"? */
static bool lists(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list ? strstr(list, word) : NULL; at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

/* --- what other programs say -------------------------------------------------------------------------------------- */

static const char *of_converters(const tm_config *config)
{
    const char *list = tm_config_text(config, "model.converters");
    const char *recipe = tm_config_text(config, "quantize.linear.float8.recipe_name");
    if (lists(list, "quantize.linear.mx")) return "mxfp8";
    if (!lists(list, "quantize.linear.float8")) return NULL;
    if (!recipe || strcmp(recipe, "tensorwise") == 0) return "fp8_tensorwise";
    return strcmp(recipe, "rowwise") == 0 ? "fp8_rowwise" : "fp8_rowwise_with_gw_hp";
}

/* The recipe of experts: torchtitan has one for each of the two, for those that it names. */
static const char *experts_of_converters(const tm_config *config)
{
    const char *list = tm_config_text(config, "model.converters");
    bool        mx = lists(list, "quantize.grouped_mm.mx"), float8 = lists(list, "quantize.grouped_mm.float8");
    const char *names = tm_config_text(config, mx ? "quantize.grouped_mm.mx.fqns" : "quantize.grouped_mm.float8.fqns");
    if (!names || !*names) return NULL;
    return mx ? "mxfp8" : float8 ? "fp8_rowwise" : NULL;
}

static const char *of_fp8(const tm_config *config)
{
    if (!tm_config_text(config, "fp8")) return NULL;
    if (is(config, "fp8_recipe", "tensorwise")) return "fp8_current";
    if (is(config, "fp8_recipe", "blockwise")) return "fp8_blockwise";
    return is(config, "fp8_recipe", "mxfp8") ? "mxfp8" : "fp8_delayed";
}

static const char *of_fp4(const tm_config *config)
{
    if (!tm_config_text(config, "fp4") || is(config, "fp4", "false")) return NULL;
    return is(config, "fp4", "mxfp4") ? "mxfp4" : tm_config_text(config, "fp4_recipe");
}

static bool told(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_foreign(config, key);
    return text && strcmp(text, value) == 0;
}

/* Primus-Turbo's grouped products in TorchTitan quantize experts unless use_moe_fp8, the default, is off; in which
 * recipe is not known here. */
static tm_status check_turbo_experts(tm_config *config, tm_error *err)
{
    static const char key[] = "primus_turbo.use_moe_fp8";
    bool              turbo = told(config, "primus_turbo.enable_primus_turbo", "true") &&
                 (told(config, "primus_turbo.use_turbo_grouped_mm", "true") ||
                  told(config, "primus_turbo.use_turbo_grouped_gemm", "true"));
    if (!tm_config_text(config, "model.n_experts") || !turbo || told(config, key, "false")) return TM_OK;
    if (tm_config_is_set(config, "quantize.experts_recipe")) return TM_OK;
    const char *value = tm_config_foreign(config, key);
    if (tm_config_plans(config)) {
        tm_config_leave_out(config, "quantized products of experts (%s = %.40s, %s)", key, value ? value : "true",
                            tm_config_foreign_place(config, key));
        return TM_OK;
    }
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s' = '%.40s' (%s) quantizes the products of experts in a recipe that is not known; set it to "
                   "false, and quantize.experts_recipe to one that is",
                   key, value ? value : "true", tm_config_foreign_place(config, key));
}

static const char *const converters[] = { "quantize.linear.float8", "quantize.linear.mx", "quantize.grouped_mm.float8",
                                          "quantize.grouped_mm.mx" };

/* Primus-Turbo's own linears of 2025: a plan is without them. */
static tm_status check_turbo_linears(tm_config *config, tm_error *err)
{
    const char *place = tm_config_place(config, "model.converters");
    if (tm_config_plans(config)) {
        tm_config_leave_out(config, "float8 of Primus-Turbo's linears (model.converters turbo_fp8_linear, %s)", place);
        return TM_OK;
    }
    return tm_fail(err, TM_UNSUPPORTED,
                   "'model.converters' (%s): 'turbo_fp8_linear', float8 of Primus-Turbo, is not supported; give [] for "
                   "bfloat16, or [quantize.linear.float8] for the float8 of torchao",
                   place);
}

/* Only what is known of model.converters may be there. */
static tm_status check_converters(tm_config *config, tm_error *err)
{
    const char *list = tm_config_text(config, "model.converters");
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ",");
        bool   known = n == strlen("turbo_fp8_linear") && strncmp(p, "turbo_fp8_linear", n) == 0;
        if (known) TM_TRY(check_turbo_linears(config, err));
        for (size_t i = 0; i < sizeof converters / sizeof *converters; i++)
            known |= n == strlen(converters[i]) && strncmp(p, converters[i], n) == 0;
        if (!known)
            return tm_fail(err, TM_UNSUPPORTED,
                           "'model.converters' (%s): '%.*s' is not supported; there are quantize.linear.float8, "
                           "quantize.linear.mx, quantize.grouped_mm.float8 and quantize.grouped_mm.mx",
                           tm_config_place(config, "model.converters"), (int)n, p);
        p += n + (p[n] == ',');
    }
    return TM_OK;
}

/* A converter of experts that names none would quantize nothing; in a model without experts that is right. */
static tm_status check_expert_names(const tm_config *config, tm_error *err)
{
    static const char *const keys[] = { "quantize.grouped_mm.float8.fqns", "quantize.grouped_mm.mx.fqns" };
    const char              *list = tm_config_text(config, "model.converters");
    if (lists(list, converters[2]) && lists(list, converters[3]))
        return tm_fail(err, TM_INVALID, "'model.converters' (%s) has two converters of experts; leave one of them out",
                       tm_config_place(config, "model.converters"));
    for (int i = 0; i < 2; i++) {
        const char *names = tm_config_text(config, keys[i]), *converter = converters[2 + i];
        bool        on = lists(list, converter), given = names && *names;
        if (on && !given && tm_config_text(config, "model.n_experts"))
            return tm_fail(err, TM_INVALID,
                           "'model.converters' (%s): %s quantizes the experts that %s names, and it names none; give "
                           "[experts] for all of them",
                           tm_config_place(config, "model.converters"), converter, keys[i]);
        if (given && !on)
            return tm_fail(err, TM_INVALID,
                           "%s (%s) has an effect only with model.converters: [%s]; give that, too, or set "
                           "quantize.experts_recipe",
                           keys[i], tm_config_place(config, keys[i]), converter);
    }
    return TM_OK;
}

static tm_status derive(tm_config *config, const char *from, const char *key, const char *recipe, tm_error *err)
{
    char origin[320];
    if (!recipe) return TM_OK;
    if (!is(config, key, "none") && !is(config, key, recipe))
        return tm_fail(err, TM_INVALID, "%s is %s (%s), %s (%s) means %s; give one", key, tm_config_text(config, key),
                       tm_config_place(config, key), from, tm_config_place(config, from), recipe);
    snprintf(origin, sizeof origin, "derived from %s (%.200s)", from, tm_config_place(config, from));
    tm_config_set(config, key, recipe, origin);
    return TM_OK;
}

/* Are experts multiplied by Megatron's own grouped products? Those take bfloat16 only. Without moe_grouped_gemm experts
 * are one linear after the other; Primus-Turbo has grouped products of its own. */
static bool has_legacy_experts(const tm_config *config)
{
    static const char *const turbo[] = { "use_turbo_grouped_mlp", "use_turbo_grouped_gemm" };
    for (size_t i = 0; i < sizeof turbo / sizeof turbo[0]; i++)
        if (told(config, turbo[i], "true")) return false;
    return told(config, "moe_use_legacy_grouped_gemm", "true") && !told(config, "moe_grouped_gemm", "false");
}

/* Megatron quantizes experts like other linears, except in its legacy grouped products. Who says something about them
 * is heard. */
static tm_status derive_all(tm_config *config, const char *from, const char *recipe, tm_error *err)
{
    bool experts = tm_config_text(config, "model.n_experts") && !has_legacy_experts(config) &&
                   !tm_config_is_set(config, "quantize.experts_recipe");
    TM_TRY(derive(config, from, "quantize.recipe", recipe, err));
    return experts ? derive(config, from, "quantize.experts_recipe", recipe, err) : TM_OK;
}

static tm_status check_switch(const tm_config *config, tm_error *err)
{
    bool step = tm_config_text(config, "quantize.switch_step") != NULL;
    bool recipe = tm_config_text(config, "quantize.switch_recipe") != NULL;
    if (step != recipe)
        return tm_fail(err, TM_INVALID, "%s (%s) has an effect only with %s; give both or none",
                       step ? "quantize.switch_step" : "quantize.switch_recipe",
                       tm_config_place(config, step ? "quantize.switch_step" : "quantize.switch_recipe"),
                       step ? "quantize.switch_recipe" : "quantize.switch_step");
    return TM_OK;
}

tm_status train_quantize_settle(tm_config *config, tm_error *err)
{
    bool wrong = tm_config_report(config, check_converters(config, err), err);
    wrong |= tm_config_report(config, check_turbo_experts(config, err), err);
    if (tm_config_text(config, "quantize.linear.float8.recipe_name") &&
        !lists(tm_config_text(config, "model.converters"), "quantize.linear.float8"))
        wrong |= tm_config_report(config,
                                  tm_fail(err, TM_INVALID,
                                          "quantize.linear.float8.recipe_name (%s) has an effect only with "
                                          "model.converters: [quantize.linear.float8]; give that, too, or set "
                                          "quantize.recipe",
                                          tm_config_place(config, "quantize.linear.float8.recipe_name")),
                                  err);
    wrong |= tm_config_report(config, check_expert_names(config, err), err);
    wrong |= tm_config_report(config, check_switch(config, err), err);
    if (wrong) return TM_OK; /* reported */
    TM_TRY(derive(config, "model.converters", "quantize.recipe", of_converters(config), err));
    TM_TRY(derive(config, "model.converters", "quantize.experts_recipe", experts_of_converters(config), err));
    TM_TRY(derive_all(config, "fp8", of_fp8(config), err));
    return derive_all(config, "fp4", of_fp4(config), err);
}

/* --- the recipe with what keys change ----------------------------------------------------------------------------- */

static tm_status refuse(const tm_config *config, const char *key, const tm_quantize_recipe *recipe, const char *why,
                        tm_error *err)
{
    return tm_fail(err, TM_INVALID, "%s is %s (%s), but recipe %s %s; leave one of the two out", key,
                   tm_config_text(config, key), tm_config_place(config, key), recipe->name, why);
}

static tm_status set_rule(const tm_config *config, tm_quantize_recipe *recipe, tm_error *err)
{
    static const char *const names[] = { "floor", "ceil", "even", "up" };
    if (!tm_config_text(config, "quantize.scale_rule")) return TM_OK;
    for (int f = 0; f < TM_FACTORS; f++) {
        uint8_t *rule = &recipe->factor[f].rule;
        if (*rule < TM_RULE_FLOOR || *rule > TM_RULE_UP)
            return refuse(config, "quantize.scale_rule", recipe, "has no scales of powers of two in blocks", err);
        for (int i = 0; i < 4; i++)
            if (is(config, "quantize.scale_rule", names[i])) *rule = (uint8_t)(TM_RULE_FLOOR + i);
    }
    return TM_OK;
}

static tm_status set_rotation(const tm_config *config, tm_quantize_recipe *recipe, tm_error *err)
{
    bool no_rotation = is(config, "debug.quantize_defect", "no_rotation"), rotated = false;
    for (int f = 0; f < TM_FACTORS; f++) rotated |= recipe->factor[f].rotation != TM_ROTATE_NOT;
    if (no_rotation && !rotated) return refuse(config, "debug.quantize_defect", recipe, "rotates nothing", err);
    for (int f = 0; f < TM_FACTORS; f++) {
        tm_quantizer *z = &recipe->factor[f];
        if (no_rotation) z->rotation = TM_ROTATE_NOT;
        if (!tm_config_text(config, "quantize.rotation")) continue;
        bool on = tm_config_bool(config, "quantize.rotation");
        if (on && z->scaled != TM_SCALED_BLOCK) /* nothing else is rotated */
            return refuse(config, "quantize.rotation", recipe, "has factors that are not quantized in blocks of a line",
                          err);
        if (!on || !z->rotation) z->rotation = on ? TM_ROTATE_16 : TM_ROTATE_NOT;
    }
    return TM_OK;
}

/* Formats of the other kind of devices; gradients in the format of the rest. */
static tm_status set_formats(const tm_config *config, tm_quantize_recipe *recipe, tm_error *err)
{
    bool fnuz = tm_config_text(config, "quantize.fnuz") && tm_config_bool(config, "quantize.fnuz"),
         all_e4m3 = is(config, "fp8", "e4m3");
    bool swapped = is(config, "debug.quantize_defect", "swapped_formats"), two = false;
    for (int f = 0; f < TM_FACTORS; f++) two |= recipe->factor[f].format == TM_E5M2;
    if (swapped && !two) return refuse(config, "debug.quantize_defect", recipe, "has one format", err);
    for (int f = 0; f < TM_FACTORS; f++) {
        uint8_t *format = &recipe->factor[f].format;
        if (recipe->factor[f].scaled == TM_SCALED_NOT) continue;
        if (all_e4m3 && *format == TM_E5M2) *format = TM_E4M3;
        if (swapped) *format = *format == TM_E5M2 ? TM_E4M3 : TM_E5M2;
        bool six = *format == TM_E3M2 || *format == TM_E2M3;
        if (fnuz && (six || *format == TM_E2M1))
            return refuse(config, "quantize.fnuz", recipe, six ? "has 6 bits" : "has 4 bits", err);
        if (fnuz) *format = *format == TM_E5M2 ? TM_E5M2FNUZ : TM_E4M3FNUZ;
    }
    if (tm_config_text(config, "quantize.stochastic_gradients")) {
        bool on = tm_config_bool(config, "quantize.stochastic_gradients");
        recipe->factor[TM_FACTOR_DY].stochastic = recipe->factor[TM_FACTOR_DY_DW].stochastic = on;
    }
    return TM_OK;
}

/* MX's scales go with OCP's formats. */
static bool takes_fnuz(const tm_quantizer *z)
{
    return (z->format == TM_E4M3 || z->format == TM_E5M2) && (z->rule < TM_RULE_FLOOR || z->rule > TM_RULE_UP);
}

bool train_quantize_take_fnuz(tm_quantize *q)
{
    tm_quantize_recipe *recipes[] = { &q->recipe[0], &q->recipe[1], &q->experts, &q->head };
    bool                taken = false;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0] && q->by_device; i++)
        for (int f = 0; recipes[i]->name && f < TM_FACTORS; f++) {
            tm_quantizer *z = &recipes[i]->factor[f];
            if (z->scaled == TM_SCALED_NOT || !takes_fnuz(z)) continue;
            z->format = z->format == TM_E5M2 ? TM_E5M2FNUZ : TM_E4M3FNUZ;
            taken = true;
        }
    return taken;
}

static tm_status read_recipe(const tm_config *config, const char *key, tm_quantize_recipe *out, tm_error *err)
{
    const tm_quantize_recipe *of = tm_quantize_recipe_find(tm_config_text(config, key));
    if (is(config, key, "none")) return TM_OK;
    TM_ASSERT(of); /* the key takes no other */
    *out = *of;
    TM_TRY(set_rule(config, out, err));
    TM_TRY(set_rotation(config, out, err));
    return set_formats(config, out, err);
}

/* --- which linears ------------------------------------------------------------------------------------------------ */

/* Adds the words of a list; auto_filter_small_kn is no name. */
static tm_status read_list(const tm_config *config, const char *key, const char **list, int *n, bool *small,
                           tm_error *err)
{
    const char *text = tm_config_text(config, key);
    for (const char *p = text ? text : ""; *p;) {
        size_t length = strcspn(p, ",");
        if (length == strlen("auto_filter_small_kn") && strncmp(p, "auto_filter_small_kn", length) == 0)
            *small = true;
        else if (*n == TM_MAX_FILTERS)
            return tm_fail(err, TM_INVALID, "'%s' (%s) and what it adds to have more than %d names", key,
                           tm_config_place(config, key), TM_MAX_FILTERS);
        else if (length > 0)
            list[(*n)++] = tm_arena_text_n(tm_config_arena(config), p, length);
        p += length + (p[length] == ',');
    }
    return TM_OK;
}

static tm_status read_filters(const tm_config *config, tm_quantize *out, tm_error *err)
{
    bool        small = false;
    const char *list = tm_config_text(config, "model.converters");
    TM_TRY(read_list(config, "quantize.filter_fqns", out->left_out, &out->n_left_out, &small, err));
    TM_TRY(read_list(config, "quantize.fqns", out->only, &out->n_only, &small, err));
    if (lists(list, "quantize.linear.float8"))
        TM_TRY(read_list(config, "quantize.linear.float8.filter_fqns", out->left_out, &out->n_left_out, &small, err));
    if (lists(list, "quantize.linear.mx")) {
        TM_TRY(read_list(config, "quantize.linear.mx.filter_fqns", out->left_out, &out->n_left_out, &small, err));
        TM_TRY(read_list(config, "quantize.linear.mx.fqns", out->only, &out->n_only, &small, err));
    }
    for (int i = 2; i < 4; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.fqns", converters[i]);
        if (lists(list, converters[i]))
            TM_TRY(read_list(config, key, out->only_experts, &out->n_only_experts, &small, err));
    }
    out->skip_small = small;
    return TM_OK;
}

tm_status train_quantize_read(const tm_config *config, int64_t layers, tm_quantize *out, tm_error *err)
{
    *out = (tm_quantize){ .switch_step = -1 };
    TM_TRY(read_recipe(config, "quantize.recipe", &out->recipe[0], err));
    TM_TRY(read_recipe(config, "quantize.experts_recipe", &out->experts, err));
    TM_TRY(read_recipe(config, "quantize.output_recipe", &out->head, err));
    out->by_device = !tm_config_text(config, "quantize.fnuz");
    out->on = out->recipe[0].name || out->experts.name || out->head.name;
    if (!out->on) return TM_OK;
    if (tm_config_text(config, "quantize.switch_step") && tm_config_text(config, "quantize.switch_recipe")) {
        out->switch_step = tm_config_i64(config, "quantize.switch_step");
        TM_TRY(read_recipe(config, "quantize.switch_recipe", &out->recipe[1], err));
    }
    TM_TRY(read_filters(config, out, err));
    if (tm_config_bool(config, "first_last_layers_bf16")) {
        out->first_layer = tm_config_i64(config, "num_layers_at_start_in_bf16");
        out->end_layer = layers - tm_config_i64(config, "num_layers_at_end_in_bf16");
        if (out->end_layer <= out->first_layer)
            return tm_fail(
                err, TM_INVALID,
                "num_layers_at_start_in_bf16 and num_layers_at_end_in_bf16 (%s) leave none of %lld layers to "
                "be quantized",
                tm_config_place(config, "first_last_layers_bf16"), (long long)layers);
    }
    out->history = tm_config_i64(config, "fp8_amax_history_len");
    out->recent = is(config, "fp8_amax_compute_algo", "most_recent");
    out->margin = tm_config_i64(config, "fp8_margin");
    out->frozen = is(config, "debug.quantize_defect", "stale_scale");
    out->seed = (uint64_t)tm_config_i64(config, "debug.seed");
    return TM_OK;
}

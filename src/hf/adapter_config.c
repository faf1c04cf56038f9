/* SPDX-License-Identifier: Apache-2.0 */
/* hf/adapter_config.c - adapter_config.json: what an adapter computes, and which modules it is for, as PEFT reads it.
 */
#include "hf/adapter.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_input.h"
#include "base/text.h"
#include "hf/lora_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char config_name[] = "adapter_config.json";

/* Members that change nothing that is computed with given weights. */
static const char *const idle[] = { "alpha",
                                    "auto_mapping",
                                    "base_model_name_or_path",
                                    "ensure_weight_tying",
                                    "fan_in_fan_out", /* how the base stores its matrices */
                                    "inference_mode",
                                    "megatron_core",
                                    "peft_version",
                                    "qalora_group_size",
                                    "revision",
                                    "runtime_config",
                                    "task_type" };

static bool is_idle(const char *key)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(idle[i], key) == 0) return true;
    return false;
}

/* null, false, 0, "", an empty list or map: nothing is asked for. */
static bool is_empty(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_number(value) && !(json_number_value(value) != 0)) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static tm_status not_built(const tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    tm_fail(err, TM_UNSUPPORTED,
            "'%.200s/%s': '%s' is %.100s, which is not supported; merge the adapter with PEFT first", a->folder,
            a->config, key, text ? text : "?");
    free(text);
    return TM_UNSUPPORTED;
}

static tm_status wrong(const tm_hf_adapter *a, const char *key, const char *wanted, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%.200s/%s': '%s' must be %s", a->folder, a->config, key, wanted);
}

static tm_status read_number(const tm_hf_adapter *a, const char *key, const json_t *value, double lo, double hi,
                             double *out, tm_error *err)
{
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a number from %.9g to %.9g", lo, hi);
    *out = json_number_value(value);
    return json_is_number(value) && *out >= lo && *out <= hi ? TM_OK : wrong(a, key, wanted, err);
}

/* Those that a first value of the adapter makes, and the base with it, change the base. */
static tm_status read_init(const tm_hf_adapter *a, const json_t *value, tm_error *err)
{
    const char              *name = json_string_value(value);
    static const char *const plain[] = { "gaussian", "eva", "orthogonal" };
    if (json_is_boolean(value) || json_is_null(value)) return TM_OK;
    for (size_t i = 0; name && i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(name, plain[i]) == 0) return TM_OK;
    return not_built(a, "init_lora_weights", value, err);
}

static const char *const expert_matrices[] = { "experts.gate_up_proj", "experts.down_proj" };

/* Parameters with adapters: the matrices that transformers keeps of all experts. */
static tm_status read_parameters(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    size_t        at;
    const json_t *name;
    json_array_foreach((json_t *)(uintptr_t)value, at, name)
    {
        const char *text = json_string_value(name);
        bool        known = false;
        for (int k = 0; k < 2 && text; k++) {
            const char *end = strstr(text, expert_matrices[k]);
            if (end && strcmp(end, expert_matrices[k]) == 0) known = a->experts[k] = true;
        }
        if (!known) return not_built(a, key, value, err);
    }
    return TM_OK;
}

/* --- which modules ------------------------------------------------------------------------------------------------ */

/* A text or a list of texts; null, "" and [] are none. */
static tm_status read_texts(const tm_hf_adapter *a, const char *key, const json_t *value, tm_peft_names *out,
                            tm_error *err)
{
    size_t n = json_array_size(value);
    if (is_empty(value) && !json_is_false(value)) return TM_OK;
    if (json_is_string(value)) {
        out->pattern = tm_arena_text(a->arena, json_string_value(value));
        return TM_OK;
    }
    const char **names = tm_arena_take(a->arena, (n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name) return wrong(a, key, "a text, or a list of texts", err);
        names[i] = tm_arena_text(a->arena, name);
    }
    out->names = names;
    out->n = n;
    return json_is_array(value) ? TM_OK : wrong(a, key, "a text, or a list of texts", err);
}

/* TM_FORMAT: no regular expression. */
static tm_status check_pattern(const tm_hf_adapter *a, const char *key, const char *pattern, tm_error *err)
{
    char where[400];
    snprintf(where, sizeof where, "'%.200s/%s': '%s'", a->folder, a->config, key);
    return tm_pattern_check(pattern, where, err) == TM_OK ? TM_OK : TM_FORMAT;
}

static tm_status read_targets(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    tm_peft_names *targets = &a->rules.targets;
    TM_TRY(read_texts(a, key, value, targets, err));
    a->rules.given = targets->pattern || targets->names;
    if (!targets->pattern) return TM_OK;
    if (strcasecmp(targets->pattern, "all-linear") != 0) return check_pattern(a, key, targets->pattern, err);
    targets->pattern = NULL;
    a->rules.all_linear = true;
    return TM_OK;
}

static tm_status read_layers(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    size_t   n = json_is_array(value) ? json_array_size(value) : 1;
    int64_t *layers = tm_arena_take(a->arena, (n + 1) * sizeof *layers);
    if (json_is_null(value)) return TM_OK;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(one)) return wrong(a, key, "the number of a block, or a list of them", err);
        layers[i] = json_integer_value(one);
    }
    a->rules.layers = layers;
    a->rules.n_layers = n;
    return TM_OK;
}

/* {"q_proj": 8}: the patterns in the order of the file. */
static tm_status read_values(tm_hf_adapter *a, const char *key, const json_t *value, double least,
                             const tm_pattern_value **out, size_t *n, tm_error *err)
{
    const char   *pattern;
    const json_t *number;
    if (json_is_null(value)) return TM_OK;
    if (!json_is_object(value)) return wrong(a, key, "a map of regular expressions to numbers", err);
    tm_pattern_value *all = tm_arena_take(a->arena, (json_object_size(value) + 1) * sizeof *all);
    json_object_foreach((json_t *)(uintptr_t)value, pattern, number)
    {
        double x = json_number_value(number);
        bool   whole = json_is_integer(number) || least < 1;
        if (!json_is_number(number) || !whole || !(x >= least) || x > (least < 1 ? 1e6 : 65536))
            return tm_fail(err, TM_FORMAT, "'%.200s/%s': '%s' gives '%.100s' no %s", a->folder, a->config, key, pattern,
                           least < 1 ? "alpha: a number from 0 to 1000000" : "rank: a whole number from 1 to 65536");
        TM_TRY(check_pattern(a, key, pattern, err));
        all[(*n)++] = (tm_pattern_value){ tm_arena_text(a->arena, pattern), x };
    }
    *out = all;
    return TM_OK;
}

/* The members that say which modules; *mine: it is one of them. */
static tm_status read_rule(tm_hf_adapter *a, const char *key, const json_t *value, bool *mine, tm_error *err)
{
    tm_peft_rules *r = &a->rules;
    *mine = true;
    if (strcmp(key, "target_modules") == 0) return read_targets(a, key, value, err);
    if (strcmp(key, "layers_to_transform") == 0) return read_layers(a, key, value, err);
    if (strcmp(key, "rank_pattern") == 0)
        return read_values(a, key, value, 1, &a->adapters.ranks, &a->adapters.n_ranks, err);
    if (strcmp(key, "alpha_pattern") == 0)
        return read_values(a, key, value, 0, &a->adapters.alphas, &a->adapters.n_alphas, err);
    if (strcmp(key, "exclude_modules") == 0) {
        TM_TRY(read_texts(a, key, value, &r->excluded, err));
        return r->excluded.pattern ? check_pattern(a, key, r->excluded.pattern, err) : TM_OK;
    }
    *mine = strcmp(key, "layers_pattern") == 0;
    if (!*mine) return TM_OK;
    TM_TRY(read_texts(a, key, value, &r->blocks, err));
    if (!r->blocks.pattern) return TM_OK;
    r->blocks.names = tm_arena_take(a->arena, sizeof *r->blocks.names);
    r->blocks.names[0] = r->blocks.pattern;
    r->blocks.n = 1;
    return TM_OK;
}

/* What PEFT refuses, too. */
static tm_status check_rules(const tm_hf_adapter *a, tm_error *err)
{
    const tm_peft_rules *r = &a->rules;
    bool                 text = r->targets.pattern || r->all_linear;
    if (text && (r->layers || r->blocks.n))
        return tm_fail(err, TM_FORMAT,
                       "'%.200s/%s': '%s' cannot stand beside 'target_modules' that is a text; give a list of names",
                       a->folder, a->config, r->layers ? "layers_to_transform" : "layers_pattern");
    if (r->blocks.n && !r->layers)
        return tm_fail(err, TM_FORMAT, "'%.200s/%s': 'layers_pattern' needs 'layers_to_transform'", a->folder,
                       a->config);
    for (size_t i = 0; i < r->blocks.n; i++) TM_TRY(check_pattern(a, "layers_pattern", r->blocks.names[i], err));
    const char *beside = a->adapters.n_ranks    ? "rank_pattern"
                         : a->adapters.n_alphas ? "alpha_pattern"
                         : r->n_layers          ? "layers_to_transform"
                                                : NULL;
    if (beside && (a->experts[0] || a->experts[1]))
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%.200s/%s': '%s' beside 'target_parameters' is not supported; merge the adapter with PEFT first",
            a->folder, a->config, beside);
    return TM_OK;
}

/* A name of the list, or one that ends with a dot and such a name; or all that the expression is. */
static bool is_named(const tm_peft_names *names, const char *module)
{
    size_t n = strlen(module);
    if (names->pattern) return tm_pattern_matches(names->pattern, module);
    for (size_t i = 0; i < names->n; i++) {
        size_t length = strlen(names->names[i]);
        if (length <= n && strcmp(module + n - length, names->names[i]) == 0 &&
            (length == n || module[n - length - 1] == '.'))
            return true;
    }
    return false;
}

/* In one of the blocks? The number is that of the first list of modules in the name. */
static bool in_layers(const tm_peft_rules *rules, const char *module)
{
    static const char any[] = ".*?\\.[^.]*\\.(?P<idx>\\d+)\\.";
    int64_t           index = rules->blocks.n ? -1 : tm_pattern_index(any, module);
    for (size_t i = 0; i < rules->blocks.n && index < 0; i++) {
        tm_text pattern = { 0 };
        tm_text_printf(&pattern, "(?:^|.*?\\.)%s\\.(?P<idx>\\d+)\\.", rules->blocks.names[i]);
        index = tm_pattern_index(pattern.data, module);
        tm_text_fini(&pattern);
    }
    for (size_t i = 0; i < rules->n_layers && index >= 0; i++)
        if (rules->layers[i] == index) return true;
    return false;
}

bool tm_peft_selects(const tm_peft_rules *rules, const char *module)
{
    if (is_named(&rules->excluded, module)) return false;
    if (rules->all_linear) return true;
    if (!is_named(&rules->targets, module)) return false;
    if (rules->targets.pattern || rules->n_layers == 0) return true;
    for (size_t i = 0; i < rules->targets.n; i++) /* in full: whatever its block */
        if (strcmp(rules->targets.names[i], module) == 0) return true;
    return in_layers(rules, module);
}

/* --- adapter_config.json ------------------------------------------------------------------------------------------ */

static tm_status read_member(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    bool        mine;
    const char *text = json_string_value(value);
    TM_TRY(read_rule(a, key, value, &mine, err));
    if (mine) return TM_OK;
    if (strcmp(key, "peft_type") == 0) return text && strcmp(text, "LORA") == 0 ? TM_OK : not_built(a, key, value, err);
    if (strcmp(key, "r") == 0) {
        a->adapters.rank = json_integer_value(value); /* 0 where it is none */
        return a->adapters.rank >= 1 && a->adapters.rank <= 65536
                   ? TM_OK
                   : wrong(a, key, "a whole number from 1 to 65536", err);
    }
    if (strcmp(key, "lora_alpha") == 0) return read_number(a, key, value, 0, 1e6, &a->adapters.alpha, err);
    if (strcmp(key, "lora_dropout") == 0) return read_number(a, key, value, 0, 0.999, &a->adapters.dropout, err);
    if (strcmp(key, "use_rslora") == 0) {
        a->adapters.rslora = json_is_true(value);
        return json_is_boolean(value) ? TM_OK : wrong(a, key, "true or false", err);
    }
    if (strcmp(key, "use_dora") == 0) {
        a->adapters.dora = json_is_true(value);
        return json_is_boolean(value) ? TM_OK : wrong(a, key, "true or false", err);
    }
    if (strcmp(key, "init_lora_weights") == 0) return read_init(a, value, err);
    if (strcmp(key, "bias") == 0 && text && strcmp(text, "none") == 0) return TM_OK;
    if (strcmp(key, "target_parameters") == 0 && json_is_array(value)) return read_parameters(a, key, value, err);
    if (is_idle(key) || is_empty(value)) return TM_OK;
    return not_built(a, key, value, err);
}

static bool is_peft(const char *folder)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", folder, config_name);
    bool is = tm_file_exists(path.data);
    tm_text_fini(&path);
    return is;
}

/* The object in the file; the caller frees it, also after a failure. */
static tm_status read_object(const char *folder, json_t **out, tm_error *err)
{
    tm_text      path = { 0 };
    json_error_t problem;
    *out = NULL;
    if (tm_hf_lora_file(folder, &path) && !is_peft(folder)) {
        tm_fail(err, TM_INVALID, "'%.300s' does not name its model; give the directory of the model beside it",
                path.data);
        tm_text_fini(&path);
        return TM_INVALID;
    }
    const char *end = strstr(folder, ".safetensors");
    if (end && !strchr(end, '/')) {
        tm_text_fini(&path);
        return tm_fail(err, TM_INVALID,
                       tm_file_exists(folder) ? "'%.300s' holds no adapter (MODULE.lora_A.weight or .lora_down.weight)"
                                              : "there is no adapter '%.300s'",
                       folder);
    }
    path.length = 0;
    tm_text_printf(&path, "%s/%s", folder, config_name);
    json_t   *root = *out = tm_json_input_file(path.data, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    tm_status st = TM_OK;
    if (!root && problem.line < 0)
        st = tm_fail(err, TM_INVALID, "no configuration of an adapter: %s", problem.text);
    else if (!json_is_object(root))
        st = tm_fail(err, TM_FORMAT, "'%.300s' is not the configuration of an adapter: %s (line %d)", path.data,
                     root ? "it is not an object" : problem.text, root ? 1 : problem.line);
    tm_text_fini(&path);
    return st;
}

tm_status tm_hf_adapter_base(const char *folder, tm_text *out, tm_error *err)
{
    json_t     *root;
    tm_status   st = read_object(folder, &root, err);
    const char *name = json_string_value(json_object_get(root, "base_model_name_or_path"));
    const char *revision = json_string_value(json_object_get(root, "revision"));
    if (st == TM_OK && (!name || !*name))
        st = tm_fail(err, TM_INVALID,
                     "'%.300s/%s' names no model (base_model_name_or_path); give the directory of the model beside the "
                     "adapter",
                     folder, config_name);
    bool here = st == TM_OK && tm_file_exists(name);
    if (st == TM_OK)
        tm_text_printf(out, "%s%s%s", name, !here && revision && *revision ? "@" : "",
                       !here && revision ? revision : "");
    json_decref(root);
    return st;
}

/* Of members with another prefix than "transformer." ("text_encoder.r") nothing is read. */
static const char *member_of(const char *key)
{
    static const char prefix[] = "transformer.";
    if (strncmp(key, prefix, sizeof prefix - 1) == 0) return key + sizeof prefix - 1;
    return strchr(key, '.') ? NULL : key;
}

tm_status tm_hf_adapter_metadata(tm_hf_adapter *a, const char *text, tm_error *err)
{
    json_error_t problem;
    json_t      *value, *root = text ? json_loads(text, JSON_REJECT_DUPLICATES, &problem) : NULL;
    const char  *key;
    tm_status    st = TM_OK;
    if (!text) return TM_OK;
    a->config = "lora_adapter_metadata";
    a->adapters.alpha = 8; /* that of PEFT where nothing is said */
    if (!json_is_object(root)) st = tm_fail(err, TM_FORMAT, "'%.300s': %s is no JSON object", a->file, a->config);
    json_object_foreach(root, key, value) if (st == TM_OK && member_of(key)) st =
        read_member(a, member_of(key), value, err);
    if (st == TM_OK && a->adapters.rank == 0) st = wrong(a, "r", "the rank of the adapters", err);
    a->rules = (tm_peft_rules){ 0 }; /* the modules are those of the file */
    json_decref(root);
    return st;
}

tm_status tm_hf_adapter_configure(tm_hf_adapter *a, tm_error *err)
{
    json_t     *root, *value;
    tm_status   st = read_object(a->folder, &root, err);
    const char *key;
    a->config = config_name;
    a->adapters = (tm_adapters){ .alpha = 8, .base = TM_DTYPE_COUNT, .place = a->folder };
    json_object_foreach(root, key, value) if (st == TM_OK) st = read_member(a, key, value, err);
    if (st == TM_OK && !json_object_get(root, "peft_type")) st = wrong(a, "peft_type", "LORA", err);
    if (st == TM_OK && a->adapters.rank == 0) st = wrong(a, "r", "the rank of the adapters", err);
    if (st == TM_OK) st = check_rules(a, err);
    json_decref(root);
    return st;
}

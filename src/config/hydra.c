/* SPDX-License-Identifier: Apache-2.0 */
/* config/hydra.c - the files of FluxBenchmark's launcher, put together as Hydra does it:
 *
 *     defaults:
 *       - accelerate_config: fsdp_config      accelerate_config/fsdp_config.yaml, its keys below accelerate_config
 *       - train_args: flux-dev
 *       - _self_                              what stands in this file comes last
 */
#include "config/hydra.h"

#include "base/file.h"

#include <string.h>

static const char *const sections[] = { "train_args", "cli_args", "accelerate_config" }; /* cli_args: of old files */
static const char *const groups[TM_CONFIG_GROUPS] = { "train_args", "accelerate_config", "launcher" };

bool tm_hydra_is_launcher(const tm_yaml *root)
{
    const tm_yaml *defaults = tm_yaml_get(root, "defaults");
    if (tm_yaml_get(root, "modules")) return false;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const tm_yaml *section = tm_yaml_get(root, sections[i]);
        if (section && section->kind == TM_YAML_MAP) return true;
    }
    for (const tm_yaml_item *i = defaults && defaults->kind == TM_YAML_LIST ? defaults->first : NULL; i; i = i->next)
        for (size_t k = 0; k < TM_CONFIG_GROUPS; k++)
            if (i->value->kind == TM_YAML_MAP && tm_yaml_get(i->value, groups[k])) return true;
    return false;
}

void tm_config_choose_groups(tm_config *config, int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++) {
        for (size_t k = 0; k < TM_CONFIG_GROUPS; k++) {
            size_t n = strlen(groups[k]);
            if (strncmp(argv[i], groups[k], n) == 0 && argv[i][n] == '=' && argv[i][n + 1])
                config->groups[k] = tm_arena_text(config->arena, argv[i] + n + 1);
        }
    }
}

/* What the launcher's own files say, where they are not beside a file that names them. */
static const struct {
    const char *group, *name, *text;
} built_in[] = {
    { "launcher", "defaults", "{}" },
    { "train_args", "defaults", "{train_batch_size: 1, num_iterations: 100}" },
    { "train_args", "flux-dev",
      "{model: flux-dev, model_path: black-forest-labs/FLUX.1-dev, train_data_path: bghira/pseudo-camera-10k, "
      "train_batch_size: 10, num_iterations: 100, resolution: 512}" },
    { "accelerate_config", "fsdp_config",
      "{distributed_type: FSDP, fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}, mixed_precision: bf16, "
      "num_machines: 1, num_processes: 8}" },
    /* its other models: refused by their names */
    { "train_args", "stable-diffusion-xl", "{model: stable-diffusion-xl}" },
    { "train_args", "mochi-1", "{model: mochi-1}" },
    { "train_args", "hunyuan-video", "{model: hunyuan-video}" },
    { "train_args", "wan2_1-i2v", "{model: wan2_1-i2v}" },
};

#define DEFAULTS "defaults: [{launcher: defaults}, {accelerate_config: fsdp_config}, {train_args: flux-dev}, _self_]"

const char *tm_hydra_built_in(const char *path)
{
    static const char *const files[][2] = {
        { "fluxbenchmark:single_run.yaml", "{" DEFAULTS "}" },
        { "fluxbenchmark:flux_benchmark.yaml",
          "{" DEFAULTS ", train_args: {train_batch_size: [1, 10, 17], num_iterations: 20}}" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(files[i][0], path) == 0) return files[i][1];
    return NULL;
}

static tm_status compose_built_in(tm_loader *l, const tm_hydra_file *by, const char *group, const char *name,
                                  const char *path, const tm_hydra_reader *reader)
{
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++) {
        if (strcmp(built_in[i].group, group) != 0 || strcmp(built_in[i].name, name) != 0) continue;
        tm_hydra_file file = { .name = tm_arena_format(l->arena, "FluxBenchmark's %s/%s.yaml", group, name),
                               .folder = by->folder,
                               .section = group,
                               .depth = by->depth + 1 };
        const char   *text = built_in[i].text;
        TM_TRY(tm_yaml_parse(l->arena, text, strlen(text), file.name, &file.root, l->err));
        return reader->take(l, &file);
    }
    return tm_fail(l->err, TM_INVALID,
                   "defaults of '%.200s' name %.60s: %.100s, and there is no file '%.200s'; "
                   "check the name",
                   by->name, group, name, path);
}

/* The file NAME of a group, or of the group that the naming file is in. */
static tm_status compose_member(tm_loader *l, const tm_hydra_file *by, const char *group, const char *name,
                                const tm_hydra_reader *reader)
{
    enum { MOST_DEPTH = 8 };
    const char *below = *by->section ? "" : tm_arena_format(l->arena, "%s/", group);
    const char *path =
        tm_arena_format(l->arena, "%s%s%s%s", by->folder, below, name, strstr(name, ".yaml") ? "" : ".yaml");
    if (by->depth >= MOST_DEPTH)
        return tm_fail(l->err, TM_INVALID, "defaults are nested deeper than %d files at '%.200s'", MOST_DEPTH, path);
    if (!tm_file_exists(path)) return compose_built_in(l, by, group, name, path, reader);
    tm_hydra_file file = { .name = path,
                           .folder = tm_arena_format(l->arena, "%s%s", by->folder, below),
                           .section = group,
                           .depth = by->depth + 1 };
    TM_TRY(reader->parse(l, path, &file.root));
    return file.root ? tm_hydra_compose(l, &file, reader) : TM_OK;
}

static tm_status wrong_default(const tm_loader *l, const tm_hydra_file *file, int line, const char *why)
{
    return tm_fail(l->err, TM_UNSUPPORTED, "%.200s:%d: this item of defaults is not supported: %s", file->name, line,
                   why);
}

/* "- train_args: flux-dev", and in a file of a group "- defaults". */
static tm_status compose_item(tm_loader *l, const tm_hydra_file *file, const tm_yaml_item *item,
                              const tm_hydra_reader *reader)
{
    const tm_yaml *value = item->value;
    if (value->kind == TM_YAML_SCALAR && strcmp(value->text, "_self_") == 0)
        return item->next ? wrong_default(l, file, item->line, "_self_ must be the last one") : TM_OK;
    if (value->kind == TM_YAML_SCALAR && *file->section)
        return compose_member(l, file, file->section, value->text, reader);
    for (size_t k = 0; k < TM_CONFIG_GROUPS && value->kind == TM_YAML_MAP && value->count == 1 && !*file->section;
         k++) {
        const tm_yaml *name = tm_yaml_get(value, groups[k]);
        if (!name || name->kind != TM_YAML_SCALAR || tm_yaml_is_null(name)) continue;
        const char *chosen = l->config->groups[k];
        return compose_member(l, file, groups[k], chosen ? chosen : name->text, reader);
    }
    return wrong_default(l, file, item->line,
                         "wanted train_args, accelerate_config or launcher with the name of a file");
}

tm_status tm_hydra_compose(tm_loader *l, const tm_hydra_file *file, const tm_hydra_reader *reader)
{
    const tm_yaml *defaults = tm_yaml_get(file->root, "defaults");
    if (file->root->kind != TM_YAML_MAP)
        return tm_fail(l->err, TM_FORMAT, "%.200s:%d: wanted a map of keys (key: value)", file->name, file->root->line);
    if (defaults && defaults->kind != TM_YAML_LIST)
        return wrong_default(l, file, defaults->line, "defaults must be a list");
    for (const tm_yaml_item *i = defaults ? defaults->first : NULL; i; i = i->next)
        TM_TRY(compose_item(l, file, i, reader));
    return reader->take(l, file);
}

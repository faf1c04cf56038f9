/* SPDX-License-Identifier: Apache-2.0 */
/* config/experiment.c - experiments: a module with the names of its program, trainer and model, and overrides of their
 * keys. Presets lie where their own program finds them, or are built in. */
#include "config/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *regular_file(tm_loader *l, const char *folder, const char *name)
{
    struct stat info;
    for (const char *suffix = ""; suffix; suffix = *suffix ? NULL : ".yaml") {
        const char *path = tm_arena_format(l->arena, "%s%s%s%s", folder,
                                           *folder && folder[strlen(folder) - 1] != '/' ? "/" : "", name, suffix);
        if (strlen(path) < TM_LOAD_PATH_MAX && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return path;
    }
    return NULL;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* `name` below primus/configs/KIND/FRAMEWORK of a folder above the experiment, the nearest first. */
static const char *preset_above(tm_loader *l, const char *name, const char *kind, const char *framework)
{
    char *folder = realpath(l->file, NULL), *slash;
    while (folder && (slash = strrchr(folder, '/'))) {
        *slash = '\0';
        const char *below = tm_arena_format(l->arena, "%s/primus/configs/%s/%s", folder, kind, framework);
        const char *path = regular_file(l, below, name);
        if (!path) continue;
        free(folder);
        return path;
    }
    free(folder);
    return NULL;
}

/* Where --config-path says: the folder itself, or a tree of presets in it. */
static const char *preset_on_path(tm_loader *l, const char *name, const char *kind, const char *framework)
{
    for (int i = 0; i < l->config->n_paths; i++) {
        const char *top = l->config->paths[i];
        for (size_t k = 0; k < 4; k++) {
            const char *folder = k == 0   ? top
                                 : k == 1 ? tm_arena_format(l->arena, "%s/%s/%s", top, kind, framework)
                                 : k == 2 ? tm_arena_format(l->arena, "%s/configs/%s/%s", top, kind, framework)
                                          : tm_arena_format(l->arena, "%s/primus/configs/%s/%s", top, kind, framework);
            const char *path = regular_file(l, folder, name);
            if (path) return path;
        }
    }
    return NULL;
}

/* The recipe that a model file of Megatron-Bridge names, without the file. */
static tm_status recipe_of_model(tm_loader *l, const tm_leaf *name, const char *stem, tm_error *err)
{
    const char *const *values = tm_megatron_bridge_model(stem);
    tm_given           flavor = { .origin = name->origin }, path = flavor;
    if (!values)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "the model '%.200s' (%s) is neither a file beside the experiment, in primus/configs/models or in "
            "--config-path, nor one whose recipe is built in (llama2_7b_lora, llama2_70b_lora, llama31_70b, "
            "qwen3_8b, qwen3_32b)",
            name->text, tm_place(name->origin));
    flavor.text = values[0];
    path.text = values[1];
    TM_TRY(tm_config_give(l->config, LAYER_MODEL_FILE, "flavor", &flavor, err));
    return tm_config_give(l->config, LAYER_MODEL_FILE, "hf_path", &path, err);
}

/* What the trainer post_trainer.yaml of Megatron-Bridge says, without the file. */
static tm_status bridge_trainer(tm_loader *l, const tm_leaf *name)
{
    for (const char *const *pair = tm_megatron_bridge_trainer; *pair; pair += 2) {
        tm_given given = { .text = pair[1], .origin = name->origin };
        TM_TRY(tm_config_give(l->config, LAYER_TRAINER, pair[0], &given, l->err));
    }
    return TM_OK;
}

/* A model that no file describes: one of ours, by name. "-fp8" at its end means the same model with float8 products. */
static tm_status our_model(tm_loader *l, const tm_leaf *name, tm_error *err)
{
    char stem[128];
    tm_stem_of(name->text, stem);
    size_t n = strlen(stem);
    bool   float8 = n > 4 && (strcasecmp(stem + n - 4, "-fp8") == 0 || strcasecmp(stem + n - 4, "_fp8") == 0) &&
                  !tm_preset_find(l->config, stem);
    if (float8) stem[n - 4] = '\0';
    tm_error inner = { 0 };
    if (l->config->framework == &tm_framework_megatron_bridge) return recipe_of_model(l, name, stem, err);
    if (tm_preset_find(l->config, stem)) {
        TM_TRY(tm_config_apply_preset(l->config, stem, err));
        bool     titan = l->config->framework != &tm_framework_megatron;
        tm_given given = { .text = titan ? "quantize.linear.float8" : "e4m3", .origin = name->origin };
        return float8 ? tm_config_give(l->config, LAYER_MODEL_FILE, titan ? "model.converters" : "fp8", &given, err)
                      : TM_OK;
    }
    TM_TRY(tm_foreign_check_family(name->text, stem, name->origin, err));
    tm_status st = tm_config_apply_preset(l->config, stem, &inner);
    return tm_fail(err, st,
                   "%.700s (%s); a file beside the experiment, in primus/configs/models or in --config-path would be "
                   "used, too",
                   inner.text, tm_place(name->origin));
}

bool tm_begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Is a trainer preset one of post-training? */
static bool is_post_trainer(const tm_leaf *name)
{
    char stem[128];
    if (!name || !name->text) return false;
    tm_stem_of(name->text, stem);
    return tm_names_equal(stem, "sft_trainer") || tm_names_equal(stem, "post_trainer");
}

/* A preset that an experiment names: a file where its own program finds it, or one of ours. */
static tm_status named_preset(tm_loader *l, const tm_leaf *name, tm_layer layer)
{
    if (name->secret || !name->text || !*name->text || name->is_list)
        return tm_fail(l->err, TM_INVALID, "'%s' (%s) must name a preset", name->path, tm_place(name->origin));
    bool        model = layer == LAYER_MODEL_FILE;
    const char *kind = model ? "models" : "modules",
               *framework = l->config->framework ? l->config->framework->name : "torchtitan";
    char stem[128];
    tm_stem_of(name->text, stem);
    if (model) l->config->model_named = tm_arena_text(l->config->arena, stem);
    const char *path = regular_file(l, name->text[0] == '/' ? "" : name->folder, name->text);
    if (path && is_same_file(path, l->file)) path = NULL; /* called like its model */
    if (!path) path = preset_above(l, name->text, kind, framework);
    if (!path) path = preset_on_path(l, name->text, kind, framework);
    if (path) return tm_load_preset_file(l, path, layer);
    tm_error err = { 0 };
    if (model) {
        tm_status st = our_model(l, name, &err);
        if (tm_foreign_family(stem) && st != TM_OK) return tm_fail(l->err, st, "%s", err.text); /* says it all */
        if (st != TM_OK) tm_config_problem(l->config, &err);
        return TM_OK;
    }
    if (tm_names_equal(stem, "post_trainer") && l->config->framework == &tm_framework_megatron_bridge)
        return bridge_trainer(l, name);
    if (tm_names_equal(stem, "pre_trainer") || is_post_trainer(name)) return TM_OK; /* the table has their values */
    tm_fail(&err, TM_INVALID,
            "trainer preset '%.200s' (%s) is neither a file where its program finds it nor built in "
            "(pre_trainer.yaml)",
            name->text, tm_place(name->origin));
    tm_config_problem(l->config, &err);
    return TM_OK;
}

/* What an experiment is made of. */
typedef struct {
    const tm_leaf *model, *config, *framework;
    const char    *module; /* "modules.pre_trainer." */
    bool           post;   /* post-training */
} experiment;

/* A key of a training beside the modules: their program reads the modules only, so it has no effect there. */
static tm_status outside(tm_loader *l, const tm_leaf *value)
{
    tm_config_note(l->config,
                   "ignored: %.200s (%.300s) stands beside the modules, where its program reads no key; to have it, "
                   "move it under modules.%s.overrides",
                   value->path, tm_place(value->origin), l->config->module);
    return TM_OK;
}

/* What stands at the top or in a module and is neither structure nor an override. */
static tm_status misplaced(tm_loader *l, const tm_leaf *value)
{
    if (l->config->allow_unknown) return tm_config_unknown(l->config, value->path, tm_place(value->origin), l->err);
    static const char *const structure[] = { "work_group",
                                             "user_name",
                                             "exp_name",
                                             "workspace",
                                             "platform.config",
                                             "modules.pre_trainer.framework",
                                             "modules.pre_trainer.config",
                                             "modules.pre_trainer.model",
                                             "modules.pre_trainer.overrides" };
    bool                     bridge = l->config->framework == &tm_framework_megatron_bridge;
    bool                     section = bridge && (tm_begins(value->path, "peft.") || tm_begins(value->path, "model."));
    if (section || tm_config_knows(l->config, value->path) || tm_foreign_row(l->config->framework, value->path))
        return outside(l, value);
    const char *near = tm_nearest(value->path, structure, sizeof structure / sizeof structure[0]);
    return tm_fail(l->err, TM_INVALID, "unknown key '%.200s' (%s)%s%s%s", value->path, tm_place(value->origin),
                   near ? "; did you mean '" : "; keys of the training go under modules.pre_trainer.overrides",
                   near ? near : "", near ? "'?" : "");
}

static const tm_leaf *find_leaf(const tm_loader *l, const char *path)
{
    for (size_t i = l->n; i-- > 0;)
        if (strcmp(l->leaves[i].path, path) == 0) return &l->leaves[i];
    return NULL;
}

/* The module of an experiment: that of pretraining, else one of post-training. */
static void choose_module(const tm_loader *l, experiment *e)
{
    static const char *const names[] = { "modules.pre_trainer.", "modules.post_trainer.", "modules.sft_trainer." };
    e->module = names[0];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        for (size_t i = 0; i < l->n; i++) {
            if (!tm_begins(l->leaves[i].path, names[k])) continue;
            e->module = names[k];
            e->post = k > 0;
            return;
        }
    }
}

static const tm_leaf *of_module(const tm_loader *l, const experiment *e, const char *name)
{
    return find_leaf(l, tm_arena_format(l->arena, "%s%s", e->module, name));
}

static tm_status read_module(tm_loader *l, const experiment *e, const tm_leaf *value)
{
    static const char *const parts[] = { "framework", "config", "model", "trainer_class" };
    if (!tm_begins(value->path, e->module)) return misplaced(l, value);
    const char *name = value->path + strlen(e->module);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(name, parts[i]) == 0) return TM_OK;
    if (tm_begins(name, "overrides.") || (strcmp(name, "overrides") == 0 && !value->text)) return TM_OK;
    return misplaced(l, value);
}

tm_status tm_load_framework(const tm_loader *l, const tm_leaf *framework, bool post)
{
    const char         *name = framework && framework->text ? framework->text : "torchtitan";
    const tm_framework *found = tm_framework_find(name);
    bool                bridge = found == &tm_framework_megatron_bridge;
    l->config->framework = found;
    if (found == &tm_framework_torchtitan || found == &tm_framework_megatron || (bridge && post)) return TM_OK;
    if (tm_names_equal(name, "diffusion"))
        return tm_fail(l->err, TM_UNSUPPORTED,
                       "framework 'diffusion' (%s) is not supported: its keys have no table here. FLUX.1 runs by its "
                       "name with keys "
                       "of ours (trainmark run flux.1_dev --data.source latents --data.path DIR; `trainmark models` "
                       "lists all), or "
                       "from Primus' files of framework megatron whose model is diffusion/flux_*.yaml",
                       tm_place(framework->origin));
    return tm_fail(
        l->err, TM_UNSUPPORTED,
        "framework '%.100s' (%s) is not supported%s: its keys have no table here; wanted torchtitan or megatron%s. A "
        "model of `trainmark models` runs by its name, with keys of ours: trainmark run llama3.1_8B "
        "--training.seq_len 8192",
        framework->secret ? "***" : name, tm_place(framework->origin), bridge ? " for pre-training" : "",
        post ? " or megatron_bridge" : "");
}

/* Post-training is the stage sft, whether the file says so or not. */
static tm_status say_stage(tm_loader *l, const experiment *e)
{
    const tm_framework   *framework = l->config->framework;
    const tm_foreign_key *row = tm_foreign_row(framework, "stage");
    tm_given              given = { .text = "sft", .origin = e->framework ? e->framework->origin : l->file };
    if (!row)
        return tm_fail(l->err, TM_UNSUPPORTED, "%.*s (%s): post-training is not supported; use pre_trainer",
                       (int)strlen(e->module) - 1, e->module, tm_place(given.origin));
    tm_foreign_give(l->config, LAYER_TRAINER, framework, row, "stage", &given);
    return TM_OK;
}

static bool is_top_level(const char *path)
{
    static const char *const names[] = { "work_group", "user_name", "exp_name", "workspace" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(path, names[i]) == 0) return true;
    return tm_begins(path, "platform") || tm_begins(path, "env.");
}

/* A wrong key of an experiment is told with all the others. */
static void keep(tm_loader *l, tm_status st)
{
    if (st != TM_OK) tm_config_problem(l->config, l->err);
    *l->err = (tm_error){ 0 };
}

tm_status tm_load_experiment(tm_loader *l)
{
    experiment e = { 0 };
    choose_module(l, &e);
    l->config->module = tm_arena_format(l->config->arena, "%.*s", (int)strcspn(strchr(e.module, '.') + 1, "."),
                                        strchr(e.module, '.') + 1);
    e.framework = of_module(l, &e, "framework");
    e.config = of_module(l, &e, "config");
    e.model = of_module(l, &e, "model");
    TM_TRY(tm_load_framework(l, e.framework, e.post));
    for (size_t i = 0; i < l->n; i++) {
        const tm_leaf *value = &l->leaves[i];
        if (tm_begins(value->path, "modules.")) {
            keep(l, read_module(l, &e, value));
        } else if (is_top_level(value->path) || strcmp(value->path, "model") == 0) { /* model: from extends */
            TM_TRY(tm_load_leaf(l, LAYER_FILE, value, value->path));
        } else if (strcmp(value->path, "modules") != 0 && strcmp(value->path, "env") != 0) {
            keep(l, misplaced(l, value));
        }
    }
    if (e.model) TM_TRY(named_preset(l, e.model, LAYER_MODEL_FILE));
    if (e.config) TM_TRY(named_preset(l, e.config, LAYER_TRAINER));
    if (e.post || is_post_trainer(e.config)) TM_TRY(say_stage(l, &e));
    const char *overrides = tm_arena_format(l->arena, "%soverrides.", e.module);
    for (size_t i = 0; i < l->n; i++)
        if (tm_begins(l->leaves[i].path, overrides))
            TM_TRY(tm_load_leaf(l, LAYER_FILE, &l->leaves[i], l->leaves[i].path + strlen(overrides)));
    return TM_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* config/load.c - files: `extends`, substitution, experiment files, presets that lie beside the experiment.
 *
 * A file becomes a list of leaves, dotted path and text; the leaves of what it extends stand before its own, and a
 * later leaf of the same key wins. Maps thereby merge deeply, scalars and lists replace.
 */
#include "base/file.h"
#include "config/foreign.h"
#include "config/toml.h"
#include "config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_EXTENDS_DEPTH = 16, MAX_FILES = 64, MAX_LEAVES = 20000, MAX_TEXT_BYTES = 8 << 20, MAX_PATH_TEXT = 4096 };

typedef struct {
    const char *path;
    const char *text; /* NULL = null */
    bool        secret, is_list, has_maps;
    const char *origin, *source, *folder; /* folder: of the file, with the slash, "" for the current one */
} leaf;

typedef struct {
    tm_config  *config;
    tm_arena   *arena; /* trees and leaves, until the load is done */
    leaf       *leaves;
    size_t      n, capacity, bytes;
    int         files;
    bool        strict; /* what is wrong ends the load */
    bool        preset; /* the file is one that an experiment names */
    const char *file;   /* the first one */
    tm_error   *err;
} loader;

typedef struct chain {
    dev_t               device;
    ino_t               inode;
    const char         *path;
    const struct chain *above;
    int                 depth;
} chain;

/* The file that leaves are being read from. */
typedef struct {
    const char *name, *source, *folder, *fixed_origin; /* fixed_origin: instead of "file name:line" */
} origin_file;

static tm_status add_leaf(loader *l, const origin_file *file, int line, const char *path, leaf value)
{
    if (l->n >= MAX_LEAVES)
        return tm_fail(l->err, TM_FORMAT, "'%s' and what it extends hold more than %d values", file->name, MAX_LEAVES);
    l->bytes += value.text ? strlen(value.text) : 0;
    if (l->bytes > MAX_TEXT_BYTES)
        return tm_fail(l->err, TM_FORMAT, "%s:%d: the values of this file add up to more than %d bytes", file->name,
                       line, MAX_TEXT_BYTES);
    l->leaves = tm_grow(l->leaves, &l->capacity, l->n, sizeof *l->leaves);
    value.path = path;
    value.origin = file->fixed_origin ? file->fixed_origin : tm_arena_format(l->arena, "file %s:%d", file->name, line);
    value.source = file->source;
    value.folder = file->folder;
    l->leaves[l->n++] = value;
    return TM_OK;
}

/* A scalar with its variables replaced, appended to *out. */
static tm_status scalar_text(loader *l, const origin_file *file, const tm_yaml *node, tm_text *out, bool *secret)
{
    if (file->fixed_origin) {
        tm_text_add(out, node->text); /* command line: the shell has substituted */
        return TM_OK;
    }
    char place[MAX_PATH_TEXT + 16];
    snprintf(place, sizeof place, "%s:%d", file->name, node->line);
    return tm_substitute(l->config, node->text, place, out, secret, l->err);
}

/* An item of a list, or the value of a map in one, appended: a plain value that holds none of `separators`. */
static tm_status item_text(loader *l, const origin_file *file, const tm_yaml_item *item, const char *path,
                           const char *separators, tm_text *out, bool *secret)
{
    if (item->value->kind != TM_YAML_SCALAR)
        return tm_fail(l->err, TM_INVALID, "'%.200s' (%s:%d) must be a list of plain values, found a list or map in it",
                       path, file->name, item->line);
    size_t before = out->length;
    TM_TRY(scalar_text(l, file, item->value, out, secret));
    size_t plain = strcspn(out->data + before, separators);
    if (!out->data[before + plain]) return TM_OK;
    return tm_fail(l->err, TM_INVALID, "an item of '%.200s' (%s:%d) holds %s, which separates items", path, file->name,
                   item->line, out->data[before + plain] == ',' ? "a comma" : "a blank");
}

/* {a: 1, b: [x, y]} as "a=1 b=x|y". */
static tm_status map_text(loader *l, const origin_file *file, const tm_yaml *map, const char *path, tm_text *out,
                          bool *secret)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next) {
        tm_text_printf(out, "%s%s=", i == map->first ? "" : " ", i->key);
        if (i->value->kind != TM_YAML_LIST) TM_TRY(item_text(l, file, i, path, ", ", out, secret));
        for (const tm_yaml_item *k = i->value->kind == TM_YAML_LIST ? i->value->first : NULL; k; k = k->next) {
            if (k != i->value->first) tm_text_add(out, "|");
            TM_TRY(item_text(l, file, k, path, ", ", out, secret));
        }
    }
    return TM_OK;
}

static tm_status list_text(loader *l, const origin_file *file, const tm_yaml *list, const char *path, tm_text *out,
                           leaf *value)
{
    tm_text_add(out, "");
    for (const tm_yaml_item *i = list->first; i; i = i->next) {
        if (i != list->first) tm_text_add(out, ",");
        if (i->value->kind == TM_YAML_MAP) {
            value->has_maps = true;
            TM_TRY(map_text(l, file, i->value, path, out, &value->secret));
        } else {
            TM_TRY(item_text(l, file, i, path, ",", out, &value->secret));
        }
    }
    return TM_OK;
}

static tm_status flatten(loader *l, const origin_file *file, const tm_yaml *node, int line, const char *path)
{
    if (node->kind == TM_YAML_MAP) {
        for (const tm_yaml_item *i = node->first; i; i = i->next) {
            if (!*path && (strcmp(i->key, "extends") == 0 || strcmp(i->key, "bases") == 0)) continue;
            const char *below = *path ? tm_arena_format(l->arena, "%s.%s", path, i->key) : i->key;
            TM_TRY(flatten(l, file, i->value, i->line, below));
        }
        return TM_OK;
    }
    if (tm_yaml_is_null(node)) return add_leaf(l, file, line, path, (leaf){ 0 });
    tm_text   text = { 0 };
    leaf      value = { .is_list = node->kind == TM_YAML_LIST };
    tm_status st = value.is_list ? list_text(l, file, node, path, &text, &value)
                                 : scalar_text(l, file, node, &text, &value.secret);
    if (st == TM_OK) {
        value.text = tm_arena_text_n(l->arena, text.data, text.length);
        st = add_leaf(l, file, line, path, value);
    }
    tm_text_fini(&text);
    return st;
}

/* "a/b.yaml" -> "a/" */
static const char *folder_of(tm_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? tm_arena_text_n(arena, path, (size_t)(slash - path) + 1) : "";
}

static const char *beside(tm_arena *arena, const char *folder, const char *name)
{
    return name[0] == '/' ? name : tm_arena_format(arena, "%s%s", folder, name);
}

static tm_status read_leaves(loader *l, const char *path, const chain *above);

static tm_status extend_one(loader *l, const origin_file *file, const tm_yaml *node, const chain *here)
{
    tm_text   name = { 0 };
    bool      secret = false;
    tm_status st = TM_OK;
    if (node->kind != TM_YAML_SCALAR || tm_yaml_is_null(node))
        st = tm_fail(l->err, TM_INVALID, "extends (%s:%d) must be a file name or a list of them", file->name,
                     node->line);
    else
        st = scalar_text(l, file, node, &name, &secret);
    if (st == TM_OK && secret)
        st = tm_fail(l->err, TM_INVALID, "extends (%s:%d) must not name a secret", file->name, node->line);
    if (st == TM_OK) {
        const char *path = beside(l->arena, file->folder, name.data);
        if (!tm_file_exists(path) && tm_preset_find(l->config, name.data))
            st = add_leaf(l, file, node->line, "model", (leaf){ .text = tm_arena_text(l->arena, name.data) });
        else
            st = read_leaves(l, path, here);
    }
    tm_text_fini(&name);
    return st;
}

static tm_status extend(loader *l, const origin_file *file, const tm_yaml *root, const chain *here)
{
    const tm_yaml *extends = tm_yaml_get(root, "extends");
    if (!extends) extends = tm_yaml_get(root, "bases"); /* as it was called before */
    if (!extends) return TM_OK;
    if (extends->kind != TM_YAML_LIST) return extend_one(l, file, extends, here);
    for (const tm_yaml_item *i = extends->first; i; i = i->next) TM_TRY(extend_one(l, file, i->value, here));
    return TM_OK;
}

/* Refuses what cannot be opened, and a file that is already being read. */
static tm_status check_file(const char *path, const chain *above, chain *here, tm_error *err)
{
    struct stat info;
    const char *by = above ? above->path : "the command";
    if (strlen(path) >= MAX_PATH_TEXT || stat(path, &info) != 0)
        return tm_fail(err, TM_INVALID, "cannot open configuration '%.300s', named by %.200s: %s; check the path", path,
                       by, strlen(path) >= MAX_PATH_TEXT ? "path too long" : strerror(errno));
    if (S_ISDIR(info.st_mode))
        return tm_fail(err, TM_INVALID, "configuration '%.300s' is a folder; name a YAML file in it", path);
    *here = (chain){ info.st_dev, info.st_ino, path, above, above ? above->depth + 1 : 1 };
    for (const chain *c = above; c; c = c->above)
        if (c->device == here->device && c->inode == here->inode)
            return tm_fail(err, TM_INVALID, "extends goes in a circle: '%.300s' extends '%.300s', which is being read",
                           by, path);
    if (here->depth > MAX_EXTENDS_DEPTH)
        return tm_fail(err, TM_INVALID, "extends is nested deeper than %d files at '%.300s'", MAX_EXTENDS_DEPTH, path);
    return TM_OK;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), s = strlen(suffix);
    return n >= s && strcasecmp(text + n - s, suffix) == 0;
}

static tm_status parse(loader *l, const char *path, const tm_text *bytes, const tm_yaml **root)
{
    const char *text = bytes->data ? bytes->data : "";
    if (ends_with(path, ".toml")) return tm_toml_parse(l->arena, text, bytes->length, path, root, l->err);
    return tm_yaml_parse(l->arena, text, bytes->length, path, root, l->err);
}

/* Recipes of torchtune name components, and their ${a.b} are values of the file itself. */
static bool has_component(const tm_yaml *map)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next)
        if (tm_yaml_get(i->value, "_component_")) return true;
    return false;
}

/* Which program's keys a file has that is no experiment; NULL: ours. */
static const tm_framework *framework_of(const char *path, const tm_yaml *root)
{
    if (ends_with(path, ".toml")) return &tm_framework_torchtitan;
    if (ends_with(path, ".json")) return &tm_framework_ptb;
    return has_component(root) ? &tm_framework_torchtune : NULL;
}

/* Appends the leaves of a file, those of what it extends first. */
static tm_status read_leaves(loader *l, const char *path, const chain *above)
{
    chain          here;
    tm_text        bytes = { 0 };
    const tm_yaml *root = NULL;
    TM_TRY(check_file(path, above, &here, l->err));
    if (++l->files > MAX_FILES)
        return tm_fail(l->err, TM_INVALID, "extends leads to more than %d files at '%.300s'", MAX_FILES, path);
    tm_status st = tm_file_read(path, TM_YAML_MAX_BYTES, &bytes, l->err);
    if (st == TM_OK) st = parse(l, path, &bytes, &root);
    tm_text_fini(&bytes);
    TM_TRY(st);
    if (!root) return above ? TM_OK : tm_fail(l->err, TM_FORMAT, "'%.300s' is empty; wanted keys and values", path);
    if (root->kind != TM_YAML_MAP)
        return tm_fail(l->err, TM_FORMAT, "%s:%d: a configuration must be a map of keys (key: value), found a %s", path,
                       root->line, root->kind == TM_YAML_LIST ? "list" : "single value");
    origin_file file = { path, tm_arena_format(l->arena, "%s#%d", path, ++l->config->loads), folder_of(l->arena, path),
                         NULL };
    TM_TRY(extend(l, &file, root, &here));
    if (!above && !l->preset) l->config->framework = framework_of(path, root);
    if (l->config->framework == &tm_framework_torchtune) l->config->references = root;
    st = flatten(l, &file, root, 1, "");
    l->config->references = NULL;
    return st;
}

static tm_status check_kind(loader *l, const leaf *value, const char *path, tm_error *err)
{
    const tm_entry *entry = tm_entry_find(l->config, path);
    if (entry && value->has_maps && entry->key.kind != TM_KEY_MAPS && !tm_entry_is_wildcard(entry))
        return tm_fail(err, TM_INVALID, "'%s' (%s) must be a list of plain values, found a map in it", entry->key.name,
                       tm_place(value->origin));
    if (entry && value->is_list && entry->key.kind < TM_KEY_LIST && !tm_entry_is_wildcard(entry))
        return tm_fail(err, TM_INVALID, "'%s' (%s) must be a single value, found a list", entry->key.name,
                       tm_place(value->origin));
    return TM_OK;
}

/* A list where one value belongs, in a sweep. */
static bool is_axis(const loader *l, const leaf *value, const char *path)
{
    const tm_entry *entry = l->config->allow_axes && value->is_list && !value->secret && !value->has_maps &&
                                    value->text && *value->text && !l->preset
                                ? tm_config_target(l->config, path)
                                : NULL;
    return entry && entry->key.kind < TM_KEY_LIST && !tm_entry_is_wildcard(entry);
}

/* What is wrong with a value of a file is kept, and told with everything else. */
static tm_status give_leaf(loader *l, tm_layer layer, const leaf *value, const char *path)
{
    tm_given given = { value->text, value->secret, value->origin, value->source };
    tm_error err = { 0 };
    bool     axis = is_axis(l, value, path);
    if (!value->text && tm_config_is_section(l->config, path)) return TM_OK;
    if (axis) given.text = tm_arena_text_n(l->arena, value->text, strcspn(value->text, ","));
    if (!axis && !tm_config_translates(l->config, path)) (void)check_kind(l, value, path, &err);
    if (err.status == TM_OK) (void)tm_config_give(l->config, layer, path, &given, &err);
    if (axis && err.status == TM_OK) tm_axes_add(l->config, layer, path, value->text, value->origin);
    if (err.status == TM_OK) return TM_OK;
    if (l->strict) return tm_fail(l->err, err.status, "%s", err.text);
    tm_config_problem(l->config, &err);
    return TM_OK;
}

/* The leaves of a file of keys. Presets come first: they clear what a former preset has left. */
static tm_status give_flat(loader *l, tm_layer layer)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->leaves[i].path, "model") == 0 && l->leaves[i].text)
            TM_TRY(give_leaf(l, layer, &l->leaves[i], "model"));
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->leaves[i].path, "model") != 0) TM_TRY(give_leaf(l, layer, &l->leaves[i], l->leaves[i].path));
    return TM_OK;
}

/* Gives a preset's file to a layer. */
static tm_status load_preset_file(loader *l, const char *path, tm_layer layer)
{
    loader inner = {
        .config = l->config, .arena = l->arena, .files = l->files, .preset = true, .file = l->file, .err = l->err
    };
    tm_config_clear_layer(l->config, layer);
    tm_status st = read_leaves(&inner, path, NULL);
    if (st == TM_OK) st = give_flat(&inner, layer);
    free(inner.leaves);
    return st;
}

static const char *regular_file(loader *l, const char *folder, const char *name)
{
    struct stat info;
    for (const char *suffix = ""; suffix; suffix = *suffix ? NULL : ".yaml") {
        const char *path = tm_arena_format(l->arena, "%s%s%s%s", folder,
                                           *folder && folder[strlen(folder) - 1] != '/' ? "/" : "", name, suffix);
        if (strlen(path) < MAX_PATH_TEXT && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return path;
    }
    return NULL;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* `name` below primus/configs/KIND/FRAMEWORK of a folder above the experiment, the nearest first. */
static const char *preset_above(loader *l, const char *name, const char *kind, const char *framework)
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
static const char *preset_on_path(loader *l, const char *name, const char *kind, const char *framework)
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

/* A model that no file describes: one of ours, by name. "-fp8" at its end means the same model with float8 products. */
static tm_status our_model(loader *l, const leaf *name, tm_error *err)
{
    char stem[128];
    tm_stem_of(name->text, stem);
    size_t n = strlen(stem);
    bool   float8 = n > 4 && strcasecmp(stem + n - 4, "-fp8") == 0 && !tm_preset_find(l->config, stem);
    if (float8) stem[n - 4] = '\0';
    tm_error inner = { 0 };
    if (tm_preset_find(l->config, stem)) {
        TM_TRY(tm_config_apply_preset(l->config, stem, err));
        tm_given given = { .text = "quantize.linear.float8", .origin = name->origin };
        return float8 ? tm_config_give(l->config, LAYER_MODEL_FILE, "model.converters", &given, err) : TM_OK;
    }
    const char *family = tm_foreign_family(stem);
    l->config->family_told = family != NULL;
    if (family)
        return tm_fail(err, TM_UNSUPPORTED,
                       "the model '%.100s' (%s) is of the family %s, which is not built yet; `trainmark models` lists "
                       "the models",
                       name->text, tm_place(name->origin), family);
    tm_status st = tm_config_apply_preset(l->config, stem, &inner);
    return tm_fail(err, st,
                   "%.700s (%s); a file beside the experiment, in primus/configs/models or in --config-path would be "
                   "used, too",
                   inner.text, tm_place(name->origin));
}

/* A preset that an experiment names: a file where its own program finds it, or one of ours. */
static tm_status named_preset(loader *l, const leaf *name, tm_layer layer)
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
    if (path) return load_preset_file(l, path, layer);
    tm_error err = { 0 };
    if (model) {
        if (our_model(l, name, &err) != TM_OK) tm_config_problem(l->config, &err);
        return TM_OK;
    }
    if (tm_names_equal(stem, "pre_trainer") || tm_names_equal(stem, "sft_trainer") ||
        tm_names_equal(stem, "post_trainer"))
        return TM_OK; /* the defaults of the framework's table */
    tm_fail(&err, TM_INVALID,
            "trainer preset '%.200s' (%s) is neither a file where its program finds it nor built in "
            "(pre_trainer.yaml, sft_trainer.yaml, post_trainer.yaml)",
            name->text, tm_place(name->origin));
    tm_config_problem(l->config, &err);
    return TM_OK;
}

typedef struct {
    const leaf *model, *config, *framework;
    const char *module; /* "modules.pre_trainer."; NULL: none yet */
} experiment;

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What stands at the top or in a module and is neither structure nor an override. */
static tm_status misplaced(loader *l, const leaf *value)
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
    if (tm_entry_find(l->config, value->path))
        return tm_fail(l->err, TM_INVALID,
                       "key '%.200s' (%s) stands outside of the module; move it under "
                       "modules.pre_trainer.overrides",
                       value->path, tm_place(value->origin));
    const char *near = tm_nearest(value->path, structure, sizeof structure / sizeof structure[0]);
    return tm_fail(l->err, TM_INVALID, "unknown key '%.200s' (%s)%s%s%s", value->path, tm_place(value->origin),
                   near ? "; did you mean '" : "; keys of the training go under modules.pre_trainer.overrides",
                   near ? near : "", near ? "'?" : "");
}

/* The module that a value belongs to: of training or of post-training, one of the two. NULL: another. */
static tm_status choose_module(loader *l, experiment *e, const leaf *value, const char **out)
{
    static const char *const modules[] = { "modules.pre_trainer.", "modules.post_trainer." };
    *out = NULL;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (starts_with(value->path, modules[i])) *out = modules[i];
    if (!*out) return TM_OK;
    if (e->module && e->module != *out)
        return tm_fail(l->err, TM_UNSUPPORTED,
                       "'%.200s' (%s): an experiment of two modules is not built; leave one out", value->path,
                       tm_place(value->origin));
    e->module = *out;
    return TM_OK;
}

static tm_status read_module(loader *l, experiment *e, const leaf *value)
{
    const char *module;
    TM_TRY(choose_module(l, e, value, &module));
    if (!module) return misplaced(l, value);
    const char *name = value->path + strlen(e->module);
    if (strcmp(name, "framework") == 0)
        e->framework = value;
    else if (strcmp(name, "config") == 0)
        e->config = value;
    else if (strcmp(name, "model") == 0)
        e->model = value;
    else if (!starts_with(name, "overrides.") && strcmp(name, "trainer_class") != 0 &&
             !(strcmp(name, "overrides") == 0 && !value->text))
        return misplaced(l, value);
    return TM_OK;
}

static tm_status check_framework(loader *l, const leaf *framework)
{
    const char *name = framework && framework->text ? framework->text : "torchtitan";
    l->config->framework = tm_framework_find(name);
    if (tm_names_equal(name, "megatron_bridge")) l->config->framework = &tm_framework_megatron; /* its arguments */
    if (l->config->framework == &tm_framework_torchtitan || l->config->framework == &tm_framework_megatron)
        return TM_OK;
    return tm_fail(l->err, TM_UNSUPPORTED,
                   "framework '%.100s' (%s) is not built yet; wanted torchtitan, megatron or megatron_bridge",
                   framework->secret ? "***" : name, tm_place(framework->origin));
}

static bool is_top_level(const char *path)
{
    static const char *const names[] = { "work_group", "user_name", "exp_name", "workspace" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(path, names[i]) == 0) return true;
    return starts_with(path, "platform");
}

/* A wrong key of an experiment is told with all the others. */
static void keep(loader *l, tm_status st)
{
    if (st != TM_OK) tm_config_problem(l->config, l->err);
    *l->err = (tm_error){ 0 };
}

static tm_status give_experiment(loader *l)
{
    experiment e = { 0 };
    for (size_t i = 0; i < l->n; i++) {
        const leaf *value = &l->leaves[i];
        if (starts_with(value->path, "modules.")) {
            keep(l, read_module(l, &e, value));
        } else if (is_top_level(value->path) || strcmp(value->path, "model") == 0) { /* model: from extends */
            TM_TRY(give_leaf(l, LAYER_FILE, value, value->path));
        } else if (strcmp(value->path, "modules") != 0) {
            keep(l, misplaced(l, value));
        }
    }
    TM_TRY(check_framework(l, e.framework));
    if (e.model) TM_TRY(named_preset(l, e.model, LAYER_MODEL_FILE));
    if (e.config) TM_TRY(named_preset(l, e.config, LAYER_TRAINER));
    const char *overrides = tm_arena_format(l->arena, "%soverrides.", e.module ? e.module : "modules.pre_trainer.");
    for (size_t i = 0; i < l->n; i++)
        if (starts_with(l->leaves[i].path, overrides))
            TM_TRY(give_leaf(l, LAYER_FILE, &l->leaves[i], l->leaves[i].path + strlen(overrides)));
    return TM_OK;
}

/* Mock data is Primus's default; TorchTitan's own job files train on the data set that they name. */
static void say_data_is_real(loader *l)
{
    tm_given given = { .text = "false", .origin = "default of torchtitan" };
    tm_foreign_give(l->config, LAYER_TRAINER, l->config->framework,
                    tm_foreign_row(l->config->framework, "training.mock_data"), "training.mock_data", &given);
}

static tm_status refuse_python(const char *path, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%.300s' is a Python program; TorchTitan's registry of configurations is not read: give a job file "
                   "(.toml), a Primus experiment (.yaml) or a model of `trainmark models` with --key value",
                   path);
}

tm_status tm_config_load_file(tm_config *config, const char *path, tm_error *err)
{
    tm_error  own = { 0 };
    loader    l = { .config = config, .arena = tm_arena_create(), .file = path, .err = err ? err : &own };
    tm_status st = ends_with(path, ".py") ? refuse_python(path, err) : read_leaves(&l, path, NULL);
    if (st == TM_OK) {
        bool is_experiment = false;
        for (size_t i = 0; i < l.n; i++)
            is_experiment |= strcmp(l.leaves[i].path, "modules") == 0 || starts_with(l.leaves[i].path, "modules.");
        config->file_loaded = true;
        if (!config->file) config->file = tm_arena_text(config->arena, path);
        if (is_experiment) config->experiment = tm_arena_text(config->arena, path);
        if (!is_experiment && config->framework == &tm_framework_torchtitan) say_data_is_real(&l);
        st = is_experiment ? give_experiment(&l) : give_flat(&l, LAYER_FILE);
    }
    free(l.leaves);
    tm_arena_destroy(l.arena);
    return st;
}

tm_status tm_config_give_yaml(tm_config *config, tm_layer layer, const char *path, const char *yaml, const char *origin,
                              tm_error *err)
{
    loader         l = { .config = config, .arena = tm_arena_create(), .strict = true, .err = err };
    origin_file    file = { .name = origin, .folder = "", .fixed_origin = origin };
    const tm_yaml *root;
    tm_status      st = tm_yaml_parse(l.arena, yaml, strlen(yaml), origin, &root, err);
    if (st == TM_OK && !root) st = add_leaf(&l, &file, 1, path, (leaf){ 0 });
    if (st == TM_OK && root) st = flatten(&l, &file, root, 1, path);
    for (size_t i = 0; st == TM_OK && i < l.n; i++) st = give_leaf(&l, layer, &l.leaves[i], l.leaves[i].path);
    free(l.leaves);
    tm_arena_destroy(l.arena);
    return st;
}

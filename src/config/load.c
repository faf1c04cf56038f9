/* SPDX-License-Identifier: Apache-2.0 */
/* config/load.c - files as leaves: `extends`, substitution, and files of keys. Experiments: experiment.c. */
#include "config/load.h"

#include "base/file.h"
#include "config/hydra.h"
#include "config/shell.h"
#include "config/toml.h"
#include "config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_EXTENDS_DEPTH = 16, MAX_FILES = 64, MAX_LEAVES = 20000, MAX_TEXT_BYTES = 8 << 20 };

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
    bool        raw;                                   /* ${...} is not a variable */
} origin_file;

static tm_status add_leaf(tm_loader *l, const origin_file *file, int line, const char *path, tm_leaf value)
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
static tm_status scalar_text(tm_loader *l, const origin_file *file, const tm_yaml *node, tm_text *out, bool *secret)
{
    if (file->fixed_origin || file->raw) {
        tm_text_add(out, node->text); /* command line: the shell has substituted */
        return TM_OK;
    }
    char place[TM_LOAD_PATH_MAX + 16];
    snprintf(place, sizeof place, "%s:%d", file->name, node->line);
    return tm_substitute(l->config, node->text, place, out, secret, l->err);
}

/* An item of a list, or the value of a map in one, appended: a plain value that holds none of `separators`. */
static tm_status item_text(tm_loader *l, const origin_file *file, const tm_yaml_item *item, const char *path,
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
                   item->line,
                   out->data[before + plain] == ','   ? "a comma"
                   : out->data[before + plain] == '|' ? "a '|'"
                                                      : "a blank");
}

/* [x, y] as "x|y". */
static tm_status inner_text(tm_loader *l, const origin_file *file, const tm_yaml *list, const char *path,
                            const char *separators, tm_text *out, bool *secret)
{
    for (const tm_yaml_item *i = list->first; i; i = i->next) {
        if (i != list->first) tm_text_add(out, "|");
        TM_TRY(item_text(l, file, i, path, separators, out, secret));
    }
    return TM_OK;
}

/* {a: 1, b: [x, y]} as "a=1 b=x|y". */
static tm_status map_text(tm_loader *l, const origin_file *file, const tm_yaml *map, const char *path, tm_text *out,
                          bool *secret)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next) {
        tm_text_printf(out, "%s%s=", i == map->first ? "" : " ", i->key);
        if (i->value->kind == TM_YAML_LIST)
            TM_TRY(inner_text(l, file, i->value, path, ", ", out, secret));
        else
            TM_TRY(item_text(l, file, i, path, ", ", out, secret));
    }
    return TM_OK;
}

/* A key whose items are lists, alone or below the sections of an experiment. */
static bool takes_lists(const tm_loader *l, const char *path)
{
    while (path) {
        const tm_entry *entry = tm_entry_find(l->config, path);
        if (entry && entry->key.kind == TM_KEY_LISTS) return true;
        const char *dot = strchr(path, '.');
        path = dot ? dot + 1 : NULL;
    }
    return false;
}

static tm_status list_text(tm_loader *l, const origin_file *file, const tm_yaml *list, const char *path, tm_text *out,
                           tm_leaf *value)
{
    tm_text_add(out, "");
    for (const tm_yaml_item *i = list->first; i; i = i->next) {
        if (i != list->first) tm_text_add(out, ",");
        if (i->value->kind == TM_YAML_MAP) {
            value->has_maps = true;
            TM_TRY(map_text(l, file, i->value, path, out, &value->secret));
        } else if (i->value->kind == TM_YAML_LIST && takes_lists(l, path)) {
            TM_TRY(inner_text(l, file, i->value, path, ",|", out, &value->secret));
        } else {
            TM_TRY(item_text(l, file, i, path, ",", out, &value->secret));
        }
    }
    return TM_OK;
}

/* The key of the files that a file begins with, as it is called and as it was called before. */
static bool is_extends(const char *key)
{
    return strcmp(key, "extends") == 0 || strcmp(key, "bases") == 0 || strcmp(key, "includes") == 0;
}

static tm_status flatten(tm_loader *l, const origin_file *file, const tm_yaml *node, int line, const char *path)
{
    if (node->kind == TM_YAML_MAP) {
        for (const tm_yaml_item *i = node->first; i; i = i->next) {
            if (!*path && is_extends(i->key)) continue;
            const char *below = *path ? tm_arena_format(l->arena, "%s.%s", path, i->key) : i->key;
            TM_TRY(flatten(l, file, i->value, i->line, below));
        }
        return TM_OK;
    }
    if (node->kind == TM_YAML_LIST && strcmp(path, "modules") == 0)
        return tm_fail(l->err, TM_INVALID,
                       "'modules' (%s:%d) is a list; wanted a map: modules: {pre_trainer: {framework: ..., model: ..., "
                       "overrides: ...}}",
                       file->name, line);
    if (tm_yaml_is_null(node)) return add_leaf(l, file, line, path, (tm_leaf){ 0 });
    tm_text   text = { 0 };
    tm_leaf   value = { .is_list = node->kind == TM_YAML_LIST };
    tm_status st = value.is_list ? list_text(l, file, node, path, &text, &value)
                                 : scalar_text(l, file, node, &text, &value.secret);
    if (st == TM_OK) {
        bool null = node->kind == TM_YAML_SCALAR && node->plain && strcmp(text.data, "null") == 0; /* ${VAR:null} */
        value.text = null ? NULL : tm_arena_text_n(l->arena, text.data, text.length);
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

static tm_status read_leaves(tm_loader *l, const char *path, const chain *above);

static tm_status extend_one(tm_loader *l, const origin_file *file, const tm_yaml *node, const chain *here)
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
            st = add_leaf(l, file, node->line, "model", (tm_leaf){ .text = tm_arena_text(l->arena, name.data) });
        else
            st = read_leaves(l, path, here);
    }
    tm_text_fini(&name);
    return st;
}

static tm_status extend(tm_loader *l, const origin_file *file, const tm_yaml *root, const chain *here)
{
    const tm_yaml *extends = NULL;
    for (const tm_yaml_item *i = root->first; i && !extends; i = i->next)
        if (is_extends(i->key)) extends = i->value;
    if (!extends) return TM_OK;
    if (extends->kind != TM_YAML_LIST) return extend_one(l, file, extends, here);
    for (const tm_yaml_item *i = extends->first; i; i = i->next) TM_TRY(extend_one(l, file, i->value, here));
    return TM_OK;
}

/* Refuses what cannot be opened, and a file that is already being read. */
static tm_status check_file(const tm_config *config, const char *path, const chain *above, chain *here, tm_error *err)
{
    struct stat info;
    const char *by = above ? above->path : "the command";
    bool        fits = strlen(path) < TM_LOAD_PATH_MAX;
    int         cause = !fits || stat(path, &info) == 0 ? 0 : errno;
    if (!fits || cause)
        return tm_fail(err, TM_INVALID, "cannot open configuration '%.300s', named by %.200s: %s; %s", path, by,
                       fits ? strerror(cause) : "path too long",
                       fits ? tm_config_meant(config, path) : "check the path");
    if (S_ISDIR(info.st_mode))
        return tm_fail(err, TM_INVALID, "configuration '%.300s' is a directory; name a YAML file in it", path);
    *here = (chain){ info.st_dev, info.st_ino, path, above, above ? above->depth + 1 : 1 };
    for (const chain *c = above; c; c = c->above)
        if (c->device == here->device && c->inode == here->inode)
            return tm_fail(err, TM_INVALID, "extends is circular: '%.300s' extends '%.300s', which is being read", by,
                           path);
    if (here->depth > MAX_EXTENDS_DEPTH)
        return tm_fail(err, TM_INVALID, "extends is nested deeper than %d files at '%.300s'", MAX_EXTENDS_DEPTH, path);
    return TM_OK;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), s = strlen(suffix);
    return n >= s && strcasecmp(text + n - s, suffix) == 0;
}

static tm_status parse(tm_loader *l, const char *path, const tm_text *bytes, const tm_yaml **root)
{
    const char *text = bytes->data ? bytes->data : "";
    if (ends_with(path, ".toml")) return tm_toml_parse(l->arena, text, bytes->length, path, root, l->err);
    if (ends_with(path, ".sh"))
        return tm_shell_parse(l->arena, text, bytes->length, path, l->config->environment, root, l->err);
    return tm_yaml_parse(l->arena, text, bytes->length, path, root, l->err);
}

/* Recipes of torchtune name components, and their ${a.b} are values of the file itself. */
static bool has_component(const tm_yaml *map)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next)
        if (tm_yaml_get(i->value, "_component_")) return true;
    return false;
}

/* Does a value below say ${name}? */
static bool refers_to(const tm_yaml *node, const char *name) /* NOLINT(misc-no-recursion): the depth of a file */
{
    size_t n = strlen(name);
    for (const char *p = node->kind == TM_YAML_SCALAR ? node->text : NULL; p && (p = strstr(p, "${")); p += 2)
        if (strncmp(p + 2, name, n) == 0 && p[2 + n] == '}') return true;
    if (node->kind == TM_YAML_SCALAR) return false;
    for (const tm_yaml_item *i = node->first; i; i = i->next)
        if (refers_to(i->value, name)) return true;
    return false;
}

/* A value that only others of a recipe refer to is no key of a training. */
static void drop_referred(tm_loader *l, const tm_yaml *root, size_t from)
{
    size_t kept = from;
    for (size_t i = from; i < l->n; i++) {
        const char *path = l->leaves[i].path;
        bool        known = tm_config_knows(l->config, path) || tm_foreign_row(l->config->framework, path);
        if (known || !refers_to(root, path)) l->leaves[kept++] = l->leaves[i];
    }
    l->n = kept;
}

/* Which program's keys a file has that is no experiment; NULL: ours. */
static const tm_framework *framework_of(const char *path, const tm_yaml *root)
{
    if (ends_with(path, ".toml")) return &tm_framework_torchtitan;
    if (ends_with(path, ".json")) return &tm_framework_ptb;
    if (ends_with(path, ".sh"))
        return tm_yaml_get(root, "MAX_LR") ? &tm_framework_mlperf_8b : &tm_framework_mlperf_lora;
    return has_component(root)          ? &tm_framework_torchtune
           : tm_hydra_is_launcher(root) ? &tm_framework_fluxbenchmark
                                        : NULL;
}

/* An experiment of a program whose files are not read says so before its variables are looked up. */
static tm_status check_program(const tm_loader *l, const origin_file *file, const tm_yaml *root)
{
    const tm_yaml *modules = tm_yaml_get(root, "modules");
    for (const tm_yaml_item *i = modules && modules->kind == TM_YAML_MAP ? modules->first : NULL; i; i = i->next) {
        const tm_yaml *name = i->value->kind == TM_YAML_MAP ? tm_yaml_get(i->value, "framework") : NULL;
        if (!name || name->kind != TM_YAML_SCALAR || tm_yaml_is_null(name) || strchr(name->text, '$')) continue;
        char *place = tm_arena_format(l->arena, "file %s:%d", file->name, name->line);
        bool  post = strcmp(i->key, "pre_trainer") != 0;
        TM_TRY(tm_load_framework(l, &(tm_leaf){ .text = name->text, .origin = place }, post));
    }
    return TM_OK;
}

static tm_status read_tree(tm_loader *l, const char *path, const tm_yaml **root)
{
    tm_text bytes = { 0 };
    if (++l->files > MAX_FILES)
        return tm_fail(l->err, TM_INVALID, "more than %d files are read at '%.300s'", MAX_FILES, path);
    tm_status st = tm_file_read(path, TM_YAML_MAX_BYTES, &bytes, l->err);
    if (st == TM_OK) st = parse(l, path, &bytes, root);
    tm_text_fini(&bytes);
    return st;
}

/* A value of OmegaConf that refers to another one is read where it has no effect. */
static tm_status check_reference(const tm_loader *l, const tm_leaf *leaf)
{
    const tm_foreign_key *row =
        leaf->text && strstr(leaf->text, "${") ? tm_foreign_row(l->config->framework, leaf->path) : NULL;
    if (!row || row->kind == TM_FOREIGN_HARMLESS || row->kind == TM_FOREIGN_SPEED) return TM_OK;
    return tm_fail(l->err, TM_UNSUPPORTED, "'%.200s' (%.200s) is '%.200s': references are not read; write the value",
                   leaf->path, tm_place(leaf->origin), leaf->text);
}

/* The leaves of a file of Hydra, without `defaults`. A list of one value is that value; old files say cli_args. */
static tm_status take_composed(tm_loader *l, const tm_hydra_file *from)
{
    static const char old[] = "cli_args.";
    origin_file file = { from->name, tm_arena_format(l->arena, "%s#%d", from->name, ++l->config->loads), from->folder,
                         NULL, true };
    size_t      before = l->n;
    for (const tm_yaml_item *i = from->root->first; i; i = i->next) {
        if (strcmp(i->key, "defaults") == 0) continue;
        const char *path = *from->section ? tm_arena_format(l->arena, "%s.%s", from->section, i->key) : i->key;
        TM_TRY(flatten(l, &file, i->value, i->line, path));
    }
    for (size_t i = before; i < l->n; i++) {
        tm_leaf *leaf = &l->leaves[i];
        if (tm_begins(leaf->path, old))
            leaf->path = tm_arena_format(l->arena, "train_args.%s", leaf->path + sizeof old - 1);
        if (leaf->is_list && leaf->text && !strchr(leaf->text, ',')) leaf->is_list = false;
        TM_TRY(check_reference(l, leaf));
    }
    return TM_OK;
}

static const tm_hydra_reader hydra_reader = { read_tree, take_composed };

/* A file of FluxBenchmark's launcher that is built in: nothing that it names is a file. */
static tm_status read_built_in(tm_loader *l, const char *path, const char *text)
{
    tm_hydra_file file = { .name = path, .folder = "fluxbenchmark:/", .section = "" };
    l->config->framework = &tm_framework_fluxbenchmark;
    TM_TRY(tm_yaml_parse(l->arena, text, strlen(text), path, &file.root, l->err));
    return tm_hydra_compose(l, &file, &hydra_reader);
}

/* Appends the leaves of a file, those of what it extends first. */
static tm_status read_leaves(tm_loader *l, const char *path, const chain *above)
{
    const char *built_in = above || l->preset ? NULL : tm_hydra_built_in(path);
    if (built_in) return read_built_in(l, path, built_in);
    chain          here;
    tm_text        bytes = { 0 };
    const tm_yaml *root = NULL;
    TM_TRY(check_file(l->config, path, above, &here, l->err));
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
                         NULL, false };
    if (!above && !l->preset) TM_TRY(check_program(l, &file, root));
    TM_TRY(extend(l, &file, root, &here));
    if (!above && !l->preset) l->config->framework = framework_of(path, root);
    if (!above && !l->preset && l->config->framework == &tm_framework_fluxbenchmark) {
        return tm_hydra_compose(l, &(tm_hydra_file){ root, path, file.folder, "", 0 }, &hydra_reader);
    }
    size_t before = l->n;
    if (l->config->framework == &tm_framework_torchtune) l->config->references = root;
    st = flatten(l, &file, root, 1, "");
    if (l->config->references) drop_referred(l, root, before);
    l->config->references = NULL;
    return st;
}

static tm_status check_kind(tm_loader *l, const tm_leaf *value, const char *path, tm_error *err)
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
static bool is_axis(const tm_loader *l, const tm_leaf *value, const char *path)
{
    const tm_entry *entry = l->config->allow_axes && value->is_list && !value->secret && !value->has_maps &&
                                    value->text && *value->text && !l->preset
                                ? tm_config_target(l->config, path)
                                : NULL;
    return entry && entry->key.kind < TM_KEY_LIST && !tm_entry_is_wildcard(entry);
}

tm_status tm_load_leaf(tm_loader *l, tm_layer layer, const tm_leaf *value, const char *path)
{
    tm_given given = { .text = value->text, .secret = value->secret, .origin = value->origin, .source = value->source };
    tm_error err = { 0 };
    bool     axis = is_axis(l, value, path);
    if (!value->text && tm_config_is_section(l->config, path)) return TM_OK;
    if (axis) given.text = tm_arena_text_n(l->arena, value->text, strcspn(value->text, ","));
    if (!axis && !tm_config_translates(l->config, path)) (void)check_kind(l, value, path, &err);
    if (err.status == TM_OK) (void)tm_config_give(l->config, layer, path, &given, &err);
    if (axis && err.status == TM_OK) {
        tm_axes_drop(l->config, layer, path); /* an "auto" at its head was one by itself */
        tm_axes_add(l->config, layer, path, value->text, value->origin);
    }
    if (err.status == TM_OK) return TM_OK;
    if (l->strict) return tm_fail(l->err, err.status, "%s", err.text);
    tm_config_problem(l->config, &err);
    return TM_OK;
}

/* The leaves of a file of keys. Presets come first: they clear what a former preset has left. */
static tm_status give_flat(tm_loader *l, tm_layer layer)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->leaves[i].path, "model") == 0 && l->leaves[i].text)
            TM_TRY(tm_load_leaf(l, layer, &l->leaves[i], "model"));
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->leaves[i].path, "model") != 0) TM_TRY(tm_load_leaf(l, layer, &l->leaves[i], l->leaves[i].path));
    return TM_OK;
}

tm_status tm_load_preset_file(tm_loader *l, const char *path, tm_layer layer)
{
    tm_loader inner = {
        .config = l->config, .arena = l->arena, .files = l->files, .preset = true, .file = l->file, .err = l->err
    };
    tm_config_clear_layer(l->config, layer);
    tm_status st = read_leaves(&inner, path, NULL);
    if (st == TM_OK) st = give_flat(&inner, layer);
    free(inner.leaves);
    return st;
}

/* Mock data is Primus's default; TorchTitan's own job files train on the data set that they name. */
static void say_data_is_real(tm_loader *l)
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

/* A file of keys is read if it may be one: neither an experiment of another form, nor something else altogether, nor a
 * model of a family that is known and not built. */
static tm_status check_flat(const tm_loader *l)
{
    const tm_leaf *known = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const tm_leaf *value = &l->leaves[i];
        if (strcmp(value->path, "framework") == 0 && !l->config->framework) TM_TRY(tm_load_framework(l, value, false));
        if (strcmp(value->path, "model.name") == 0 && l->config->framework && value->text &&
            !tm_preset_find(l->config, value->text))
            TM_TRY(tm_foreign_check_family(value->text, value->text, value->origin, l->err));
        if (!known && tm_config_has(l->config, value->path)) known = value;
    }
    if (known || l->n < 3 || l->config->allow_unknown) return TM_OK;
    return tm_fail(l->err, TM_INVALID,
                   "'%.300s' holds no key that is known (%.100s, %.100s, ...): it is neither an experiment (modules: "
                   "{pre_trainer: ...}) nor a job file, and docs/configuration.md has no such keys",
                   l->file, l->leaves[0].path, l->leaves[1].path);
}

tm_status tm_config_load_file(tm_config *config, const char *path, tm_error *err)
{
    tm_error  own = { 0 };
    tm_loader l = { .config = config, .arena = tm_arena_create(), .file = path, .err = err ? err : &own };
    tm_status st = ends_with(path, ".py") ? refuse_python(path, err) : read_leaves(&l, path, NULL);
    if (st == TM_OK) {
        bool is_experiment = false;
        for (size_t i = 0; i < l.n; i++)
            is_experiment |= strcmp(l.leaves[i].path, "modules") == 0 || tm_begins(l.leaves[i].path, "modules.");
        config->file_loaded = true;
        if (!config->file) config->file = tm_arena_text(config->arena, path);
        if (is_experiment) config->experiment = tm_arena_text(config->arena, path);
        if (!is_experiment && config->framework == &tm_framework_torchtitan) say_data_is_real(&l);
        if (!is_experiment) st = check_flat(&l);
        if (st == TM_OK) st = is_experiment ? tm_load_experiment(&l) : give_flat(&l, LAYER_FILE);
    }
    free(l.leaves);
    tm_arena_destroy(l.arena);
    return st;
}

tm_status tm_config_give_yaml(tm_config *config, tm_layer layer, const char *path, const char *yaml, const char *origin,
                              tm_error *err)
{
    tm_loader      l = { .config = config, .arena = tm_arena_create(), .strict = true, .err = err };
    origin_file    file = { .name = origin, .folder = "", .fixed_origin = origin };
    const tm_yaml *root;
    tm_status      st = tm_yaml_parse(l.arena, yaml, strlen(yaml), origin, &root, err);
    if (st == TM_OK && !root) st = add_leaf(&l, &file, 1, path, (tm_leaf){ 0 });
    if (st == TM_OK && root) st = flatten(&l, &file, root, 1, path);
    for (size_t i = 0; st == TM_OK && i < l.n; i++) st = tm_load_leaf(&l, layer, &l.leaves[i], l.leaves[i].path);
    free(l.leaves);
    tm_arena_destroy(l.arena);
    return st;
}

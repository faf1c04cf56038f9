/* SPDX-License-Identifier: Apache-2.0 */
/* config/finish.c - what can be said only when everything was given. */
#include "base/log.h"
#include "config/foreign.h"

#include <stdio.h>
#include <string.h>

/* The value of `key` in a preset, or NULL. */
static const char *pair_value(const tm_config_preset_row *preset, const char *key)
{
    size_t n = strlen(key);
    for (const char *const *pair = preset->pairs; *pair; pair++)
        if (strncmp(*pair, key, n) == 0 && (*pair)[n] == '=') return *pair + n + 1;
    return NULL;
}

static const char *text_or_null(const tm_config *config, const char *key)
{
    const tm_entry *entry = tm_entry_find(config, key);
    return entry ? tm_entry_value(entry)->text : NULL;
}

/* Given, by whatever stands above our own presets? */
static bool is_given(const tm_entry *entry)
{
    return tm_entry_value(entry) >= &entry->layers[LAYER_MODEL_FILE];
}

static bool same(const char *a, const char *b)
{
    return a && b && tm_names_equal(a, b);
}

/* Puts a preset below everything that was given; what a file of the user's says about the model stays. */
static tm_status put_below(tm_config *config, const tm_config_preset_row *preset, tm_error *err)
{
    tm_config_clear_layer(config, LAYER_PRESET);
    config->preset = preset->name;
    return tm_preset_fill(config, preset, LAYER_PRESET, err);
}

/* Does the file of a preset say it, under our name or theirs? What overrides it is another matter. */
static bool file_says(const tm_config *config, const char *key)
{
    const tm_entry *entry = tm_entry_find(config, key);
    bool            said = entry && entry->layers[LAYER_MODEL_FILE].present;
    for (size_t i = 0; i < config->n_foreign && !said; i++) {
        const tm_foreign_value *value = &config->foreign[i];
        said = value->row->kind == TM_FOREIGN_MAPPED && strcmp(value->row->values, key) == 0 &&
               value->layers[LAYER_MODEL_FILE].text;
    }
    return said;
}

/* Does the file of a preset of another program say what its model is? Then a preset of ours of the same name adds
 * nothing. */
static bool describes_itself(const tm_config *config)
{
    static const char *const sizes[] = { "model.dim", "model.n_layers" };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!file_says(config, sizes[i])) return false;
    return config->model_named != NULL;
}

/* A model with a name or flavor of its own has sizes of its own: those of a preset below are of another model. */
static bool has_own_sizes(const tm_config *config)
{
    const tm_entry *dim = tm_entry_find(config, "model.dim"), *layers = tm_entry_find(config, "model.n_layers");
    return dim && layers && is_given(dim) && is_given(layers) && tm_entry_value(dim)->text &&
           tm_entry_value(layers)->text;
}

/* No preset has this name, in this flavor: what else could have been meant? */
static tm_status unknown_model(const tm_config *config, const tm_entry *name, const tm_entry *flavor, tm_error *err)
{
    const char *n = tm_entry_value(name)->text, *f = tm_entry_value(flavor)->text;
    const char *place = tm_place(tm_entry_value(f && is_given(flavor) ? flavor : name)->origin);
    const char *family = tm_foreign_family(n ? n : f);
    if (family)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "the model '%.100s%s%.100s' (%s) is of the family %s, which is not supported; `trainmark models` "
            "lists the models",
            n ? n : "", f ? " " : "", f ? f : "", place, family);
    tm_text flavors = { 0 };
    for (size_t i = 0; i < config->n_presets; i++) {
        const char *its = pair_value(&config->presets[i], "model.flavor");
        if (!its || !same(pair_value(&config->presets[i], "model.name"), n)) continue;
        if (!flavors.length || !strstr(flavors.data, its))
            tm_text_printf(&flavors, "%s%s", flavors.length ? ", " : "one of its flavors (", its);
    }
    if (flavors.length) tm_text_add(&flavors, "), ");
    tm_status st = tm_fail(
        err, TM_INVALID,
        "no model is known as model.name '%.100s' %s%.100s%s (%s); give %sa preset of `trainmark models`, or for a "
        "name of its own model.dim, model.n_layers, model.n_heads and model.vocab_size",
        n ? n : "null", f ? "with model.flavor '" : "without model.flavor", f ? f : "", f ? "'" : "", place,
        flavors.length ? flavors.data : "");
    tm_text_fini(&flavors);
    return st;
}

/* model.name and model.flavor, as the public files of keys have them, choose a preset. */
static tm_status resolve_model(tm_config *config, tm_error *err)
{
    const tm_entry *name = tm_entry_find(config, "model.name"), *flavor = tm_entry_find(config, "model.flavor");
    if (!name || !flavor) return TM_OK;
    const tm_value *n = tm_entry_value(name), *f = tm_entry_value(flavor);
    if ((!is_given(name) && !is_given(flavor)) || (!n->text && !f->text)) return TM_OK;
    const tm_config_preset_row *now = config->preset ? tm_preset_find(config, config->preset) : NULL;
    if (now && same(pair_value(now, "model.name"), n->text) &&
        (!f->text || same(pair_value(now, "model.flavor"), f->text)))
        return TM_OK;
    for (size_t i = 0; i < config->n_presets; i++) {
        const tm_config_preset_row *p = &config->presets[i];
        const char                 *its_name = pair_value(p, "model.name"), *its_flavor = pair_value(p, "model.flavor");
        if (f->text && same(its_flavor, f->text) && (!n->text || same(its_name, n->text)))
            return put_below(config, p, err);
    }
    const tm_config_preset_row *direct = n->text ? tm_preset_find(config, n->text) : NULL;
    if (direct && describes_itself(config)) return TM_OK;
    if (direct && !is_given(flavor)) return put_below(config, direct, err);
    if (has_own_sizes(config)) return TM_OK;
    return unknown_model(config, name, flavor, err);
}

/* May an unbuilt key have this value? Its default may, and so may the harmless values in `choices`. */
static bool harmless(const tm_entry *entry, const tm_value *value)
{
    const tm_value *fallback = &entry->layers[LAYER_DEFAULT];
    if (!value->text || (fallback->text && strcmp(value->text, fallback->text) == 0)) return true;
    if (!fallback->text && strcmp(value->text, "false") == 0) return true;
    if (entry->key.kind == TM_KEY_CHOICE) return false;
    for (const char *p = entry->key.choices; p && *p;) {
        size_t n = strcspn(p, "|");
        if (strlen(value->text) == n && strncmp(p, value->text, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static tm_status check_entry(const tm_entry *entry, bool allow_unbuilt, tm_error *err)
{
    const tm_value *value = tm_entry_value(entry);
    TM_TRY(tm_value_check_range(&entry->key, value, err));
    if (allow_unbuilt || entry->key.state != TM_KEY_UNBUILT || harmless(entry, value)) return TM_OK;
    if (tm_entry_is_wildcard(entry))
        return tm_fail(err, TM_UNSUPPORTED, "'%.200s' (%s): %s is not supported; remove it", value->text,
                       tm_place(value->origin), entry->key.feature);
    const char *fallback = entry->layers[LAYER_DEFAULT].text;
    return tm_fail(
        err, TM_UNSUPPORTED, "'%s' = '%.200s' (%s): %s%s; %s%s%s", entry->key.name, value->secret ? "***" : value->text,
        tm_place(value->origin), entry->key.instead ? entry->key.instead : entry->key.feature,
        entry->key.instead ? "" : " is not supported", fallback && *fallback ? "set it to " : "leave it out",
        fallback ? fallback : "", strncmp(value->origin, "environment ", 12) == 0 ? " or unset the variable" : "");
}

static void list_unbuilt(tm_config *config)
{
    for (size_t i = 0; i < config->n_entries; i++) {
        const tm_entry *entry = &config->entries[i];
        const tm_value *value = tm_entry_value(entry);
        if (entry->key.state != TM_KEY_UNBUILT || harmless(entry, value)) continue;
        tm_text_printf(&config->unbuilt, "%s (%s%s%.200s, %s)\n", entry->key.feature,
                       tm_entry_is_wildcard(entry) ? "" : entry->key.name, tm_entry_is_wildcard(entry) ? "" : " = ",
                       value->secret ? "***" : value->text, tm_place(value->origin));
    }
}

static void note_ignored(tm_config *config)
{
    size_t before = config->notes.length;
    for (size_t i = 0; i < config->n_entries; i++) {
        const tm_entry *entry = &config->entries[i];
        if (entry->key.state != TM_KEY_IGNORED || !is_given(entry)) continue;
        tm_text_printf(&config->notes, "%s%s", config->notes.length == before ? "accepted and ignored: " : ", ",
                       entry->key.name);
    }
    if (config->notes.length > before) tm_text_add(&config->notes, "\n");
    size_t other = config->n_accepted[0], faster = config->n_accepted[1];
    if (other + faster > 0)
        tm_text_printf(&config->notes,
                       "ignored %zu setting%s of %s: %zu affect speed only, %zu do not apply (--verbose lists them)\n",
                       faster + other, faster + other > 1 ? "s" : "",
                       config->framework ? config->framework->name : "other programs", faster, other);
    if (config->unknown.length) tm_text_printf(&config->notes, "unknown keys skipped: %s\n", config->unknown.data);
}

static tm_status check_experiment(const tm_config *config, tm_error *err)
{
    static const char *const required[] = { "work_group", "user_name", "exp_name", "workspace" };
    for (size_t i = 0; config->experiment && i < sizeof required / sizeof required[0]; i++)
        if (!text_or_null(config, required[i]))
            return tm_fail(err, TM_INVALID, "experiment file '%.300s' lacks '%s'; add a line '%s: ...' at its top",
                           config->experiment, required[i], required[i]);
    return TM_OK;
}

/* The experiment file's own model, by name, is a name for the run, and a preset of ours of that name fills what it
 * leaves open, unless its own program's preset was found and says it all. */
static tm_status take_named_model(tm_config *config, tm_error *err)
{
    const tm_entry *name = tm_entry_find(config, "model.name");
    if (!config->model_named || !name || config->preset || tm_entry_value(name)->text) return TM_OK;
    tm_given given = { .text = config->model_named,
                       .origin = tm_arena_format(config->arena, "file %s", config->experiment) };
    return tm_config_give_own(config, LAYER_TRAINER, "model.name", &given, err);
}

/* A value that is out of range is refused, and what is below it counts: whoever asks later may rely on ranges. That
 * something is not supported is no matter for rules. */
static void check_entries(tm_config *config, bool again)
{
    for (size_t i = 0; i < config->n_entries; i++) {
        tm_entry *entry = &config->entries[i];
        tm_error  own = { 0 };
        tm_value *value = (tm_value *)tm_entry_value(entry);
        bool      derived = value == &entry->layers[LAYER_PROGRAM] || value == &entry->layers[LAYER_DEFAULT];
        if (again && !derived) continue; /* told before */
        tm_status st = check_entry(entry, config->allow_unbuilt, &own);
        tm_config_report(config, st, &own);
        while (st == TM_INVALID && value != &entry->layers[LAYER_DEFAULT]) {
            value->present = false;
            value = (tm_value *)tm_entry_value(entry);
            st = tm_value_check_range(&entry->key, value, NULL);
            tm_config_spoil(config, entry->key.name);
        }
    }
}

/* Did one of them find something? They report more than they return. */
static bool ask(tm_config *config, const tm_config_rule *rules, size_t n)
{
    int before = config->problems.n;
    for (size_t i = 0; i < n; i++) {
        tm_error err = { 0 };
        tm_config_report(config, rules[i](config, &err), &err);
    }
    return config->problems.n > before;
}

/* Where there is no such model nothing is known of it. That it is another program's was perhaps told with its keys. */
static bool settle_model(tm_config *config, bool told)
{
    tm_error  own = { 0 };
    tm_status st = resolve_model(config, &own);
    if (st != TM_OK) tm_config_spoil(config, "model.");
    return st != TM_OK && (told || tm_config_report(config, st, &own));
}

/* Single values first, then what concerns several. */
static tm_status check_all(tm_config *config, tm_error *err)
{
    tm_error own = { 0 };
    bool     wrong, theirs; /* a key of another program was refused: whatever it stands for is missing */
    tm_foreign_settle(config);
    theirs = config->framework && tm_config_failed(config);
    wrong = tm_config_report(config, take_named_model(config, &own), &own);
    tm_config_report(config, check_experiment(config, &own), &own);
    if (!wrong) wrong = settle_model(config, theirs);
    check_entries(config, false);
    config->judging = true;
    wrong |= ask(config, config->rules, config->n_rules);
    check_entries(config, true); /* what rules derived */
    wrong |= ask(config, config->checks, config->n_checks);
    tm_config_check_effects(config, !wrong && !theirs);
    if (tm_config_failed(config)) return tm_also_of(err, config->problems.status, &config->problems);
    if (config->allow_unbuilt) list_unbuilt(config);
    return TM_OK;
}

static void mask_error(const tm_config *config, tm_error *err)
{
    tm_text masked = { 0 };
    tm_config_mask(config, err->text, &masked);
    snprintf(err->text, sizeof err->text, "%s", masked.data);
    tm_text_fini(&masked);
}

tm_status tm_config_finish(tm_config *config, tm_error *err)
{
    tm_status st = check_all(config, err);
    if (st != TM_OK) {
        if (err) mask_error(config, err);
        return st;
    }
    note_ignored(config);
    for (const char *line = config->notes.data; line && *line && !config->keeps_notes;) {
        size_t n = strcspn(line, "\n");
        tm_note("%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    return TM_OK;
}

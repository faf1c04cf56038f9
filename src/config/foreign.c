/* SPDX-License-Identifier: Apache-2.0 */
/* config/foreign.c - values of other programs' keys: kept by layer, translated when everything was given. */
#include "config/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tm_framework *const frameworks[] = {
#define TM_FRAMEWORK(id, name, what) &tm_framework_##id,
#include "config/frameworks.def"
#undef TM_FRAMEWORK
};
enum { FRAMEWORKS = sizeof frameworks / sizeof frameworks[0] };

const tm_framework *tm_framework_at(size_t i)
{
    return i < FRAMEWORKS ? frameworks[i] : NULL;
}

const char *tm_config_framework_at(size_t i, const char **what)
{
    const tm_framework *framework = tm_framework_at(i);
    *what = framework ? framework->what : NULL;
    return framework ? framework->name : NULL;
}

const tm_framework *tm_framework_find(const char *name)
{
    for (size_t i = 0; i < FRAMEWORKS; i++)
        if (tm_names_equal(frameworks[i]->name, name)) return frameworks[i];
    return NULL;
}

/* Length of what a pattern fits ("mlflow_*": 7), the whole length of an exact name and one more, -1: does not fit. */
static int fits(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    if (n == 0 || pattern[n - 1] != '*') return tm_names_equal(pattern, name) ? (int)n + 1 : -1;
    char head[160], begin[160];
    if (n > sizeof head || strlen(name) + 1 < n) return -1;
    snprintf(head, sizeof head, "%.*s", (int)n - 1, pattern);
    snprintf(begin, sizeof begin, "%.*s", (int)n - 1, name);
    return tm_names_equal(head, begin) ? (int)n - 1 : -1;
}

const tm_foreign_key *tm_foreign_row(const tm_framework *framework, const char *path)
{
    const tm_foreign_key *best = NULL;
    int                   longest = -1;
    for (size_t i = 0; i < framework->n; i++) {
        int n = fits(framework->keys[i].name, path);
        if (n <= longest) continue;
        longest = n;
        best = &framework->keys[i];
    }
    return best;
}

const char *tm_foreign_family(const char *model)
{
    static const struct {
        const char *begin, *family;
    } known[] = {
#define TM_NOT_BUILT(begin, family) { begin, family },
#include "config/families_not_built.def"
#undef TM_NOT_BUILT
    };
    const char *best = NULL;
    size_t      longest = 0;
    for (size_t i = 0; model && i < sizeof known / sizeof known[0]; i++) {
        char   head[64];
        size_t n = strlen(known[i].begin);
        snprintf(head, sizeof head, "%.*s", (int)n, model);
        if (n <= longest || !tm_names_equal(head, known[i].begin)) continue;
        longest = n;
        best = known[i].family;
    }
    return best;
}

tm_status tm_foreign_check_family(const char *shown, const char *model, const char *origin, tm_error *err)
{
    const char *family = tm_foreign_family(model);
    if (!family) return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED,
                   "the model '%.100s' (%s) is of the family %s, which is not supported; `trainmark models` lists the "
                   "models",
                   shown, tm_place(origin), family);
}

void tm_foreign_give(tm_config *config, tm_layer layer, const tm_framework *framework, const tm_foreign_key *row,
                     const char *path, const tm_given *given)
{
    tm_foreign_value *value = NULL;
    for (size_t i = 0; i < config->n_foreign && !value; i++)
        if (config->foreign[i].framework == framework && tm_names_equal(config->foreign[i].path, path))
            value = &config->foreign[i];
    if (!value) {
        config->foreign =
            tm_grow(config->foreign, &config->foreign_capacity, config->n_foreign, sizeof *config->foreign);
        value = &config->foreign[config->n_foreign++];
        *value = (tm_foreign_value){ .framework = framework, .row = row, .path = tm_arena_text(config->arena, path) };
    }
    value->layers[layer] = (tm_value){ .text = given->text ? tm_arena_text(config->arena, given->text) : NULL,
                                       .origin = tm_arena_text(config->arena, given->origin),
                                       .present = true,
                                       .secret = given->secret };
}

bool tm_foreign_remove(tm_config *config, tm_layer layer, const char *path)
{
    bool   any = false;
    size_t n = strlen(path);
    for (size_t i = 0; i < config->n_foreign; i++) {
        tm_foreign_value *value = &config->foreign[i];
        if (strncmp(value->path, path, n) != 0 || (value->path[n] && value->path[n] != '.')) continue;
        any |= value->layers[layer].present;
        value->layers[layer] = (tm_value){ 0 };
    }
    return any;
}

void tm_foreign_clear_layer(tm_config *config, tm_layer layer)
{
    for (size_t i = 0; i < config->n_foreign; i++) config->foreign[i].layers[layer] = (tm_value){ 0 };
}

/* The value that counts; *layer is where it was given. NULL: given nowhere. */
static const tm_value *highest(const tm_foreign_value *value, tm_layer *layer)
{
    int lowest = value->row->own ? LAYER_FILE : 0;
    for (int k = LAYER_COUNT - 1; k >= lowest; k--) {
        if (!value->layers[k].present) continue;
        *layer = (tm_layer)k;
        return &value->layers[k];
    }
    return NULL;
}

static bool counts(const tm_config *config, const tm_framework *framework, const tm_foreign_key *row, bool with_own);

/* What its own program takes where nothing is given, or NULL. */
static const char *fallback_of(const tm_config *config, const tm_framework *framework, const tm_foreign_key *row)
{
    const char *bar = row->fallback && framework->second ? strchr(row->fallback, '|') : NULL;
    if (!bar) return row->fallback;
    return framework->second(config) ? bar + 1
                                     : tm_arena_text_n(config->arena, row->fallback, (size_t)(bar - row->fallback));
}

static const char *text_of(const tm_config *config, const tm_framework *framework, const char *name)
{
    tm_layer layer;
    for (size_t i = 0; i < config->n_foreign; i++) {
        const tm_foreign_value *value = &config->foreign[i];
        if (value->framework != framework || !tm_names_equal(value->path, name)) continue;
        const tm_value *given = highest(value, &layer);
        if (given && given->text) return given->text;
    }
    const tm_foreign_key *row = tm_foreign_row(framework, name);
    bool                  falls_back = row && config->framework == framework && row->fallback;
    return falls_back && counts(config, framework, row, false) ? fallback_of(config, framework, row) : NULL;
}

const char *tm_foreign_text(const tm_config *config, const char *name)
{
    return config->framework ? text_of(config, config->framework, name) : NULL;
}

/* "true" and "false" for their spellings, else the text. */
static const char *plain(const char *text)
{
    static const char *const yes[] = { "true", "yes", "on" }, *const no[] = { "false", "no", "off" };
    for (int i = 0; i < 3; i++) {
        if (tm_names_equal(text, yes[i])) return "true";
        if (tm_names_equal(text, no[i])) return "false";
    }
    return text;
}

const char *tm_foreign_given(const tm_config *config, const char *name)
{
    tm_layer layer;
    for (size_t i = 0; i < config->n_foreign; i++) {
        const tm_foreign_value *value = &config->foreign[i];
        if (value->framework != config->framework || !tm_names_equal(value->path, name)) continue;
        const tm_value *given = highest(value, &layer);
        if (given && given->text) return plain(given->text);
    }
    return NULL;
}

const char *tm_config_foreign(const tm_config *config, const char *name)
{
    return config->framework ? tm_foreign_given(config, name) : NULL;
}

const char *tm_config_weights(const tm_config *config)
{
    const char *recipe = tm_config_foreign(config, "checkpointer.checkpoint_dir");
    if (config->framework == &tm_framework_mlperf_lora) return tm_mlperf_lora_weights(config);
    if (config->framework == &tm_framework_fluxbenchmark) return tm_fluxbenchmark_weights(config);
    return recipe ? recipe : tm_config_foreign(config, "pretrained_checkpoint");
}

const char *tm_config_foreign_place(const tm_config *config, const char *name)
{
    tm_layer layer;
    for (size_t i = 0; i < config->n_foreign; i++) {
        const tm_foreign_value *value = &config->foreign[i];
        if (value->framework != config->framework || !tm_names_equal(value->path, name)) continue;
        const tm_value *given = highest(value, &layer);
        if (given && given->text) return tm_place(given->origin);
    }
    return config->framework ? tm_arena_format(config->arena, "default of %s", config->framework->name) : "default";
}

static bool same(const char *a, const char *b)
{
    char *end_a, *end_b;
    a = plain(a);
    b = plain(b);
    if (tm_names_equal(a, b)) return true;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    if (*a && *b && !*end_a && !*end_b) return x <= y && x >= y;
    bool switch_a = strcmp(a, "true") == 0 || strcmp(a, "false") == 0;
    bool switch_b = strcmp(b, "true") == 0 || strcmp(b, "false") == 0;
    if (switch_a && *b && !*end_b) return y == (*a == 't' ? 1 : 0); /* 1 is true, 0 is false */
    if (switch_b && *a && !*end_a) return x == (*b == 't' ? 1 : 0);
    return false;
}

/* Is `value` one of the words of `list`, separated by `separator`? An empty list holds an empty word. */
static bool one_of(const char *list, char separator, const char *value)
{
    for (;;) {
        char   word[160];
        size_t n = 0;
        while (list[n] && list[n] != separator) n++;
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), list);
        if (same(word, value)) return true;
        if (!list[n]) return false;
        list += n + 1;
    }
}

static bool accepted(const tm_foreign_key *row, const char *value)
{
    return !value || one_of(row->values, '|', value);
}

/* Does any of the items of `value` ("a,b") stand in "x/y"? */
static bool any_of(const char *list, const char *value)
{
    while (*value) {
        char   item[160];
        size_t n = strcspn(value, ",");
        snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), value);
        if (one_of(list, '/', item)) return true;
        value += n + (value[n] == ',');
    }
    return false;
}

/* What a preset of ours says of the key that a row hands its values on to, or NULL. */
static const char *own_preset(const tm_config *config, const tm_foreign_key *row)
{
    const char *any = row && row->kind == TM_FOREIGN_MAPPED ? strstr(row->values, "*:") : NULL;
    if (!any) return NULL;
    const tm_entry *entry = tm_entry_find(config, any + 2);
    return entry && entry->layers[LAYER_PRESET].present ? entry->layers[LAYER_PRESET].text : NULL;
}

/* with_own: what the file does not say, a preset of ours may. */
static bool is_on(const tm_config *config, const tm_framework *framework, const char *name, bool with_own)
{
    const char           *value = text_of(config, framework, name);
    const tm_foreign_key *row = tm_foreign_row(framework, name);
    if (!value && with_own) value = own_preset(config, row);
    if (!value || same(value, "false") || same(value, "none") || !*value) return false;
    if (row && row->kind >= TM_FOREIGN_EQUAL && *row->values) return !accepted(row, value);
    bool degree = strstr(name, "_degree") || strstr(name, "parallel_size"); /* of devices: one is none */
    return !degree || !same(value, "1");
}

/* Does a row count? with_own: also by what only a preset of ours says. */
static bool counts(const tm_config *config, const tm_framework *framework, const tm_foreign_key *row, bool with_own)
{
    char name[160];
    if (!row->with) return true;
    const char *with = row->with + (*row->with == '!'), *equals = strchr(with, '=');
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - with) : (int)strlen(with), with);
    const char *value = text_of(config, framework, name);
    bool        on = equals ? value && any_of(equals + 1, value) : is_on(config, framework, name, with_own);
    return on != (*row->with == '!');
}

/* A value that counts, on its way into our keys. */
typedef struct {
    tm_config              *config;
    const tm_foreign_value *foreign;
    const tm_foreign_key   *row;
    const tm_value         *value;
    tm_layer                layer;
    const char             *path;
} translation;

static void complain(const translation *t, tm_status status, const char *story)
{
    tm_error err = { 0 };
    tm_fail(&err, status, "'%.160s' = '%.200s' (%s): %s", t->path, t->value->secret ? "***" : t->value->text,
            tm_place(t->value->origin), story);
    if (tm_foreign_family(t->config->model_named))
        tm_text_printf(&t->config->family_keys, "%s\n", err.text); /* perhaps because of the family */
    else
        tm_config_problem(t->config, &err);
}

/* Two foreign keys may say the same; if they do not, neither is taken silently. */
static bool contradicts(const translation *t, const tm_entry *entry, const char *text)
{
    const tm_value *there = &entry->layers[t->layer];
    if (!there->present || t->layer <= LAYER_TRAINER) return false;
    if (text && there->text && same(text, there->text)) return false;
    if (!text && !there->text) return false;
    char story[400];
    snprintf(story, sizeof story, "'%s' is already %.60s (%.200s); give one of the two", entry->key.name,
             there->text ? there->text : "null", tm_place(there->origin));
    complain(t, TM_INVALID, story);
    return true;
}

/* "*" is the value, "*.1" the second item of a list. */
static const char *item_of(tm_arena *arena, const char *value, const char *which)
{
    if (*which != '.') return value;
    for (long i = strtol(which + 1, NULL, 10); i > 0; i--)
        value += strcspn(value, ",") + (value[strcspn(value, ",")] == ',');
    return tm_arena_text_n(arena, value, strcspn(value, ","));
}

/* "training.steps=50": our key and its value. */
static void assign(const translation *t, const char *what, size_t n)
{
    char        key[160];
    const char *equals = memchr(what, '=', n), *text = t->value->text;
    size_t      length = equals ? (size_t)(equals - what) : n;
    TM_ASSERT(length < sizeof key);
    memcpy(key, what, length);
    key[length] = '\0';
    if (equals) {
        text = tm_arena_text_n(t->config->arena, equals + 1, n - length - 1);
        if (*text == '*') text = item_of(t->config->arena, t->value->text, text + 1);
        if (strcmp(text, "null") == 0) text = NULL;
    } else if (t->row->convert) {
        text = t->row->convert(t->config, t->value->text);
        if (!text) {
            complain(t, TM_UNSUPPORTED, tm_arena_format(t->config->arena, "not supported: %s", t->row->words));
            return;
        }
        if (!*text && strcmp(key, "model.converters") != 0) return; /* the conversion says: nothing to give */
    }
    const tm_entry *entry = tm_entry_find(t->config, key);
    if (entry && contradicts(t, entry, text)) return;
    bool        own_name = tm_names_equal(key, t->path);
    const char *origin =
        own_name ? t->value->origin : tm_arena_format(t->config->arena, "%s (%s)", t->value->origin, t->path);
    tm_given given = { .text = text, .secret = t->value->secret, .came_along = true, .origin = origin };
    tm_error err = { 0 };
    if (!text && entry && entry->key.fallback) return; /* null: our default */
    if (tm_config_give_own(t->config, t->layer, key, &given, &err) != TM_OK) tm_config_problem(t->config, &err);
}

static void assign_all(const translation *t, const char *what, size_t n)
{
    while (n > 0) {
        const char *end = memchr(what, ';', n);
        size_t      length = end ? (size_t)(end - what) : n;
        if (length) assign(t, what, length);
        what += length + (end != NULL);
        n -= length + (end != NULL);
    }
}

/* What the case of the value stands for; a null (NULL) has one only by name. */
static const char *find_case(const char *cases, const char *value, size_t *n)
{
    while (*cases) {
        size_t length = strcspn(cases, "|");
        size_t name = strcspn(cases, ":");
        char   word[160];
        TM_ASSERT(name < length && name < sizeof word);
        memcpy(word, cases, name);
        word[name] = '\0';
        if (value ? strcmp(word, "*") == 0 || same(word, value) : strcmp(word, "null") == 0) {
            *n = length - name - 1;
            return cases + name + 1;
        }
        cases += length + (cases[length] == '|');
    }
    return NULL;
}

/* What a file may say: names that begin with # are what a row's `convert` makes of others. */
static void names_of_cases(const char *cases, tm_text *out)
{
    while (*cases) {
        size_t length = strcspn(cases, "|"), name = strcspn(cases, ":");
        if (!strchr("*#", *cases)) tm_text_printf(out, "%s%.*s", out->length ? ", " : "", (int)name, cases);
        cases += length + (cases[length] == '|');
    }
}

static void map(const translation *t)
{
    const char *cases = t->row->values;
    size_t      n = strlen(cases);
    if (!strchr(cases, ':')) {
        if (t->value->text) assign_all(t, cases, n); /* a null is not given */
        return;
    }
    translation converted = *t;
    tm_value    value = *t->value;
    const char *text = t->value->text;
    if (t->row->convert && text) {
        value.text = text = t->row->convert(t->config, t->value->text);
        converted.value = &value;
    }
    tm_foreign_key row = *t->row;
    row.convert = NULL;
    converted.row = &row;
    const char *what = text || !t->value->text ? find_case(cases, text, &n) : NULL;
    if (what) assign_all(&converted, what, n);
    if (what || !t->value->text) return;
    if (t->row->plans && t->config->allow_unbuilt) {
        tm_text_printf(&t->config->unbuilt, "%s (%s = %.200s, %s)\n", t->row->words, t->path, t->value->text,
                       tm_place(t->value->origin));
        return;
    }
    tm_text names = { 0 };
    names_of_cases(cases, &names);
    complain(t, TM_UNSUPPORTED,
             tm_arena_format(t->config->arena, "not supported: %s%s%.400s",
                             t->row->words ? t->row->words : "this value", names.length ? "; wanted one of " : "",
                             names.length ? names.data : ""));
    tm_text_fini(&names);
}

static void judge(const translation *t)
{
    const tm_foreign_key *row = t->row;
    if (accepted(row, t->value->text)) return;
    if (row->kind == TM_FOREIGN_MODEL) tm_config_spoil(t->config, "model."); /* another model than its keys say */
    if (row->kind == TM_FOREIGN_MODEL && tm_foreign_family(t->config->model_named)) { /* one message for all of them */
        tm_text_printf(&t->config->model_keys, "%s%s", t->config->model_keys.length ? ", " : "", t->path);
        return;
    }
    tm_text accepts = { 0 };
    for (const char *p = row->values; *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|'))
        if (strncmp(p, "null", 4) != 0 && *p != '|')
            tm_text_printf(&accepts, "%s%.*s", accepts.length ? " or " : "", (int)strcspn(p, "|"), p);
    const char *way_out =
        accepts.length ? tm_arena_format(t->config->arena, "set it to %.200s", accepts.data) : "leave it out";
    bool left_out = row->kind != TM_FOREIGN_MODEL && (!row->convert || row->convert(t->config, t->value->text));
    if (left_out && t->config->allow_unbuilt) {
        tm_text_printf(&t->config->unbuilt, "%s (%s = %.200s, %s)\n", row->words, t->path,
                       t->value->secret ? "***" : t->value->text, tm_place(t->value->origin));
    } else {
        complain(t, TM_UNSUPPORTED, tm_arena_format(t->config->arena, "not supported: %s; %s", row->words, way_out));
    }
    tm_text_fini(&accepts);
}

/* Is the key that the row counts with refused itself? Then that says it all. */
static bool told_by_master(const translation *t)
{
    if (!t->row->with || strpbrk(t->row->with, "!=")) return false;
    const tm_foreign_key *master = tm_foreign_row(t->foreign->framework, t->row->with);
    if (!master) return false;
    if (master->kind >= TM_FOREIGN_UNBUILT) return *master->values != '\0';
    const tm_entry *entry = master->kind == TM_FOREIGN_MAPPED ? tm_entry_find(t->config, t->row->with) : NULL;
    return entry && entry->key.state == TM_KEY_UNBUILT;
}

static void settle_value(tm_config *config, const tm_foreign_value *foreign, const char *path)
{
    translation t = { .config = config, .foreign = foreign, .row = foreign->row, .path = path };
    t.value = highest(foreign, &t.layer);
    if (!t.value || !counts(config, foreign->framework, t.row, true)) return;
    if (t.row->kind == TM_FOREIGN_MAPPED) {
        map(&t);
    } else if (t.row->kind >= TM_FOREIGN_EQUAL) {
        if (!told_by_master(&t)) judge(&t);
    } else {
        config->n_accepted[t.row->kind == TM_FOREIGN_SPEED]++;
        size_t from = config->accepted.length;
        tm_text_printf(&config->accepted, "%s: %s = %.200s (%s): %s",
                       t.row->kind == TM_FOREIGN_SPEED ? "affects speed only" : "has no effect", path,
                       !t.value->text    ? "null"
                       : t.value->secret ? "***"
                                         : t.value->text,
                       tm_place(t.value->origin), t.row->words);
        for (char *p = config->accepted.data + from; *p; p++)
            if ((unsigned char)*p < 32) *p = '?'; /* a value is no line of its own */
        tm_text_add(&config->accepted, "\n");
    }
}

/* What its own program takes where nothing is given. It is below the file, and above the presets of ours. */
static void settle_fallbacks(tm_config *config)
{
    const tm_framework *framework = config->framework;
    char               *origin = framework ? tm_arena_format(config->arena, "default of %s", framework->name) : NULL;
    for (size_t i = 0; framework && i < framework->n; i++) {
        const tm_foreign_key *row = &framework->keys[i];
        tm_layer              layer;
        bool                  given = false;
        for (size_t k = 0; k < config->n_foreign; k++) { /* a null asks for the fallback, unless it has a case */
            const tm_value *value = config->foreign[k].row == row ? highest(&config->foreign[k], &layer) : NULL;
            given |= value && (value->text || (row->kind == TM_FOREIGN_MAPPED && strstr(row->values, "null:")));
        }
        if (!row->fallback || given || (row->shape && config->preset)) continue;
        if (!counts(config, framework, row, false)) continue;
        tm_foreign_key   general = *row; /* a fallback is no preset's */
        tm_foreign_value value = { .framework = framework, .row = &general, .path = row->name };
        general.own = false;
        value.layers[LAYER_TRAINER] =
            (tm_value){ .text = fallback_of(config, framework, row), .origin = origin, .present = true };
        settle_value(config, &value, row->name);
    }
}

/* The keys that make a model another one than those that are built. */
static void tell_family(tm_config *config)
{
    tm_error err = { 0 };
    if (!config->model_keys.length) {
        for (const char *line = config->family_keys.data; line && *line; line += strcspn(line, "\n") + 1) {
            tm_fail(&err, TM_UNSUPPORTED, "%.*s", (int)strcspn(line, "\n"), line);
            tm_config_problem(config, &err);
            err = (tm_error){ 0 };
        }
        return;
    }
    tm_fail(
        &err, TM_UNSUPPORTED,
        "the model '%.100s' is of the family %s, which is not supported (%.600s); `trainmark models` lists the models",
        config->model_named, tm_foreign_family(config->model_named), config->model_keys.data);
    tm_config_problem(config, &err);
}

void tm_foreign_settle(tm_config *config)
{
    settle_fallbacks(config);
    for (size_t i = 0; i < config->n_foreign; i++) settle_value(config, &config->foreign[i], config->foreign[i].path);
    tell_family(config);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* hf/config_read.c - config.json into keys: every member is looked up in the rows of its form, none is skipped. */
#include "base/arena.h"
#include "base/file.h"
#include "base/json_input.h"
#include "hf/config.h"
#include "hf/config_keys.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_CONFIG = 16 << 20, MAX_GIVEN = 128 };

typedef struct {
    const char        *path;
    json_t            *root;
    const tm_hf_form  *form;
    tm_config         *config;
    tm_hf_description *out;
    tm_arena          *arena;
    const char        *given[MAX_GIVEN][2]; /* our keys and what they were given here */
    int                n_given;
} reader;

/* --- members ------------------------------------------------------------------------------------------------------ */

/* The first of the names in "a|b.c" into name[]; returns where the next begins, NULL at the end. */
static const char *next_name(const char *names, char name[160])
{
    size_t n = strcspn(names, "|");
    TM_ASSERT(n < 160);
    memcpy(name, names, n);
    name[n] = '\0';
    return names[n] ? names + n + 1 : NULL;
}

/* A member by its dotted name; NULL: absent. */
static json_t *member_or_null(json_t *object, const char *name)
{
    char   part[160];
    size_t n = strcspn(name, ".");
    TM_ASSERT(n < sizeof part);
    memcpy(part, name, n);
    part[n] = '\0';
    json_t *value = json_object_get(object, part);
    return value && name[n] ? member_or_null(value, name + n + 1) : value;
}

/* NULL: absent or null. */
static json_t *member(json_t *object, const char *name)
{
    json_t *value = member_or_null(object, name);
    return json_is_null(value) ? NULL : value;
}

/* Is one of a row's names there, and null? */
static bool is_null(const reader *r, const tm_hf_key *row)
{
    char name[160];
    for (const char *names = row->key; names;) {
        names = next_name(names, name);
        if (json_is_null(member_or_null(r->root, name))) return true;
    }
    return false;
}

/* Is `value` one of "a|b"? */
static bool one_of(const char *values, const char *value)
{
    size_t length = strlen(value);
    for (const char *v = values; v;) {
        size_t n = strcspn(v, "|");
        if (n == length && strncmp(v, value, n) == 0) return true;
        v = v[n] ? v + n + 1 : NULL;
    }
    return false;
}

/* What a key of ours was given, its name `length` characters long; NULL: nothing yet. */
static const char *given(const reader *r, const char *name, size_t length)
{
    for (int i = 0; i < r->n_given; i++)
        if (strncmp(r->given[i][0], name, length) == 0 && !r->given[i][0][length]) return r->given[i][1];
    return NULL;
}

/* Does the row hold, after what was read so far? */
static bool in_force(const reader *r, const tm_hf_key *row)
{
    if (!row->only) return true;
    const char *equals = strchr(row->only, '=');
    TM_ASSERT(equals);
    const char *value = given(r, row->only, (size_t)(equals - row->only));
    return value && one_of(equals + 1, value);
}

/* What "model.a" or "model.a/model.b" stands for; other text for itself. */
static const char *meant(const reader *r, const char *text)
{
    char number[32];
    if (strncmp(text, "model.", 6) != 0) return text;
    size_t      n = strcspn(text, "/");
    const char *value = given(r, text, n), *divisor = text[n] ? given(r, text + n + 1, strlen(text + n + 1)) : "1";
    TM_ASSERT(value && divisor); /* of rows before */
    if (!text[n]) return value;
    double by = strtod(divisor, NULL);
    return tm_arena_text(r->arena, tm_format_double(number, by > 0 ? strtod(value, NULL) / by : 0));
}

/* The value under any of a row's names, and which. Two that differ are an error. */
static tm_status find(const reader *r, const tm_hf_key *row, json_t **value, char name[160], tm_error *err)
{
    char other[160];
    *value = NULL;
    for (const char *names = row->key; names;) {
        names = next_name(names, other);
        json_t *here = member(r->root, other);
        if (!here) continue;
        if (*value && !json_equal(*value, here) &&
            strcmp(tm_json_value_text(r->arena, *value), tm_json_value_text(r->arena, here)) != 0)
            return tm_fail(err, TM_FORMAT, "'%s': '%s' is %s, but '%s' is %s; they mean the same and must be equal",
                           r->path, name, tm_json_value_text(r->arena, *value), other,
                           tm_json_value_text(r->arena, here));
        if (*value) continue;
        *value = here;
        strcpy(name, other);
    }
    if (!*value) next_name(row->key, name);
    return TM_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static tm_status give(reader *r, const tm_hf_key *row, const char *name, const char *value, tm_error *err)
{
    TM_ASSERT(r->n_given < MAX_GIVEN);
    r->given[r->n_given][0] = row->name;
    r->given[r->n_given++][1] = value;
    return tm_config_describe(r->config, row->name, value, tm_arena_format(r->arena, "file %s:%s", r->path, name), err);
}

static tm_status refuse(const reader *r, const tm_hf_key *row, const char *name, const char *value, tm_error *err)
{
    char        one[160];
    const char *built = NULL; /* "default=none|llama3=llama3": default or llama3 */
    for (const char *values = row->values; values;) {
        values = next_name(values, one);
        one[strcspn(one, "=")] = '\0';
        built = built ? tm_arena_format(r->arena, "%s or %s", built, one) : tm_arena_text(r->arena, one);
    }
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s': '%s' is %.80s; of %s models only %s is built, and loading it would compute something else",
                   r->path, name, value, r->form->model_type, built);
}

/* "default=none|llama3=llama3": theirs to ours. */
static tm_status choose(reader *r, const tm_hf_key *row, const char *name, const char *value, tm_error *err)
{
    size_t length = strlen(value);
    for (const char *v = row->values; v;) {
        size_t n = strcspn(v, "|"), theirs = strcspn(v, "=");
        if (theirs == length && strncmp(v, value, length) == 0)
            return give(r, row, name, tm_arena_text_n(r->arena, v + theirs + 1, n - theirs - 1), err);
        v = v[n] ? v + n + 1 : NULL;
    }
    return refuse(r, row, name, value, err);
}

static tm_status cycle(const reader *r, const tm_hf_key *row, const char *name, const json_t *list, tm_error *err)
{
    char        wanted[160];
    const char *values = row->values;
    if (!json_is_array(list)) return tm_fail(err, TM_FORMAT, "'%s': '%s' is not a list", r->path, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        values = next_name(values ? values : row->values, wanted);
        const char *value = tm_json_value_text(r->arena, json_array_get(list, i));
        if (strcmp(value, wanted) != 0)
            return tm_fail(err, TM_UNSUPPORTED, "'%s': '%s'[%zu] is %.80s; of %s models only %s in turns is built",
                           r->path, name, i, value, r->form->model_type, row->values);
    }
    return TM_OK;
}

/* [16, 56, 56] as "16,56,56". */
static tm_status give_list(reader *r, const tm_hf_key *row, const char *name, const json_t *list, tm_error *err)
{
    tm_text text = { 0 };
    bool    plain = json_is_array(list);
    tm_text_add(&text, "");
    for (size_t i = 0; i < json_array_size(list); i++) {
        plain &= json_is_number(json_array_get(list, i));
        tm_text_printf(&text, "%s%s", i ? "," : "", tm_json_value_text(r->arena, json_array_get(list, i)));
    }
    tm_status st = plain ? give(r, row, name, tm_arena_text(r->arena, text.data), err)
                         : tm_fail(err, TM_FORMAT, "'%s': '%s' is not a list of numbers", r->path, name);
    tm_text_fini(&text);
    return st;
}

static tm_status give_product(reader *r, const tm_hf_key *row, tm_error *err)
{
    char      name[160];
    long long product = 1;
    for (const char *names = row->values; names;) {
        names = next_name(names, name);
        const char *value = given(r, name, strlen(name));
        long long   factor = value ? strtoll(value, NULL, 10) : 0;
        if (factor < 1 || factor > 1 << 24)
            return tm_fail(err, TM_FORMAT, "'%s': what makes '%s' is not a number from 1 to %d", r->path, name,
                           1 << 24);
        product *= factor;
    }
    return give(r, row, row->name, tm_arena_format(r->arena, "%lld", product), err);
}

static void note_training(const reader *r, const char *name, const char *value)
{
    size_t at = strlen(r->out->training), room = sizeof r->out->training - at;
    snprintf(r->out->training + at, room, "%s%s %s", at ? ", " : "", name, value);
}

static bool number(const json_t *value)
{
    return json_is_number(value) || json_is_boolean(value) || json_is_string(value);
}

static tm_status apply(reader *r, const tm_hf_key *row, tm_error *err)
{
    json_t *value;
    char    name[160];
    if (row->kind == TM_HF_HARMLESS || !in_force(r, row)) return TM_OK;
    if (row->kind == TM_HF_PRODUCT) return give_product(r, row, err);
    TM_TRY(find(r, row, &value, name, err));
    const char *missing = !value && row->null && is_null(r, row) ? row->null : row->absent;
    if (!value && !missing)
        return tm_fail(err, TM_FORMAT, "'%s' has no '%s', which a config.json of model_type %s needs", r->path, name,
                       r->form->model_type);
    if (!value && !*missing) return TM_OK;
    if (row->kind == TM_HF_LIST && value) return give_list(r, row, name, value, err);
    if (row->kind == TM_HF_CYCLE) return value ? cycle(r, row, name, value, err) : TM_OK;
    if (value && row->kind == TM_HF_VALUE && !number(value))
        return tm_fail(err, TM_FORMAT, "'%s': '%s' is %s, wanted a single value", r->path, name,
                       tm_json_value_text(r->arena, value));
    const char *text = value ? tm_json_value_text(r->arena, value) : meant(r, missing);
    if (row->kind == TM_HF_VALUE || row->kind == TM_HF_LIST) return give(r, row, name, text, err);
    if (row->kind == TM_HF_CHOICE) return choose(r, row, name, text, err);
    if (one_of(row->values, text)) return TM_OK;
    if (row->kind == TM_HF_MUST) return refuse(r, row, name, text, err);
    note_training(r, name, text);
    return TM_OK;
}

/* --- members that no row names ------------------------------------------------------------------------------------ */

typedef enum { NOT_NAMED, NAMED, HAS_MEMBERS } naming;

static naming named_by(const tm_hf_key *row, const char *name)
{
    char   own[160];
    size_t length = strlen(name);
    for (const char *names = row->key; names;) {
        names = next_name(names, own);
        size_t n = strlen(own);
        if (strcmp(own, name) == 0 || (n > 0 && own[n - 1] == '*' && strncmp(own, name, n - 1) == 0)) return NAMED;
        if (strncmp(own, name, length) == 0 && own[length] == '.') return HAS_MEMBERS;
    }
    return NOT_NAMED;
}

static naming look_up(const reader *r, const char *name)
{
    naming best = NOT_NAMED;
    for (const tm_hf_key *row = r->form->keys; row->key; row++) {
        naming now = in_force(r, row) ? named_by(row, name) : NOT_NAMED;
        if (now == NAMED) return NAMED;
        if (now != NOT_NAMED) best = now;
    }
    for (const tm_hf_key *row = tm_hf_common_keys; row->key; row++)
        if (named_by(row, name) == NAMED) return NAMED;
    return best;
}

static tm_status check_names(const reader *r, json_t *object, const char *prefix, tm_error *err)
{
    const char *key;
    json_t     *value;
    json_object_foreach(object, key, value)
    {
        char name[160];
        if (json_is_null(value)) continue;
        bool   whole = (size_t)snprintf(name, sizeof name, "%s%s", prefix, key) < sizeof name;
        naming known = whole ? look_up(r, name) : NOT_NAMED;
        if (known == NAMED) continue;
        if (known == HAS_MEMBERS && json_is_object(value)) {
            char below[162];
            snprintf(below, sizeof below, "%s.", name);
            TM_TRY(check_names(r, value, below, err));
            continue;
        }
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%s': '%.150s' (%.80s) is not known for model_type %s and might change what is computed; remove it "
            "if it does not",
            r->path, name, tm_json_value_text(r->arena, value), r->form->model_type);
    }
    return TM_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static tm_status find_form(reader *r, tm_error *err)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    const char *diffusers = json_string_value(json_object_get(r->root, "_class_name"));
    bool        of_diffusers = !type && diffusers;
    if (of_diffusers) type = diffusers;
    if (!type) return tm_fail(err, TM_FORMAT, "'%s' has no 'model_type'; not the config.json of a model", r->path);
    r->form = r->out->form = tm_hf_form_named(type);
    if (!r->form || r->form->diffusers != of_diffusers) {
        tm_text                  known = { 0 };
        size_t                   n;
        const tm_hf_form *const *forms = tm_hf_forms(&n);
        for (size_t i = 0; i < n; i++) tm_text_printf(&known, "%s%s", i ? ", " : "", forms[i]->model_type);
        tm_fail(err, TM_UNSUPPORTED, "'%s': model_type '%.80s' is not supported; these are: %s", r->path, type,
                known.data);
        tm_text_fini(&known);
        return TM_UNSUPPORTED;
    }
    const json_t *classes = json_object_get(r->root, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0));
    if (classes && !json_is_null(classes) && (json_array_size(classes) != 1 || !class))
        return tm_fail(err, TM_FORMAT, "'%s': 'architectures' is not a list of one name", r->path);
    if (class && strcasecmp(class, r->form->architecture) != 0) /* LLaMAForCausalLM: before transformers 4.28 */
        return tm_fail(err, TM_UNSUPPORTED, "'%s': architecture %.80s is not supported; of model_type %s only %s is",
                       r->path, class, type, r->form->architecture);
    return TM_OK;
}

/* "model.family=llama" goes without saying in config.json. */
static tm_status apply_pairs(reader *r, tm_error *err)
{
    for (const char *const *pair = r->form->pairs; *pair; pair++) {
        const char *equals = strchr(*pair, '=');
        TM_ASSERT(equals);
        const tm_hf_key row = { .name = tm_arena_text_n(r->arena, *pair, (size_t)(equals - *pair)) };
        TM_TRY(give(r, &row, "model_type", equals + 1, err));
    }
    return TM_OK;
}

/* Of two objects the class takes the first alone. */
static tm_status settle_rope(const reader *r, tm_error *err)
{
    json_t *scaling = json_object_get(r->root, "rope_scaling"),
           *parameters = json_object_get(r->root, "rope_parameters");
    bool both = json_object_size(scaling) > 0 && json_object_size(parameters) > 0;
    if (both && !json_equal(scaling, parameters))
        return tm_fail(err, TM_FORMAT,
                       "'%s': 'rope_scaling' and 'rope_parameters' differ, and transformers takes the first alone; "
                       "remove one",
                       r->path);
    if (r->form->rope && json_object_size(scaling) == 0 && (!parameters || json_is_null(parameters)))
        json_object_set_new(r->root, "rope_parameters", json_loads(r->form->rope, 0, NULL));
    return TM_OK;
}

static tm_status read_root(reader *r, tm_error *err)
{
    TM_TRY(find_form(r, err));
    TM_TRY(settle_rope(r, err));
    TM_TRY(apply_pairs(r, err));
    for (const tm_hf_key *row = r->form->keys; row->key; row++) TM_TRY(apply(r, row, err));
    for (const tm_hf_key *row = tm_hf_common_keys; row->key; row++) TM_TRY(apply(r, row, err));
    return check_names(r, r->root, "", err);
}

tm_status tm_hf_config_parse(const char *path, const char *text, size_t bytes, tm_config *config,
                             tm_hf_description *out, tm_error *err)
{
    json_error_t problem;
    reader       r = { .path = path, .config = config, .out = out, .arena = tm_arena_create() };
    tm_status    st;
    *out = (tm_hf_description){ 0 };
    r.root = tm_json_input(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!r.root)
        st = tm_fail(err, TM_FORMAT, "'%s':%d: not JSON: %s", path, problem.line, problem.text);
    else if (!json_is_object(r.root))
        st = tm_fail(err, TM_FORMAT, "'%s' is not a JSON object", path);
    else
        st = read_root(&r, err);
    json_decref(r.root);
    tm_arena_destroy(r.arena);
    return st;
}

tm_status tm_hf_config_read(const char *path, tm_config *config, tm_hf_description *out, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, MAX_CONFIG, &text, err);
    if (st == TM_OK) st = tm_hf_config_parse(path, text.data, text.length, config, out, err);
    tm_text_fini(&text);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* config/print.c - the resolved configuration as YAML, the table of keys, the hash. */
#include "base/json.h"
#include "config/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tm_entry *const *)a)->key.name, (*(const tm_entry *const *)b)->key.name);
}

/* The rows sorted by name; sections are then contiguous. The caller frees. */
static const tm_entry **sorted(const tm_config *config)
{
    const tm_entry **rows = tm_alloc((config->n_entries + 1) * sizeof *rows);
    for (size_t i = 0; i < config->n_entries; i++) rows[i] = &config->entries[i];
    qsort(rows, config->n_entries, sizeof *rows, by_name);
    return rows;
}

static bool plain_word(const char *text)
{
    static const char *const taken[] = { "null", "true", "false", "yes", "no", "on", "off", "y", "n" };
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (tm_names_equal(text, taken[i])) return false;
    const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    return ((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z')) && strspn(text, allowed) == strlen(text);
}

/* Text that reads back as itself: "${" is doubled, odd characters are quoted. */
static void print_text(tm_text *out, const char *text, size_t n)
{
    tm_text escaped = { 0 };
    tm_text_add(&escaped, "");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '$' && i + 1 < n && text[i + 1] == '{') tm_text_add(&escaped, "$");
        tm_text_add_n(&escaped, text + i, 1);
    }
    if (plain_word(escaped.data))
        tm_text_add(out, escaped.data);
    else
        tm_json_quote(out, escaped.data);
    tm_text_fini(&escaped);
}

static void print_value(tm_text *out, const tm_entry *entry, const tm_value *value)
{
    const char *text = value->text;
    if (!text) {
        tm_text_add(out, "null");
    } else if (value->secret) {
        tm_text_add(out, "\"***\"");
    } else if (entry->key.kind >= TM_KEY_LIST) {
        tm_text_add(out, "[");
        while (*text) {
            size_t n = strcspn(text, ",");
            print_text(out, text, n);
            text += n + (text[n] == ',');
            if (*text) tm_text_add(out, ", ");
        }
        tm_text_add(out, "]");
    } else if (entry->key.kind == TM_KEY_TEXT || entry->key.kind == TM_KEY_CHOICE) {
        print_text(out, text, strlen(text));
    } else if (entry->key.kind == TM_KEY_F64 && strchr(text, 'e') && !strchr(text, '.')) {
        size_t digits = strcspn(text, "e"); /* 1.0e-08: YAML 1.1 takes 1e-08 for a word */
        tm_text_printf(out, "%.*s.0%s", (int)digits, text, text + digits);
    } else {
        tm_text_add(out, text);
    }
}

/* Length of the common leading sections of two names ("a.b." of "a.b.c" and "a.b.d"). */
static size_t common_sections(const char *a, const char *b)
{
    size_t common = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.') common = i + 1;
    return common;
}

static void print_key(tm_text *out, const char *name, const char *before)
{
    size_t common = common_sections(name, before);
    int    depth = 0;
    for (size_t i = 0; i < common; i++) depth += name[i] == '.';
    const char *p = name + common;
    for (;; depth++) {
        size_t n = strcspn(p, ".");
        tm_text_printf(out, "%*s%.*s:", depth * 2, "", (int)n, p);
        if (!p[n]) return;
        tm_text_add(out, "\n");
        p += n + 1;
    }
}

static bool worth_printing(const tm_config *config, const tm_entry *entry)
{
    if (tm_entry_is_wildcard(entry) || tm_entry_is_idle(config, entry)) return false;
    return entry->key.state == TM_KEY_USED || tm_entry_value(entry) != &entry->layers[LAYER_DEFAULT];
}

void tm_config_print_yaml(const tm_config *config, tm_text *out, bool with_origins)
{
    const tm_entry **rows = sorted(config);
    const char      *before = "";
    for (size_t i = 0; i < config->n_entries; i++) {
        if (!worth_printing(config, rows[i])) continue;
        const tm_value *value = tm_entry_value(rows[i]);
        print_key(out, rows[i]->key.name, before);
        before = rows[i]->key.name;
        tm_text_add(out, " ");
        print_value(out, rows[i], value);
        if (with_origins) {
            tm_text_add(out, "  # ");
            for (const char *p = value->origin; *p; p++) tm_text_add_n(out, (unsigned char)*p < 32 ? "?" : p, 1);
        }
        tm_text_add(out, "\n");
    }
    free(rows);
}

static void json_value(tm_json *json, const char *name, const tm_entry *entry, const tm_value *value)
{
    const char *text = value->text;
    if (!text || value->secret)
        tm_json_string(json, name, text ? "***" : NULL);
    else if (entry->key.kind == TM_KEY_BOOL)
        tm_json_bool(json, name, strcmp(text, "true") == 0);
    else if (entry->key.kind == TM_KEY_I64)
        tm_json_i64(json, name, strtoll(text, NULL, 10));
    else if (entry->key.kind == TM_KEY_F64)
        tm_json_f64(json, name, strtod(text, NULL));
    else
        tm_json_string(json, name, text);
}

void tm_config_print_json(const tm_config *config, tm_json *json)
{
    const tm_entry **rows = sorted(config);
    for (size_t i = 0; i < config->n_entries; i++)
        if (worth_printing(config, rows[i])) json_value(json, rows[i]->key.name, rows[i], tm_entry_value(rows[i]));
    free(rows);
}

/* Length of the longest secret that `text` begins with, 0 if none does. */
static size_t secret_at(const tm_config *config, const char *text)
{
    size_t longest = 0;
    for (size_t i = 0; i < config->n_entries; i++) {
        for (int layer = 0; layer < LAYER_COUNT; layer++) {
            const tm_value *value = &config->entries[i].layers[layer];
            size_t          n = value->secret && value->text ? strlen(value->text) : 0;
            if (n >= 4 && n > longest && strncmp(text, value->text, n) == 0) longest = n;
        }
    }
    return longest;
}

void tm_config_mask(const tm_config *config, const char *text, tm_text *out)
{
    tm_text_add(out, "");
    while (*text) {
        size_t n = secret_at(config, text);
        tm_text_add_n(out, n ? "***" : text, n ? 3 : 1);
        text += n ? n : 1;
    }
}

/* What a row counts as in the hash; NULL: null, or nothing because the row is not counted. */
static const char *counted(const tm_config *config, const tm_entry *entry)
{
    if (entry->key.state != TM_KEY_USED || entry->key.quiet) return NULL;
    return (tm_entry_is_idle(config, entry) ? &entry->layers[LAYER_DEFAULT] : tm_entry_value(entry))->text;
}

static const tm_entry *entry_named(const tm_config *config, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < config->n_entries; i++)
        if (config->entries[i].length == length && strcmp(config->entries[i].key.name, name) == 0)
            return &config->entries[i];
    return NULL;
}

void tm_config_changes(const tm_config *before, const tm_config *after, tm_text *out)
{
    const tm_entry **rows = sorted(after);
    size_t           n = 0;
    for (size_t i = 0; i < after->n_entries; i++) {
        const tm_entry *old = entry_named(before, rows[i]->key.name);
        const char     *was = old ? counted(before, old) : NULL, *is = counted(after, rows[i]);
        if (was && is ? strcmp(was, is) == 0 : was == is) continue;
        bool secret = tm_entry_value(rows[i])->secret || (old && tm_entry_value(old)->secret);
        if (n++ >= 8) continue;
        tm_text_printf(out, "%s%s (%.60s to %.60s)", n > 1 ? ", " : "", rows[i]->key.name,
                       secret ? "***"
                       : was  ? was
                              : "null",
                       secret ? "***"
                       : is   ? is
                              : "null");
    }
    if (n > 8) tm_text_printf(out, " and %zu more", n - 8);
    free(rows);
}

uint64_t tm_config_hash(const tm_config *config)
{
    const tm_entry **rows = sorted(config);
    tm_text          text = { 0 };
    tm_text_add(&text, "");
    for (size_t i = 0; i < config->n_entries; i++) {
        if (rows[i]->key.state != TM_KEY_USED || rows[i]->key.quiet) continue;
        const char *value = counted(config, rows[i]);
        tm_text_printf(&text, "%s=%s%s\n", rows[i]->key.name, value ? "" : "~", value ? value : "");
    }
    uint64_t hash = XXH64(text.data, text.length, 0);
    tm_text_fini(&text);
    free(rows);
    return hash;
}

static void describe_range(const tm_key *key, tm_text *out)
{
    static const char *const kinds[] = { "true or false", "integer",      "number",       "text", "",
                                         "list",          "list of maps", "list of lists" };
    char                     lo[32], hi[32];
    if (key->kind != TM_KEY_CHOICE) tm_text_add(out, kinds[key->kind]);
    if (key->kind == TM_KEY_CHOICE) {
        const char *separator = "";
        for (const char *p = key->choices; *p;) {
            size_t n = strcspn(p, "|"), name = strcspn(p, "=|");
            tm_text_printf(out, "%s%.*s", separator, (int)name, p);
            separator = ", ";
            p += n + (p[n] == '|');
        }
    } else if ((key->kind == TM_KEY_I64 || key->kind == TM_KEY_F64) && key->lo < key->hi) {
        bool open = key->hi >= 1e12;
        tm_text_printf(out, open ? ", at least %s" : ", %s to %s", tm_format_double(lo, key->lo),
                       tm_format_double(hi, key->hi));
    }
}

static const char *default_text(const tm_key *key)
{
    if (!key->fallback) return "null";
    return *key->fallback ? key->fallback : key->kind >= TM_KEY_LIST ? "[]" : "\"\"";
}

static void add_cell(tm_text *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '|') tm_text_add(out, "\\");
        tm_text_add_n(out, p, 1);
    }
}

static void reference_row(const tm_entry *entry, tm_text *out)
{
    const tm_key *key = &entry->key;
    tm_text       range = { 0 };
    describe_range(key, &range);
    tm_text_printf(out, "| `%s` | `%s` | %s | ", key->name, default_text(key), range.data);
    add_cell(out, key->help);
    if (key->when) tm_text_add(out, "; *");
    tm_config_say_when(key, out);
    if (key->when) tm_text_add(out, "*");
    if (key->state == TM_KEY_IGNORED) tm_text_add(out, " *(accepted and ignored)*");
    if (key->instead) tm_text_printf(out, " *(%s)*", key->instead);
    if (key->state == TM_KEY_UNBUILT && !key->instead) tm_text_printf(out, " *(not supported: %s)*", key->feature);
    tm_text_add(out, " | ");
    for (const char *p = key->synonyms; p && *p;) {
        size_t n = strcspn(p, ",");
        tm_text_printf(out, "%s`%.*s`", p == key->synonyms ? "" : ", ", (int)n, p);
        p += n + (p[n] == ',');
    }
    tm_text_add(out, " |\n");
    tm_text_fini(&range);
}

/* "training.seq_len" -> 8, the length of its section; 0 without one. */
static size_t section_length(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

void tm_config_print_reference(const tm_config *config, tm_text *out)
{
    const tm_entry **rows = sorted(config);
    tm_text_add(out, "");
    for (int top = 1; top >= 0; top--) { /* keys without a section first, in one table */
        const char *section = NULL;
        for (size_t i = 0; i < config->n_entries; i++) {
            const char *name = rows[i]->key.name;
            size_t      n = section_length(name);
            if ((n == 0) != (top == 1)) continue;
            if (!section || section_length(section) != n || strncmp(section, name, n) != 0) {
                tm_text_printf(out, "\n### %.*s\n\n", n ? (int)n : 32, n ? name : "without a section");
                tm_text_add(out, "| key | default | values | meaning | synonyms |\n|---|---|---|---|---|\n");
                section = name;
            }
            reference_row(rows[i], out);
        }
    }
    free(rows);
}

size_t tm_config_n_keys(const tm_config *config)
{
    return config->n_entries;
}

const tm_key *tm_config_key_at(const tm_config *config, size_t i)
{
    return &config->entries[i].key;
}

void tm_config_describe_key(const tm_key *key, tm_text *out)
{
    tm_text_printf(out, "%s (", key->help);
    describe_range(key, out);
    tm_text_printf(out, "; default %s", default_text(key));
    if (key->when) tm_text_add(out, "; ");
    tm_config_say_when(key, out);
    tm_text_add(out, ")");
}

void tm_config_print_help(const tm_config *config, const char *section, size_t width, tm_text *out)
{
    const tm_entry **rows = sorted(config);
    size_t           n = section ? strlen(section) : 0;
    tm_text_add(out, "");
    for (size_t i = 0; i < config->n_entries; i++) {
        const tm_key *key = &rows[i]->key;
        if (section && (strncmp(key->name, section, n) != 0 || key->name[n] != '.')) continue;
        if (key->state != TM_KEY_USED) continue;
        tm_text words = { 0 };
        tm_config_describe_key(key, &words);
        tm_text_printf(out, "  --%-40s ", key->name);
        tm_text_fill(out, words.data, strlen(key->name) > 40 ? strlen(key->name) + 5 : 45, 45, width);
        tm_text_fini(&words);
    }
    free(rows);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* config/effect.c - keys that count only with others: a row says with which (tm_key.when), and a value that would
 * change nothing is refused. */
#include "config/internal.h"

#include <stdio.h>
#include <string.h>

/* One alternative of a condition: "key", "!key", "key=a/b" or "key!=a/b". */
typedef struct {
    const tm_entry *entry;
    const char     *values; /* NULL: is the key on? */
    size_t          n;      /* their length */
    bool            negated;
} term;

/* Reads the alternative at *at and steps over it and the '|' behind it; the row of its key may be missing where a
 * configuration holds the rows of some rooms only. */
static term next_term(const tm_config *config, const char **at)
{
    char        name[160];
    const char *p = *at, *end = p + strcspn(p, "|,");
    term        t = { .negated = *p == '!' };
    p += t.negated;
    size_t n = strcspn(p, "!=|,");
    TM_ASSERT(n > 0 && n < sizeof name);
    memcpy(name, p, n);
    name[n] = '\0';
    p += n;
    if (p < end) {
        TM_ASSERT(!t.negated && (*p == '=' || p[1] == '='));
        t.negated = *p == '!';
        t.values = p + 1 + t.negated;
        t.n = (size_t)(end - t.values);
    }
    t.entry = tm_entry_find(config, name);
    *at = end + (*end == '|');
    return t;
}

static bool is_on(const char *text)
{
    return text && *text && strcmp(text, "false") != 0 && strcmp(text, "none") != 0 && strcmp(text, "0") != 0;
}

static bool listed(const term *t, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    for (const char *p = t->values, *end = p + t->n; text && p < end;) {
        size_t n = strcspn(p, "/|,");
        if (n == length && strncmp(p, text, n) == 0) return true;
        p += n + 1;
    }
    return false;
}

static bool holds(const term *t)
{
    if (!t->entry) return true;
    const char *text = tm_entry_value(t->entry)->text;
    return (t->values ? listed(t, text) : is_on(text)) != t->negated;
}

tm_layer tm_entry_decider(const tm_entry *entry)
{
    const tm_value *value = tm_entry_value(entry);
    tm_layer        layer = (tm_layer)(value - entry->layers);
    return layer == LAYER_PROGRAM ? value->follows : layer;
}

static void say_term(const term *t, tm_text *out)
{
    tm_text_printf(out, "%s%s", t->negated && !t->values ? "without " : "with ", t->entry->key.name);
    if (t->values) tm_text_add(out, t->negated ? " other than " : " ");
    for (const char *p = t->values, *end = p + t->n; p && p < end;) {
        size_t n = strcspn(p, "/|,");
        tm_text_printf(out, "%s%.*s", p == t->values ? "" : " or ", (int)n, p);
        p += n + 1;
    }
}

/* Who decides that a clause does not hold: the highest layer that gives one of its keys, and whether that is a switch
 * that is off. */
typedef struct {
    tm_layer layer;
    bool     off;
} decision;

/* Does one of the alternatives at *at hold? Steps over them. */
static bool clause_holds(const tm_config *config, const char **at, decision *by)
{
    bool any = false;
    *by = (decision){ .layer = LAYER_DEFAULT };
    while (**at && **at != ',') {
        term t = next_term(config, at);
        any |= holds(&t);
        if (!t.entry || tm_entry_decider(t.entry) <= by->layer) continue;
        *by = (decision){ .layer = tm_entry_decider(t.entry), .off = t.entry->key.kind == TM_KEY_BOOL };
    }
    *at += **at == ',';
    return any;
}

/* The first clause of the row's condition that does not hold, or NULL. */
static const char *missing(const tm_config *config, const tm_entry *entry, decision *by)
{
    for (const char *at = entry->key.when; at && *at;) {
        const char *clause = at;
        if (!clause_holds(config, &at, by)) return clause;
    }
    return NULL;
}

bool tm_entry_counts(const tm_config *config, const tm_entry *entry)
{
    decision by;
    return !missing(config, entry, &by);
}

static bool is_default(const tm_entry *entry)
{
    const char *value = tm_entry_value(entry)->text, *fallback = entry->layers[LAYER_DEFAULT].text;
    return value && fallback ? strcmp(value, fallback) == 0 : value == fallback;
}

bool tm_entry_is_idle(const tm_config *config, const tm_entry *entry)
{
    return entry->key.when && !is_default(entry) && !tm_entry_counts(config, entry);
}

static void say_clause(const tm_config *config, const char *at, tm_text *out)
{
    const char *separator = "";
    for (const char *p = at; *p && *p != ','; separator = " or ") {
        term t = next_term(config, &p);
        tm_text_add(out, separator);
        say_term(&t, out);
    }
}

static void refuse(tm_config *config, const tm_entry *entry, const char *clause)
{
    const tm_value *value = tm_entry_value(entry);
    tm_text         with = { 0 }, found = { 0 };
    tm_error        err = { 0 };
    say_clause(config, clause, &with);
    for (const char *p = clause; *p && *p != ',';) {
        term            t = next_term(config, &p);
        const tm_value *its = tm_entry_value(t.entry);
        tm_text_printf(&found, "%s%s is %.60s (%.120s)", found.length ? ", " : "", t.entry->key.name,
                       !its->text    ? "null"
                       : its->secret ? "***"
                                     : its->text,
                       tm_place(its->origin));
    }
    tm_fail(&err, TM_INVALID, "'%s' = '%.100s' (%.200s) has no effect: it applies only %s, and %s; leave it out",
            entry->key.name,
            !value->text    ? "null"
            : value->secret ? "***"
                            : value->text,
            tm_place(value->origin), with.data, found.data);
    tm_config_problem(config, &err);
    tm_text_fini(&with);
    tm_text_fini(&found);
}

/* Is it as it was given, whatever rules would derive? */
static bool is_given(const tm_config *config, const char *clause)
{
    for (const char *p = clause; *p && *p != ',';) {
        term t = next_term(config, &p);
        if (t.entry && tm_entry_value(t.entry) < &t.entry->layers[LAYER_FILE]) return false;
        if (t.entry && tm_entry_value(t.entry) == &t.entry->layers[LAYER_PROGRAM]) return false;
    }
    return true;
}

void tm_config_check_effects(tm_config *config, bool settled)
{
    size_t before = config->notes.length;
    for (size_t i = 0; i < config->n_entries; i++) {
        const tm_entry *entry = &config->entries[i];
        tm_layer        given = (tm_layer)(tm_entry_value(entry) - entry->layers);
        decision        by;
        const char     *clause = missing(config, entry, &by);
        if (!clause || given < LAYER_FILE || given == LAYER_PROGRAM || is_default(entry)) continue;
        if (!settled && !is_given(config, clause)) continue;
        bool theirs = (given == LAYER_FILE && config->framework) || tm_entry_value(entry)->came_along;
        bool meant = by.layer > given || (by.layer == given && by.off);
        if (!theirs && !meant) {
            refuse(config, entry, clause);
            continue;
        }
        tm_text_printf(&config->notes, "%s%s (applies only ", config->notes.length == before ? "ignored: " : ", ",
                       entry->key.name);
        say_clause(config, clause, &config->notes);
        tm_text_add(&config->notes, ")");
    }
    if (config->notes.length > before) tm_text_add(&config->notes, "\n");
}

void tm_config_say_when(const tm_key *key, tm_text *out)
{
    if (key->when) tm_text_printf(out, "applies only %s", *key->when == '!' ? "" : "with ");
    for (const char *p = key->when; p && *p; p++) {
        if (*p == ',' || *p == '|')
            tm_text_printf(out, " %s %s", *p == ',' ? "and" : "or", p[1] == '!' ? "" : "with ");
        else if (*p == '/')
            tm_text_add(out, " or ");
        else if (*p == '!')
            tm_text_add(out, p[1] == '=' ? " other than " : "without ");
        else if (*p == '=')
            tm_text_add(out, p[-1] == '!' ? "" : " ");
        else
            tm_text_add_n(out, p, 1);
    }
}

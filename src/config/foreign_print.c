/* SPDX-License-Identifier: Apache-2.0 */
/* config/foreign_print.c - tables of other programs' keys, printed. */
#include "config/foreign.h"

#include "base/json.h"

#include <string.h>

static const char *const kind_names[TM_FOREIGN_KINDS] = { "mapped",     "harmless",      "performance only",
                                                          "must equal", "not supported", "other model" };

static tm_status find_framework(const char *name, const tm_framework **out, tm_error *err)
{
    *out = tm_framework_find(name);
    if (*out) return TM_OK;
    tm_text names = { 0 };
    for (size_t i = 0; tm_framework_at(i); i++) tm_text_printf(&names, "%s%s", i ? ", " : "", tm_framework_at(i)->name);
    tm_fail(err, TM_USAGE, "no keys of a framework '%.100s' are known; wanted %s", name, names.data);
    tm_text_fini(&names);
    return TM_USAGE;
}

static void describe_row(const tm_foreign_key *row, tm_text *out)
{
    if (row->kind != TM_FOREIGN_MAPPED || !*row->values) tm_text_add(out, row->words);
    for (const char *p = row->kind == TM_FOREIGN_MAPPED ? row->values : ""; *p; p++) /* a line may end behind a case */
        tm_text_printf(out, "%c%s", *p, *p == '|' || *p == ';' ? " " : "");
    if (row->convert && row->kind == TM_FOREIGN_MAPPED) tm_text_add(out, " (converted)");
    if (row->kind >= TM_FOREIGN_EQUAL && *row->values) tm_text_add(out, "; accepted: ");
    for (const char *p = row->kind >= TM_FOREIGN_EQUAL ? row->values : ""; *p; p++)
        tm_text_printf(out, "%c%s", *p, *p == '|' && p[1] ? " " : "");
    if (row->fallback) tm_text_printf(out, "; default %s", row->fallback);
    if (row->with) tm_text_add(out, "; has an effect with ");
    for (const char *p = row->with ? row->with : ""; *p; p++) /* "key=a/b" */
        if (*p == '/')
            tm_text_add(out, " or ");
        else
            tm_text_add_n(out, p, 1);
}

tm_status tm_config_print_framework(const char *name, tm_text *out, tm_error *err)
{
    const tm_framework *framework;
    size_t              counted[TM_FOREIGN_KINDS] = { 0 };
    TM_TRY(find_framework(name, &framework, err));
    tm_text_printf(out, "%s\n\n%-44s %-16s %s\n", framework->what, "key", "what it does", "");
    for (size_t i = 0; i < framework->n; i++) {
        const tm_foreign_key *row = &framework->keys[i];
        tm_text               words = { 0 };
        counted[row->kind]++;
        describe_row(row, &words);
        tm_text_printf(out, "%-44s %-16s ", row->name, kind_names[row->kind]);
        tm_text_fill(out, words.data, strlen(row->name) > 44 ? strlen(row->name) + 18 : 62, 62, 120);
        tm_text_fini(&words);
    }
    tm_text_add(out, "\n");
    for (int k = 0; k < TM_FOREIGN_KINDS; k++)
        tm_text_printf(out, "%s%zu %s", k ? ", " : "", counted[k], kind_names[k]);
    tm_text_printf(out, "\n--allow-unknown-keys applies to none of them\n");
    return TM_OK;
}

tm_status tm_config_framework_json(const char *name, tm_text *out, tm_error *err)
{
    const tm_framework *framework;
    TM_TRY(find_framework(name, &framework, err));
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '[');
    for (size_t i = 0; i < framework->n; i++) {
        const tm_foreign_key *row = &framework->keys[i];
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "name", row->name);
        tm_json_string(&json, "kind", kind_names[row->kind]);
        tm_json_string(&json, row->kind == TM_FOREIGN_MAPPED ? "mapped_to" : "accepted",
                       row->values && *row->values ? row->values : NULL);
        tm_json_string(&json, "meaning", row->words);
        tm_json_string(&json, "default", row->fallback);
        tm_json_string(&json, "with", row->with);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    if (out->data[out->length - 1] != '\n') tm_text_add(out, "\n");
    return TM_OK;
}

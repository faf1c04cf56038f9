/* SPDX-License-Identifier: Apache-2.0 */
/* config/problems.c - what is wrong is kept and told at once; what follows from something that was told is not. */
#include "config/foreign.h"

#include <string.h>

void tm_config_spoil(tm_config *config, const char *name)
{
    const tm_entry *entry = tm_config_target(config, name);
    tm_text_printf(&config->spoiled, "%s\n", entry ? entry->key.name : name);
}

static bool is_of_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does a line name the key, and no longer one; or a key of the section, "model."? */
static bool names(const char *line, const char *end, const char *key, size_t length)
{
    for (const char *p = line; p + length <= end; p++) {
        if (strncmp(p, key, length) != 0 || (p > line && (is_of_name(p[-1]) || p[-1] == '.'))) continue;
        const char *after = p + length + (p + length < end && p[length] == '.'); /* a dot may end a sentence */
        if (key[length - 1] == '.' || after >= end || !is_of_name(*after)) return true;
    }
    return false;
}

/* Rules that judge several keys know nothing of a value that was refused: they see another one. */
static bool is_consequence(const tm_config *config, const char *line, size_t n)
{
    if (!config->judging) return false;
    for (const char *key = config->spoiled.data; key && *key;) {
        size_t length = strcspn(key, "\n");
        if (names(line, line + n, key, length)) return true;
        key += length + 1;
    }
    return false;
}

void tm_config_problem(tm_config *config, const tm_error *err)
{
    size_t n;
    for (const char *line = NULL; (line = tm_error_next(err, line, &n));)
        if (!is_consequence(config, line, n)) tm_also(&config->problems, err->status, "%.*s", (int)n, line);
}

bool tm_config_report(tm_config *config, tm_status st, tm_error *err)
{
    if (st != TM_OK) tm_config_problem(config, err);
    *err = (tm_error){ 0 };
    return st != TM_OK;
}

bool tm_config_failed(const tm_config *config)
{
    return config->problems.status != TM_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* config/substitute.c - ${VAR} and ${VAR:default}. What a variable holds is taken as it is, never substituted again. */
#include "config/internal.h"

#include "base/secret.h"
#include "config/yaml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 8, MAX_RESULT_BYTES = 1 << 16 };

const char *tm_environment_find(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; environment && environment[i]; i++)
        if (strncmp(environment[i], name, n) == 0 && environment[i][n] == '=') return environment[i] + n + 1;
    return NULL;
}

/* The plain value that "a.b" names in the file itself, or NULL. */
static const char *referenced(const tm_config *config, const char *name)
{
    const tm_yaml *node = config->references;
    while (node && *name) {
        char   part[128];
        size_t n = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        node = tm_yaml_get(node, part);
        name += n + (name[n] == '.');
    }
    return node && node->kind == TM_YAML_SCALAR ? node->text : NULL;
}

static const char *closing_brace(const char *p, const char *end)
{
    int depth = 1;
    for (; p < end; p++) {
        if (*p == '{') depth++;
        if (*p == '}' && --depth == 0) return p;
    }
    return NULL;
}

typedef struct {
    const tm_config *config;
    const char      *place;
    tm_text         *out;
    bool            *secret;
    tm_error        *err;
} job;

static tm_status expand(const job *j, const char *p, const char *end, int nesting);

/* p stands behind "${". */
static tm_status expand_variable(const job *j, const char *p, const char *close, int nesting)
{
    char        name[128];
    size_t      n = 0;
    const char *q = p;
    bool        references = j->config->references != NULL;
    while (q < close && (isalnum((unsigned char)*q) || *q == '_' || (references && *q == '.'))) q++;
    n = (size_t)(q - p);
    if (n == 0 || n >= sizeof name || (q < close && *q != ':') || isdigit((unsigned char)*p))
        return tm_fail(
            j->err, TM_INVALID,
            "'${%.*s}' (%s) is not a variable: wanted ${NAME} or ${NAME:default}; write $${ for a literal ${",
            (int)(close - p > 80 ? 80 : close - p), p, j->place);
    memcpy(name, p, n);
    name[n] = '\0';
    const char *inner = referenced(j->config, name);
    if (inner) return expand(j, inner, inner + strlen(inner), nesting + 1);
    const char *value = tm_environment_find(j->config->environment, name);
    if (value) {
        if (tm_secret_name(name)) *j->secret = true;
        tm_text_add(j->out, value);
        return TM_OK;
    }
    if (q < close) return expand(j, q + 1, close, nesting + 1);
    return tm_fail(j->err, TM_INVALID,
                   "environment variable '%s' (%s) is not set: export %s=... or write ${%s:default}", name, j->place,
                   name, name);
}

static tm_status expand(const job *j, const char *p, const char *end, int nesting)
{
    if (nesting > MAX_NESTING)
        return tm_fail(j->err, TM_INVALID, "more than %d variables inside each other (%s)", MAX_NESTING, j->place);
    while (p < end) {
        if (end - p >= 3 && strncmp(p, "$${", 3) == 0) {
            tm_text_add(j->out, "${");
            p += 3;
        } else if (end - p >= 2 && strncmp(p, "${", 2) == 0) {
            const char *close = closing_brace(p + 2, end);
            if (!close)
                return tm_fail(j->err, TM_INVALID, "'${' (%s) has no closing brace; write $${ for a literal ${",
                               j->place);
            TM_TRY(expand_variable(j, p + 2, close, nesting));
            p = close + 1;
        } else {
            tm_text_add_n(j->out, p++, 1);
        }
        if (j->out->length > MAX_RESULT_BYTES)
            return tm_fail(j->err, TM_INVALID, "value is longer than %d bytes after substitution (%s)",
                           MAX_RESULT_BYTES, j->place);
    }
    return TM_OK;
}

tm_status tm_substitute(const tm_config *config, const char *text, const char *place, tm_text *out, bool *secret,
                        tm_error *err)
{
    job j = { config, place, out, secret, err };
    tm_text_add(out, "");
    return expand(&j, text, text + strlen(text), 0);
}

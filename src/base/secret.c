/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SHORTEST_SECRET = 6 };

static const char *const marks[] = { "TOKEN", "SECRET", "KEY", "PASS" };

bool tm_secret_name(const char *name)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strcasestr(name, marks[i])) return true;
    return false;
}

static void replace_all(tm_text *text, const char *secret)
{
    tm_text     masked = { 0 };
    const char *from = text->data, *found;
    if (!from || !strstr(from, secret)) return;
    for (; (found = strstr(from, secret)); from = found + strlen(secret)) {
        tm_text_add_n(&masked, from, (size_t)(found - from));
        tm_text_add(&masked, "***");
    }
    tm_text_add(&masked, from);
    tm_text_fini(text);
    *text = masked;
}

void tm_secret_mask(tm_text *text)
{
    for (char **variable = environ; variable && *variable; variable++) {
        const char *value = strchr(*variable, '=');
        char        name[256];
        if (!value || (size_t)(value - *variable) >= sizeof name || strlen(value + 1) < SHORTEST_SECRET) continue;
        memcpy(name, *variable, (size_t)(value - *variable));
        name[value - *variable] = '\0';
        if (tm_secret_name(name)) replace_all(text, value + 1);
    }
}

/* The name of an option, up to '=' or the end: is it one of a secret? Words of training that only look so are not. */
static bool secret_option(const char *argument)
{
    char   name[256];
    size_t n = strcspn(argument, "=");
    if (n >= sizeof name) return false;
    memcpy(name, argument, n);
    name[n] = '\0';
    if (!tm_secret_name(name)) return false;
    for (char *c; (c = strcasestr(name, "tokenize")) || (c = strcasestr(name, "tokens"));)
        memset(c, ' ', strlen("token"));
    return tm_secret_name(name);
}

static void add_argument(tm_text *out, const char *argument)
{
    bool plain = *argument != '\0';
    for (const char *c = argument; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_./=:,+@%*", *c)) plain = false;
    if (plain) {
        tm_text_add(out, argument);
        return;
    }
    tm_text_add(out, "'");
    for (const char *c = argument; *c; c++) tm_text_add_n(out, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
    tm_text_add(out, "'");
}

void tm_secret_command_line(tm_text *out, const char *arguments, size_t bytes)
{
    tm_text line = { 0 };
    bool    value_is_secret = false;
    for (const char *a = arguments; a < arguments + bytes; a += strlen(a) + 1) {
        const char *equals = strchr(a, '=');
        if (a != arguments) tm_text_add(&line, " ");
        if (value_is_secret && strncmp(a, "--", 2) != 0) {
            tm_text_add(&line, "***");
            value_is_secret = false;
            continue;
        }
        value_is_secret = !equals && strncmp(a, "--", 2) == 0 && secret_option(a);
        if (equals && secret_option(a)) {
            tm_text_add_n(&line, a, (size_t)(equals - a) + 1);
            tm_text_add(&line, "***");
        } else {
            add_argument(&line, a);
        }
    }
    tm_secret_mask(&line);
    tm_text_add(out, line.data ? line.data : "");
    tm_text_fini(&line);
}
